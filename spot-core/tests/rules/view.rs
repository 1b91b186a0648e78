//! The view against a naive one: plain lists, searched from end to end.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;
use spot_core::NodeSnapshot;
use spot_core::node::{Uid, key};
use spot_core::pod::{BudgetRef, BudgetSnapshot, PodPhase, PodSnapshot};
use spot_core::selector::LabelSelector;
use spot_core::view::{Change, Known, Tally, View};

use crate::support::build::{budget, controller, labelled, node, noon, pod, secs, uid};
use crate::support::{config, samples};

const CONTROLLERS: [&str; 3] = ["rs-0", "rs-1", "ds"];
const NAMESPACES: [&str; 2] = ["shop", "x"];

/// The naive view.
#[derive(Clone, Debug, Default)]
struct Lists {
    nodes: Vec<NodeSnapshot>,
    pods: Vec<PodSnapshot>,
    budgets: Vec<BudgetSnapshot>,
    daemon_sets: Vec<Uid>,
    paused: bool,
    /// All pods since their controller last had none.
    seen: Vec<PodSnapshot>,
}

fn controlled_by(pod: &PodSnapshot, uid: &Uid) -> bool {
    pod.controller.as_ref().is_some_and(|controller| controller.uid == *uid)
}

impl Lists {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Node(node) => {
                self.nodes.retain(|other| other.uid != node.uid);
                self.nodes.push(NodeSnapshot::clone(node));
            }
            Change::NodeGone(uid) => self.nodes.retain(|node| node.uid != *uid),
            Change::Pod(pod) => {
                self.pods.retain(|other| other.uid != pod.uid);
                self.pods.push(PodSnapshot::clone(pod));
                self.seen.push(PodSnapshot::clone(pod));
            }
            Change::PodGone(pod) => self.pods.retain(|other| other.uid != pod.uid),
            Change::Budget(budget) => {
                self.budgets.retain(|other| other.reference() != budget.reference());
                self.budgets.push(BudgetSnapshot::clone(budget));
            }
            Change::BudgetGone(gone) => self.budgets.retain(|budget| budget.reference() != *gone),
            Change::DaemonSet(uid) => self.daemon_sets.push(uid.clone()),
            Change::DaemonSetGone(uid) => self.daemon_sets.retain(|other| other != uid),
            // what these change is not this model's
            Change::Volume(_) => {}
            Change::Paused(paused) => self.paused = *paused,
        }
        for name in CONTROLLERS {
            if !self.pods.iter().any(|pod| controlled_by(pod, &uid(name))) {
                self.seen.retain(|pod| !controlled_by(pod, &uid(name)));
            }
        }
    }

    fn pods_where(&self, wanted: impl Fn(&PodSnapshot) -> bool) -> Vec<PodSnapshot> {
        sorted(self.pods.iter().filter(|pod| wanted(pod)).cloned())
    }
}

fn sorted(pods: impl Iterator<Item = PodSnapshot>) -> Vec<PodSnapshot> {
    let mut pods: Vec<_> = pods.collect();
    pods.sort_by(|a, b| a.uid.cmp(&b.uid));
    pods
}

fn plain<'p>(pods: impl Iterator<Item = &'p Arc<PodSnapshot>>) -> Vec<PodSnapshot> {
    sorted(pods.map(|pod| PodSnapshot::clone(pod)))
}

