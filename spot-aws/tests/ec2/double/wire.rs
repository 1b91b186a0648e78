//! Requests read, answers written, in the protocols of the six services.

use std::collections::BTreeMap;

use aws_smithy_runtime_api::client::orchestrator::HttpRequest;

/// Which service is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Ec2,
    AutoScaling,
    Balancing,
    Classic,
    Eks,
    Iam,
}

impl Service {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::AutoScaling => "autoscaling",
            Self::Balancing | Self::Classic => "elasticloadbalancing",
            Self::Eks => "eks",
            Self::Iam => "iam",
        }
    }
}

/// What a request says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(pub(crate) BTreeMap<String, String>);

impl Params {
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) service: Service,
    pub(crate) name: String,
    pub(crate) params: Params,
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

    pub(crate) fn throttled(service: Service) -> Self {
        match service {
            Service::Ec2 => Self::new(503, "RequestLimitExceeded", "Request limit exceeded."),
            Service::Eks => Self::new(429, "ThrottlingException", "Rate exceeded"),
            Service::AutoScaling | Service::Balancing | Service::Classic | Service::Iam => {
                Self::new(400, "Throttling", "Rate exceeded")
            }
        }
    }

    pub(crate) fn denied(service: Service, action: &str) -> Self {
        let words = format!("You are not authorized to perform this operation: {action}");
        match service {
            Service::Ec2 => Self::new(403, "UnauthorizedOperation", words),
            Service::Eks => Self::new(403, "AccessDeniedException", words),
            Service::AutoScaling | Service::Balancing | Service::Classic | Service::Iam => {
                Self::new(403, "AccessDenied", words)
            }
        }
    }
}

impl Request {
    pub(crate) fn read(request: &HttpRequest) -> Self {
        let uri: http::Uri = request.uri().parse().unwrap();
        let host = uri.host().unwrap();
        let body = request.body().bytes().unwrap_or_default();
        let params: BTreeMap<_, _> = form_urlencoded::parse(body).into_owned().collect();
        if let Some(path) = host.starts_with("eks.").then(|| uri.path()) {
            let parts: Vec<_> = path.trim_matches('/').split('/').collect();
            let ["clusters", cluster, "node-groups", name] = parts[..] else { panic!("no call of EKS: {path}") };
            let pairs = [("cluster", cluster), ("name", name)];
            let params = pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            return Self { service: Service::Eks, name: "DescribeNodegroup".to_owned(), params: Params(params) };
        }
        let version = params.get("Version").map(String::as_str);
        let service = match (host.split('.').next(), version) {
            (Some("ec2"), _) => Service::Ec2,
            (Some("autoscaling"), _) => Service::AutoScaling,
            (Some("iam"), _) => Service::Iam,
            (Some("elasticloadbalancing"), Some("2012-06-01")) => Service::Classic,
            (Some("elasticloadbalancing"), Some("2015-12-01")) => Service::Balancing,
            other => panic!("no service of ours: {other:?}"),
        };
        Self { service, name: params["Action"].clone(), params: Params(params) }
    }

    /// The right that it needs.
    pub(crate) fn action(&self) -> String {
        format!("{}:{}", self.service.prefix(), self.name)
    }

    /// The answer of EC2.
    pub(crate) fn ec2(&self, content: &str) -> Answer {
        let name = &self.name;
        Answer::ok(format!("<{name}Response><requestId>r</requestId>{content}</{name}Response>"))
    }

    /// The answer of the others that speak XML.
    pub(crate) fn query(&self, content: &str) -> Answer {
        let name = &self.name;
        Answer::ok(format!("<{name}Response><{name}Result>{content}</{name}Result></{name}Response>"))
    }

    pub(crate) fn refuse(&self, refusal: &Refusal) -> Answer {
        let Refusal { status, code, words } = refusal;
        let error = format!("<Error><Code>{code}</Code><Message>{words}</Message></Error>");
        let (headers, body) = match self.service {
            Service::Ec2 => (Vec::new(), format!("<Response><Errors>{error}</Errors></Response>")),
            Service::Eks => {
                (vec![("x-amzn-errortype", code.clone())], serde_json::json!({ "message": words }).to_string())
            }
            Service::AutoScaling | Service::Balancing | Service::Classic | Service::Iam => {
                (Vec::new(), format!("<ErrorResponse>{error}</ErrorResponse>"))
            }
        };
        Answer { status: *status, headers, body }
    }
}

/// An element with text; none without any.
pub(crate) fn tag(name: &str, value: impl std::fmt::Display) -> String {
    format!("<{name}>{value}</{name}>")
}

/// A list of elements.
pub(crate) fn list(name: &str, item: &str, items: impl IntoIterator<Item = String>) -> String {
    let items: String = items.into_iter().map(|one| tag(item, one)).collect();
    tag(name, items)
}
