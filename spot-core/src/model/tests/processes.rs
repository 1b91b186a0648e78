//! Time, processes, faults, the log.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{SECOND, Tester, node_at, refs};
use crate::error::ErrorClass;
use crate::memory::Memory;
use crate::migrator::{Migrator, Settings as MigratorSettings};
use crate::model::fault::Fault;
use crate::model::{
    Answer, Ended, Executor, Halt, Invariants, Limits, Model, Process, Scenario, Settings, WorldBuilder, block_on,
    block_on_all, block_on_until,
};
use crate::ports::{EvictAnswer, Instant, Leadership, NodeChange, Scope, Silent, Written};
use crate::progress::OutcomeKind;
use crate::schedule::Schedule;
use crate::stop::Stop;

#[test]
fn time_passes_only_when_everything_waits() {
    let model = WorldBuilder::default().build();
    let clock = Tester::of(&model).ports.clock;
    let slept = block_on(&model, async {
        clock.sleep_until(Instant(Duration::from_hours(5))).await;
        clock.instant()
    });
    assert_eq!(slept, Ok(Instant(Duration::from_hours(5))));
}

#[test]
fn a_wait_without_a_deadline_is_a_deadlock() {
    let model = WorldBuilder::default().on_demand(1).build();
    let tester = Tester::of(&model);
    assert_eq!(block_on(&model, pending::<()>()), Err(Halt::Deadlocked));
    let watched = block_on(&model, async {
        let live = tester.ports.cluster.open(Scope::Cluster, tester.by()).await.unwrap();
        live.changed(live.view().revision()).await
    });
    assert!(matches!(watched, Err(Halt::Deadlocked)));
}

#[test]
fn work_that_never_waits_is_noticed() {
    let model = WorldBuilder::default().build();
    let spin = std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        std::task::Poll::<()>::Pending
    });
    assert_eq!(block_on(&model, spin), Err(Halt::Spinning));
}

#[test]
fn work_that_goes_on_for_ever_reaches_the_horizon() {
    let model = WorldBuilder::new(Settings { horizon: Duration::from_hours(1), ..Settings::default() }).build();
    let clock = Tester::of(&model).ports.clock;
    let endless = async {
        loop {
            clock.sleep_until(clock.instant() + SECOND).await;
        }
    };
    assert_eq!(block_on::<()>(&model, endless), Err(Halt::OutOfTime));
}

#[test]
fn calls_take_their_time_and_end_at_their_deadline() {
    let model = WorldBuilder::new(Settings { latency: 10 * SECOND, ..Settings::default() }).on_demand(1).build();
    let tester = Tester::of(&model);
    let by = |seconds: u32| tester.ports.clock.instant() + seconds * SECOND;
    assert!(block_on(&model, tester.ports.cluster.recall(by(10))).unwrap().is_ok());
    assert_eq!(tester.ports.clock.instant(), Instant(10 * SECOND));
    let late = block_on(&model, tester.ports.cluster.recall(by(7))).unwrap().unwrap_err();
    assert_eq!((late.class, tester.ports.clock.instant()), (ErrorClass::Timeout, Instant(17 * SECOND)));
    let lost = block_on(&model, tester.ports.cluster.recall(by(2))).unwrap().unwrap_err();
    assert_eq!((lost.class, tester.ports.clock.instant()), (ErrorClass::Timeout, Instant(19 * SECOND)));
    let answers: Vec<_> = model.with(|world| world.calls().iter().map(|record| record.answer.clone()).collect());
    assert!(matches!(answers[..], [Answer::Memory(_), Answer::Memory(_), Answer::Failed(ErrorClass::Timeout, _)]));
}

