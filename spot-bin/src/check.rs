//! `check`: whether everything is there that a run needs. It asks, and changes nothing.

mod groups;
mod surroundings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use serde::Serialize;
use spot_core::cloud::Freshness;
use spot_core::error::{PortError, chain};
use spot_core::ports::{Clock, Cluster as _, Instant, Scope, Silent};
use spot_kube::{Right, TokioClock};
use tokio::runtime;

use crate::answer::Answer;
use crate::cli::{CheckArgs, Environment, Output};
use crate::config::{Config, Log, LogLevel};
use crate::connection::{self, Connection};
use crate::exit::{Exit, Fault};
use crate::notices::Notices;
use crate::output;
use crate::provider::Provider;
use crate::rights::{self, NeededBy};
use crate::settings;
use crate::telemetry;

/// How long the cloud may take for all questions.
const CLOUD: Duration = Duration::from_secs(30);

/// How many of the schedule's next times are told.
const TIMES: usize = 3;

/// What was found out about one thing that a run needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    subject: Subject,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Subject {
    Configuration,
    Schedule,
    Cluster,
    Clock,
    Rights,
    Lease,
    State,
    Autoscaler,
    Cloud,
    Queue,
}

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// A run goes without it.
    Advice,
    Failure,
}

impl Subject {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Schedule => "schedule",
            Self::Cluster => "cluster",
            Self::Clock => "clock",
            Self::Rights => "rights",
            Self::Lease => "lease",
            Self::State => "state",
            Self::Autoscaler => "autoscaler",
            Self::Cloud => "cloud",
            Self::Queue => "queue",
        }
    }
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Advice => "advice",
            Self::Failure => "failure",
        }
    }
}

impl Finding {
    fn ok(subject: Subject, detail: impl Into<String>) -> Self {
        Self { subject, verdict: Verdict::Ok, detail: detail.into(), remedy: None }
    }

    /// Without a remedy where the detail holds it.
    fn failure(subject: Subject, detail: impl Into<String>, remedy: Option<&'static str>) -> Self {
        Self { subject, verdict: Verdict::Failure, detail: detail.into(), remedy }
    }

    fn advice(subject: Subject, detail: impl Into<String>, remedy: &'static str) -> Self {
        Self { subject, verdict: Verdict::Advice, detail: detail.into(), remedy: Some(remedy) }
    }
}

/// Prints what was found out.
///
/// # Errors
/// When arguments or configuration are wrong, or something that a run needs is missing.
pub fn check(args: &CheckArgs, overrides: &BTreeMap<String, String>, environment: &Environment) -> Result<Exit, Fault> {
    let config = connection::configuration(&args.config, environment, overrides)?;
    settings::supported(&config).map_err(Fault::usage)?;
    telemetry::start(Log { level: config.log.level.min(LogLevel::Warn), ..config.log })?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build().context("can't start the runtime")?;
    let findings = runtime.block_on(findings(args, environment, &config));
    output::result(&match args.output {
        Output::Text => text(&findings),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&findings).context("can't write JSON")?),
    })?;
    match findings.iter().filter(|finding| finding.verdict == Verdict::Failure).count() {
        0 => Ok(Exit::Orderly),
        failures => Err(Fault::failed(anyhow!("{failures} of {} checks failed", findings.len()))),
    }
}

async fn findings(args: &CheckArgs, environment: &Environment, config: &Config) -> Vec<Finding> {
    let mut findings = vec![Finding::ok(Subject::Configuration, "it is valid"), schedule(config)];
    let connection = Connection::open(&args.access, environment, &config.state).await;
    match &connection {
        Ok(connection) => findings.extend(cluster(connection, config).await),
        Err(fault) => findings.push(fault_of(Subject::Cluster, fault)),
    }
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let provider = match Provider::of(config, environment, &clock, None).await {
        Ok(provider) => provider,
        Err(fault) => {
            findings.push(fault_of(Subject::Cloud, &fault));
            return findings;
        }
    };
    findings.extend(answers(Subject::Cloud, &provider.check(clock.instant() + CLOUD).await));
    // Whoever does not answer was told of.
    if let Ok(connection) = &connection
        && findings.iter().all(|finding| finding.verdict != Verdict::Failure)
    {
        let by = clock.instant() + CLOUD;
        findings.extend(machines(connection, &provider, by).await);
    }
    findings.extend(queue(environment, config, &provider, &clock).await);
    findings
}

