//! SQS and Auto Scaling's lifecycle hooks as the tests have them: with state, behind the real clients, stricter than AWS
//! where in doubt.
//!
//! Receipts go out of date, what was received comes back, nothing is kept for more than twelve hours, and whatever
//! `deploy/iam/interruptions.json` does not allow is refused.

mod hooks;
mod sqs;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use tokio::sync::Notify;

pub(crate) use hooks::{Ended, Hook, Hooks};
pub(crate) use sqs::Messages;
use wire::{Answer, Refusal, Request};

/// The policy that is shipped.
const POLICY: &str = include_str!("../../../deploy/iam/interruptions.json");
/// How long a request is under way, and its answer.
const WAY: Duration = Duration::from_millis(20);

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Too many requests.
    Throttled,
    /// An error of the server's, before it did anything.
    ServerError,
    /// The connection breaks before the request arrives.
    Reset,
    /// No answer ever comes; nothing happens.
    Hang,
    /// It takes effect, but the answer is lost.
    LostAnswer,
    /// It takes effect, but only half of the answer comes.
    HalfAnswer,
    /// The role has not that right.
    Denied,
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The right that it needs.
    pub(crate) action: String,
    /// What it says.
    pub(crate) params: serde_json::Value,
}

#[derive(Debug, Default)]
struct Inner {
    messages: Messages,
    hooks: Hooks,
    calls: Vec<Call>,
    faults: BTreeMap<String, (Fault, u32)>,
}

/// The double.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aws {
    inner: Arc<Mutex<Inner>>,
    /// Something may be there to be received.
    changed: Arc<Notify>,
}

impl Aws {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Puts a message into the queue; its ID.
    pub(crate) fn send(&self, body: &str) -> String {
        let id = self.inner().messages.send(body);
        self.changed.notify_waiters();
        id
    }

    /// Looks at the messages.
    pub(crate) fn messages<T>(&self, look: impl FnOnce(&mut Messages) -> T) -> T {
        let seen = look(&mut self.inner().messages);
        self.changed.notify_waiters();
        seen
    }

    /// Looks at the hooks.
    pub(crate) fn hooks<T>(&self, look: impl FnOnce(&mut Hooks) -> T) -> T {
        let mut inner = self.inner();
        inner.hooks.advance();
        look(&mut inner.hooks)
    }

    /// The calls so far, of one action.
    pub(crate) fn calls(&self, action: &str) -> Vec<Call> {
        self.inner().calls.iter().filter(|call| call.action == action).cloned().collect()
    }

    /// The actions so far, in their order.
    pub(crate) fn actions(&self) -> Vec<String> {
        self.inner().calls.iter().map(|call| call.action.clone()).collect()
    }

    /// Has the next so many calls of this action fail.
    pub(crate) fn fail(&self, action: &str, fault: Fault, times: u32) {
        self.inner().faults.insert(action.to_owned(), (fault, times));
    }

    /// Has the calls of this action go right again.
    pub(crate) fn recover(&self, action: &str) {
        self.inner().faults.remove(action);
    }

    /// The HTTP client behind which it is.
    pub(crate) fn client(&self) -> SharedHttpClient {
        let connector = SharedHttpConnector::new(self.clone());
        http_client_fn(move |_settings, _components| connector.clone())
    }

    fn fault(&self, action: &str) -> Option<Fault> {
        let mut inner = self.inner();
        let (fault, times) = inner.faults.get_mut(action)?;
        *times = times.checked_sub(1)?;
        Some(*fault)
    }

    async fn answer(&self, request: &Request) -> Result<Answer, Option<ConnectorError>> {
        let action = request.action();
        self.inner().calls.push(Call { action: action.clone(), params: request.params.clone() });
        let fault = self.fault(&action);
        let reset = || Some(ConnectorError::io("connection reset by peer".into()));
        match fault {
            Some(Fault::Throttled) => return Ok(request.refuse(&request.throttled())),
            Some(Fault::ServerError) => {
                return Ok(request.refuse(&Refusal::new(500, "InternalFailure", "An internal error has occurred")));
            }
            Some(Fault::Denied) => return Ok(request.refuse(&request.denied())),
            Some(Fault::Reset) => return Err(reset()),
            Some(Fault::Hang) => return Err(None),
            Some(Fault::LostAnswer | Fault::HalfAnswer) | None => {}
        }
        if !allowed().contains(&action) {
            return Ok(request.refuse(&request.denied()));
        }
        let answer = if request.is_sqs { self.sqs(request).await } else { self.autoscaling(request) };
        let mut answer = answer.unwrap_or_else(|refusal| request.refuse(&refusal));
        match fault {
            Some(Fault::LostAnswer) => return Err(reset()),
            Some(Fault::HalfAnswer) => answer.body.truncate(answer.body.len() / 2),
            _ => {}
        }
        Ok(answer)
    }

    fn autoscaling(&self, request: &Request) -> Result<Answer, Refusal> {
        self.hooks(|hooks| hooks.answer(request))
    }

    async fn sqs(&self, request: &Request) -> Result<Answer, Refusal> {
        if request.name != "ReceiveMessage" {
            let answer = self.inner().messages.answer(request);
            self.changed.notify_waiters();
            return answer;
        }
        let wanted = sqs::Receive::read(&request.params)?;
        let until = tokio::time::Instant::now() + wanted.wait;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let next = {
                let mut inner = self.inner();
                inner.messages.find(&wanted.queue)?;
                let received = inner.messages.receive(&wanted);
                if !received.is_empty() || tokio::time::Instant::now() >= until {
                    let empty = serde_json::json!({});
                    let some = serde_json::json!({ "Messages": received });
                    return Ok(Answer::ok(if received.is_empty() { empty } else { some }.to_string()));
                }
                inner.messages.next_visible().map_or(until, |next| next.min(until))
            };
            tokio::select! { () = tokio::time::sleep_until(next) => {}, () = changed => {} }
        }
    }
}

impl HttpConnector for Aws {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let request = Request::read(&request);
        let aws = self.clone();
        HttpConnectorFuture::new(async move {
            tokio::time::sleep(WAY).await;
            let answer = aws.answer(&request).await;
            tokio::time::sleep(WAY).await;
            match answer {
                Ok(Answer { status, headers, body }) => {
                    let mut response = HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(body));
                    for (name, value) in headers {
                        response.headers_mut().insert(name, value);
                    }
                    Ok(response)
                }
                Err(Some(error)) => Err(error),
                Err(None) => std::future::pending().await,
            }
        })
    }
}

/// The actions of the policy.
pub(crate) fn allowed() -> &'static BTreeSet<String> {
    static ALLOWED: OnceLock<BTreeSet<String>> = OnceLock::new();
    ALLOWED.get_or_init(|| {
        let policy: serde_json::Value = serde_json::from_str(POLICY).unwrap();
        let statements = policy["Statement"].as_array().unwrap().iter();
        let actions = statements.flat_map(|statement| statement["Action"].as_array().unwrap());
        actions.map(|action| action.as_str().unwrap().to_owned()).collect()
    })
}
