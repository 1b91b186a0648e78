//! Anything that can go wrong, at any call: the promises hold after every single call, every run ends, and in the end
//! the work is done.

use proptest::prelude::*;
use spot_core::capacity::Class;
use spot_core::error::ErrorClass;
use spot_core::model::fault::Fault;
use spot_core::model::{Ended, Executor, Invariants, Limits, MachineKind, NodeSpec, WorkloadSpec, WorldBuilder};
use spot_core::node::{Effect, Taint, key};
use spot_core::ports::EvictAnswer;
use spot_core::progress::OutcomeKind;

use super::*;

/// More runs than any single fault needs to be got over.
const RUNS: usize = 8;
const TWO_HOURS: Duration = Duration::from_hours(2);

fn small(machines: MachineKind) -> Model {
    WorldBuilder::default()
        .settings(|settings| settings.machines = machines)
        .control_plane(1)
        .on_demand(2)
        .spot(1)
        .guarded("web", 4, 1)
        .stateful_set("db", 2)
        .daemon_set("agent")
        .build()
}

/// What can go wrong at one call.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Fails(ErrorClass),
    Hangs,
    AnswerLost,
    KilledBefore,
    KilledAfter,
    OnDemandNodeAppears,
    SpotNodeAppears,
    Uncordoned,
    OptedOut,
    ForeignTaint,
    KubeletRestarts,
    MachineReplaced,
    PodLands,
    Paused,
}

const TROUBLES: [Trouble; 17] = [
    Trouble::Fails(ErrorClass::Transient),
    Trouble::Fails(ErrorClass::Timeout),
    Trouble::Fails(ErrorClass::Denied),
    Trouble::Fails(ErrorClass::Permanent),
    Trouble::Hangs,
    Trouble::AnswerLost,
    Trouble::KilledBefore,
    Trouble::KilledAfter,
    Trouble::OnDemandNodeAppears,
    Trouble::SpotNodeAppears,
    Trouble::Uncordoned,
    Trouble::OptedOut,
    Trouble::ForeignTaint,
    Trouble::KubeletRestarts,
    Trouble::MachineReplaced,
    Trouble::PodLands,
    Trouble::Paused,
];

impl Trouble {
    fn fault(self) -> Fault {
        let before = |act: fn(&mut World)| Fault::Before(Box::new(act));
        match self {
            Self::Fails(class) => Fault::Fail(class),
            Self::Hangs => Fault::Hang,
            Self::AnswerLost => Fault::LoseAnswer,
            Self::KilledBefore => Fault::KillBefore,
            Self::KilledAfter => Fault::KillAfter,
            Self::OnDemandNodeAppears => before(|world| {
                world.add_node(NodeSpec::new(Class::OnDemand).named("newcomer"));
            }),
            Self::SpotNodeAppears => before(|world| {
                world.add_node(NodeSpec::new(Class::Spot).named("newcomer"));
            }),
            Self::Uncordoned => before(|world| world.cordon("od-2", false)),
            Self::OptedOut => before(|world| world.annotate_node("od-2", key::DO_NOT_MIGRATE, Some("true"))),
            Self::ForeignTaint => {
                before(|world| world.taint_node("od-2", Taint::new("gpu", "installing", Effect::NoSchedule)))
            }
            Self::KubeletRestarts => before(|world| world.re_register("od-2")),
            Self::MachineReplaced => before(|world| world.replace_machine("od-2", Class::OnDemand)),
            Self::PodLands => before(|world| {
                world.land_pod("web", "late-comer", "od-2");
            }),
            Self::Paused => before(|world| {
                world.pause(true);
                world.later(TWO_HOURS, |world| world.pause(false));
            }),
        }
    }

    /// Which nodes stay for good, since a person wants it so.
    const fn keeps(self) -> usize {
        match self {
            Self::OptedOut => 1,
            Self::Fails(_)
            | Self::Hangs
            | Self::AnswerLost
            | Self::KilledBefore
            | Self::KilledAfter
            | Self::OnDemandNodeAppears
            | Self::SpotNodeAppears
            | Self::Uncordoned
            | Self::ForeignTaint
            | Self::KubeletRestarts
            | Self::MachineReplaced
            | Self::PodLands
            | Self::Paused => 0,
        }
    }
}

