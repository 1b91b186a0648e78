//! Many notices at once, and planned work beside them.

use spot_core::capacity::Class;
use spot_core::error::ErrorClass;
use spot_core::interruption::{Announcement, MachineState, Reclaim};
use spot_core::model::fault::Fault;
use spot_core::model::{Allowance, Answer, NodeSpec, WorkloadSpec, WorldBuilder};
use spot_core::node::Uid;
use spot_core::ports::EvictAnswer;
use spot_core::progress::{OutcomeKind, Report};

use super::*;

const HOUR: Duration = Duration::from_hours(1);

fn runs(notes: &Notes) -> Vec<Report> {
    let ended = |event: Progress| match event {
        Progress::RunEnded { report } => Some(report),
        _other => None,
    };
    notes.all().into_iter().filter_map(ended).collect()
}

fn spot(name: &str) -> NodeSpec {
    NodeSpec::new(Class::Spot).named(name).label("role", "spot")
}

/// Two on-demand nodes, of which the first is stuck on a budget an hour and ten seconds from now.
fn stuck(builder: WorldBuilder) -> Model {
    let stuck = WorkloadSpec::deployment("stuck", 4).start_up(MINUTE).selects("pool", "a");
    let oldest = NodeSpec { age: 2 * HOUR, ..NodeSpec::new(Class::OnDemand) };
    let model = builder
        .node(oldest.named("od-1").label("pool", "a"))
        .node(NodeSpec::new(Class::OnDemand).named("od-2"))
        .workload(stuck.budget(Allowance::MaxUnavailable(4)))
        .build();
    let budget = |world: &spot_core::model::World| {
        let mut budgets = world.view().pods().filter(|pod| pod.name.starts_with("stuck"));
        let pod = budgets.next().map(Arc::clone).unwrap();
        world.view().budgets_of(&pod).next().unwrap().reference()
    };
    model.with(|world| {
        let stuck = budget(world);
        world.later(3_599 * SECOND, move |world| {
            let demands = Allowance::MaxUnavailable(1);
            world.change_budget(&stuck.namespace, &stuck.name, demands);
            let stuck = stuck.clone();
            world.later(11 * SECOND, move |world| {
                world.change_budget(&stuck.namespace, &stuck.name, Allowance::MaxUnavailable(0));
                world.later(14 * MINUTE, move |world| {
                    world.change_budget(&stuck.namespace, &stuck.name, Allowance::MaxUnavailable(4));
                });
            });
        });
    });
    model
}

#[test]
fn a_planned_drain_that_is_stuck_pauses_for_an_interruption_is_not_failed_and_is_made_up_for_afterwards() {
    let mut builder = WorldBuilder::default().deployment("web", 6);
    for number in 1..=3 {
        builder = builder.node(spot(&format!("spot-{number}")));
    }
    let model = stuck(builder.node(spot("spare").label("pool", "a")));
    let invariants = watch(&model);
    model.with(|world| {
        world.later(HOUR + 5 * MINUTE, |world| {
            assert!(world.node("od-1").unwrap().unschedulable, "its drain is under way");
            world.interrupt("spot-1", Reclaim::Terminate).unwrap();
        });
        world.later(HOUR + 6 * MINUTE, |world| {
            let node = world.node("od-1").unwrap();
            assert!(is_clean(node) && node.back_off.is_none(), "it pauses: {node:?}");
        });
    });
    let notes = both(&model, &planned(), &settings(), HOUR + 50 * MINUTE);
    assert!(notes.all().iter().any(|event| matches!(event, Progress::Postponed { node, .. } if &*node.name == "od-1")));
    assert!(notes.told().iter().any(|told| matches!(told, Told::Held { .. })));
    let reports = runs(&notes);
    assert!(reports.iter().all(|report| report.failed.is_empty()), "{reports:?}");
    assert!(reports.iter().any(|report| report.outcome.kind() == OutcomeKind::AllSpot), "{reports:?}");
    assert!(!exists(&model, "od-1") && !exists(&model, "od-2"), "the run went on");
    kept(&model, &invariants);
}

