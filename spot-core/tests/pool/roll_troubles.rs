//! Anything that can go wrong in a roll, at any call: the promises hold after every single call, every roll ends, and in
//! the end the pool is replaced.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use spot_core::claim::{Claim, ClaimStep, Machine, Owner};
use spot_core::error::{ErrorClass, RunError};
use spot_core::model::fault::Fault;
use spot_core::model::{Call, Ended, Executor, Fact, FleetSpec, Halt, Invariants, Limits, Model, Offer};
use spot_core::model::{PoolLimits, Process, Why, World, WorldBuilder};
use spot_core::node::{ClaimAnnotation, Effect, Taint, key};
use spot_core::pool::roll::Terms;
use spot_core::pool::{Outcome, Pools};
use spot_core::ports::Silent;
use spot_core::stop::Stop;

use super::roll::{TERMS, assert_kept, builder, fleets, limits};
use super::support::{Ask, Notes, POOL, ask, ask_in_vain, calls, pools, settings, try_ask};

/// More rolls than any single trouble needs to be got over.
const ROLLS: usize = 8;
const TWO_HOURS: Duration = Duration::from_hours(2);

/// What can go wrong at one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Fails(ErrorClass),
    Hangs,
    AnswerLost,
    KilledBefore,
    KilledAfter,
    OldMachineTakenBack,
    NewMachineTakenBack,
    OldFleetChanged,
    NewFleetChanged,
    Cordoned,
    Uncordoned,
    Interrupted,
    OptedOut,
    ForeignTaint,
    KubeletRestarts,
    PodLands,
    Paused,
}

const TROUBLES: [Trouble; 20] = [
    Trouble::Fails(ErrorClass::Transient),
    Trouble::Fails(ErrorClass::Timeout),
    Trouble::Fails(ErrorClass::Denied),
    Trouble::Fails(ErrorClass::Permanent),
    Trouble::Hangs,
    Trouble::AnswerLost,
    Trouble::KilledBefore,
    Trouble::KilledAfter,
    Trouble::OldMachineTakenBack,
    Trouble::NewMachineTakenBack,
    Trouble::OldFleetChanged,
    Trouble::NewFleetChanged,
    Trouble::Cordoned,
    Trouble::Uncordoned,
    Trouble::Interrupted,
    Trouble::OptedOut,
    Trouble::ForeignTaint,
    Trouble::KubeletRestarts,
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
            Self::OldMachineTakenBack => before(|world| world.terminate_machine("old-2")),
            Self::NewMachineTakenBack => before(|world| world.terminate_machine("new-1")),
            Self::OldFleetChanged => before(|world| world.set_target("old", 8)),
            Self::NewFleetChanged => before(|world| world.set_target("new", 7)),
            Self::Cordoned => before(|world| world.cordon("old-2", true)),
            Self::Interrupted => before(interrupt),
            Self::Uncordoned => before(|world| world.cordon("old-2", false)),
            Self::OptedOut => before(|world| world.annotate_node("old-2", key::DO_NOT_MIGRATE, Some("true"))),
            Self::ForeignTaint => {
                before(|world| world.taint_node("old-2", Taint::new("gpu", "installing", Effect::NoSchedule)))
            }
            Self::KubeletRestarts => before(|world| world.re_register("old-2")),
            Self::PodLands => before(|world| {
                world.land_pod("web", "late-comer", "old-2");
            }),
            Self::Paused => before(|world| {
                world.pause(true);
                world.later(TWO_HOURS, |world| world.pause(false));
            }),
        }
    }

    /// What must hold of the pool all the same: what goes by itself, or is bought by somebody else, is not our doing.
    fn limits(self, terms: &Terms) -> Limits {
        let limits = limits(terms);
        let pool = match self {
            // the one in its place may be heavier
            Self::OldMachineTakenBack | Self::Interrupted => PoolLimits::default(),
            Self::NewMachineTakenBack | Self::KubeletRestarts => PoolLimits { floor: 0, ready: 0, ..limits.pool },
            Self::OldFleetChanged | Self::NewFleetChanged => PoolLimits { most: u32::MAX, ..limits.pool },
            Self::Fails(_)
            | Self::Hangs
            | Self::AnswerLost
            | Self::KilledBefore
            | Self::KilledAfter
            | Self::Cordoned
            | Self::Uncordoned
            | Self::OptedOut
            | Self::ForeignTaint
            | Self::PodLands
            | Self::Paused => limits.pool,
        };
        Limits { pool, ..limits }
    }
}

