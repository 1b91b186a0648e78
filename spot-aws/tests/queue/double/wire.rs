//! Requests read, answers written, in the protocols of the two services.

use std::collections::BTreeMap;

use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use serde_json::{Value, json};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) is_sqs: bool,
    pub(crate) name: String,
    pub(crate) params: Value,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn ok(body: String) -> Self {
        Self { status: 200, headers: Vec::new(), body }
    }
}

/// An error that AWS answers.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    status: u16,
    code: String,
    words: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, code: &str, words: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), words: words.into() }
    }
}

impl Request {
    pub(crate) fn read(request: &HttpRequest) -> Self {
        let uri: http::Uri = request.uri().parse().unwrap();
        let body = request.body().bytes().unwrap_or_default();
        match uri.host().unwrap().split('.').next() {
            Some("sqs") => {
                let target = request.headers().get("x-amz-target").unwrap();
                let name = target.strip_prefix("AmazonSQS.").unwrap().to_owned();
                Self { is_sqs: true, name, params: serde_json::from_slice(body).unwrap() }
            }
            Some("autoscaling") => {
                let params: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
                Self { is_sqs: false, name: params["Action"].clone(), params: json!(params) }
            }
            other => panic!("no service of ours: {other:?}"),
        }
    }

    /// The right that it needs.
    pub(crate) fn action(&self) -> String {
        format!("{}:{}", if self.is_sqs { "sqs" } else { "autoscaling" }, self.name)
    }

    /// What it says under a name.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.params[name].as_str().unwrap_or_default()
    }

    pub(crate) fn throttled(&self) -> Refusal {
        if self.is_sqs {
            Refusal::new(403, "RequestThrottled", "Rate exceeded")
        } else {
            Refusal::new(400, "Throttling", "Rate exceeded")
        }
    }

    pub(crate) fn denied(&self) -> Refusal {
        Refusal::new(
            403,
            if self.is_sqs { "AccessDeniedException" } else { "AccessDenied" },
            format!("not: {}", self.name),
        )
    }

    /// The answer of Auto Scaling.
    pub(crate) fn query(&self, content: &str) -> Answer {
        let name = &self.name;
        Answer::ok(format!("<{name}Response><{name}Result>{content}</{name}Result></{name}Response>"))
    }

    pub(crate) fn refuse(&self, refusal: &Refusal) -> Answer {
        let Refusal { status, code, words } = refusal;
        if !self.is_sqs {
            let error = format!("<Error><Code>{code}</Code><Message>{words}</Message></Error>");
            return Answer {
                status: *status,
                headers: Vec::new(),
                body: format!("<ErrorResponse>{error}</ErrorResponse>"),
            };
        }
        // As SQS does it: the new name in the body, the old one in a header.
        let shape = code.rsplit('.').next().unwrap();
        let shape = if shape == "NonExistentQueue" { "QueueDoesNotExist" } else { shape };
        let body = json!({ "__type": format!("com.amazonaws.sqs#{shape}"), "message": words }).to_string();
        Answer { status: *status, headers: vec![("x-amzn-query-error", format!("{code};Sender"))], body }
    }
}
