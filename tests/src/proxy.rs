//! A proxy between the product and the API server: it remembers what the product asks for, and breaks one request.

use std::{
    fmt,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use rustix::net::sockopt::set_socket_linger;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use crate::{
    audit::{Entry, Verb},
    control_plane::User,
    world::World,
};

/// Passes on what the product asks the API server for, with the product's own token. It ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// One request, as the API server's authorizer reads it.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is asked for.
    pub verb: Verb,
    /// The plural name of the resource, `pods`.
    pub resource: String,
    /// `eviction`, `status` and the like; else empty.
    pub subresource: String,
    /// The object's name, or empty.
    pub name: String,
    /// What follows the path's question mark, or empty.
    pub query: String,
    /// What is sent; null if that is nothing.
    pub body: Value,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// It is answered by 409, as a write is that comes too late.
    Conflict,
    /// It is answered by 429 with `Retry-After`, as by an API server that has too much to do.
    Overload,
    /// It is answered by 429, as an eviction is that a budget does not allow.
    Budget,
    /// It is answered by 500.
    InternalError,
    /// It is answered by 503.
    Unavailable,
    /// It is not passed on, and never answered.
    Hang,
    /// It is not passed on, and the connection is reset.
    Reset,
    /// It takes effect, and then the connection is reset; a watch is opened, and then its stream breaks.
    AnswerLost,
    /// It is held back until the test has killed the process.
    KilledBefore,
    /// It takes effect, and its answer is held back until the test has killed the process.
    KilledAfter,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 10] = [
        Self::Conflict,
        Self::Overload,
        Self::Budget,
        Self::InternalError,
        Self::Unavailable,
        Self::Hang,
        Self::Reset,
        Self::AnswerLost,
        Self::KilledBefore,
        Self::KilledAfter,
    ];

    /// Whether an API server, a network or a process can do this to such a request.
    #[must_use]
    pub fn is_possible(self, request: &Request) -> bool {
        match self {
            // Reviews are posted, but nothing is stored.
            Self::Conflict => request.verb.writes() && request.resource != "selfsubjectaccessreviews",
            Self::Budget => request.subresource == "eviction",
            Self::Overload
            | Self::InternalError
            | Self::Unavailable
            | Self::Hang
            | Self::Reset
            | Self::AnswerLost
            | Self::KilledBefore
            | Self::KilledAfter => true,
        }
    }

    /// Whether the test has to kill the process.
    #[must_use]
    pub fn kills(self) -> bool {
        matches!(self, Self::KilledBefore | Self::KilledAfter)
    }
}

/// A fault that is to come. Dropping it unfired fails the test: it would have shown nothing.
#[derive(Debug)]
#[must_use]
pub struct Armed {
    what: String,
    shared: Arc<Shared>,
    fired: watch::Receiver<bool>,
}

