//! Which pods and budgets keep their node from going.

use spot_core::node::key;
use spot_core::pod::{BudgetSnapshot, PodPhase, PodSnapshot, UnhealthyPods};
use spot_core::reason::{Reason, ReasonKind};
use spot_core::selector::LabelSelector;
use spot_core::view::Change;

use crate::judge::refuses_od_1_alone;
use crate::support::build::{SHOP, budget, budget_ref, controller, daemon_pod, noon, pod, pod_ref, uid};
use crate::support::scene::Scene;

#[test]
fn rb_56_a_pod_that_opted_out_refuses_its_node_before_anything_is_touched() {
    fn opted_out(key: &'static str) -> PodSnapshot {
        PodSnapshot { opted_out: Some(key), ..pod("web-1", "web", "od-1") }
    }
    let refused = &[ReasonKind::PodOptedOut];
    refuses_od_1_alone(&[
        ("an ordinary pod", |s| s.pod(pod("web-1", "web", "od-1")), &[]),
        ("our key", |s| s.pod(opted_out(key::DO_NOT_EVICT)), refused),
        ("Karpenter's key", |s| s.pod(opted_out(key::DO_NOT_DISRUPT)), refused),
        ("cluster-autoscaler's key", |s| s.pod(opted_out(key::SAFE_TO_EVICT)), refused),
        ("it has ended", |s| s.pod(PodSnapshot { phase: PodPhase::Succeeded, ..opted_out(key::DO_NOT_EVICT) }), &[]),
        ("it is going anyway", |s| s.pod(PodSnapshot { deletion: Some(noon()), ..opted_out(key::DO_NOT_EVICT) }), &[]),
        ("the kubelet made it", |s| s.pod(PodSnapshot { mirror: true, ..opted_out(key::DO_NOT_EVICT) }), &[]),
        ("it is on a spot node", |s| s.pod(PodSnapshot { node: Some("sp-1".into()), ..opted_out("k") }), &[]),
    ]);
    let mut scene = Scene::b0();
    scene.pod(opted_out(key::SAFE_TO_EVICT));
    assert_eq!(scene.reasons("od-1"), [Reason::PodOptedOut(pod_ref("web-1"), key::SAFE_TO_EVICT)]);
}

#[test]
fn rb_35_a_pod_without_controller_or_with_local_data_refuses_its_node_by_the_drains_rules() {
    fn bare(scene: &mut Scene) {
        scene.pod(PodSnapshot { controller: None, ..pod("bare", "bare", "od-1") });
    }
    fn with_data(scene: &mut Scene) {
        scene.pod(PodSnapshot { empty_dir: true, ..pod("cache", "cache", "od-1") });
    }
    refuses_od_1_alone(&[
        ("bare", bare, &[ReasonKind::UnmanagedPod]),
        (
            "bare, forced",
            |s| {
                bare(s);
                s.policy.drain.force = true;
            },
            &[],
        ),
        ("local data, by default", with_data, &[]),
        (
            "local data that must stay",
            |s| {
                with_data(s);
                s.policy.drain.delete_empty_dir_data = false;
            },
            &[ReasonKind::EmptyDir],
        ),
        (
            "both",
            |s| {
                bare(s);
                with_data(s);
                s.policy.drain.delete_empty_dir_data = false;
            },
            &[ReasonKind::UnmanagedPod, ReasonKind::EmptyDir],
        ),
        (
            "a controller of somebody's own kind",
            |s| {
                let of_their_own = Some(controller("example.com", "Cache", "cache"));
                s.pod(PodSnapshot { controller: of_their_own, ..pod("cache-0", "cache", "od-1") });
            },
            &[],
        ),
    ]);
}

#[test]
fn a_budget_refuses_only_with_a_current_status_for_a_pod_that_counts() {
    fn with(scene: &mut Scene, budget: BudgetSnapshot, pod: PodSnapshot) {
        scene.pod(pod);
        scene.budget(budget);
    }
    fn web() -> PodSnapshot {
        pod("web-1", "web", "od-1")
    }
    fn unready() -> PodSnapshot {
        PodSnapshot { ready: false, ..web() }
    }
    fn none() -> BudgetSnapshot {
        budget("web", 0)
    }
    fn pending() -> PodSnapshot {
        PodSnapshot { phase: PodPhase::Pending, ready: false, ..web() }
    }
    fn unhealthy() -> BudgetSnapshot {
        BudgetSnapshot { current_healthy: 1, ..none() }
    }
    let refused = &[ReasonKind::BudgetAllowsNone];
    refuses_od_1_alone(&[
        ("it allows none", |s| with(s, none(), web()), refused),
        ("it allows fewer than none", |s| with(s, budget("web", -1), web()), refused),
        ("it allows one", |s| with(s, budget("web", 1), web()), &[]),
        ("its status is stale", |s| with(s, BudgetSnapshot { current: false, ..none() }, web()), &[]),
        ("the pod is pending", |s| with(s, unhealthy(), pending()), &[]),
        ("the pod is going", |s| with(s, none(), PodSnapshot { deletion: Some(noon()), ..web() }), &[]),
        ("the pod has ended", |s| with(s, none(), PodSnapshot { phase: PodPhase::Failed, ..web() }), &[]),
        ("the pod is unready, enough others are healthy", |s| with(s, none(), unready()), &[]),
        ("the pod is unready, too few others are healthy", |s| with(s, unhealthy(), unready()), refused),
        (
            "the pod is unready, none need be healthy",
            |s| with(s, BudgetSnapshot { current_healthy: 0, desired_healthy: 0, ..none() }, unready()),
            refused,
        ),
        (
            "the pod is unready and such pods may always go",
            |s| with(s, BudgetSnapshot { unhealthy_pods: UnhealthyPods::AlwaysAllow, ..unhealthy() }, unready()),
            &[],
        ),
        (
            "the pod is ready, whatever is said of unready ones",
            |s| with(s, BudgetSnapshot { unhealthy_pods: UnhealthyPods::AlwaysAllow, ..none() }, web()),
            refused,
        ),
        (
            "the pod is a DaemonSet's",
            |s| {
                s.view.apply(Change::DaemonSet(uid("web")));
                with(s, none(), daemon_pod("web-1", "web", "od-1"));
            },
            &[],
        ),
        ("another application's", |s| with(s, none(), pod("api-1", "api", "od-1")), &[]),
        ("a pod on a spot node", |s| with(s, none(), pod("web-1", "web", "sp-1")), &[]),
    ]);
}

