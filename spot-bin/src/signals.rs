//! SIGTERM, SIGINT and, where it has no other meaning, SIGHUP: the first asks for an orderly end, the second ends at
//! once.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::future;
use spot_core::stop::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// How much longer than its grace period an orderly end may take: the core drops a call two seconds after its
/// deadline.
const SLACK: Duration = Duration::from_secs(2);

/// The signals, from now on caught.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Where it is none to read a file again: whoever closes a terminal wants what runs in it to end.
    hang_up: Option<Signal>,
}

impl Signals {
    /// Catches all three.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn catch() -> anyhow::Result<Self> {
        let hang_up = Some(caught(SignalKind::hangup())?);
        Ok(Self { hang_up, ..Self::but_hang_up()? })
    }

    /// Leaves SIGHUP to somebody else.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn but_hang_up() -> anyhow::Result<Self> {
        let (terminate, interrupt) = (caught(SignalKind::terminate())?, caught(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hang_up: None })
    }

    async fn next(&mut self) -> &'static str {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hang_up => "SIGHUP",
        }
    }

    /// Sets `stop` at the first signal. Returns why the end can't be an orderly one: at the second, or when the first
    /// was longer than `grace` ago, which is what it is named.
    pub async fn hurry(&mut self, stop: &Stop, (named, grace): (&str, Duration)) -> anyhow::Error {
        let signal = self.next().await;
        info!(signal, "asked to stop: ending between two steps");
        stop.set();
        let claims = "what is claimed stays claimed, and the next process takes it up";
        match tokio::time::timeout(grace + SLACK, self.next()).await {
            Ok(signal) => anyhow!("{signal} came again, so the process ends at once: {claims}"),
            Err(_elapsed) => {
                anyhow!("the end took longer than {named} ({} s): {claims}", grace.as_secs())
            }
        }
    }
}

fn caught(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("can't catch the signals that end the process")
}
