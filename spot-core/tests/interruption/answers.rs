//! The answer to each kind of notice.

use spot_core::capacity::Class;
use spot_core::interruption::{Announcement, MachineState, Rebalance, Reclaim};
use spot_core::model::fault::Fault;
use spot_core::model::{Allowance, NodeSpec, Spread, WorkloadSpec, WorldBuilder};
use spot_core::node::Effect;

use super::*;

const HOUR: Duration = Duration::from_hours(1);

/// A node of this name, that pods which select it run on.
fn own(name: &str) -> NodeSpec {
    NodeSpec::new(Class::Spot).named(name).label("own", name)
}

/// Pods of the node of this name.
fn on(node: &str, spec: WorkloadSpec) -> WorkloadSpec {
    spec.selects("own", node)
}

fn later(model: &Model, by: Duration) -> Timestamp {
    model.with(|world| world.wall().checked_add(by).unwrap())
}

fn announce(model: &Model, node: &str, announcement: Announcement) {
    model.with(|world| {
        let instance = world.machine_of(node).unwrap();
        world.announce(instance, announcement);
    });
}

fn soft(node: &NodeSnapshot) -> bool {
    node.taints.iter().any(|taint| taint.is(key::REBALANCE, Effect::PreferNoSchedule))
}

#[test]
fn an_interrupted_node_is_cordoned_at_once_and_empty_before_its_machine_goes() {
    let model = WorldBuilder::default().spot(3).deployment("web", 9).build();
    let invariants = watch(&model);
    let message = model.with(|world| world.interrupt("spot-1", Reclaim::Terminate).unwrap());
    assert_eq!(model.with(|world| world.unsettled()), [message]);
    let notes = answering(&model, &settings(), 3 * MINUTE);
    let [(name, after)] = &notes.cordoned()[..] else { panic!("{:?}", notes.told()) };
    assert!(name == "spot-1" && *after < SECOND, "{after:?}");
    assert_eq!(notes.emptied(), [("spot-1".to_owned(), NoticeKind::Interruption)]);
    let gone = departures(&model, "spot-1");
    assert!(gone.len() == 3 && gone.iter().all(|(_, removal, _)| *removal == Removal::Evicted), "{gone:?}");
    assert!(gone.iter().all(|(.., at)| *at < Instant(Duration::from_secs(10))), "{gone:?}");
    assert!(!exists(&model, "spot-1"), "its machine was taken");
    assert!(model.with(|world| world.unsettled()).is_empty());
    assert_eq!(calls(&model, |call| matches!(call, Call::DeleteInstance { .. } | Call::DeleteNode(_))), 0);
    kept(&model, &invariants);
}

#[test]
fn rb_15_grace_is_capped_to_the_time_left_and_what_budgets_hold_back_is_deleted_at_last() {
    let model = WorldBuilder::default()
        .node(own("sp-2"))
        .spot(1)
        .workload(on("sp-2", WorkloadSpec::deployment("a", 1).stop(20 * SECOND)))
        .workload(on("sp-2", WorkloadSpec::deployment("b", 1).stop(600 * SECOND)))
        .workload(on("sp-2", WorkloadSpec::deployment("c", 1).budget(Allowance::MaxUnavailable(0))))
        .build();
    let invariants = watch(&model);
    model.with(|world| world.interrupt("sp-2", Reclaim::Terminate).unwrap());
    let notes = answering(&model, &settings(), 2 * MINUTE);
    assert!(notes.cordoned().iter().all(|(_, after)| *after < SECOND), "{:?}", notes.cordoned());
    assert_eq!(notes.emptied(), [("sp-2".to_owned(), NoticeKind::Interruption)], "{:?}", notes.told());
    let sent = |matches: &dyn Fn(&Call) -> bool| -> Vec<(Call, Instant)> {
        let found = model.with(|world| world.calls().to_vec());
        found.into_iter().filter(|record| matches(&record.call)).map(|record| (record.call, record.sent)).collect()
    };
    let first = sent(&is_eviction);
    assert!(first.iter().take(2).all(|(_, at)| *at < Instant(2 * SECOND)), "all at once: {first:?}");
    let [(Call::Evict { grace: None, .. }, _)] = &sent(&evicting("a-"))[..] else { panic!("its own grace") };
    let [(Call::Evict { grace: Some(grace), .. }, _)] = &sent(&evicting("b-"))[..] else { panic!("capped") };
    assert!(*grace < 2 * MINUTE && *grace > 110 * SECOND, "what is left: {grace:?}");
    let [(Call::DeletePod { grace, .. }, at)] = &sent(&is_pod_deletion)[..] else { panic!("one deletion") };
    assert!(*at >= Instant(59 * SECOND) && *at < Instant(62 * SECOND), "its budget is obeyed until then: {at:?}");
    assert!(*grace > SECOND && *grace < MINUTE, "{grace:?}");
    let gone = departures(&model, "sp-2");
    let how = |name: &str| gone.iter().find(|(pod, ..)| pod.starts_with(name)).map(|(_, how, at)| (*how, *at));
    assert_eq!(how("a-").map(|(how, at)| (how, at < Instant(22 * SECOND))), Some((Removal::Evicted, true)), "in order");
    assert!(matches!(how("b-"), Some((Removal::Evicted, at)) if at < Instant(2 * MINUTE)), "{gone:?}");
    assert!(matches!(how("c-"), Some((Removal::Deleted, at)) if at < Instant(2 * MINUTE)), "{gone:?}");
    kept(&model, &invariants);
}

