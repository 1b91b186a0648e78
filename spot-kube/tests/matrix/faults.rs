//! The matrix: every fault at every request. Which run must have finished the work is said of each kind of faults.

use std::collections::BTreeSet;
use std::sync::Arc;

use spot_core::error::RunError;
use spot_core::ports::Edit;

use crate::cluster::two_nodes;
use crate::fault::{Break, Fault, No};
use crate::process::{self, Ended};
use crate::request::Asked;
use crate::server::Received;
use crate::store::Kind;
use crate::trial::{outlive, requests, requests_after};

/// Each of these faults at each request that can go wrong so; `runs` says by which run the work must be done.
fn each(faults: &[Fault], runs: impl Fn(&[Ended], &Asked) -> bool) {
    let requests = requests();
    let mut cases = 0;
    for fault in faults {
        for (number, request) in requests.iter().enumerate() {
            let asked = request.asked.as_ref().unwrap();
            if !fault.concerns(request) {
                continue;
            }
            let what = format!("{fault:?} at request {number}: {:.200}", request.line);
            let ends = outlive(&[(number, *fault)], &what);
            assert!(runs(&ends, asked), "{what}: {ends:#?}");
            cases += 1;
        }
    }
    let kinds = format!("{faults:?}");
    println!("{cases} cases: {kinds:.120}");
    assert!(cases > 0);
}

fn in_one_run(ends: &[Ended], _asked: &Asked) -> bool {
    ends.len() == 1
}

#[test]
fn a_server_that_is_overloaded_or_fails_for_a_moment_is_asked_again_in_the_same_run() {
    let faults = [No::Unauthorized, No::Overloaded, No::Budget, No::ServerError, No::Unavailable].map(Fault::Says);
    each(&faults, in_one_run);
}

#[test]
fn a_request_that_is_not_answered_is_made_again_in_the_same_run() {
    each(&[Fault::Hangs, Fault::Reset], in_one_run);
}

#[test]
fn an_effect_whose_answer_is_lost_or_that_comes_late_does_no_harm_in_the_same_run() {
    each(&[Fault::AnswerLost, Fault::AnswerReset, Fault::Late], in_one_run);
}

/// A write that conflicts is made anew in the same run. No read is ever answered so by the real server: it is taken for
/// an error, and the next run makes up for it.
#[test]
fn a_conflict_costs_no_write_its_run() {
    each(&[Fault::Says(No::Conflict)], |ends, asked| match asked {
        Asked::List { .. } | Asked::GetNode(_) | Asked::GetMemory => ends.len() <= 2,
        Asked::Watch(_)
        | Asked::PatchNode { .. }
        | Asked::DeleteNode(_)
        | Asked::Evict { .. }
        | Asked::CreateMemory(_)
        | Asked::PatchMemory { .. }
        | Asked::MayWeEvict => ends.len() == 1,
    });
}

/// A missing right, or what no server says to such a request, is taken at its word: the node is released, or the run
/// ends. Evictions are refused so by webhooks, lists and watches whose versions are too old, and are made again.
#[test]
fn a_refusal_costs_one_run_at_most() {
    each(&[Fault::Says(No::Forbidden)], |ends, asked| match asked {
        Asked::Evict { .. } => ends.len() == 1,
        _ => ends.len() <= 2,
    });
    each(&[Fault::Says(No::Expired)], |ends, asked| match asked {
        Asked::List { .. } | Asked::Watch(_) => ends.len() == 1,
        _ => ends.len() <= 2,
    });
}

/// The next process finishes the node that was claimed, and begins no other; the one after it does the rest.
#[test]
fn what_a_killed_process_left_is_finished_by_the_next_ones() {
    each(&[Fault::KilledBefore, Fault::KilledAfter], |ends, _| {
        matches!(ends.first(), Some(Ended::Killed)) && ends.len() <= 3
    });
}

