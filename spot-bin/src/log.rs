//! What the core reports, as log lines: one for each step, with its fields.

mod interruption;
mod pool;
mod problems;

use jiff::Timestamp;
use spot_core::ports::Observer;
use spot_core::progress::{Answered, Outcome, Progress, Report};
use tracing::{debug, error, info, warn};

use self::interruption::Interruptions;
use self::problems::Problems;

/// Writes a line for everything that is reported.
#[derive(Debug, Default)]
pub struct Log {
    interruptions: Interruptions,
    problems: Problems,
}

impl Observer for Log {
    fn observe(&self, at: Timestamp, event: &Progress) {
        match event {
            Progress::RunStarted { nodes } => {
                let nodes: Vec<_> = nodes.iter().map(|(class, count)| format!("{class}={count}")).collect();
                info!(nodes = nodes.join(" "), "run started");
            }
            Progress::Judged { eligible, refused } => {
                let refused: Vec<_> = refused.iter().map(|(kind, count)| format!("{kind}={count}")).collect();
                info!(eligible, refused = refused.join(" "), "nodes judged");
            }
            Progress::Refused { node, reasons } => {
                let why: Vec<_> = reasons.iter().map(ToString::to_string).collect();
                let remedy = reasons.first().map(|reason| reason.kind().remedy());
                info!(%node, why = why.join("; "), remedy, "node refused");
            }
            Progress::WouldRetire { node } => info!(%node, "dry run: would be retired next"),
            Progress::Waiting { reasons } => {
                info!(nodes = reasons.len(), "waiting: what is in the way may pass by itself");
                for (node, reason) in reasons {
                    debug!(%node, %reason, remedy = reason.kind().remedy(), "in the way");
                }
            }
            Progress::Exposed { exposed } => {
                let pods = exposed.pods.len();
                warn!(pods, what = %exposed, "a workload is about to lose all its ready pods");
            }
            Progress::StepStarted { node, step } => debug!(%node, %step, outcome = "begun", "step"),
            Progress::StepDone { node, step, took } => {
                info!(%node, %step, outcome = "done", duration = took.as_secs_f64(), "step");
            }
            Progress::StepHalted { node, step, halted, took } => {
                info!(%node, %step, outcome = halted.as_str(), duration = took.as_secs_f64(), "step");
            }
            Progress::Evicted { node, pod, loses: Some(loses), answered: Answered::Accepted } => {
                warn!(%node, %pod, lost = loses.as_str(), "a pod was evicted that loses something for good");
            }
            Progress::Evicted { node, pod, loses: _, answered } => match answered {
                Answered::Accepted | Answered::Gone | Answered::Blocked => {
                    debug!(%node, %pod, answer = answered.as_str(), "eviction");
                }
                Answered::Failed => warn!(%node, %pod, answer = answered.as_str(), "eviction"),
            },
            Progress::PodBlocked { node, pod, obstacle, since } => {
                warn!(%node, %pod, %obstacle, seconds = since.as_secs(), "a pod is in the way");
            }
            Progress::Retired { node } => info!(%node, "node retired"),
            Progress::Released { node, step, why } => {
                error!(%node, %step, why, "node released: its retirement failed");
            }
            Progress::Postponed { node, why } => info!(%node, why, "node released: it may go another time"),
            Progress::Undone { node, undo } => warn!(%node, %undo, "node released: a person took it back"),
            Progress::Departing { node, why } => {
                warn!(%node, why, "deletion accepted, or its answer unknown; the node is still there");
            }
            Progress::Created { node } => {
                warn!(%node, "an on-demand node came while nodes were being retired: spot is exhausted");
            }
            Progress::Problem { node, class, what } => self.problems.tell(at, node.as_ref(), *class, what),
            Progress::RunEnded { report } => ended(report),
            Progress::RunFailed { class, why } => error!(class = class.as_str(), why, "run failed"),
            Progress::Interruption(told) => self.interruptions.tell(at, told),
            Progress::Pool(told) => pool::tell(told),
            Progress::NextRun { at } => info!(%at, "next run"),
        }
    }
}