#[test]
fn a_deadline_that_has_passed_still_gets_one_pass() {
    for stop in [SECOND, 600 * SECOND] {
        let model = WorldBuilder::default()
            .node(own("sp-2"))
            .spot(1)
            .workload(on("sp-2", WorkloadSpec::deployment("web", 3).stop(stop)))
            .workload(on("sp-2", WorkloadSpec::deployment("db", 1).budget(Allowance::MaxUnavailable(0))))
            .build();
        let at = model.with(|world| world.wall());
        model.run_until(Instant(MINUTE)).unwrap();
        announce(&model, "sp-2", Announcement::Interruption { action: Reclaim::Terminate, at });
        let notes = answering(&model, &settings(), MINUTE);
        assert_eq!(notes.emptied(), [("sp-2".to_owned(), NoticeKind::Interruption)], "{:?}", notes.told());
        let gone = departures(&model, "sp-2");
        assert!(gone.len() == 4 && gone.iter().all(|(.., at)| *at < Instant(MINUTE + 6 * SECOND)), "{gone:?}");
        let least = |call: &Call| match call {
            Call::Evict { grace, .. } => grace.is_none_or(|grace| grace >= SECOND),
            Call::DeletePod { grace, .. } => *grace >= SECOND,
            _other => true,
        };
        assert_eq!(calls(&model, |call| !least(call)), 0, "each has a moment at least");
    }
}

#[test]
fn rb_80_recommendations_for_most_of_the_spot_nodes_drain_none_of_them() {
    let model = WorldBuilder::default().spot(10).deployment("web", 40).build();
    for number in 1..=8 {
        announce(&model, &format!("spot-{number}"), Announcement::Rebalance);
    }
    let notes = answering(&model, &settings(), 10 * MINUTE);
    let count = |matches: fn(&NodeSnapshot) -> bool| {
        model.with(|world| world.view().nodes().iter().filter(|node| matches(node)).count())
    };
    assert_eq!(count(soft), 8);
    assert_eq!(count(|node| node.unschedulable), 0);
    assert_eq!((calls(&model, is_eviction), calls(&model, is_claim)), (0, 0));
    assert!(notes.told().iter().all(|told| !matches!(told, Told::Held { .. })), "nothing planned waits for it");

    let notes = answering(&model, &settings(), HOUR);
    assert_eq!(count(soft), 0, "nothing followed, and another process sees that");
    assert_eq!(notes.told().iter().filter(|told| matches!(told, Told::Hardened { .. })).count(), 8);

    let model = WorldBuilder::default().spot(1).build();
    announce(&model, "spot-1", Announcement::Rebalance);
    let notes = answering(&model, &InterruptionSettings { rebalance: Rebalance::Ignore, ..settings() }, MINUTE);
    assert_eq!(notes.ignored(), ["no_action"]);
    assert!(is_clean(&node(&model, "spot-1")));
}

