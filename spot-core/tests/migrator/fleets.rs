//! Fleets, which are told to want less before a machine goes: what they wanted is recorded on the node first.

use spot_core::claim::{ClaimStep, FleetBefore};
use spot_core::error::ErrorClass;
use spot_core::model::WorldBuilder;
use spot_core::model::fault::Fault;
use spot_core::progress::OutcomeKind;

use super::*;

const GROUP: &str = "on-demand";

/// On-demand nodes of one fleet, whose pods take a minute to stop.
fn fleet(nodes: u32) -> Model {
    let web = spot_core::model::WorkloadSpec::deployment("web", 2 * nodes).stop(MINUTE);
    let model = WorldBuilder::default().on_demand(nodes).spot(2).workload(web).build();
    model.with(|world| world.make_fleet(GROUP));
    model
}

/// What is recorded by a write that announces a deletion.
fn recorded(call: &Call) -> Option<(String, Option<FleetBefore>)> {
    let Call::WriteNode { node, change } = call else { return None };
    let Edit::Set(claim) = &change.claim else { return None };
    (claim.step == ClaimStep::Deleting).then(|| (node.name.to_string(), claim.fleet_before.clone()))
}

fn all_recorded(model: &Model) -> Vec<(String, u32)> {
    model.with(|world| {
        let recorded = world.calls().iter().filter_map(|record| recorded(&record.call));
        recorded.map(|(node, before)| (node, before.expect("what the fleet wanted").target)).collect()
    })
}

fn pairs(expected: &[(&str, u32)]) -> Vec<(String, u32)> {
    expected.iter().map(|(node, target)| ((*node).to_owned(), *target)).collect()
}

#[test]
fn what_a_fleet_wants_by_then_is_recorded_before_each_machine_is_asked_for() {
    let model = fleet(3);
    // Another one goes by itself in the middle of the first drain.
    model.with(|world| world.later(Duration::from_secs(30), |world| world.terminate_machine("od-3")));
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1", "od-2"], "{report:?}");
    assert_eq!(all_recorded(&model), pairs(&[("od-1", 2), ("od-2", 1)]));
}

#[test]
fn those_that_go_side_by_side_are_recorded_too() {
    let model = fleet(4);
    let mut settings = settings();
    settings.policy.budgets.at_once = 2;
    let report = once(&model, &settings);
    assert_eq!(report.retired.len(), 4, "{report:?}");
    assert_eq!(all_recorded(&model).len(), 4);
}

#[test]
fn of_a_group_that_is_no_fleet_nothing_is_recorded() {
    let model = WorldBuilder::default().on_demand(2).spot(2).deployment("web", 4).build();
    assert_eq!(once(&model, &settings()).retired.len(), 2);
    let recorded =
        model.with(|world| world.calls().iter().filter_map(|record| recorded(&record.call)).collect::<Vec<_>>());
    assert!(recorded.len() == 2 && recorded.iter().all(|(_, before)| before.is_none()), "{recorded:?}");
}

#[test]
fn what_an_earlier_process_recorded_stays_and_a_fleet_that_was_changed_since_is_left_alone() {
    for changed in [false, true] {
        let model = fleet(3);
        model.with(|world| world.fault_when(1, Fault::KillAfter, |call| recorded(call).is_some()));
        assert!(matches!(try_once(&model, &model.process(), &settings()), Err(Halt::Killed)));
        if changed {
            model.with(|world| world.terminate_machine("od-3"));
        }
        let report = once(&model, &settings());
        assert_eq!(outcome(&report), OutcomeKind::Recovered, "{report:?}");
        assert_eq!(all_recorded(&model), pairs(&[("od-1", 3), ("od-1", 3)]), "not recorded anew");
        let (retired, failed) = (names(&report.retired).len(), report.failed.len());
        assert_eq!((retired, failed), if changed { (0, 1) } else { (1, 0) }, "{report:?}");
    }
}

#[test]
fn a_fleet_that_can_not_be_asked_fails_the_node_before_its_deletion_is_announced() {
    let model = fleet(1);
    let tainted = std::sync::atomic::AtomicBool::new(false);
    model.with(|world| {
        world.fault_when(1, Fault::Fail(ErrorClass::Denied), move |call| {
            tainted.fetch_or(is_taint(call), std::sync::atomic::Ordering::Relaxed);
            tainted.load(std::sync::atomic::Ordering::Relaxed) && matches!(call, Call::Survey { .. })
        });
    });
    let report = once(&model, &settings());
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert_eq!((all_recorded(&model), calls(&model, is_delete)), (Vec::new(), 0));
    assert_clean(&model);
}
