//! The checker finds what it is there to find.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{SECOND, Tester, node_at, refs};
use crate::capacity::Class;
use crate::claim::{Claim, ClaimStep};
use crate::cloud::Deletion;
use crate::model::{Call, Invariant, Invariants, Limits, MachineKind, Model, NodeSpec, WorldBuilder, block_on};
use crate::node::{Effect, Taint, key};
use crate::ports::{Edit, EvictAnswer, NodeChange, Written};
use crate::retire::{DeletableNode, DoomedPod, RetiredNode};

fn claim(model: &Model, name: &str) -> Claim {
    Claim { step: ClaimStep::Draining, ..super::claim(model, name) }
}

fn put_claim(tester: &Tester, name: &str) {
    let change = NodeChange { claim: Edit::Set(claim(&tester.model, name)), ..NodeChange::default() };
    let (permit, node) = (tester.write(), node_at(&tester.model, name));
    let written = block_on(&tester.model, tester.ports.cluster.write_node(&node, &change, &permit)).unwrap().unwrap();
    assert!(matches!(written, Written::Applied(_)));
}

fn broken(invariants: &Invariants) -> Vec<Invariant> {
    invariants.violations().iter().map(|violation| violation.invariant).collect()
}

#[test]
fn claims_on_the_wrong_nodes_and_too_many_of_them_are_found() {
    let opted_out = NodeSpec::new(Class::OnDemand).named("kept").label(key::DO_NOT_MIGRATE, "true");
    let model = WorldBuilder::default().control_plane(1).on_demand(2).spot(1).node(opted_out).build();
    let invariants = Invariants::watch(&model, Limits { nodes_at_once: 10, ..Limits::default() });
    let tester = Tester::of(&model);
    put_claim(&tester, "od-2");
    assert_eq!(broken(&invariants), []);
    put_claim(&tester, "spot-1");
    assert_eq!(broken(&invariants), [Invariant::Eligible]);
    put_claim(&tester, "kept");
    assert_eq!(broken(&invariants).len(), 2);
    put_claim(&tester, "cp-1");
    assert_eq!(broken(&invariants).len(), 3);
    let one = Invariants::watch(&model, Limits::default());
    put_claim(&tester, "od-3");
    assert_eq!(broken(&one), [Invariant::ClaimFirst]);
    assert_eq!(broken(&invariants).len(), 3);
}

#[test]
fn pods_that_are_deleted_and_writes_of_who_does_not_lead_are_found() {
    let model = WorldBuilder::default().on_demand(1).deployment("web", 1).build();
    let invariants = Invariants::watch(&model, Limits::default());
    let (leader, other) = (Tester::of(&model), Tester::of(&model));
    model.with(|world| world.give_lease(leader.process.id()));
    leader.pass(SECOND);
    put_claim(&leader, "od-1");
    assert_eq!(broken(&invariants), []);
    let doomed = DoomedPod::assume(refs(&model, "web").remove(0));
    let permit = other.write();
    block_on(&model, other.ports.cluster.delete_pod(&doomed, Duration::ZERO, &permit)).unwrap().unwrap();
    assert_eq!(broken(&invariants), [Invariant::Leader, Invariant::EvictedOnly]);
}

#[test]
fn node_objects_that_go_too_early_are_found() {
    for (machines, expected) in [
        (MachineKind::Instance, vec![Invariant::Claimed]),
        (MachineKind::WithNode, vec![Invariant::EmptyFirst, Invariant::Claimed]),
    ] {
        let model = WorldBuilder::default().settings(|settings| settings.machines = machines).on_demand(1).build();
        let invariants = Invariants::watch(&model, Limits::default());
        let tester = Tester::of(&model);
        let deletable = DeletableNode::assume(node_at(&model, "od-1"));
        let permit = tester.write();
        let _erased = block_on(&model, tester.ports.cluster.delete_node(&deletable, &permit)).unwrap().unwrap();
        assert_eq!(broken(&invariants), expected, "{machines:?}");
    }
}

#[test]
fn a_careless_process_breaks_the_promises_one_by_one() {
    use Invariant::{ClaimFirst, Claimed, EmptyFirst, Foreign, Released};
    let model = WorldBuilder::default().on_demand(2).deployment("web", 2).build();
    let invariants = Invariants::watch(&model, Limits::default());
    let tester = Tester::of(&model);
    let broken = || {
        let found = invariants.violations();
        found.last().map(|violation| violation.invariant)
    };
    let write = |change: &NodeChange, name: &str| {
        let (permit, node) = (tester.write(), node_at(&model, name));
        let written = block_on(&model, tester.ports.cluster.write_node(&node, change, &permit)).unwrap().unwrap();
        assert!(matches!(written, Written::Applied(_)));
    };
    model.with(|world| {
        world.taint_node("od-2", Taint::new("theirs", "", Effect::NoSchedule));
        world.cordon("od-2", true);
    });
    tester.pass(SECOND);
    assert_eq!(broken(), None);
    write(&NodeChange { unschedulable: Some(true), ..NodeChange::default() }, "od-1");
    assert_eq!(broken(), Some(ClaimFirst));
    let pod = model.with(|world| world.view().pods_on("od-2").next().unwrap().reference());
    let permit = tester.write();
    assert_eq!(
        block_on(&model, tester.ports.cluster.evict(&pod, None, &permit)).unwrap().unwrap(),
        EvictAnswer::Accepted
    );
    assert_eq!(invariants.violations().len(), 2);
    write(&NodeChange { taints: Some(Vec::new()), ..NodeChange::default() }, "od-2");
    assert_eq!(broken(), Some(Foreign));
    write(&NodeChange { unschedulable: Some(false), ..NodeChange::default() }, "od-2");
    assert_eq!(broken(), Some(Foreign));
    let node = super::node(&model, "od-1");
    let claim = claim(&model, "od-1");
    let retired = RetiredNode::assume(node, claim.clone());
    let delete = || {
        let deletion = block_on(&model, tester.ports.cloud.delete_instance(&retired, &tester.write())).unwrap();
        assert_eq!(deletion.unwrap(), Deletion::Accepted);
    };
    write(&NodeChange { claim: Edit::Set(claim.clone()), ..NodeChange::default() }, "od-1");
    assert_eq!(invariants.at_the_end(&model).last().map(|violation| violation.invariant), Some(Released));
    delete();
    assert_eq!(broken(), Some(EmptyFirst));
    let seen = Arc::new(Mutex::new(0));
    let hooked = Arc::clone(&seen);
    model.with(|world| {
        world.after_each_call(move |_, record| {
            if matches!(record.call, Call::WriteNode { .. }) {
                *hooked.lock().unwrap() += 1;
            }
        });
    });
    write(&NodeChange { claim: Edit::Remove, ..NodeChange::default() }, "od-1");
    delete();
    assert_eq!(broken(), Some(Claimed));
    assert_eq!(*seen.lock().unwrap(), 1);
}
