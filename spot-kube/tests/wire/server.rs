//! A strict API server: it answers what a test expects, and nothing else.
//!
//! A request that is not expected fails the test, and so does an expected one that never came.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response};
use http_body_util::channel::{Channel, Sender};
use kube::client::Body;
use serde_json::{Value, json};
use spot_core::error::{PortError, chain};
use spot_core::ports::{Alone, Clock, Instant, Write};
use spot_kube::{KubeCluster, Settings, TokioClock};
use tokio::sync::{Semaphore, oneshot};

/// The time that every object here was created at.
pub(crate) const CREATED: &str = "2026-01-01T00:00:00Z";

#[derive(Default)]
struct Script {
    expected: VecDeque<Expected>,
    surprises: Vec<String>,
}

struct Expected {
    request: String,
    answer: Answer,
    /// It may stay away.
    optional: bool,
}

enum Answer {
    Said { code: u16, retry_after: Option<u64>, body: String },
    Watch(oneshot::Receiver<Channel<Bytes>>, Arc<Semaphore>),
    Never(Arc<Semaphore>),
}

/// The server; dropping it checks that everything expected came.
pub(crate) struct ApiServer {
    script: Arc<Mutex<Script>>,
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) cluster: KubeCluster,
}

/// A request that is expected; it needs an answer.
#[must_use]
pub(crate) struct Expecting<'s> {
    server: &'s ApiServer,
    request: String,
    optional: bool,
}

/// The text of an answer.
pub(crate) struct Text(String);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<Value> for Text {
    fn from(value: Value) -> Self {
        Self(value.to_string())
    }
}

impl From<&Value> for Text {
    fn from(value: &Value) -> Self {
        Self(value.to_string())
    }
}

/// A watch that is expected, from the server's side.
pub(crate) struct Watched {
    events: Sender<Bytes>,
    opened: Arc<Semaphore>,
}

impl ApiServer {
    pub(crate) fn new() -> Self {
        let script = Arc::<Mutex<Script>>::default();
        let clock = Arc::new(TokioClock::new());
        let settings =
            Settings { namespace: "ours".to_owned(), config_map: "memory".to_owned(), clock: Arc::clone(&clock) as _ };
        let cluster = KubeCluster::new(client(&script), settings);
        Self { script, clock, cluster }
    }

    pub(crate) fn client(&self) -> kube::Client {
        client(&self.script)
    }

    /// A moment so many seconds from now.
    pub(crate) fn within(&self, seconds: u64) -> Instant {
        self.clock.instant() + Duration::from_secs(seconds)
    }

    /// A permit to write for so many seconds.
    pub(crate) fn permit(&self, seconds: u64) -> Write {
        Write::assume(self.within(seconds), Arc::new(Alone))
    }

    /// Expects `METHOD ADDRESS`, with no body.
    pub(crate) fn on(&self, request: &str) -> Expecting<'_> {
        Expecting { server: self, request: request.to_owned(), optional: false }
    }

    /// Expects `METHOD ADDRESS` with exactly this body of this type.
    pub(crate) fn on_body(&self, request: &str, content_type: &str, body: &str) -> Expecting<'_> {
        Expecting { server: self, request: format!("{request}\n{content_type}\n{body}"), optional: false }
    }

    /// Answers the lists of all kinds but nodes, and watches of them: there is nothing but nodes.
    pub(crate) fn nothing_but_nodes(&self) -> [Watched; 7] {
        let metadata = ";as=PartialObjectMetadata";
        let pause = "&fieldSelector=metadata.name%3Dmemory";
        [
            ("/api/v1/pods", "", ""),
            ("/apis/policy/v1/poddisruptionbudgets", "", ""),
            ("/apis/apps/v1/daemonsets", "", metadata),
            ("/api/v1/namespaces/ours/configmaps", pause, ""),
            ("/api/v1/persistentvolumeclaims", "", ""),
            ("/api/v1/persistentvolumes", "", ""),
            ("/apis/storage.k8s.io/v1/volumeattachments", "", ""),
        ]
        .map(|(path, selector, metadata)| {
            let accepts = |what: &str| {
                if metadata.is_empty() {
                    String::new()
                } else {
                    format!("\naccept: application/json{metadata}{what};g=meta.k8s.io;v=v1")
                }
            };
            self.on(&format!("GET {path}?limit=500{selector}{}", accepts("List"))).or_not().says(200, list("1", &[]));
            self.on(&format!("GET {path}{}{}", watch(selector, "1"), accepts(""))).or_not().watched()
        })
    }

    /// Expects a watch at this address.
    pub(crate) fn on_watch(&self, address: &str) -> Watched {
        self.on(&format!("GET {address}")).watched()
    }

    /// Fails the test if anything expected did not come, or anything else came.
    pub(crate) fn check(&self) {
        let script = self.script.lock().unwrap();
        assert!(script.surprises.is_empty(), "not expected: {:#?}", script.surprises);
        let unused: Vec<_> =
            script.expected.iter().filter(|expected| !expected.optional).map(|expected| &expected.request).collect();
        assert!(unused.is_empty(), "expected, but never came: {unused:#?}");
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

impl Expecting<'_> {
    /// It may stay away: it is not what the test is about.
    pub(crate) fn or_not(self) -> Self {
        Self { optional: true, ..self }
    }

    pub(crate) fn says(self, code: u16, body: impl Into<Text>) {
        self.gets(Answer::Said { code, retry_after: None, body: body.into().0 });
    }

    pub(crate) fn says_later(self, code: u16, retry_after: u64, body: impl Into<Text>) {
        self.gets(Answer::Said { code, retry_after: Some(retry_after), body: body.into().0 });
    }

    /// Never answers; tells when the request came.
    pub(crate) fn hangs(self) -> Arc<Semaphore> {
        let came = Arc::new(Semaphore::new(0));
        self.gets(Answer::Never(Arc::clone(&came)));
        came
    }

    fn watched(self) -> Watched {
        let (events, body) = Channel::new(64);
        let (give, take) = oneshot::channel();
        assert!(give.send(body).is_ok());
        let opened = Arc::new(Semaphore::new(0));
        self.gets(Answer::Watch(take, Arc::clone(&opened)));
        Watched { events, opened }
    }

    fn gets(self, answer: Answer) {
        self.server.script.lock().unwrap().expected.push_back(Expected {
            request: self.request,
            answer,
            optional: self.optional,
        });
    }
}

