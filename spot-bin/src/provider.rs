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
    /// Whether a run can do without: not every cluster needs it.
    pub dispensable: bool,
}

impl Answer {
    /// Why a run can't begin, and asking again would not help, if so.
    #[must_use]
    pub fn refusal(&self) -> Option<&PortError> {
        self.definite().filter(|_| !self.dispensable)
    }

    /// Why a run has to do without something, if so.
    #[must_use]
    pub fn advice(&self) -> Option<&PortError> {
        self.definite().filter(|_| self.dispensable)
    }

    fn definite(&self) -> Option<&PortError> {
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
                    dispensable: checked.dispensable,
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
        answered(clock, patience, async |by| self.check(by).await).await
    }
}

async fn answered(
    clock: &dyn Clock,
    patience: Duration,
    ask: impl AsyncFn(Instant) -> Vec<Answer>,
) -> Result<(), Fault> {
    let until = clock.instant() + patience;
    loop {
        let answers = ask(clock.instant() + ROUND).await;
        let next = clock.instant() + PAUSE;
        let refused = answers.iter().find_map(Answer::refusal);
        let mut needed = answers.iter().filter(|answer| answer.advice().is_none());
        let Some(error) = refused.or_else(|| needed.find_map(|answer| answer.outcome.as_ref().err())) else {
            for error in answers.iter().filter_map(Answer::advice) {
                warn!(error = chain(error), "a right is missing: the run goes without what needs it");
            }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rstest::rstest;
    use spot_core::model::{self, WorldBuilder};

    use super::*;

    /// An answer of this class; none: as it should be.
    fn answer(class: Option<ErrorClass>, dispensable: bool) -> Answer {
        let outcome = class.map_or(Ok(()), |class| Err(PortError::new(class, class.as_str())));
        Answer { question: "a".to_owned(), outcome, dispensable }
    }

    #[rstest]
    #[case::answered(None, false, (false, false))]
    #[case::denied(Some(ErrorClass::Denied), false, (true, false))]
    #[case::refused(Some(ErrorClass::Permanent), false, (true, false))]
    #[case::denied_what_can_be_missed(Some(ErrorClass::Denied), true, (false, true))]
    #[case::refused_what_can_be_missed(Some(ErrorClass::Permanent), true, (false, true))]
    #[case::unreachable(Some(ErrorClass::Transient), false, (false, false))]
    #[case::too_late(Some(ErrorClass::Timeout), false, (false, false))]
    #[case::too_late_for_what_can_be_missed(Some(ErrorClass::Timeout), true, (false, false))]
    fn only_a_definite_answer_is_a_refusal_or_advice(
        #[case] class: Option<ErrorClass>,
        #[case] dispensable: bool,
        #[case] expected: (bool, bool),
    ) {
        let answer = answer(class, dispensable);
        assert_eq!((answer.refusal().is_some(), answer.advice().is_some()), expected);
    }

    /// What becomes of a start that is this patient, under virtual time.
    fn start(patience: Duration, ask: impl AsyncFn(Instant) -> Vec<Answer>) -> Result<(), String> {
        let model = WorldBuilder::default().build();
        let ended = model::block_on(&model, answered(&model.process(), patience, ask)).expect("it comes to an end");
        ended.map_err(|fault| fault.error.to_string())
    }

    #[rstest]
    #[case::what_may_pass_passes(ErrorClass::Transient, false, 2, 3, true)]
    #[case::what_takes_too_long_is_in_time_later(ErrorClass::Timeout, false, 1, 2, true)]
    #[case::patience_ends(ErrorClass::Transient, false, u32::MAX, 3, false)]
    #[case::a_denial_ends_it_at_once(ErrorClass::Denied, false, u32::MAX, 1, false)]
    #[case::a_refusal_ends_it_at_once(ErrorClass::Permanent, false, u32::MAX, 1, false)]
    #[case::it_goes_without_what_can_be_missed(ErrorClass::Denied, true, u32::MAX, 1, true)]
    #[case::what_can_be_missed_is_waited_for_too(ErrorClass::Transient, true, 1, 2, true)]
    fn a_run_begins_once_what_it_needs_is_answered(
        #[case] class: ErrorClass,
        #[case] dispensable: bool,
        #[case] failures: u32,
        #[case] rounds: u32,
        #[case] begins: bool,
    ) {
        let asked = Cell::new(0);
        let ended = start(2 * PAUSE, async |_by| {
            asked.set(asked.get() + 1);
            vec![answer(None, false), answer((asked.get() <= failures).then_some(class), dispensable)]
        });
        assert_eq!((asked.get(), ended.is_ok()), (rounds, begins), "{ended:?}");
        if let Err(said) = ended {
            assert!(said.contains("nothing was touched") && said.ends_with(class.as_str()), "{said}");
        }
    }

    #[test]
    fn a_refusal_is_told_before_what_may_pass() {
        let both = || vec![answer(Some(ErrorClass::Timeout), false), answer(Some(ErrorClass::Denied), false)];
        let ended = start(PAUSE, async |_by| both());
        assert!(ended.expect_err("a right is missing").ends_with("denied"));
    }
}
