//! The planned drain, step by step: what it asks for, when again, and how it ends.

use std::collections::BTreeSet;

use spot_core::NodeSnapshot;
use spot_core::drain::machine::{DrainPolicy, How, Next};
use spot_core::drain::plan::DrainRules;
use spot_core::error::ErrorClass;
use spot_core::node::{Readiness, key};
use spot_core::pod::{BudgetSnapshot, PodPhase, PodSnapshot};
use spot_core::ports::EvictAnswer;
use spot_core::view::{Change, Known, View};

use crate::support::build::{budget, budget_ref, controller, daemon_pod, noon, pod, secs, uid};
use crate::support::drain::{Bench, budget_answer, planned, second};

const EMPTY: Next = Next::Empty { own_pod_left: false };

pub(crate) fn web(name: &str) -> PodSnapshot {
    pod(name, "web", "od-1")
}

/// A planned drain of these pods of one application.
pub(crate) fn draining(names: &[&str]) -> Bench {
    let mut bench = Bench::new(planned());
    for name in names {
        bench.put(web(name));
    }
    bench
}

#[test]
fn a_node_without_pods_is_empty_at_once() {
    assert_eq!(draining(&[]).observe(), EMPTY);
}

#[test]
fn all_pods_are_asked_for_once_and_with_their_own_grace_period() {
    let mut bench = draining(&["a", "b"]);
    let (removals, _) = bench.work();
    assert_eq!(removals.iter().map(|removal| &*removal.pod.name).collect::<Vec<_>>(), ["a", "b"]);
    assert!(removals.iter().all(|removal| removal.how == How::Evict(None)));
    bench.pass(secs(25));
    assert_eq!(bench.evicts(), [] as [&str; 0], "they are on their way");

    let rules = DrainRules { pod_grace: Some(secs(7)), ..DrainRules::default() };
    let mut bench = Bench::new(DrainPolicy { rules, ..planned() });
    bench.put(web("a"));
    assert_eq!(bench.work().0[0].how, How::Evict(Some(secs(7))));
}

#[test]
fn rb_06_an_accepted_eviction_is_no_pod_that_is_gone() {
    for answer in [EvictAnswer::Accepted, EvictAnswer::Gone] {
        let mut bench = draining(&["q"]);
        assert_eq!(bench.evicts(), ["q"]);
        bench.answer("q", answer);
        for _ in 0..9 {
            bench.pass(secs(10));
            assert_eq!(bench.evicts(), [] as [&str; 0]);
            bench.going("q");
        }
        bench.gone("q");
        assert_eq!(bench.observe(), EMPTY);
    }
}

#[test]
fn rb_54_daemon_set_mirror_and_finished_pods_are_left_and_their_lookalikes_are_not() {
    let mut bench = Bench::new(planned());
    bench.view.apply(Change::DaemonSet(uid("agent")));
    bench.put(daemon_pod("daemon", "agent", "od-1"));
    bench.put(daemon_pod("orphan", "deleted-set", "od-1"));
    bench.put(PodSnapshot { controller: Some(controller("apps.kruise.io", "DaemonSet", "agent")), ..web("foreign") });
    bench.put(PodSnapshot { mirror: true, controller: None, ..web("mirror") });
    bench.put(PodSnapshot { phase: PodPhase::Succeeded, ready: false, ..web("job") });
    bench.put(PodSnapshot { phase: PodPhase::Failed, controller: None, ..web("failed") });
    bench.budget(budget("web", 0));
    // The budget selects by label; those that are to go have another.
    for name in ["orphan", "foreign"] {
        let plain = bench.view.pods().find(|pod| &*pod.name == name).map(|pod| PodSnapshot::clone(pod)).unwrap();
        bench.put(PodSnapshot { labels: std::sync::Arc::default(), ..plain });
    }
    assert_eq!(bench.let_go(), ["foreign", "orphan"]);
    assert_eq!(bench.observe(), EMPTY);

    bench.view.apply(Change::DaemonSetGone(uid("agent")));
    assert_eq!(bench.let_go(), ["daemon"]);
}

#[test]
fn where_nobody_told_of_daemon_sets_their_pods_are_left() {
    let mut bench = Bench::new(planned());
    bench.view = View::knowing(Known { daemon_sets: false, ..Known::default() });
    bench.put(daemon_pod("daemon", "agent", "od-1"));
    assert_eq!(bench.observe(), EMPTY);
}

