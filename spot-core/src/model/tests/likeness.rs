//! Worlds that are like a cluster that was seen.

mod any;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::Schedule;
use crate::capacity::Class;
use crate::claim::{BackOff, Claim, ClaimStep, InstanceId, Machine, Owner};
use crate::cloud::{CloudFact, CloudFacts};
use crate::migrator::{Migrator, Settings};
use crate::model::{Fact, Invariants, Likeness, Limits, Scenario, Seen, SplitMix64, block_on};
use crate::node::{ClaimAnnotation, Effect, NodeSnapshot, Readiness, Taint, Uid, key};
use crate::placement::{Demand, Needs, Term, Terms, Toleration};
use crate::pod::{BudgetSnapshot, Controller, PodPhase, PodSnapshot, UnhealthyPods};
use crate::ports::Observer;
use crate::progress::{Outcome, OutcomeKind, Progress};
use crate::reason::{Reason, ReasonKind};
use crate::selector::{LabelSelector, Requirement};
use crate::stop::Stop;
use crate::view::{Change, View};
use crate::volume::{PodClaim, Reach, VolumeChange, VolumeClaimRef, VolumeClaimSnapshot, VolumeSnapshot};

const START: Timestamp = Timestamp::constant(1_767_571_200, 0);
const ZONE: &str = "topology.kubernetes.io/zone";
const TYPE: &str = "node.kubernetes.io/instance-type";

/// A cluster to be seen.
#[derive(Clone, Debug, Default)]
struct Cluster {
    view: View,
    facts: BTreeMap<Uid, CloudFact>,
}

fn node(name: &str, class: Class) -> NodeSnapshot {
    let labels = [("kubernetes.io/hostname", name), (ZONE, "a"), (TYPE, "m5.large")];
    let lifecycle = ("node.kubernetes.io/lifecycle", class.as_str());
    NodeSnapshot {
        name: name.into(),
        uid: Uid::new(format!("uid-{name}")),
        resource_version: "77".to_owned(),
        created_at: START.saturating_sub(Duration::from_hours(20)).unwrap(),
        provider_id: format!("aws:///a/i-{name}"),
        labels: labels.into_iter().chain([lifecycle]).map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        annotations: BTreeMap::new().into(),
        taints: Vec::new(),
        unschedulable: false,
        readiness: Readiness::Ready,
        ready_since: None,
        boot_id: "boot".to_owned(),
        internal_addresses: Vec::new(),
        deleting_since: None,
        finalizers: Vec::new(),
        claim: ClaimAnnotation::Absent,
        back_off: None,
    }
}

fn controller(kind: &str, name: &str) -> Controller {
    Controller { group: "apps".into(), kind: kind.into(), uid: Uid::new(format!("uid-of-{name}")) }
}

fn pod(name: &str, of: Option<Controller>, on: &str) -> PodSnapshot {
    let app = name.split('-').next().unwrap_or_default().to_owned();
    PodSnapshot {
        namespace: "default".into(),
        name: name.into(),
        uid: Uid::new(format!("uid-{name}")),
        node: (!on.is_empty()).then(|| on.into()),
        created_at: START.saturating_sub(Duration::from_hours(10)).unwrap(),
        controller: of,
        labels: Arc::new([("app".to_owned(), app)].into()),
        phase: PodPhase::Running,
        ready: true,
        deletion: None,
        mirror: false,
        opted_out: None,
        empty_dir: false,
        grace: Duration::from_secs(30),
        needs: None,
        claims: None,
    }
}

fn budget(app: &str, expected: i32, desired: i32) -> BudgetSnapshot {
    BudgetSnapshot {
        namespace: "default".into(),
        name: app.into(),
        resource_version: "5".to_owned(),
        selector: LabelSelector::new([Requirement::equals("app", app)]),
        unhealthy_pods: UnhealthyPods::default(),
        current: true,
        disruptions_allowed: (expected - desired).max(0),
        current_healthy: expected,
        desired_healthy: desired,
        expected_pods: expected,
        disrupted_pods: Vec::new(),
    }
}

fn in_zone(zone: &str) -> Terms {
    Terms::new([Term::new([Demand::Label(Requirement::equals(ZONE, zone))])])
}

impl Cluster {
    /// With this node, whose machine is an instance.
    fn node(mut self, node: NodeSnapshot, class: Class) -> Self {
        let instance = Machine::Instance(InstanceId::new(format!("i-{}", node.name)));
        let fact = CloudFact { class, machine: Some(instance), group: None, refusals: Vec::new() };
        self.facts.insert(node.uid.clone(), fact);
        self.view.apply(Change::Node(Arc::new(node)));
        self
    }

