//! The protocol: AWS JSON 1.0, with the codes of the older one in a header.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};

/// What this double can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    ReceiveMessage,
    DeleteMessage,
    DeleteMessageBatch,
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    GetQueueAttributes,
    GetQueueUrl,
}

impl Action {
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "ReceiveMessage" => Self::ReceiveMessage,
            "DeleteMessage" => Self::DeleteMessage,
            "DeleteMessageBatch" => Self::DeleteMessageBatch,
            "ChangeMessageVisibility" => Self::ChangeMessageVisibility,
            "ChangeMessageVisibilityBatch" => Self::ChangeMessageVisibilityBatch,
            "GetQueueAttributes" => Self::GetQueueAttributes,
            "GetQueueUrl" => Self::GetQueueUrl,
            _ => return None,
        })
    }

    /// Whether `other` asks for the same, perhaps for several messages at once: to IAM they are one.
    pub(super) fn is_also(self, other: Self) -> bool {
        self.right() == other.right()
    }

    /// Whether it is for several messages at once.
    pub(super) fn is_batch(self) -> bool {
        matches!(self, Self::DeleteMessageBatch | Self::ChangeMessageVisibilityBatch)
    }

    fn right(self) -> &'static str {
        match self {
            Self::ReceiveMessage => "sqs:receivemessage",
            Self::DeleteMessage | Self::DeleteMessageBatch => "sqs:deletemessage",
            Self::ChangeMessageVisibility | Self::ChangeMessageVisibilityBatch => "sqs:changemessagevisibility",
            Self::GetQueueAttributes => "sqs:getqueueattributes",
            Self::GetQueueUrl => "sqs:getqueueurl",
        }
    }
}

/// One request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) action: Action,
    /// The region that it is signed for.
    pub(super) region: String,
    body: Value,
}

/// What a receiver wants.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) most: usize,
    pub(super) wait: Duration,
    pub(super) hidden_for: Option<Duration>,
    pub(super) attributes: Vec<String>,
}

/// One of the messages that a request is about.
#[derive(Debug)]
pub(super) struct Change {
    /// Its name in the batch.
    pub(super) id: String,
    pub(super) receipt: String,
    /// For how long it is to be hidden; nothing where it is to be deleted.
    pub(super) hidden_for: Option<Duration>,
}

impl Call {
    pub(super) fn read(action: Action, headers: &HeaderMap, body: &[u8]) -> Result<Self, Refusal> {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
        if text(header::CONTENT_TYPE) != "application/x-amz-json-1.0" {
            return Err(Refusal::client("UnknownOperationException", "the content type is not the protocol's"));
        }
        // `Credential=<key>/<day>/<region>/<service>/aws4_request`
        let scope = text(header::AUTHORIZATION).split("Credential=").nth(1).unwrap_or_default();
        let mut scope = scope.split('/').skip(2);
        let (region, service) = (scope.next().unwrap_or_default(), scope.next().unwrap_or_default());
        if service != "sqs" {
            return Err(Refusal {
                status: StatusCode::FORBIDDEN,
                ..Refusal::client("MissingAuthenticationTokenException", "Request is missing Authentication Token")
            });
        }
        let body = serde_json::from_slice(body);
        let body = body.map_err(|error| Refusal::client("SerializationException", &error.to_string()))?;
        Ok(Self { action, region: region.to_owned(), body })
    }

    /// The name of the queue that it names, by its URL or as such.
    pub(super) fn queue(&self) -> Option<String> {
        if self.action == Action::GetQueueUrl {
            return self.body["QueueName"].as_str().map(str::to_owned);
        }
        let mut path = self.body["QueueUrl"].as_str()?.rsplit('/');
        let name = path.next()?;
        (path.next() == Some(super::ACCOUNT)).then(|| name.to_owned())
    }

    pub(super) fn wanted(&self) -> Result<Wanted, Refusal> {
        let most = self.number("MaxNumberOfMessages", 1..=10)?.unwrap_or(1);
        let wait = self.number("WaitTimeSeconds", 0..=20)?.unwrap_or(0);
        let hidden_for = self.number("VisibilityTimeout", 0..=43_200)?;
        Ok(Wanted {
            most: usize::try_from(most).unwrap_or(1),
            wait: Duration::from_secs(wait),
            hidden_for: hidden_for.map(Duration::from_secs),
            attributes: self.names(&["AttributeNames", "MessageSystemAttributeNames"]),
        })
    }

    /// The names in lists of this request.
    pub(super) fn names(&self, lists: &[&str]) -> Vec<String> {
        let lists = lists.iter().filter_map(|list| self.body[*list].as_array());
        lists.flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
    }