impl Proxy {
    /// Starts one in front of the world's API server.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(world: &World) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let kubeconfig = world.control_plane().folder().join("proxied.kubeconfig");
        write_kubeconfig(&world.control_plane().kubeconfig(User::Migrator), &kubeconfig, address);
        let shared = Arc::new(Shared { upstream: upstream(world.control_plane().server()), state: Mutex::default() });
        let server = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { kubeconfig, shared, server }
    }

    /// A kubeconfig file of the product's user, with the proxy for the API server.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Lets this happen to the `nth` of the requests from now on that are `meant`, counted from 1.
    ///
    /// # Panics
    /// If another fault has not fired yet.
    pub fn arm(&self, fault: Fault, nth: usize, meant: impl Fn(&Request) -> bool + Send + 'static) -> Armed {
        let (tell, fired) = watch::channel(false);
        let mut state = self.shared.lock();
        assert!(state.rule.is_none(), "one fault at a time");
        state.rule = Some(Rule { fault, left: nth, meant: Box::new(meant), tell });
        let what = format!("{fault:?} at number {nth} of the requests that are meant");
        Armed { what, shared: Arc::clone(&self.shared), fired }
    }

    /// What was asked for since the last call, in the order of arrival.
    ///
    /// # Panics
    /// If the API server could not be reached, for which no test has asked.
    #[must_use]
    pub fn take_asked(&self) -> Vec<Request> {
        let mut state = self.shared.lock();
        assert!(state.broken.is_none(), "the proxy did not reach the API server: {:?}", state.broken);
        std::mem::take(&mut state.asked)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Armed {
    /// Returns once the fault has happened.
    ///
    /// # Panics
    /// If the proxy is gone.
    pub async fn fired(&self) {
        let mut fired = self.fired.clone();
        let _told = fired.wait_for(|fired| *fired).await.expect("the proxy tells, and then forgets");
    }

    /// Whether it has happened.
    #[must_use]
    pub fn has_fired(&self) -> bool {
        *self.fired.borrow()
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.shared.lock().rule = None;
        assert!(self.has_fired() || std::thread::panicking(), "never fired: {}", self.what);
    }
}

impl Request {
    fn read(head: &Parts, body: &[u8]) -> Self {
        let query = head.uri.query().unwrap_or_default();
        let mut rest = head.uri.path().split('/').skip(1);
        // The group's version follows: two segments of the core's, three of all others.
        let version = if rest.next() == Some("api") { 1 } else { 2 };
        let mut rest = rest.skip(version).peekable();
        let mut next = || rest.next().unwrap_or_default().to_owned();
        let (mut resource, mut name) = (next(), next());
        let mut subresource = next();
        if resource == "namespaces" && !subresource.is_empty() {
            (resource, name, subresource) = (subresource, next(), next());
        }
        let watches = query.split('&').any(|part| part == "watch=true");
        let verb = match (&head.method, name.is_empty()) {
            (&Method::GET, _) if watches => Verb::Watch,
            (&Method::GET, true) => Verb::List,
            (&Method::GET, false) => Verb::Get,
            (&Method::POST, _) => Verb::Create,
            (&Method::PUT, _) => Verb::Update,
            (&Method::PATCH, _) => Verb::Patch,
            (&Method::DELETE, true) => Verb::DeleteCollection,
            (&Method::DELETE, false) => Verb::Delete,
            _ => Verb::Other,
        };
        let body = serde_json::from_slice(body).unwrap_or_default();
        Self { verb, resource, subresource, name, query: query.to_owned(), body }
    }
}

impl From<&Entry> for Request {
    fn from(entry: &Entry) -> Self {
        Self {
            verb: entry.verb,
            resource: entry.resource.clone(),
            subresource: entry.subresource.clone(),
            name: entry.name.clone(),
            query: entry.uri.split_once('?').map(|(_, query)| query.to_owned()).unwrap_or_default(),
            body: entry.body.clone(),
        }
    }
}

struct Shared {
    upstream: Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    asked: Vec<Request>,
    rule: Option<Rule>,
    broken: Option<String>,
}

struct Rule {
    fault: Fault,
    left: usize,
    meant: Box<dyn Fn(&Request) -> bool + Send>,
    tell: watch::Sender<bool>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a request; returns what is to happen to it, and whom to tell when it has.
    fn asked(&self, request: Request) -> Option<(Fault, watch::Sender<bool>)> {
        let mut state = self.lock();
        let hit = state.rule.as_mut().filter(|rule| rule.left > 0 && (rule.meant)(&request)).and_then(|rule| {
            rule.left -= 1;
            (rule.left == 0).then(|| (rule.fault, rule.tell.clone()))
        });
        state.asked.push(request);
        hit
    }

    async fn forward(&self, request: http::Request<Bytes>) -> Result<http::Response<kube::client::Body>, Broken> {
        let sent = self.upstream.send(request.map(kube::client::Body::from)).await;
        sent.map_err(|error| {
            let broken = error.to_string();
            self.lock().broken = Some(broken.clone());
            broken.into()
        })
    }

    /// Answers one request, or fails, which ends the connection.
    async fn serve(&self, request: http::Request<Incoming>, socket: &OwnedFd) -> Result<Answer, Broken> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let asked = Request::read(&head, &body);
        let (watches, hit) = (asked.verb == Verb::Watch, self.asked(asked));
        let request = http::Request::from_parts(head, body);
        let Some((fault, tell)) = hit else { return Ok(self.forward(request).await?.map(boxed)) };
        let told = || tell.send_replace(true);
        let status = |code, reason: &str, details: Value| {
            told();
            Ok(refusal(code, reason, &details))
        };
        match fault {
            Fault::Conflict => status(StatusCode::CONFLICT, "Conflict", Value::Null),
            Fault::Overload => {
                status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", json!({"retryAfterSeconds": 1}))
            }
            Fault::Budget => {
                let cause = json!({"reason": "DisruptionBudget", "message": "the budget needs all of its pods"});
                status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", json!({"causes": [cause]}))
            }
            Fault::InternalError => status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", Value::Null),
            Fault::Unavailable => status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", Value::Null),
            Fault::Hang | Fault::KilledBefore => {
                told();
                std::future::pending().await
            }
            Fault::Reset => {
                told();
                Err(reset(socket))
            }
            Fault::AnswerLost if watches => {
                let opened = self.forward(request).await?;
                told();
                Ok(opened.map(|_events| torn()))
            }
            Fault::AnswerLost => {
                self.forward(request).await?.into_body().collect().await?;
                told();
                Err(reset(socket))
            }
            Fault::KilledAfter => {
                let answer = self.forward(request).await?;
                if !watches {
                    answer.into_body().collect().await?;
                }
                told();
                std::future::pending().await
            }
        }
    }
}

