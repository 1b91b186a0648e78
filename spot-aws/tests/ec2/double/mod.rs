//! AWS as the tests have it: six services with state behind the real clients, stricter than AWS where in doubt.
//!
//! It refuses what the policy in `deploy/iam` does not allow, keeps groups at their size, zones in balance and mixes in
//! proportion, tells of changes late, and can fail at every call.

mod autoscaling;
mod balancing;
mod ec2;
mod eks;
pub(crate) mod iam;
pub(crate) mod network;
pub(crate) mod pools;
mod state;
pub(crate) mod templates;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;

pub(crate) use ec2::tagged;
pub(crate) use state::{Balancer, Fleet, Group, Instance, Member, Registration, State};
use wire::{Answer, Params, Refusal};

/// The policy that is shipped.
const POLICY: &str = include_str!("../../../../deploy/iam/spot-migrator.json");
/// The one for pools, which comes beside it.
const OF_POOLS: &str = include_str!("../../../../deploy/iam/spot-fleet.json");

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
    /// It takes effect, but no answer ever comes.
    HangAfterwards,
    /// The role has not that right.
    Denied,
    /// The credentials have expired.
    Expired,
    /// What it is about is not there any more.
    Gone,
}

impl Fault {
    /// Those that pass, and after which the work goes on.
    pub(crate) const PASSING: [Self; 6] =
        [Self::Throttled, Self::ServerError, Self::Reset, Self::Hang, Self::LostAnswer, Self::HangAfterwards];
}

/// The double.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aws(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    state: State,
    calls: Vec<Call>,
    /// Faults by action: the next so many calls of it.
    faults: BTreeMap<String, (Fault, u32)>,
}

/// A call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The right that it needs.
    pub(crate) action: String,
    /// What it says.
    pub(crate) params: BTreeMap<String, String>,
}

impl Aws {
    /// Changes or reads the state, after what time has brought about.
    pub(crate) fn state(&self) -> impl std::ops::DerefMut<Target = State> {
        let mut inner = self.inner();
        inner.state.advance();
        Guard(inner)
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.inner().calls.clone()
    }

    /// How many calls of this action were made.
    pub(crate) fn count(&self, action: &str) -> usize {
        self.inner().calls.iter().filter(|call| call.action == action).count()
    }

    /// The actions so far, each once.
    pub(crate) fn actions(&self) -> BTreeSet<String> {
        self.inner().calls.iter().map(|call| call.action.clone()).collect()
    }

    /// Calls that change something, in their order.
    pub(crate) fn writes(&self) -> Vec<Call> {
        let reads = |call: &Call| [":Describe", ":Get", ":List"].iter().any(|read| call.action.contains(read));
        let asks = |call: &Call| call.params.get("DryRun").is_some_and(|dry| dry == "true");
        self.calls().into_iter().filter(|call| !reads(call) && !asks(call)).collect()
    }

    /// Has the next so many calls of this action fail.
    pub(crate) fn fail(&self, action: &str, fault: Fault, times: u32) {
        self.inner().faults.insert(action.to_owned(), (fault, times));
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// The HTTP client behind which it is.
    pub(crate) fn client(&self) -> aws_smithy_runtime_api::client::http::SharedHttpClient {
        let connector = SharedHttpConnector::new(self.clone());
        http_client_fn(move |_settings, _components| connector.clone())
    }

    fn answer(&self, request: &wire::Request) -> Result<Answer, Option<ConnectorError>> {
        let mut inner = self.inner();
        inner.state.advance();
        let action = request.action();
        inner.calls.push(Call { action: action.clone(), params: request.params.0.clone() });
        let fault = match inner.faults.get_mut(&action) {
            Some((fault, times)) if *times > 0 => {
                *times -= 1;
                Some(*fault)
            }
            Some(_) | None => None,
        };
        let reset = || Some(ConnectorError::io("connection reset by peer".into()));
        match fault {
            Some(Fault::Throttled) => return Ok(request.refuse(&Refusal::throttled(request.service))),
            Some(Fault::ServerError) => {
                return Ok(request.refuse(&Refusal::new(500, "InternalError", "An internal error has occurred")));
            }
            Some(Fault::Denied) => return Ok(request.refuse(&Refusal::denied(request.service, &action))),
            Some(Fault::Expired) => {
                return Ok(request.refuse(&Refusal::new(400, "RequestExpired", "Request has expired.")));
            }
            Some(Fault::Gone) => return Ok(request.refuse(&Refusal::new(400, "ValidationError", "It is not there"))),
            Some(Fault::Reset) => return Err(reset()),
            Some(Fault::Hang) => return Err(None),
            Some(Fault::LostAnswer | Fault::HangAfterwards) | None => {}
        }
        if !is_allowed(&action) {
            return Ok(request.refuse(&Refusal::denied(request.service, &action)));
        }
        let answer = match request.service {
            wire::Service::Ec2 => {
                let state = &mut inner.state;
                let of_pools = network::answer(state, request).or_else(|| templates::answer(state, request));
                let of_pools = of_pools.or_else(|| pools::answer(state, request));
                of_pools.unwrap_or_else(|| ec2::answer(state, request))
            }
            wire::Service::AutoScaling => autoscaling::answer(&mut inner.state, request),
            wire::Service::Balancing => balancing::answer(&mut inner.state, request),
            wire::Service::Classic => balancing::answer_classic(&mut inner.state, request),
            wire::Service::Eks => eks::answer(&inner.state, request),
            wire::Service::Iam => {
                let answer =
                    network::answer_iam(&inner.state, request).or_else(|| iam::answer(&mut inner.state, request));
                answer.unwrap_or_else(|| panic!("no call of IAM: {}", request.name))
            }
        };
        let answer = answer.unwrap_or_else(|refusal| request.refuse(&refusal));
        match fault {
            Some(Fault::LostAnswer) => Err(reset()),
            Some(Fault::HangAfterwards) => Err(None),
            _ => Ok(answer),
        }
    }
}

impl HttpConnector for Aws {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let request = wire::Request::read(&request);
        let aws = self.clone();
        HttpConnectorFuture::new(async move {
            // A round trip: time passes with every call.
            tokio::time::sleep(Duration::from_millis(20)).await;
            match aws.answer(&request) {
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

struct Guard<'a>(MutexGuard<'a, Inner>);

impl std::ops::Deref for Guard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0.state
    }
}

impl std::ops::DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0.state
    }
}

/// The actions of the policy.
pub(crate) fn allowed() -> BTreeSet<String> {
    actions(POLICY)
}

/// The actions of the policy for pools.
pub(crate) fn allowed_to_pools() -> BTreeSet<String> {
    actions(OF_POOLS)
}

fn actions(policy: &str) -> BTreeSet<String> {
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap();
    let statements = policy["Statement"].as_array().unwrap().iter();
    let actions = statements.flat_map(|statement| statement["Action"].as_array().unwrap());
    actions.map(|action| action.as_str().unwrap().to_owned()).collect()
}

fn is_allowed(action: &str) -> bool {
    static ALLOWED: std::sync::OnceLock<BTreeSet<String>> = std::sync::OnceLock::new();
    ALLOWED.get_or_init(|| &allowed() | &allowed_to_pools()).contains(action)
}

impl Params {
    /// The values of a list, `Name.1`, `Name.2`, … or `Name.member.1`, ….
    fn list(&self, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        for at in 1.. {
            let keys = [format!("{name}.{at}"), format!("{name}.member.{at}")];
            let Some(value) = keys.iter().find_map(|key| self.0.get(key)) else { break };
            values.push(value.clone());
        }
        values
    }
}