/// The machine of an old node is taken back in two minutes, and its pods are moved by whoever was told.
fn interrupt(world: &mut World) {
    if let (Some(node), Some(machine)) = (world.node("old-2").cloned(), world.machine_of("old-2")) {
        let claim = Claim {
            owner: Owner::Interruption,
            node: node.uid.clone(),
            machine: Machine::Instance(machine),
            boot_id: node.boot_id.clone(),
            step: ClaimStep::Draining,
            cordoned: !node.unschedulable,
            taint: None,
            since: world.wall(),
            own_pod_left: false,
            restored: false,
            until: None,
            fleet_before: None,
        };
        world.cordon("old-2", true);
        world.set_claim("old-2", ClaimAnnotation::Valid(claim.into()));
        world.later(Duration::from_mins(2), |world| world.terminate_machine("old-2"));
    }
}

/// Rolls until it is done, each time by a new process, two hours after the last. Promises are checked after each call,
/// and, where the process was not killed, after each roll.
fn until_done(model: &Model, invariants: &Invariants, terms: Terms, what: &str) -> Outcome {
    let mut last = Outcome::Failed;
    for roll in 0..ROLLS {
        let process = model.process();
        match try_ask(model, &process, &settings(), Ask::Roll(terms), &Stop::default()) {
            Ok(Ok(report)) => {
                assert_kept(model, invariants, &format!("{what}, roll {roll}"));
                last = report.outcome;
            }
            Ok(Err(_it_failed)) => {}
            Err(Halt::Killed) => {}
            Err(halt) => panic!("{what}, roll {roll}: {halt}"),
        }
        let found = invariants.violations();
        assert!(found.is_empty(), "{what}, roll {roll}: {found:#?}");
        if last == Outcome::Done {
            return last;
        }
        model.run_until(model.with(|world| world.now()) + TWO_HOURS).unwrap();
    }
    last
}

/// By how much the fleets want less for machines that we had deleted, and how much those were.
fn gone(model: &Model) -> (u32, u32) {
    model.with(|world| {
        let left = world.fleet_changes().iter().filter_map(|change| match &change.why {
            Why::Left(_, weight) => Some((change.from - change.to, *weight)),
            Why::Resized | Why::Others => None,
        });
        left.fold((0, 0), |(fell, went), (less, weight)| (fell + less, went + weight))
    })
}

fn calls_of_a_roll() -> u64 {
    let model = builder().build();
    assert_eq!(ask(&model, &settings(), Ask::Roll(TERMS)).outcome, Outcome::Done);
    model.with(|world| u64::try_from(world.calls().len()).unwrap())
}

fn one_trouble_at_every_call(troubles: &[Trouble]) {
    let calls = calls_of_a_roll();
    assert!(calls > 50, "the matrix is not empty: {calls}");
    for trouble in troubles {
        for call in 0..calls + 3 {
            let what = format!("{trouble:?} at call {call}");
            let model = builder().build();
            let invariants = Invariants::watch(&model, trouble.limits(&TERMS));
            model.with(|world| world.fault_at(call, trouble.fault()));
            let outcome = until_done(&model, &invariants, TERMS, &what);
            // what went by itself at the very end is launched again
            model.run_until(model.with(|world| world.now()) + TWO_HOURS).unwrap();
            let (old, new) = (fleets(&model)["old"], fleets(&model)["new"]);
            if *trouble == Trouble::OptedOut && outcome != Outcome::Done {
                assert!(matches!(outcome, Outcome::Blocked(_)) && old.1 == 2, "{what}: {outcome:?}, {old:?}");
                continue;
            }
            assert_eq!((outcome, old), (Outcome::Done, (0, 0, true)), "{what}");
            assert!(new.0 >= 6 && new.1 >= new.0, "{what}: {new:?}");
            // A machine in place of another may be more than was missing, which is not lowered for.
            if !matches!(trouble, Trouble::OldMachineTakenBack | Trouble::OldFleetChanged | Trouble::Interrupted) {
                let (fell, went) = gone(&model);
                assert_eq!(fell, went, "{what}");
            }
        }
    }
}

#[test]
fn the_promises_hold_whatever_call_fails_and_the_pool_is_replaced() {
    one_trouble_at_every_call(&TROUBLES[..6]);
}

#[test]
fn killed_at_any_call_and_begun_again_it_comes_to_the_same_end_and_nothing_goes_twice() {
    one_trouble_at_every_call(&TROUBLES[6..8]);
}

