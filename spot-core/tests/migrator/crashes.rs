//! Processes that die, in the middle of anything, and what the next one does first.

use spot_core::capacity::Class;
use spot_core::error::ErrorClass;
use spot_core::model::fault::Fault;
use spot_core::model::{Invariants, Limits, NodeSpec, ProcessId, WorkloadSpec, WorldBuilder};
use spot_core::node::{ClaimAnnotation, key};
use spot_core::pod::PodRef;
use spot_core::ports::{EvictAnswer, Instant};
use spot_core::progress::OutcomeKind;

use super::*;

/// What kills a process, given the moment at which an undisturbed one has the first machine deleted.
type Kill = fn(&mut World, ProcessId, Instant);

/// The nodes that were claimed so far, each as often as it was.
fn claimed(model: &Model) -> Vec<String> {
    let name = |call: &Call| match call {
        Call::WriteNode { node, .. } if is_claim(call) => Some(node.name.to_string()),
        _other => None,
    };
    model.with(|world| world.calls().iter().filter_map(|record| name(&record.call)).collect())
}

/// A new process of the schedule, that is told to end so much later; what it told.
fn scheduled(model: &Model, settings: &Settings, lasts: Duration) -> Notes {
    let notes = Notes::default();
    let migrator = Migrator::new(model.ports(Arc::new(notes.clone())), settings.clone());
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| world.later(lasts, move |_| asked.set()));
    model::block_on(model, async { migrator.run(&stop).await }).unwrap().unwrap();
    notes
}

fn runs(notes: &Notes) -> Vec<OutcomeKind> {
    let ended = |event: &Progress| match event {
        Progress::RunEnded { report } => Some(outcome(report)),
        _other => None,
    };
    notes.all().iter().filter_map(ended).collect()
}

fn slow() -> Model {
    let web = WorkloadSpec::deployment("web", 8).stop(Duration::from_secs(20));
    WorldBuilder::default().on_demand(2).spot(2).workload(web).build()
}

#[test]
fn rb_10_wherever_the_process_is_killed_the_next_one_finishes_that_node_and_begins_no_other() {
    let deleted = {
        let model = slow();
        assert_eq!(once(&model, &settings()).retired.len(), 2);
        model.with(|world| world.calls().iter().find(|record| is_delete(&record.call)).unwrap().sent)
    };
    let kills: [(&str, Kill); 7] = [
        ("once it is marked, cordoned and recorded", |world, _, _| world.fault_when(1, Fault::KillAfter, is_claim)),
        ("before its first eviction", |world, _, _| world.fault_when(1, Fault::KillBefore, is_eviction)),
        ("after its first eviction", |world, _, _| world.fault_when(1, Fault::KillAfter, is_eviction)),
        ("once it is drained", |world, _, _| world.fault_when(1, Fault::KillBefore, is_taint)),
        ("once it is tainted", |world, _, _| world.fault_when(1, Fault::KillAfter, is_taint)),
        ("once its deletion is accepted", |world, _, _| world.fault_when(1, Fault::KillAfter, is_delete)),
        ("while its Node is awaited", |world, process, deleted| {
            let later = deleted.since(Instant::default()) + Duration::from_secs(10);
            world.later(later, move |world| world.kill_process(process));
        }),
    ];
    for (what, kill) in kills {
        let model = slow();
        let process = model.process();
        model.with(|world| kill(world, process.id(), deleted));
        assert!(matches!(try_once(&model, &process, &settings()), Err(Halt::Killed)), "{what}");
        assert!(nodes(&model).contains(&"od-1".to_owned()), "{what}: it is still there");

        let notes = scheduled(&model, &settings(), 30 * MINUTE);
        assert_eq!(runs(&notes), [OutcomeKind::Recovered], "{what}: before the next tick");
        assert_eq!(model.with(|world| machines_deleted(world)), ["od-1"], "{what}");
        assert_eq!(claimed(&model), ["od-1"], "{what}: no other was begun");
        let on_demand: Vec<_> = nodes(&model).into_iter().filter(|name| name.starts_with("od-")).collect();
        assert_eq!(on_demand, ["od-2"], "{what}");
        assert_clean(&model);

        let notes = scheduled(&model, &settings(), 60 * MINUTE);
        assert_eq!(runs(&notes), [OutcomeKind::Recovered, OutcomeKind::AllSpot], "{what}: nothing was left");
        assert_eq!(model.with(|world| machines_deleted(world)), ["od-1", "od-2"], "{what}: one for each node");
    }
}