fn is_the_same(view: &View, lists: &Lists) -> Result<(), TestCaseError> {
    let nodes: BTreeMap<_, _> = lists.nodes.iter().map(|node| (node.uid.clone(), node)).collect();
    prop_assert_eq!(
        view.nodes().iter().map(|node| &**node).collect::<Vec<_>>(),
        nodes.into_values().collect::<Vec<_>>()
    );
    for id in 0..5 {
        let uid = uid(&format!("n-{id}"));
        let expected = lists.nodes.iter().find(|node| node.uid == uid);
        prop_assert_eq!(view.node(uid.as_str()).map(|node| &**node), expected);
    }
    for name in 0..3 {
        let name = format!("node-{name}");
        let expected = lists.pods_where(|pod| pod.node.as_deref() == Some(&*name));
        prop_assert_eq!(plain(view.pods_on(&name)), expected);
    }
    prop_assert_eq!(plain(view.unbound_pods()), lists.pods_where(|pod| pod.node.is_none()));
    prop_assert_eq!(plain(view.pods()), lists.pods_where(|_| true));

    for name in CONTROLLERS {
        let mine = lists.pods_where(|pod| controlled_by(pod, &uid(name)));
        let active = |pod: &&PodSnapshot| {
            pod.deletion.is_none() && pod.phase != PodPhase::Succeeded && pod.phase != PodPhase::Failed
        };
        let tally = view.tally(&uid(name));
        prop_assert_eq!(tally.is_some(), !mine.is_empty(), "a tally of {}", name);
        prop_assert_eq!(tally.map_or(0, Tally::active), mine.iter().filter(active).count());
        let unready = mine.iter().filter(active).filter(|pod| !pod.ready).cloned();
        prop_assert_eq!(tally.map(|tally| plain(tally.unready())).unwrap_or_default(), sorted(unready));
        let newest = lists.seen.iter().filter(|pod| controlled_by(pod, &uid(name))).map(|pod| pod.created_at).max();
        prop_assert_eq!(tally.map(Tally::newest), newest.filter(|_| tally.is_some()));
    }

    for pod in lists.pods.iter().chain(&probes()) {
        let matches = |budget: &&BudgetSnapshot| {
            budget.namespace == pod.namespace && budget.selector.matches(|key| pod.labels.get(key).map(String::as_str))
        };
        let mut expected: Vec<_> = lists.budgets.iter().filter(matches).collect();
        expected.sort_by(|a, b| a.name.cmp(&b.name));
        prop_assert_eq!(view.budgets_of(pod).map(|budget| &**budget).collect::<Vec<_>>(), expected);
    }
    for namespace in NAMESPACES {
        for name in ["a", "b", "c"] {
            let reference = BudgetRef { namespace: namespace.into(), name: name.into() };
            let expected = lists.budgets.iter().find(|budget| budget.reference() == reference);
            prop_assert_eq!(view.budget(&reference).map(|budget| &**budget), expected);
        }
    }
    for name in CONTROLLERS {
        prop_assert_eq!(view.daemon_set_exists(&uid(name)), lists.daemon_sets.contains(&uid(name)));
    }
    prop_assert_eq!(view.paused(), lists.paused);
    Ok(())
}

/// Pods that are in no view, to ask for budgets with.
fn probes() -> [PodSnapshot; 3] {
    let untold = PodSnapshot { labels: Arc::default(), ..pod("probe", "web", "node-0") };
    let elsewhere = PodSnapshot { namespace: "nowhere".into(), ..pod("probe", "web", "node-0") };
    [pod("probe", "web", "node-0"), untold, elsewhere]
}

fn nodes() -> impl Strategy<Value = NodeSnapshot> {
    (0..5, 0..3, any::<bool>()).prop_map(|(id, name, unschedulable)| {
        let plain = node(&format!("n-{id}"));
        NodeSnapshot { name: format!("node-{name}").into(), unschedulable, ..plain }
    })
}

/// A pod with its number; where it goes is settled by the number, and whether it is there yet by `is_bound`.
fn pods() -> impl Strategy<Value = (usize, bool, PodSnapshot)> {
    let phases = vec![PodPhase::Pending, PodPhase::Running, PodPhase::Running, PodPhase::Succeeded, PodPhase::Failed];
    let state = (select(phases), any::<bool>(), prop::bool::weighted(0.2), 0_u64..5);
    let owner = proptest::option::weighted(0.8, select(CONTROLLERS.to_vec()));
    let app = select(vec!["web", "api", ""]);
    (0_usize..6, any::<bool>(), state, owner, app).prop_map(|(number, is_bound, state, owner, app)| {
        let (phase, ready, going, age) = state;
        let plain = pod(&format!("p-{number}"), app, "");
        let created_at = plain.created_at + secs(age);
        let bound = PodSnapshot {
            namespace: NAMESPACES[number % 2].into(),
            node: Some(format!("node-{}", number % 3).into()),
            controller: owner.map(|name| controller("apps", "ReplicaSet", name)),
            deletion: going.then(noon),
            created_at,
            phase,
            ready,
            ..plain
        };
        (number, is_bound, bound)
    })
}