type Broken = Box<dyn std::error::Error + Send + Sync>;
type Answer = http::Response<UnsyncBoxBody<Bytes, Broken>>;

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Aborted on drop.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _from) = listener.accept().await.expect("the listener works");
        connections.spawn(connection(stream, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// Serves a connection to its end, which may well be one that the product or a fault makes.
async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let socket = stream.as_fd().try_clone_to_owned().expect("a socket can be had twice");
    let (shared, socket) = (&*shared, &socket);
    let serve = service_fn(move |request| shared.serve(request, socket));
    let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await;
}

/// A refusal in the API server's words.
fn refusal(code: StatusCode, reason: &str, details: &Value) -> Answer {
    let retry_after = details["retryAfterSeconds"].as_u64();
    let text = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "a fault of the test",
        "reason": reason,
        "details": details,
        "code": code.as_u16(),
    })
    .to_string();
    let mut answer = http::Response::new(boxed(Full::from(text)));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}

/// A watch that is opened, and breaks before its first event.
fn torn() -> UnsyncBoxBody<Bytes, Broken> {
    let broken = async {
        // What was sent goes out meanwhile.
        tokio::task::yield_now().await;
        Err::<Frame<Bytes>, Broken>("a fault of the test".into())
    };
    StreamBody::new(broken.into_stream()).boxed_unsync()
}

/// Makes the socket's end a reset, and asks for it.
fn reset(socket: &OwnedFd) -> Broken {
    set_socket_linger(socket, Some(Duration::ZERO)).expect("a TCP socket lingers");
    "a fault of the test".into()
}

fn boxed<B>(body: B) -> UnsyncBoxBody<Bytes, Broken>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<Broken>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Who is nobody by itself: each request brings the product's token.
fn upstream(server: &str) -> Client {
    let mut config = Config::new(server.parse().expect("it is a URI"));
    config.accept_invalid_certs = true;
    config.default_retry = false;
    Client::try_from(config).expect("the configuration is complete")
}

fn write_kubeconfig(from: &Path, to: &Path, address: SocketAddr) {
    let text = std::fs::read(from).expect("it was written");
    let mut kubeconfig: Value = serde_json::from_slice(&text).expect("ours are JSON");
    kubeconfig["clusters"][0]["cluster"] = json!({"server": format!("http://{address}")});
    std::fs::write(to, kubeconfig.to_string()).expect("the folder is writable");
}