/// A fault says itself what would help.
fn fault_of(subject: Subject, fault: &Fault) -> Finding {
    Finding::failure(subject, chain(fault.error.as_ref()), None)
}

fn schedule(config: &Config) -> Finding {
    let mut next: Vec<Timestamp> = Vec::new();
    while let Some(time) = config.schedule.next_after(next.last().copied().unwrap_or_else(|| TokioClock::new().now()))
        && next.len() < TIMES
    {
        next.push(time);
    }
    if next.is_empty() {
        let detail = format!("`{}` never fires", config.schedule);
        return Finding::failure(Subject::Schedule, detail, Some("correct `schedule`"));
    }
    let zoned = next.iter().map(|time| time.to_zoned(config.time_zone.clone()).strftime("%F %T %Z").to_string());
    let times = zoned.collect::<Vec<_>>().join(", ");
    Finding::ok(Subject::Schedule, format!("`{}` fires next at {times}", config.schedule))
}

/// Whether the cluster answers, and lets us do what a run does.
async fn cluster(connection: &Connection, config: &Config) -> Vec<Finding> {
    let mut features = rights::features(config, rights::answers(config));
    let mut findings = Vec::new();
    if let Err(fault) = connection.namespace() {
        findings.push(fault_of(Subject::Configuration, &fault));
        // It would be in a namespace that nobody names.
        features.lease = None;
    }
    let missing = match connection.missing_rights(&features, Duration::ZERO).await {
        Ok(missing) => missing,
        Err(fault) => {
            findings.push(fault_of(Subject::Cluster, &fault));
            return findings;
        }
    };
    findings.push(Finding::ok(Subject::Cluster, "the API server answers"));
    if missing.is_empty() {
        findings.push(Finding::ok(Subject::Rights, "none is missing"));
    }
    findings.extend(missing.iter().map(missing_right));
    findings.extend(surroundings::findings(connection, &config.leader_election).await);
    findings
}

fn missing_right(right: &Right) -> Finding {
    let detail = format!("`{right}` is missing");
    let needed_by = NeededBy::of(right);
    match needed_by {
        NeededBy::Events => Finding::advice(Subject::Rights, detail, needed_by.remedy()),
        NeededBy::Everything | NeededBy::Migration | NeededBy::Interruption => {
            Finding::failure(Subject::Rights, detail, Some(needed_by.remedy()))
        }
    }
}

/// Machines without a Node, and groups of machines that can't let any go.
async fn machines(connection: &Connection, provider: &Provider, by: Instant) -> Vec<Finding> {
    if matches!(provider, Provider::NodeObject(_)) {
        return Vec::new();
    }
    let live = match connection.cluster.open(Scope::Cluster, by).await {
        Ok(live) => live,
        Err(error) => return without_node(Err(error)).into_iter().collect(),
    };
    let view = live.view();
    let found = without_node(provider.without_node(view.nodes(), by).await);
    let groups = match provider.port().survey(view.nodes(), &[], Freshness::Cached, by).await {
        Ok(facts) => groups::findings(view.nodes(), &facts),
        Err(error) => {
            let detail = format!("groups could not be looked at: {}", chain(&error));
            vec![Finding::advice(Subject::Cloud, detail, "try again")]
        }
    };
    found.into_iter().chain(groups).collect()
}

/// Machines that are billed, and that no run touches.
fn without_node(found: Result<BTreeSet<String>, PortError>) -> Option<Finding> {
    let (detail, remedy) = match found {
        Ok(found) if found.is_empty() => return None,
        Ok(found) => {
            let ids = found.into_iter().collect::<Vec<_>>().join(", ");
            (format!("instances of the cluster run without a Node: {ids}"), "terminate those that nobody needs")
        }
        Err(error) => {
            let error = chain(&error);
            (format!("instances without a Node could not be looked for: {error}"), "try again")
        }
    };
    Some(Finding::advice(Subject::Cloud, detail, remedy))
}

/// Whether the queue answers what a run asks.
async fn queue(
    environment: &Environment,
    config: &Config,
    provider: &Provider,
    clock: &Arc<dyn Clock>,
) -> Vec<Finding> {
    match Notices::of(config, environment, provider, clock, None, Arc::new(Silent)).await {
        Ok(Some(notices)) => answers(Subject::Queue, &notices.check(clock.instant() + CLOUD).await),
        Ok(None) => Vec::new(),
        Err(fault) => vec![fault_of(Subject::Queue, &fault)],
    }
}

