//! Any notices, any faults, any kills: the promises hold after every call, every process ends, and no notice is lost.

use proptest::prelude::*;
use spot_core::capacity::Class;
use spot_core::claim::Owner;
use spot_core::error::ErrorClass;
use spot_core::interruption::{Announcement, MachineState, Rebalance, Reclaim};
use spot_core::model::fault::Fault;
use spot_core::model::{Allowance, Invariant, NodeSpec, Violation, WorkloadSpec, WorldBuilder};
use spot_core::ports::EvictAnswer;

use super::*;

const NODES: usize = 4;

/// What the cloud says of the machine of one node.
#[derive(Clone, Copy, Debug)]
enum Said {
    Taken(Reclaim, bool),
    Recommended,
    Changes(u64),
    Terminated(u64),
    Launched,
    State(MachineState),
}

#[derive(Clone, Copy, Debug)]
enum Wrong {
    Fails(ErrorClass),
    Hangs,
    AnswerLost,
    KilledBefore,
    KilledAfter,
    Overloaded,
    Delivered,
    Written,
    Jumps(i64),
}

fn said() -> impl Strategy<Value = Said> {
    let reclaim = prop_oneof![Just(Reclaim::Terminate), Just(Reclaim::Stop), Just(Reclaim::Hibernate)];
    prop_oneof![
        3 => (reclaim, any::<bool>()).prop_map(|(reclaim, boots)| Said::Taken(reclaim, boots)),
        1 => Just(Said::Recommended),
        1 => (0_u64..60).prop_map(Said::Changes),
        1 => (0_u64..10).prop_map(Said::Terminated),
        1 => Just(Said::Launched),
        1 => prop_oneof![Just(MachineState::Up), Just(MachineState::Down)].prop_map(Said::State),
    ]
}

fn wrong() -> impl Strategy<Value = Wrong> {
    let class = proptest::sample::select(
        [ErrorClass::Transient, ErrorClass::Timeout, ErrorClass::Denied, ErrorClass::Permanent].to_vec(),
    );
    prop_oneof![
        class.prop_map(Wrong::Fails),
        Just(Wrong::Hangs),
        Just(Wrong::AnswerLost),
        Just(Wrong::KilledBefore),
        Just(Wrong::KilledAfter),
        Just(Wrong::Overloaded),
        Just(Wrong::Delivered),
        Just(Wrong::Written),
        (-600_i64..600).prop_map(Wrong::Jumps),
    ]
}

impl Wrong {
    fn fault(self) -> Fault {
        match self {
            Self::Fails(class) => Fault::Fail(class),
            Self::Hangs => Fault::Hang,
            Self::AnswerLost => Fault::LoseAnswer,
            Self::KilledBefore => Fault::KillBefore,
            Self::KilledAfter => Fault::KillAfter,
            Self::Overloaded => Fault::Evict(EvictAnswer::Overloaded { retry_after: None }),
            Self::Delivered => Fault::Before(Box::new(|world| {
                for message in world.unsettled() {
                    world.deliver_again(&message);
                }
            })),
            Self::Written => Fault::Before(Box::new(|world| {
                world.edit_node("sp-1", |node| {
                    node.annotations.insert("somebody".to_owned(), "was here".to_owned());
                });
            })),
            Self::Jumps(seconds) => Fault::Before(Box::new(move |world| {
                world.jump_wall_clock(jiff::SignedDuration::from_secs(seconds));
            })),
        }
    }
}

