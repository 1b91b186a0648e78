//! What one process leaves to the next, and what a run leaves to the one after it.

use spot_core::capacity::Class;
use spot_core::error::ErrorClass;
use spot_core::memory::Retired;
use spot_core::model::fault::Fault;
use spot_core::model::{NodeSpec, WorkloadSpec, WorldBuilder};
use spot_core::ports::NodeChange;
use spot_core::progress::OutcomeKind;
use spot_core::reason::{Reason, ReasonKind};

use super::*;

fn killed_after(model: &Model, after: Duration) {
    let process = model.process();
    model.with(|world| {
        let id = process.id();
        world.later(after, move |world| world.kill_process(id));
    });
    assert!(matches!(try_once(model, &process, &settings()), Err(Halt::Killed)));
}

/// The process dies after it emptied the node, and the replacement comes while nobody looks.
#[test]
fn rb_14_a_node_that_came_while_processes_changed_is_seen_and_remembered() {
    let model = WorldBuilder::default()
        .settings(|settings| {
            settings.autoscaler.spot_left = 0;
            settings.autoscaler.fallback = Some(Duration::from_secs(30));
        })
        .on_demand(1)
        .node(NodeSpec::new(Class::Spot).slots(1))
        .deployment("web", 12)
        .build();
    killed_after(&model, Duration::from_secs(20));
    model.run_until(model.with(|world| world.now()) + MINUTE).unwrap();
    let next = once(&model, &settings());
    assert_eq!(outcome(&next), OutcomeKind::SpotExhausted, "{next:?}");
    assert!(model.with(|world| world.memory().exhausted.is_some()), "the next runs wait");
}

#[test]
fn a_recovered_nodes_pods_settle_before_the_next_node_is_begun() {
    let slow = WorkloadSpec::deployment("slow", 6).stop(MINUTE).start_up(5 * MINUTE);
    let model = WorldBuilder::default().on_demand(2).spot(2).workload(slow).build();
    killed_after(&model, Duration::from_secs(20));
    let begun = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&begun);
    model.with(|world| {
        world.after_each_call(move |world, record| {
            let claims = |change: &NodeChange| change.mark == spot_core::ports::Edit::Set(());
            if let Call::WriteNode { change, .. } = &record.call
                && claims(change)
            {
                let unready = world.view().pods().filter(|pod| pod.is_active() && !pod.ready).count();
                seen.lock().unwrap().push(unready);
            }
        });
    });
    let migrator = Migrator::new(model.ports(Arc::new(Notes::default())), settings());
    let stop = Stop::default();
    let report = model::block_on(&model, async { migrator.migrate(&stop).await }).unwrap().unwrap();
    assert_eq!(report.retired.len(), 2, "{report:?}");
    assert_eq!(*begun.lock().unwrap(), [0], "all pods ran when the second node was claimed");
}

#[test]
fn the_cloud_is_asked_about_a_leftover_before_more_of_its_pods_are_moved() {
    let slow = WorkloadSpec::deployment("slow", 6).stop(MINUTE);
    let model = WorldBuilder::default().on_demand(1).spot(2).workload(slow).build();
    killed_after(&model, Duration::from_secs(20));
    model.with(|world| world.set_refusals("od-1", vec![Reason::Plain(ReasonKind::TerminationProtected)]));
    let report = once(&model, &settings());
    assert_eq!((names(&report.retired).len(), report.failed.len()), (0, 1), "{report:?}");
    assert_eq!((calls(&model, is_taint), calls(&model, is_delete)), (0, 0), "{report:?}");
    assert_clean(&model);
}

