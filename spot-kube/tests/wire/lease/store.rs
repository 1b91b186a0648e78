//! An API server with one lease, whose clock can run ahead of every timer, as that of a process that was frozen.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request, Response};
use http_body_util::Full;
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};
use spot_core::ports::{Clock, Instant};
use spot_kube::TokioClock;
use spot_kube::lease::{Candidate, Settings};

use crate::server::status;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ours/leases";

/// The wall clock at the beginning of a test.
pub(crate) const NOON: &str = "2026-01-01T12:00:00Z";

/// Clocks of a process that can be frozen: then time goes on, and its timers do not.
#[derive(Debug)]
pub(crate) struct FrozenClock {
    timers: TokioClock,
    ahead: Mutex<Duration>,
}

impl FrozenClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { timers: TokioClock::new(), ahead: Mutex::default() })
    }

    pub(crate) fn freeze(&self, duration: Duration) {
        *self.ahead.lock().unwrap() += duration;
    }
}

#[async_trait::async_trait]
impl Clock for FrozenClock {
    fn now(&self) -> Timestamp {
        NOON.parse::<Timestamp>().unwrap() + self.instant().0
    }

    fn instant(&self) -> Instant {
        self.timers.instant() + *self.ahead.lock().unwrap()
    }

    async fn sleep_until(&self, at: Instant) {
        let timer = at.0.saturating_sub(*self.ahead.lock().unwrap());
        self.timers.sleep_until(Instant(timer)).await;
    }
}

/// How the server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Serves,
    /// Nobody listens.
    Away,
    /// Nobody answers.
    Hangs,
    /// It answers so, without doing anything.
    Says(u16, &'static str),
    /// It does what it is asked, and the answer is lost.
    DropsAnswers,
    /// Its answers take so long.
    Takes(Duration),
}

#[derive(Debug)]
struct State {
    mood: Mood,
    /// The mood holds for so many more requests; none: until it is changed.
    moody: Option<usize>,
    lease: Option<Value>,
    version: u64,
    requests: Vec<(Duration, Method)>,
}

/// The server.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    state: Arc<Mutex<State>>,
    began: tokio::time::Instant,
}

impl Store {
    pub(crate) fn new() -> Self {
        let state = State { mood: Mood::Serves, moody: None, lease: None, version: 0, requests: Vec::new() };
        Self { state: Arc::new(Mutex::new(state)), began: tokio::time::Instant::now() }
    }

    pub(crate) fn is(&self, mood: Mood) {
        let mut state = self.state.lock().unwrap();
        (state.mood, state.moody) = (mood, None);
    }

    /// Behaves so for one request.
    pub(crate) fn once(&self, mood: Mood) {
        let mut state = self.state.lock().unwrap();
        (state.mood, state.moody) = (mood, Some(1));
    }

    /// Writes the lease as somebody else would; none: deletes it.
    pub(crate) fn put(&self, spec: Option<Value>) {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let version = state.version.to_string();
        let metadata = json!({"name": "lease", "namespace": "ours", "resourceVersion": version});
        state.lease = spec.map(
            |spec| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}),
        );
    }

    pub(crate) fn spec(&self) -> Value {
        self.state.lock().unwrap().lease.as_ref().map_or(Value::Null, |lease| lease["spec"].clone())
    }

    pub(crate) fn holder(&self) -> String {
        self.spec()["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// The requests so far: when, and which.
    pub(crate) fn requests(&self) -> Vec<(Duration, Method)> {
        self.state.lock().unwrap().requests.clone()
    }

    pub(crate) fn client(&self) -> kube::Client {
        let store = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let store = store.clone();
            async move { store.serve(request).await }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn candidate(&self, identity: &str, clock: &Arc<FrozenClock>) -> Candidate {
        Candidate::new(self.client(), settings(identity), Arc::clone(clock) as _)
    }

    async fn serve(&self, request: Request<Body>) -> io::Result<Response<Full<Bytes>>> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let mood = {
            let mut state = self.state.lock().unwrap();
            state.requests.push((self.began.elapsed(), head.method.clone()));
            let mood = state.mood;
            if let Some(moody) = &mut state.moody {
                *moody -= 1;
                if *moody == 0 {
                    (state.mood, state.moody) = (Mood::Serves, None);
                }
            }
            mood
        };
        let (code, answer) = match mood {
            Mood::Away => return Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
            Mood::Hangs => return std::future::pending().await,
            Mood::Says(code, reason) => (code, status(code, reason, "not today")),
            Mood::Serves => self.answer(&head.method, head.uri.path(), &body),
            Mood::Takes(duration) => {
                let answer = self.answer(&head.method, head.uri.path(), &body);
                tokio::time::sleep(duration).await;
                answer
            }
            Mood::DropsAnswers => {
                self.answer(&head.method, head.uri.path(), &body);
                return std::future::pending().await;
            }
        };
        Ok(Response::builder().status(code).body(Full::from(answer.to_string())).unwrap())
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let mut state = self.state.lock().unwrap();
        let at = format!("{LEASES}/lease");
        assert_eq!(path, if method == Method::POST { LEASES } else { &at }, "no other object is touched");
        if method == Method::GET {
            return match &state.lease {
                Some(lease) => (200, lease.clone()),
                None => (404, status(404, "NotFound", "leases \"lease\" not found")),
            };
        }
        let mut lease: Value = serde_json::from_slice(body).unwrap();
        let (code, refused) = match (method, &state.lease) {
            (&Method::POST, None) => (201, None),
            (&Method::POST, Some(_)) => (409, Some("AlreadyExists")),
            (&Method::PUT, None) => (404, Some("NotFound")),
            (&Method::PUT, Some(stored)) => {
                let version = &stored["metadata"]["resourceVersion"];
                assert!(lease["metadata"]["resourceVersion"].is_string(), "every write is conditional: {lease}");
                if lease["metadata"]["resourceVersion"] == *version { (200, None) } else { (409, Some("Conflict")) }
            }
            _ => panic!("{method} is not how a lease is used"),
        };
        if let Some(reason) = refused {
            return (code, status(code, reason, "refused"));
        }
        state.version += 1;
        lease["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.lease = Some(lease.clone());
        (code, lease)
    }
}

/// The defaults.
pub(crate) fn settings(identity: &str) -> Settings {
    Settings {
        namespace: "ours".to_owned(),
        name: "lease".to_owned(),
        identity: identity.to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

/// A lease that `holder` took at noon.
pub(crate) fn held_by(holder: &str) -> Value {
    json!({
        "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T12:00:00.000000Z", "renewTime": "2026-01-01T12:00:00.000000Z",
    })
}

/// What a future returns at its next step; none: not yet.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    pin!(future).now_or_never()
}

/// Never.
pub(crate) async fn never() {
    let never: Infallible = std::future::pending().await;
    match never {}
}