fn say(world: &mut spot_core::model::World, name: &str, said: Said) {
    let Some(instance) = world.machine_of(name) else { return };
    let later =
        |world: &spot_core::model::World, minutes: u64| world.wall().checked_add(Duration::from_mins(minutes)).unwrap();
    let announcement = match said {
        Said::Taken(reclaim, boots) => {
            world.interrupt(name, reclaim);
            let name = name.to_owned();
            if reclaim != Reclaim::Terminate {
                world.later(Duration::from_mins(8), move |world| world.start_machine(&name, boots));
            }
            return;
        }
        Said::Recommended => Announcement::Rebalance,
        Said::Changes(minutes) => Announcement::ScheduledChange { at: later(world, minutes) },
        Said::Terminated(minutes) => Announcement::TerminateAction { until: later(world, minutes) },
        Said::Launched => Announcement::LaunchAction { until: later(world, 5) },
        Said::State(state) => Announcement::StateChange(state),
    };
    world.announce(instance, announcement);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_notice_is_lost_and_the_promises_hold_whatever_goes_wrong(
        notices in prop::collection::vec((0..NODES, 0_u64..240, said()), 1..8),
        faults in prop::collection::vec((0_u64..160, wrong()), 0..5),
        drain in any::<bool>(),
        lag in prop_oneof![3 => Just(0_u64), 1 => 1_u64..4_000],
    ) {
        let view_lag = Duration::from_millis(lag);
        let mut builder = WorldBuilder::new(spot_core::model::Settings { view_lag, ..Default::default() });
        for number in 1..=NODES {
            builder = builder.node(NodeSpec::new(Class::Spot).named(&format!("sp-{number}")));
        }
        let stuck = WorkloadSpec::deployment("stuck", 2).budget(Allowance::MaxUnavailable(0));
        let slow = WorkloadSpec::deployment("slow", 2).stop(600 * SECOND);
        let model = builder.guarded("web", 6, 2).stateful_set("db", 3).workload(stuck).workload(slow).build();
        let invariants = watch(&model);
        model.with(|world| {
            for (node, second, said) in &notices {
                let (name, said) = (format!("sp-{}", node + 1), *said);
                world.later(Duration::from_secs(*second), move |world| say(world, &name, said));
            }
            for (call, wrong) in &faults {
                world.fault_at(*call, wrong.fault());
            }
        });
        let rebalance = if drain { Rebalance::Drain } else { Rebalance::Taint };
        let settings = InterruptionSettings { rebalance, ..settings() };
        let until = Instant(Duration::from_hours(6));
        let mut processes = 0;
        while now(&model) < until {
            processes += 1;
            prop_assert!(processes < 20);
            let lasts = until.since(now(&model));
            match try_answering(&model, &model.process(), &settings, lasts, &Notes::default()) {
                Ok(ended) => ended.unwrap(),
                Err(Halt::Killed) => {}
                Err(halt) => return Err(TestCaseError::fail(halt.to_string())),
            }
        }
        // The API server knows of a machine's loss, and of its pods', only when budgets' status has caught up.
        let lost = notices.iter().any(|(.., said)| matches!(said, Said::Taken(..)));
        let budgets = |violation: &Violation| violation.invariant == Invariant::Budgets;
        let broken: Vec<_> = invariants.at_the_end(&model).into_iter().filter(|one| !(lost && budgets(one))).collect();
        prop_assert!(broken.is_empty(), "{broken:#?}");
        prop_assert!(model.with(|world| world.unsettled()).is_empty(), "every notice is settled at last");
        let jumped = faults.iter().any(|(_, wrong)| matches!(wrong, Wrong::Jumps(_)));
        for (node, _, said) in &notices {
            let name = format!("sp-{}", node + 1);
            let claimed = |call: &Call| matches!(call, Call::WriteNode { node, change }
                if *node.name == *name && matches!(&change.claim, Edit::Set(claim) if claim.owner == Owner::Interruption));
            // one that was gone by then, or a clock that jumped, may have made it needless
            if matches!(said, Said::Taken(Reclaim::Terminate, _)) && faults.len() < 3 && !jumped {
                prop_assert!(calls(&model, claimed) > 0, "{name} was never claimed");
            }
            if let Some(node) = model.with(|world| world.node(&name).map(Arc::clone)) {
                prop_assert!(node.readiness != spot_core::node::Readiness::Ready || is_clean(&node), "{node:#?}");
            }
        }
    }
}
