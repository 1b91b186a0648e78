//! Which workloads lose all their ready pods at once.

use std::sync::Arc;

use spot_core::drain::plan::DrainRules;
use spot_core::exposure::{Exposed, exposed};
use spot_core::node::NodeSnapshot;
use spot_core::pod::{PodPhase, PodSnapshot};
use spot_core::view::{Change, View};

use crate::support::build::{budget, controller, daemon_pod, node, noon, pod, pod_ref, uid};

type Case = (&'static str, Vec<PodSnapshot>, &'static [&'static str]);

fn found(pods: &[PodSnapshot], allowed: Option<i32>, desired: i32) -> Vec<Exposed> {
    let mut view = View::default();
    view.apply(Change::DaemonSet(uid("agent")));
    for pod in pods {
        view.apply(Change::Pod(Arc::new(pod.clone())));
    }
    if let Some(allowed) = allowed {
        let budget = spot_core::pod::BudgetSnapshot { desired_healthy: desired, ..budget("web", allowed) };
        view.apply(Change::Budget(Arc::new(budget)));
    }
    let nodes: [NodeSnapshot; 2] = [node("od-1"), node("od-2")];
    exposed(&view, &DrainRules::default(), &nodes).collect()
}

#[test]
fn rb_41_a_workload_is_exposed_if_all_its_ready_pods_are_on_the_nodes_that_go() {
    let web = |name: &str, node: &str| pod(name, "web", node);
    let cases: Vec<Case> = vec![
        ("both on one node", vec![web("a", "od-1"), web("b", "od-1")], &["a", "b"]),
        ("both on nodes that go", vec![web("a", "od-1"), web("b", "od-2")], &["a", "b"]),
        ("a third elsewhere", vec![web("a", "od-1"), web("b", "od-2"), web("c", "sp-1")], &[]),
        (
            "a third elsewhere, but not ready",
            vec![web("a", "od-1"), web("b", "od-2"), PodSnapshot { ready: false, ..web("c", "sp-1") }],
            &["a", "b"],
        ),
        (
            "a third elsewhere, but going",
            vec![web("a", "od-1"), web("b", "od-2"), PodSnapshot { deletion: Some(noon()), ..web("c", "sp-1") }],
            &["a", "b"],
        ),
        (
            "a third here, but not ready",
            vec![web("a", "od-1"), web("b", "od-2"), PodSnapshot { ready: false, ..web("c", "od-1") }],
            &["a", "b"],
        ),
        ("one pod alone", vec![web("a", "od-1")], &[]),
        ("nobody's pods", ["a", "b"].map(|name| PodSnapshot { controller: None, ..web(name, "od-1") }).to_vec(), &[]),
        ("a DaemonSet's", vec![daemon_pod("a", "agent", "od-1"), daemon_pod("b", "agent", "od-2")], &[]),
        (
            "pods that have ended",
            ["a", "b"].map(|name| PodSnapshot { phase: PodPhase::Succeeded, ..web(name, "od-1") }).to_vec(),
            &[],
        ),
        (
            "two workloads",
            vec![
                web("a", "od-1"),
                PodSnapshot { controller: Some(controller("apps", "ReplicaSet", "x")), ..web("b", "od-1") },
            ],
            &[],
        ),
    ];
    for (what, pods, expected) in cases {
        let found = found(&pods, None, 0);
        let refs: Vec<_> = found.iter().flat_map(|exposed| exposed.pods.clone()).collect();
        assert_eq!(refs, expected.iter().map(|name| pod_ref(name)).collect::<Vec<_>>(), "{what}");
        assert_eq!(found.len(), usize::from(!expected.is_empty()), "{what}");
    }
}

#[test]
fn a_budget_that_keeps_a_pod_ready_leaves_no_workload_exposed() {
    let pods = [pod("a", "web", "od-1"), pod("b", "web", "od-1")];
    assert_eq!(found(&pods, Some(1), 1), []);
    assert_eq!(found(&pods, Some(2), 0).len(), 1, "it lets all of them go at once");
}

#[test]
fn the_words_name_a_few_pods_and_say_whether_there_are_more() {
    let words = |count| {
        let pods: Vec<_> = (1..=count).map(|number| pod(&format!("web-{number}"), "web", "od-1")).collect();
        found(&pods, None, 0).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let said = |count, more| {
        format!(
            "all {count} ready pods of a workload move at once, and no budget keeps any of them: shop/web-1, \
             shop/web-2, shop/web-3, shop/web-4, shop/web-5{more}"
        )
    };
    assert_eq!(words(5), [said(5, "")]);
    assert_eq!(words(7), [said(7, ", …")]);
}
