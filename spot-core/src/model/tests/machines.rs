//! Nodes, machines, the scheduler, the autoscaler.

use std::time::Duration;

use super::{SECOND, Tester, claim, node, node_at, nodes_of, ready, refs};
use crate::capacity::Class;
use crate::claim::{Claim, InstanceId, Machine};
use crate::cloud::{Deletion, Freshness, InstanceState};
use crate::error::{ErrorClass, PortError};
use crate::model::{Fact, MachineKind, Model, NodeSpec, Settings, WorkloadSpec, WorldBuilder, block_on};
use crate::node::{ClaimAnnotation, Effect, Node, Readiness, Taint, key};
use crate::ports::{Edit, NodeChange, Written};
use crate::reason::{Reason, ReasonKind};
use crate::retire::{DeletableNode, RetiredNode};

fn cordon() -> NodeChange {
    NodeChange { unschedulable: Some(true), ..NodeChange::default() }
}

fn delete(tester: &Tester, name: &str) -> Result<Deletion, PortError> {
    let retired = RetiredNode::assume(node(&tester.model, name), claim(&tester.model, name));
    let write = tester.write();
    block_on(&tester.model, tester.ports.cloud.delete_instance(&retired, &write)).unwrap()
}

fn write(tester: &Tester, node: &crate::node::NodeRef, change: &NodeChange) -> Result<Written, PortError> {
    let write = tester.write();
    block_on(&tester.model, tester.ports.cluster.write_node(node, change, &write)).unwrap()
}

#[test]
fn a_write_on_an_old_version_conflicts_and_changes_nothing() {
    let model = WorldBuilder::default().on_demand(1).build();
    let tester = Tester::of(&model);
    let seen = node_at(&model, "od-1");
    model.with(|world| world.label_node("od-1", "zone", Some("a")));
    let Written::Conflict(now) = write(&tester, &seen, &cordon()).unwrap() else { panic!("it was written") };
    assert_eq!(now.labels.get("zone").map(String::as_str), Some("a"));
    assert!(!node(&model, "od-1").unschedulable);
    let Written::Applied(now) = write(&tester, &now.at_version(), &cordon()).unwrap() else { panic!("it was not") };
    assert!(now.unschedulable);
    assert_eq!(*now, *node(&model, "od-1"));
}

#[test]
fn a_cordon_is_followed_by_a_taint_that_makes_the_version_old() {
    let model = WorldBuilder::default().on_demand(1).build();
    let tester = Tester::of(&model);
    let Written::Applied(cordoned) = write(&tester, &node_at(&model, "od-1"), &cordon()).unwrap() else {
        panic!("it was not written")
    };
    tester.pass(SECOND);
    let change = NodeChange { taints: Some(vec![Taint::new("a", "", Effect::NoSchedule)]), ..NodeChange::default() };
    let written = write(&tester, &cordoned.at_version(), &change).unwrap();
    assert!(matches!(written, Written::Conflict(_)), "{written:?}");
    assert!(write(&tester, &cordoned.reference(), &change).is_err(), "taints are never written blindly");
}

#[test]
fn a_write_that_changes_nothing_keeps_the_version() {
    let model = WorldBuilder::default().on_demand(1).build();
    let tester = Tester::of(&model);
    let change = NodeChange { unschedulable: Some(false), claim: Edit::Remove, ..NodeChange::default() };
    let before = node_at(&model, "od-1");
    assert!(matches!(write(&tester, &before, &change).unwrap(), Written::Applied(_)));
    assert_eq!(node_at(&model, "od-1"), before);
}

#[test]
fn a_node_that_registers_again_is_another_node_on_the_same_machine() {
    let model = WorldBuilder::default().on_demand(1).deployment("web", 2).build();
    let tester = Tester::of(&model);
    let before = node(&model, "od-1");
    model.with(|world| world.re_register("od-1"));
    let after = node(&model, "od-1");
    assert_ne!(after.uid, before.uid);
    assert_eq!(after.provider_id, before.provider_id);
    assert!(matches!(write(&tester, &before.reference(), &cordon()).unwrap(), Written::Gone));
    assert_eq!(nodes_of(&model, "web"), ["od-1", "od-1"]);
}

