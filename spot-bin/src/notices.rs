//! The queue of interruption notices that the configuration names.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "aws")]
use anyhow::Context as _;
#[cfg(feature = "aws")]
use spot_aws::interruption::queue::{Connection, Queue, QueueSettings};
use spot_core::ports::{Clock, Instant, NoticeSource, Observer};

use crate::answer::{Answer, unrefused};
use crate::cli::Environment;
use crate::config::Config;
use crate::exit::Fault;
use crate::metrics::Metrics;
#[cfg(feature = "aws")]
use crate::provider;
use crate::provider::Provider;

/// A queue.
#[derive(Clone)]
pub struct Notices {
    #[cfg(feature = "aws")]
    queue: Arc<Queue>,
    #[cfg(not(feature = "aws"))]
    none: std::convert::Infallible,
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").finish_non_exhaustive()
    }
}

#[cfg(feature = "aws")]
impl Notices {
    /// The one that the configuration names, if it does, with the clients of `provider` where that is AWS too;
    /// `observer` is told of messages that are no notices. Nothing is sent yet.
    ///
    /// # Errors
    /// When it is in no region, or in another than the machines.
    pub async fn of(
        config: &Config,
        environment: &Environment,
        provider: &Provider,
        clock: &Arc<dyn Clock>,
        metrics: Option<&Metrics>,
        observer: Arc<dyn Observer>,
    ) -> Result<Option<Self>, Fault> {
        let Some(named) = &config.interruption.queue else { return Ok(None) };
        let settings = QueueSettings {
            url: named.url.clone(),
            complete_lifecycle_hooks: config.interruption.complete_lifecycle_hooks.clone(),
            scheduled_change_lead: config.interruption.scheduled_change_lead,
        };
        let queue = match provider {
            Provider::Aws(aws) => aws.queue(settings, observer),
            Provider::NodeObject(_) => {
                let connection = Connection {
                    region: named.region.clone(),
                    endpoint_url: named.endpoint_url.clone(),
                    instance_metadata: provider::asks_metadata_service(environment),
                };
                Queue::connect(settings, &connection, Arc::clone(clock), metrics.map(Metrics::aws_calls), observer)
                    .await
            }
        };
        let queue = queue.context("the configuration is refused: interruption.queueUrl").map_err(Fault::usage)?;
        Ok(Some(Self { queue: Arc::new(queue) }))
    }

    /// As a port.
    #[must_use]
    pub fn source(&self) -> Arc<dyn NoticeSource> {
        Arc::clone(&self.queue) as Arc<dyn NoticeSource>
    }

    /// Asks what can be asked without an effect.
    pub async fn check(&self, by: Instant) -> Vec<Answer> {
        self.queue.check(by).await.into_iter().map(Answer::from).collect()
    }
}

#[cfg(not(feature = "aws"))]
impl Notices {
    /// None: this build reads no queue, and refuses a configuration that names one.
    #[expect(
        clippy::missing_errors_doc,
        clippy::unused_async,
        reason = "a build with AWS may fail, and looks for credentials"
    )]
    pub async fn of(
        _config: &Config,
        _environment: &Environment,
        _provider: &Provider,
        _clock: &Arc<dyn Clock>,
        _metrics: Option<&Metrics>,
        _observer: Arc<dyn Observer>,
    ) -> Result<Option<Self>, Fault> {
        Ok(None)
    }

    /// As a port.
    #[must_use]
    pub fn source(&self) -> Arc<dyn NoticeSource> {
        match self.none {}
    }

    /// Asks what can be asked without an effect.
    #[expect(clippy::unused_async, reason = "only AWS is asked")]
    pub async fn check(&self, _by: Instant) -> Vec<Answer> {
        match self.none {}
    }
}

impl Notices {
    /// Asks once whether it may be read. Where there is no answer, it may be: who reads it asks again and again.
    ///
    /// # Errors
    /// When that is refused.
    pub async fn must_not_refuse(&self, clock: &dyn Clock) -> Result<(), Fault> {
        unrefused("the queue of notices", clock, async |by| self.check(by).await).await
    }
}