#[test]
fn rb_80_where_recommendations_drain_they_do_so_one_at_a_time_and_as_in_a_planned_run() {
    let slow = WorkloadSpec::deployment("web", 20).stop(10 * SECOND).start_up(30 * SECOND);
    let model = WorldBuilder::default()
        .spot(10)
        .spread(Spread::Everywhere)
        .workload(slow.budget(Allowance::MaxUnavailable(2)))
        .build();
    let invariants = watch(&model);
    let most = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&most);
    model.with(|world| {
        world.after_each_call(move |world, record| {
            let drained = |node: &&Arc<NodeSnapshot>| {
                node.claim != ClaimAnnotation::Absent && !world.movable_pods_on(&node.reference()).is_empty()
            };
            let mut most = seen.lock().unwrap();
            *most = world.view().nodes().iter().filter(drained).count().max(*most);
            if is_claim(&record.call) {
                let starting = world.view().pods().filter(|pod| pod.is_active() && !pod.ready).count();
                assert_eq!(starting, 0, "the pods of the last one run again");
            }
        });
    });
    for number in 1..=8 {
        announce(&model, &format!("spot-{number}"), Announcement::Rebalance);
    }
    let drain = InterruptionSettings { rebalance: Rebalance::Drain, ..settings() };
    let notes = answering(&model, &drain, HOUR);
    assert_eq!(notes.emptied().len(), 8, "{:?}", notes.told());
    assert_eq!(*most.lock().unwrap(), 1, "one at a time");
    assert_eq!(calls(&model, is_pod_deletion), 0);
    assert!(model.with(|world| world.unsettled()).is_empty());
    kept(&model, &invariants);

    let notes = answering(&model, &drain, 2 * HOUR);
    assert_eq!(notes.returned().len(), 8, "nothing followed");
    assert!(model.with(|world| world.view().nodes().iter().all(|node| is_clean(node))));
}

#[test]
fn an_interruption_makes_a_recommended_drain_a_hasty_one_whether_it_waits_or_is_under_way() {
    for interrupted in ["sp-1", "sp-2"] {
        let stuck = |node| on(node, WorkloadSpec::deployment(node, 2).budget(Allowance::MaxUnavailable(0)));
        let model = WorldBuilder::default()
            .node(own("sp-1"))
            .node(own("sp-2"))
            .workload(stuck("sp-1"))
            .workload(stuck("sp-2"))
            .build();
        let invariants = watch(&model);
        announce(&model, "sp-1", Announcement::Rebalance);
        announce(&model, "sp-2", Announcement::Rebalance);
        model.with(|world| world.later(5 * MINUTE, |world| drop(world.interrupt(interrupted, Reclaim::Terminate))));
        let drain = InterruptionSettings { rebalance: Rebalance::Drain, ..settings() };
        let notes = answering(&model, &drain, 8 * MINUTE);
        assert_eq!(notes.emptied(), [(interrupted.to_owned(), NoticeKind::Interruption)], "{:?}", notes.told());
        let gone = departures(&model, interrupted);
        let in_time = |at: &Instant| *at > Instant(359 * SECOND) && *at < Instant(7 * MINUTE);
        assert!(gone.len() == 2 && gone.iter().all(|(_, how, at)| *how == Removal::Deleted && in_time(at)), "{gone:?}");
        kept(&model, &invariants);
    }
}

#[test]
fn a_recommended_drain_that_fails_leaves_nothing_on_its_node_and_the_next_one_follows() {
    let model = WorldBuilder::default()
        .node(own("sp-1"))
        .node(own("sp-2"))
        .workload(on("sp-1", WorkloadSpec::bare("bare", 1)))
        .workload(on("sp-2", WorkloadSpec::deployment("web", 2)))
        .build();
    announce(&model, "sp-1", Announcement::Rebalance);
    announce(&model, "sp-2", Announcement::Rebalance);
    let notes = answering(&model, &InterruptionSettings { rebalance: Rebalance::Drain, ..settings() }, HOUR);
    assert_eq!(notes.emptied(), [("sp-2".to_owned(), NoticeKind::Rebalance)], "{:?}", notes.told());
    assert!(is_clean(&node(&model, "sp-1")) && node(&model, "sp-1").back_off.is_some());
    assert!(model.with(|world| world.unsettled()).is_empty());
}