#[test]
fn pods_go_where_taints_and_cordons_let_them() {
    let closed = NodeSpec::new(Class::Spot).named("closed").taint(Taint::new("batch", "", Effect::NoSchedule));
    let soft = NodeSpec::new(Class::Spot).named("soft").taint(Taint::new("leave", "", Effect::PreferNoSchedule));
    let open = NodeSpec::new(Class::Spot).named("open").slots(2);
    let full = NodeSpec::new(Class::Spot).named("full").slots(0);
    let model = WorldBuilder::default().control_plane(1).node(closed).node(soft).node(open).node(full).build();
    let tester = Tester::of(&model);
    model.with(|world| {
        world.add_workload(&WorkloadSpec::deployment("web", 3));
        world.add_workload(&WorkloadSpec::deployment("batch", 1).tolerates("batch"));
    });
    tester.pass(10 * SECOND);
    assert_eq!(nodes_of(&model, "web"), ["open", "open", "soft"], "the soft taint is avoided while there is room");
    assert_eq!(nodes_of(&model, "batch"), ["closed"]);
    model.with(|world| {
        world.cordon("soft", true);
        world.scale_workload("web", 4);
    });
    tester.pass(10 * SECOND);
    assert_eq!(model.with(|world| world.view().unbound_pods().count()), 1);
}

fn joined(model: &Model) -> Vec<(String, Class, u64)> {
    let fact = |record: &crate::model::FactRecord| match &record.fact {
        Fact::NodeJoined { node, class } => Some((node.name.to_string(), *class, record.at.0.as_secs())),
        _ => None,
    };
    model.with(|world| world.facts().iter().filter_map(fact).collect())
}

#[test]
fn the_autoscaler_buys_spot_while_there_is_any_and_falls_back_late() {
    let mut settings = Settings::default();
    settings.autoscaler.spot_left = 1;
    settings.autoscaler.slots = 2;
    let model = WorldBuilder::new(settings).build();
    let tester = Tester::of(&model);
    model.with(|world| world.add_workload(&WorkloadSpec::deployment("web", 4)));
    tester.pass(Duration::from_mins(20));
    let expected = [("spot-1".to_owned(), Class::Spot, 60), ("od-1".to_owned(), Class::OnDemand, 720)];
    assert_eq!(joined(&model), expected);
    assert_eq!(ready(&model, "web"), 4);
}

#[test]
fn spot_that_comes_back_is_bought_for_those_who_wait() {
    let mut settings = Settings::default();
    settings.autoscaler.spot_left = 0;
    settings.autoscaler.fallback = None;
    settings.autoscaler.spot_schedule = vec![(Duration::from_mins(30), 5)];
    let model = WorldBuilder::new(settings).build();
    let tester = Tester::of(&model);
    model.with(|world| world.add_workload(&WorkloadSpec::deployment("web", 4)));
    tester.pass(Duration::from_mins(29));
    assert!(joined(&model).is_empty());
    tester.pass(Duration::from_mins(3));
    assert_eq!(joined(&model).len(), 1);
    assert_eq!(ready(&model, "web"), 4);
}

#[test]
fn pods_that_need_on_demand_get_it_though_there_is_spot() {
    let model = WorldBuilder::default().spot(1).build();
    let tester = Tester::of(&model);
    model.with(|world| world.add_workload(&WorkloadSpec::deployment("ledger", 1).spot_never()));
    tester.pass(Duration::from_mins(5));
    assert_eq!(nodes_of(&model, "ledger"), ["od-1"]);
}

#[test]
fn a_machine_goes_at_once_and_its_node_later() {
    let model = WorldBuilder::default().on_demand(2).deployment("web", 2).build();
    let tester = Tester::of(&model);
    let before = node(&model, "od-1");
    let instance = model.with(|world| world.instance_of_uid(before.uid()).unwrap().clone());
    assert_eq!(delete(&tester, "od-1").unwrap(), Deletion::Accepted);
    assert_eq!(delete(&tester, "od-1").unwrap(), Deletion::Accepted, "asking twice is asking once");
    let state = |id: &InstanceId| {
        let by = tester.by();
        block_on(&model, tester.ports.cloud.instance_state(id, by)).unwrap().unwrap()
    };
    assert_eq!(state(&instance), InstanceState::ShuttingDown);
    assert!(model.with(|world| world.node("od-1").is_some()));
    tester.pass(60 * SECOND);
    assert_eq!(state(&instance), InstanceState::Gone);
    assert!(model.with(|world| world.node("od-1").is_none()));
    assert_eq!(nodes_of(&model, "web"), ["od-2", "od-2"]);
    assert_eq!(model.with(|world| world.groups().map(|(_, group)| group.desired).sum::<u32>()), 1);
    let lost = |record: &crate::model::FactRecord| {
        matches!(&record.fact, Fact::PodGone { removal: crate::model::Removal::NodeLost, movable: true, .. })
    };
    assert_eq!(model.with(|world| world.facts().iter().filter(|record| lost(record)).count()), 1);
}

