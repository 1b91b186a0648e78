//! One trial: faults at certain requests, and run after run until the work is done.

use std::fmt::Write;
use std::time::Duration;

use spot_core::error::chain;
use spot_core::model::{Invariants, Limits};
use spot_core::progress::Outcome;

use crate::cluster::{EndState, two_nodes};
use crate::fault::Fault;
use crate::process::{self, Ended};
use crate::server::{ApiServer, Received};

/// More runs than any fault needs to be got over.
const RUNS: usize = 5;

/// From a run to the next one: the back-off of a node that failed has passed by then.
const BETWEEN: Duration = Duration::from_hours(2);

/// The requests of a migration in which nothing goes wrong.
pub(crate) fn requests() -> Vec<Received> {
    let server = two_nodes();
    let ended = process::once(&server).unwrap();
    assert!(is_done(&ended), "{ended:?}");
    server.requests()
}

/// The requests of the process that follows one that a fault killed, and the number of the first of them.
pub(crate) fn requests_after(number: usize, fault: Fault) -> (usize, Vec<Received>) {
    let server = two_nodes();
    server.fault_at(number, fault);
    let killed = process::once(&server).unwrap();
    assert!(matches!(killed, Ended::Killed), "{killed:?}");
    let first = server.requests().len();
    let now = server.model.with(|world| world.now());
    server.model.run_until(now + BETWEEN).unwrap();
    process::once(&server).unwrap();
    (first, server.requests().split_off(first))
}

/// How the runs ended that it took, the last of them with nothing left to do; each run is a new process.
///
/// Fails unless the promises held after every call of every run, no request was one that the real server would refuse
/// or read otherwise than it was meant, nothing of ours was on the nodes when a process ended by itself, each fault
/// struck, and the cluster is in the end as it is without them.
pub(crate) fn outlive(faults: &[(usize, Fault)], what: &str) -> Vec<Ended> {
    let server = two_nodes();
    let invariants = Invariants::watch(&server.model, Limits::default());
    for (number, fault) in faults {
        server.fault_at(*number, *fault);
    }
    let mut ends = Vec::new();
    loop {
        let ended = process::once(&server).unwrap_or_else(|halt| panic!("{halt}: {}", story(what, &ends, &server)));
        let found = match &ended {
            Ended::Killed => invariants.violations(),
            Ended::Ran(_) | Ended::Failed(_) => invariants.at_the_end(&server.model),
        };
        let done = is_done(&ended);
        ends.push(ended);
        let told = || story(what, &ends, &server);
        assert!(found.is_empty(), "{found:#?}: {}", told());
        assert!(server.wrong().is_empty(), "{:#?}: {}", server.wrong(), told());
        if done {
            assert_eq!(server.faults_left(), 0, "a fault did not strike: {}", told());
            assert_eq!(server.model.with(|world| EndState::of(world)), EndState::expected(), "{}", told());
            return ends;
        }
        assert!(ends.len() < RUNS, "it is not done: {}", told());
        let now = server.model.with(|world| world.now());
        server.model.run_until(now + BETWEEN).unwrap();
    }
}

/// Whether a run left nothing to do.
fn is_done(ended: &Ended) -> bool {
    match ended {
        Ended::Ran(report) => {
            report.outcome == Outcome::AllSpot && report.failed.is_empty() && report.departing.is_empty()
        }
        Ended::Failed(_) | Ended::Killed => false,
    }
}

/// What happened, for whoever has to find out why.
fn story(what: &str, ends: &[Ended], server: &ApiServer) -> String {
    let mut story = what.to_owned();
    for (run, ended) in ends.iter().enumerate() {
        write!(story, "\nrun {}: {}", run + 1, words(ended)).unwrap();
    }
    for (number, request) in server.requests().iter().enumerate() {
        write!(story, "\n{number:4} {:.200}", request.line).unwrap();
    }
    story
}

fn words(ended: &Ended) -> String {
    match ended {
        Ended::Ran(report) => format!("{report:?}"),
        Ended::Failed(error) => chain(error),
        Ended::Killed => "killed".to_owned(),
    }
}