#[test]
fn an_interruption_that_comes_while_a_recommended_drain_halts_is_answered_all_the_same() {
    let stuck = on("sp-1", WorkloadSpec::deployment("stuck", 2).budget(Allowance::MaxUnavailable(0)));
    let model = WorldBuilder::default().node(own("sp-1")).node(own("sp-2")).workload(stuck).build();
    let invariants = watch(&model);
    announce(&model, "sp-1", Announcement::Rebalance);
    model.with(|world| {
        world.later(5 * MINUTE, |world| {
            world.fault_when(1, Fault::Hang, |call| matches!(call, Call::WriteNode { .. }));
            world.pause(true);
        });
        world.later(5 * MINUTE + SECOND, |world| drop(world.interrupt("sp-1", Reclaim::Terminate)));
    });
    let notes = answering(&model, &InterruptionSettings { rebalance: Rebalance::Drain, ..settings() }, 8 * MINUTE);
    assert_eq!(notes.emptied(), [("sp-1".to_owned(), NoticeKind::Interruption)], "{:?}", notes.told());
    kept(&model, &invariants);
}

#[test]
fn a_recommendation_for_a_node_whose_machine_surely_goes_changes_nothing() {
    let model = WorldBuilder::default().node(own("sp-1")).spot(1).deployment("web", 4).build();
    announce(&model, "sp-1", Announcement::ScheduledChange { at: later(&model, 10 * MINUTE) });
    let drain = InterruptionSettings { rebalance: Rebalance::Drain, ..settings() };
    assert_eq!(answering(&model, &drain, 3 * MINUTE).emptied().len(), 1);
    announce(&model, "sp-1", Announcement::Rebalance);
    let notes = answering(&model, &drain, MINUTE);
    assert_eq!((notes.ignored(), notes.emptied().len()), (vec!["no_action"], 0), "{:?}", notes.told());
    assert!(node(&model, "sp-1").unschedulable && model.with(|world| world.unsettled()).is_empty());
}

#[test]
fn recommendations_wait_for_the_end_of_a_pause() {
    let model = WorldBuilder::default().node(own("sp-1")).node(own("sp-2")).deployment("web", 4).build();
    model.with(|world| {
        world.pause(true);
        world.later(10 * MINUTE, |world| world.pause(false));
    });
    announce(&model, "sp-1", Announcement::Rebalance);
    let drain = InterruptionSettings { rebalance: Rebalance::Drain, ..settings() };
    assert_eq!(answering(&model, &drain, 9 * MINUTE).cordoned(), []);
    assert_eq!(answering(&model, &drain, 5 * MINUTE).emptied(), [("sp-1".to_owned(), NoticeKind::Rebalance)]);
    assert!(model.with(|world| world.unsettled()).is_empty());
}

#[test]
fn a_scheduled_change_holds_no_planned_work_whichever_process_leads() {
    let model = WorldBuilder::default().node(own("sp-1")).spot(1).deployment("web", 4).build();
    announce(&model, "sp-1", Announcement::ScheduledChange { at: later(&model, 10 * MINUTE) });
    for emptied in [1, 0] {
        let notes = answering(&model, &settings(), 3 * MINUTE);
        assert_eq!(notes.emptied().len(), emptied);
        assert!(notes.told().iter().all(|told| !matches!(told, Told::Held { .. })), "{:?}", notes.told());
    }
}

#[test]
fn a_scheduled_change_waits_for_its_time_and_then_obeys_budgets() {
    let model = WorldBuilder::default()
        .node(own("sp-2"))
        .spot(2)
        .workload(on("sp-2", WorkloadSpec::deployment("stuck", 1).budget(Allowance::MaxUnavailable(0))))
        .workload(on("sp-2", WorkloadSpec::bare("bare", 1)))
        .guarded("web", 6, 1)
        .build();
    let invariants = watch(&model);
    let at = later(&model, 2 * HOUR);
    announce(&model, "sp-2", Announcement::ScheduledChange { at });
    let notes = answering(&model, &settings(), 89 * MINUTE);
    assert!(is_clean(&node(&model, "sp-2")), "it is too early: {:?}", notes.told());
    let longest = model.with(|world| world.calls().iter().filter(|one| matches!(one.call, Call::Extend(_))).count());
    assert_eq!(longest, 0, "its message is not held for as long");

    let notes = answering(&model, &settings(), 40 * MINUTE);
    assert!(notes.cordoned().iter().any(|(name, _)| name == "sp-2"), "{:?}", notes.told());
    assert_eq!((calls(&model, is_pod_deletion), notes.emptied().len()), (0, 0), "nothing is deleted");
    let left: Vec<_> = departures(&model, "sp-2").into_iter().map(|(pod, ..)| pod).collect();
    assert!(left.iter().any(|pod| pod.starts_with("bare")), "the machine goes anyway: {left:?}");
    assert!(!left.iter().any(|pod| pod.starts_with("stuck")), "{left:?}");
    assert!(notes.told().iter().any(|told| matches!(told, Told::NotEmptied { why, .. } if why.contains("stuck"))));
    assert!(notes.told().iter().all(|told| !matches!(told, Told::Held { .. })), "spot is not being taken back");
    assert!(model.with(|world| world.unsettled()).is_empty(), "its time has passed");
    kept(&model, &invariants);
}