/// Three nodes that an earlier process left, of which the second can't be emptied.
#[test]
fn rb_10_of_several_leftovers_one_that_fails_is_released_and_stops_neither_the_others_nor_the_schedule() {
    let stuck = WorkloadSpec::deployment("stuck", 1).selects("own", "od-2");
    let mut builder = WorldBuilder::default();
    for (name, age) in [("od-1", 3), ("od-2", 2), ("od-3", 1)] {
        let age = Duration::from_hours(age);
        builder = builder.node(NodeSpec { age, ..NodeSpec::new(Class::OnDemand).named(name).label("own", name) });
    }
    let model = builder.spot(2).workload(stuck).deployment("web", 8).build();
    model.with(|world| {
        for name in ["od-1", "od-2", "od-3"] {
            world.cordon(name, true);
            world.label_node(name, key::COST_MANAGER_SELECTED, Some("true"));
        }
        let denied = EvictAnswer::Denied("pods/eviction is forbidden".to_owned());
        world.fault_when(u32::MAX, Fault::Evict(denied), evicting("stuck"));
    });
    let most = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&most);
    model.with(|world| {
        world.after_each_call(move |world, _| {
            let open = world.view().nodes().iter().filter(|node| node.claim != ClaimAnnotation::Absent).count();
            let mut most = seen.lock().unwrap();
            *most = open.max(*most);
        });
    });
    let notes = scheduled(&model, &settings(), 90 * MINUTE);
    assert_eq!(runs(&notes), [OutcomeKind::Recovered, OutcomeKind::NothingEligible], "the schedule goes on");
    assert_eq!(model.with(|world| machines_deleted(world)), ["od-1", "od-3"]);
    assert_eq!(claimed(&model), ["od-1", "od-2", "od-3"], "each once, oldest first");
    assert_eq!(*most.lock().unwrap(), 1, "one at a time");
    let released = |event: &Progress| match event {
        Progress::Released { node, why, .. } => Some((node.name.to_string(), why.clone())),
        _other => None,
    };
    let released: Vec<_> = notes.all().iter().filter_map(released).collect();
    let [(node, why)] = &released[..] else { panic!("{released:?}") };
    assert!(node == "od-2" && why.contains("default/stuck"), "{why}");
    assert!(model.with(|world| world.node("od-2").unwrap().back_off.is_some()));
    assert_clean(&model);
}

/// The last on-demand node, which runs the migrator. Its eviction ends the process.
#[test]
fn rb_32_the_migrator_that_evicts_itself_is_succeeded_by_one_that_finishes_its_node_and_then_waits() {
    for own_node in [Some("od-1"), None, Some("somewhere")] {
        let own = WorkloadSpec::deployment("migrator", 1);
        let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 4).workload(own).build();
        let own_pod = |model: &Model| -> PodRef {
            model.with(|world| {
                let mut pods = world.view().pods().filter(|pod| pod.name.starts_with("migrator") && pod.is_active());
                pods.next().unwrap().reference()
            })
        };
        let first = own_pod(&model);
        let of = |node: Option<&str>, pod: &PodRef| {
            let mut settings = settings();
            settings.policy.own_node = node.map(str::to_owned);
            settings.policy.own_pod = node.map(|_| pod.uid.clone());
            settings
        };
        model.with(|world| world.fault_when(1, Fault::KillAfter, evicting("migrator")));
        let killed = try_once(&model, &model.process(), &of(own_node, &first));
        assert!(matches!(killed, Err(Halt::Killed)), "{own_node:?}");
        if own_node.is_some() {
            assert_eq!(evictions(&model), 5, "{own_node:?}: all others were asked for before it");
        }

        model.run_until(model.with(|world| world.now()) + MINUTE).unwrap();
        let second = own_pod(&model);
        assert_ne!(second.uid, first.uid);
        let new_node = model.with(|world| world.view().pods().find(|pod| pod.uid == second.uid).unwrap().node.clone());
        let new_node = new_node.expect("it runs");
        let notes = scheduled(&model, &of(own_node.map(|_| &*new_node), &second), 180 * MINUTE);
        assert_eq!(model.with(|world| machines_deleted(world)), ["od-1"], "{own_node:?}");
        assert_eq!(claimed(&model), ["od-1"], "{own_node:?}: once");
        let expected = [OutcomeKind::Recovered, OutcomeKind::AllSpot, OutcomeKind::AllSpot, OutcomeKind::AllSpot];
        assert_eq!(runs(&notes), expected, "{own_node:?}: one at its start, then one each hour");
        let asked = |call: &Call| matches!(call, Call::Evict { pod, .. } if pod.uid == second.uid);
        assert_eq!(calls(&model, asked), 0, "{own_node:?}: it does not drain itself again");
        assert_clean(&model);
    }
}