fn answers(subject: Subject, answers: &[Answer]) -> Vec<Finding> {
    answers.iter().map(|answer| answered(subject, answer)).collect()
}

fn answered(subject: Subject, answer: &Answer) -> Finding {
    let detail = |error| format!("{}: {}", answer.question, chain(error));
    match (&answer.outcome, answer.advice()) {
        (Ok(()), _) => Finding::ok(subject, format!("{} is answered", answer.question)),
        (Err(_), Some(error)) => Finding::advice(subject, detail(error), "grant it, or go without what needs it"),
        (Err(error), None) => {
            let remedy = answer.refusal().is_none().then_some("look at the endpoint and the network, and try again");
            Finding::failure(subject, detail(error), remedy)
        }
    }
}

/// A line for each, and below what would help.
fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { subject, verdict, detail, remedy } in findings {
        // Names are others' text: no line break of theirs makes a line of ours.
        let detail = detail.replace(char::is_control, " ");
        // Writing into a String has no way to fail.
        let _written = writeln!(text, "{:<8} {:<14} {detail}", verdict.as_str(), subject.as_str());
        if let Some(remedy) = remedy {
            let _written = writeln!(text, "{:<8} {:<14} → {remedy}", "", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use spot_core::error::ErrorClass;

    use super::*;

    #[rstest]
    #[case::answered(None, false, Verdict::Ok, false)]
    #[case::denied(Some(ErrorClass::Denied), false, Verdict::Failure, false)]
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
        assert_eq!(without_node(Ok(BTreeSet::new())), None);
        let found = without_node(Ok(["i-1", "i-2"].map(str::to_owned).into())).expect("they are told of");
        assert_eq!(found.verdict, Verdict::Advice);
        assert!(found.detail.ends_with("i-1, i-2"), "{found:?}");
        let unasked = without_node(Err(PortError::new(ErrorClass::Denied, "no"))).expect("it is told of");
        assert_eq!(unasked.verdict, Verdict::Advice);
    }

    #[test]
    fn every_finding_has_a_line_and_its_remedy_below() {
        let right = |resource, verb| Right { resource, verb, ..Right::default() };
        let findings = [
            Finding::ok(Subject::Configuration, "it is valid"),
            missing_right(&right("nodes", "patch")),
            missing_right(&right("pods", "delete")),
            missing_right(&right("events", "create")),
        ];
        insta::assert_snapshot!(text(&findings), @r"
        ok       configuration  it is valid
        failure  rights         `patch nodes` is missing
                                → grant what `deploy/rbac.yaml` grants
        failure  rights         `delete pods` is missing
                                → grant what `deploy/rbac-interruption.yaml` grants
        advice   rights         `create events` is missing
                                → grant it, or go without Kubernetes Events
        ");
    }

    #[test]
    fn a_name_that_holds_a_line_break_makes_no_line_of_its_own() {
        let forged =
            [Finding::advice(Subject::Lease, "held by a\nok       rights         none is missing\u{1b}[2K", "look")];
        assert_eq!(text(&forged).lines().count(), 2, "{}", text(&forged));
        assert!(!text(&forged).contains('\u{1b}'));
    }

    #[test]
    fn the_document_names_verdict_and_subject_by_their_words() {
        for (subject, verdict) in [
            (Subject::Configuration, Verdict::Ok),
            (Subject::Schedule, Verdict::Ok),
            (Subject::Cluster, Verdict::Failure),
            (Subject::Rights, Verdict::Advice),
            (Subject::Clock, Verdict::Advice),
            (Subject::Lease, Verdict::Ok),
            (Subject::State, Verdict::Advice),
            (Subject::Autoscaler, Verdict::Advice),
            (Subject::Cloud, Verdict::Failure),
            (Subject::Queue, Verdict::Ok),
        ] {
            let finding = Finding { subject, verdict, detail: "a".to_owned(), remedy: None };
            let document = serde_json::to_value(&finding).expect("it is a document");
            let expected = serde_json::json!({
                "subject": subject.as_str(), "verdict": verdict.as_str(), "detail": "a"
            });
            assert_eq!(document, expected);
        }
    }
}