#[test]
fn rb_16_twenty_notices_at_once_are_answered_side_by_side_though_a_planned_drain_is_stuck_and_its_own_node_is_among_them()
 {
    let own = WorkloadSpec::deployment("migrator", 1).selects("role", "spot");
    let web = WorkloadSpec::deployment("web", 60).selects("role", "spot");
    let mut builder = WorldBuilder::default().workload(own).workload(web);
    for number in 1..=20 {
        builder = builder.node(spot(&format!("sp-{number}")).slots(6));
    }
    let model = stuck(builder.node(spot("spare").label("pool", "a").slots(100)));
    let invariants = watch(&model);
    model.with(|world| {
        world.later(HOUR + 5 * MINUTE, |world| {
            assert!(world.node("od-1").unwrap().unschedulable, "its drain is under way");
            for number in 1..=20 {
                world.interrupt(&format!("sp-{number}"), Reclaim::Terminate).unwrap();
            }
        });
    });
    let (uid, own_node) = own_pod(&model);
    assert_eq!(own_node, "sp-1");
    let first = until_its_pod_goes(&model, &uid, &own_node, 2 * HOUR);
    let cordoned = first.cordoned();
    assert_eq!(cordoned.len(), 20, "{cordoned:?}");
    assert!(cordoned.iter().all(|(_, after)| *after < 2 * SECOND), "{cordoned:?}");
    let ended = now(&model).since(Instant(HOUR + 5 * MINUTE));
    assert!(ended < 30 * SECOND, "its own pod goes when all others of its node are gone: {ended:?}");

    model.run_until(now(&model) + 5 * SECOND).unwrap();
    let (uid, own_node) = own_pod(&model);
    let second = until_its_pod_goes(&model, &uid, &own_node, 10 * MINUTE);
    let moved = |removal| matches!(removal, Removal::Evicted | Removal::Deleted);
    for number in 1..=20 {
        let gone = departures(&model, &format!("sp-{number}"));
        assert!(gone.iter().all(|(_, how, _)| moved(*how)), "sp-{number}: {gone:?}");
        assert!(!exists(&model, &format!("sp-{number}")));
    }
    assert!(model.with(|world| world.unsettled()).is_empty(), "{:?}", second.told());
    assert!(exists(&model, "od-2"), "no other node was begun meanwhile");
    kept(&model, &invariants);
}

/// The pod of the process, and its node.
fn own_pod(model: &Model) -> (Uid, String) {
    model.with(|world| {
        let mut pods = world.view().pods().filter(|pod| pod.name.starts_with("migrator") && pod.is_active());
        let pod = pods.next().unwrap();
        (pod.uid.clone(), pod.node.as_deref().unwrap().to_owned())
    })
}

/// A process that is told to end when its own pod is evicted, and after a while at the latest.
fn until_its_pod_goes(model: &Model, uid: &Uid, own_node: &str, lasts: Duration) -> Notes {
    let notes = Notes::default();
    let (process, hold, stop) = (model.process(), Hold::default(), stop_after(model, lasts));
    let (own, told, all_others) = (uid.clone(), stop.clone(), own_node.to_owned());
    model.with(|world| {
        world.after_each_call(move |world, record| {
            let accepted = record.answer == Answer::Eviction(EvictAnswer::Accepted);
            if accepted && matches!(&record.call, Call::Evict { pod, .. } if pod.uid == own) {
                let left = world.movable_pods_on(&world.node(&all_others).unwrap().reference());
                assert!(left.iter().all(|pod| pod.uid == own), "its own pod goes last: {left:?}");
                told.set();
            }
        });
    });
    let mut planned = planned();
    planned.policy.own_node = Some(own_node.to_owned());
    planned.policy.own_pod = Some(uid.clone());
    let settings = InterruptionSettings { own_pod: Some(uid.clone()), ..settings() };
    let ports = process.ports_alone(Arc::new(notes.clone()));
    let migrator = Migrator::new(ports.clone(), planned).with_hold(hold.clone());
    let interruptions = Interruptions::new(ports, process.notices(), settings, hold);
    let work = future::join(Box::pin(migrator.run(&stop)), Box::pin(interruptions.run(&stop)));
    let (migrated, answered) = model::block_on(model, work).expect("both end");
    migrated.unwrap();
    answered.unwrap();
    notes
}

