//! A pool with everything that can disagree.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spot_aws::fleet::{
    Cause, Event, Existing, ExistingFleet, ExistingTemplate, ExistingVersion, Launch, PoolMember, Version, tag,
};
use spot_aws::prices::Prices;
use spot_core::claim::{Claim, ClaimStep, InstanceId, Machine, Owner};
use spot_core::node::{ClaimAnnotation, NodeSnapshot, Readiness};

use super::seen::Seen;
use super::{Status, table};
use crate::pool::PoolFile;
use crate::sample::{self, at, fleet, pool_file};

fn member(instance: &str, instance_type: &str, weight: u32, price: Option<f64>) -> PoolMember {
    PoolMember { instance_type: instance_type.to_owned(), price, ..sample::member(instance, weight) }
}

fn node(name: &str, instance: &str) -> NodeSnapshot {
    NodeSnapshot {
        created_at: at(),
        provider_id: format!("aws:///eu-west-1a/{instance}"),
        labels: [(tag::POOL.to_owned(), "workers".to_owned())].into_iter().collect(),
        ready_since: Some(at()),
        ..sample::snapshot(name)
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
    // Long after everything was launched.
    status_at(at() + SignedDuration::from_hours(1), existing, members, nodes, &[])
}

fn status_at(
    now: Timestamp,
    existing: &Existing,
    members: &[PoolMember],
    nodes: Vec<NodeSnapshot>,
    said: &[(String, Event)],
) -> Status {
    let file: PoolFile = pool_file("");
    let prices = Prices::parse("eu-west-1,m5.large,0.1\neu-west-1,m5.xlarge,0.2\n").expect("it is a table");
    let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
    Status::of(&Seen { file: &file, existing, members, nodes: Some(&nodes), prices: &prices, said, now })
}

fn hash() -> String {
    pool_file("").pool.hash()
}

/// With the template that the pool's file asks for.
fn existing(fleets: Vec<ExistingFleet>) -> Existing {
    let version = |version: Version| ExistingVersion { number: 1, description: version.description, machine: None };
    let versions = Launch::of(&pool_file("").pool, "").template.versions.into_iter().map(version).collect();
    Existing { template: Some(ExistingTemplate { id: "lt-1".to_owned(), ours: true, versions }), fleets }
}

#[test]
fn of_a_cluster_that_could_not_be_read_nothing_is_claimed_and_the_rest_is_shown() {
    let found = existing(vec![fleet("sfr-1", &hash(), (3, 3))]);
    let members = [member("i-0000000000000000a", "m5.large", 3, Some(0.03))];
    let prices = Prices::parse("eu-west-1,m5.large,0.1\n").expect("it is a table");
    let (file, now) = (pool_file(""), at() + SignedDuration::from_hours(1));
    let seen = Seen { file: &file, existing: &found, members: &members, nodes: None, prices: &prices, said: &[], now };
    let status = Status::of(&seen);
    assert_eq!(status.disagreements, [""; 0], "that a machine is no Node was not seen");
    assert_eq!((status.capacity.joined, status.capacity.ready, status.capacity.fulfilled), (None, None, 3));
    assert_eq!((status.machines[0].ready, status.machines[0].cost.spot), (None, Some(0.03)));
    assert!(table::text(&status).contains("an unknown number joined"), "{}", table::text(&status));
}

#[test]
fn a_pool_that_is_as_its_file_says_has_nothing_that_disagrees() {
    let found = existing(vec![fleet("sfr-1", &hash(), (3, 3))]);
    let members = [
        member("i-0000000000000000a", "m5.large", 1, Some(0.03)),
        member("i-0000000000000000b", "m5.xlarge", 2, Some(0.05)),
    ];
    let nodes = vec![node("node-a", "i-0000000000000000a"), node("node-b", "i-0000000000000000b")];
    let status = status(&found, &members, nodes);
    assert_eq!(status.disagreements, [""; 0]);
    assert_eq!((status.capacity.joined, status.capacity.ready), (Some(3), Some(3)));
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
    assert_eq!((status.capacity.joined, status.capacity.ready), (Some(3), Some(1)));
    insta::assert_snapshot!(table::text(&status));
}

#[test]
fn of_a_single_fleet_it_is_told_that_somebody_scaled_it_and_what_is_too_much() {
    let of = |capacity| {
        let found = existing(vec![fleet("sfr-1", &hash(), capacity)]);
        status(&found, &[], Vec::new()).disagreements.join("\n")
    };
    assert!(of((2, 2)).contains("wants 2 units, and the file 3: somebody scaled it"), "{}", of((2, 2)));
    assert!(of((3, 5)).contains("has 2 units more than it wants"), "{}", of((3, 5)));
    assert_eq!(of((3, 3)), "");
}

#[test]
fn more_than_is_wanted_is_told_only_where_a_machine_fits_into_it() {
    let of = |fulfilled| {
        let heavy = ExistingFleet { lightest: Some(2), ..fleet("sfr-1", &hash(), (3, fulfilled)) };
        status(&existing(vec![heavy]), &[], Vec::new()).disagreements
    };
    assert_eq!(of(4), [""; 0]);
    assert!(of(5).concat().contains("has 2 units more than it wants"), "{:?}", of(5));
}

#[test]
fn what_only_takes_its_time_disagrees_with_nothing() {
    let found = existing(vec![fleet("sfr-1", &hash(), (3, 3))]);
    let in_state = |instance: &str, state: &str| PoolMember {
        state: state.to_owned(),
        ..member(instance, "m5.large", 1, Some(0.03))
    };
    let members = [
        in_state("i-0000000000000000a", "pending"),
        in_state("i-0000000000000000b", "running"),
        in_state("i-0000000000000000c", "running"),
        in_state("i-0000000000000000d", "shutting-down"),
    ];
    let booting =
        NodeSnapshot { readiness: Readiness::NotReady { since: at() }, ..node("node-c", "i-0000000000000000c") };
    let nodes = || vec![booting.clone(), claimed(node("node-e", "i-0000000000000000e"))];
    let after =
        |minutes| status_at(at() + SignedDuration::from_mins(minutes), &found, &members, nodes(), &[]).disagreements;
    let retired = "node node-e is being retired by fleet:workers since 2026-01-05T01:00:00Z";
    assert_eq!(after(15), [retired]);
    let late = after(16).join("\n");
    for told in ["i-0000000000000000b (running", "`kubectl describe node node-c` says why", retired] {
        assert_eq!(late.matches(told).count(), 1, "{told}: {late}");
    }
    assert_eq!(after(16).len(), 3, "{late}");
    // What is going costs nothing any more.
    let status = status_at(at(), &found, &members, nodes(), &[]);
    let cents = status.machines.iter().map(|machine| machine.cost.spot).collect::<Vec<_>>();
    assert_eq!(cents, [Some(0.03), Some(0.03), Some(0.03), None]);
}

#[test]
fn what_fleets_said_is_told_once_with_what_helps() {
    let event = |seconds, explained| Event {
        at: at() + SignedDuration::from_secs(seconds),
        kind: "error".to_owned(),
        words: format!("said after {seconds} s"),
        explained,
    };
    let quota = Some(Cause::SpotQuota.said());
    let said = [event(1, None), event(2, quota), event(3, Some(Cause::Balancer.said())), event(4, quota)];
    let said = said.map(|event| ("sfr-1".to_owned(), event));
    let status = status_at(at(), &existing(vec![fleet("sfr-1", &hash(), (3, 3))]), &[], Vec::new(), &said);
    let text = table::text(&status);
    assert!(
        text.contains(&format!("2026-01-05T01:00:04Z sfr-1: {} (said after 4 s)", Cause::SpotQuota.said())),
        "{text}"
    );
    assert_eq!((text.matches("said after").count(), status.said.len()), (2, 2), "{text}");
    let document = serde_json::to_value(&status).expect("it is a document");
    assert_eq!(document["said"][1]["explained"], Cause::SpotQuota.said());
}

#[test]
fn a_fleet_without_its_launch_template_is_told_with_what_helps() {
    let existing = Existing { template: None, fleets: vec![fleet("sfr-1", &hash(), (3, 3))] };
    assert_eq!(status(&existing, &[], Vec::new()).disagreements, [Cause::TemplateGone.said()]);
}

#[test]
fn a_pool_that_is_not_there_is_told_with_what_makes_it() {
    let status = status(&Existing::default(), &[], Vec::new());
    insta::assert_snapshot!(table::text(&status));
}

#[test]
fn the_document_has_every_price_and_what_is_saved() {
    let found = existing(vec![fleet("sfr-1", &hash(), (3, 3))]);
    let members = [
        member("i-0000000000000000a", "m5.large", 1, Some(0.025)),
        member("i-0000000000000000b", "c5.large", 2, Some(0.05)),
    ];
    let document = serde_json::to_value(status(&found, &members, Vec::new())).expect("it is a document");
    assert_eq!(document["machines"][0]["saving"], 0.75);
    assert_eq!((&document["machines"][1]["onDemand"], &document["machines"][1]["saving"]), (&().into(), &().into()));
    // What is saved is told of what both prices are known of.
    assert_eq!(document["cost"], serde_json::json!({"spot": 0.025, "onDemand": 0.1, "saving": 0.75}));
    assert_eq!(document["capacity"]["file"], 3);
}