#[test]
fn rb_55_blocked_pods_take_no_place_from_the_others() {
    let names: Vec<String> = (0..60).map(|at| format!("p-{at:02}")).collect();
    let mut bench = draining(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let blocked = &names[..10];
    let mut evicted = Vec::new();
    for round in 0..4 {
        let asked = bench.evicts();
        assert!(asked.len() <= 32, "round {round}: {} at the same time", asked.len());
        for name in asked {
            if blocked.contains(&name) {
                bench.answer(&name, budget_answer());
            } else {
                bench.answer(&name, EvictAnswer::Accepted);
                bench.gone(&name);
                evicted.push(name);
            }
        }
    }
    assert_eq!(evicted, names[10..], "the others are evicted at once");
    assert_eq!(bench.wake(), second(10));
    bench.pass(secs(10));
    assert_eq!(bench.evicts(), blocked, "the ten are tried again");
}

#[test]
fn no_more_than_32_requests_are_on_their_way_and_each_answer_makes_room_for_one() {
    let names: Vec<String> = (0..40).map(|at| format!("p-{at:02}")).collect();
    let mut bench = draining(&names.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(bench.evicts(), names[..32]);
    assert_eq!(bench.evicts(), [] as [&str; 0]);
    bench.answer("p-00", EvictAnswer::Accepted);
    bench.fails("p-01", ErrorClass::Timeout);
    assert_eq!(bench.evicts(), names[32..34]);
}

#[test]
fn rb_27_a_webhook_that_refuses_is_asked_again_patiently_until_the_pod_is_gone() {
    let mut bench = draining(&["kafka-0"]);
    let refusals = [
        EvictAnswer::Webhook("moving data".to_owned()),
        EvictAnswer::Invalid("moving data".to_owned()),
        budget_answer(),
    ];
    let mut tries = 0;
    while bench.now < second(360) {
        let asked = bench.evicts();
        for name in asked {
            let stage = usize::from(bench.now >= second(120)) + usize::from(bench.now >= second(240));
            bench.answer(&name, refusals[stage].clone());
            tries += 1;
        }
        bench.overdue();
        let wake = bench.wake();
        assert!(wake > bench.now && wake <= bench.now + secs(38), "{wake:?} after {:?}", bench.now);
        bench.now = wake;
    }
    assert!((15..=40).contains(&tries), "{tries} tries in six minutes");
    bench.gone("kafka-0");
    assert_eq!(bench.observe(), EMPTY);
}

#[test]
fn a_webhook_that_never_agrees_is_named_at_the_deadline() {
    let mut bench = draining(&["kafka-0"]);
    assert_eq!(bench.evicts(), ["kafka-0"]);
    bench.answer("kafka-0", EvictAnswer::Webhook("moving data".to_owned()));
    bench.now = second(3_600);
    assert_eq!(bench.failure(), ["shop/kafka-0 (an admission webhook refuses: moving data)"]);
}

#[test]
fn rb_25_two_budgets_on_one_pod_end_at_the_deadline_and_other_server_errors_pass() {
    let mut bench = draining(&["p", "r"]);
    let mut tries = (0, 0);
    while bench.now < second(3_600) {
        for name in bench.evicts() {
            if name == "p" {
                tries.0 += 1;
                bench.answer("p", EvictAnswer::MultipleBudgets);
            } else if tries.1 < 2 {
                tries.1 += 1;
                bench.answer("r", EvictAnswer::ServerError("webhook: EOF".to_owned()));
            } else {
                bench.answer("r", EvictAnswer::Accepted);
                bench.gone("r");
                assert!(bench.now < second(10), "{:?}", bench.now);
            }
        }
        bench.overdue();
        bench.now = bench.wake();
    }
    assert!((90..150).contains(&tries.0), "{} tries in an hour", tries.0);
    assert_eq!(tries.1, 2);
    assert_eq!(bench.failure(), ["shop/p (multiple_budgets)"]);
}

#[test]
fn rb_05_a_pod_that_came_back_under_its_name_is_never_asked_for_in_the_others_place() {
    let mut bench = draining(&["db-0"]);
    for _ in 0..2 {
        let (removals, wake) = bench.work();
        assert_eq!(removals[0].pod.uid, uid("db-0"));
        bench.answer("db-0", budget_answer());
        bench.now = wake.min(bench.now + secs(10));
    }
    bench.gone("db-0");
    bench.put(PodSnapshot { uid: uid("u2"), node: Some("sp-2".into()), ..web("db-0") });
    assert_eq!(bench.observe(), EMPTY);

    // An answer that comes late changes nothing for its namesake, not even on this node.
    bench.put(PodSnapshot { uid: uid("u3"), ..web("db-0") });
    bench.answer("db-0", EvictAnswer::Accepted);
    let (removals, _) = bench.work();
    assert_eq!(removals.iter().map(|removal| &removal.pod.uid).collect::<Vec<_>>(), [&uid("u3")]);
}

#[test]
fn rb_38_pods_that_come_late_are_evicted_too_and_a_pod_that_always_comes_back_ends_the_drain() {
    let mut bench = draining(&["a"]);
    assert_eq!(bench.evicts(), ["a"]);
    bench.put(web("late"));
    assert_eq!(bench.evicts(), ["late"]);
    for name in ["a", "late"] {
        bench.answer(name, EvictAnswer::Accepted);
        bench.gone(name);
    }
    assert_eq!(bench.observe(), EMPTY);

    let mut bench = draining(&["again-0"]);
    for round in 0..60 {
        let name = format!("again-{round}");
        assert_eq!(bench.evicts(), [&*name]);
        bench.answer(&name, EvictAnswer::Accepted);
        bench.gone(&name);
        bench.put(web(&format!("again-{}", round + 1)));
        bench.pass(secs(60));
    }
    assert_eq!(bench.failure().len(), 1);
}

#[test]
fn rb_40_a_pod_that_stays_terminating_is_named_at_the_deadline_and_not_before() {
    let mut bench = draining(&["f", "quick"]);
    bench.evicts();
    for name in ["f", "quick"] {
        bench.answer(name, EvictAnswer::Accepted);
        bench.going(name);
    }
    bench.gone("quick");
    bench.now = second(3_599);
    assert_eq!(bench.evicts(), [] as [&str; 0]);
    assert_eq!(bench.wake(), second(3_600));
    bench.now = second(3_600);
    assert_eq!(bench.failure(), ["shop/f (terminating_stuck: it was evicted, but its object does not go)"]);
}

#[test]
fn rb_63_a_pod_that_blocks_for_a_minute_is_reported_alone_and_ever_more_rarely() {
    let names: Vec<String> = (0..12).map(|at| format!("p-{at:02}")).collect();
    let mut bench = Bench::new(planned());
    for name in &names {
        bench.put(pod(name, name, "od-1"));
    }
    bench.budget(BudgetSnapshot { name: "api".into(), ..budget("p-03", 0) });
    assert_eq!(bench.let_go().len(), 11);

    let mut reports = Vec::new();
    while bench.now < second(3_600) {
        for name in bench.evicts() {
            assert_eq!(name, "p-03");
            bench.answer("p-03", EvictAnswer::Budget { budget: Some(budget_ref("api")), retry_after: None });
        }
        for overdue in bench.overdue() {
            assert_eq!(overdue.blocked.to_string(), "shop/p-03 (budget_allows_none: budget shop/api)");
            assert_eq!(overdue.since, bench.now.0);
            reports.push(overdue.since.as_secs());
        }
        bench.now = bench.wake();
    }
    assert_eq!(reports, [60, 120, 240, 480, 960, 1_920]);
    assert_eq!(bench.failure(), ["shop/p-03 (budget_allows_none: budget shop/api)"]);
}

#[test]
fn a_pod_is_not_overdue_once_its_eviction_was_accepted() {
    let mut bench = draining(&["a"]);
    bench.evicts();
    bench.answer("a", budget_answer());
    bench.pass(secs(59));
    assert_eq!(bench.overdue(), []);
    assert_eq!(bench.evicts(), ["a"]);
    bench.answer("a", EvictAnswer::Accepted);
    bench.pass(secs(60));
    assert_eq!(bench.overdue(), []);
}

#[test]
fn rb_01_a_denied_eviction_fails_the_drain_with_all_that_was_in_the_way() {
    let mut bench = draining(&["a", "b", "c"]);
    assert_eq!(bench.evicts(), ["a", "b", "c"]);
    bench.answer("a", EvictAnswer::ServerError("boom".to_owned()));
    bench.answer("b", EvictAnswer::Accepted);
    bench.gone("b");
    bench.answer("c", EvictAnswer::Denied("may not create pods/eviction".to_owned()));
    assert_eq!(
        bench.failure(),
        ["shop/a (the API server fails: boom)", "shop/c (not allowed to evict: may not create pods/eviction)",]
    );

    let mut bench = draining(&["a"]);
    bench.evicts();
    bench.fails("a", ErrorClass::Denied);
    assert_eq!(bench.failure(), ["shop/a (not allowed to evict: evicting a pod)"]);
}

#[test]
fn at_the_deadline_each_pod_is_named_with_what_became_of_it() {
    let mut bench = draining(&["accepted", "going", "overloaded", "refused", "slow", "unanswered"]);
    bench.going("going");
    assert_eq!(bench.evicts(), ["accepted", "overloaded", "refused", "slow", "unanswered"]);
    bench.answer("accepted", EvictAnswer::Accepted);
    bench.answer("refused", EvictAnswer::NamespaceTerminating);
    bench.answer("overloaded", EvictAnswer::Overloaded { retry_after: Some(secs(4_000)) });
    // Somebody else tells two of them to stop.
    bench.going("overloaded");
    bench.going("unanswered");
    bench.put(web("young"));
    assert_eq!(bench.evicts(), [] as [&str; 0]);
    bench.now = second(3_600);
    let stuck = |name| format!("shop/{name} (terminating_stuck: it was evicted, but its object does not go)");
    assert_eq!(
        bench.failure(),
        [
            stuck("accepted"),
            stuck("going"),
            stuck("overloaded"),
            "shop/refused (its namespace is being deleted)".to_owned(),
            "shop/slow (the API server fails: no answer yet)".to_owned(),
            stuck("unanswered"),
            "shop/young (the API server fails: never asked for: the server was overloaded)".to_owned(),
        ]
    );
}

#[test]
fn pods_that_fail_together_are_tried_again_apart_within_a_quarter_of_their_wait() {
    let names: Vec<String> = (0..20).map(|at| format!("p-{at:02}")).collect();
    let mut bench = draining(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut asked = bench.evicts();
    for wait in [1_000, 2_000, 4_000] {
        let failed = bench.now;
        for name in asked.drain(..) {
            bench.answer(&name, EvictAnswer::ServerError("boom".to_owned()));
        }
        let mut moments = BTreeSet::new();
        while asked.len() < names.len() {
            bench.now = bench.wake();
            let waited = bench.now.since(failed).as_millis();
            assert!((wait..wait + wait / 4).contains(&waited), "{waited} ms instead of {wait} ms");
            asked.extend(bench.evicts());
            moments.insert(waited);
        }
        assert!(moments.len() > names.len() / 2, "all at {moments:?}");
    }
}

#[test]
fn an_eviction_without_an_answer_is_asked_for_again() {
    for class in [ErrorClass::Transient, ErrorClass::Timeout, ErrorClass::Permanent] {
        let mut bench = draining(&["a"]);
        assert_eq!(bench.evicts(), ["a"]);
        bench.fails("a", class);
        assert_eq!(bench.evicts(), [] as [&str; 0], "not at once");
        bench.now = bench.wake();
        assert!(bench.now >= second(1) && bench.now < second(2), "{:?}", bench.now);
        assert_eq!(bench.evicts(), ["a"]);
    }
}

#[test]
fn a_namespace_that_is_being_deleted_is_waited_for() {
    let mut bench = draining(&["a"]);
    bench.evicts();
    bench.answer("a", EvictAnswer::NamespaceTerminating);
    bench.now = bench.wake();
    assert_eq!(bench.evicts(), ["a"]);
    bench.answer("a", EvictAnswer::NamespaceTerminating);
    bench.now = second(3_600);
    assert_eq!(bench.failure(), ["shop/a (its namespace is being deleted)"]);
}

#[test]
fn the_own_pod_goes_last() {
    let mut bench = Bench::new(DrainPolicy { own_pod: Some(uid("a-own")), ..planned() });
    bench.put(web("a-own"));
    bench.put(web("b"));
    assert_eq!(bench.evicts(), ["b"]);
    bench.answer("b", EvictAnswer::Accepted);
    bench.going("b");
    bench.pass(secs(20));
    assert_eq!(bench.evicts(), [] as [&str; 0], "the other is not gone yet");
    bench.gone("b");
    assert_eq!(bench.evicts(), ["a-own"]);
    bench.answer("a-own", EvictAnswer::Accepted);
    assert_eq!(bench.evicts(), [] as [&str; 0]);
    bench.gone("a-own");
    assert_eq!(bench.observe(), EMPTY);
}

#[test]
fn an_own_pod_that_is_refused_when_it_alone_is_left_counts_as_drained() {
    let mut bench = Bench::new(DrainPolicy { own_pod: Some(uid("own")), ..planned() });
    bench.put(web("own"));
    bench.put(web("b"));
    assert_eq!(bench.let_go(), ["b", "own"]);

    let mut bench = Bench::new(DrainPolicy { own_pod: Some(uid("own")), ..planned() });
    bench.put(web("own"));
    assert_eq!(bench.evicts(), ["own"]);
    bench.answer("own", budget_answer());
    assert_eq!(bench.observe(), Next::Empty { own_pod_left: true });

    // A pod that comes late goes first all the same.
    bench.put(web("late"));
    assert_eq!(bench.evicts(), ["late"]);
}

#[test]
fn the_own_pod_is_asked_for_though_its_budget_has_no_room_since_only_a_refusal_counts() {
    let mut bench = Bench::new(DrainPolicy { own_pod: Some(uid("own")), ..planned() });
    bench.put(web("own"));
    bench.budget(budget("web", 0));
    assert_eq!(bench.evicts(), ["own"]);
    assert_eq!(bench.evicts(), [] as [&str; 0], "not yet refused");
    bench.answer("own", budget_answer());
    assert_eq!(bench.observe(), Next::Empty { own_pod_left: true });
}

#[test]
fn anybody_elses_pod_that_is_refused_is_not_drained() {
    let mut bench = Bench::new(DrainPolicy { own_pod: Some(uid("elsewhere")), ..planned() });
    bench.put(web("a"));
    bench.evicts();
    bench.answer("a", budget_answer());
    assert_eq!(bench.evicts(), [] as [&str; 0]);
}

#[test]
fn a_pod_that_may_not_be_moved_ends_a_planned_drain_at_once() {
    let refused = [
        (PodSnapshot { controller: None, ..web("late") }, "unmanaged_pod: pod shop/late"),
        (
            PodSnapshot { opted_out: Some(key::DO_NOT_DISRUPT), ..web("late") },
            "pod_opted_out: pod shop/late by karpenter.sh/do-not-disrupt",
        ),
    ];
    for (late, words) in refused {
        let mut bench = draining(&["a"]);
        assert_eq!(bench.evicts(), ["a"]);
        bench.put(late);
        assert_eq!(bench.failure(), [format!("shop/late ({words})")]);
    }
}

#[test]
fn pods_of_a_silent_node_count_as_gone_a_minute_after_their_grace_period() {
    let mut bench = draining(&["a"]);
    bench.put(PodSnapshot { grace: secs(50), ..web("slow") });
    bench.evicts();
    for name in ["a", "slow"] {
        bench.answer(name, EvictAnswer::Accepted);
        bench.going(name);
    }
    bench.now = second(30 + 61);
    assert_eq!(bench.evicts(), [] as [&str; 0], "a node that answers");
    bench.node = NodeSnapshot { readiness: Readiness::NotReady { since: noon() }, ..bench.node };
    assert_eq!(bench.evicts(), [] as [&str; 0], "a kubelet that says it is not ready still tells which pods it has");
    bench.node = NodeSnapshot { readiness: Readiness::Unreachable { since: noon() }, ..bench.node };
    bench.now = second(30 + 59);
    assert_eq!(bench.evicts(), [] as [&str; 0], "a second too early");
    assert_eq!(bench.wake(), second(30 + 60), "nothing else tells that the time has come");
    bench.now = second(30 + 60);
    assert_eq!(bench.wake(), second(50 + 60), "the other one's grace period is longer");
    bench.now = second(50 + 60);
    assert_eq!(bench.observe(), EMPTY);
    bench.put(web("b"));
    assert_eq!(bench.evicts(), ["b"], "one that was never told to stop");
}