#[test]
fn news_comes_late_but_not_of_ones_own_writes() {
    let lag = 5 * SECOND;
    let model = WorldBuilder::new(Settings { view_lag: lag, ..Settings::default() }).on_demand(2).build();
    let (mine, other) = (Tester::of(&model), Tester::of(&model));
    let open =
        |tester: &Tester| block_on(&model, tester.ports.cluster.open(Scope::Cluster, tester.by())).unwrap().unwrap();
    let (live, others) = (open(&mine), open(&other));
    let cordon = NodeChange { unschedulable: Some(true), ..NodeChange::default() };
    let node = node_at(&model, "od-1");
    model.with(|world| world.label_node("od-2", "zone", Some("a")));
    let write = mine.write();
    let written = block_on(&model, mine.ports.cluster.write_node(&node, &cordon, &write)).unwrap().unwrap();
    assert!(matches!(written, Written::Applied(_)));
    let cordoned = |view: &crate::view::View| view.node(node.uid.as_str()).unwrap().unschedulable;
    let labelled = |view: &crate::view::View| view.nodes().iter().any(|node| node.labels.contains_key("zone"));
    assert!(cordoned(&live.view()) && !labelled(&live.view()));
    assert!(!cordoned(&others.view()));
    mine.pass(lag);
    for view in [live.view(), others.view()] {
        assert!(cordoned(&view) && labelled(&view));
    }
}

#[test]
fn a_view_of_one_node_shows_that_node_and_its_pods_alone() {
    let model = WorldBuilder::default().on_demand(2).deployment("web", 4).build();
    let tester = Tester::of(&model);
    let scope = Scope::Node("od-1".to_owned());
    let live = block_on(&model, tester.ports.cluster.open(scope, tester.by())).unwrap().unwrap();
    assert_eq!((live.view().nodes().len(), live.view().pods().count()), (1, 2));
    model.with(|world| {
        world.cordon("od-1", true);
        world.cordon("od-2", true);
    });
    assert_eq!(live.view().nodes().iter().filter(|node| node.unschedulable).count(), 1);
}

#[test]
fn memory_is_written_on_the_version_that_was_read() {
    let model = WorldBuilder::default().build();
    let tester = Tester::of(&model);
    let write = tester.write();
    let remember = |memory: &Memory| block_on(&model, tester.ports.cluster.remember(memory, &write)).unwrap();
    let first = remember(&Memory::default()).unwrap();
    assert!(remember(&Memory::default()).is_err());
    let paused = remember(&Memory { paused: true, ..first }).unwrap();
    assert_ne!(paused.version, None);
    assert!(model.with(|world| world.view().paused()));
}

fn evict_with(fault: Option<Fault>) -> (Result<Result<EvictAnswer, ErrorClass>, Halt>, usize) {
    let model = WorldBuilder::default().on_demand(1).bare("alone", 2).build();
    let tester = Tester::of(&model);
    let pod = refs(&model, "alone").remove(0);
    if let Some(fault) = fault {
        model.with(|world| world.fault_at(0, fault));
    }
    let write = tester.write();
    let answer = block_on(&model, tester.ports.cluster.evict(&pod, None, &write));
    // what is under way takes its course
    assert!(model.run_until(Instant(Duration::from_hours(1))).is_ok());
    (answer.map(|answer| answer.map_err(|error| error.class)), refs(&model, "alone").len())
}

#[test]
fn each_fault_has_its_effect_and_no_other() {
    assert_eq!(evict_with(None), (Ok(Ok(EvictAnswer::Accepted)), 1));
    for class in ErrorClass::ALL {
        assert_eq!(evict_with(Some(Fault::Fail(class))), (Ok(Err(class)), 2));
    }
    assert_eq!(evict_with(Some(Fault::Hang)), (Err(Halt::Deadlocked), 2));
    assert_eq!(evict_with(Some(Fault::LoseAnswer)), (Ok(Err(ErrorClass::Timeout)), 1));
    assert_eq!(evict_with(Some(Fault::KillBefore)), (Err(Halt::Killed), 2));
    assert_eq!(evict_with(Some(Fault::KillAfter)), (Err(Halt::Killed), 1));
    let webhook = EvictAnswer::Webhook("no".to_owned());
    assert_eq!(evict_with(Some(Fault::Evict(webhook.clone()))), (Ok(Ok(webhook)), 2));
    let land = Fault::Before(Box::new(|world| {
        world.land_pod("alone", "late", "od-1");
    }));
    assert_eq!(evict_with(Some(land)), (Ok(Ok(EvictAnswer::Accepted)), 2));
}

