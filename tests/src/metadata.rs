//! The metadata service of one instance, version 2, with the answers that it gives on bad days.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use crate::wait::{PATIENCE, until};

/// Where the service says that the instance is taken back.
pub const INSTANCE_ACTION: &str = "/latest/meta-data/spot/instance-action";

/// Where it says that this is likelier than for others.
pub const REBALANCE: &str = "/latest/meta-data/events/recommendations/rebalance";

/// Where it says what is to be done to the machine.
pub const SCHEDULED: &str = "/latest/meta-data/events/maintenance/scheduled";

/// Where it gives out tokens.
pub const TOKEN: &str = "/latest/api/token";

const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";

/// The service. It ends when it is dropped.
#[derive(Debug)]
pub struct Metadata {
    endpoint: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// What it answers on a bad day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Odd {
    /// 404, as where there is nothing to be said.
    NotFound,
    /// 401: the token is worth nothing any more.
    Unauthorized,
    /// 500.
    InternalError,
    /// 503.
    Unavailable,
    /// The connection is taken, and nothing comes.
    Silence,
    /// 200, with what is no JSON.
    Garbage,
    /// 200, and the connection ends in the middle of the body.
    HalfABody,
}

impl Odd {
    /// Every one of them.
    pub const ALL: [Self; 7] = [
        Self::NotFound,
        Self::Unauthorized,
        Self::InternalError,
        Self::Unavailable,
        Self::Silence,
        Self::Garbage,
        Self::HalfABody,
    ];
}

#[derive(Debug)]
struct Shared {
    instance: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    said: BTreeMap<String, String>,
    odd: BTreeMap<String, VecDeque<Odd>>,
    asked: Vec<String>,
    tokens: u32,
}

impl Metadata {
    /// Starts the service of `instance`, of which nothing is announced.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(instance: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        let shared = Arc::new(Shared { instance: instance.to_owned(), state: Mutex::default() });
        shared.lock().said.insert(SCHEDULED.to_owned(), "[]".to_owned());
        let server = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { endpoint, shared, server }
    }

    /// Where it listens.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Announces that the instance is taken back: `terminate`, `stop` or `hibernate`.
    pub fn interrupts(&self, action: &str, at: Timestamp) {
        let time = format!("{at:.0}");
        self.says(INSTANCE_ACTION, json!({"action": action, "time": time}).to_string());
    }

    /// Answers `path` with `text` from now on.
    pub fn says(&self, path: &str, text: String) {
        self.shared.lock().said.insert(path.to_owned(), text);
    }

    /// Answers the next request for `path` like this.
    pub fn odd(&self, path: &str, odd: Odd) {
        self.shared.lock().odd.entry(path.to_owned()).or_default().push_back(odd);
    }

    /// How often `path` was asked for.
    #[must_use]
    pub fn asked(&self, path: &str) -> usize {
        self.shared.lock().asked.iter().filter(|asked| *asked == path).count()
    }

    /// How many tokens it gave out.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.shared.lock().tokens
    }

    /// Waits until `path` was asked for `more` times from now on, and all odd answers were given.
    ///
    /// # Panics
    /// If it is not.
    pub async fn asked_again(&self, path: &str, more: usize) {
        let before = self.asked(path);
        until(&format!("{path} to be asked for again"), PATIENCE, || async {
            let left: Vec<_> = self.shared.lock().odd.values().flatten().copied().collect();
            let asked = self.asked(path) - before;
            if asked >= more && left.is_empty() { Ok(()) } else { Err(format!("{asked} times, left: {left:?}")) }
        })
        .await;
    }
}

impl Drop for Metadata {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Broken = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, Broken>>;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(&self, request: Request<Incoming>) -> Result<Answer, Broken> {
        let path = request.uri().path().to_owned();
        let odd = {
            let mut state = self.lock();
            state.asked.push(path.clone());
            state.odd.get_mut(&path).and_then(VecDeque::pop_front)
        };
        Ok(match odd {
            None => self.ordinary(&request, &path),
            Some(Odd::NotFound) => text(StatusCode::NOT_FOUND, "not found"),
            Some(Odd::Unauthorized) => text(StatusCode::UNAUTHORIZED, "unauthorized"),
            Some(Odd::InternalError) => text(StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
            Some(Odd::Unavailable) => text(StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Some(Odd::Silence) => std::future::pending().await,
            Some(Odd::Garbage) => text(StatusCode::OK, "<html>{\"action\": \"termin"),
            Some(Odd::HalfABody) => half("{\"action\": \"terminate\", \"ti"),
        })
    }

    fn ordinary(&self, request: &Request<Incoming>, path: &str) -> Answer {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let mut state = self.lock();
        if path == TOKEN {
            let Some(ttl) = header(TTL).filter(|_| request.method() == Method::PUT).map(str::to_owned) else {
                return text(StatusCode::BAD_REQUEST, "a token is asked for by PUT, with its lifetime");
            };
            state.tokens += 1;
            let mut answer = text(StatusCode::OK, &format!("token-{}", state.tokens));
            answer.headers_mut().insert(TTL, ttl.parse().expect("it came in a header"));
            return answer;
        }
        let token = header("x-aws-ec2-metadata-token").unwrap_or_default();
        if !token.starts_with("token-") {
            return text(StatusCode::UNAUTHORIZED, "unauthorized");
        }
        match state.said.get(path) {
            Some(said) => text(StatusCode::OK, said),
            None if path == "/latest/meta-data/instance-id" => text(StatusCode::OK, &self.instance),
            None => text(StatusCode::NOT_FOUND, "not found"),
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Aborted on drop.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _from) = listener.accept().await.expect("the listener works");
        connections.spawn(connection(stream, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let shared = &*shared;
    let serve = service_fn(move |request| shared.serve(request));
    // The product ends connections as it likes, and a fault ends them too.
    let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await;
}

fn text(status: StatusCode, text: &str) -> Answer {
    let mut answer = Response::new(Full::from(text.to_owned()).map_err(Into::into).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

fn half(text: &'static str) -> Answer {
    // What was sent goes out before the connection breaks.
    let broken = async { Ok::<_, Broken>(Frame::data(Bytes::from_static(text.as_bytes()))) }.into_stream();
    let end = async {
        tokio::task::yield_now().await;
        Err::<Frame<Bytes>, Broken>("a fault of the test".into())
    };
    let body = StreamBody::new(futures::StreamExt::chain(broken, end.into_stream()));
    let mut answer = Response::new(body.boxed_unsync());
    answer.headers_mut().insert(header::CONTENT_LENGTH, (2 * text.len()).into());
    answer
}