/// The process that asked for it is gone; what it did in the cloud is not.
#[test]
fn what_was_done_in_the_cloud_is_taken_back_for_a_leftover_that_is_released() {
    let model = WorldBuilder::default().on_demand(1).spot(2).deployment("web", 2).build();
    model.with(|world| world.fault_when(1, Fault::KillBefore, is_delete));
    assert!(matches!(try_once(&model, &model.process(), &settings()), Err(Halt::Killed)));
    model.with(|world| world.set_refusals("od-1", vec![Reason::Plain(ReasonKind::TerminationProtected)]));
    let report = once(&model, &settings());
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert_eq!(calls(&model, |call| matches!(call, Call::Attach { .. })), 1);
    assert_clean(&model);
}

/// Its pods were evicted by a process that is gone, and are not moved again; they have to run elsewhere all the same.
#[test]
fn the_pods_of_a_released_leftover_settle_before_the_next_leftover_is_taken_up() {
    let slow = |name: &str, node: &str| {
        let spread = WorkloadSpec::deployment(name, 2).selects("own", node);
        spread.stop(2 * MINUTE).start_up(10 * MINUTE)
    };
    let node = |class, own: &str| NodeSpec::new(class).label("own", own);
    let oldest = NodeSpec { age: Duration::from_hours(9), ..node(Class::OnDemand, "one") };
    let model = WorldBuilder::default()
        .node(oldest.named("od-1"))
        .node(node(Class::OnDemand, "two").named("od-2"))
        .node(node(Class::Spot, "one"))
        .node(node(Class::Spot, "two"))
        .workload(slow("one", "one"))
        .workload(slow("two", "two"))
        .build();
    let mut both = settings();
    both.policy.budgets.at_once = 2;
    let process = model.process();
    model.with(|world| {
        let id = process.id();
        world.later(Duration::from_secs(20), move |world| world.kill_process(id));
    });
    assert!(matches!(try_once(&model, &process, &both), Err(Halt::Killed)));
    model.with(|world| world.annotate_node("od-1", key::DO_NOT_MIGRATE, Some("true")));
    let unready = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&unready);
    model.with(|world| {
        world.after_each_call(move |world, record| {
            let taken_up = matches!(&record.call, Call::WriteNode { node, change }
                if &*node.name == "od-2" && change.claim != spot_core::ports::Edit::Remove);
            if taken_up {
                let pods = world.view().pods().filter(|pod| pod.name.starts_with("one"));
                let count = pods.filter(|pod| pod.is_active() && !pod.ready).count();
                seen.lock().unwrap().get_or_insert(count);
            }
        });
    });
    let report = once(&model, &both);
    assert_eq!((names(&report.retired), report.failed.len()), (vec!["od-2"], 1), "{report:?}");
    assert_eq!(*unready.lock().unwrap(), Some(0), "all pods of the first ran when the second was taken up");
}

/// A lone pod, and the answer to its eviction is lost: it went all the same.
#[test]
fn an_eviction_whose_answer_was_lost_is_settled_too() {
    let slow = WorkloadSpec::deployment("alone", 1).start_up(5 * MINUTE);
    let model = WorldBuilder::default().on_demand(2).spot(2).workload(slow).deployment("other", 1).build();
    model.with(|world| world.fault_when(1, Fault::LoseAnswer, |call| matches!(call, Call::Evict { .. })));
    let report = once(&model, &settings());
    assert_eq!(report.retired.len(), 2, "{report:?}");
    let second = model.with(|world| {
        let mut claims = world.calls().iter().filter(|record| match &record.call {
            Call::WriteNode { change, .. } => change.mark == spot_core::ports::Edit::Set(()),
            _other => false,
        });
        claims.next_back().unwrap().sent
    });
    assert!(second.0 > 5 * MINUTE, "the second node was begun after {second:?}");
}

