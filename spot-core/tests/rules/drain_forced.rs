//! The forced drain: the machine dies anyway, so that little is obeyed, and nothing past its end.

use spot_core::drain::machine::{DrainPolicy, How, Removal};
use spot_core::drain::plan::DrainRules;
use spot_core::error::ErrorClass;
use spot_core::node::key;
use spot_core::pod::PodSnapshot;
use spot_core::ports::EvictAnswer;
use spot_core::view::Change;

use crate::support::build::{budget, daemon_pod, noon, pod, secs, uid};
use crate::support::drain::{Bench, budget_answer, forced, planned, scheduled, second};

fn with_grace(name: &str, grace: u64) -> PodSnapshot {
    PodSnapshot { grace: secs(grace), ..pod(name, name, "od-1") }
}

fn by_name(removals: &[Removal]) -> Vec<(&str, How)> {
    removals.iter().map(|removal| (&*removal.pod.name, removal.how)).collect()
}

const EVICT: How = How::Evict(None);

fn evict(grace: u64) -> How {
    How::Evict(Some(secs(grace)))
}

fn delete(grace: u64) -> How {
    How::Delete(secs(grace))
}

#[test]
fn rb_15_a_forced_drain_evicts_at_once_caps_the_grace_and_deletes_what_budgets_hold_back() {
    let mut bench = Bench::new(forced());
    bench.now = second(10);
    bench.put(with_grace("a", 30));
    bench.put(with_grace("b", 600));
    bench.put(with_grace("c", 20));
    bench.put(with_grace("d", 100));
    bench.budget(budget("c", 0));
    let (removals, wake) = bench.work();
    assert_eq!(by_name(&removals), [("a", EVICT), ("b", evict(99)), ("d", evict(99))]);
    assert_eq!(wake, second(20), "the budget's pod is tried after ten seconds");
    for name in ["a", "b", "d"] {
        bench.answer(name, EvictAnswer::Accepted);
    }

    bench.now = second(20);
    assert_eq!(by_name(&bench.work().0), [("c", EVICT)]);
    bench.answer("c", EvictAnswer::Budget { budget: None, retry_after: Some(secs(300)) });
    assert_eq!(bench.wake(), second(60), "the server's time is past the point at which it is deleted");

    bench.now = second(60);
    let (removals, _) = bench.work();
    assert_eq!(by_name(&removals), [("c", delete(20))]);
    assert_eq!(bench.work().0, [], "once");
}

#[test]
fn a_deletion_that_fails_is_asked_for_again_after_a_pause_that_grows_and_not_past_the_end() {
    let mut bench = Bench::new(forced());
    bench.now = second(60);
    bench.put(with_grace("c", 5));
    bench.budget(budget("c", 0));
    let mut asked = Vec::new();
    while bench.now < second(110) {
        let (removals, _) = bench.work();
        if !removals.is_empty() {
            let left = second(110).since(bench.now).as_secs().saturating_sub(1).max(1);
            assert_eq!(by_name(&removals), [("c", delete(left.min(5)))]);
            asked.push(bench.now);
            bench.fails("c", ErrorClass::Transient);
            assert_eq!(bench.work().0, [], "not at once");
        }
        bench.now = bench.wake();
    }
    let pauses: Vec<_> = asked.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(asked.len() >= 4 && pauses.is_sorted() && pauses[0] >= secs(1), "{asked:?}");
    assert_eq!(bench.failure(), ["shop/c (the API server fails: evicting a pod)"]);
}

#[test]
fn nothing_is_deleted_before_its_time_nor_what_an_eviction_can_move() {
    let mut bench = Bench::new(forced());
    bench.put(with_grace("a", 30));
    bench.put(with_grace("c", 30));
    bench.budget(budget("c", 0));
    assert_eq!(by_name(&bench.work().0), [("a", EVICT)]);
    bench.answer("a", EvictAnswer::ServerError("boom".to_owned()));
    while bench.now < second(60) {
        for name in bench.evicts() {
            bench.answer(&name, budget_answer());
        }
        bench.pass(secs(1));
    }
    bench.put(with_grace("late", 5));
    let (removals, _) = bench.work();
    assert_eq!(by_name(&removals), [("a", delete(30)), ("c", delete(30)), ("late", EVICT)]);
}

#[test]
fn a_pod_that_a_budget_holds_back_is_deleted_on_time_though_it_was_never_asked_for() {
    let mut bench = Bench::new(forced());
    bench.now = second(57);
    bench.put(with_grace("c", 5));
    bench.budget(budget("c", 0));
    assert_eq!(bench.wake(), second(60));

    // Seen for the first time when that time is over.
    let mut bench = Bench::new(forced());
    bench.now = second(61);
    bench.put(with_grace("c", 5));
    bench.budget(budget("c", 0));
    assert_eq!(by_name(&bench.work().0), [("c", delete(5))]);
}

#[test]
fn rb_56_a_forced_drain_moves_pods_that_opted_out_or_that_nobody_brings_back() {
    let mut bench = Bench::new(forced());
    bench.view.apply(Change::DaemonSet(uid("agent")));
    bench.put(PodSnapshot { opted_out: Some(key::SAFE_TO_EVICT), ..with_grace("opted-out", 5) });
    bench.put(PodSnapshot { controller: None, ..with_grace("bare", 5) });
    bench.put(PodSnapshot { empty_dir: true, ..with_grace("local", 5) });
    bench.put(PodSnapshot { mirror: true, ..with_grace("mirror", 5) });
    bench.put(daemon_pod("daemon", "agent", "od-1"));
    assert_eq!(bench.evicts(), ["bare", "local", "opted-out"]);
}

