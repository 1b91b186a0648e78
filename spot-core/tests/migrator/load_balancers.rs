//! Load balancers get their time from the taint on, whoever put it there, and get it once; and get back what stays.

use spot_core::capacity::Class;
use spot_core::error::ErrorClass;
use spot_core::model::fault::Fault;
use spot_core::model::{NodeSpec, WorldBuilder};
use spot_core::node::{Effect, Taint, key};
use spot_core::ports::Instant;

use super::*;

/// The value of a taint at this time.
type Value = fn(Timestamp) -> String;

/// How long after the world's beginning the machine's deletion was asked for.
fn deleted_after(model: &Model) -> Duration {
    let asked =
        |world: &mut World| world.calls().iter().find(|record| is_delete(&record.call)).map(|record| record.sent);
    model.with(asked).expect("it was asked for").since(Instant::default())
}

fn tainted(value: impl FnOnce(Timestamp) -> String) -> Model {
    let model = WorldBuilder::default().node(NodeSpec::new(Class::OnDemand).named("od-1")).spot(1).build();
    model.with(|world| {
        let value = value(world.wall());
        world.taint_node("od-1", Taint::new(key::TO_BE_DELETED, value, Effect::NoSchedule));
    });
    model
}

#[test]
fn rb_31_the_machine_goes_a_minute_after_the_taints_own_time_and_later_only_if_that_tells_nothing() {
    let cases: [(&str, Value, u64); 6] = [
        ("just now", |now| now.as_second().to_string(), 60),
        ("forty seconds ago", |now| (now.as_second() - 40).to_string(), 20),
        ("ten minutes ago", |now| (now.as_second() - 600).to_string(), 0),
        ("in an hour", |now| (now.as_second() + 3600).to_string(), 60),
        ("no number", |_| "soon".to_owned(), 60),
        ("beyond all time", |_| "99999999999999999".to_owned(), 60),
    ];
    for (what, value, seconds) in cases {
        let model = tainted(value);
        let report = once(&model, &settings());
        assert_eq!(names(&report.retired), ["od-1"], "{what}: {report:?}");
        let waited = deleted_after(&model).as_secs();
        assert!((seconds..=seconds + 1).contains(&waited), "{what}: {waited} s");
        assert_eq!(calls(&model, |call| matches!(call, Call::Detach { .. })), 1, "{what}: once");
        let ours = model.with(|world| {
            let writes = world.calls().iter().filter(|record| is_taint(&record.call)).count();
            (writes, machines_deleted(world).len())
        });
        assert_eq!(ours, (0, 1), "{what}: the taint that is there counts, and no second one is put on");
    }
}

#[test]
fn rb_31_our_own_taint_is_on_for_a_minute_before_the_machine_goes() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    assert_eq!(names(&once(&model, &settings()).retired), ["od-1"]);
    let tainted_for = |fact: &Fact| match fact {
        Fact::MachineDeleted { tainted_for, .. } => *tainted_for,
        _other => None,
    };
    let waited = model.with(|world| world.facts().iter().find_map(|record| tainted_for(&record.fact)).unwrap());
    assert!((60..62).contains(&waited.as_secs()), "{waited:?}");
}

/// Two processes die while load balancers are waited for: the wait goes on from the taint, and does not begin anew.
#[test]
fn rb_31_who_takes_a_node_up_again_waits_only_for_the_rest() {
    let model = WorldBuilder::default().node(NodeSpec::new(Class::OnDemand).named("od-1")).spot(1).build();
    for _process in 0..2 {
        let process = model.process();
        let id = process.id();
        model.with(|world| world.later(Duration::from_secs(25), move |world| world.kill_process(id)));
        assert!(matches!(try_once(&model, &process, &settings()), Err(Halt::Killed)));
    }
    assert_eq!(calls(&model, is_delete), 0);
    assert_eq!(names(&once(&model, &settings()).retired), ["od-1"]);
    let deleted = deleted_after(&model).as_secs();
    assert!((60..=61).contains(&deleted), "{deleted} s after the first process began");
}

#[test]
fn rb_31_a_load_balancer_that_can_not_be_asked_fails_the_node_before_its_machine_goes() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| {
        world.fault_when(1, Fault::Fail(ErrorClass::Denied), |call| matches!(call, Call::Detach { .. }));
    });
    let report = once(&model, &settings());
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert_eq!(calls(&model, is_delete), 0);
    assert_clean(&model);
}

/// What is done once the deletion is to be asked for, and how many nodes come to their load balancers.
type Stop = (&'static str, fn(&mut World), usize);

#[test]
fn a_machine_that_stays_is_put_back_into_its_load_balancers_once_its_node_is_released() {
    let stops: [Stop; 4] = [
        ("its deletion is refused", |world| world.fault_when(1, Fault::Fail(ErrorClass::Denied), is_delete), 1),
        (
            "it can't be detached",
            |world| {
                world.fault_when(1, Fault::Fail(ErrorClass::Denied), |call| matches!(call, Call::Detach { .. }));
            },
            1,
        ),
        (
            "a person uncordons it meanwhile",
            |world| {
                world.later(Duration::from_secs(30), |world| world.cordon("od-1", false));
            },
            1,
        ),
        (
            "its pods can't be evicted",
            |world| {
                let denied = spot_core::ports::EvictAnswer::Denied("pods/eviction is forbidden".to_owned());
                world.fault_when(u32::MAX, Fault::Evict(denied), is_eviction);
            },
            0,
        ),
    ];
    for (what, stop, attached) in stops {
        let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
        model.with(stop);
        let report = once(&model, &settings());
        assert_eq!(report.failed.len() + report.undone.len(), 1, "{what}: {report:?}");
        assert_eq!(calls(&model, |call| matches!(call, Call::Attach { .. })), attached, "{what}");
        assert_clean(&model);
    }
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    assert_eq!(names(&once(&model, &settings()).retired), ["od-1"]);
    assert_eq!(calls(&model, |call| matches!(call, Call::Attach { .. })), 0, "one that goes is not");
}
