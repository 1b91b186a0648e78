//! The processes: two migrators of which one leads, and the operator. Whoever dies or ends starts again after a while.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future;
use jiff::tz::TimeZone;
use spot_core::Migrator;
use spot_core::interruption::{Hold, InterruptionSettings, Interruptions};
use spot_core::migrator::Settings;
use spot_core::model::{
    Call, CallRecord, Ended, Executor, Halt, Invariant, Invariants, Limits, Model, Process, ProcessId, World,
};
use spot_core::node::Uid;
use spot_core::ports::{Clock, Instant};
use spot_core::schedule::Schedule;
use spot_core::stop::Stop;

use super::bounds::{self, Diary};
use super::cluster::Plan;
use super::figures::Figures;
use super::{HOUR, SECOND, people, weather};

/// How long a lease counts whose holder is gone.
const LEASE: Duration = Duration::from_secs(15);
/// How long a process may go on when it was asked to end.
const GRACE: Duration = Duration::from_mins(2);

/// How many calls are told when something is wrong.
const LATEST: usize = 40;

/// Who sits where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    Migrator(usize),
    Operator,
}

/// What processes, weather and checks know of each other.
#[derive(Default)]
pub(crate) struct Board {
    /// The migrators that live, by seat.
    pub(crate) alive: [Option<(ProcessId, Stop)>; 2],
    /// Since when the lease's holder is gone.
    vacant: Option<Instant>,
    /// Processes that may write though they do not lead.
    operators: BTreeSet<ProcessId>,
    /// Nodes that others have cordoned.
    pub(crate) cordoned: BTreeSet<Uid>,
    pub(crate) figures: Figures,
    pub(crate) broken: Vec<String>,
    over: bool,
}

/// The board, as all have it.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<Board>>);

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the storm is over, or what was found ends it all.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Notes a promise that was not kept, and ends it all.
    pub(crate) fn report(&self, what: String) {
        let mut board = self.lock();
        board.broken.push(what);
        board.end();
    }
}

impl Board {
    fn end(&mut self) {
        self.over = true;
        self.alive.iter().flatten().for_each(|(_, stop)| stop.set());
    }

    fn lives(&self, process: ProcessId) -> bool {
        self.alive.iter().flatten().any(|(alive, _)| *alive == process)
    }

    /// Gives the lease to a process that waits for it, if nobody has it.
    fn take_lease(&mut self, world: &mut World, process: ProcessId) {
        let holder = world.leader().and_then(spot_core::model::Lease::holder);
        if holder.is_some_and(|holder| self.lives(holder)) {
            self.vacant = None;
            return;
        }
        let now = world.now();
        let vacant = *self.vacant.get_or_insert(now);
        if holder.is_none() || now >= vacant + LEASE {
            self.vacant = None;
            world.give_lease(process);
        }
    }
}

/// What a migrator knows beside itself.
struct Mate {
    plan: Plan,
    model: Model,
    board: Shared,
    diary: Diary,
}

/// All that work on one cluster.
pub(crate) struct Crew {
    plan: Plan,
    model: Model,
    board: Shared,
    diary: Diary,
    invariants: Invariants,
    executor: Executor<'static, ()>,
    seats: Vec<Seat>,
}

impl Crew {
    pub(crate) fn new(plan: Plan) -> Self {
        let model = plan.cluster();
        let (board, diary) = (Shared::default(), Diary::default());
        let limits = Limits { nodes_at_once: plan.at_once(), ..Limits::default() };
        let invariants = Invariants::watch(&model, limits);
        bounds::watch(&model, &board);
        let (checked, seen) = (invariants.clone(), board.clone());
        model.with(|world| {
            world.after_each_call(move |world, _| {
                let operators = seen.lock().operators.clone();
                let first = first_broken(&checked, world, &operators);
                if let Some(what) = first.filter(|_| !seen.is_over()) {
                    seen.report(format!("{:?}: {what}", world.wall()));
                }
            });
            weather::begin(world, plan, &board);
            let ends = board.clone();
            world.later(plan.end(), move |_| ends.lock().end());
        });
        let executor = Executor::new(&model);
        Self { plan, model, board, diary, invariants, executor, seats: Vec::new() }
    }

    /// All of it, to its end: what was done, and which promises were broken.
    pub(crate) fn endure(mut self) -> (Figures, Vec<String>) {
        let mut chance = self.plan.chance(1);
        self.start(Seat::Migrator(0), Duration::ZERO);
        self.start(Seat::Migrator(1), 3 * SECOND);
        self.start(Seat::Operator, HOUR);
        let halted = loop {
            match self.executor.run() {
                Ok(None) => break None,
                Err(halt) => break Some(halt),
                Ok(Some((root, ended))) => {
                    let seat = self.seats[root];
                    self.ended(seat, ended);
                    if !self.board.is_over() {
                        let pause = SECOND * u32::try_from(2 + chance.below(600)).unwrap();
                        self.start(seat, pause);
                    }
                }
            }
        };
        self.close(halted)
    }

