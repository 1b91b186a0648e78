//! What the cloud lets us do, the machines that it has for the cluster, and the queue of their notices.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use spot_core::cloud::Freshness;
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::ports::{Clock, Cluster as _, Instant, Scope, Silent};

use super::{Finding, Subject, fault_of, groups, rebalancing};
use crate::answer::Answer;
use crate::cli::Environment;
use crate::config::{Config, Interruption};
use crate::connection::Connection;
use crate::notices::Notices;
use crate::provider::Provider;

/// How long the cloud, or the queue, may take for all questions.
const ASKING: Duration = Duration::from_secs(30);

/// What helps where no answer came.
const TRY_AGAIN: &str = "look at the endpoint and the network, and try again";

/// Everything that is asked of the cloud, side by side: of the machines only where the cluster can be looked at.
pub(super) async fn findings(
    connection: Option<&Connection>,
    provider: &Provider,
    environment: &Environment,
    config: &Config,
    clock: &Arc<dyn Clock>,
) -> Vec<Finding> {
    let by = clock.instant() + ASKING;
    let (cloud, machines, queue) = tokio::join!(
        async { answers(Subject::Cloud, &provider.check(by).await) },
        async {
            match connection {
                Some(connection) => machines(connection, provider, &config.interruption, by).await,
                None => Vec::new(),
            }
        },
        queue(environment, config, provider, clock, by),
    );
    [cloud, machines, queue].concat()
}

/// Machines without a Node, groups that can't let any machine go, and those that terminate some by themselves.
async fn machines(
    connection: &Connection,
    provider: &Provider,
    interruption: &Interruption,
    by: Instant,
) -> Vec<Finding> {
    if matches!(provider, Provider::NodeObject(_)) {
        return Vec::new();
    }
    looked_at(connection, provider, interruption, by).await.unwrap_or_else(|error| {
        let detail = format!("the cluster's machines could not be looked at: {}", chain(&error));
        vec![Finding::advice(Subject::Cloud, detail, TRY_AGAIN)]
    })
}

async fn looked_at(
    connection: &Connection,
    provider: &Provider,
    interruption: &Interruption,
    by: Instant,
) -> Result<Vec<Finding>, PortError> {
    let live = connection.cluster.open(Scope::Cluster, by).await?;
    let view = live.view();
    let (nodes, port) = (view.nodes(), provider.port());
    // One after the other: each goes on with what those before it have found.
    let without_node = provider.without_node(nodes, by).await?;
    let facts = port.survey(nodes, &[], Freshness::Cached, by).await?;
    let rebalancing = provider.rebalancing(nodes, by).await?;
    let mut findings: Vec<_> = strangers(&without_node).into_iter().collect();
    findings.extend(groups::findings(nodes, &facts));
    findings.extend(rebalancing::findings(&rebalancing, interruption));
    Ok(findings)
}

/// Machines that are billed, and that no run touches.
fn strangers(ids: &BTreeSet<String>) -> Option<Finding> {
    let told = ids.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let detail = format!("instances of the cluster run without a Node: {told}");
    (!ids.is_empty()).then(|| Finding::advice(Subject::Cloud, detail, "terminate those that nobody needs"))
}

/// Whether the queue answers what a run asks.
async fn queue(
    environment: &Environment,
    config: &Config,
    provider: &Provider,
    clock: &Arc<dyn Clock>,
    by: Instant,
) -> Vec<Finding> {
    match Notices::of(config, environment, provider, clock, None, Arc::new(Silent)).await {
        Ok(Some(notices)) => answers(Subject::Queue, &notices.check(by).await),
        Ok(None) => Vec::new(),
        Err(fault) => vec![fault_of(Subject::Queue, &fault)],
    }
}

fn answers(subject: Subject, answers: &[Answer]) -> Vec<Finding> {
    answers.iter().map(|answer| answered(subject, answer)).collect()
}

fn answered(subject: Subject, answer: &Answer) -> Finding {
    let detail = |error| format!("{}: {}", answer.question, chain(error));
    let error = match (&answer.outcome, answer.advice()) {
        (Ok(()), _) => return Finding::ok(subject, format!("{} is answered", answer.question)),
        (Err(_), Some(error)) => {
            return Finding::advice(subject, detail(error), "grant it, or go without what needs it");
        }
        (Err(error), None) => error,
    };
    let remedy = match error.class {
        ErrorClass::Denied => Some("grant the policy that is named, or give it credentials that are valid"),
        ErrorClass::Transient | ErrorClass::Timeout => Some(TRY_AGAIN),
        // Its words hold it.
        ErrorClass::Permanent | ErrorClass::NotLeader => None,
    };
    Finding::failure(subject, detail(error), remedy)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::Verdict;
    use super::*;

    #[rstest]
    #[case::answered(None, false, Verdict::Ok, false)]
    #[case::denied(Some(ErrorClass::Denied), false, Verdict::Failure, true)]
    #[case::refused(Some(ErrorClass::Permanent), false, Verdict::Failure, false)]
    #[case::unreachable(Some(ErrorClass::Transient), false, Verdict::Failure, true)]
    #[case::silent(Some(ErrorClass::Timeout), false, Verdict::Failure, true)]
    #[case::denied_what_can_be_missed(Some(ErrorClass::Denied), true, Verdict::Advice, true)]
    #[case::silent_on_what_can_be_missed(Some(ErrorClass::Timeout), true, Verdict::Failure, true)]
    fn an_answer_of_the_cloud_fails_the_check_unless_a_run_can_do_without(
        #[case] class: Option<ErrorClass>,
        #[case] dispensable: bool,
        #[case] verdict: Verdict,
        #[case] remedy: bool,
    ) {
        let outcome = class.map_or(Ok(()), |class| Err(PortError::new(class, class.as_str())));
        let finding = answered(Subject::Cloud, &Answer { question: "ec2:Ask".to_owned(), outcome, dispensable });
        assert_eq!((finding.verdict, finding.remedy.is_some()), (verdict, remedy), "{finding:?}");
        assert!(finding.detail.starts_with("ec2:Ask"), "{finding:?}");
        assert!(class.is_none_or(|class| finding.detail.ends_with(class.as_str())), "{finding:?}");
    }

    #[test]
    fn instances_without_a_node_are_named_and_never_fail_the_check() {
        assert_eq!(strangers(&BTreeSet::new()), None);
        let found = strangers(&["i-1", "i-2"].map(str::to_owned).into()).expect("they are told of");
        assert_eq!(found.verdict, Verdict::Advice);
        assert!(found.detail.ends_with("i-1, i-2"), "{found:?}");
    }
}