#[test]
fn the_promises_hold_whatever_others_do_at_any_call() {
    one_trouble_at_every_call(&TROUBLES[8..]);
}

#[test]
fn killed_at_any_call_exactly_the_old_machines_go_each_once() {
    for call in 0..calls_of_a_roll() {
        let model = builder().build();
        model.with(|world| world.fault_at(call, Fault::KillAfter));
        ask_in_vain(&model, &settings(), Ask::Roll(TERMS));
        assert_eq!(ask(&model, &settings(), Ask::Roll(TERMS)).outcome, Outcome::Done, "call {call}");
        let deleted = |fact: &Fact| match fact {
            Fact::MachineDeleted { node, .. } => Some(node.name.to_string()),
            _other => None,
        };
        let mut deleted: Vec<_> =
            model.with(|world| world.facts().iter().filter_map(|record| deleted(&record.fact)).collect());
        deleted.sort_unstable();
        assert_eq!(deleted, ["old-1", "old-2", "old-3"], "killed after call {call}");
        assert_eq!(gone(&model), (6, 6), "killed after call {call}");
    }
}

#[test]
fn of_two_processes_only_the_leader_changes_anything_and_the_pool_is_replaced_once() {
    for handover in 0..calls_of_a_roll() {
        let model = builder().build();
        let (old, new) = (model.process(), model.process());
        model.with(|world| world.give_lease(old.id()));
        let invariants = Invariants::watch(&model, limits(&TERMS));
        let heir = new.id();
        model.with(|world| world.fault_at(handover, Fault::Before(Box::new(move |world| world.give_lease(heir)))));
        let run = |process: &Process| {
            let candidate = process.candidate();
            let ports = process.ports(Arc::new(Silent), Arc::clone(&candidate) as _);
            let pools = Pools::new(ports, process.pool(), POOL, settings());
            async move {
                candidate.gained().await;
                pools.roll(TERMS, &Stop::default()).await
            }
        };
        let mut executor = Executor::new(&model);
        let (first, second) = (run(&old), run(&new));
        executor.spawn(&old, first);
        executor.spawn(&new, second);
        let mut ended = Vec::new();
        // a lease that is never handed over leaves the other one waiting
        while let Ok(Some((_, Ended::Done(result)))) = executor.run() {
            ended.push(result);
        }
        let found = invariants.violations();
        assert!(found.is_empty(), "lease handed over before call {handover}: {found:#?}");
        let done = ended.iter().any(|end| end.as_ref().is_ok_and(|report| report.outcome == Outcome::Done));
        let lost = ended.iter().filter(|end| matches!(end, Err(RunError::LostLeadership))).count();
        assert!(done && lost <= 1, "before call {handover}: {ended:?}");
        assert_eq!((fleets(&model)["old"], gone(&model)), ((0, 0, true), (6, 6)), "before call {handover}");
    }
}

