//! Fleets of a pool.

use super::{SECOND, Tester, claim, node};
use crate::claim::{Claim, FleetBefore, InstanceId, Owner};
use crate::cloud::{Deletion, Freshness, GroupKind};
use crate::error::{ErrorClass, PortError};
use crate::model::{FleetChange, FleetSpec, Invariant, Invariants, Limits, Model, Offer, PoolLimits, Why};
use crate::model::{WorldBuilder, block_on};
use crate::node::Readiness;
use crate::pool::Fleet;
use crate::ports::{Edit, NodeChange, Written};
use crate::reason::{Reason, ReasonKind};
use crate::retire::RetiredNode;

fn spec(target: u32) -> FleetSpec {
    FleetSpec::new("f", target).offer(Offer::new(2)).offer(Offer::new(1))
}

fn world(spec: FleetSpec) -> Tester {
    Tester::of(&WorldBuilder::default().fleet(spec).build())
}

fn fleet(tester: &Tester) -> Fleet {
    let fleets = block_on(&tester.model, tester.process.pool().fleets(tester.by())).unwrap().unwrap();
    let [fleet] = <[Fleet; 1]>::try_from(fleets).unwrap();
    fleet
}

fn resize(tester: &Tester, from: u32, to: u32) -> Result<(), PortError> {
    block_on(&tester.model, tester.process.pool().resize("f", from, to, &tester.write())).unwrap()
}

fn terminate(tester: &Tester, instance: &InstanceId) -> Result<(), PortError> {
    block_on(&tester.model, tester.process.pool().terminate("f", instance, &tester.write())).unwrap()
}

fn cancel(tester: &Tester) -> Result<(), PortError> {
    block_on(&tester.model, tester.process.pool().cancel("f", &tester.write())).unwrap()
}

fn write(tester: &Tester, name: &str, change: &NodeChange) {
    let (node, permit) = (super::node_at(&tester.model, name), tester.write());
    let written = block_on(&tester.model, tester.ports.cluster.write_node(&node, change, &permit)).unwrap().unwrap();
    assert!(matches!(written, Written::Applied(_)));
}

/// Has the machine of a node deleted, with what the fleet wanted by its claim.
fn delete(tester: &Tester, name: &str, wanted: u32) -> Result<Deletion, PortError> {
    let claim = Claim {
        owner: Owner::Fleet("pool".to_owned()),
        fleet_before: Some(FleetBefore { fleet: "f".to_owned(), target: wanted, on_demand: 0 }),
        ..claim(&tester.model, name)
    };
    let change = NodeChange { claim: Edit::Set(claim.clone()), ..NodeChange::default() };
    write(tester, name, &change);
    let retired = RetiredNode::assume(node(&tester.model, name), claim);
    block_on(&tester.model, tester.ports.cloud.delete_instance(&retired, &tester.write())).unwrap()
}

fn changes(model: &Model) -> Vec<(u32, u32)> {
    model.with(|world| world.fleet_changes().iter().map(|FleetChange { from, to, .. }| (*from, *to)).collect())
}

fn class(result: Result<(), PortError>) -> ErrorClass {
    result.unwrap_err().class
}

#[test]
fn it_launches_what_is_missing_and_its_machines_become_nodes_later() {
    let tester = world(spec(5));
    assert_eq!((fleet(&tester).there(), fleet(&tester).target), (0, 5));
    tester.pass(21 * SECOND);
    assert_eq!(fleet(&tester).there(), 5, "two, one and two, in turn");
    assert!(tester.model.with(|world| world.view().nodes().is_empty()));
    tester.pass(41 * SECOND);
    assert!(matches!(node(&tester.model, "f-3").readiness, Readiness::NotReady { .. }));
    tester.pass(10 * SECOND);
    assert_eq!(node(&tester.model, "f-3").readiness, Readiness::Ready);
    assert_eq!(fleet(&tester).members.values().map(|member| member.weight).collect::<Vec<_>>(), [2, 1, 2]);
}

#[test]
fn what_it_can_not_buy_it_waits_for_and_some_machines_never_join() {
    let tester =
        world(FleetSpec::new("f", 3).offer(Offer::new(2).left(1)).offer(Offer::new(1).never_joining().left(0)));
    tester.pass(60 * SECOND);
    assert_eq!(fleet(&tester).there(), 2);
    tester.model.with(|world| world.set_offer("f", 1, 5));
    tester.pass(120 * SECOND);
    assert_eq!((fleet(&tester).there(), tester.model.with(|world| world.view().nodes().len())), (3, 1));
}

#[test]
fn a_machine_that_goes_by_itself_is_replaced_and_one_that_is_let_go_is_not() {
    let tester = world(spec(4).members(&[2, 2]));
    tester.model.with(|world| world.terminate_machine("f-1"));
    assert_eq!((fleet(&tester).there(), fleet(&tester).target), (2, 4));
    assert_eq!(delete(&tester, "f-2", 4).unwrap_err().class, ErrorClass::Permanent, "it is launching the rest");
    tester.pass(60 * SECOND);
    assert_eq!(fleet(&tester).there(), 4);
    assert_eq!(changes(&tester.model), []);

    assert_eq!(delete(&tester, "f-2", 3).unwrap_err().class, ErrorClass::Permanent, "it wants something else");
    assert_eq!(delete(&tester, "f-2", 4).unwrap(), Deletion::Accepted);
    assert_eq!(delete(&tester, "f-2", 4).unwrap(), Deletion::Accepted, "once more");
    tester.pass(60 * SECOND);
    assert_eq!((fleet(&tester).there(), fleet(&tester).target), (2, 2));
    assert_eq!(changes(&tester.model), [(4, 2)]);
}