#[test]
fn an_interruption_takes_a_planned_retirement_of_its_node_over_and_shortens_what_it_granted() {
    let model = WorldBuilder::default()
        .node(NodeSpec::new(Class::OnDemand).named("od-1"))
        .spot(2)
        .workload(WorkloadSpec::deployment("slow", 2).stop(600 * SECOND))
        .build();
    let invariants = watch(&model);
    model.with(|world| world.later(HOUR + MINUTE, |world| drop(world.interrupt("od-1", Reclaim::Terminate))));
    let notes = both(&model, &planned(), &settings(), HOUR + 30 * MINUTE);
    let graces: Vec<_> = model.with(|world| {
        let grace = |call: &Call| match call {
            Call::Evict { pod, grace } if pod.name.starts_with("slow") => Some(*grace),
            _other => None,
        };
        world.calls().iter().filter_map(|record| grace(&record.call)).collect()
    });
    assert_eq!(graces.iter().filter(|grace| grace.is_none()).count(), 2, "planned: {graces:?}");
    let capped = graces.iter().flatten().filter(|grace| **grace > 100 * SECOND && **grace < 2 * MINUTE).count();
    assert_eq!(capped, 2, "{graces:?}");
    let gone = departures(&model, "od-1");
    assert!(gone.iter().all(|(_, how, at)| *how == Removal::Evicted && *at < Instant(HOUR + 3 * MINUTE)), "{gone:?}");
    let reports = runs(&notes);
    assert!(reports.iter().all(|report| report.failed.is_empty() && report.undone.is_empty()), "{reports:?}");
    assert_eq!(notes.emptied(), [("od-1".to_owned(), NoticeKind::Interruption)]);
    kept(&model, &invariants);
}

#[test]
fn what_is_announced_of_machines_that_we_delete_ourselves_changes_nothing() {
    let model = WorldBuilder::default().on_demand(3).spot(2).deployment("web", 9).build();
    let invariants = watch(&model);
    let told = Arc::new(Mutex::new(0));
    let count = Arc::clone(&told);
    model.with(|world| {
        world.after_each_call(move |world, record| {
            if let (Call::DeleteInstance { instance: Some(_), .. }, Answer::Deletion(_)) =
                (&record.call, &record.answer)
            {
                *count.lock().unwrap() += 1;
                assert!(world.unsettled().is_empty());
            }
        });
        // each second the cloud says again what it does to machines that are going
        for second in 0..3_600 {
            world.later(HOUR + second * SECOND, |world| {
                let going: Vec<_> = world
                    .view()
                    .nodes()
                    .iter()
                    .filter(|node| !world.machine_runs(node.uid.as_str()))
                    .filter_map(|node| world.instance_of_uid(node.uid.as_str()).cloned())
                    .collect();
                let until = world.wall().checked_add(10 * MINUTE).unwrap();
                for instance in going {
                    if world.announced(&instance).next().is_none() {
                        world.announce(instance.clone(), Announcement::TerminateAction { until });
                        world.announce(instance, Announcement::StateChange(MachineState::Down));
                    }
                }
            });
        }
    });
    let notes = both(&model, &planned(), &settings(), HOUR + 59 * MINUTE);
    assert_eq!(*told.lock().unwrap(), 3);
    assert_eq!(notes.ignored(), ["our_own"; 6], "{:?}", notes.told());
    let reports = runs(&notes);
    let retired: usize = reports.iter().map(|report| report.retired.len()).sum();
    assert_eq!(retired, 3);
    assert!(notes.told().iter().all(|told| !matches!(told, Told::Held { .. } | Told::Cordoned { .. })));
    assert!(model.with(|world| world.unsettled()).is_empty());
    kept(&model, &invariants);
}

