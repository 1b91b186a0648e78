//! Answers, in the words of the API server.

use bytes::Bytes;
use http::Response;
use http_body_util::channel::Channel;
use serde_json::{Value, json};
use spot_core::pod::PodRef;
use spot_core::ports::EvictAnswer;

/// The body of an answer; a watch's goes on.
pub(crate) type Body = Channel<Bytes, std::io::Error>;

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) const fn object(code: u16, body: Value) -> Self {
        Self { code, retry_after: None, body }
    }

    /// A `Status` that says no.
    pub(crate) fn no(code: u16, reason: &str, message: &str) -> Self {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "code": code,
        });
        Self::object(code, body)
    }

    /// With more words on why.
    pub(crate) fn because(mut self, cause: &str, message: &str) -> Self {
        self.body["details"]["causes"] = json!([{"reason": cause, "message": message}]);
        self
    }

    /// With a wish to be asked again after so many seconds.
    pub(crate) fn later(mut self, seconds: u64) -> Self {
        self.body["details"]["retryAfterSeconds"] = json!(seconds);
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn not_found(resource: &str, name: &str) -> Self {
        Self::no(404, "NotFound", &format!("{resource} \"{name}\" not found"))
    }

    /// Another version is there.
    pub(crate) fn modified(resource: &str, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {resource} \"{name}\": the object has been modified; please apply your \
             changes to the latest version and try again"
        );
        Self::no(409, "Conflict", &message)
    }

    /// What the eviction of a pod is answered with.
    pub(crate) fn eviction(pod: &PodRef, answer: &EvictAnswer, bears_the_name: Option<&str>) -> Self {
        match answer {
            EvictAnswer::Accepted => {
                Self::object(201, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
            }
            EvictAnswer::Gone => match bears_the_name {
                None => Self::not_found("pods", &pod.name),
                Some(other) => {
                    let message = format!(
                        "the UID in the precondition ({}) does not match the UID in record ({other}). The object might \
                         have been deleted and then recreated",
                        pod.uid
                    );
                    Self::no(409, "Conflict", &message)
                }
            },
            EvictAnswer::Budget { budget, retry_after } => {
                let name = budget.as_ref().map_or("", |budget| &*budget.name);
                match retry_after {
                    None => Self::held_by_a_budget(name),
                    Some(after) => Self::no(
                        429,
                        "TooManyRequests",
                        "Cannot evict pod as it would violate the pod's disruption budget.",
                    )
                    .because(
                        "DisruptionBudget",
                        &format!("The disruption budget {name} is still being processed by the server."),
                    )
                    .later(after.as_secs()),
                }
            }
            EvictAnswer::MultipleBudgets => Self::no(
                500,
                "InternalError",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ),
            EvictAnswer::Overloaded { .. }
            | EvictAnswer::ServerError(_)
            | EvictAnswer::NamespaceTerminating
            | EvictAnswer::Denied(_)
            | EvictAnswer::Webhook(_)
            | EvictAnswer::Invalid(_) => panic!("the world does not answer that: {answer:?}"),
        }
    }

    /// A budget allows no disruption.
    pub(crate) fn held_by_a_budget(name: &str) -> Self {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let cause = format!("The disruption budget {name} needs 3 healthy pods and has 3 currently");
        Self::no(429, "TooManyRequests", message).because("DisruptionBudget", &cause)
    }

    pub(crate) async fn sent(self) -> Response<Body> {
        let (mut sender, body) = Channel::new(1);
        sender.send_data(self.body.to_string().into()).await.unwrap();
        let mut response = Response::builder().status(self.code).header("content-type", "application/json");
        if let Some(seconds) = self.retry_after {
            response = response.header("retry-after", seconds);
        }
        response.body(body).unwrap()
    }
}