fn budgets() -> impl Strategy<Value = BudgetSnapshot> {
    let selectors =
        ["app=web", "app=api", "app in (api,web)", "", "!tier", "app,app!=web", "app=web,app in (web,x)", "tier=x"];
    let namespace = select(NAMESPACES.to_vec());
    let name = select(vec!["a", "b", "c"]);
    (namespace, name, select(selectors.to_vec()), 0..3).prop_map(|(namespace, name, selector, allowed)| {
        let selector = LabelSelector::parse(selector).unwrap();
        BudgetSnapshot { namespace: namespace.into(), name: name.into(), selector, ..budget("web", allowed) }
    })
}

/// Changes as a watch can send them: a pod that is bound stays bound.
fn changes() -> impl Strategy<Value = Vec<Change>> {
    #[derive(Clone, Debug)]
    enum Draft {
        Pod(usize, bool, PodSnapshot),
        PodGone(usize, PodSnapshot),
        Other(Change),
    }
    let draft = prop_oneof![
        2 => nodes().prop_map(|node| Draft::Other(Change::Node(Arc::new(node)))),
        1 => (0..5).prop_map(|id| Draft::Other(Change::NodeGone(uid(&format!("n-{id}"))))),
        8 => pods().prop_map(|(number, is_bound, pod)| Draft::Pod(number, is_bound, pod)),
        4 => pods().prop_map(|(number, _, pod)| Draft::PodGone(number, pod)),
        4 => budgets().prop_map(|budget| Draft::Other(Change::Budget(Arc::new(budget)))),
        2 => budgets().prop_map(|budget| Draft::Other(Change::BudgetGone(budget.reference()))),
        1 => select(CONTROLLERS.to_vec()).prop_map(|name| Draft::Other(Change::DaemonSet(uid(name)))),
        1 => select(CONTROLLERS.to_vec()).prop_map(|name| Draft::Other(Change::DaemonSetGone(uid(name)))),
        1 => any::<bool>().prop_map(|paused| Draft::Other(Change::Paused(paused))),
    ];
    prop::collection::vec(draft, 0..40).prop_map(|drafts| {
        let mut bound = [false; 6];
        let placed = |pod: PodSnapshot, is_bound: bool| PodSnapshot { node: pod.node.filter(|_| is_bound), ..pod };
        let settle = |draft| match draft {
            Draft::Pod(number, is_bound, pod) => {
                bound[number] |= is_bound;
                Change::Pod(Arc::new(placed(pod, bound[number])))
            }
            Draft::PodGone(number, pod) => {
                let was_bound = std::mem::take(&mut bound[number]);
                Change::PodGone(Arc::new(placed(pod, was_bound)))
            }
            Draft::Other(change) => change,
        };
        drafts.into_iter().map(settle).collect()
    })
}

fn seen(changes: &[Change]) -> View {
    let mut view = View::default();
    for change in changes {
        view.apply(change.clone());
    }
    view
}

