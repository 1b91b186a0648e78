//! What became of the work on a pool, in words, and how the process ends for it.

use std::fmt::Write as _;

use anyhow::anyhow;
use spot_core::node::NodeRef;
use spot_core::pool::{Count, Outcome, Report};
use spot_core::reason::Reason;

use crate::exit::{Exit, Fault};

/// What is in the way of a count, from the first step that lacks.
#[must_use]
pub(super) fn lacks(count: Count) -> Option<(&'static str, u32)> {
    let Count { wanted, launched, joined, ready } = count;
    if launched < wanted {
        let remedy = "the fleet launches no more: what it says of it is above and in `spot-fleet status`; add instance \
                      types or subnets, raise `maxPrice`, or ask for less";
        Some((remedy, wanted - launched))
    } else if joined < launched {
        let remedy = "machines run that are no nodes: look at user data, at the mapping of their role to the cluster \
                      (`aws-auth`, access entries) and at their security groups; the console output of one says more";
        Some((remedy, launched - joined))
    } else if ready < wanted {
        Some((
            "nodes are not Ready, or cordoned: `kubectl describe node` says why; often it is the network plugin",
            wanted - ready,
        ))
    } else {
        None
    }
}

/// What was done, a line for each kind.
#[must_use]
pub(super) fn text(report: &Report) -> String {
    let Report { outcome, retired, failed, undone, departing, evictions } = report;
    let mut text = String::new();
    if !retired.is_empty() {
        let moved = if *evictions == 1 { "1 pod was moved".to_owned() } else { format!("{evictions} pods were moved") };
        line(&mut text, &format!("retired: {}; {moved}", names(retired)));
    }
    for (node, why) in failed {
        line(&mut text, &format!("failed: {node} was released: {why}"));
    }
    if !undone.is_empty() {
        line(&mut text, &format!("taken back by a person: {}", names(undone)));
    }
    if !departing.is_empty() {
        line(&mut text, &format!("still on their way out: {}", names(departing)));
    }
    match outcome {
        Outcome::Done => line(&mut text, "done: everything is as it was asked for"),
        Outcome::Remainder(there) => line(
            &mut text,
            &format!("{there} units are there, for no node fits into what is too much: each weighs more than that"),
        ),
        Outcome::Blocked(nodes) => {
            for (node, reason) in nodes {
                line(&mut text, &format!("blocked: {node}: {reason}"));
            }
            text.push_str(&remedies(nodes));
        }
        Outcome::NotReady(count) => line(&mut text, &format!("not ready in time: {count}")),
        Outcome::NotSettled(pending) => line(&mut text, &format!("evicted pods do not run elsewhere yet: {pending}")),
        Outcome::Paused => line(&mut text, "a person paused planned work: `spot-migrator resume` lets it go on"),
        Outcome::Stopped => line(&mut text, "told to stop: the same command goes on from here"),
        Outcome::Failed | Outcome::Refused(_) | Outcome::Changed(_) => {}
    }
    text
}