impl Watched {
    /// Returns when the watch was asked for.
    pub(crate) async fn opened(&self) {
        let opened = tokio::time::timeout(Duration::from_mins(1), self.opened.acquire()).await;
        opened.expect("the watch is not asked for").unwrap().forget();
    }

    pub(crate) async fn send(&mut self, kind: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": kind, "object": object}));
        self.events.send_data(line.into()).await.unwrap();
    }

    /// Returns when nobody listens any more.
    pub(crate) async fn closed(mut self) {
        while self.events.send_data("\n".into()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}

/// The query of a watch.
pub(crate) fn watch(selector: &str, version: &str) -> String {
    format!("?watch=true&allowWatchBookmarks=true&timeoutSeconds=290{selector}&resourceVersion={version}")
}

/// A complete list.
pub(crate) fn list(version: &str, items: &[Value]) -> Value {
    json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items})
}

/// A page that is followed by another.
pub(crate) fn page(version: &str, next: &str, items: &[Value]) -> Value {
    json!({"kind": "List", "metadata": {"resourceVersion": version, "continue": next}, "items": items})
}

/// A node with the identity `uid-NAME`.
pub(crate) fn node(name: &str, version: &str) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": version, "creationTimestamp": CREATED},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// A running pod with the identity `uid-NAME`.
pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": "7",
                     "creationTimestamp": CREATED},
        "spec": {"nodeName": node},
        "status": {"phase": "Running"},
    })
}

/// A `Status` of the API server.
pub(crate) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

/// A `Status` with one cause.
pub(crate) fn status_because(code: u16, reason: &str, cause: &str, message: &str) -> Value {
    let mut status = status(code, reason, message);
    status["details"] = json!({"causes": [{"reason": cause, "message": message}]});
    status
}

/// An error with all its causes.
pub(crate) fn said(error: &PortError) -> String {
    chain(error)
}

/// The error of what should have failed.
pub(crate) fn failed<T>(outcome: Result<T, PortError>) -> PortError {
    match outcome {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error,
    }
}

fn client(script: &Arc<Mutex<Script>>) -> kube::Client {
    let script = Arc::clone(script);
    let service = tower::service_fn(move |request: Request<Body>| {
        let script = Arc::clone(&script);
        async move { Ok::<_, std::convert::Infallible>(answer(&script, request).await) }
    });
    kube::Client::new(service, "default")
}

async fn answer(script: &Mutex<Script>, request: Request<Body>) -> Response<Channel<Bytes>> {
    let request = signature(request).await;
    let expected = {
        let mut script = script.lock().unwrap();
        let at = script.expected.iter().position(|expected| expected.request == request);
        let expected = at.and_then(|at| script.expected.remove(at));
        if expected.is_none() {
            script.surprises.push(request.clone());
        }
        expected
    };
    match expected.map(|expected| expected.answer) {
        Some(Answer::Said { code, retry_after, body }) => say(code, retry_after, body).await,
        Some(Answer::Watch(body, opened)) => {
            opened.add_permits(1);
            Response::new(body.await.unwrap())
        }
        Some(Answer::Never(came)) => {
            came.add_permits(1);
            std::future::pending().await
        }
        None => say(400, None, status(400, "BadRequest", &format!("not expected: {request}")).to_string()).await,
    }
}

async fn say(code: u16, retry_after: Option<u64>, body: String) -> Response<Channel<Bytes>> {
    let (mut sender, channel) = Channel::new(1);
    sender.send_data(body.into()).await.unwrap();
    let mut response = Response::builder().status(code);
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    response.body(channel).unwrap()
}

/// Everything of a request that counts.
async fn signature(request: Request<Body>) -> String {
    let (head, body) = request.into_parts();
    let header = |name| head.headers.get(name).map(|value: &http::HeaderValue| value.to_str().unwrap().to_owned());
    let body = String::from_utf8(body.collect_bytes().await.unwrap().to_vec()).unwrap();
    let accept = header(ACCEPT).map(|accept| format!("\naccept: {accept}")).unwrap_or_default();
    let body = header(CONTENT_TYPE).map(|content_type| format!("\n{content_type}\n{body}")).unwrap_or(body);
    format!("{} {}{accept}{body}", head.method, head.uri)
}