/// Runs until nothing is left to do; each run by a new process, two hours after the last. Promises are checked after
/// each call, and, where the process was not killed, after each run.
fn until_done(model: &Model, invariants: &Invariants, settings: &Settings, what: &str) -> usize {
    for run in 0..RUNS {
        let process = model.process();
        let done = match try_once(model, &process, settings) {
            Ok(Ok(report)) => {
                let found = invariants.at_the_end(model);
                assert!(found.is_empty(), "{what}, run {run}: {found:#?}");
                report.retired.is_empty() && report.failed.is_empty() && outcome(&report) == OutcomeKind::AllSpot
            }
            Ok(Err(_run_failed)) => false,
            Err(Halt::Killed) => false,
            Err(halt) => panic!("{what}, run {run}: {halt}"),
        };
        let found = invariants.violations();
        assert!(found.is_empty(), "{what}, run {run}: {found:#?}");
        if done {
            return run;
        }
        model.run_until(model.with(|world| world.now()) + TWO_HOURS).unwrap();
    }
    RUNS
}

fn on_demand_left(model: &Model) -> Vec<String> {
    model.with(|world| {
        let nodes = world.view().nodes().iter().map(|node| node.name.to_string());
        nodes.filter(|name| world.class_of(name) == Some(Class::OnDemand) && !name.starts_with("cp-")).collect()
    })
}

fn one_trouble_at_every_call(machines: MachineKind) {
    let calls = {
        let model = small(machines);
        assert_eq!(outcome(&once(&model, &settings())), OutcomeKind::AllSpot);
        model.with(|world| u64::try_from(world.calls().len()).unwrap())
    };
    assert!(calls > 20, "the matrix is not empty: {calls}");
    for trouble in TROUBLES {
        for call in 0..calls + 3 {
            let what = format!("{trouble:?} at call {call}");
            let model = small(machines);
            let invariants = Invariants::watch(&model, Limits::default());
            model.with(|world| world.fault_at(call, trouble.fault()));
            until_done(&model, &invariants, &settings(), &what);
            let left = on_demand_left(&model);
            assert!(left.len() <= trouble.keeps(), "{what}: {left:?} are left");
        }
    }
}

#[test]
fn the_promises_hold_whatever_happens_at_any_call() {
    one_trouble_at_every_call(MachineKind::Instance);
}

#[test]
fn the_promises_hold_where_machines_go_with_their_nodes() {
    one_trouble_at_every_call(MachineKind::WithNode);
}

#[test]
fn exactly_one_machine_goes_for_each_node_wherever_the_process_is_killed() {
    let calls = {
        let model = small(MachineKind::Instance);
        let _report = once(&model, &settings());
        model.with(|world| u64::try_from(world.calls().len()).unwrap())
    };
    for call in 0..calls {
        let model = small(MachineKind::Instance);
        model.with(|world| world.fault_at(call, Fault::KillAfter));
        let killed = try_once(&model, &model.process(), &settings());
        assert!(matches!(killed, Err(Halt::Killed)), "call {call}");
        let next = once(&model, &settings());
        let claimed = outcome(&next) == OutcomeKind::Recovered;
        assert!(!claimed || next.retired.len() + next.departing.len() <= 1, "no new node was begun: {next:?}");
        let _rest = once(&model, &settings());
        let _rest = once(&model, &settings());
        let deleted = model.with(|world| machines_deleted(world));
        assert_eq!(deleted.len(), 2, "killed after call {call}: {deleted:?}");
    }
}

#[test]
fn of_two_processes_only_the_leader_writes_and_the_work_is_done_once() {
    for handover in 0..60 {
        let model = small(MachineKind::Instance);
        let (old, new) = (model.process(), model.process());
        model.with(|world| world.give_lease(old.id()));
        let invariants = Invariants::watch(&model, Limits::default());
        let heir = new.id();
        model.with(|world| world.fault_at(handover, Fault::Before(Box::new(move |world| world.give_lease(heir)))));
        let run = |process: &Process| {
            let candidate = process.candidate();
            let ports = process.ports(Arc::new(Notes::default()), Arc::clone(&candidate) as _);
            async move {
                candidate.gained().await;
                Migrator::new(ports, settings()).migrate(&Stop::default()).await
            }
        };
        let mut executor = Executor::new(&model);
        let (first, second) = (run(&old), run(&new));
        executor.spawn(&old, first);
        executor.spawn(&new, second);
        let mut lost = 0;
        // a lease that is never handed over leaves the other one waiting
        while let Ok(Some((_, ended))) = executor.run() {
            lost += usize::from(matches!(ended, Ended::Done(Err(RunError::LostLeadership))));
        }
        let found = invariants.violations();
        assert!(found.is_empty(), "lease handed over before call {handover}: {found:#?}");
        let deleted = model.with(|world| machines_deleted(world));
        assert!(lost <= 1 && deleted.len() == 2, "before call {handover}: {deleted:?}, {lost} lost");
    }
}