#[test]
fn the_generated_changes_reach_views_with_pods_budgets_and_tallies() {
    let (mut two_budgets, mut unready, mut unbound, mut forgotten, mut several) = (0, 0, 0, 0, 0);
    for changes in samples(changes(), 1_000) {
        let view = seen(&changes);
        two_budgets += usize::from(view.pods().any(|pod| view.budgets_of(pod).count() >= 2));
        unbound += usize::from(view.unbound_pods().next().is_some());
        several += usize::from((0..3).any(|name| view.pods_on(&format!("node-{name}")).count() >= 2));
        for name in CONTROLLERS {
            let was_there =
                changes.iter().any(|change| matches!(change, Change::Pod(pod) if controlled_by(pod, &uid(name))));
            match view.tally(&uid(name)) {
                Some(tally) => unready += usize::from(tally.unready().count() >= 2),
                None => forgotten += usize::from(was_there),
            }
        }
    }
    for (what, often) in [
        ("two budgets on a pod", two_budgets),
        ("two unready pods of a controller", unready),
        ("a pod without a node", unbound),
        ("a controller whose pods are gone", forgotten),
        ("two pods on a node", several),
    ] {
        assert!(often >= 50, "{what}: {often}");
    }
}

#[test]
fn a_view_that_was_handed_out_stays_as_it_was() {
    let mut view = View::default();
    view.apply(Change::Node(Arc::new(node("n-0"))));
    view.apply(Change::Pod(Arc::new(pod("p-0", "web", "n-0"))));
    let handed_out = view.clone();
    view.apply(Change::NodeGone(uid("n-0")));
    view.apply(Change::PodGone(Arc::new(pod("p-0", "web", "n-0"))));
    assert_eq!((handed_out.nodes().len(), handed_out.pods_on("n-0").count()), (1, 1));
    assert_eq!(handed_out.tally(&uid("web")).map(Tally::active), Some(1));
    assert_eq!((view.nodes().len(), view.pods_on("n-0").count()), (0, 0));
    assert!(handed_out.revision() < view.revision());
}

#[test]
fn a_pod_that_gets_its_node_moves_there() {
    let mut view = View::default();
    view.apply(Change::Pod(Arc::new(PodSnapshot { node: None, ready: false, ..pod("p-0", "web", "") })));
    assert_eq!((view.unbound_pods().count(), view.tally(&uid("web")).unwrap().unready().count()), (1, 1));
    view.apply(Change::Pod(Arc::new(pod("p-0", "web", "n-0"))));
    assert_eq!((view.unbound_pods().count(), view.pods_on("n-0").count()), (0, 1));
    let tally = view.tally(&uid("web")).unwrap();
    assert_eq!((tally.active(), tally.unready().count()), (1, 0));
}

#[test]
fn rb_08_pods_and_nodes_are_told_apart_by_uid_under_one_name() {
    let mut view = View::default();
    let reused = NodeSnapshot { uid: uid("n2"), ..node("od-1") };
    view.apply(Change::Node(Arc::new(node("od-1"))));
    view.apply(Change::Node(Arc::new(reused)));
    view.apply(Change::NodeGone(uid("od-1")));
    assert_eq!(view.nodes().iter().map(|node| &node.uid).collect::<Vec<_>>(), [&uid("n2")]);
    assert!(view.node(uid("od-1").as_str()).is_none());

    let second = PodSnapshot { uid: uid("u2"), node: Some("sp-1".into()), ..pod("db-0", "db", "") };
    view.apply(Change::Pod(Arc::new(pod("db-0", "db", "od-1"))));
    view.apply(Change::Pod(Arc::new(second)));
    view.apply(Change::PodGone(Arc::new(pod("db-0", "db", "od-1"))));
    assert_eq!(view.pods().map(|pod| &pod.uid).collect::<Vec<_>>(), [&uid("u2")]);
}

#[test]
fn the_newest_pod_of_a_controller_is_remembered_while_it_has_others() {
    let mut view = View::default();
    let newer = PodSnapshot { created_at: noon(), ..pod("p-1", "web", "n-0") };
    view.apply(Change::Pod(Arc::new(pod("p-0", "web", "n-0"))));
    view.apply(Change::Pod(Arc::new(newer.clone())));
    view.apply(Change::PodGone(Arc::new(newer)));
    assert_eq!(view.tally(&uid("web")).map(Tally::newest), Some(noon()));
    assert!(view.tally(&uid("web")).is_some_and(|tally| tally.newest() > Timestamp::UNIX_EPOCH));
    view.apply(Change::PodGone(Arc::new(pod("p-0", "web", "n-0"))));
    assert!(view.tally(&uid("web")).is_none(), "a controller that is gone costs nothing");
}

