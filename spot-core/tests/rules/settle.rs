//! When the pods of a drained node run elsewhere.

use std::sync::Arc;

use spot_core::drain::plan::{DrainRules, Force};
use spot_core::pod::{BudgetSnapshot, PodPhase, PodSnapshot};
use spot_core::settle::Awaited;
use spot_core::view::{Change, View};

use crate::support::build::{budget, budget_ref, daemon_pod, noon, pod, secs, uid};

fn view_of(pods: &[PodSnapshot]) -> View {
    let mut view = View::default();
    for pod in pods {
        put(&mut view, pod.clone());
    }
    view
}

fn put(view: &mut View, pod: PodSnapshot) {
    view.apply(Change::Pod(Arc::new(pod)));
}

fn gone(view: &mut View, pod: PodSnapshot) {
    view.apply(Change::PodGone(Arc::new(pod)));
}

fn awaited(view: &View, node: &str) -> Awaited {
    Awaited::of(view, node, &DrainRules::default(), Force::Planned)
}

/// A pod that came when the drain had begun.
fn replacement(name: &str, node: Option<&str>, ready: bool) -> PodSnapshot {
    PodSnapshot { node: node.map(Into::into), ready, created_at: noon() + secs(30), ..pod(name, "web", "") }
}

#[test]
fn rb_20_the_next_node_waits_until_what_took_the_pods_place_is_scheduled_and_ready() {
    let before = [pod("web-1", "web", "od-1"), pod("web-2", "web", "sp-1")];
    let mut view = view_of(&before);
    let awaited = awaited(&view, "od-1");
    assert_eq!(awaited.pending(&view, secs(0)), None, "nothing was disturbed yet");

    gone(&mut view, before[0].clone());
    let missing = Some("controller uid-web has 1 of 2 pods".to_owned());
    assert_eq!(awaited.pending(&view, secs(1)), missing);
    put(&mut view, replacement("web-3", None, false));
    for drained_for in [0, 60, 720] {
        let unscheduled = Some("pod shop/web-3 has no node".to_owned());
        assert_eq!(awaited.pending(&view, secs(drained_for)), unscheduled);
    }
    put(&mut view, replacement("web-3", Some("sp-2"), false));
    assert_eq!(awaited.pending(&view, secs(720)), Some("pod shop/web-3 is not ready".to_owned()));
    put(&mut view, replacement("web-3", Some("sp-2"), true));
    assert_eq!(awaited.pending(&view, secs(0)), None);
}

#[test]
fn a_controller_that_was_scaled_down_is_not_waited_for_beyond_a_moment() {
    let mut view = view_of(&[pod("web-1", "web", "od-1")]);
    let awaited = awaited(&view, "od-1");
    gone(&mut view, pod("web-1", "web", "od-1"));
    let missing = Some("controller uid-web has 0 of 1 pods".to_owned());
    assert_eq!(awaited.pending(&view, secs(4)), missing);
    assert_eq!(awaited.pending(&view, secs(5)), None);
}

#[test]
fn pods_that_were_in_trouble_before_or_that_nobody_disturbed_are_not_waited_for() {
    let before = [
        pod("web-1", "web", "od-1"),
        PodSnapshot { ready: false, ..pod("web-2", "web", "sp-1") },
        PodSnapshot { created_at: noon() - secs(7_200), ..pod("web-3", "web", "sp-1") },
        pod("api-1", "api", "sp-1"),
    ];
    let mut view = view_of(&before);
    let awaited = awaited(&view, "od-1");
    gone(&mut view, before[0].clone());
    put(&mut view, replacement("web-4", Some("sp-2"), true));
    put(&mut view, PodSnapshot { ready: false, ..before[2].clone() });
    let batch = PodSnapshot { phase: PodPhase::Pending, ..replacement("api-2", None, false) };
    put(&mut view, PodSnapshot { controller: before[3].controller.clone(), ..batch });
    assert_eq!(awaited.pending(&view, secs(0)), None);
}

#[test]
fn pods_that_stay_with_the_node_are_not_waited_for() {
    let stay = [
        daemon_pod("agent-1", "agent", "od-1"),
        PodSnapshot { mirror: true, ..pod("mirror", "mirror", "od-1") },
        PodSnapshot { phase: PodPhase::Succeeded, ..pod("job-1", "job", "od-1") },
    ];
    let mut view = view_of(&stay);
    view.apply(Change::DaemonSet(uid("agent")));
    view.apply(Change::Budget(Arc::new(BudgetSnapshot { current: false, ..budget("agent", 1) })));
    let awaited = awaited(&view, "od-1");
    for pod in stay {
        gone(&mut view, pod);
    }
    assert_eq!(awaited.pending(&view, secs(0)), None);
}