#[test]
fn rb_74_a_budget_protects_the_pods_of_its_own_namespace_that_its_selector_matches() {
    fn selecting(selector: &str, namespace: &str) -> BudgetSnapshot {
        let selector = LabelSelector::parse(selector).unwrap();
        BudgetSnapshot { namespace: namespace.into(), selector, ..budget("web", 0) }
    }
    fn with(scene: &mut Scene, budget: BudgetSnapshot) {
        scene.pod(pod("web-1", "web", "od-1"));
        scene.budget(budget);
    }
    let refused = &[ReasonKind::BudgetAllowsNone];
    refuses_od_1_alone(&[
        ("its own namespace", |s| with(s, selecting("app=web", SHOP)), refused),
        ("another namespace", |s| with(s, selecting("app=web", "x")), &[]),
        ("an empty selector matches all", |s| with(s, selecting("", SHOP)), refused),
        ("an empty selector, another namespace", |s| with(s, selecting("", "x")), &[]),
        ("an expression", |s| with(s, selecting("app in (api, web)", SHOP)), refused),
        ("an expression that does not match", |s| with(s, selecting("app notin (api, web)", SHOP)), &[]),
        ("an absent label", |s| with(s, selecting("!tier", SHOP)), refused),
    ]);
}

#[test]
fn rb_28_a_budget_that_holds_back_pods_of_a_dead_application_is_named_with_its_pod() {
    let mut scene = Scene::b0();
    scene.pod(PodSnapshot { ready: false, ..pod("web-1", "web", "od-1") });
    scene.budget(BudgetSnapshot { current_healthy: 0, desired_healthy: 1, expected_pods: 2, ..budget("web", 0) });
    let reason = Reason::BudgetAllowsNone { pod: pod_ref("web-1"), budget: budget_ref("web"), never: false };
    assert_eq!(reason.to_string(), "budget_allows_none: budget shop/web protects pod shop/web-1");
    assert_eq!(scene.reasons("od-1"), [reason]);
}

#[test]
fn two_budgets_on_one_pod_refuse_it_even_if_both_have_room() {
    fn two(scene: &mut Scene, pod: PodSnapshot) {
        scene.pod(pod);
        scene.budget(budget("web", 2));
        scene.budget(BudgetSnapshot { name: "all".into(), selector: LabelSelector::default(), ..budget("web", 2) });
    }
    let pending =
        |s: &mut Scene| two(s, PodSnapshot { phase: PodPhase::Pending, ready: false, ..pod("w", "web", "od-1") });
    refuses_od_1_alone(&[
        ("a running pod", |s| two(s, pod("web-1", "web", "od-1")), &[ReasonKind::MultipleBudgets]),
        ("a pending pod", pending, &[]),
        ("only one matches", |s| two(s, pod("api-1", "api", "od-1")), &[]),
    ]);
    let mut scene = Scene::b0();
    two(&mut scene, pod("web-1", "web", "od-1"));
    let both = Reason::MultipleBudgets(pod_ref("web-1"), vec![budget_ref("all"), budget_ref("web")]);
    assert_eq!(both.to_string(), "multiple_budgets: pod shop/web-1 is protected by shop/all and shop/web");
    assert_eq!(scene.reasons("od-1"), [both]);
}

#[test]
fn the_migrators_own_budget_does_not_hold_its_node_and_everything_else_does() {
    fn own(scene: &mut Scene, pod: PodSnapshot) {
        scene.policy.own_pod = Some(uid("own"));
        scene.budget(budget("spot", 0));
        scene.pod(pod);
    }
    fn spot(name: &str) -> PodSnapshot {
        pod(name, "spot", "od-1")
    }
    refuses_od_1_alone(&[
        ("its own pod", |s| own(s, spot("own")), &[]),
        (
            "its own pod opted out",
            |s| own(s, PodSnapshot { opted_out: Some("k"), ..spot("own") }),
            &[ReasonKind::PodOptedOut],
        ),
        ("another pod of its budget", |s| own(s, spot("other")), &[ReasonKind::BudgetAllowsNone]),
    ]);
}
