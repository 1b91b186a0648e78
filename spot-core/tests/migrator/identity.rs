//! Which node is which: names that are used again, objects that change their machine, nodes that are new and that are not.

use spot_core::capacity::Class;
use spot_core::cloud::InstanceState;
use spot_core::model::{Answer, NodeSpec, WorkloadSpec, WorldBuilder};
use spot_core::progress::{Outcome, OutcomeKind};

use super::*;

/// Three on-demand and two spot nodes; nine pods that stop within a second.
fn b0() -> WorldBuilder {
    WorldBuilder::default().on_demand(3).spot(2).deployment("web", 9)
}

#[test]
fn rb_08_a_new_node_of_the_same_name_is_neither_waited_for_nor_new() {
    let model = b0().settings(|settings| settings.reuse_names = true).deployment("more", 30).build();
    let report = once(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::AllSpot, "{report:?}");
    assert_eq!(report.retired.len(), 3);
}

#[test]
fn rb_08_a_machine_that_took_over_the_node_object_is_not_deleted() {
    let slow = WorkloadSpec::deployment("slow", 1).stop(MINUTE);
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(slow).build();
    let process = model.process();
    model.with(|world| {
        let id = process.id();
        world.later(Duration::from_secs(10), move |world| {
            world.kill_process(id);
            world.replace_machine("od-1", Class::OnDemand);
        });
    });
    assert!(matches!(try_once(&model, &process, &settings()), Err(Halt::Killed)));
    let report = once(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::Recovered, "{report:?}");
    assert_eq!(calls(&model, is_delete), 0);
    assert_clean(&model);
}

#[test]
fn rb_20_a_late_fallback_node_is_waited_for_and_stops_the_run() {
    let model = WorldBuilder::default()
        .settings(|settings| settings.autoscaler.spot_left = 0)
        .on_demand(3)
        .node(NodeSpec::new(Class::Spot).slots(1))
        .deployment("web", 60)
        .build();
    let report = once(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::SpotExhausted, "{report:?}");
    assert_eq!(names(&report.retired), ["od-1"], "no other node was begun in the twelve minutes");
}

#[test]
fn rb_20_a_node_that_registers_anew_is_not_a_new_one() {
    let model = b0().build();
    model.with(|world| world.later(Duration::from_secs(30), |world| world.re_register("od-3")));
    let report = once(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::AllSpot, "{report:?}");
}

#[test]
fn rb_20_a_foreign_on_demand_node_stops_the_run_and_is_named() {
    let model = b0().build();
    model.with(|world| {
        world.later(Duration::from_secs(30), |world| {
            world.add_node(NodeSpec::new(Class::OnDemand).named("od-9"));
        });
    });
    let report = once(&model, &settings());
    let Outcome::SpotExhausted(node) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(&*node.name, "od-9");
}

#[test]
fn rb_30_a_node_object_that_outlives_its_machine_is_deleted_after_the_clouds_word() {
    let stuck = |settings: &mut spot_core::model::Settings| settings.node_gone = Duration::from_hours(168);
    let model = WorldBuilder::default().settings(stuck).on_demand(1).spot(1).deployment("web", 2).build();
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1"], "{report:?}");
    model.with(|world| {
        let asked = world.calls().iter().any(|record| record.answer == Answer::Instance(InstanceState::Gone));
        assert!(asked, "the cloud was asked before the Node object was deleted");
    });

    let model = WorldBuilder::default().settings(stuck).on_demand(2).spot(1).deployment("web", 2).build();
    let mut settings = settings();
    settings.retire.delete_node_object = false;
    let report = once(&model, &settings);
    assert_eq!(names(&report.departing), ["od-1", "od-2"], "reported, and the other node goes on: {report:?}");
    assert_eq!(calls(&model, |call| matches!(call, Call::DeleteInstance { .. })), 2);
}

/// A machine that takes twenty minutes to go, where fifteen are waited for.
#[test]
fn a_hook_that_holds_a_machine_makes_the_wait_as_long_again_and_is_named_after_that() {
    let departing = |minutes: u64, hook: Option<&str>| {
        let slow = |settings: &mut spot_core::model::Settings| {
            settings.machine_gone = Duration::from_mins(minutes);
            settings.hook = hook.map(str::to_owned);
        };
        let model = WorldBuilder::default().settings(slow).on_demand(1).spot(1).deployment("web", 2).build();
        let notes = Notes::default();
        let migrator = Migrator::new(model.process().ports_alone(Arc::new(notes.clone())), settings());
        let run = model::block_on(&model, async { migrator.once(&Stop::default()).await });
        let report = run.expect("it ends").expect("the run can be made");
        assert_eq!(report.failed, [], "{report:?}");
        let why = |event| match event {
            Progress::Departing { why, .. } => Some(why),
            _other => None,
        };
        notes.all().into_iter().filter_map(why).collect::<Vec<_>>()
    };
    assert_eq!(departing(20, Some("flush")), Vec::<String>::new());
    let [slow] = &departing(20, None)[..] else { panic!("it is not waited for") };
    assert!(slow.contains("still shutting down"), "{slow}");
    let [held] = &departing(40, Some("flush"))[..] else { panic!("it is not waited for that long") };
    assert!(held.contains("held by lifecycle hook flush"), "{held}");
}

/// As soon as the node is gone, an on-demand one comes under its name.
fn come_back(world: &mut World) {
    if world.node("od-1").is_some() {
        world.later(Duration::from_millis(1), come_back);
    } else {
        world.add_node(NodeSpec::new(Class::OnDemand).named("od-1"));
    }
}

/// The name is used again at once, by an on-demand machine.
#[test]
fn rb_08_a_node_that_comes_back_under_its_name_on_demand_ends_the_run_as_exhausted() {
    let model = WorldBuilder::default().on_demand(2).spot(1).deployment("web", 4).build();
    model.with(|world| {
        world.later(Duration::from_millis(1), come_back);
    });
    let report = once(&model, &settings());
    let Outcome::SpotExhausted(node) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(&*node.name, "od-1");
    assert_eq!(names(&report.retired), ["od-1"], "the other one was not begun");
    assert_ne!(report.retired[0].uid, node.uid);
    assert_clean(&model);
}
