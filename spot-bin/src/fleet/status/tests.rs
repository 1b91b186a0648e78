//! A pool with everything that can disagree.

use std::sync::Arc;

use spot_aws::fleet::{Existing, ExistingTemplate, PoolMember, Prices, tag};
use spot_core::claim::{Claim, ClaimStep, InstanceId, Machine, Owner};
use spot_core::labels::Labels;
use spot_core::node::{ClaimAnnotation, NodeSnapshot, Readiness, Uid};

use super::seen::Seen;
use super::{Status, table};
use crate::pool::PoolFile;
use crate::sample::{self, at, fleet, pool_file};

fn member(instance: &str, instance_type: &str, weight: u32, price: Option<f64>) -> PoolMember {
    PoolMember { instance_type: instance_type.to_owned(), price, ..sample::member(instance, weight) }
}

fn node(name: &str, instance: &str) -> NodeSnapshot {
    NodeSnapshot {
        name: name.into(),
        uid: Uid::new(name),
        resource_version: "1".to_owned(),
        created_at: at(),
        provider_id: format!("aws:///eu-west-1a/{instance}"),
        labels: [(tag::POOL.to_owned(), "workers".to_owned())].into_iter().collect(),
        annotations: Labels::default(),
        taints: Vec::new(),
        unschedulable: false,
        readiness: Readiness::Ready,
        ready_since: Some(at()),
        boot_id: String::new(),
        internal_addresses: Vec::new(),
        deleting_since: None,
        finalizers: Vec::new(),
        claim: ClaimAnnotation::Absent,
        back_off: None,
    }
}

fn claimed(node: NodeSnapshot) -> NodeSnapshot {
    let claim = Claim {
        owner: Owner::Fleet("workers".to_owned()),
        node: node.uid.clone(),
        machine: Machine::Instance(InstanceId::new("i-0000000000000000b")),
        boot_id: String::new(),
        step: ClaimStep::Draining,
        cordoned: true,
        taint: None,
        since: at(),
        own_pod_left: false,
        restored: false,
        until: None,
        fleet_before: None,
    };
    NodeSnapshot { unschedulable: true, claim: ClaimAnnotation::Valid(Box::new(claim)), ..node }
}

fn status(existing: &Existing, members: &[PoolMember], nodes: Vec<NodeSnapshot>) -> Status {
    let file: PoolFile = pool_file("");
    let prices = Prices::parse("eu-west-1,m5.large,0.1\neu-west-1,m5.xlarge,0.2\n").expect("it is a table");
    let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
    Status::of(&Seen { file: &file, existing, members, nodes: &nodes, prices: &prices })
}

fn hash() -> String {
    pool_file("").pool.hash()
}

#[test]
fn a_pool_that_is_as_its_file_says_has_nothing_that_disagrees() {
    let existing = Existing { template: None, fleets: vec![fleet("sfr-1", &hash(), (3, 3))] };
    let members = [
        member("i-0000000000000000a", "m5.large", 1, Some(0.03)),
        member("i-0000000000000000b", "m5.xlarge", 2, Some(0.05)),
    ];
    let nodes = vec![node("node-a", "i-0000000000000000a"), node("node-b", "i-0000000000000000b")];
    let status = status(&existing, &members, nodes);
    assert_eq!(status.disagreements, [""; 0]);
    assert_eq!((status.capacity.joined, status.capacity.ready), (3, 3));
    insta::assert_snapshot!(table::text(&status));
}

#[test]
fn everything_that_disagrees_is_told() {
    let mut changing = fleet("sfr-1", &hash(), (6, 3));
    changing.is_settled = false;
    let old = fleet("sfr-0", "another", (0, 1));
    let mut foreign = fleet("sfr-9", "", (1, 1));
    foreign.ours = false;
    let template = ExistingTemplate { id: "lt-9".to_owned(), ours: false, versions: Vec::new() };
    let existing = Existing { template: Some(template), fleets: vec![old, changing, foreign] };
    let members = [
        member("i-0000000000000000a", "m5.large", 1, None),
        member("i-0000000000000000b", "c5.large", 2, Some(0.05)),
        member("i-0000000000000000c", "m5.large", 1, Some(0.05)),
    ];
    let nodes = vec![
        claimed(node("node-b", "i-0000000000000000b")),
        node("node-c", "i-0000000000000000c"),
        node("node-d", "i-0000000000000000d"),
        NodeSnapshot { provider_id: String::new(), ..node("node-e", "") },
    ];
    let status = status(&existing, &members, nodes);
    assert_eq!((status.capacity.joined, status.capacity.ready), (3, 1));
    insta::assert_snapshot!(table::text(&status));
}

#[test]
fn of_a_single_fleet_it_is_told_that_somebody_scaled_it_and_what_is_too_much() {
    let of = |capacity| {
        let existing = Existing { template: None, fleets: vec![fleet("sfr-1", &hash(), capacity)] };
        status(&existing, &[], Vec::new()).disagreements.join("\n")
    };
    assert!(of((2, 2)).contains("wants 2 units, and the file 3: somebody scaled it"), "{}", of((2, 2)));
    assert!(of((3, 5)).contains("has 2 units more than it wants"), "{}", of((3, 5)));
    assert_eq!(of((3, 3)), "");
}

#[test]
fn a_pool_that_is_not_there_is_told_with_what_makes_it() {
    let status = status(&Existing::default(), &[], Vec::new());
    insta::assert_snapshot!(table::text(&status));
}

#[test]
fn the_document_has_every_price_and_what_is_saved() {
    let existing = Existing { template: None, fleets: vec![fleet("sfr-1", &hash(), (3, 3))] };
    let members = [
        member("i-0000000000000000a", "m5.large", 1, Some(0.025)),
        member("i-0000000000000000b", "c5.large", 2, Some(0.05)),
    ];
    let document = serde_json::to_value(status(&existing, &members, Vec::new())).expect("it is a document");
    assert_eq!(document["machines"][0]["saving"], 0.75);
    assert_eq!((&document["machines"][1]["onDemand"], &document["machines"][1]["saving"]), (&().into(), &().into()));
    // What is saved is told of what both prices are known of.
    assert_eq!(document["cost"], serde_json::json!({"spot": 0.025, "onDemand": 0.1, "saving": 0.75}));
    assert_eq!(document["capacity"]["file"], 3);
}
