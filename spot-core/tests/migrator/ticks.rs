//! When runs begin: after long ones, after a time without a process, and by clocks that jump.

use std::sync::atomic::{AtomicBool, Ordering};

use jiff::{SignedDuration, ToSpan};
use spot_core::decision::is_marked;
use spot_core::error::ErrorClass;
use spot_core::model::fault::Fault;
use spot_core::model::{WorkloadSpec, WorldBuilder};
use spot_core::node::{ClaimAnnotation, Readiness};
use spot_core::ports::EvictAnswer;

use super::*;

/// When runs began and ended, by the wall clock.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<(Timestamp, Edge)>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Begins,
    Ends,
}

impl Observer for Runs {
    fn observe(&self, at: Timestamp, event: &Progress) {
        let edge = match event {
            Progress::RunStarted { .. } => Edge::Begins,
            Progress::RunEnded { .. } | Progress::RunFailed { .. } => Edge::Ends,
            _other => return,
        };
        self.0.lock().unwrap().push((at, edge));
    }
}

impl Runs {
    /// The beginnings, to the minute. Fails the test if two runs went on at a time.
    fn begun(&self) -> Vec<String> {
        let edges = self.0.lock().unwrap();
        let kinds: Vec<_> = edges.iter().map(|(_, edge)| *edge).collect();
        assert!(kinds.chunks(2).all(|pair| pair == [Edge::Begins, Edge::Ends]), "one at a time: {edges:?}");
        edges.iter().step_by(2).map(|(at, _)| at.strftime("%a %H:%M").to_string()).collect()
    }
}

/// A process of the schedule, until it is killed that much later.
fn process(model: &Model, settings: &Settings, runs: &Runs, lasts: Duration) {
    let process = model.process();
    let id = process.id();
    model.with(|world| world.later(lasts, move |world| world.kill_process(id)));
    let migrator = Migrator::new(process.ports_alone(Arc::new(runs.clone())), settings.clone());
    let stop = Stop::default();
    assert!(matches!(model::block_on(model, async { migrator.run(&stop).await }), Err(Halt::Killed)));
}

fn hours(hours: u64) -> Duration {
    Duration::from_hours(hours)
}

/// Hourly, from Monday at midnight on.
#[test]
fn rb_60_long_runs_missed_ticks_and_jumping_clocks_neither_pile_runs_up_nor_leave_one_out() {
    let long = WorkloadSpec::deployment("long", 1).stop(130 * MINUTE);
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(long).build();
    let mut settings = settings();
    settings.retire.drain_timeout = hours(4);
    let runs = Runs::default();

    // The run of 01:00 lasts till after three: the next one is that of four.
    process(&model, &settings, &runs, hours(4) + 30 * MINUTE);
    assert_eq!(runs.begun(), ["Mon 00:00", "Mon 01:00", "Mon 04:00"]);
    assert!(!nodes(&model).contains(&"od-1".to_owned()), "the long run went to its end");

    // Nobody is there for five hours: that is made up for by no run but the one at the start.
    model.run_until(model.with(|world| world.now()) + hours(5)).unwrap();
    let runs = Runs::default();
    model.with(|world| {
        // At 10:10 the clock is set back by half an hour, at its 10:50 the machine is suspended for three hours.
        world.later(40 * MINUTE, |world| world.jump_wall_clock(SignedDuration::from_mins(-30)));
        world.later(110 * MINUTE, |world| world.jump_wall_clock(SignedDuration::from_hours(3)));
    });
    process(&model, &settings, &runs, 180 * MINUTE);
    assert_eq!(
        runs.begun(),
        [
            "Mon 09:30", // the start
            "Mon 10:00", // and not again when it is ten for the second time
            "Mon 13:50", // that of eleven, which was slept through: once, and at once
            "Mon 14:00",
        ]
    );
}

/// A schedule of fixed times runs though its process never lives for an hour.
#[test]
fn processes_that_restart_every_forty_minutes_meet_every_full_hour() {
    let model = WorldBuilder::default().spot(1).build();
    let runs = Runs::default();
    for _restart in 0..6 {
        process(&model, &settings(), &runs, 40 * MINUTE);
    }
    let on_the_hour: Vec<_> = runs.begun().into_iter().filter(|begun| begun.ends_with(":00")).collect();
    assert_eq!(on_the_hour, ["Mon 00:00", "Mon 01:00", "Mon 02:00", "Mon 03:00"]);
}

/// The leader's zone is cut off from its cloud for three hours, and nobody is retired on a guess.
#[test]
fn rb_50_an_unreachable_cloud_fails_every_run_and_counts_as_no_success() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| {
        world.fault_when(u32::MAX, Fault::Fail(ErrorClass::Timeout), |call| matches!(call, Call::Survey { .. }));
    });
    let notes = Notes::default();
    let migrator = Migrator::new(model.ports(Arc::new(notes.clone())), settings());
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| world.later(hours(3) + 30 * MINUTE, move |_| asked.set()));
    let migrating = model::block_on(&model, async { migrator.run(&stop).await });
    assert!(matches!(migrating, Ok(Ok(()))), "{migrating:?}");
    let told = notes.all();
    let failed = told.iter().filter(|event| matches!(event, Progress::RunFailed { .. })).count();
    assert!(failed >= 3, "{failed} of at least three: {told:?}");
    assert!(!told.iter().any(|event| matches!(event, Progress::RunEnded { .. })), "{told:?}");
    assert_eq!(calls(&model, |call| matches!(call, Call::WriteNode { .. } | Call::Evict { .. })), 0);
}