#[test]
fn a_pod_that_was_going_already_when_the_drain_began_is_waited_for_too() {
    let going = PodSnapshot { deletion: Some(noon()), ..pod("web-1", "web", "od-1") };
    let mut view = view_of(std::slice::from_ref(&going));
    let awaited = awaited(&view, "od-1");
    gone(&mut view, going);
    put(&mut view, replacement("web-2", None, false));
    assert_eq!(awaited.pending(&view, secs(60)), Some("pod shop/web-2 has no node".to_owned()));
}

#[test]
fn the_status_of_the_pods_budgets_is_waited_for_and_of_no_others() {
    let before = [pod("web-1", "web", "od-1"), pod("web-2", "web", "od-1")];
    let mut view = view_of(&before);
    let see = |view: &mut View, budget: BudgetSnapshot| view.apply(Change::Budget(Arc::new(budget)));
    see(&mut view, budget("web", 1));
    see(&mut view, BudgetSnapshot { current: false, ..budget("api", 1) });
    let awaited = awaited(&view, "od-1");
    let after = secs(60);
    assert_eq!(awaited.pending(&view, after), None);

    let stale = Some("the status of budget shop/web is not current".to_owned());
    see(&mut view, BudgetSnapshot { current: false, ..budget("web", 1) });
    assert_eq!(awaited.pending(&view, after), stale);
    see(&mut view, BudgetSnapshot { disrupted_pods: vec!["web-2".to_owned()], ..budget("web", 1) });
    assert_eq!(awaited.pending(&view, after), stale, "it has not seen the pod go");
    see(&mut view, BudgetSnapshot { disrupted_pods: vec!["web-9".to_owned()], ..budget("web", 1) });
    assert_eq!(awaited.pending(&view, after), None, "somebody else's eviction");

    see(&mut view, BudgetSnapshot { current: false, ..budget("web", 1) });
    view.apply(Change::BudgetGone(budget_ref("web")));
    assert_eq!(awaited.pending(&view, after), None, "a budget that is gone");
}

#[test]
fn two_drains_are_waited_for_together_and_what_the_first_saw_counts() {
    let before = [pod("web-1", "web", "od-1"), pod("web-2", "web", "od-2"), pod("api-1", "api", "od-2")];
    let mut view = view_of(&before);
    let mut both = awaited(&view, "od-1");
    gone(&mut view, before[0].clone());
    both.extend(awaited(&view, "od-2"));
    gone(&mut view, before[2].clone());
    put(&mut view, replacement("web-3", Some("sp-1"), true));
    assert_eq!(both.pending(&view, secs(0)), Some("controller uid-api has 0 of 1 pods".to_owned()));

    let api = PodSnapshot { controller: before[2].controller.clone(), ..replacement("api-2", Some("sp-1"), true) };
    put(&mut view, api);
    assert_eq!(both.pending(&view, secs(0)), None);
    gone(&mut view, before[1].clone());
    assert_eq!(both.pending(&view, secs(0)), Some("controller uid-web has 1 of 2 pods".to_owned()));
}

#[test]
fn where_an_earlier_process_began_all_pods_that_have_come_since_are_waited_for() {
    let came =
        |name, seconds| PodSnapshot { created_at: noon() + secs(seconds), ..replacement(name, Some("sp-1"), false) };
    let newest = PodSnapshot { ready: true, ..came("web-3", 30) };
    let mut view = view_of(&[pod("web-1", "web", "od-1"), came("web-2", 10), newest]);
    let mut resumed = awaited(&view, "od-1");
    let after = secs(60);
    assert_eq!(resumed.pending(&view, after), None, "it was in trouble before, as far as this process saw");
    resumed.since(noon() + secs(11));
    assert_eq!(resumed.pending(&view, after), None, "it came before");
    resumed.since(noon() + secs(10));
    assert_eq!(resumed.pending(&view, after), Some("pod shop/web-2 is not ready".to_owned()));
    put(&mut view, PodSnapshot { ready: true, ..came("web-2", 10) });
    assert_eq!(resumed.pending(&view, after), None);

    let homeless = |seconds| PodSnapshot { node: None, controller: None, ..came("bare", seconds) };
    put(&mut view, homeless(9));
    assert_eq!(resumed.pending(&view, after), None, "it came before");
    put(&mut view, PodSnapshot { phase: PodPhase::Failed, ..homeless(10) });
    assert_eq!(resumed.pending(&view, after), None, "it wants no node");
    put(&mut view, homeless(10));
    let mut both = awaited(&view, "od-2");
    assert_eq!(both.pending(&view, after), None, "this drain has nothing to do with it");
    both.since(noon() + secs(11));
    assert_eq!(both.pending(&view, after), None, "it came before this one began");
    both.extend(resumed);
    assert_eq!(both.pending(&view, after), Some("pod shop/bare has no node".to_owned()));
}