/// What would help the nodes that may not go, a line for each kind of reason.
#[must_use]
fn remedies(blocked: &[(NodeRef, Reason)]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (_, reason) in blocked {
        let line = format!("  {}: {}\n", reason.kind().as_str(), reason.kind().remedy());
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() { String::new() } else { format!("what would help:\n{}", lines.concat()) }
}

/// How the process ends; `detailed` tells "more to do" apart.
///
/// # Errors
/// When it failed: why, and the remedy.
pub(super) fn exit(report: &Report, detailed: bool) -> Result<Exit, Fault> {
    if let Some((node, why)) = report.failed.first() {
        let count = report.failed.len();
        let nodes = if count == 1 { "a node was".to_owned() } else { format!("{count} nodes were") };
        return Err(Fault::failed(anyhow!(
            "{nodes} not retired, and released; the first, {node}: {why}: see to it, and start the same command again"
        )));
    }
    match &report.outcome {
        Outcome::Done => Ok(Exit::Orderly),
        Outcome::Remainder(_) | Outcome::Blocked(_) | Outcome::NotSettled(_) | Outcome::Paused | Outcome::Stopped => {
            Ok(Exit::more_to_do(detailed))
        }
        Outcome::NotReady(count) => {
            let (remedy, missing) = lacks(*count).unwrap_or(("start the same command again", 0));
            Err(Fault::failed(anyhow!(
                "{missing} units lack ({count}), and nothing further was changed: {remedy}; the same command waits again"
            )))
        }
        Outcome::Failed => Err(Fault::failed(anyhow!(
            "not everything was done that was asked for: see above, and start the same command again"
        ))),
        Outcome::Changed(what) => Err(Fault::failed(anyhow!(
            "{what}: what somebody else wants of the pool is left as it is; see who changed it (Application Auto Scaling, \
             another tool), and start the same command again"
        ))),
        Outcome::Refused(why) => Err(Fault::failed(anyhow!("{why}; nothing was touched"))),
    }
}

/// How a command ends that is of use only as a whole: whoever goes on as if it were done would lose what is on the pool, or
/// miss it. `short` says what is not as it was asked for.
///
/// # Errors
/// When it was not done, for whatever reason: why, and the remedy.
pub(super) fn exit_of_whole(report: &Report, short: &str) -> Result<Exit, Fault> {
    match (exit(report, true)?, &report.outcome) {
        (Exit::Orderly, _) => Ok(Exit::Orderly),
        (_, Outcome::Stopped) => {
            Err(Fault::failed(anyhow!("{short}, for it was told to stop: the same command goes on from here")))
        }
        (_, Outcome::Paused) => Err(Fault::failed(anyhow!(
            "{short}, for a person paused planned work: `spot-migrator resume`, and start the same command again"
        ))),
        _ => Err(Fault::failed(anyhow!("{short}: see to what is above, and start the same command again"))),
    }
}

fn names(nodes: &[NodeRef]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn line(text: &mut String, line: &str) {
    // Writing into a String has no way to fail.
    let _written = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use spot_core::reason::ReasonKind;

    use super::*;
    use crate::sample::{node, pool_report as report};

    fn count(wanted: u32, launched: u32, joined: u32, ready: u32) -> Count {
        Count { wanted, launched, joined, ready }
    }

    fn code(report: &Report, detailed: bool) -> u8 {
        exit(report, detailed).unwrap_or_else(|fault| fault.exit).code()
    }

    #[rstest]
    #[case(Outcome::Done, 0, 0)]
    #[case(Outcome::Remainder(4), 0, 3)]
    #[case(Outcome::Blocked(vec![]), 0, 3)]
    #[case(Outcome::NotSettled("pod a/b".to_owned()), 0, 3)]
    #[case(Outcome::Paused, 0, 3)]
    #[case(Outcome::Stopped, 0, 3)]
    #[case(Outcome::NotReady(count(6, 3, 3, 3)), 1, 1)]
    #[case(Outcome::Failed, 1, 1)]
    #[case(Outcome::Changed("fleet sfr-1 wants 5 units".to_owned()), 1, 1)]
    #[case(Outcome::Refused("below the floor".to_owned()), 1, 1)]
    fn every_orderly_outcome_is_0_and_only_if_asked_3(
        #[case] outcome: Outcome,
        #[case] plain: u8,
        #[case] detailed: u8,
    ) {
        let report = report(outcome);
        assert_eq!((code(&report, false), code(&report, true)), (plain, detailed));
    }

    #[test]
    fn a_node_that_failed_fails_the_command_whatever_else_succeeded() {
        let report = Report { failed: vec![(node(), "no answer".to_owned())], ..report(Outcome::Done) };
        let fault = exit(&report, true).expect_err("a node failed");
        assert!(fault.error.to_string().contains("no answer") && fault.error.to_string().contains("again"));
        assert_eq!(fault.exit, Exit::Failed);
    }

    #[rstest]
    #[case::launched(count(6, 3, 3, 3), Some(("maxPrice", 3)))]
    #[case::joined(count(6, 6, 4, 4), Some(("aws-auth", 2)))]
    #[case::ready(count(6, 6, 6, 5), Some(("kubectl", 1)))]
    #[case::nothing(count(6, 7, 7, 6), None)]
    fn the_first_step_that_lacks_is_what_is_told(#[case] count: Count, #[case] expected: Option<(&str, u32)>) {
        let found = lacks(count);
        assert_eq!(found.map(|(_, missing)| missing), expected.map(|(_, missing)| missing));
        if let (Some((remedy, _)), Some((word, _))) = (found, expected) {
            assert!(remedy.contains(word), "{remedy}");
        }
    }

    #[test]
    fn everything_that_was_done_is_told() {
        let done = Report {
            outcome: Outcome::Blocked(vec![(
                node(),
                Reason::Cloud(ReasonKind::NoMachineOwner, "nobody owns it".to_owned()),
            )]),
            retired: vec![node()],
            failed: vec![(node(), "no answer".to_owned())],
            undone: vec![node()],
            departing: vec![node()],
            evictions: 2,
        };
        insta::assert_snapshot!(text(&done), @r"
        retired: node-1; 2 pods were moved
        failed: node-1 was released: no answer
        taken back by a person: node-1
        still on their way out: node-1
        blocked: node-1: no_machine_owner: nobody owns it
        what would help:
          no_machine_owner: use the cloud's own provider, so that the machine goes too
        ");
        let remainder = text(&report(Outcome::Remainder(4)));
        insta::assert_snapshot!(remainder, @"4 units are there, for no node fits into what is too much: each weighs more than that");
    }

    #[test]
    fn each_reason_has_its_remedy_once() {
        let reason = || Reason::Cloud(ReasonKind::NoMachineOwner, "nobody owns it".to_owned());
        let blocked = [(node(), reason()), (node(), reason())];
        assert_eq!(remedies(&blocked).matches(ReasonKind::NoMachineOwner.remedy()).count(), 1);
        assert_eq!(remedies(&[]), "");
    }
}