#[test]
fn no_pod_of_a_burst_lands_on_a_node_that_goes_with_it() {
    let mut builder = WorldBuilder::default();
    for number in 1..=10 {
        builder = builder.node(NodeSpec::new(Class::Spot).named(&format!("sp-{number}")).slots(40));
    }
    let spread = spot_core::model::Spread::Everywhere;
    let model = builder.spot(5).deployment("web", 45).spread(spread).build();
    let invariants = watch(&model);
    model.with(|world| {
        for number in 1..=10 {
            world.interrupt(&format!("sp-{number}"), Reclaim::Terminate).unwrap();
        }
    });
    let notes = answering(&model, &settings(), MINUTE);
    assert_eq!(notes.emptied().len(), 10);
    assert_eq!(calls(&model, is_eviction), 30, "each pod moves once");
    kept(&model, &invariants);
}

#[test]
fn evictions_wait_for_the_cordons_of_their_burst_but_not_for_long() {
    let slow = Fault::Fail(ErrorClass::Transient);
    for (fault, least, most) in [(slow, 250, 400), (Fault::Hang, 1_000, 1_100)] {
        let model = WorldBuilder::default().spot(12).deployment("web", 36).build();
        model.with(|world| {
            let node = world.node("spot-7").unwrap().uid.clone();
            world.fault_when(1, fault, move |call| {
                is_claim(call) && matches!(call, Call::WriteNode { node: of, .. } if of.uid == node)
            });
            for number in 1..=10 {
                world.interrupt(&format!("spot-{number}"), Reclaim::Terminate).unwrap();
            }
        });
        let notes = answering(&model, &settings(), MINUTE);
        assert_eq!(notes.emptied().len(), 10);
        let first = model.with(|world| world.calls().iter().find(|one| is_eviction(&one.call)).map(|one| one.sent));
        let first = first.unwrap().since(Instant::default()).as_millis();
        assert!((least..most).contains(&first), "{first} ms");
    }
}

/// The message is done, and the node is about to go: only its claim tells the next process.
#[test]
fn a_process_that_begins_while_spot_is_being_taken_back_holds_planned_work_as_the_last_one_did() {
    let model = WorldBuilder::default().on_demand(2).spot(3).deployment("web", 6).build();
    let invariants = watch(&model);
    model.with(|world| {
        world.later(58 * MINUTE + 10 * SECOND, |world| drop(world.interrupt("spot-1", Reclaim::Terminate)));
    });
    let begun = |model: &Model| {
        calls(model, |call| {
            is_claim(call) && matches!(call, Call::WriteNode { node, .. } if node.name.starts_with("od-"))
        })
    };
    let first = both(&model, &planned(), &settings(), 59 * MINUTE + 40 * SECOND);
    assert_eq!(first.emptied().len(), 1);
    assert!(model.with(|world| world.unsettled()).is_empty());
    let second = both(&model, &planned(), &settings(), 12 * MINUTE + 30 * SECOND);
    assert_eq!(begun(&model), 0, "{:?}", second.all());
    let until = second.told().into_iter().find_map(|told| match told {
        Told::Held { until } => Some(until),
        _other => None,
    });
    let over = model.with(|world| world.wall()).checked_add(MINUTE).unwrap();
    assert_eq!(until.map(Timestamp::as_second), Some(over.as_second()), "counted from the notice");
    drop(both(&model, &planned(), &settings(), 2 * HOUR));
    assert!(!exists(&model, "od-1") && !exists(&model, "od-2"), "and no longer");
    kept(&model, &invariants);
}