/// The second process is killed too, at each of its requests that it does not begin with.
#[test]
fn what_two_killed_processes_left_is_finished_by_the_next_ones() {
    let mut cases = 0;
    for (number, request) in requests().iter().enumerate().filter(|(_, request)| is_write(request)) {
        let killed = (number, Fault::KilledAfter);
        let (first, next) = requests_after(number, Fault::KilledAfter);
        let later = next.iter().enumerate().filter(|(_, request)| !is_opening(request));
        for (at, again) in later {
            let what = format!("killed after {:.100} and before {:.100}", request.line, again.line);
            let ends = outlive(&[killed, (first + at, Fault::KilledBefore)], &what);
            assert!(matches!(ends[..], [Ended::Killed, Ended::Killed, ..]) && ends.len() <= 4, "{what}: {ends:#?}");
            cases += 1;
        }
    }
    println!("{cases} cases: killed after a write, and again before a request");
    assert!(cases > 0);
}

/// A view without one of its watches shows what is long past: the node that was begun fails, and the run with it.
#[test]
fn a_run_that_may_not_watch_begins_no_further_node() {
    let is_watch = |request: &Received| matches!(request.asked, Some(Asked::Watch(_)));
    for (number, request) in requests().iter().enumerate().filter(|(_, request)| is_watch(request)) {
        let server = two_nodes();
        server.fault_at(number, Fault::Says(No::Forbidden));
        let ended = process::once(&server).unwrap();
        assert!(matches!(ended, Ended::Failed(RunError::Cluster(_))), "{}: {ended:#?}", request.line);
        let claimed: BTreeSet<_> = server.requests().iter().filter_map(claimed).collect();
        assert!(claimed.len() <= 1, "{}: {claimed:?}", request.line);
    }
}

/// The node that a request claims.
fn claimed(request: &Received) -> Option<Arc<str>> {
    match &request.asked {
        Some(Asked::PatchNode { node, change }) if matches!(change.claim, Edit::Set(_)) => Some(Arc::clone(&node.name)),
        Some(_) | None => None,
    }
}

/// The requests that only a fault brings about, such as the look at a node after a conflict and the review after a
/// refused eviction, go wrong too.
#[test]
fn a_second_fault_right_after_the_first_costs_two_runs_at_most() {
    let seconds = [Fault::Says(No::ServerError), Fault::Hangs, Fault::AnswerReset, Fault::KilledBefore];
    let mut cases = 0;
    for (number, request) in requests().iter().enumerate().filter(|(_, request)| is_write(request)) {
        for first in [Fault::Says(No::Conflict), Fault::Says(No::Forbidden), Fault::AnswerLost] {
            for second in seconds {
                let what = format!("{first:?} at {:.100}, and then {second:?}", request.line);
                let ends = outlive(&[(number, first), (number + 1, second)], &what);
                assert!(ends.len() <= 3, "{what}: {ends:#?}");
                cases += 1;
            }
        }
    }
    println!("{cases} cases: two faults in a row");
    assert!(cases > 0);
}

fn is_write(request: &Received) -> bool {
    match request.asked {
        Some(Asked::PatchNode { .. } | Asked::DeleteNode(_) | Asked::Evict { .. }) => true,
        Some(
            Asked::List { .. }
            | Asked::Watch(_)
            | Asked::GetNode(_)
            | Asked::GetMemory
            | Asked::CreateMemory(_)
            | Asked::PatchMemory { .. }
            | Asked::MayWeEvict,
        )
        | None => false,
    }
}

/// Whether it is of those that open a view.
fn is_opening(request: &Received) -> bool {
    match &request.asked {
        Some(Asked::Watch(_)) => true,
        Some(Asked::List { kind, selector }) => *kind != Kind::Pods || selector.is_none(),
        Some(_) | None => false,
    }
}

/// A watch that breaks at any of its events shows it all the same, later. Nothing else goes wrong by it.
#[test]
fn a_watch_that_breaks_at_any_event_costs_nothing_but_time() {
    let most = requests().iter().map(|request| request.events).max().unwrap();
    let hows = [Break::Reset, Break::Torn, Break::Closed, Break::Gone, Break::Silence];
    let faults: Vec<Fault> = (0..most).flat_map(|event| hows.map(|how| Fault::Breaks(event, how))).collect();
    each(&faults, in_one_run);
}
