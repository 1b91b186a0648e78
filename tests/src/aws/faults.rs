//! What goes wrong between the product and AWS.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Door;
use crate::process::Process;

/// The fault proxy. Rules are added, and each is over when it has fired as often as it may.
#[derive(Debug)]
pub struct Faults {
    _process: Process,
    door: Door,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is one too many.
    Throttled,
    /// The service has an internal error.
    Internal,
    /// The caller lacks the right.
    Denied,
    /// The connection is reset before an answer.
    Reset,
    /// There is no answer for so long, then a 504.
    Hang(Duration),
    /// It reaches AWS, which does what it asks for, and the answer is cut off.
    AnswerLost,
}

/// A fault that was injected.
#[derive(Clone, Debug, Deserialize)]
pub struct Fired {
    /// The service, by its botocore name.
    pub service: Option<String>,
    /// The API call.
    pub operation: Option<String>,
    /// What was done, in the proxy's words.
    pub action: String,
}

impl Faults {
    pub(super) fn new(process: Process, address: &str) -> Self {
        Self { _process: process, door: Door::new(address) }
    }

    pub(super) fn address(&self) -> &str {
        &self.door.address
    }

    /// Answers the next `times` requests for `operation` (an API call, as in `DescribeInstances`) as throttled.
    ///
    /// # Panics
    /// If the proxy does not take the rule.
    pub async fn throttle(&self, operation: &str, times: u32) {
        self.inject(operation, Fault::Throttled, times).await;
    }

    /// Does `fault` to the next `times` requests for `operation`.
    ///
    /// # Panics
    /// If the proxy does not take the rule.
    pub async fn inject(&self, operation: &str, fault: Fault, times: u32) {
        let mut rule = fault.rule();
        rule["service"] = json!("*");
        rule["operation"] = json!(operation);
        rule["times"] = json!(times);
        let added: Vec<Value> = self.door.ask("PATCH", "/_microburst/rules", &json!([rule])).await;
        assert_eq!(added.len(), 1, "{added:?}");
    }

    /// Nothing goes wrong any more.
    ///
    /// # Panics
    /// If the proxy does not answer.
    pub async fn stop(&self) {
        let left: Vec<Value> = self.door.ask("POST", "/_microburst/rules", &json!([])).await;
        assert!(left.is_empty(), "{left:?}");
    }

    /// What was injected so far, in order.
    ///
    /// # Panics
    /// If the proxy does not answer.
    pub async fn fired(&self) -> Vec<Fired> {
        self.door.ask("GET", "/_microburst/fired?limit=1000", &Value::Null).await
    }
}

impl Fault {
    fn rule(self) -> Value {
        match self {
            Self::Throttled => json!({"error": {"code": "Throttling", "status": 400, "message": "Rate exceeded"}}),
            Self::Internal => json!({"error": {"code": "InternalFailure", "status": 500, "message": "internal error"}}),
            Self::Denied => json!({"error": {
                "code": "UnauthorizedOperation",
                "status": 403,
                "message": "You are not authorized to perform this operation.",
            }}),
            Self::Reset => json!({"reset": true}),
            Self::Hang(time) => json!({"timeout_ms": u64::try_from(time.as_millis()).expect("it is not for ever")}),
            Self::AnswerLost => json!({"response": {"abort_bytes": 1}}),
        }
    }
}