#[test]
fn the_dead_call_no_more_and_others_go_on() {
    let model = WorldBuilder::default().on_demand(1).bare("alone", 3).build();
    let (a, b) = (Tester::of(&model), Tester::of(&model));
    let pods = refs(&model, "alone");
    model.with(|world| world.fault_at(1, Fault::KillAfter));
    let work = |tester: &Tester| {
        let (ports, write, pods) = (tester.ports.clone(), tester.write(), pods.clone());
        async move {
            for pod in &pods {
                drop(ports.cluster.evict(pod, None, &write).await.unwrap());
            }
        }
    };
    let mut executor = Executor::new(&model);
    assert_eq!(executor.spawn(&a.process, work(&a)), 0);
    assert_eq!(executor.spawn(&b.process, work(&b)), 1);
    assert_eq!(executor.run(), Ok(Some((1, Ended::Killed))));
    assert_eq!(executor.run(), Ok(Some((0, Ended::Done(())))));
    assert_eq!(executor.run(), Ok(None));
    let by = |process: &Process| model.with(|w| w.calls().iter().filter(|call| call.process == process.id()).count());
    assert_eq!((by(&a.process), by(&b.process)), (3, 1));
}

#[test]
fn a_process_can_be_killed_at_a_moment() {
    let model = WorldBuilder::default().build();
    let clock = Tester::of(&model).ports.clock;
    let at = Instant(90 * SECOND);
    assert_eq!(block_on_until(&model, at, clock.sleep_until(Instant(Duration::from_hours(1)))), Err(Halt::Killed));
    assert_eq!(clock.instant(), at);
    assert_eq!(block_on_until(&model, Instant(Duration::from_hours(2)), async { 7 }), Ok(7));
}

#[test]
fn who_does_not_lead_does_not_write() {
    let model = WorldBuilder::default().on_demand(1).build();
    let processes = [model.process(), model.process()];
    model.with(|world| world.give_lease(processes[0].id()));
    let candidates = processes.clone().map(|process| process.candidate());
    assert!(candidates[0].check().is_ok());
    assert_eq!(candidates[1].check().unwrap_err().class, ErrorClass::NotLeader);
    let heir = processes[1].id();
    model.with(|world| world.later(SECOND, move |world| world.give_lease(heir)));
    let wait = |at: usize, leads: bool| {
        let candidate = Arc::clone(&candidates[at]);
        Box::pin(async move { if leads { candidate.gained().await } else { candidate.lost().await } })
            as Pin<Box<dyn Future<Output = ()>>>
    };
    let roots = vec![(processes[0].clone(), wait(0, false)), (processes[1].clone(), wait(1, true))];
    assert_eq!(block_on_all(&model, roots), Ok(vec![Ended::Done(()), Ended::Done(())]));
    assert!(candidates[1].check().is_ok());
}

fn migrate(model: &Model) -> Result<OutcomeKind, Halt> {
    let schedule = Schedule::parse("@hourly", &TimeZone::UTC).unwrap();
    let migrator = Migrator::new(model.ports(Arc::new(Silent)), MigratorSettings::new(schedule));
    block_on(model, migrator.once(&Stop::default())).map(|report| report.unwrap().outcome.kind())
}

#[test]
fn every_scenario_ends_as_its_name_says_and_keeps_all_promises() {
    for (scenario, outcome) in [
        (Scenario::SpotAvailable, OutcomeKind::AllSpot),
        (Scenario::SpotExhausted, OutcomeKind::SpotExhausted),
        (Scenario::BlockedByBudget, OutcomeKind::NothingEligible),
        (Scenario::KilledHalfway, OutcomeKind::AllSpot),
    ] {
        assert_eq!(Scenario::parse(scenario.as_str()), Some(scenario));
        for seed in 0..5 {
            let model = scenario.build(seed, 9, 120);
            let invariants = Invariants::watch(&model, Limits::default());
            assert_eq!(migrate(&model), Ok(outcome), "{scenario:?}, seed {seed}");
            assert_eq!(invariants.at_the_end(&model), [], "{scenario:?}, seed {seed}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_log_and_another_one_another() {
    let log = |seed| {
        let model = Scenario::SpotExhausted.build(seed, 6, 80);
        migrate(&model).unwrap();
        model.with(|world| format!("{:?}\n{:?}", world.calls(), world.facts()))
    };
    assert_eq!(log(3), log(3));
    assert_ne!(log(3), log(4));
}