    /// With nodes of these names, with nothing particular about them.
    fn nodes(self, names: &[&str], class: Class) -> Self {
        names.iter().fold(self, |cluster, name| cluster.node(node(name, class), class))
    }

    fn pod(mut self, pod: PodSnapshot) -> Self {
        self.view.apply(Change::Pod(Arc::new(pod)));
        self
    }

    /// With pods of a Deployment, one on each of these nodes.
    fn deployment(self, name: &str, nodes: &[&str]) -> Self {
        let named = |(number, node): (usize, &&str)| {
            pod(&format!("{name}-abc-{number}"), Some(controller("ReplicaSet", name)), node)
        };
        nodes.iter().enumerate().map(named).fold(self, Self::pod)
    }

    fn budget(mut self, budget: BudgetSnapshot) -> Self {
        self.view.apply(Change::Budget(Arc::new(budget)));
        self
    }

    /// A pod of a StatefulSet, with a volume that can be used there.
    fn with_volume(mut self, pod: PodSnapshot, reach: Reach) -> Self {
        let name: Arc<str> = format!("pv-{}", pod.name).into();
        let claim = PodClaim { name: format!("data-{}", pod.name).into(), ephemeral: false };
        let of = VolumeClaimRef { namespace: Arc::clone(&pod.namespace), name: Arc::clone(&claim.name) };
        let bound = VolumeClaimSnapshot { claim: of, volume: Some(Arc::clone(&name)) };
        self.view.apply(Change::Volume(VolumeChange::Volume(Arc::new(VolumeSnapshot { name, reach }))));
        self.view.apply(Change::Volume(VolumeChange::Claim(Arc::new(bound))));
        self.pod(PodSnapshot { claims: Some([claim].into()), ..pod })
    }

    fn like(&self, scenario: Scenario, seed: u64) -> Likeness {
        let cloud: CloudFacts = self.facts.clone().into_iter().collect();
        let load_balancer_drain = Duration::from_mins(1);
        scenario.like(&Seen { view: &self.view, cloud: &cloud, seed, start: START, load_balancer_drain })
    }

    /// One run on a world like this.
    fn run(&self, scenario: Scenario) -> Ran {
        self.run_as(scenario, 0)
    }

    fn run_as(&self, scenario: Scenario, seed: u64) -> Ran {
        let likeness = self.like(scenario, seed);
        let model = &likeness.model;
        let invariants = Invariants::watch(model, Limits::default());
        let heard = Arc::new(Heard::default());
        let ports = model.ports(Arc::clone(&heard) as Arc<dyn Observer>);
        let migrator = Migrator::new(ports, Settings::new(Schedule::parse("@hourly", &TimeZone::UTC).unwrap()));
        let stop = Stop::default();
        // leftovers are finished in runs of their own, one after another where pods do not settle
        let owned = |world: &mut crate::model::World| {
            world
                .view()
                .nodes()
                .iter()
                .any(|node| matches!(&node.claim, ClaimAnnotation::Valid(claim) if claim.owner == Owner::Migrator))
        };
        let mut runs = 0;
        let report = loop {
            let report = block_on(model, migrator.once(&stop)).expect("it comes to an end").expect("it is a run");
            runs += 1;
            if runs == 10 || !(report.outcome == Outcome::Recovered || model.with(owned)) {
                break report;
            }
        };
        // what others wrote on a node is theirs to take off
        let foreign = self.view.nodes().iter().filter(|node| match &node.claim {
            ClaimAnnotation::Absent => false,
            ClaimAnnotation::Valid(claim) => claim.owner != Owner::Migrator,
            ClaimAnnotation::Unreadable(_) => true,
        });
        let foreign: Vec<_> = foreign.map(|node| format!("Released: {} still", node.name)).collect();
        let broken = invariants.at_the_end(model).into_iter().map(|broken| broken.to_string());
        let broken = broken.filter(|broken| !foreign.iter().any(|foreign| broken.contains(foreign))).collect();
        let heard = std::mem::take(&mut *heard.0.lock().unwrap());
        let retired = report.retired.iter().map(|node| node.name.to_string()).collect();
        Ran { likeness, outcome: report.outcome.kind(), retired, broken, heard }
    }
}

