//! What earlier work on a pool left half done.

use spot_core::model::fault::Fault;
use spot_core::model::{self, Call, FleetSpec, Invariants, Limits, Offer, WorldBuilder};
use spot_core::node::ClaimAnnotation;
use spot_core::pool::Outcome;
use spot_core::ports::EvictAnswer;
use spot_core::stop::Stop;

use super::scale::limits;
use super::support::*;

#[test]
fn what_earlier_work_left_is_given_back_by_who_waits_for_the_pool() {
    let model = cluster(&[1, 1]).build();
    model.with(|world| world.fault_when(1, Fault::KillAfter, is_claim));
    ask_in_vain(&model, &settings(), Ask::Scale(1));
    assert_eq!(ask(&model, &settings(), Ask::Ready(2)).outcome, Outcome::Done);
    assert_eq!((calls(&model, |call| matches!(call, Call::Evict { .. })), only(&model)), (0, (2, vec![1, 1])));
    let left =
        model.with(|world| world.view().nodes().iter().filter(|node| node.claim != ClaimAnnotation::Absent).count());
    assert_eq!(left, 0);
}

#[test]
fn what_is_on_its_way_out_leaves_no_room_for_other_leftovers() {
    let late = |settings: &mut model::Settings| settings.describe_lag = MINUTE / 2;
    let builder = WorldBuilder::default().settings(late).spot(2).fleet(fleet(&[1, 1, 1, 1])).deployment("web", 12);
    let model = builder.build();
    let mut both = settings();
    both.policy.budgets.at_once = 2;
    model.with(|world| {
        let of_first: Vec<_> = world.view().pods_on("sfr-1-1").map(|pod| pod.uid.clone()).collect();
        let later = Fault::Evict(EvictAnswer::Budget { budget: None, retry_after: None });
        world.fault_when(2, later, move |call| matches!(call, Call::Evict { pod, .. } if of_first.contains(&pod.uid)));
        world.fault_when(1, Fault::KillAfter, |call| matches!(call, Call::DeleteInstance { .. }));
    });
    ask_in_vain(&model, &both, Ask::Scale(2));
    let claimed = model.with(|world| world.view().nodes().iter().filter(|node| node.unschedulable).count());
    assert_eq!(claimed, 2, "the second is on its way out, and the first is not");
    let invariants = Invariants::watch(&model, limits(3));
    assert_eq!(ask(&model, &both, Ask::Scale(3)).outcome, Outcome::Done);
    assert_eq!((invariants.at_the_end(&model), only(&model)), (vec![], (3, vec![1, 1, 1])));
}

#[test]
fn of_several_leftovers_only_as_many_go_as_the_pool_is_to_lose_now() {
    let model = cluster(&[1, 1, 1, 1]).build();
    let mut both = settings();
    both.policy.budgets.at_once = 2;
    model.with(|world| world.fault_when(1, Fault::KillAfter, |call| matches!(call, Call::Evict { .. })));
    let killed = try_ask(&model, &model.process(), &both, Ask::Scale(2), &Stop::default());
    let claimed = model.with(|world| world.view().nodes().iter().filter(|node| node.unschedulable).count());
    assert!(killed.is_err() && claimed == 2, "{claimed} are claimed");
    let invariants = Invariants::watch(&model, Limits { nodes_at_once: 2, ..limits(3) });
    assert_eq!(ask(&model, &settings(), Ask::Scale(3)).outcome, Outcome::Done);
    assert_eq!((invariants.at_the_end(&model), only(&model)), (vec![], (3, vec![1, 1, 1])));
}

#[test]
fn a_leftover_that_the_pool_is_to_keep_is_given_back_with_what_its_fleet_wanted() {
    let model = cluster(&[1, 1]).build();
    model.with(|world| world.fault_when(1, Fault::KillAfter, is_claim));
    ask_in_vain(&model, &settings(), Ask::Scale(1));
    let invariants = Invariants::watch(&model, limits(2));
    assert_eq!(ask(&model, &settings(), Ask::Scale(2)).outcome, Outcome::Done);
    assert_eq!((invariants.at_the_end(&model), only(&model)), (vec![], (2, vec![1, 1])));
}

#[test]
fn a_leftover_that_the_cloud_would_not_delete_just_now_goes_by_the_same_command() {
    let spec = FleetSpec::new(FLEET, 3).members(&[1, 1, 1]).offer(Offer::new(1).left(0));
    let model = WorldBuilder::default().spot(2).fleet(spec).guarded("web", 8, 1).build();
    model.with(|world| world.fault_when(1, Fault::KillAfter, is_claim));
    ask_in_vain(&model, &settings(), Ask::Scale(1));
    // What is launched in its place never comes: its fleet is not steady until it wants less.
    model.with(|world| world.terminate_machine("sfr-1-3"));
    let report = ask(&model, &settings(), Ask::Scale(1));
    assert_eq!((&report.outcome, report.retired.len(), report.failed.len()), (&Outcome::Done, 1, 0), "{report:?}");
    assert_eq!(only(&model), (1, vec![1]));
}

#[test]
fn a_node_whose_retirement_failed_is_tried_again_as_soon_as_a_person_asks() {
    let model = cluster(&[1, 1]).build();
    let denied = EvictAnswer::Denied("pods/eviction is forbidden".to_owned());
    model.with(|world| world.fault_when(2, Fault::Evict(denied), |call| matches!(call, Call::Evict { .. })));
    let failed = ask(&model, &settings(), Ask::Scale(0));
    assert_eq!((&failed.outcome, failed.failed.is_empty()), (&Outcome::Failed, false), "{failed:?}");
    assert_eq!(ask(&model, &settings(), Ask::Scale(0)).outcome, Outcome::Done);
}
