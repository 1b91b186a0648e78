//! What a budget's status, and an overloaded server, hold back.

use std::time::Duration;

use spot_core::pod::{BudgetSnapshot, PodSnapshot, UnhealthyPods};
use spot_core::ports::EvictAnswer;
use spot_core::view::Change;

use crate::drain_machine::{draining, web};
use crate::support::build::{budget, budget_ref, secs};
use crate::support::drain::{Bench, budget_answer, planned, second};

#[test]
fn never_more_pods_are_asked_for_than_the_budgets_status_allows() {
    let mut bench = draining(&["a", "b", "c", "d", "e"]);
    bench.budget(budget("web", 2));
    assert_eq!(bench.evicts(), ["a", "b"]);
    bench.answer("a", EvictAnswer::Accepted);
    bench.answer("b", EvictAnswer::Accepted);
    assert_eq!(bench.evicts(), [] as [&str; 0], "that status was asked for two already");

    bench.budget(budget("web", 0));
    assert_eq!(bench.evicts(), [] as [&str; 0]);
    bench.budget(budget("web", 1));
    assert_eq!(bench.evicts(), ["c"], "at once, without time passing");
    bench.answer("c", budget_answer());
    bench.budget(BudgetSnapshot { resource_version: "later".to_owned(), ..budget("web", 3) });
    assert_eq!(bench.evicts(), ["c", "d", "e"]);
}

#[test]
fn a_budgets_pods_are_tried_after_ten_seconds_whatever_its_status_says() {
    let mut bench = draining(&["a"]);
    bench.budget(budget("web", 0));
    assert_eq!(bench.evicts(), [] as [&str; 0]);
    assert_eq!(bench.wake(), second(10));
    bench.pass(Duration::from_millis(9_999));
    assert_eq!(bench.evicts(), [] as [&str; 0]);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.evicts(), ["a"]);
    bench.answer("a", budget_answer());
    assert_eq!(bench.wake(), second(20));
    bench.budget(budget("web", 1));
    assert_eq!(bench.evicts(), ["a"], "it has room before that");
}

#[test]
fn a_pod_that_is_tried_again_uses_up_the_budgets_status_too() {
    let mut bench = draining(&["a"]);
    bench.budget(budget("web", 1));
    assert_eq!(bench.evicts(), ["a"]);
    bench.answer("a", EvictAnswer::ServerError("boom".to_owned()));
    bench.budget(BudgetSnapshot { resource_version: "later".to_owned(), ..budget("web", 1) });
    bench.now = bench.wake();
    bench.put(web("b"));
    assert_eq!(bench.evicts(), ["a"]);
    assert_eq!(bench.evicts(), [] as [&str; 0]);
}

#[test]
fn the_servers_time_is_kept_unless_the_budget_moves() {
    let mut bench = draining(&["a"]);
    bench.budget(budget("web", 1));
    assert_eq!(bench.evicts(), ["a"]);
    bench.answer("a", EvictAnswer::Budget { budget: Some(budget_ref("web")), retry_after: Some(secs(30)) });
    assert_eq!(bench.wake(), second(30));
    bench.budget(BudgetSnapshot { resource_version: "later".to_owned(), ..budget("web", 0) });
    assert_eq!(bench.evicts(), [] as [&str; 0], "it moved, but has no room");
    bench.budget(BudgetSnapshot { resource_version: "room".to_owned(), ..budget("web", 1) });
    assert_eq!(bench.evicts(), ["a"]);
}

#[test]
fn a_server_that_asks_for_no_wait_is_given_a_second_all_the_same() {
    let retry_after = Some(secs(0));
    for answer in [EvictAnswer::Budget { budget: None, retry_after }, EvictAnswer::Overloaded { retry_after }] {
        let mut bench = draining(&["a"]);
        assert_eq!(bench.evicts(), ["a"]);
        bench.answer("a", answer);
        assert_eq!(bench.wake(), second(1));
    }
}

#[test]
fn a_report_that_is_due_before_the_next_try_is_not_late() {
    let mut bench = draining(&["a"]);
    assert_eq!(bench.evicts(), ["a"]);
    bench.answer("a", EvictAnswer::Budget { budget: None, retry_after: Some(secs(300)) });
    for due in [60, 120, 240] {
        assert_eq!(bench.wake(), second(due));
        bench.now = second(due);
        assert_eq!(bench.overdue().len(), 1);
    }
    assert_eq!(bench.wake(), second(300));
}

#[test]
fn a_budget_that_is_taken_away_holds_nobody_back() {
    let mut bench = draining(&["a", "b"]);
    bench.budget(budget("web", 1));
    assert_eq!(bench.evicts(), ["a"]);
    bench.answer("a", budget_answer());
    bench.view.apply(Change::BudgetGone(budget_ref("web")));
    assert_eq!(bench.evicts(), ["a", "b"]);
}

#[test]
fn a_stale_status_holds_nobody_back_and_neither_do_pods_that_need_no_budget() {
    let none = budget("web", 0);
    let stale = BudgetSnapshot { current: false, ..none.clone() };
    let lenient = BudgetSnapshot { unhealthy_pods: UnhealthyPods::AlwaysAllow, current_healthy: 0, ..none.clone() };
    let unready = |name| PodSnapshot { ready: false, ..web(name) };
    let table = [
        ("stale", stale, web("a"), true),
        ("unready, enough others are healthy", none.clone(), unready("a"), true),
        ("unready, and such may always go", lenient.clone(), unready("a"), true),
        (
            "unready, too few others are healthy",
            BudgetSnapshot { current_healthy: 1, ..none.clone() },
            unready("a"),
            false,
        ),
        ("ready", none, web("a"), false),
        ("ready, whatever unready ones may", lenient, web("a"), false),
    ];
    for (what, budget, pod, asked) in table {
        let mut bench = Bench::new(planned());
        bench.put(pod);
        bench.budget(budget);
        assert_eq!(!bench.evicts().is_empty(), asked, "{what}");
    }
}

#[test]
fn an_overloaded_server_slows_all_pods_down() {
    let mut bench = draining(&["a", "b"]);
    assert_eq!(bench.evicts(), ["a", "b"]);
    bench.answer("a", EvictAnswer::Overloaded { retry_after: Some(secs(20)) });
    bench.answer("b", EvictAnswer::Overloaded { retry_after: Some(secs(3)) });
    bench.put(web("late"));
    assert_eq!(bench.evicts(), [] as [&str; 0]);
    bench.pass(secs(19));
    assert_eq!(bench.evicts(), [] as [&str; 0], "the later of the two times counts");
    bench.pass(secs(1));
    assert_eq!(bench.evicts(), ["a", "b", "late"]);
}