#[test]
fn two_processes_without_a_lease_still_lose_no_pod_and_no_other_machine() {
    for shift in 0..40 {
        let model = small(MachineKind::Instance);
        let (one, other) = (model.process(), model.process());
        let invariants = Invariants::watch(&model, Limits { nodes_at_once: 2, ..Limits::default() });
        let run = |process: &Process, delay: Duration| {
            let ports = process.ports_alone(Arc::new(Notes::default()));
            async move {
                ports.clock.sleep_until(ports.clock.instant() + delay).await;
                Migrator::new(ports, settings()).migrate(&Stop::default()).await
            }
        };
        let mut executor = Executor::new(&model);
        let (first, second) = (run(&one, Duration::ZERO), run(&other, Duration::from_millis(shift * 700)));
        executor.spawn(&one, first);
        executor.spawn(&other, second);
        while executor.run().unwrap().is_some() {}
        let found = invariants.violations();
        assert!(found.is_empty(), "{shift}: {found:#?}");
    }
}

fn trouble() -> impl Strategy<Value = Trouble> {
    proptest::sample::select(&TROUBLES[..])
}

fn answer() -> impl Strategy<Value = EvictAnswer> {
    prop_oneof![
        Just(EvictAnswer::Budget { budget: None, retry_after: Some(Duration::from_secs(10)) }),
        Just(EvictAnswer::Overloaded { retry_after: None }),
        Just(EvictAnswer::MultipleBudgets),
        Just(EvictAnswer::ServerError("EOF".to_owned())),
        Just(EvictAnswer::NamespaceTerminating),
        Just(EvictAnswer::Denied("no".to_owned())),
        Just(EvictAnswer::Webhook("not now".to_owned())),
        Just(EvictAnswer::Invalid("no such field".to_owned())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn the_promises_hold_in_any_world_under_many_troubles(
        seed in any::<u64>(),
        (on_demand, spot, pods) in (1_u32..5, 0_u32..4, 0_u32..30),
        at_once in 1_usize..4,
        spot_left in 0_u32..6,
        view_lag in 0_u64..300,
        troubles in proptest::collection::vec((trouble(), 0_u64..120), 0..5),
        answers in proptest::collection::vec((answer(), 1_u32..4), 0..3),
        with_node in any::<bool>(),
    ) {
        let model = WorldBuilder::default()
            .settings(|settings| {
                settings.seed = seed;
                settings.jitter_seconds = 3;
                settings.view_lag = Duration::from_millis(view_lag);
                settings.heartbeat = Some(Duration::from_secs(10));
                settings.autoscaler.spot_left = spot_left;
                settings.machines = if with_node { MachineKind::WithNode } else { MachineKind::Instance };
            })
            .control_plane(1)
            .on_demand(on_demand)
            .spot(spot)
            .guarded("web", pods, 1 + pods / 5)
            .workload(WorkloadSpec::stateful_set("db", pods / 4))
            .daemon_set("agent")
            .build();
        let invariants = Invariants::watch(&model, Limits { nodes_at_once: at_once, ..Limits::default() });
        model.with(|world| {
            for (trouble, call) in &troubles {
                world.fault_at(*call, trouble.fault());
            }
            for (answer, times) in &answers {
                world.fault_when(*times, Fault::Evict(answer.clone()), |call| matches!(call, Call::Evict { .. }));
            }
        });
        let mut settings = settings();
        settings.policy.budgets.at_once = at_once;
        for _run in 0..4 {
            match try_once(&model, &model.process(), &settings) {
                Ok(_) | Err(Halt::Killed) => {}
                Err(halt) => prop_assert!(false, "a run does not end: {halt}"),
            }
            let found = invariants.violations();
            prop_assert!(found.is_empty(), "{found:#?}");
            model.run_until(model.with(|world| world.now()) + TWO_HOURS).unwrap();
        }
    }
}
