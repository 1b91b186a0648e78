//! The provider that the configuration names: it says how nodes are paid for, and has their machines deleted.

#[cfg(feature = "aws")]
mod aws;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use spot_core::cloud::CloudFacts;
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::node::NodeSnapshot;
use spot_core::ports::{Clock, CloudProvider, Instant};
use spot_kube::NodeObject;
use tracing::warn;

use crate::cli::Environment;
use crate::config::{self, Config};
use crate::exit::Fault;
use crate::metrics::Metrics;

/// How long the cloud may take for one round of questions.
const ROUND: Duration = Duration::from_secs(30);
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(5);

/// A provider.
#[derive(Clone)]
pub enum Provider {
    /// Whoever owns a machine deletes it when its Node object is deleted.
    NodeObject(Arc<NodeObject>),
    /// EC2.
    #[cfg(feature = "aws")]
    Aws(Arc<spot_aws::Aws>),
}

/// What became of one question to a provider.
#[derive(Debug)]
pub struct Answer {
    /// What was asked, by the name of the right that it needs.
    pub question: String,
    /// Whether it was answered as a run needs it.
    pub outcome: Result<(), PortError>,
}

impl Answer {
    /// Why asking again would not help, if so.
    #[must_use]
    pub fn refusal(&self) -> Option<&PortError> {
        let error = self.outcome.as_ref().err()?;
        match error.class {
            ErrorClass::Denied | ErrorClass::Permanent => Some(error),
            ErrorClass::Transient | ErrorClass::Timeout | ErrorClass::NotLeader => None,
        }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeObject(provider) => provider.fmt(f),
            #[cfg(feature = "aws")]
            Self::Aws(provider) => provider.fmt(f),
        }
    }
}

impl Provider {
    /// The one that the configuration names. Nothing is sent yet.
    ///
    /// # Errors
    /// When it is not part of this build, or nobody says in which region it is.
    #[cfg_attr(
        not(feature = "aws"),
        expect(clippy::unused_async, unused_variables, reason = "only AWS looks for credentials")
    )]
    pub async fn of(
        config: &Config,
        environment: &Environment,
        clock: &Arc<dyn Clock>,
        metrics: Option<&Metrics>,
    ) -> Result<Self, Fault> {
        match &config.cloud_provider {
            config::CloudProvider::NodeObject => Ok(Self::node_object(config, clock)),
            #[cfg(feature = "aws")]
            config::CloudProvider::Aws(aws) => {
                let provider = aws::connect(aws, config, environment, clock, metrics).await?;
                Ok(Self::Aws(Arc::new(provider)))
            }
            #[cfg(not(feature = "aws"))]
            config::CloudProvider::Aws(_) => Err(Fault::usage(anyhow!(
                "the configuration is refused: cloudProvider.name: `aws` is not part of this build: write `node-object`"
            ))),
        }
    }

    /// The one that asks no cloud.
    #[must_use]
    pub fn node_object(config: &Config, clock: &Arc<dyn Clock>) -> Self {
        let labels = config.selection.capacity_labels.clone();
        Self::NodeObject(Arc::new(NodeObject::new(labels, config.load_balancer.drain, Arc::clone(clock))))
    }

    /// As a port.
    #[must_use]
    pub fn port(&self) -> Arc<dyn CloudProvider> {
        match self {
            Self::NodeObject(provider) => Arc::clone(provider) as Arc<dyn CloudProvider>,
            #[cfg(feature = "aws")]
            Self::Aws(provider) => Arc::clone(provider) as Arc<dyn CloudProvider>,
        }
    }

    /// Asks what can be asked without an effect. Empty where there is no one to ask.
    #[cfg_attr(not(feature = "aws"), expect(clippy::unused_async, unused_variables, reason = "only AWS is asked"))]
    pub async fn check(&self, by: Instant) -> Vec<Answer> {
        match self {
            Self::NodeObject(_) => Vec::new(),
            #[cfg(feature = "aws")]
            Self::Aws(provider) => {
                let answer = |checked: spot_aws::Checked| Answer {
                    question: checked.action.to_string(),
                    outcome: checked.outcome,
                };
                provider.check(by).await.into_iter().map(answer).collect()
            }
        }
    }
}

impl Provider {
    /// Asks again and again for `patience`, once at least, until everything that a run needs is answered.
    ///
    /// # Errors
    /// When something is refused, or not answered for so long.
    pub async fn must_answer(&self, clock: &dyn Clock, patience: Duration) -> Result<(), Fault> {
        let until = clock.instant() + patience;
        loop {
            let answers = self.check(clock.instant() + ROUND).await;
            let next = clock.instant() + PAUSE;
            let refused = answers.iter().find_map(Answer::refusal);
            let Some(error) = refused.or_else(|| answers.iter().find_map(|answer| answer.outcome.as_ref().err()))
            else {
                return Ok(());
            };
            if refused.is_some() || next > until {
                let what = "the cloud does not answer as a run needs it, and nothing was touched";
                return Err(Fault::failed(anyhow!("{what}: {}", chain(error))));
            }
            warn!(error = chain(error), "the cloud does not answer yet; trying again");
            clock.sleep_until(next).await;
        }
    }
}

/// What can be said of nodes without asking anybody: their classes by labels, and how they go by their provider IDs.
#[must_use]
pub fn unasked(config: &Config, nodes: &[Arc<NodeSnapshot>]) -> CloudFacts {
    let labels = &config.selection.capacity_labels;
    let fact = |node: &NodeSnapshot| match &config.cloud_provider {
        #[cfg(feature = "aws")]
        config::CloudProvider::Aws(_) => aws::unasked(labels, node),
        config::CloudProvider::NodeObject => NodeObject::fact(labels, node),
        #[cfg(not(feature = "aws"))]
        config::CloudProvider::Aws(_) => NodeObject::fact(labels, node),
    };
    nodes.iter().map(|node| (node.uid.clone(), fact(node))).collect()
}