#[test]
fn a_machine_more_than_it_wants_goes_without_a_change() {
    let tester = world(spec(3).members(&[2, 1, 2]));
    assert_eq!(delete(&tester, "f-1", 3).unwrap(), Deletion::Accepted, "five are there");
    assert_eq!(delete(&tester, "f-3", 3).unwrap(), Deletion::Accepted, "three are");
    assert_eq!(changes(&tester.model), [(3, 1)]);
}

#[test]
fn while_it_is_being_modified_it_can_not_be_changed_again_and_lets_nobody_go() {
    let tester = world(spec(4).members(&[2, 2]));
    tester.model.with(|world| world.set_target("f", 5));
    assert_eq!(class(resize(&tester, 5, 6)), ErrorClass::Transient);
    assert!(!fleet(&tester).is_settled);
    let survey = || {
        let nodes = tester.model.with(|world| world.view().nodes().to_vec());
        let facts = tester.ports.cloud.survey(&nodes, &[], Freshness::Now, tester.by());
        block_on(&tester.model, facts).unwrap().unwrap()
    };
    let uid = node(&tester.model, "f-1").uid.clone();
    let (facts, before) = (survey(), tester.ports.clock.instant());
    let fact = facts.of(uid.as_str()).unwrap();
    assert_eq!(fact.refusals.iter().map(Reason::kind).collect::<Vec<_>>(), [ReasonKind::GroupRefreshing]);
    let group = fact.group.as_ref().unwrap();
    assert_eq!((group.desired, group.weight, group.kind), (5, 2, GroupKind::Fleet { on_demand: 0 }));
    tester.pass(5 * SECOND);
    assert_eq!(class(resize(&tester, 4, 6)), ErrorClass::Permanent, "somebody else changed it");
    resize(&tester, 5, 4).unwrap();
    assert!(fleet(&tester).is_settled && tester.ports.clock.instant() >= before + 9 * SECOND, "done when it is");
    resize(&tester, 5, 4).unwrap();
    assert_eq!(changes(&tester.model), [(4, 5), (5, 4)]);
    assert!(survey().of(uid.as_str()).unwrap().refusals.is_empty());
}

#[test]
fn only_what_has_no_node_is_terminated_and_only_what_is_empty_is_cancelled() {
    let spec = FleetSpec::new("f", 3).offer(Offer::new(2)).offer(Offer::new(1).never_joining()).members(&[2]);
    let tester = world(spec);
    tester.pass(60 * SECOND);
    let ids: Vec<InstanceId> = fleet(&tester).members.into_keys().collect();
    assert_eq!(class(terminate(&tester, &ids[0])), ErrorClass::Permanent);
    assert_eq!(class(cancel(&tester)), ErrorClass::Permanent);
    terminate(&tester, &ids[1]).unwrap();
    terminate(&tester, &ids[1]).unwrap();
    assert_eq!(changes(&tester.model), [(3, 2)]);
    let left = tester.model.with(|world| world.fleet_changes().last().unwrap().why.clone());
    assert_eq!(left, Why::Left(ids[1].clone(), 1));
    tester.pass(5 * SECOND);
    assert_eq!(delete(&tester, "f-1", 2).unwrap(), Deletion::Accepted);
    cancel(&tester).unwrap();
    cancel(&tester).unwrap();
    assert!(fleet(&tester).has_ended, "its machine is not gone yet");
    tester.pass(60 * SECOND);
    let fleets = block_on(&tester.model, tester.process.pool().fleets(tester.by())).unwrap().unwrap();
    assert_eq!(fleets, []);
    assert_eq!(class(resize(&tester, 0, 4)), ErrorClass::Permanent);
}

#[test]
fn too_little_of_a_pool_and_too_much_of_it_are_found() {
    let watch = |model: &Model, pool| Invariants::watch(model, Limits { pool, ..Limits::default() });
    let found = |invariants: &Invariants| -> Vec<Invariant> {
        invariants.violations().iter().map(|violation| violation.invariant).collect()
    };
    let tester = world(spec(4).members(&[2, 2]));
    let enough = watch(&tester.model, PoolLimits { floor: 2, ready: 2, most: 4 });
    let too_little = watch(&tester.model, PoolLimits { floor: 3, ..PoolLimits::default() });
    let too_unready = watch(&tester.model, PoolLimits { ready: 3, ..PoolLimits::default() });
    let too_much = watch(&tester.model, PoolLimits { most: 3, ..PoolLimits::default() });
    let cordon = NodeChange { unschedulable: Some(true), ..NodeChange::default() };
    write(&tester, "f-2", &cordon);
    write(&tester, "f-2", &cordon);
    assert_eq!(delete(&tester, "f-1", 4).unwrap(), Deletion::Accepted);
    let pool = |found: Vec<Invariant>| found.into_iter().filter(|kind| *kind == Invariant::Pool).count();
    assert_eq!(pool(found(&enough)), 0);
    assert_eq!(pool(found(&too_little)), 1);
    assert_eq!(pool(found(&too_unready)), 1, "the second write took nothing away");
    assert_eq!(
        pool(found(&too_much)),
        4,
        "after each call until one of them was deleted, and the fleet wants less before that"
    );
}