    fn ended(&self, seat: Seat, ended: Ended<()>) {
        let mut board = self.board.lock();
        let process = match seat {
            Seat::Migrator(at) => board.alive[at].take().map(|(process, _)| process),
            Seat::Operator => None,
        };
        match (ended, process) {
            (Ended::Killed, Some(process)) => {
                board.figures.kills += 1;
                self.diary.killed(process);
            }
            (Ended::Killed | Ended::Done(()), _) => {}
        }
    }

    fn start(&mut self, seat: Seat, pause: Duration) {
        let process = self.model.process();
        let begins = self.model.with(|world| world.now()) + pause;
        match seat {
            Seat::Migrator(at) => {
                let stop = Stop::default();
                let mut board = self.board.lock();
                board.figures.processes += 1;
                board.alive[at] = Some((process.id(), stop.clone()));
                drop(board);
                let mate = Mate {
                    plan: self.plan,
                    model: self.model.clone(),
                    board: self.board.clone(),
                    diary: self.diary.clone(),
                };
                self.executor.spawn(&process, migrate(mate, process.clone(), begins, stop));
            }
            Seat::Operator => {
                self.board.lock().operators.insert(process.id());
                let work = people::operate(self.plan, process.clone(), self.board.clone(), begins);
                self.executor.spawn(&process, work);
            }
        }
        self.seats.push(seat);
    }

    fn close(self, halted: Option<Halt>) -> (Figures, Vec<String>) {
        let Self { plan, model, board, diary, invariants, .. } = self;
        if let Some(halt) = halted {
            board.report(format!("it came to no end: {halt}"));
        }
        let whole = board.lock().broken.is_empty();
        if whole {
            let left = invariants.at_the_end(&model).into_iter().filter(|found| found.invariant != Invariant::Leader);
            left.for_each(|found| board.report(found.to_string()));
            model.with(|world| bounds::all_is_spot(world, &board));
            diary.schedule_went_on(plan, &board);
        }
        if !board.lock().broken.is_empty() {
            board.lock().broken.push(model.with(|world| latest(world)));
        }
        let mut figures = board.lock().figures + diary.figures();
        figures.calls = model.with(|world| world.calls().len());
        let broken = std::mem::take(&mut board.lock().broken);
        (figures, broken)
    }
}

/// The first promise that was broken; the operator need not lead.
fn first_broken(invariants: &Invariants, world: &World, operators: &BTreeSet<ProcessId>) -> Option<String> {
    let by_operator = |call: Option<u64>| {
        let record = call.and_then(|call| world.calls().get(usize::try_from(call).ok()?));
        record.is_some_and(|record| operators.contains(&record.process))
    };
    let mut found = invariants.violations().into_iter();
    let first = found.find(|found| found.invariant != Invariant::Leader || !by_operator(found.call))?;
    let call = first.call.and_then(|call| world.calls().get(usize::try_from(call).ok()?));
    Some(format!("{first} ({call:?})"))
}

/// The latest calls but those of the queue's clients.
fn latest(world: &World) -> String {
    let told = |record: &&CallRecord| !matches!(record.call, Call::Receive | Call::Extend(_));
    let mut calls: Vec<_> = world.calls().iter().rev().filter(told).take(LATEST).collect();
    calls.reverse();
    let line = |record: &&CallRecord| {
        let CallRecord { number, process, call, sent, answer, .. } = record;
        format!("{number} at {:?} by {}: {call:?} -> {answer:?}", sent.0, process.0)
    };
    calls.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A migrator: it waits for the lease, and then migrates and answers notices until it is asked to end, or loses it.
async fn migrate(crew: Mate, process: Process, begins: Instant, stop: Stop) {
    let Mate { plan, model, board, diary } = crew;
    process.sleep_until(begins).await;
    let candidate = process.candidate();
    let mut waits = true;
    while waits && !stop.is_set() {
        model.with(|world| board.lock().take_lease(world, process.id()));
        let retry = process.sleep_until(process.instant() + 10 * SECOND);
        let (gained, asked) = (pin!(candidate.gained()), pin!(stop.wait()));
        waits = matches!(future::select(future::select(gained, asked), retry).await, future::Either::Right(_));
    }
    if stop.is_set() {
        return;
    }
    let mut settings = Settings::new(Schedule::parse("@hourly", &TimeZone::UTC).unwrap());
    settings.policy.budgets.at_once = plan.at_once();
    let ports = process.ports(Arc::new(diary.of(process.id())), candidate);
    let hold = Hold::default();
    let migrator = Migrator::new(ports.clone(), settings).with_hold(hold.clone());
    let answers = Interruptions::new(ports, process.notices(), InterruptionSettings::default(), hold);
    let work = future::try_join(Box::pin(migrator.run(&stop)), Box::pin(answers.run(&stop)));
    let too_long = async {
        stop.wait().await;
        process.sleep_until(process.instant() + GRACE).await;
    };
    match future::select(work, pin!(too_long)).await {
        // only a lost lease ends it unasked
        future::Either::Left(_) => {}
        future::Either::Right(_) => board.report(format!("process {} does not end", process.id().0)),
    }
}