#[test]
fn a_planned_retirement_goes_on_where_nothing_is_to_be_held_back() {
    let model = WorldBuilder::default().on_demand(1).spot(3).deployment("web", 6).build();
    model.with(|world| world.later(HOUR + 20 * SECOND, |world| drop(world.interrupt("spot-1", Reclaim::Terminate))));
    let unheld = InterruptionSettings { pause_migration_for: Duration::ZERO, ..settings() };
    let notes = both(&model, &planned(), &unheld, HOUR + 5 * MINUTE);
    assert_eq!(notes.emptied(), [("spot-1".to_owned(), NoticeKind::Interruption)]);
    assert!(!exists(&model, "od-1"));
    let released = calls(
        &model,
        |call| matches!(call, Call::WriteNode { node, change } if &*node.name == "od-1" && change.unschedulable == Some(false)),
    );
    assert_eq!(released, 0, "it was on its way");
}

/// What is recorded as departing may be released all the same, when its deletion was not asked for in the end.
#[test]
fn a_notice_of_a_node_that_is_released_though_it_was_to_be_deleted_is_not_lost() {
    let model = WorldBuilder::default().on_demand(1).spot(2).deployment("web", 6).build();
    let invariants = watch(&model);
    model.with(|world| {
        world.fault_when(1, Fault::Hang, |call| matches!(call, Call::LatestPods(_)));
        for second in 0..300 {
            world.later(HOUR + second * SECOND, |world| {
                let Some(node) = world.node("od-1") else { return };
                let departs = matches!(&node.claim, ClaimAnnotation::Valid(claim) if claim.is_departing());
                let instance = world.machine_of("od-1").unwrap();
                if departs && world.announced(&instance).next().is_none() {
                    world.interrupt("od-1", Reclaim::Terminate).unwrap();
                }
            });
        }
    });
    let notes = both(&model, &planned(), &settings(), HOUR + 5 * MINUTE);
    assert_eq!(notes.emptied(), [("od-1".to_owned(), NoticeKind::Interruption)], "{:?}", notes.told());
    assert!(model.with(|world| world.unsettled()).is_empty());
    assert_eq!(calls(&model, |call| matches!(call, Call::DeleteInstance { .. })), 0);
    kept(&model, &invariants);
}

#[test]
fn a_node_whose_planned_drain_is_taken_over_stays_cordoned_throughout() {
    for fails in [0, 1, 3] {
        let model = WorldBuilder::default()
            .node(NodeSpec { age: 2 * HOUR, ..NodeSpec::new(Class::OnDemand) }.named("od-1").label("pool", "a"))
            .node(NodeSpec::new(Class::OnDemand).named("od-2"))
            .node(spot("spare").label("pool", "a"))
            .workload(WorkloadSpec::deployment("slow", 2).selects("pool", "a").stop(600 * SECOND))
            .build();
        let invariants = watch(&model);
        let opened = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&opened);
        model.with(|world| {
            world.later(HOUR + MINUTE, move |world| {
                assert!(world.node("od-1").unwrap().unschedulable, "its drain is under way");
                world.fault_when(fails, Fault::Fail(ErrorClass::Transient), is_claim);
                world.interrupt("od-1", Reclaim::Terminate).unwrap();
                world.after_each_call(move |world, record| {
                    if world.node("od-1").is_some_and(|node| !node.unschedulable) {
                        seen.lock().unwrap().push(record.call.clone());
                    }
                });
            });
        });
        let notes = both(&model, &planned(), &settings(), HOUR + 10 * MINUTE);
        assert_eq!(notes.emptied(), [("od-1".to_owned(), NoticeKind::Interruption)], "{fails}");
        assert!(opened.lock().unwrap().is_empty(), "{fails}: {:?}", opened.lock().unwrap());
        assert!(notes.told().iter().any(|told| matches!(told, Told::Held { .. })), "{fails}");
        let begun =
            |call: &Call| is_claim(call) && matches!(call, Call::WriteNode { node, .. } if &*node.name == "od-2");
        assert_eq!(calls(&model, begun), 0, "{fails}: and no other node is begun");
        kept(&model, &invariants);
    }
}
