//! Members of fleets that maintain their capacity.

use std::collections::BTreeMap;

use spot_core::claim::FleetBefore;
use spot_core::cloud::Deletion;
use spot_core::error::ErrorClass;
use spot_core::reason::ReasonKind;

use crate::double::{Fault, Fleet, tagged};
use crate::support::{World, class, id, kinds, secs};

/// Words of a refusal, and what brings it about.
type Refused = (&'static str, fn(&World));

const EC2_FLEET: &str = "fleet-1";
const SPOT_FLEET: &str = "sfr-1";

/// A fleet of so many members of weight 2, on demand or spot.
fn world(fleet: &str, members: u32, lifecycle: Option<&'static str>) -> World {
    let mut world = World::new();
    for number in 1..=members {
        world.add(number, lifecycle);
        world.change_instance(number, |instance| instance.tags.extend([tagged(fleet)]));
    }
    let on_demand = if lifecycle.is_none() { 2 * members } else { 0 };
    world.aws.state().fleets.insert(
        fleet.to_owned(),
        Fleet {
            target: 2 * members,
            on_demand,
            members: (1..=members).map(id).collect(),
            weights: BTreeMap::from([("m5.large".to_owned(), "2.0".to_owned())]),
            ..Fleet::maintaining()
        },
    );
    world
}

fn change(world: &World, fleet: &str, change: impl FnOnce(&mut Fleet)) {
    change(world.aws.state().fleets.get_mut(fleet).unwrap());
}

fn targets(world: &World, fleet: &str) -> (u32, u32) {
    let state = world.aws.state();
    (state.fleets[fleet].target, state.fleets[fleet].on_demand)
}

fn alive(world: &World) -> Vec<String> {
    let state = world.aws.state();
    state.instances.iter().filter(|(_, one)| one.is_alive()).map(|(id, _)| id.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn rb_09_exactly_the_chosen_instance_goes_and_the_target_falls_by_its_weight() {
    for fleet in [EC2_FLEET, SPOT_FLEET] {
        for (lifecycle, left) in [(Some("spot"), (4, 0)), (None, (4, 4))] {
            let world = world(fleet, 3, lifecycle);
            let fact = world.fact(2).await;
            let group = fact.group.clone().unwrap();
            assert_eq!((kinds(&fact), group.desired, group.weight), (vec![], 6, 2));
            assert_eq!(world.delete(2).await.unwrap(), Deletion::Accepted);
            world.pass(300).await;
            world.assert_nothing_else_happened();
            assert_eq!((alive(&world), targets(&world, fleet)), (vec![id(1), id(3)], left), "{fleet}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rb_09_of_a_fleet_of_both_the_on_demand_target_falls_with_an_on_demand_member_only() {
    for fleet in [EC2_FLEET, SPOT_FLEET] {
        for (number, left) in [(1, (6, 2)), (4, (6, 4))] {
            let world = world(fleet, 4, None);
            for spot in [3, 4] {
                world.change_instance(spot, |instance| instance.lifecycle = Some("spot"));
            }
            change(&world, fleet, |fleet| fleet.on_demand = 4);
            world.delete(number).await.unwrap();
            world.pass(300).await;
            world.assert_nothing_else_happened();
            assert_eq!(targets(&world, fleet), left, "{fleet}, node {number}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rb_09_the_instance_goes_only_when_the_fleet_is_not_being_modified() {
    let world = world(EC2_FLEET, 3, None);
    change(&world, EC2_FLEET, |fleet| fleet.modified = Some(tokio::time::Instant::now()));
    assert_eq!(world.refusals(2).await, [ReasonKind::GroupRefreshing]);
    world.delete(2).await.unwrap();
    world.pass(300).await;
    world.assert_nothing_else_happened();
    let writes: Vec<_> = world.aws.writes().into_iter().map(|call| call.action).collect();
    assert_eq!(writes, ["ec2:ModifyFleet", "ec2:TerminateInstances"]);
}

#[tokio::test(start_paused = true)]
async fn rb_09_a_lowering_is_not_repeated() {
    for fleet in [EC2_FLEET, SPOT_FLEET] {
        let modify = if fleet == EC2_FLEET { "ec2:ModifyFleet" } else { "ec2:ModifySpotFleetRequest" };
        // Lost on the way back; and by a process that was killed before it terminated the instance.
        for fault in [Fault::LostAnswer, Fault::HangAfterwards] {
            let world = world(fleet, 3, None);
            world.aws.fail(modify, fault, 1);
            world.delete(2).await.unwrap();
            world.pass(300).await;
            world.assert_nothing_else_happened();
            assert_eq!((targets(&world, fleet), world.aws.count(modify)), ((4, 4), 1), "{fault:?}");
        }
        let world = world(fleet, 3, None);
        change(&world, fleet, |fleet| (fleet.target, fleet.on_demand, fleet.terminates_excess) = (4, 4, false));
        world.delete(2).await.unwrap();
        assert_eq!((targets(&world, fleet), world.aws.count(modify)), ((4, 4), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_member_may_not_go_after_all_keeps_what_it_kept() {
    let refusals: [Refused; 3] = [
        ("not allowed", |world| world.aws.fail("ec2:TerminateInstances", Fault::Denied, u32::MAX)),
        ("termination_protected", |world| {
            // While the fleet is being modified: the next look finds it.
            let aws = world.aws.clone();
            tokio::spawn(async move {
                tokio::time::sleep(secs(2)).await;
                aws.state().instances.get_mut(&id(2)).unwrap().protected = true;
            });
        }),
        ("identity_mismatch", |world| {
            let aws = world.aws.clone();
            tokio::spawn(async move {
                tokio::time::sleep(secs(2)).await;
                "other".clone_into(&mut aws.state().instances.get_mut(&id(2)).unwrap().dns);
            });
        }),
    ];
    for fleet in [EC2_FLEET, SPOT_FLEET] {
        for (why, refuse) in &refusals {
            let world = world(fleet, 3, None);
            refuse(&world);
            let error = world.delete(2).await.unwrap_err();
            assert!(error.class.had_no_effect(), "{why}: {error}");
            let words = error.to_string();
            assert!(words.contains(why) && words.contains(&format!("fleet {fleet} keeps 6 again")), "{words}");
            world.pass(300).await;
            world.assert_nothing_else_happened();
            assert_eq!((alive(&world).len(), targets(&world, fleet)), (3, (6, 6)), "{fleet}, {why}");
            assert!(world.aws.state().fleets[fleet].terminates_excess, "its policy too");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_somebody_changed_meanwhile_is_not_raised() {
    let world = world(EC2_FLEET, 3, None);
    world.aws.fail("ec2:TerminateInstances", Fault::Throttled, u32::MAX);
    assert_eq!(class(&world.delete(2).await), ErrorClass::Transient);
    change(&world, EC2_FLEET, |fleet| (fleet.target, fleet.on_demand) = (2, 2));
    world.aws.fail("ec2:TerminateInstances", Fault::Denied, u32::MAX);
    let words = world.delete(2).await.unwrap_err().to_string();
    assert!(words.contains("fleet fleet-1 kept 6 before, and was not raised again"), "{words}");
    assert_eq!(targets(&world, EC2_FLEET), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn members_of_one_fleet_go_one_after_the_other_though_ec2_tells_of_it_late() {
    let world = world(EC2_FLEET, 4, None);
    world.aws.state().lag = secs(10);
    let ended = futures::future::join_all([1, 2].map(|number| world.delete(number))).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    world.pass(300).await;
    world.assert_nothing_else_happened();
    assert_eq!((alive(&world), targets(&world, EC2_FLEET)), (vec![id(3), id(4)], (4, 4)));
    assert_eq!(world.aws.count("ec2:ModifyFleet"), 2, "once for each");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_has_less_than_its_target_lets_nobody_go() {
    let world = world(EC2_FLEET, 3, None);
    change(&world, EC2_FLEET, |fleet| fleet.target = 8);
    assert_eq!(world.refusals(2).await, [ReasonKind::InstanceInTransition], "before anything is drained");
    assert_eq!(class(&world.delete(2).await), ErrorClass::Permanent);
    assert!(world.aws.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_launches_what_it_lacks_is_waited_for_when_its_member_is_drained() {
    let world = world(EC2_FLEET, 3, None);
    change(&world, EC2_FLEET, |fleet| fleet.target = 8);
    world.pass(50).await;
    assert_eq!(world.delete(2).await.unwrap(), Deletion::Accepted);
    world.pass(300).await;
    assert_eq!(world.aws.state().launched.len(), 1, "what it lacked, no more");
    assert_eq!(targets(&world, EC2_FLEET).0, 6);
}

/// What is recorded on a node before its machine goes, by the survey's word.
async fn record(world: &World, number: u32) -> FleetBefore {
    FleetBefore::of(&world.fact(number).await.group.unwrap()).unwrap()
}

/// Has a member deleted as the core does, run after run, until it goes.
async fn delete_in_the_end(world: &World, number: u32, before: &FleetBefore) {
    let mut before = before.clone();
    for _run in 0..5 {
        match world.delete_recorded(number, &before).await {
            Ok(deletion) => {
                assert_eq!(deletion, Deletion::Accepted);
                return;
            }
            Err(error) => assert_eq!(error.class, ErrorClass::Permanent, "{error}"),
        }
        // It was released: another run begins anew.
        world.pass(100).await;
        before = record(world, number).await;
    }
    panic!("it does not go");
}

#[tokio::test(start_paused = true)]
async fn rb_77_wherever_the_process_dies_the_target_falls_once_whatever_the_fleet_loses_meanwhile() {
    for (fleet, lost) in [(EC2_FLEET, false), (EC2_FLEET, true), (SPOT_FLEET, true)] {
        let mut kills = 0;
        loop {
            let mut world = world(fleet, 3, None);
            let before = record(&world, 2).await;
            assert_eq!((before.target, before.on_demand), (6, 6));
            // Between any two calls.
            let lives = std::time::Duration::from_millis(20 * kills + 10);
            if tokio::time::timeout(lives, world.delete_recorded(2, &before)).await.is_ok() {
                break;
            }
            if lost {
                world.aws.state().shut_down(&id(3));
                // Where the target stands, that is replaced; where it was lowered, it is not missed yet.
                world.pass(100).await;
            }
            world.restart();
            delete_in_the_end(&world, 2, &before).await;
            world.pass(120).await;
            let launched = world.aws.state().launched.len();
            let what = format!("{fleet} killed after {kills} calls, another one lost: {lost}");
            assert_eq!(targets(&world, fleet), (4, 4), "{what}");
            assert_eq!(launched, usize::from(lost), "{what}: only what was lost is replaced");
            assert_eq!(world.state_of(1), "running", "{what}");
            kills += 1;
        }
        assert!(kills > 10, "{fleet}: the calls of one deletion: {kills}");
    }
}

#[tokio::test(start_paused = true)]
async fn rb_77_a_target_that_somebody_else_changed_is_left_alone() {
    for (total, on_demand) in [(8, 8), (5, 5), (6, 3), (0, 0)] {
        let world = world(EC2_FLEET, 3, None);
        let before = record(&world, 2).await;
        change(&world, EC2_FLEET, |fleet| {
            (fleet.target, fleet.on_demand, fleet.terminates_excess) = (total, on_demand, false);
        });
        world.pass(120).await;
        let answer = world.delete_recorded(2, &before).await;
        assert_eq!(class(&answer), ErrorClass::Permanent, "{total}");
        let words = answer.unwrap_err().to_string();
        assert!(words.contains("wanted 6") && words.contains(&format!("wants {total} now")), "{words}");
        assert!(world.aws.writes().is_empty(), "{total}");
        let another = FleetBefore { fleet: "fleet-2".to_owned(), ..before };
        assert_eq!(class(&world.delete_recorded(2, &another).await), ErrorClass::Permanent);
    }
}

#[tokio::test(start_paused = true)]
async fn rb_77_what_another_process_lowered_is_raised_again_for_a_member_that_stays() {
    let world = world(EC2_FLEET, 3, None);
    let before = record(&world, 2).await;
    change(&world, EC2_FLEET, |fleet| {
        (fleet.target, fleet.on_demand, fleet.terminates_excess) = (4, 4, false);
    });
    world.aws.fail("ec2:TerminateInstances", Fault::Denied, u32::MAX);
    assert_eq!(class(&world.delete_recorded(2, &before).await), ErrorClass::Denied);
    assert_eq!(targets(&world, EC2_FLEET), (6, 6));
}

#[tokio::test(start_paused = true)]
async fn rb_77_what_another_process_lowered_is_raised_again_for_a_member_that_is_released() {
    for fleet in [EC2_FLEET, SPOT_FLEET] {
        let world = world(fleet, 3, None);
        let before = record(&world, 2).await;
        lower(&world, fleet, (4, 4));
        world.attach_recorded(2, &before).await.unwrap();
        world.attach_recorded(2, &before).await.unwrap();
        world.pass(300).await;
        world.assert_nothing_else_happened();
        assert_eq!((targets(&world, fleet), alive(&world).len(), world.aws.writes().len()), ((6, 6), 3, 1), "{fleet}");
        // Another run has it go.
        let before = record(&world, 2).await;
        world.delete_recorded(2, &before).await.unwrap();
        world.pass(300).await;
        world.assert_nothing_else_happened();
        assert_eq!((targets(&world, fleet), alive(&world)), ((4, 4), vec![id(1), id(3)]), "{fleet}");
    }
}

#[tokio::test(start_paused = true)]
async fn rb_77_a_target_is_not_raised_that_was_not_lowered_or_not_for_this_member() {
    let untouched: [Refused; 4] = [
        ("it was never lowered", |_| {}),
        ("somebody changed it", |world| lower(world, EC2_FLEET, (2, 2))),
        ("a sibling is gone for it", |world| {
            lower(world, EC2_FLEET, (4, 4));
            world.aws.state().shut_down(&id(3));
        }),
        ("its machine goes", |world| {
            lower(world, EC2_FLEET, (4, 4));
            world.aws.state().shut_down(&id(2));
        }),
    ];
    for (what, bring_about) in untouched {
        let world = world(EC2_FLEET, 3, None);
        let before = record(&world, 2).await;
        bring_about(&world);
        world.attach_recorded(2, &before).await.unwrap();
        assert!(world.aws.writes().is_empty(), "{what}");
    }
    // This process has lowered it for another member, and that is used up.
    let world = world(EC2_FLEET, 3, None);
    let before = record(&world, 2).await;
    world.delete_recorded(1, &before).await.unwrap();
    let writes = world.aws.writes().len();
    world.attach_recorded(2, &before).await.unwrap();
    assert_eq!(world.aws.writes().len(), writes);
}

#[tokio::test(start_paused = true)]
async fn rb_77_a_fleet_that_could_not_be_raised_again_is_told() {
    let world = world(EC2_FLEET, 3, None);
    let before = record(&world, 2).await;
    lower(&world, EC2_FLEET, (4, 4));
    world.aws.fail("ec2:DescribeFleetInstances", Fault::Denied, u32::MAX);
    let words = world.attach_recorded(2, &before).await.unwrap_err().to_string();
    assert!(words.contains("whether fleet fleet-1 was lowered"), "{words}");
    world.aws.fail("ec2:DescribeFleetInstances", Fault::Denied, 0);
    world.aws.fail("ec2:ModifyFleet", Fault::Denied, u32::MAX);
    let words = world.attach_recorded(2, &before).await.unwrap_err().to_string();
    assert!(words.contains("fleet fleet-1, which kept 6 before, was not raised again"), "{words}");
}

/// An earlier process has lowered a fleet's target.
fn lower(world: &World, fleet: &str, target: (u32, u32)) {
    change(world, fleet, |fleet| ((fleet.target, fleet.on_demand), fleet.terminates_excess) = (target, false));
}

#[tokio::test(start_paused = true)]
async fn rb_77_of_members_that_go_side_by_side_each_lowers_the_target_once() {
    let world = world(EC2_FLEET, 4, None);
    let before = record(&world, 1).await;
    let deletions = [1, 2, 3].map(|number| world.delete_recorded(number, &before));
    assert!(futures::future::join_all(deletions).await.iter().all(Result::is_ok), "all recorded the same");
    world.pass(300).await;
    world.assert_nothing_else_happened();
    assert_eq!((targets(&world, EC2_FLEET), alive(&world)), ((2, 2), vec![id(4)]));
}

#[tokio::test(start_paused = true)]
async fn a_fraction_of_a_weight_is_refused() {
    for (weight, refused) in [("2.0", false), ("1", false), ("0.5", true), ("1.25", true), ("0", true)] {
        let world = world(EC2_FLEET, 3, None);
        change(&world, EC2_FLEET, |fleet| {
            fleet.weights.insert("m5.large".to_owned(), weight.to_owned());
            (fleet.target, fleet.on_demand, fleet.terminates_excess) = (3, 3, false);
        });
        let fact = world.fact(1).await;
        let expected = if refused { vec![ReasonKind::FractionalWeight] } else { vec![] };
        assert_eq!(kinds(&fact), expected, "{weight}");
        if refused {
            assert_eq!(class(&world.delete(1).await), ErrorClass::Permanent);
        }
    }
    let world = world(EC2_FLEET, 3, None);
    world.change_instance(1, |instance| "m5.large.unheard-of".clone_into(&mut instance.kind));
    assert_eq!(world.refusals(1).await, [ReasonKind::FractionalWeight], "of a type that the fleet does not weigh");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_does_not_maintain_is_nobodys_keeper() {
    for kind in ["request", "instant"] {
        let world = world(EC2_FLEET, 2, None);
        change(&world, EC2_FLEET, |fleet| fleet.kind = kind);
        assert_eq!(world.fact(1).await.group, None);
        world.delete(1).await.unwrap();
        let writes: Vec<_> = world.aws.writes().into_iter().map(|call| call.action).collect();
        assert_eq!(writes, ["ec2:TerminateInstances"], "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_has_ended_is_nobodys_keeper_and_one_in_an_unknown_state_lets_nobody_go() {
    for (fleet, state, writes) in [
        (EC2_FLEET, "deleted_running", vec!["ec2:TerminateInstances"]),
        (SPOT_FLEET, "cancelled_running", vec!["ec2:TerminateInstances"]),
        (EC2_FLEET, "rebalancing", vec![]),
        (SPOT_FLEET, "rebalancing", vec![]),
    ] {
        let world = world(fleet, 2, None);
        change(&world, fleet, |fleet| fleet.ended = Some(state));
        let refusals = if writes.is_empty() { vec![ReasonKind::InstanceInTransition] } else { vec![] };
        assert_eq!(world.refusals(1).await, refusals, "{state}");
        assert_eq!(world.delete(1).await.is_ok(), !writes.is_empty(), "{state}");
        let made: Vec<_> = world.aws.writes().into_iter().map(|call| call.action).collect();
        assert_eq!(made, writes, "{fleet} {state}");
    }
}

#[tokio::test(start_paused = true)]
async fn rb_77_the_double_picks_a_victim_and_replaces_what_went() {
    let first = world(EC2_FLEET, 3, None);
    change(&first, EC2_FLEET, |fleet| (fleet.target, fleet.on_demand) = (4, 4));
    first.pass(1).await;
    assert_eq!(first.aws.state().victims.len(), 1, "it terminates what is too much unless told not to");
    let second = world(EC2_FLEET, 3, None);
    second.aws.state().shut_down(&id(1));
    second.pass(120).await;
    assert_eq!(second.aws.state().launched.len(), 1, "it replaces what went while its target stands");
}
