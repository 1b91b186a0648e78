//! What goes on beside the work: metrics and health over HTTP, the publisher of Events, and the sender of messages.

use std::time::Duration;

use anyhow::anyhow;
use spot_core::stop::Stop;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;
use tracing::warn;

/// How long Events and messages that wait may take to be sent once the work is done.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// Tasks beside the work. None of them may end before it.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    pub(crate) server: Option<JoinHandle<()>>,
    pub(crate) events: Option<JoinHandle<()>>,
    pub(crate) notifications: Option<JoinHandle<()>>,
}

impl Beside {
    /// Returns which of them died, and why; never, once they are to end.
    pub(crate) async fn first_to_die(&mut self, stop: &Stop) -> anyhow::Error {
        // A task that has ended must not be waited for again.
        tokio::select! {
            biased;
            () = stop.wait() => std::future::pending().await,
            ended = joined(self.server.as_mut()) => {
                self.server = None;
                match ended {
                    Ok(()) => anyhow!("the server of metrics and health ended by itself"),
                    Err(error) => anyhow::Error::new(error).context("the server of metrics and health died"),
                }
            }
            ended = joined(self.notifications.as_mut()) => {
                self.notifications = None;
                match ended {
                    Ok(()) => anyhow!("the sender of messages ended by itself"),
                    Err(error) => anyhow::Error::new(error).context("the sender of messages died"),
                }
            }
            ended = joined(self.events.as_mut()) => {
                self.events = None;
                match ended {
                    Ok(()) => anyhow!("the publisher of Events ended by itself"),
                    Err(error) => anyhow::Error::new(error).context("the publisher of Events died"),
                }
            }
        }
    }

    /// Publishes nothing more: another process leads.
    pub(crate) fn fall_silent(&mut self) {
        if let Some(events) = self.events.take() {
            events.abort();
        }
        if let Some(notifications) = self.notifications.take() {
            notifications.abort();
        }
    }

    /// Waits until they have ended: for what is still to be sent no longer than this, nor than it is worth.
    pub(crate) async fn end(self, limit: Duration) {
        if let Some(server) = self.server
            && let Err(error) = server.await
        {
            warn!(%error, "the server of metrics and health died");
        }
        let limit = limit.min(LAST_EVENTS);
        let is_late = async |task: Option<JoinHandle<()>>| match task {
            Some(task) => timeout(limit, task).await.is_err(),
            None => false,
        };
        let (messages, events) = tokio::join!(is_late(self.notifications), is_late(self.events));
        if messages {
            warn!("some notifications were not sent in time");
        }
        if events {
            warn!("some Events were not published in time");
        }
    }
}

/// The end of a task; never, where there is none.
async fn joined<T>(task: Option<&mut JoinHandle<T>>) -> Result<T, JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_by_itself_is_named() {
        let mut beside = Beside { server: Some(tokio::spawn(async {})), ..Beside::default() };
        let died = beside.first_to_die(&Stop::default()).await;
        assert_eq!(died.to_string(), "the server of metrics and health ended by itself");
        beside.end(LAST_EVENTS).await;

        let mut beside = Beside { events: Some(tokio::spawn(async { panic!("it dies") })), ..Beside::default() };
        let died = beside.first_to_die(&Stop::default()).await;
        assert_eq!(died.to_string(), "the publisher of Events died");
        beside.end(LAST_EVENTS).await;
    }

    #[tokio::test]
    async fn a_task_that_was_told_to_end_is_none_that_died() {
        let mut beside = Beside { server: Some(tokio::spawn(async {})), ..Beside::default() };
        let stop = Stop::default();
        stop.set();
        assert!(beside.first_to_die(&stop).now_or_never().is_none());
        beside.end(LAST_EVENTS).await;
    }

    #[tokio::test]
    async fn what_hangs_is_waited_for_no_longer_than_the_process_may_take_to_end() {
        let hanging = || Some(tokio::spawn(std::future::pending()));
        let beside = Beside { notifications: hanging(), events: hanging(), ..Beside::default() };
        timeout(LAST_EVENTS / 2, beside.end(Duration::ZERO)).await.expect("it ends at once");
    }
}
