//! Clusters with a pool, the work on it by new processes, and what became of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use spot_core::error::RunError;
use spot_core::model::{self, Call, FleetSpec, Halt, Model, Offer, Process, Why, World, WorldBuilder};
use spot_core::pool::{Outcome, Pools, Report, Settings, Told, roll};
use spot_core::ports::{Edit, Observer};
use spot_core::progress::Progress;
use spot_core::stop::Stop;

pub(crate) const POOL: &str = "web";
pub(crate) const FLEET: &str = "sfr-1";
pub(crate) const MINUTE: Duration = Duration::from_mins(1);

/// What is asked of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Ready(u32),
    Scale(u32),
    Roll(roll::Terms),
    Remove(Option<Duration>),
}

/// Remembers all progress.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<Progress>>>);

impl Observer for Notes {
    fn observe(&self, _at: Timestamp, event: &Progress) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Notes {
    /// What was told of the pool.
    pub(crate) fn told(&self) -> Vec<Told> {
        let told = |event: &Progress| match event {
            Progress::Pool(told) => Some(told.clone()),
            _other => None,
        };
        self.0.lock().unwrap().iter().filter_map(told).collect()
    }

    /// What went wrong, in words.
    pub(crate) fn problems(&self) -> Vec<String> {
        let problem = |event: &Progress| match event {
            Progress::Problem { what, .. } => Some(what.clone()),
            _other => None,
        };
        self.0.lock().unwrap().iter().filter_map(problem).collect()
    }
}

pub(crate) fn settings() -> Settings {
    Settings::default()
}

/// A fleet that wants what it has: machines of these weights.
pub(crate) fn fleet(weights: &[u32]) -> FleetSpec {
    let spec = FleetSpec::new(FLEET, weights.iter().sum()).members(weights);
    [1, 2, 3].into_iter().fold(spec, |spec, weight| spec.offer(Offer::new(weight)))
}

/// A cluster with a pool of these weights, other nodes that pods can move to, and pods on all of them.
pub(crate) fn cluster(weights: &[u32]) -> WorldBuilder {
    WorldBuilder::default().control_plane(1).spot(2).fleet(fleet(weights)).guarded("web", 8, 1).daemon_set("agent")
}

/// The pool as a process works on it.
pub(crate) fn pools(process: &Process, settings: &Settings, notes: &Notes) -> Pools {
    Pools::new(process.ports_alone(Arc::new(notes.clone())), process.pool(), POOL, settings.clone())
}

pub(crate) fn try_ask(
    model: &Model,
    process: &Process,
    settings: &Settings,
    ask: Ask,
    stop: &Stop,
) -> Result<Result<Report, RunError>, Halt> {
    asked(model, &pools(process, settings, &Notes::default()), ask, stop)
}

fn asked(model: &Model, pools: &Pools, ask: Ask, stop: &Stop) -> Result<Result<Report, RunError>, Halt> {
    model::block_on(model, async {
        match ask {
            Ask::Ready(wanted) => pools.await_ready(wanted, stop).await,
            Ask::Scale(to) => pools.scale(to, stop).await,
            Ask::Roll(terms) => pools.roll(terms, stop).await,
            Ask::Remove(force) => pools.remove(force, stop).await,
        }
    })
}

/// Asks a new process.
pub(crate) fn ask(model: &Model, settings: &Settings, ask: Ask) -> Report {
    let asked = try_ask(model, &model.process(), settings, ask, &Stop::default());
    asked.expect("it ends").expect("it can be done")
}

/// The same, and what was told.
pub(crate) fn ask_and_hear(model: &Model, ask: Ask) -> (Report, Vec<Told>) {
    let (process, notes) = (model.process(), Notes::default());
    let asked = asked(model, &pools(&process, &settings(), &notes), ask, &Stop::default());
    (asked.expect("it ends").expect("it can be done"), notes.told())
}

/// Asks a new process that is killed.
pub(crate) fn ask_in_vain(model: &Model, settings: &Settings, ask: Ask) {
    let asked = try_ask(model, &model.process(), settings, ask, &Stop::default());
    assert!(matches!(asked, Err(Halt::Killed)), "{asked:?}");
}

/// How many calls it takes when nothing disturbs it.
pub(crate) fn calls_of(build: fn() -> Model, what: Ask) -> u64 {
    let model = build();
    let _report = ask(&model, &settings(), what);
    model.with(|world| world.calls().len()) as u64
}

/// Asks again and again, each time a new process, at once.
pub(crate) fn until_done(model: &Model, what: Ask, trouble: &str) {
    for _run in 0..6 {
        match try_ask(model, &model.process(), &settings(), what, &Stop::default()) {
            Ok(Ok(report)) if report.outcome == Outcome::Done => return,
            Ok(_) | Err(Halt::Killed) => {}
            Err(halt) => panic!("{trouble}: {halt}"),
        }
    }
    panic!("{trouble}: it is never done");
}

/// The nodes that went, by name.
pub(crate) fn names(report: &Report) -> Vec<&str> {
    report.retired.iter().map(|node| &*node.name).collect()
}

/// What the fleets want, and what each has: the weights of its machines that run.
fn all_fleets(model: &Model) -> Vec<(String, u32, Vec<u32>)> {
    model.with(|world| {
        let fleets = world.fleets().into_iter().filter(|fleet| !fleet.has_ended);
        let weights = |id: &str| {
            let members = world.members().filter(|(_, fleet, ..)| *fleet == id).map(|(_, _, weight, _)| weight);
            members.collect::<Vec<_>>()
        };
        fleets.map(|fleet| (fleet.id.clone(), fleet.target, weights(&fleet.id))).collect()
    })
}

/// The only fleet: what it wants, and the weights that it has.
pub(crate) fn only(model: &Model) -> (u32, Vec<u32>) {
    let fleets = all_fleets(model);
    let [(_, target, weights)] = &fleets[..] else { panic!("{fleets:?}") };
    (*target, weights.clone())
}

/// Every change of what a fleet wants: from, to, and whether it is by a machine that went.
pub(crate) fn changes(model: &Model) -> Vec<(u32, u32, bool)> {
    let changes = |world: &mut World| {
        let changes = world.fleet_changes().iter();
        changes.map(|change| (change.from, change.to, matches!(change.why, Why::Left(..)))).collect()
    };
    model.with(changes)
}

pub(crate) fn calls(model: &Model, matches: impl Fn(&Call) -> bool) -> usize {
    model.with(|world| world.calls().iter().filter(|record| matches(&record.call)).count())
}

/// Whether it changes anything in cluster or cloud.
pub(crate) fn is_write(call: &Call) -> bool {
    matches!(
        call,
        Call::WriteNode { .. }
            | Call::Evict { .. }
            | Call::DeletePod { .. }
            | Call::DeleteNode(_)
            | Call::DeleteInstance { .. }
            | Call::Resize { .. }
            | Call::Terminate { .. }
            | Call::Cancel(_)
    )
}

pub(crate) fn is_claim(call: &Call) -> bool {
    matches!(call, Call::WriteNode { change, .. } if change.mark == Edit::Set(()))
}

pub(crate) fn blocked(report: &Report) -> Vec<(&str, String)> {
    match &report.outcome {
        Outcome::Blocked(nodes) => nodes.iter().map(|(node, why)| (&*node.name, why.to_string())).collect(),
        other => panic!("{other:?}"),
    }
}