    /// The messages that it is about.
    pub(super) fn changes(&self) -> Result<Vec<Change>, Refusal> {
        if !self.action.is_batch() {
            return Ok(vec![self.entry(&self.body)?]);
        }
        let entries = self.body["Entries"].as_array().map(Vec::as_slice).unwrap_or_default();
        let kind = match entries.len() {
            0 => Some(("EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest")),
            1..=10 => None,
            _ => Some(("TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest")),
        };
        if let Some((kind, query)) = kind {
            return Err(Refusal { query, ..Refusal::client(kind, "1 to 10 entries make a batch") });
        }
        let changes: Vec<_> = entries.iter().map(|entry| self.entry(entry)).collect::<Result<_, _>>()?;
        let mut ids: Vec<_> = changes.iter().map(|change| &change.id).collect();
        ids.sort();
        ids.dedup();
        if ids.len() < changes.len() {
            let query = "AWS.SimpleQueueService.BatchEntryIdsNotDistinct";
            return Err(Refusal { query, ..Refusal::client("BatchEntryIdsNotDistinct", "two entries have one Id") });
        }
        Ok(changes)
    }

    fn entry(&self, entry: &Value) -> Result<Change, Refusal> {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let hides = Action::ChangeMessageVisibility.is_also(self.action);
        let hidden_for = match (hides, entry["VisibilityTimeout"].as_u64()) {
            (true, Some(seconds @ 0..=43_200)) => Some(Duration::from_secs(seconds)),
            (true, _) => return Err(Refusal::parameter("VisibilityTimeout")),
            (false, _) => None,
        };
        Ok(Change { id: text("Id"), receipt: text("ReceiptHandle"), hidden_for })
    }

    fn number(&self, name: &str, allowed: std::ops::RangeInclusive<u64>) -> Result<Option<u64>, Refusal> {
        match &self.body[name] {
            Value::Null => Ok(None),
            value => value
                .as_u64()
                .filter(|number| allowed.contains(number))
                .map(Some)
                .ok_or_else(|| Refusal::parameter(name)),
        }
    }
}

/// What SQS says when it does not do something.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    kind: String,
    /// The code of the older protocol, by which clients know it.
    query: &'static str,
    message: String,
}

impl Refusal {
    pub(super) fn no_queue() -> Self {
        Self {
            query: "AWS.SimpleQueueService.NonExistentQueue",
            ..Self::client("QueueDoesNotExist", "The specified queue does not exist.")
        }
    }

    pub(super) fn denied(action: Action, queue: &str) -> Self {
        let (right, account, region) = (action.right(), super::ACCOUNT, super::REGION);
        let message = format!(
            "User: arn:aws:iam::{account}:user/test is not authorized to perform: {right} on resource: \
             arn:aws:sqs:{region}:{account}:{queue} because no identity-based policy allows the {right} action"
        );
        Self {
            status: StatusCode::FORBIDDEN,
            kind: "com.amazon.coral.service#AccessDeniedException".to_owned(),
            query: "AccessDenied",
            message,
        }
    }

    pub(super) fn unknown_operation(name: &str) -> Self {
        Self::client("UnknownOperationException", &format!("{name} is not part of this double"))
    }

    pub(super) fn receipt() -> Self {
        Self {
            query: "ReceiptHandleIsInvalid",
            ..Self::client("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
        }
    }

    pub(super) fn not_in_flight() -> Self {
        Self {
            query: "AWS.SimpleQueueService.MessageNotInflight",
            ..Self::client("MessageNotInflight", "The message referred to isn't in flight.")
        }
    }

    fn parameter(name: &str) -> Self {
        Self {
            query: "InvalidParameterValue",
            ..Self::client("InvalidParameterValueException", &format!("Value for parameter {name} is invalid."))
        }
    }

    fn client(kind: &str, message: &str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: format!("com.amazonaws.sqs#{kind}"),
            query: "InvalidRequest",
            message: message.to_owned(),
        }
    }

    /// As an entry of a batch's answer.
    pub(super) fn entry(&self, id: &str) -> Value {
        json!({"Id": id, "Code": self.query, "Message": self.message, "SenderFault": true})
    }
}

pub(super) fn written(answer: Result<Value, Refusal>) -> Response<Full<Bytes>> {
    let json = |status, body: &Value| {
        let mut answer = super::status(status, Full::from(body.to_string()));
        let kind = HeaderValue::from_static("application/x-amz-json-1.0");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        answer
    };
    match answer {
        Ok(body) => json(StatusCode::OK, &body),
        Err(refusal) => {
            let body = json!({"__type": refusal.kind, "message": refusal.message});
            let mut answer = json(refusal.status, &body);
            let code = HeaderValue::from_str(&format!("{};Sender", refusal.query)).expect("codes are ASCII");
            answer.headers_mut().insert("x-amzn-query-error", code);
            answer
        }
    }
}
