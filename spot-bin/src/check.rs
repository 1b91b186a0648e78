//! `check`: whether everything is there that a run needs. It asks, and changes nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use spot_core::error::{PortError, chain};
use spot_core::ports::Clock as _;
use spot_kube::{Right, TokioClock};
use tokio::runtime;

use crate::cli::{CheckArgs, Environment, Output};
use crate::config::{Config, Log, LogLevel};
use crate::connection::{self, Connection};
use crate::exit::{Exit, Fault};
use crate::output;
use crate::provider::Provider;
use crate::run;
use crate::settings;
use crate::telemetry;

/// How long the cloud may take for all questions.
const CLOUD: Duration = Duration::from_secs(30);

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
    Rights,
    Cloud,
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
            Self::Rights => "rights",
            Self::Cloud => "cloud",
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

    fn failure(subject: Subject, detail: impl Into<String>, remedy: &'static str) -> Self {
        Self { subject, verdict: Verdict::Failure, detail: detail.into(), remedy: Some(remedy) }
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
    let findings = runtime.block_on(findings(args, environment, &config))?;
    output::result(&match args.output {
        Output::Text => text(&findings),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&findings).context("can't write JSON")?),
    })?;
    match findings.iter().filter(|finding| finding.verdict == Verdict::Failure).count() {
        0 => Ok(Exit::Orderly),
        failures => Err(Fault::failed(anyhow!("{failures} of {} checks failed", findings.len()))),
    }
}

async fn findings(args: &CheckArgs, environment: &Environment, config: &Config) -> Result<Vec<Finding>, Fault> {
    let mut findings = vec![Finding::ok(Subject::Configuration, "it is valid"), schedule(config)];
    let connection = Connection::open(&args.access, environment, config).await?;
    findings.extend(cluster(&connection, config).await);
    findings.extend(cloud(&connection, environment, config).await);
    Ok(findings)
}

fn schedule(config: &Config) -> Finding {
    let next = config.schedule.next_after(TokioClock::new().now());
    match next {
        Some(next) => Finding::ok(Subject::Schedule, format!("`{}` fires next at {next}", config.schedule)),
        None => Finding::failure(Subject::Schedule, format!("`{}` never fires", config.schedule), "correct `schedule`"),
    }
}

/// Whether the cluster answers, and lets us do what a run does.
async fn cluster(connection: &Connection, config: &Config) -> Vec<Finding> {
    if let Err(fault) = connection.namespace() {
        let remedy = "name it with `state.namespace`, or in a pod with POD_NAMESPACE";
        return vec![Finding::failure(Subject::Configuration, fault.error.to_string(), remedy)];
    }
    let missing = match connection.missing_rights(&run::features(config), Duration::ZERO).await {
        Ok(missing) => missing,
        Err(fault) => {
            let remedy = "look at the address, the network and the credentials";
            return vec![Finding::failure(Subject::Cluster, format!("{:#}", fault.error), remedy)];
        }
    };
    let mut findings = vec![Finding::ok(Subject::Cluster, "the API server answers")];
    if missing.is_empty() {
        findings.push(Finding::ok(Subject::Rights, "none is missing"));
    }
    findings.extend(missing.iter().map(missing_right));
    findings
}

fn missing_right(right: &Right) -> Finding {
    let detail = format!("`{right}` is missing");
    if run::is_for_events(right) {
        return Finding::advice(Subject::Rights, detail, "grant it, or go without Kubernetes Events");
    }
    Finding::failure(Subject::Rights, detail, "grant what `deploy/rbac.yaml` grants")
}

/// Whether the cloud answers what a run asks.
async fn cloud(connection: &Connection, environment: &Environment, config: &Config) -> Vec<Finding> {
    let failed = |question: &str, error: &PortError| {
        let remedy = "look at region, endpoint and credentials, and grant what `deploy/iam` grants";
        Finding::failure(Subject::Cloud, format!("{question}: {}", chain(error)), remedy)
    };
    let provider = match Provider::of(config, environment, &connection.clock, None).await {
        Ok(provider) => provider,
        Err(fault) => return vec![Finding::failure(Subject::Cloud, format!("{:#}", fault.error), "name the region")],
    };
    let answers = provider.check(connection.clock.instant() + CLOUD).await;
    answers
        .iter()
        .map(|answer| match (&answer.outcome, answer.advice()) {
            (Ok(()), _) => Finding::ok(Subject::Cloud, format!("{} is answered", answer.question)),
            (Err(_), Some(error)) => {
                let detail = format!("{}: {}", answer.question, chain(error));
                Finding::advice(Subject::Cloud, detail, "grant it, or go without what needs it: fleets")
            }
            (Err(error), None) => failed(&answer.question, error),
        })
        .collect()
}

/// A line for each, and below what would help.
fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { subject, verdict, detail, remedy } in findings {
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
            missing_right(&right("events", "create")),
        ];
        insta::assert_snapshot!(text(&findings), @r"
        ok       configuration  it is valid
        failure  rights         `patch nodes` is missing
                                → grant what `deploy/rbac.yaml` grants
        advice   rights         `create events` is missing
                                → grant it, or go without Kubernetes Events
        ");
    }

    #[test]
    fn the_document_names_verdict_and_subject_by_their_words() {
        for (subject, verdict) in [
            (Subject::Configuration, Verdict::Ok),
            (Subject::Schedule, Verdict::Ok),
            (Subject::Cluster, Verdict::Failure),
            (Subject::Rights, Verdict::Advice),
            (Subject::Cloud, Verdict::Failure),
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
