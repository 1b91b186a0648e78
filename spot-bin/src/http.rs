//! `/metrics`, `/livez` and `/readyz`.

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
use jiff::Timestamp;
use spot_core::interruption::Told;
use spot_core::ports::Observer;
use spot_core::progress::Progress;
use spot_core::stop::Stop;
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// How long answers under way may take once the process is to end. An idle connection is held open by its client for
/// minutes, and would hold up the end as long.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

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
    ///
    /// # Errors
    /// When it can't go on.
    pub async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let stopped = stop.clone();
        let serve = axum::serve(self.listener, self.router)
            .with_graceful_shutdown(async move { stopped.wait().await })
            .into_future();
        let limit = async {
            stop.wait().await;
            tokio::time::sleep(LAST_ANSWERS).await;
        };
        tokio::select! {
            served = serve => served.context("the server of metrics and health failed"),
            () = limit => Ok(()),
        }
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