/// A cluster that can't be read at the start, and a leftover that the cloud refuses: neither ends the process.
#[test]
fn a_leftover_that_the_cloud_refuses_is_released_and_the_process_goes_on() {
    let model = slow();
    let process = model.process();
    model.with(|world| world.fault_when(1, Fault::KillAfter, is_taint));
    assert!(matches!(try_once(&model, &process, &settings()), Err(Halt::Killed)));
    model.with(|world| world.fault_when(1, Fault::Fail(ErrorClass::Denied), is_delete));
    let notes = scheduled(&model, &settings(), 30 * MINUTE);
    assert_eq!(runs(&notes), [OutcomeKind::Recovered]);
    assert_eq!(model.with(|world| machines_deleted(world)), [""; 0]);
    assert_clean(&model);
    assert!(model.with(|world| world.node("od-1").unwrap().back_off.is_some()));
}

/// A cloud that tells so late that a machine is on its way, which takes a while.
fn told_late(lag: Duration) -> Model {
    let slow = |settings: &mut spot_core::model::Settings| {
        settings.describe_lag = lag;
        settings.machine_gone = 5 * MINUTE;
    };
    WorldBuilder::default().settings(slow).on_demand(2).spot(2).deployment("web", 8).build()
}

/// A deletion whose answer nobody has seen, and a cloud that tells of it late: to ask again would have the group want less
/// once more.
#[test]
fn an_unanswered_deletion_is_asked_for_again_only_when_the_cloud_would_have_told_of_it() {
    for (what, fault, asked) in [("it was made", Fault::KillAfter, 1), ("it was not", Fault::KillBefore, 2)] {
        let model = told_late(Duration::from_secs(45));
        let invariants = Invariants::watch(&model, Limits::default());
        model.with(|world| world.fault_when(1, fault, is_delete));
        assert!(matches!(try_once(&model, &model.process(), &settings()), Err(Halt::Killed)));
        let report = once(&model, &settings());
        assert_eq!(names(&report.retired), ["od-1"], "{what}: {report:?}");
        assert_eq!(calls(&model, is_delete), asked, "{what}");
        assert_eq!(model.with(|world| machines_deleted(world)), ["od-1"], "{what}");
        assert_eq!(invariants.at_the_end(&model), [], "{what}: the group wants what it has");
    }
}

#[test]
fn the_double_has_a_group_want_less_once_more_when_another_process_asks_in_time() {
    let model = told_late(Duration::from_mins(10));
    model.with(|world| world.fault_when(1, Fault::KillAfter, is_delete));
    assert!(matches!(try_once(&model, &model.process(), &settings()), Err(Halt::Killed)));
    let _report = once(&model, &settings());
    let wanted: Vec<_> = model.with(|world| world.groups().map(|(_, group)| group.desired).collect());
    assert!(wanted.contains(&0), "{wanted:?}: one less than is there");
}
