//! `/metrics`, `/livez` and `/readyz`.
//!
//! Anybody who reaches the port may ask. So nobody holds it: a connection has one answer and an end, and of too many the
//! oldest makes way.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use spot_core::interruption::Told;
use spot_core::ports::Observer;
use spot_core::progress::Progress;
use spot_core::stop::Stop;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tracing::debug;

use crate::metrics::Metrics;

/// How long answers under way may take once the process is to end. A slow client would hold up the end as long as it
/// likes.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How long a connection may take, from its first byte to the last of its answer. A scrape waits for ten seconds.
const CONNECTION: Duration = Duration::from_secs(10);
/// How many connections there are at a time: a few of probes and scrapes, and far fewer than a process may have files.
const CONNECTIONS: usize = 64;
/// How long the head of a request may be, in bytes. The least that the server accepts.
const LONGEST_HEAD: usize = 8 * 1024;

/// Whether the process can do its work: not before it has seen the cluster, and not once it is to end.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    seen: Arc<AtomicBool>,
    stop: Stop,
}

impl Readiness {
    /// Not ready, until the first run has a view of the cluster; never again after `stop`.
    #[must_use]
    pub fn new(stop: Stop) -> Self {
        Self { seen: Arc::default(), stop }
    }

    /// It does not lead, or has no view yet. The former is ready as long as it sees who leads: it may have to take over.
    pub fn follows(&self, sees: bool) {
        self.seen.store(sees, Ordering::Relaxed);
    }

    /// Why it is not ready; none: it is.
    #[must_use]
    pub fn objection(&self) -> Option<&'static str> {
        if self.stop.is_set() {
            Some("the process is ending")
        } else if self.seen.load(Ordering::Relaxed) {
            None
        } else {
            Some("the cluster has not been seen yet")
        }
    }
}

/// A run that has begun has a view, and so has whoever asks for notices.
impl Observer for Readiness {
    fn observe(&self, _at: Timestamp, event: &Progress) {
        if matches!(event, Progress::RunStarted { .. } | Progress::Interruption(Told::Polled { .. })) {
            self.seen.store(true, Ordering::Relaxed);
        }
    }
}

/// A server that listens, and answers once it is run.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    router: Router,
}

impl Server {
    /// Listens on the address that is named so.
    ///
    /// # Errors
    /// When the address can't be listened on.
    pub async fn bind(
        (named, address): (&str, SocketAddr),
        metrics: Metrics,
        readiness: Readiness,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("can't listen on {address}: free the port, or set `{named}` to another one"))?;
        let router = Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(ready).with_state(readiness))
            .route("/metrics", get(numbers).with_state(metrics));
        Ok(Self { listener, router })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system can't tell.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        self.listener.local_addr().context("can't tell the address of the server")
    }

    /// Answers until asked to stop, and then no longer than answers under way take, within a limit.
    pub async fn run(mut self, stop: Stop) {
        let mut connections = JoinSet::new();
        let mut by_age = VecDeque::new();
        loop {
            tokio::select! {
                (stream, _client) = Listener::accept(&mut self.listener) => {
                    by_age.retain(|connection: &AbortHandle| !connection.is_finished());
                    if by_age.len() >= CONNECTIONS
                        && let Some(oldest) = by_age.pop_front()
                    {
                        oldest.abort();
                    }
                    by_age.push_back(connections.spawn(answer(stream, self.router.clone())));
                }
                Some(_ended) = connections.join_next() => {}
                () = stop.wait() => break,
            }
        }
        drop(self.listener);
        let last = async { while connections.join_next().await.is_some() {} };
        if timeout(LAST_ANSWERS, last).await.is_err() {
            debug!("a client of the metrics or the health did not take its answer in time");
        }
    }
}

/// Answers one request. How the client fails is its own affair.
async fn answer(stream: TcpStream, router: Router) {
    let service = TowerToHyperService::new(router);
    let mut server = http1::Builder::new();
    let connection =
        server.keep_alive(false).max_buf_size(LONGEST_HEAD).serve_connection(TokioIo::new(stream), service);
    if !matches!(timeout(CONNECTION, connection).await, Ok(Ok(()))) {
        debug!("a client of the metrics or the health was not answered");
    }
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    match readiness.objection() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(objection) => (StatusCode::SERVICE_UNAVAILABLE, format!("{objection}\n")),
    }
}

async fn numbers(State(metrics): State<Metrics>) -> Response {
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
