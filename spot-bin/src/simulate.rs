//! `simulate`: the real migrator on a model of a cluster, under virtual time.
//!
//! What goes to standard output is the same for the same arguments, to the byte: real time is told elsewhere.

mod recorder;
mod timeline;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jiff::tz::TimeZone;
use serde::Serialize;
use spot_core::capacity::Class;
use spot_core::decision::is_control_plane;
use spot_core::migrator::{Migrator, Settings};
use spot_core::model::{Ended, Executor, Model, Process, Scenario, block_on};
use spot_core::ports::{Clock as _, Observer};
use spot_core::stop::Stop;
use spot_core::{Node as _, Schedule};
use spot_kube::TokioClock;

use crate::cli::{Output, ScenarioName, SimulateArgs};
use crate::exit::{Exit, Fault};
use crate::output;
use recorder::{Entry, Recorder, Until};

/// How long Kubernetes takes to start a container again that was killed.
const RESTART: Duration = Duration::from_secs(10);

/// A simulation that has ended.
#[derive(Debug)]
struct Story {
    scenario: Scenario,
    seed: u64,
    cast: Cast,
    outcome: &'static str,
    detail: String,
    retired: usize,
    evictions: usize,
    refused_evictions: usize,
    lasted: Duration,
    timeline: Vec<Entry>,
}

/// What the cluster is made of at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cast {
    control_plane: usize,
    on_demand: usize,
    spot: usize,
    pods: usize,
}

/// The same for machines.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'s> {
    outcome: &'static str,
    retired: usize,
    evictions: usize,
    virtual_seconds: f64,
    timeline: &'s [Entry],
}

/// Runs a simulation and prints what happened.
///
/// # Errors
/// When the simulated run fails, or nothing can be printed.
pub fn simulate(args: &SimulateArgs) -> Result<Exit, Fault> {
    let clock = TokioClock::new();
    let story = Story::of(args, output::is_watched())?;
    output::result(&match args.output {
        Output::Text => timeline::text(&story),
        Output::Json => story.json()?,
    })?;
    if output::is_watched() {
        output::note(format_args!("that took {:.2} s of real time", clock.instant().0.as_secs_f64()));
    }
    Ok(Exit::Orderly)
}

impl Story {
    fn of(args: &SimulateArgs, watched: bool) -> anyhow::Result<Self> {
        let scenario = Scenario::from(args.scenario);
        let model = scenario.build(args.seed, args.nodes, args.pods);
        let cast = Cast::of(&model, args.pods);
        let recorder = Arc::new(Recorder::new(model.with(|world| world.wall()), cast.on_demand, watched));
        let schedule = Schedule::parse("@hourly", &TimeZone::UTC)?;
        let settings = Settings::new(schedule);

        let process = model.process();
        let killed = match scenario {
            Scenario::KilledHalfway => until_killed(&model, &process, &recorder, &settings, cast.on_demand)?,
            Scenario::SpotAvailable | Scenario::SpotExhausted | Scenario::BlockedByBudget => {
                let observer = recorder.witness(Until::Ever);
                run(&model, &process, observer, settings.clone())?;
                false
            }
        };
        if killed {
            after_restart(&model, &recorder, settings)?;
        }
        let lasted = model.with(|world| world.now()).0;
        let told = recorder.told();
        let report = told.report.context("the simulated run ended without a report")?;
        Ok(Self {
            scenario,
            seed: args.seed,
            cast,
            outcome: report.outcome.kind().as_str(),
            detail: recorder::detail(&report.outcome),
            retired: told.retired,
            evictions: told.evictions,
            refused_evictions: told.refused_evictions,
            lasted,
            timeline: told.timeline,
        })
    }

    fn json(&self) -> anyhow::Result<String> {
        let document = Document {
            outcome: self.outcome,
            retired: self.retired,
            evictions: self.evictions,
            virtual_seconds: recorder::seconds(self.lasted),
            timeline: &self.timeline,
        };
        Ok(format!("{}\n", serde_json::to_string(&document).context("can't write JSON")?))
    }
}

/// One run, to its end.
fn run(model: &Model, process: &Process, observer: Arc<dyn Observer>, settings: Settings) -> anyhow::Result<()> {
    let migrator = Migrator::new(process.ports_alone(observer), settings);
    let ended = block_on(model, migrator.once(&Stop::default())).context("the simulation came to no end")?;
    let _told = ended.context("the simulated run failed")?;
    Ok(())
}

/// One run that dies in the middle of a drain, half-way through; false if it ended before.
fn until_killed(
    model: &Model,
    process: &Process,
    recorder: &Arc<Recorder>,
    settings: &Settings,
    nodes: usize,
) -> anyhow::Result<bool> {
    let observer = recorder.witness(Until::Killed { process: process.clone(), node: nodes.div_ceil(2) });
    let migrator = Migrator::new(process.ports_alone(observer), settings.clone());
    let stop = Stop::default();
    let mut executor = Executor::new(model);
    executor.spawn(process, migrator.once(&stop));
    match executor.run().context("the simulation came to no end")? {
        Some((_, Ended::Done(ended))) => {
            let _told = ended.context("the simulated run failed")?;
            Ok(false)
        }
        Some((_, Ended::Killed)) => Ok(true),
        None => Err(anyhow!("the simulated process vanished")),
    }
}

/// What a new process does with what the killed one left, and the run at the next tick.
fn after_restart(model: &Model, recorder: &Arc<Recorder>, settings: Settings) -> anyhow::Result<()> {
    let now = model.with(|world| world.now());
    model.run_until(now + RESTART).context("the simulation came to no end")?;
    recorder.started(model.with(|world| world.wall()));
    let stop = Stop::default();
    let observer = recorder.witness(Until::Migrated(stop.clone()));
    let migrator = Migrator::new(model.process().ports_alone(observer), settings);
    let ended = block_on(model, migrator.run(&stop)).context("the simulation came to no end")?;
    ended.context("the simulated process failed")
}

impl Cast {
    fn of(model: &Model, pods: u32) -> Self {
        model.with(|world| {
            let mut cast = Self { pods: usize::try_from(pods).unwrap_or(usize::MAX), ..Self::default() };
            for node in world.view().nodes() {
                match world.class_of(node.name()) {
                    _ if is_control_plane(node) => cast.control_plane += 1,
                    Some(Class::OnDemand) => cast.on_demand += 1,
                    Some(Class::Spot) => cast.spot += 1,
                    Some(Class::Reserved | Class::Unknown) | None => {}
                }
            }
            cast
        })
    }
}

impl From<ScenarioName> for Scenario {
    fn from(name: ScenarioName) -> Self {
        match name {
            ScenarioName::SpotAvailable => Self::SpotAvailable,
            ScenarioName::SpotExhausted => Self::SpotExhausted,
            ScenarioName::BlockedByBudget => Self::BlockedByBudget,
            ScenarioName::KilledHalfway => Self::KilledHalfway,
        }
    }
}

#[cfg(test)]
mod tests;