#[test]
fn the_cloud_refuses_what_the_real_one_refuses() {
    let model = WorldBuilder::default().on_demand(3).group_floor(2).build();
    let tester = Tester::of(&model);
    let protected = Reason::Plain(ReasonKind::TerminationProtected);
    let refusals = |name: &str, chosen: bool| {
        let nodes = model.with(|world| world.view().nodes().to_vec());
        let chosen: Vec<_> = nodes.iter().filter(|node| chosen && *node.name == *name).map(|n| n.reference()).collect();
        let by = tester.by();
        let facts = block_on(&model, tester.ports.cloud.survey(&nodes, &chosen, Freshness::Now, by)).unwrap().unwrap();
        let kinds = facts.of(node(&model, name).uid()).unwrap().refusals.iter().map(Reason::kind);
        kinds.collect::<Vec<_>>()
    };
    model.with(|world| world.set_refusals("od-1", vec![protected]));
    assert!(refusals("od-1", false).is_empty(), "it costs a call for each instance");
    assert_eq!(refusals("od-1", true), [ReasonKind::TerminationProtected]);
    assert_eq!(delete(&tester, "od-1").unwrap_err().class, ErrorClass::Permanent);
    model.with(|world| world.set_provider_id("od-2", &node_id(&model_provider(world, "od-3"))));
    assert_eq!(refusals("od-2", false), [ReasonKind::IdentityMismatch, ReasonKind::ClaimedTwice]);
    assert_eq!(refusals("od-3", false), [ReasonKind::ClaimedTwice]);
    assert!(delete(&tester, "od-2").is_err());
    assert!(delete(&tester, "od-3").is_err());
    model.with(|world| {
        world.set_refusals("od-1", Vec::new());
        world.re_register("od-2");
    });
    assert_eq!(delete(&tester, "od-3").unwrap(), Deletion::Accepted);
    assert_eq!(refusals("od-1", false), [ReasonKind::GroupAtMinimum]);
    assert_eq!(delete(&tester, "od-1").unwrap_err().class, ErrorClass::Permanent);
}

fn model_provider(world: &crate::model::World, name: &str) -> String {
    world.node(name).unwrap().provider_id.clone()
}

fn node_id(provider_id: &str) -> String {
    provider_id.to_owned()
}

#[test]
fn a_machine_that_goes_with_its_node_goes_when_the_object_is_deleted() {
    let model =
        WorldBuilder::default().settings(|settings| settings.machines = MachineKind::WithNode).on_demand(1).build();
    let tester = Tester::of(&model);
    let before = node(&model, "od-1");
    let machine = Claim { machine: Machine::WithNode, ..claim(&model, "od-1") };
    let retired = RetiredNode::assume(before.clone(), machine);
    let write = tester.write();
    let deletion = block_on(&model, tester.ports.cloud.delete_instance(&retired, &write)).unwrap().unwrap();
    assert_eq!(deletion, Deletion::WithNode);
    let deletable = DeletableNode::assume(before.reference());
    let _erased = block_on(&model, tester.ports.cluster.delete_node(&deletable, &write)).unwrap().unwrap();
    assert!(node(&model, "od-1").deleting_since.is_some());
    tester.pass(60 * SECOND);
    assert!(model.with(|world| world.node("od-1").is_none()));
}

#[test]
fn a_deleted_node_object_comes_back_while_its_machine_runs() {
    let model = WorldBuilder::default().on_demand(1).deployment("web", 1).build();
    let tester = Tester::of(&model);
    let before = node(&model, "od-1");
    let write = tester.write();
    let deletable = DeletableNode::assume(before.reference());
    let _erased = block_on(&model, tester.ports.cluster.delete_node(&deletable, &write)).unwrap().unwrap();
    assert!(model.with(|world| world.node("od-1").is_none()));
    tester.pass(60 * SECOND);
    assert_ne!(node(&model, "od-1").uid, before.uid);
    assert_eq!(ready(&model, "web"), 1);
}

#[test]
fn names_are_used_again_by_machines_of_any_class() {
    let mut settings = Settings { reuse_names: true, ..Settings::default() };
    settings.autoscaler.slots = 1;
    let model = WorldBuilder::new(settings).on_demand(1).build();
    let tester = Tester::of(&model);
    delete(&tester, "od-1").unwrap();
    tester.pass(60 * SECOND);
    model.with(|world| world.add_workload(&WorkloadSpec::deployment("web", 1)));
    tester.pass(Duration::from_mins(5));
    assert_eq!(model.with(|world| world.class_of("od-1")), Some(Class::Spot));
}

