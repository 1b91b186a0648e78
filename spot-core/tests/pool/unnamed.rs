//! Nodes of the pool whose machine the cloud can't name: machines without a node may be theirs, pods and all.

use spot_core::model::{Call, Model};
use spot_core::pool::Outcome;

use super::roll::{TERMS, builder, fleets};
use super::support::*;

/// As without a cloud controller, and by somebody else's.
const IDS: [&str; 2] = ["", "k3s://some-name"];

fn terminated(model: &Model) -> usize {
    calls(model, |call| matches!(call, Call::Terminate { .. }))
}

fn assert_blocked_by(outcome: &Outcome, name: &str, id: &str) {
    let Outcome::Blocked(nodes) = outcome else { panic!("{outcome:?}") };
    let blocked: Vec<_> = nodes.iter().map(|(node, why)| (&*node.name, why.to_string())).collect();
    let [(node, why)] = &blocked[..] else { panic!("{blocked:?}") };
    assert!(*node == name && why.starts_with("unsupported_provider_id") && why.contains(id), "{blocked:?}");
}

#[test]
fn a_removal_names_a_node_without_a_known_machine_before_anything_is_touched() {
    for (id, force) in IDS.into_iter().flat_map(|id| [(id, None), (id, Some(MINUTE))]) {
        let model = cluster(&[1, 1]).build();
        model.with(|world| world.set_provider_id("sfr-1-1", id));
        let report = ask(&model, &settings(), Ask::Remove(force));
        assert_blocked_by(&report.outcome, "sfr-1-1", id);
        assert_eq!(calls(&model, is_write), 0);
    }
}

#[test]
fn a_removal_terminates_no_machine_once_a_node_is_no_more_known_by_its_own() {
    let model = cluster(&[1, 1]).build();
    model.with(|world| world.later(MINUTE / 2, |world| world.set_provider_id("sfr-1-1", "")));
    let report = ask(&model, &settings(), Ask::Remove(None));
    assert_blocked_by(&report.outcome, "sfr-1-1", "");
    assert_eq!((terminated(&model), names(&report)), (0, vec!["sfr-1-2"]));
}

#[test]
fn to_scale_terminates_no_machine_that_may_be_a_node_without_a_known_one() {
    for id in IDS {
        let model = cluster(&[1, 1]).build();
        model.with(|world| world.set_provider_id("sfr-1-1", id));
        let report = ask(&model, &settings(), Ask::Scale(0));
        assert_blocked_by(&report.outcome, "sfr-1-1", id);
        assert_eq!((terminated(&model), names(&report)), (0, vec!["sfr-1-2"]));
    }
}

#[test]
fn a_roll_terminates_no_machine_that_may_be_a_node_without_a_known_one() {
    for id in IDS {
        let model = builder().build();
        model.with(|world| world.set_provider_id("old-2", id));
        let report = ask(&model, &settings(), Ask::Roll(TERMS));
        assert_blocked_by(&report.outcome, "old-2", id);
        assert_eq!((terminated(&model), fleets(&model)["new"].0), (0, 0), "and buys nothing that would be too much");
    }
}

#[test]
fn a_roll_goes_on_once_the_machine_is_known() {
    let model = builder().build();
    model.with(|world| {
        let known = world.node("old-2").unwrap().provider_id.clone();
        world.set_provider_id("old-2", "");
        world.later(5 * MINUTE, move |world| world.set_provider_id("old-2", &known));
    });
    let report = ask(&model, &settings(), Ask::Roll(TERMS));
    assert_eq!((report.outcome, report.retired.len(), terminated(&model)), (Outcome::Done, 3, 0));
}