#[test]
fn the_configured_grace_is_capped_too() {
    let rules = DrainRules { pod_grace: Some(secs(45)), ..DrainRules::default() };
    for (now, expected) in [(0, 45), (70, 39), (109, 1)] {
        let mut bench = Bench::new(DrainPolicy { rules: rules.clone(), ..forced() });
        bench.now = second(now);
        bench.put(with_grace("a", 600));
        assert_eq!(bench.work().0[0].how, evict(expected), "at {now} s");
    }
}

#[test]
fn a_planned_drain_never_deletes_and_never_caps() {
    let mut bench = Bench::new(planned());
    bench.put(with_grace("a", 86_400));
    bench.put(with_grace("c", 30));
    bench.budget(budget("c", 0));
    while bench.now < second(3_600) {
        for Removal { pod, how, loses: _ } in bench.work().0 {
            assert_eq!(how, EVICT, "{pod}");
            bench.answer(&pod.name, budget_answer());
        }
        bench.now = bench.now + secs(10);
    }
    assert_eq!(bench.failure().len(), 2);
}

#[test]
fn without_a_time_for_it_nothing_is_ever_deleted_though_all_that_can_be_moved_is() {
    let mut bench = Bench::new(scheduled());
    bench.put(with_grace("a", 30));
    bench.put(PodSnapshot { opted_out: Some(key::SAFE_TO_EVICT), ..with_grace("opted-out", 5) });
    bench.put(PodSnapshot { controller: None, ..with_grace("bare", 5) });
    bench.put(with_grace("c", 30));
    bench.budget(budget("c", 0));
    assert_eq!(bench.evicts(), ["a", "bare", "opted-out"]);
    for name in ["a", "bare", "opted-out"] {
        bench.answer(name, EvictAnswer::Accepted);
        bench.gone(name);
    }
    while bench.now < second(1_800) {
        for name in bench.evicts() {
            assert_eq!(name, "c");
            bench.answer(&name, budget_answer());
        }
        bench.now = bench.now + secs(10);
    }
    assert_eq!(bench.failure(), ["shop/c (budget_allows_none: budget shop/c)"]);
}

#[test]
fn a_pod_that_may_not_be_evicted_holds_up_no_other_and_is_deleted_on_time() {
    let mut bench = Bench::new(forced());
    bench.put(with_grace("a", 30));
    bench.put(with_grace("b", 30));
    bench.work();
    bench.answer("a", EvictAnswer::Denied("no".to_owned()));
    bench.answer("b", EvictAnswer::ServerError("boom".to_owned()));
    bench.pass(secs(5));
    assert_eq!(bench.evicts(), ["b"]);
    bench.answer("b", EvictAnswer::Accepted);
    bench.gone("b");
    assert_eq!(bench.wake(), second(60));
    bench.now = second(60);
    assert_eq!(by_name(&bench.work().0), [("a", delete(30))]);
    bench.fails("a", ErrorClass::Denied);
    assert_eq!(bench.failure(), ["shop/a (not allowed to evict: evicting a pod)"], "nothing else can be tried");
}

#[test]
fn what_may_not_be_evicted_fails_a_drain_that_never_deletes_once_it_alone_is_left() {
    let mut bench = Bench::new(scheduled());
    bench.put(with_grace("a", 30));
    bench.put(with_grace("b", 30));
    bench.work();
    bench.answer("a", EvictAnswer::Denied("no".to_owned()));
    bench.answer("b", EvictAnswer::Accepted);
    bench.going("b");
    assert_eq!(bench.evicts(), [] as [&str; 0]);
    bench.gone("b");
    assert_eq!(bench.failure(), ["shop/a (not allowed to evict: no)"]);
}

#[test]
fn the_own_pod_hands_over_before_its_machine_goes_though_others_are_left() {
    let mut bench = Bench::new(DrainPolicy { own_pod: Some(uid("a-own")), ..forced() });
    bench.put(with_grace("a-own", 30));
    bench.put(with_grace("b", 600));
    assert_eq!(bench.evicts(), ["b"]);
    bench.answer("b", EvictAnswer::Accepted);
    bench.put(PodSnapshot { deletion: Some(noon() + secs(109)), ..with_grace("b", 600) });
    assert_eq!(bench.wake(), second(90));
    bench.now = second(90);
    assert_eq!(by_name(&bench.work().0), [("a-own", evict(19))]);
}

#[test]
fn the_own_pod_that_is_refused_is_deleted_on_time_like_any_other() {
    let mut bench = Bench::new(DrainPolicy { own_pod: Some(uid("own")), ..forced() });
    bench.put(with_grace("own", 30));
    assert_eq!(bench.evicts(), ["own"]);
    bench.answer("own", budget_answer());
    assert_eq!(bench.wake(), second(10));
    bench.now = second(60);
    assert_eq!(by_name(&bench.work().0), [("own", delete(30))]);
}

#[test]
fn evictions_that_are_not_answered_hold_up_no_other_pod_and_are_deletions_at_last() {
    let mut bench = Bench::new(forced());
    let names: Vec<_> = (10..60).map(|number| format!("pod-{number}")).collect();
    for name in &names {
        bench.put(with_grace(name, 5));
    }
    let (removals, wake) = bench.work();
    assert_eq!((removals.len(), wake), (50, second(60)), "all at once");
    bench.now = second(58);
    bench.put(with_grace("late", 5));
    assert_eq!(by_name(&bench.work().0), [("late", EVICT)]);
    bench.now = second(60);
    let (removals, wake) = bench.work();
    assert_eq!(wake, second(63), "an answer takes its time");
    assert!(removals.len() == 50 && removals.iter().all(|one| one.how == delete(5)), "{removals:?}");
    assert_eq!(bench.work().0, [], "once");
}