#[test]
fn another_machine_can_take_over_a_node_with_all_that_is_written_on_it() {
    let model = WorldBuilder::default().on_demand(1).build();
    let written = claim(&model, "od-1");
    model.with(|world| {
        world.set_claim("od-1", ClaimAnnotation::Valid(Box::new(written.clone())));
        world.replace_machine("od-1", Class::Spot);
    });
    let after = node(&model, "od-1");
    assert_eq!(after.uid, written.node);
    assert_ne!(after.boot_id, written.boot_id);
    assert_eq!(after.claim, ClaimAnnotation::Valid(Box::new(written)));
    assert!(delete_claimed(&model, &after).is_err());
}

fn delete_claimed(model: &Model, node: &std::sync::Arc<crate::node::NodeSnapshot>) -> Result<Deletion, PortError> {
    let ClaimAnnotation::Valid(claim) = &node.claim else { panic!("no claim") };
    let tester = Tester::of(model);
    let retired = RetiredNode::assume(node.clone(), (**claim).clone());
    let write = tester.write();
    block_on(model, tester.ports.cloud.delete_instance(&retired, &write)).unwrap()
}

#[test]
fn a_silent_kubelet_stops_no_pods_until_it_speaks_again() {
    let model = WorldBuilder::default().on_demand(1).deployment("web", 1).build();
    let tester = Tester::of(&model);
    let pod = refs(&model, "web").remove(0);
    model.with(|world| {
        world.set_kubelet("od-1", false);
        world.delete_pod(&pod);
    });
    tester.pass(60 * SECOND);
    assert!(matches!(node(&model, "od-1").readiness, Readiness::Unreachable { .. }));
    assert!(refs(&model, "web").contains(&pod));
    model.with(|world| world.set_kubelet("od-1", true));
    assert!(!refs(&model, "web").contains(&pod));
}

#[test]
fn load_balancers_are_drained_from_the_taints_own_time_on() {
    let model = WorldBuilder::default().on_demand(1).build();
    let tester = Tester::of(&model);
    let node = node(&model, "od-1");
    let detach = |tainted_at| {
        let began = tester.ports.clock.instant();
        let write =
            crate::ports::Write::assume(began + Duration::from_mins(5), std::sync::Arc::new(crate::ports::Alone));
        block_on(&model, tester.ports.cloud.detach(&node, tainted_at, &write)).unwrap().unwrap();
        tester.ports.clock.instant().since(began).as_secs()
    };
    let now = || tester.ports.clock.now();
    assert_eq!(detach(None), 60);
    assert_eq!(detach(Some(now() - jiff::SignedDuration::from_secs(50))), 10);
    assert_eq!(detach(Some(now() - jiff::SignedDuration::from_secs(90))), 0);
    assert_eq!(detach(Some(now() + jiff::SignedDuration::from_secs(90))), 60);
    assert!(node.label(key::SELECTED).is_none());
}

/// A pod that has landed on a node is none of its numbers, and those that are to go are older than the one that stays.
#[test]
fn a_stateful_set_loses_what_it_has_not_numbered_and_then_the_highest_and_gets_back_what_is_on_its_way_out() {
    let model = WorldBuilder::default().on_demand(1).workload(WorkloadSpec::stateful_set("db", 3)).build();
    let tester = Tester::of(&model);
    let names = || {
        let name = |pod: &std::sync::Arc<crate::pod::PodSnapshot>| pod.ready.then(|| pod.name.to_string());
        let mut names: Vec<_> = model.with(|world| world.view().pods().filter_map(name).collect());
        names.sort_unstable();
        names
    };
    let first = model.with(|world| world.pod_named("default", "db-0")).unwrap().reference();
    model.with(|world| world.force_delete_pod(&first));
    tester.pass(10 * SECOND);
    model.with(|world| {
        world.land_pod("db", "db-late", "od-1");
        world.scale_workload("db", 1);
    });
    tester.pass(10 * SECOND);
    assert_eq!(names(), ["db-0"]);
    model.with(|world| world.scale_workload("db", 3));
    tester.pass(10 * SECOND);
    model.with(|world| {
        world.scale_workload("db", 1);
        world.later(SECOND / 2, |world| world.scale_workload("db", 3));
    });
    tester.pass(10 * SECOND);
    assert_eq!(names(), ["db-0", "db-1", "db-2"]);
    let before = model.with(|world| world.facts().len());
    tester.pass(10 * SECOND);
    assert_eq!(model.with(|world| world.facts().len()), before, "and that is all");
}
