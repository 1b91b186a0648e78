//! What a run says of the nodes that it leaves alone.

use std::collections::BTreeMap;

use spot_core::capacity::Class;
use spot_core::model::{NodeSpec, WorkloadSpec, WorldBuilder};
use spot_core::reason::{Reason, ReasonKind};

use super::*;

/// Nodes, each with why it was refused.
type Refused = Vec<(String, Vec<ReasonKind>)>;

/// What a run tells: the refused nodes with their reasons, and the counts of its last judgement.
fn told(model: &Model, settings: &Settings) -> (Refused, BTreeMap<ReasonKind, usize>) {
    let notes = Notes::default();
    let migrator = Migrator::new(model.process().ports_alone(Arc::new(notes.clone())), settings.clone());
    let run = model::block_on(model, async { migrator.once(&Stop::default()).await });
    let _report = run.expect("it ends").expect("the run can be made");
    let (mut refused, mut counted) = (Vec::new(), BTreeMap::new());
    for event in notes.all() {
        match event {
            Progress::Refused { node, reasons } => {
                refused.push((node.name.to_string(), reasons.iter().map(Reason::kind).collect()));
            }
            Progress::Judged { refused, .. } => counted = refused,
            _other => {}
        }
    }
    refused.sort();
    (refused, counted)
}

#[test]
fn each_refused_node_is_told_of_once_a_run_with_its_reasons_and_counted() {
    let on = |name: &str| NodeSpec::new(Class::OnDemand).named(name).label("own", name);
    let model = WorldBuilder::default()
        .node(on("od-1"))
        .node(on("od-2"))
        .node(on("od-3"))
        .node(NodeSpec::new(Class::Spot).label("own", "od-1"))
        .workload(WorkloadSpec::bare("pet", 1).selects("own", "od-1"))
        .build();
    // Known only of a node that the cloud is asked about.
    model.with(|world| world.set_refusals("od-2", vec![Reason::Plain(ReasonKind::TerminationProtected)]));
    let (refused, counted) = told(&model, &settings());
    let expected = [("od-1", ReasonKind::UnmanagedPod), ("od-2", ReasonKind::TerminationProtected)];
    assert_eq!(refused, expected.map(|(node, kind)| (node.to_owned(), vec![kind])));
    assert_eq!(counted, expected.map(|(_, kind)| (kind, 1)).into());
}

#[test]
fn a_node_that_may_not_go_any_more_in_the_course_of_a_run_is_told_of_at_its_end() {
    let on = |name: &str| NodeSpec::new(Class::OnDemand).named(name).group("od");
    let model = WorldBuilder::default()
        .node(on("od-1"))
        .node(on("od-2"))
        .node(on("od-3"))
        .node(NodeSpec::new(Class::Spot))
        .build();
    model.with(|world| world.set_group_floor("od", 1));
    let (refused, counted) = told(&model, &settings());
    assert!(matches!(&refused[..], [(_, why)] if why.contains(&ReasonKind::GroupAtMinimum)), "{refused:?}");
    assert_eq!(counted, BTreeMap::from([(ReasonKind::GroupAtMinimum, 1)]));
}