#[test]
fn the_days_limit_counts_accepted_deletions_and_outlives_a_kill() {
    let stuck = |settings: &mut spot_core::model::Settings| settings.node_gone = Duration::from_hours(48);
    let model = WorldBuilder::default().settings(stuck).on_demand(3).spot(2).deployment("web", 6).build();
    let mut limited = settings();
    limited.policy.budgets.per_day = Some(1);
    limited.retire.delete_node_object = false;
    let report = once(&model, &limited);
    assert_eq!(report.departing.len(), 1, "{report:?}");
    assert_eq!(model.with(|world| machines_deleted(world)).len(), 1, "one a day");

    let model = WorldBuilder::default().on_demand(3).spot(2).deployment("web", 6).build();
    let mut limited = settings();
    limited.policy.budgets.per_day = Some(2);
    let process = model.process();
    model.with(|world| {
        let id = process.id();
        world.later(3 * MINUTE, move |world| world.kill_process(id));
    });
    assert!(matches!(try_once(&model, &process, &limited), Err(Halt::Killed)));
    let known = model.with(|world| world.memory().retired);
    assert!(matches!(known, Some(Retired { nodes: 1, .. })), "{known:?}");
    let _recovered = once(&model, &limited);
    let _rest = once(&model, &limited);
    assert_eq!(model.with(|world| machines_deleted(world)).len(), 2, "two a day, over three processes");
}

/// Two shortages with relief in between: the second one begins with the first back-off again.
#[test]
fn a_spot_node_resets_the_back_off_of_a_shortage() {
    let model = WorldBuilder::default()
        .settings(|settings| settings.autoscaler.spot_left = 0)
        .on_demand(2)
        .node(NodeSpec::new(Class::Spot).slots(1))
        .deployment("web", 12)
        .build();
    let count = || model.with(|world| world.memory().exhausted.map(|known| known.back_off.count));
    assert_eq!(outcome(&once(&model, &settings())), OutcomeKind::SpotExhausted);
    assert_eq!(count(), Some(1));
    model.run_until(model.with(|world| world.now()) + Duration::from_hours(2)).unwrap();
    assert_eq!(outcome(&once(&model, &settings())), OutcomeKind::SpotExhausted);
    assert_eq!(count(), Some(2), "again, and nothing was better in between");
    model.with(|world| world.add_node(NodeSpec::new(Class::Spot).named("relief").slots(1)));
    model.run_until(model.with(|world| world.now()) + MINUTE).unwrap();
    assert_eq!(outcome(&once(&model, &settings())), OutcomeKind::SpotExhausted);
    assert_eq!(count(), Some(1), "a new shortage");
}

/// A clock that is a year ahead when a run ends, and is put right.
#[test]
fn rb_60_a_clock_that_was_ahead_for_a_while_does_not_silence_the_schedule() {
    let model = WorldBuilder::default().spot(1).build();
    let notes = Notes::default();
    let migrator = Migrator::new(model.ports(Arc::new(notes.clone())), settings());
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| {
        let year = jiff::SignedDuration::from_hours(8760);
        world.later(30 * MINUTE, move |world| world.jump_wall_clock(year));
        world.later(40 * MINUTE, move |world| world.jump_wall_clock(-year));
        world.later(Duration::from_hours(3) + MINUTE, move |_| asked.set());
    });
    model::block_on(&model, async { migrator.run(&stop).await }).unwrap().unwrap();
    let ended = notes.all().iter().filter(|event| matches!(event, Progress::RunEnded { .. })).count();
    assert!((4..=6).contains(&ended), "{ended} runs: one at start, one each hour, and one when the clock was ahead");
}

/// Somebody writes the node all the time: the release gives up in time instead of going on for ever.
#[test]
fn a_node_that_others_write_all_the_time_does_not_hold_the_run_for_ever() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| {
        world.fault_when(1, Fault::Fail(ErrorClass::Permanent), |call| matches!(call, Call::DeleteInstance { .. }));
        world.fault_when(
            u32::MAX,
            Fault::Fail(ErrorClass::Transient),
            |call| matches!(call, Call::WriteNode { change, .. } if change.mark == spot_core::ports::Edit::Remove),
        );
    });
    let report = once(&model, &settings());
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert!(model.with(|world| world.now()).0 < 5 * MINUTE);
}