#[test]
fn a_view_says_when_the_machines_behind_its_nodes_may_be_others() {
    let mut view = View::default();
    let plain = node("n-0");
    let mut moved = |change: Change| {
        let before = view.machines();
        view.apply(change);
        view.machines() != before
    };
    let with = |node: NodeSnapshot| Change::Node(Arc::new(node));
    assert!(moved(with(plain.clone())), "a node came");
    assert!(!moved(with(plain.clone())), "nothing changed");
    assert!(!moved(with(NodeSnapshot { unschedulable: true, resource_version: "2".to_owned(), ..plain.clone() })));
    assert!(!moved(with(labelled(plain.clone(), key::SELECTED, "true"))), "our mark");
    assert!(!moved(with(plain.clone())), "our mark was taken off");
    assert!(!moved(Change::Pod(Arc::new(pod("p-0", "web", "n-0")))), "a pod");
    assert!(moved(with(labelled(plain.clone(), "node-lifecycle", "spot"))), "a label");
    assert!(moved(with(plain.clone())), "the label was taken off");
    assert!(moved(with(NodeSnapshot { provider_id: "aws:///z/i-2".to_owned(), ..plain.clone() })), "a provider ID");
    assert!(moved(with(NodeSnapshot { finalizers: vec!["karpenter.sh/termination".to_owned()], ..plain })));
    assert!(moved(Change::NodeGone(uid("n-0"))), "a node went");
    assert!(!moved(Change::NodeGone(uid("n-0"))), "it was gone already");
}

#[test]
fn what_a_view_was_not_told_of_it_does_not_know() {
    assert_eq!(
        View::default().known(),
        Known { pods: true, budgets: true, daemon_sets: true, claims: true, volumes: true }
    );
    let known = Known { pods: true, budgets: false, daemon_sets: false, claims: false, volumes: true };
    assert_eq!(View::knowing(known).known(), known);
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn a_view_is_what_plain_lists_are_after_the_same_changes(changes in changes()) {
        let (mut view, mut lists) = (View::default(), Lists::default());
        for (at, change) in (1..).zip(&changes) {
            view.apply(change.clone());
            lists.apply(change);
            prop_assert_eq!(view.revision().0, at);
            is_the_same(&view, &lists)?;
        }
    }

    #[test]
    fn applying_a_change_twice_is_applying_it_once(changes in changes()) {
        let (mut view, mut lists) = (View::default(), Lists::default());
        for change in &changes {
            view.apply(change.clone());
            view.apply(change.clone());
            lists.apply(change);
        }
        is_the_same(&view, &lists)?;
    }

    #[test]
    fn the_order_in_which_objects_are_first_seen_does_not_matter(
        (one, other) in prop::collection::vec((0_usize..12, pods(), budgets(), nodes()), 0..12).prop_flat_map(|drafts| {
            let mut first = BTreeMap::new();
            for (at, (_, is_bound, pod), budget, node) in drafts {
                let change = match at % 3 {
                    0 => Change::Pod(Arc::new(PodSnapshot { node: pod.node.clone().filter(|_| is_bound), ..pod })),
                    1 => Change::Budget(Arc::new(budget)),
                    _ => Change::Node(Arc::new(node)),
                };
                let object = match &change {
                    Change::Pod(pod) => pod.uid.to_string(),
                    Change::Budget(budget) => budget.reference().to_string(),
                    Change::Node(node) => node.uid.to_string(),
                    other => panic!("{other:?}"),
                };
                first.entry(object).or_insert(change);
            }
            let list: Vec<_> = first.into_values().collect();
            (Just(list.clone()), Just(list).prop_shuffle())
        }),
    ) {
        let mut lists = Lists::default();
        for change in &one {
            lists.apply(change);
        }
        is_the_same(&seen(&one), &lists)?;
        is_the_same(&seen(&other), &lists)?;
    }
}
