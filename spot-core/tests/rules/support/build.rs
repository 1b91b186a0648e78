//! One node, one pod, one budget, as ordinary as they come; a test changes what it is about.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use spot_core::NodeSnapshot;
use spot_core::capacity::Class;
use spot_core::claim::{Claim, ClaimStep, InstanceId, Machine, Owner};
use spot_core::cloud::{CloudFact, Group, GroupKind};
use spot_core::labels::Labels;
use spot_core::node::{ClaimAnnotation, Readiness, Uid};
use spot_core::pod::{BudgetRef, BudgetSnapshot, Controller, PodPhase, PodRef, PodSnapshot, UnhealthyPods};
use spot_core::selector::LabelSelector;

/// The namespace of ordinary pods and budgets.
pub(crate) const SHOP: &str = "shop";

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The moment at which most tests happen: a Monday.
pub(crate) fn noon() -> Timestamp {
    at("2026-03-02T12:00:00Z")
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn uid(name: &str) -> Uid {
    Uid::new(format!("uid-{name}"))
}

/// A ready node, a day old.
pub(crate) fn node(name: &str) -> NodeSnapshot {
    NodeSnapshot {
        name: name.into(),
        uid: uid(name),
        resource_version: "1".to_owned(),
        created_at: noon() - secs(86_400),
        provider_id: format!("aws:///eu-west-1a/i-{name}"),
        labels: Labels::default(),
        annotations: Labels::default(),
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

/// A claim of the migrator's on the node of this name.
pub(crate) fn claim(name: &str, step: ClaimStep) -> Claim {
    Claim {
        owner: Owner::Migrator,
        node: uid(name),
        machine: Machine::Instance(InstanceId::new(format!("i-{name}"))),
        boot_id: "boot".to_owned(),
        step,
        cordoned: true,
        taint: None,
        since: noon(),
        own_pod_left: false,
        restored: false,
        until: None,
        fleet_before: None,
    }
}

pub(crate) fn annotated(claim: Claim) -> ClaimAnnotation {
    ClaimAnnotation::Valid(Box::new(claim))
}

/// A running, ready pod of a ReplicaSet that is named like its application.
pub(crate) fn pod(name: &str, app: &str, node: &str) -> PodSnapshot {
    PodSnapshot {
        namespace: SHOP.into(),
        name: name.into(),
        uid: uid(name),
        node: Some(node.into()),
        created_at: noon() - secs(3_600),
        controller: Some(controller("apps", "ReplicaSet", app)),
        labels: Arc::new(BTreeMap::from([("app".to_owned(), app.to_owned())])),
        phase: PodPhase::Running,
        ready: true,
        deletion: None,
        mirror: false,
        opted_out: None,
        empty_dir: false,
        grace: secs(30),
        needs: None,
        claims: None,
    }
}

pub(crate) fn controller(group: &str, kind: &str, name: &str) -> Controller {
    Controller { group: group.into(), kind: kind.into(), uid: uid(name) }
}

/// A pod of Kubernetes' own DaemonSet of this name.
pub(crate) fn daemon_pod(name: &str, set: &str, node: &str) -> PodSnapshot {
    PodSnapshot { controller: Some(controller("apps", "DaemonSet", set)), ..pod(name, set, node) }
}

/// A budget for the pods of one application, three of which are there and healthy.
pub(crate) fn budget(app: &str, disruptions_allowed: i32) -> BudgetSnapshot {
    BudgetSnapshot {
        namespace: SHOP.into(),
        name: app.into(),
        resource_version: format!("allows-{disruptions_allowed}"),
        selector: LabelSelector::parse(&format!("app={app}")).unwrap(),
        unhealthy_pods: UnhealthyPods::IfHealthyBudget,
        current: true,
        disruptions_allowed,
        current_healthy: 2,
        desired_healthy: 2,
        expected_pods: 3,
        disrupted_pods: Vec::new(),
    }
}

pub(crate) fn pod_ref(name: &str) -> PodRef {
    PodRef { namespace: SHOP.into(), name: name.into(), uid: uid(name) }
}

pub(crate) fn budget_ref(name: &str) -> BudgetRef {
    BudgetRef { namespace: SHOP.into(), name: name.into() }
}

/// What the cloud says of the machine of this node: nothing against its going.
pub(crate) fn fact(name: &str, class: Class) -> CloudFact {
    let machine = Some(Machine::Instance(InstanceId::new(format!("i-{name}"))));
    CloudFact { class, machine, group: None, refusals: Vec::new() }
}

/// A group at its size, with room down to its floor; each machine is one of it.
pub(crate) fn group(id: &str, desired: u32, floor: u32) -> Group {
    Group { id: id.to_owned(), desired, floor, weight: 1, kind: GroupKind::Group }
}

/// The node with one more label.
pub(crate) fn labelled(mut node: NodeSnapshot, key: &str, value: &str) -> NodeSnapshot {
    node.labels.insert(key.to_owned(), value.to_owned());
    node
}
