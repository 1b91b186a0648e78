//! `check`: whether everything is there that a run needs. It asks, and changes nothing.

mod autoscaler;
mod cloud;
mod groups;
mod lease;
mod rebalancing;
mod schedule;
mod surroundings;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use spot_core::error::{chain, plain};
use spot_core::ports::Clock;
use spot_kube::{Right, TokioClock};
use tokio::runtime;

use crate::cli::{CheckArgs, Environment, Output};
use crate::config::{Config, Log, LogLevel};
use crate::connection::{self, Connection};
use crate::exit::{Exit, Fault};
use crate::output;
use crate::provider::Provider;
use crate::rights::{self, NeededBy};
use crate::settings::{self, Own};
use crate::telemetry;

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

/// Everything at once, each question with its own deadline; told in the order in which a person would look.
async fn findings(args: &CheckArgs, environment: &Environment, config: &Config) -> Vec<Finding> {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let budgets = settings::settings(config, &Own::of(environment)).policy.budgets;
    let mut findings = vec![Finding::ok(Subject::Configuration, "it is valid")];
    findings.extend(schedule::findings(&config.schedule, &budgets, &config.time_zone, clock.now()));
    let (connection, provider) = tokio::join!(
        Connection::with_clock(&args.access, environment, &config.state, Arc::clone(&clock)),
        Provider::of(config, environment, &clock, None),
    );
    let (cluster, cloud) = tokio::join!(
        async {
            match &connection {
                Ok(connection) => cluster(connection, config).await,
                Err(fault) => vec![fault_of(Subject::Cluster, fault)],
            }
        },
        async {
            match &provider {
                Ok(provider) => {
                    // On the heap: the SDKs' futures are large.
                    Box::pin(cloud::findings(connection.as_ref().ok(), provider, environment, config, &clock)).await
                }
                Err(fault) => vec![fault_of(Subject::Cloud, fault)],
            }
        },
    );
    findings.extend(cluster);
    findings.extend(cloud);
    findings
}

/// A fault says itself what would help.
fn fault_of(subject: Subject, fault: &Fault) -> Finding {
    Finding::failure(subject, chain(fault.error.as_ref()), None)
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
    let (missing, around) = tokio::join!(
        connection.missing_rights(&features, Duration::ZERO),
        surroundings::findings(connection, &config.leader_election),
    );
    let missing = match missing {
        Ok(missing) => missing,
        // Whoever does not answer this answers nothing else.
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
    findings.extend(around);
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

/// A line for each, and below what would help.
fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { subject, verdict, detail, remedy } in findings {
        // Names are others' text: no line break of theirs makes a line of ours.
        let detail = plain(detail);
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
    use super::*;

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
