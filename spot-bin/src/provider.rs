//! The provider that the configuration names: it says how nodes are paid for, and has their machines deleted.

#[cfg(feature = "aws")]
mod aws;
mod unasked;

#[cfg(feature = "aws")]
pub(crate) use self::aws::asks_metadata_service;
pub use self::unasked::unasked;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use spot_core::error::PortError;
use spot_core::node::NodeSnapshot;
use spot_core::ports::{Clock, CloudProvider, Instant};
use spot_kube::NodeObject;

use crate::answer::{Answer, answered};
use crate::cli::Environment;
use crate::config::{self, Config};
use crate::exit::Fault;
use crate::metrics::Metrics;
#[cfg(not(feature = "aws"))]
use crate::settings;

/// A provider.
#[derive(Clone)]
pub enum Provider {
    /// Whoever owns a machine deletes it when its Node object is deleted.
    NodeObject(Arc<NodeObject>),
    /// EC2.
    #[cfg(feature = "aws")]
    Aws(Arc<spot_aws::Aws>),
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
            config::CloudProvider::Aws(_) => Err(Fault::usage(settings::without_aws())),
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
            Self::Aws(provider) => provider.check(by).await.into_iter().map(Answer::from).collect(),
        }
    }
}

impl Provider {
    /// The machines of the cluster that run, and are billed, though none of its Nodes, which are these, names them.
    /// Empty where there is no one to ask.
    ///
    /// # Errors
    /// When the cloud could not be asked.
    #[cfg_attr(not(feature = "aws"), expect(clippy::unused_async, unused_variables, reason = "only AWS is asked"))]
    pub async fn without_node(&self, nodes: &[Arc<NodeSnapshot>], by: Instant) -> Result<BTreeSet<String>, PortError> {
        match self {
            Self::NodeObject(_) => Ok(BTreeSet::new()),
            #[cfg(feature = "aws")]
            Self::Aws(provider) => provider.without_node(nodes, by).await,
        }
    }

    /// The groups of these nodes' spot machines that replace them at the cloud's recommendation, and terminate the old ones
    /// by themselves, each with the names of the hooks that hold what it terminates; none: they are not known. Empty where
    /// there is no one to ask.
    ///
    /// # Errors
    /// When the cloud could not be asked.
    #[cfg_attr(not(feature = "aws"), expect(clippy::unused_async, unused_variables, reason = "only AWS is asked"))]
    pub async fn rebalancing(
        &self,
        nodes: &[Arc<NodeSnapshot>],
        by: Instant,
    ) -> Result<BTreeMap<String, Option<Vec<String>>>, PortError> {
        match self {
            Self::NodeObject(_) => Ok(BTreeMap::new()),
            #[cfg(feature = "aws")]
            Self::Aws(provider) => provider.rebalancing(nodes, by).await,
        }
    }

    /// What an hour of these instance types costs on spot, by type and zone. Empty where there is no one to ask.
    ///
    /// # Errors
    /// When the cloud could not be asked.
    #[cfg_attr(not(feature = "aws"), expect(clippy::unused_async, unused_variables, reason = "only AWS is asked"))]
    pub async fn spot_prices(
        &self,
        types: &BTreeSet<String>,
        by: Instant,
    ) -> Result<BTreeMap<(String, String), f64>, PortError> {
        match self {
            Self::NodeObject(_) => Ok(BTreeMap::new()),
            #[cfg(feature = "aws")]
            Self::Aws(provider) => provider.spot_prices(types, by).await,
        }
    }

    /// Asks again and again for `patience`, once at least, until everything that a run needs is answered.
    ///
    /// # Errors
    /// When something is refused, or not answered for so long.
    pub async fn must_answer(&self, clock: &dyn Clock, patience: Duration) -> Result<(), Fault> {
        answered("the cloud", clock, patience, async |by| self.check(by).await).await
    }
}