/// What came of a run.
struct Ran {
    likeness: Likeness,
    outcome: OutcomeKind,
    retired: BTreeSet<String>,
    broken: Vec<String>,
    heard: Vec<String>,
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Observer for Heard {
    fn observe(&self, at: Timestamp, event: &Progress) {
        self.0.lock().unwrap().push(format!("{at} {event:?}"));
    }
}

impl Ran {
    /// The labels of the nodes of an application's pods.
    fn places(&self, app: &str, label: &str) -> Vec<Option<String>> {
        self.likeness.model.with(|world| {
            let pods = world.view().pods().filter(|pod| pod.labels.get("app").is_some_and(|value| value == app));
            let on = |node: &str| world.node(node).and_then(|node| node.labels.get(label).cloned());
            pods.map(|pod| pod.node.as_deref().and_then(on)).collect()
        })
    }

    fn facts(&self) -> Vec<Fact> {
        self.likeness.model.with(|world| world.facts().iter().map(|record| record.fact.clone()).collect())
    }

    fn heard(&self, kind: ReasonKind) -> bool {
        let word = format!("{kind:?}");
        self.heard.iter().any(|event| event.contains("Refused") && event.contains(&word))
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn three_of_web() -> Cluster {
    Cluster::default()
        .nodes(&["a", "b", "c"], Class::OnDemand)
        .nodes(&["s"], Class::Spot)
        .deployment("web", &["a", "b", "c", "a", "b", "c"])
}

#[test]
fn all_pods_of_all_on_demand_nodes_run_on_spot_in_the_end() {
    let ran = three_of_web().run(Scenario::SpotAvailable);
    assert_eq!((ran.outcome, &ran.retired), (OutcomeKind::AllSpot, &names(&["a", "b", "c"])));
    assert_eq!(ran.broken, Vec::<String>::new());
    let lifecycle = ran.places("web", "node.kubernetes.io/lifecycle");
    assert_eq!(lifecycle, vec![Some("spot".to_owned()); 6]);
}

#[test]
fn nodes_have_room_for_as_many_pods_as_the_fullest_of_their_type() {
    let ran = three_of_web().run(Scenario::SpotAvailable);
    let spot = ran.likeness.model.with(|world| {
        let pods = |name: &str| world.view().pods_on(name).count();
        world.view().nodes().iter().map(|node| pods(&node.name)).collect::<Vec<_>>()
    });
    assert_eq!(spot, [2, 2, 2], "two of a type were on one node at most");
}

#[test]
fn when_spot_runs_out_the_on_demand_node_that_comes_ends_the_run() {
    let names = ["d", "e", "f"];
    let ran = three_of_web()
        .nodes(&names, Class::OnDemand)
        .deployment("api", &["d", "e", "f", "d", "e", "f"])
        .run(Scenario::SpotExhausted);
    assert_eq!(ran.outcome, OutcomeKind::SpotExhausted);
    assert_eq!(
        ran.retired.len(),
        4,
        "one fills the spot node that is there, two those that come, one finds out: {:?}",
        ran.retired
    );
    assert!(ran.likeness.assumptions.iter().any(|words| words.contains("2 of them at most")));
}

#[test]
fn the_budget_of_the_scenario_holds_the_largest_application() {
    let cluster = three_of_web().deployment("api", &["c"]);
    let held = cluster.run(Scenario::BlockedByBudget);
    assert_eq!((held.outcome, held.retired.len()), (OutcomeKind::NothingEligible, 0));
    assert!(held.heard(ReasonKind::BudgetAllowsNone), "{:?}", held.heard);
    let tightened = cluster.budget(budget("web", 6, 3)).run(Scenario::BlockedByBudget);
    assert!(tightened.heard(ReasonKind::BudgetAllowsNone) && !tightened.heard(ReasonKind::MultipleBudgets));
}

#[test]
fn a_budget_that_was_seen_is_kept_throughout() {
    let ran = three_of_web().budget(budget("web", 6, 5)).run(Scenario::SpotAvailable);
    assert_eq!((ran.outcome, ran.retired.len()), (OutcomeKind::AllSpot, 3));
    assert_eq!(ran.broken, Vec::<String>::new());
    let refused = ran.heard.iter().filter(|event| event.contains("Evicted") && event.contains("Blocked")).count();
    assert!(refused > 0, "two pods of a node can't go at once");
    let (budget, unmet) = ran.likeness.model.with(|world| {
        let budgets: Vec<_> = world.view().budgets().cloned().collect();
        (budgets[0].clone(), world.unmet_budgets())
    });
    assert!(unmet.is_empty() && budget.current_healthy == 6 && budget.desired_healthy == 5, "{budget:?}");
    let held = three_of_web().budget(super::likeness::budget("web", 6, 6)).run(Scenario::SpotAvailable);
    assert_eq!((held.outcome, held.retired.len()), (OutcomeKind::NothingEligible, 0));
}

#[test]
fn pods_go_only_where_their_selector_and_their_tolerations_let_them() {
    let pool = |value: &str| [Requirement::equals("pool", value)];
    let toleration = Toleration { key: Some("batch".to_owned()), value: None, effect: None };
    let mut machine = node("batch", Class::Spot);
    machine.labels.insert("pool".to_owned(), "batch".to_owned());
    machine.taints.push(Taint::new("batch", "", Effect::NoSchedule));
    let mut old = node("old", Class::OnDemand);
    old.labels.insert("pool".to_owned(), "batch".to_owned());
    let needs = Needs::new(pool("batch"), None, [toleration]).map(Arc::new);
    let job = |number: u32| PodSnapshot {
        needs: needs.clone(),
        ..pod(&format!("job-x-{number}"), Some(controller("Job", "job")), "old")
    };
    let cluster = Cluster::default()
        .node(machine, Class::Spot)
        .nodes(&["s"], Class::Spot)
        .node(old, Class::OnDemand)
        .deployment("web", &["old", "old"]);
    let ran = (0..3).map(job).fold(cluster, Cluster::pod).run(Scenario::SpotAvailable);
    assert_eq!((ran.outcome, ran.broken.len()), (OutcomeKind::AllSpot, 0));
    assert_eq!(ran.places("job", "pool"), vec![Some("batch".to_owned()); 3]);
    assert_eq!(ran.places("web", "pool"), [None, None]);
}

#[test]
fn a_stateful_pod_keeps_its_name_and_follows_its_volume_into_its_zone() {
    let spot_in = |zone: &str| {
        let mut node = node(&format!("s-{zone}"), Class::Spot);
        node.labels.insert(ZONE.to_owned(), zone.to_owned());
        node
    };
    let mut cluster = Cluster::default().nodes(&["od"], Class::OnDemand);
    for zone in ["a", "b"] {
        cluster = cluster.node(spot_in(zone), Class::Spot);
    }
    let mut away = node("od-b", Class::OnDemand);
    away.labels.insert(ZONE.to_owned(), "b".to_owned());
    let db = |number: u32, on: &str| pod(&format!("db-{number}"), Some(controller("StatefulSet", "db")), on);
    let ran = cluster
        .node(away, Class::OnDemand)
        .with_volume(db(0, "od"), Reach::Nodes(Arc::new(in_zone("a"))))
        .with_volume(db(3, "od-b"), Reach::Nodes(Arc::new(in_zone("b"))))
        .run(Scenario::SpotAvailable);
    assert_eq!((ran.outcome, ran.broken.len()), (OutcomeKind::AllSpot, 0), "{:?}", ran.heard);
    let places = ran.likeness.model.with(|world| {
        ["db-0", "db-3"].map(|name| {
            let pod = world.pod_named("default", name).expect("it came back");
            assert!(pod.ready);
            world.node(pod.node.as_deref().unwrap()).unwrap().labels.get(ZONE).cloned().unwrap()
        })
    });
    assert_eq!(places, ["a", "b"]);
}

#[test]
fn without_a_spot_node_new_machines_are_like_those_that_go_but_spot() {
    let eks = |name: &str| {
        let mut node = node(name, Class::Unknown);
        node.labels.insert("eks.amazonaws.com/capacityType".to_owned(), "ON_DEMAND".to_owned());
        node.labels.remove("node.kubernetes.io/lifecycle");
        node
    };
    let ran = Cluster::default()
        .node(eks("a"), Class::OnDemand)
        .node(eks("b"), Class::OnDemand)
        .deployment("web", &["a", "b"])
        .run(Scenario::SpotAvailable);
    assert_eq!(ran.outcome, OutcomeKind::AllSpot, "{:?}", ran.heard);
    assert_eq!(ran.places("web", "eks.amazonaws.com/capacityType"), vec![Some("SPOT".to_owned()); 2]);
    assert_eq!(ran.places("web", TYPE), vec![Some("m5.large".to_owned()); 2]);
    assert!(ran.likeness.assumptions.iter().any(|words| words.contains("no spot node to be like")));
}

#[test]
fn machines_that_go_with_their_nodes_go_with_them() {
    for finalizer in [None, Some(key::KARPENTER_FINALIZER)] {
        let mut cluster = three_of_web();
        for fact in cluster.facts.values_mut() {
            fact.machine = Some(Machine::WithNode);
        }
        for old in cluster.view.clone().nodes() {
            let finalizers = finalizer.map(str::to_owned).into_iter().collect();
            cluster.view.apply(Change::Node(Arc::new(NodeSnapshot { finalizers, ..NodeSnapshot::clone(old) })));
        }
        let ran = cluster.run(Scenario::SpotAvailable);
        assert_eq!((ran.outcome, ran.retired.len()), (OutcomeKind::AllSpot, 3), "{finalizer:?}");
        assert_eq!(ran.broken, Vec::<String>::new(), "{finalizer:?}");
        let model = &ran.likeness.model;
        model.run_until(model.with(|world| world.now()) + Duration::from_mins(1)).unwrap();
        let gone = ran.facts().iter().filter(|fact| matches!(fact, Fact::MachineGone(_))).count();
        assert_eq!(gone, 3, "{finalizer:?}");
    }
}

#[test]
fn what_keeps_a_node_in_the_cluster_keeps_it_in_the_model() {
    let mut kept = node("a", Class::OnDemand);
    kept.annotations.insert(key::DO_NOT_MIGRATE.to_owned(), "true".to_owned());
    let mut cluster = three_of_web().node(kept, Class::OnDemand).pod(pod("alone", None, "b"));
    let refusal = Reason::Cloud(ReasonKind::NoMachineOwner, "nobody".to_owned());
    let fact = CloudFact { class: Class::OnDemand, machine: None, group: None, refusals: vec![refusal] };
    cluster.facts.insert(Uid::new("uid-c"), fact);
    let ran = cluster.run(Scenario::SpotAvailable);
    assert_eq!((ran.outcome, ran.retired.len()), (OutcomeKind::NothingEligible, 0));
    for kind in [ReasonKind::OptedOut, ReasonKind::UnmanagedPod, ReasonKind::NoMachineOwner] {
        assert!(ran.heard(kind), "{kind}: {:?}", ran.heard);
    }
}

#[test]
fn pods_that_never_get_ready_have_successors_that_do_not_either() {
    let broken = |number: u32| PodSnapshot {
        ready: false,
        ..pod(&format!("bad-x-{number}"), Some(controller("ReplicaSet", "bad")), "a")
    };
    let young = PodSnapshot { created_at: START, ..pod("new-x-0", Some(controller("ReplicaSet", "new")), "s") };
    let ran = three_of_web().pod(young).pod(broken(0)).run(Scenario::SpotAvailable);
    assert_eq!(ran.outcome, OutcomeKind::NotSettled);
    assert!(
        ran.likeness.assumptions.iter().any(|words| words.contains("1 are there")),
        "{:?}",
        ran.likeness.assumptions
    );
}

#[test]
fn what_an_earlier_process_left_half_done_is_finished() {
    let mut half = node("a", Class::OnDemand);
    half.labels.insert(key::SELECTED.to_owned(), "true".to_owned());
    half.unschedulable = true;
    half.claim = ClaimAnnotation::Valid(Box::new(claim(&half, Owner::Migrator)));
    let ran = three_of_web().node(half, Class::OnDemand).run(Scenario::SpotAvailable);
    assert_eq!((ran.outcome, &ran.broken), (OutcomeKind::AllSpot, &Vec::new()));
    assert!(ran.heard.iter().any(|event| event.contains("Recovered")), "{:?}", ran.heard);
}

fn claim(node: &NodeSnapshot, owner: Owner) -> Claim {
    Claim {
        owner,
        node: node.uid.clone(),
        machine: Machine::Instance(InstanceId::new(format!("i-{}", node.name))),
        boot_id: node.boot_id.clone(),
        step: ClaimStep::Draining,
        cordoned: true,
        taint: None,
        since: node.created_at,
        own_pod_left: false,
        restored: false,
        until: None,
        fleet_before: None,
    }
}

#[test]
fn the_same_cluster_and_seed_give_the_same_run_and_another_seed_another() {
    let heard = |seed| {
        let ran = three_of_web().budget(budget("web", 6, 5)).run_as(Scenario::SpotExhausted, seed);
        (ran.heard, ran.likeness.assumptions)
    };
    assert_eq!(heard(7), heard(7));
    assert_ne!(heard(7), heard(8));
}