#[test]
fn a_terminate_action_is_answered_when_its_node_is_empty_and_at_its_deadline_at_the_latest() {
    for (blocked, settled) in [(false, 60..65), (true, 285..300)] {
        let spec = WorkloadSpec::deployment("web", 4).stop(5 * SECOND);
        let spec = spec.budget(Allowance::MaxUnavailable(if blocked { 0 } else { 4 }));
        let model = WorldBuilder::default().node(own("sp-2")).spot(1).workload(on("sp-2", spec)).build();
        let until = later(&model, 5 * MINUTE);
        announce(&model, "sp-2", Announcement::TerminateAction { until });
        let notes = answering(&model, &settings(), 6 * MINUTE);
        let done = |call: &Call| matches!(call, Call::Settle { handled: Handled::Done, .. });
        let at = model.with(|world| world.calls().iter().find(|one| done(&one.call)).map(|one| one.sent)).unwrap();
        assert!(settled.contains(&at.since(Instant::default()).as_secs()), "{blocked}: {at:?}");
        assert_eq!(notes.emptied().len(), usize::from(!blocked));
        assert_eq!(calls(&model, is_pod_deletion), 0, "budgets are obeyed");
        let kept = calls(&model, |call| matches!(call, Call::Extend(_)));
        assert!(kept as u64 >= settled.start / 6, "whoever waits is told that it is worked on: {kept}");
    }
}

#[test]
fn a_launch_action_is_answered_once_its_node_is_ready() {
    for never in [false, true] {
        let model = WorldBuilder::default().spot(1).build();
        model.with(|world| world.set_kubelet("spot-1", false));
        let until = later(&model, 10 * MINUTE);
        announce(&model, "spot-1", Announcement::LaunchAction { until });
        if !never {
            model.with(|world| world.later(3 * MINUTE, |world| world.set_kubelet("spot-1", true)));
        }
        let notes = answering(&model, &settings(), 9 * MINUTE);
        let done = |call: &Call| matches!(call, Call::Settle { handled: Handled::Done, .. });
        let at = model.with(|world| world.calls().iter().find(|one| done(&one.call)).map(|one| one.sent));
        if never {
            assert_eq!(at, None);
            let _notes = answering(&model, &settings(), 2 * MINUTE);
            assert!(calls(&model, |call| matches!(call, Call::Settle { handled: Handled::Later, .. })) > 0);
        } else {
            let at = at.expect("it is answered");
            assert!(at >= Instant(3 * MINUTE) && at < Instant(3 * MINUTE + 2 * SECOND), "{at:?}");
        }
        assert!(notes.cordoned().is_empty());
        assert!(is_clean(&node(&model, "spot-1")));
    }
}

#[test]
fn a_machine_that_goes_down_has_its_node_cordoned_and_nothing_else() {
    let model = WorldBuilder::default().spot(2).deployment("web", 4).build();
    announce(&model, "spot-1", Announcement::StateChange(MachineState::Up));
    announce(&model, "spot-2", Announcement::StateChange(MachineState::Down));
    let notes = answering(&model, &settings(), MINUTE);
    assert!(is_clean(&node(&model, "spot-1")), "{:?}", notes.told());
    assert!(node(&model, "spot-2").unschedulable);
    assert_eq!(calls(&model, is_eviction), 0);
    assert_eq!(notes.ignored(), ["no_action"]);
    assert!(model.with(|world| world.unsettled()).is_empty());
    let notes = answering(&model, &settings(), 15 * MINUTE);
    assert_eq!(notes.returned(), ["spot-2"], "it runs on, by the cloud's own word");
    assert!(is_clean(&node(&model, "spot-2")));
}