fn ended(report: &Report) {
    let Report { outcome, retired, failed, undone, departing, evictions } = report;
    let detail = match outcome {
        Outcome::AllSpot | Outcome::Recovered | Outcome::Stopped => String::new(),
        Outcome::NothingEligible(kinds) => {
            kinds.iter().map(|(kind, count)| format!("{kind}={count}")).collect::<Vec<_>>().join(" ")
        }
        Outcome::SpotExhausted(node) => format!("node {node} came"),
        Outcome::NotSettled(pending) => pending.clone(),
        Outcome::DryRun(nodes) => nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    };
    info!(
        outcome = outcome.kind().as_str(),
        detail,
        retired = retired.len(),
        failed = failed.len(),
        undone = undone.len(),
        departing = departing.len(),
        evictions,
        "run ended"
    );
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use serde_json::Value;
    use spot_core::claim::InstanceId;
    use spot_core::error::ErrorClass;
    use spot_core::interruption::{Ignored, NoticeKind, Source, Told};
    use spot_core::node::{NodeRef, Uid};
    use spot_core::pod::PodRef;
    use spot_core::progress::{Halted, Step};
    use spot_core::reason::{Reason, ReasonKind};

    use super::*;
    use crate::sample::{node, report};

    /// What was written.
    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines for these events, without their time.
    fn lines(events: &[Progress]) -> Vec<Value> {
        lines_at(&events.iter().map(|event| (0, event.clone())).collect::<Vec<_>>())
    }

    /// The same for events at these seconds.
    fn lines_at(events: &[(i64, Progress)]) -> Vec<Value> {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_target(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let log = Log::default();
            for (second, event) in events {
                log.observe(Timestamp::from_second(*second).expect("it is a time"), event);
            }
        });
        let text = String::from_utf8(buffer.0.lock().expect("nobody panicked").clone()).expect("it is text");
        text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
    }

    #[test]
    fn each_step_has_one_line_with_node_step_outcome_and_duration() {
        let step = Step::Drain;
        let lines = lines(&[
            Progress::StepStarted { node: node(), step },
            Progress::StepDone { node: node(), step, took: Duration::from_millis(1_500) },
            Progress::StepStarted { node: node(), step },
            Progress::StepHalted { node: node(), step, halted: Halted::Failed, took: Duration::from_secs(2) },
        ]);
        let line = |outcome, duration| {
            serde_json::json!({"level": "INFO", "message": "step", "node": "node-1", "step": "drain",
                "outcome": outcome, "duration": duration})
        };
        let expected = [line("done", 1.5), line("failed", 2.0)];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_refused_node_is_named_with_its_reasons_and_the_remedy() {
        let at_minimum = Reason::Cloud(ReasonKind::GroupAtMinimum, "group od keeps 3".to_owned());
        let reasons = vec![at_minimum, Reason::Plain(ReasonKind::TerminationProtected)];
        let lines = lines(&[Progress::Refused { node: node(), reasons }]);
        let expected = serde_json::json!({"level": "INFO", "message": "node refused", "node": "node-1",
            "why": "group_at_minimum: group od keeps 3; termination_protected",
            "remedy": ReasonKind::GroupAtMinimum.remedy()});
        assert_eq!(lines, [expected]);
    }

    #[test]
    fn what_is_expected_to_repeat_is_not_shown_by_default() {
        let pod = PodRef { namespace: "default".into(), name: "web".into(), uid: Uid::new("2") };
        let answered = |answered| Progress::Evicted { node: node(), pod: pod.clone(), loses: None, answered };
        assert!(lines(&[answered(Answered::Accepted), answered(Answered::Blocked)]).is_empty());
        assert_eq!(lines(&[answered(Answered::Failed)]).len(), 1);
    }

    #[test]
    fn a_problem_that_goes_on_is_told_of_once_a_minute_and_any_other_at_once() {
        let problem = |second, node, what: &str| {
            (second, Progress::Problem { node, class: ErrorClass::Transient, what: what.to_owned() })
        };
        let mut problems: Vec<_> = (0..=61).map(|second| problem(second, None, "it answers 500")).collect();
        problems.extend([
            problem(62, None, "it answers 503"),
            problem(63, Some(node()), "it answers 503"),
            problem(64, Some(NodeRef { uid: Uid::new("another"), ..node() }), "it answers 503"),
        ]);
        let lines = lines_at(&problems);
        let line =
            |what: &str| serde_json::json!({"level": "WARN", "message": "problem", "class": "transient", "what": what});
        let of_node = serde_json::json!({"level": "WARN", "message": "problem", "node": "node-1", "class": "transient",
            "what": "it answers 503"});
        let expected =
            [line("it answers 500"), line("it answers 500"), line("it answers 503"), of_node.clone(), of_node];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_end_of_a_run_names_the_node_that_ended_it() {
        let report = Report { retired: vec![node()], evictions: 3, ..report(Outcome::SpotExhausted(node())) };
        let lines = lines(&[Progress::RunEnded { report }]);
        assert_eq!((&lines[0]["outcome"], &lines[0]["detail"]), (&"spot_exhausted".into(), &"node node-1 came".into()));
        assert_eq!((&lines[0]["retired"], &lines[0]["evictions"]), (&1.into(), &3.into()));
    }

    #[test]
    fn an_interruption_has_a_line_for_each_thing_that_matters() {
        let kind = NoticeKind::Interruption;
        let after = Duration::from_millis(250);
        let received = |kind| Told::Received { source: Source::Queue, kind, instance: InstanceId::new("i-1") };
        let lines = lines(
            &[
                Told::Polled { source: Source::Queue, oldest: Some(after) },
                received(kind),
                received(NoticeKind::StateChange),
                Told::Cordoned { node: node(), kind, after },
                Told::Held { until: Timestamp::UNIX_EPOCH },
                Told::Emptied { node: node(), kind, after },
                Told::NotEmptied { node: node(), kind, why: "pod a/b is still there".to_owned() },
                Told::Softened { node: node() },
                Told::Hardened { node: node() },
                Told::Returned { node: node(), why: "it started again" },
            ]
            .map(Progress::Interruption),
        );
        let said: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap_or_default()).collect();
        assert_eq!(
            said,
            [
                "notice received",
                "node cordoned: its machine is about to go",
                "planned work waits: spot capacity is being taken back",
                "node emptied before its machine goes",
                "node not emptied in time",
                "new pods are kept off the node: its machine may be taken back soon",
                "new pods are not kept off the node any longer: nothing followed",
                "node released: its machine is there",
            ]
        );
        let cordoned = serde_json::json!({"level": "INFO", "message": said[1], "node": "node-1",
            "kind": "spot_interruption", "seconds": 0.25});
        assert_eq!(lines[1], cordoned);
        assert_eq!((&lines[4]["level"], &lines[4]["why"]), (&"WARN".into(), &"pod a/b is still there".into()));
    }

    #[test]
    fn messages_that_mean_nothing_are_told_of_once_a_minute_and_reason() {
        let ignored = |second, why| {
            let what = format!("a message of second {second}");
            (second, Progress::Interruption(Told::Ignored { source: Source::Queue, why, what }))
        };
        let lines = lines_at(&[
            ignored(0, Ignored::Unreadable),
            ignored(1, Ignored::Unreadable),
            ignored(2, Ignored::Foreign),
            ignored(59, Ignored::Unreadable),
            ignored(60, Ignored::Unreadable),
            ignored(61, Ignored::Unreadable),
            ignored(62, Ignored::Duplicate),
        ]);
        let line = |level: &str, why: &str, second: i64, more: u64| {
            serde_json::json!({"level": level, "message": "notice ignored", "source": "queue", "why": why,
                "what": format!("a message of second {second}"), "more": more})
        };
        let expected =
            [line("WARN", "unreadable", 0, 0), line("INFO", "foreign", 2, 0), line("WARN", "unreadable", 60, 2)];
        assert_eq!(lines, expected);
    }
}