/// Not ready for longer than five minutes: it is as good a node to retire as any other.
#[test]
fn a_node_that_is_not_ready_for_longer_than_five_minutes_goes_and_one_that_just_fell_silent_is_waited_for() {
    let model = WorldBuilder::default().on_demand(2).spot(1).deployment("web", 2).build();
    model.with(|world| {
        let since = world.wall() - 6.minutes();
        world.edit_node("od-1", move |node| node.readiness = Readiness::NotReady { since });
        let since = world.wall() - 1.minutes();
        world.edit_node("od-2", move |node| node.readiness = Readiness::NotReady { since });
    });
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1", "od-2"], "{report:?}");
    let second = |call: &Call| matches!(call, Call::WriteNode { node, .. } if &*node.name == "od-2" && is_claim(call));
    let claimed = model.with(|world| world.calls().iter().find(|record| second(&record.call)).unwrap().sent);
    assert!(claimed.0 >= 4 * MINUTE, "not before it was silent for five minutes: {claimed:?}");
}

/// The settings of a process are replaced at 00:10 and again while the run of 01:00 goes on.
#[test]
fn new_settings_count_from_the_next_run_on_and_a_new_schedule_at_once() {
    let long = WorkloadSpec::deployment("long", 1).stop(130 * MINUTE);
    let model = WorldBuilder::default().on_demand(2).spot(1).workload(long).build();
    let at = |expression: &str, dry_run| {
        let schedule = Schedule::parse(expression, &jiff::tz::TimeZone::UTC).unwrap();
        let mut settings = Settings { schedule, dry_run, ..settings() };
        settings.retire.drain_timeout = hours(4);
        settings
    };
    let runs = Runs::default();
    let migrator = Migrator::new(model.ports(Arc::new(runs.clone())), at("0 12 * * *", false));
    let stop = Stop::default();
    model.with(|world| {
        let (early, dry, asked) = (migrator.clone(), migrator.clone(), stop.clone());
        world.later(10 * MINUTE, move |_| early.renew(at("0 1 * * *", false)));
        world.later(90 * MINUTE, move |_| dry.renew(at("0 5 * * *", true)));
        world.later(hours(6), move |_| asked.set());
    });
    let ended = model::block_on(&model, async { migrator.run(&stop).await });
    assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
    assert_eq!(runs.begun(), ["Mon 00:00", "Mon 01:00", "Mon 05:00"]);
    let left = nodes(&model);
    assert!(!left.contains(&"od-1".to_owned()), "the run under way went to its end: {left:?}");
}

/// Other settings leave the time of the next run alone, which is counted from the last one.
#[test]
fn an_interval_goes_on_when_other_settings_change() {
    let model = WorldBuilder::default().spot(1).build();
    let every = Settings { schedule: Schedule::parse("@every 1h", &jiff::tz::TimeZone::UTC).unwrap(), ..settings() };
    let runs = Runs::default();
    let migrator = Migrator::new(model.ports(Arc::new(runs.clone())), every.clone());
    let stop = Stop::default();
    model.with(|world| {
        for minute in [30, 50, 70] {
            let (migrator, other) = (migrator.clone(), Settings { settle_timeout: hours(minute), ..every.clone() });
            world.later(u32::try_from(minute).unwrap() * MINUTE, move |_| migrator.renew(other));
        }
        let asked = stop.clone();
        world.later(130 * MINUTE, move |_| asked.set());
    });
    let ended = model::block_on(&model, async { migrator.run(&stop).await });
    assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
    assert_eq!(runs.begun(), ["Mon 00:00", "Mon 01:00", "Mon 02:00"]);
}

/// A node fails, and cannot be given back while its API server takes no writes. The next tick is a week away.
#[test]
fn what_could_not_be_given_back_is_tried_again_before_the_next_tick_and_then_no_more() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    let down = Arc::new(AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    model.with(|world| {
        let webhook = EvictAnswer::Webhook("not now".to_owned());
        world.fault_when(u32::MAX, Fault::Evict(webhook), |call| matches!(call, Call::Evict { .. }));
        world.fault_when(u32::MAX, Fault::Fail(ErrorClass::Transient), move |call| {
            is_down.load(Ordering::Relaxed) && matches!(call, Call::WriteNode { .. })
        });
        // Its drain fails at five past one.
        let goes = Arc::clone(&down);
        world.later(64 * MINUTE, move |_| goes.store(true, Ordering::Relaxed));
        world.later(80 * MINUTE, move |_| down.store(false, Ordering::Relaxed));
    });
    let mut settings = Settings { schedule: Schedule::parse("0 1 * * mon", &TimeZone::UTC).unwrap(), ..settings() };
    settings.retire.drain_timeout = 5 * MINUTE;
    let runs = Runs::default();
    let claimed_at_half_past: Arc<Mutex<Vec<bool>>> = Arc::default();
    for minute in [70, 90] {
        let claimed = Arc::clone(&claimed_at_half_past);
        model.with(|world| {
            world.later(minute * MINUTE, move |world| {
                let node = world.node("od-1").unwrap();
                claimed.lock().unwrap().push(node.unschedulable && node.claim != ClaimAnnotation::Absent);
            });
        });
    }
    process(&model, &settings, &runs, hours(30));
    assert_eq!(*claimed_at_half_past.lock().unwrap(), [true, false], "cordoned while it must be, and no longer");
    let begun = runs.begun();
    assert_eq!(begun[..2], ["Mon 00:00", "Mon 01:00"]);
    let last = begun.last().unwrap();
    assert!(("Mon 01:15".."Mon 01:30").contains(&last.as_str()), "then there is nothing to try again: {begun:?}");
    assert!(begun.len() < 12, "it is not tried all the time: {begun:?}");
    let node = model.with(|world| world.node("od-1").cloned()).unwrap();
    assert!(node.back_off.is_some() && !is_marked(&node), "{node:?}");
}