#[test]
fn two_processes_without_a_lease_still_lose_no_pod_and_no_other_machine() {
    for shift in 0..40 {
        let model = builder().build();
        let (one, other) = (model.process(), model.process());
        let limits = limits(&TERMS);
        // Each of them may take away what there is room for.
        let pool = PoolLimits { floor: 3, ready: 3, ..limits.pool };
        let limits = Limits { nodes_at_once: 2, pool, ..limits };
        let invariants = Invariants::watch(&model, limits);
        let run = |process: &Process, delay: Duration| {
            let clock = process.ports_alone(Arc::new(Silent)).clock;
            let pools = pools(process, &settings(), &Notes::default());
            async move {
                clock.sleep_until(clock.instant() + delay).await;
                pools.roll(TERMS, &Stop::default()).await
            }
        };
        let mut executor = Executor::new(&model);
        let (first, second) = (run(&one, Duration::ZERO), run(&other, Duration::from_secs(shift * 7)));
        executor.spawn(&one, first);
        executor.spawn(&other, second);
        while executor.run().unwrap().is_some() {}
        let found = invariants.violations();
        assert!(found.is_empty(), "{shift}: {found:#?}");
        let (fell, went) = gone(&model);
        assert_eq!(fell, went, "{shift}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn the_promises_hold_in_any_pool_under_many_troubles(
        seed in any::<u64>(),
        members in proptest::collection::vec(1_u32..4, 0..5),
        (more, fewer) in (0_u32..3, 0_u32..3),
        offers in proptest::collection::vec((1_u32..4, 0_u32..6, proptest::bool::weighted(0.9)), 1..4),
        (capacity, surge, unavailable) in (1_u32..8, 0_u32..5, 0_u32..4),
        (launch, join, modifying, view_lag) in (0_u64..60, 0_u64..60, 0_u64..40, 0_u64..300),
        pods in 0_u32..20,
        at_once in 1_usize..3,
        troubles in proptest::collection::vec((proptest::sample::select(&TROUBLES[..]), 0_u64..150), 0..5),
    ) {
        let there: u32 = members.iter().sum();
        let fleet = |mut spec: FleetSpec| {
            for (weight, left, joins) in &offers {
                let offer = Offer::new(*weight).left(*left);
                spec = spec.offer(if *joins { offer } else { offer.never_joining() });
            }
            let seconds = Duration::from_secs;
            FleetSpec { launch: seconds(launch), join: seconds(join), modifying: seconds(modifying), ..spec }
        };
        let model = WorldBuilder::default()
            .settings(|settings| {
                settings.seed = seed;
                settings.jitter_seconds = 3;
                settings.view_lag = Duration::from_millis(view_lag);
                settings.heartbeat = Some(Duration::from_secs(10));
            })
            .control_plane(1)
            .on_demand(1)
            .fleet(fleet(FleetSpec::new("old", (there + more).saturating_sub(fewer))).members(&members).old())
            .fleet(fleet(FleetSpec::new("new", 0)))
            .guarded("web", pods, 1 + pods / 5)
            .daemon_set("agent")
            .build();
        let terms = Terms { capacity, surge, unavailable: unavailable.min(capacity) };
        let ours = PoolLimits { floor: 0, most: (capacity + surge).max(there + more) + 2, ..limits(&terms).pool };
        let pool = troubles.iter().fold(ours, |ours, (trouble, _)| {
            let PoolLimits { floor, ready, most } = trouble.limits(&terms).pool;
            let most = if most == u32::MAX { most } else { ours.most };
            PoolLimits { floor: floor.min(ours.floor), ready: ready.min(ours.ready), most }
        });
        let invariants = Invariants::watch(&model, Limits { nodes_at_once: at_once, pool, ..Limits::default() });
        model.with(|world| {
            for (trouble, call) in &troubles {
                world.fault_at(*call, trouble.fault());
            }
        });
        let mut settings = settings();
        settings.policy.budgets.at_once = at_once;
        for _roll in 0..4 {
            match try_ask(&model, &model.process(), &settings, Ask::Roll(terms), &Stop::default()) {
                Ok(_) | Err(Halt::Killed) => {}
                Err(halt) => prop_assert!(false, "a roll does not end: {halt}"),
            }
            let found = invariants.violations();
            prop_assert!(found.is_empty(), "{found:#?}");
            model.run_until(model.with(|world| world.now()) + TWO_HOURS).unwrap();
        }
        // In the end there is enough of everything, and whatever was to go wrong did.
        model.with(|world| {
            for weight in 1..4 {
                world.set_offer("new", weight, 100);
            }
        });
        let mut last = Outcome::Failed;
        for _roll in 0..ROLLS {
            if let Ok(Ok(report)) = try_ask(&model, &model.process(), &settings, Ask::Roll(terms), &Stop::default()) {
                last = report.outcome;
            }
            if last == Outcome::Done {
                break;
            }
            model.run_until(model.with(|world| world.now()) + TWO_HOURS).unwrap();
        }
        let found = invariants.violations();
        prop_assert!(found.is_empty(), "{found:#?}");
        // A pod too many of a workload is one that its budget may not spare.
        let holds = [Trouble::OptedOut, Trouble::PodLands];
        let held = troubles.iter().any(|(trouble, _)| holds.contains(trouble));
        match last {
            Outcome::Done => prop_assert!(fleets(&model)["old"].2 && fleets(&model)["new"].1 >= capacity),
            Outcome::Refused(_) => prop_assert!(surge + unavailable.min(capacity) < 3),
            Outcome::Blocked(_) => prop_assert!(held),
            Outcome::NotReady(_) => prop_assert!(held || offers.iter().any(|(.., joins)| !joins)),
            other => prop_assert!(false, "{other:?}"),
        }
        let cancelled = |call: &Call| matches!(call, Call::Cancel(fleet) if fleet == "new");
        prop_assert_eq!(calls(&model, cancelled), 0);
    }
}
