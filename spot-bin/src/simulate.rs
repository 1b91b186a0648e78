//! `simulate`: the real migrator on a model of a cluster, under virtual time.
//!
//! What goes to standard output is the same for the same arguments, to the byte: real time is told elsewhere.

mod film;
mod recorder;
mod report;
mod stage;
mod timeline;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use serde::Serialize;
use spot_core::capacity::Class;
use spot_core::decision::is_control_plane;
use spot_core::migrator::{Migrator, Settings};
use spot_core::model::{Ended, Executor, Model, Process, Scenario, World, block_on};
use spot_core::pod::PodSnapshot;
use spot_core::ports::{Clock as _, Observer};
use spot_core::progress::Outcome;
use spot_core::stop::Stop;
use spot_kube::TokioClock;

use crate::cli::{Environment, ScenarioName, SimulateArgs, SimulateOutput};
use crate::cost::{Bill, PriceBook, dollars};
use crate::exit::{Exit, Fault};
use crate::output;
use crate::plan::Because;
use film::{Film, Taken};
use recorder::{Entry, Phase, Recorder, Until};
use stage::Stage;

/// How long Kubernetes takes to start a container again that was killed.
const RESTART: Duration = Duration::from_secs(10);

/// A simulation that has ended.
#[derive(Debug)]
struct Story {
    scenario: Scenario,
    seed: u64,
    start: Timestamp,
    cast: Cast,
    outcome: &'static str,
    detail: String,
    retired: usize,
    evictions: usize,
    refused_evictions: usize,
    lasted: Duration,
    /// None where no price is known.
    costs: Option<Costs>,
    /// Nodes that were refused and are still there, and why.
    kept: Vec<Kept>,
    assumptions: Vec<String>,
    timeline: Vec<Entry>,
    phases: BTreeMap<Arc<str>, Vec<(Duration, Option<Phase>)>>,
    film: Taken,
}

/// What the cluster is made of at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cast {
    control_plane: usize,
    on_demand: usize,
    spot: usize,
    /// Nodes that are paid for in another way, or nobody knows how.
    others: usize,
    /// Pods on on-demand nodes, or on none, that a drain would move.
    pods: usize,
}

/// What the nodes cost, before and after.
#[derive(Clone, Debug, Serialize)]
struct Costs {
    before: Bill,
    after: Bill,
}

/// A node that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Kept {
    node: String,
    reasons: Vec<Because>,
}

/// The same for machines.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'s> {
    outcome: &'static str,
    retired: usize,
    evictions: usize,
    virtual_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<&'s Costs>,
    kept: &'s [Kept],
    assumptions: &'s [String],
    timeline: &'s [Entry],
}

/// Runs a simulation and prints what happened.
///
/// # Errors
/// When arguments, configuration or files are wrong, the simulated run fails, or nothing can be printed.
pub fn simulate(
    args: &SimulateArgs,
    overrides: &BTreeMap<String, String>,
    environment: &Environment,
) -> Result<Exit, Fault> {
    let clock = TokioClock::new();
    let stage = Stage::of(args, overrides, environment)?;
    stage.notes.iter().for_each(output::note);
    let story = Story::of(args, stage, output::is_watched())?;
    output::result(&match args.output {
        SimulateOutput::Text => timeline::text(&story),
        SimulateOutput::Json => story.json()?,
        SimulateOutput::Html => report::html(&story)?,
    })?;
    if output::is_watched() {
        output::note(format_args!("that took {:.2} s of real time", clock.instant().0.as_secs_f64()));
    }
    Ok(Exit::Orderly)
}

impl Story {
    fn of(args: &SimulateArgs, stage: Stage, watched: bool) -> anyhow::Result<Self> {
        let Stage { model, settings, prices, assumptions, notes: _ } = stage;
        let scenario = Scenario::from(args.scenario);
        let (start, began, cast, before) =
            model.with(|world| (world.wall(), world.now(), Cast::of(world), bill(world, &prices)));
        // Only a page shows it.
        let film = (args.output == SimulateOutput::Html).then(|| Film::of(&model, &prices));
        let recorder = Arc::new(Recorder::new(start, cast.on_demand, watched));

        let process = model.process();
        match scenario {
            Scenario::KilledHalfway => {
                if until_killed(&model, &process, &recorder, &settings, cast.on_demand)? {
                    let now = model.with(|world| world.now());
                    model.run_until(now + RESTART).context("the simulation came to no end")?;
                    recorder.started(model.with(|world| world.wall()));
                    go_on(&model, &model.process(), &recorder, settings)?;
                }
            }
            Scenario::SpotAvailable | Scenario::SpotExhausted | Scenario::BlockedByBudget => {
                let observer = recorder.witness(Until::Ever);
                if run(&model, &process, observer, settings.clone())? == Outcome::Recovered {
                    go_on(&model, &process, &recorder, settings)?;
                }
            }
        }
        let told = recorder.told();
        let report = told.report.context("the simulated run ended without a report")?;
        let (lasted, after, kept) = model.with(|world| {
            let kept = told.refused.iter().filter(|(name, _)| world.node(name).is_some()).map(|(name, reasons)| Kept {
                node: name.to_string(),
                reasons: reasons.iter().map(Because::from).collect(),
            });
            (world.now().0.saturating_sub(began.0), bill(world, &prices), kept.collect())
        });
        let costs = Costs { before, after };
        Ok(Self {
            scenario,
            seed: args.seed,
            start,
            cast,
            outcome: report.outcome.kind().as_str(),
            detail: recorder::detail(&report.outcome),
            retired: told.retired,
            evictions: told.evictions,
            refused_evictions: told.refused_evictions,
            lasted,
            costs: costs.is_known().then_some(costs),
            kept,
            assumptions,
            timeline: told.timeline,
            phases: told.phases,
            film: film.map(|film| film.develop()).unwrap_or_default(),
        })
    }

    fn json(&self) -> anyhow::Result<String> {
        let document = Document {
            outcome: self.outcome,
            retired: self.retired,
            evictions: self.evictions,
            virtual_seconds: recorder::seconds(self.lasted),
            costs: self.costs.as_ref(),
            kept: &self.kept,
            assumptions: &self.assumptions,
            timeline: &self.timeline,
        };
        Ok(format!("{}\n", serde_json::to_string(&document).context("can't write JSON")?))
    }
}

impl Costs {
    fn is_known(&self) -> bool {
        self.before.is_known() || self.after.is_known()
    }

    /// What is known of both, as people write it.
    fn sums(&self) -> [String; 2] {
        [&self.before.total, &self.after.total]
            .map(|sum| if sum.is_priced() { dollars(sum.monthly.0) } else { "unknown".to_owned() })
    }

    /// Both sums, and what they leave out.
    fn words(&self) -> String {
        let (before, after) = (&self.before.total, &self.after.total);
        let unknown = match (before.unpriced, after.unpriced) {
            (0, 0) => String::new(),
            (before, after) => format!(
                "; left out: {before} nodes before and {after} after, without a known price, which `--prices FILE` adds"
            ),
        };
        let [before, after] = self.sums();
        format!("{before} before, {after} after{unknown}")
    }
}

/// What the nodes of a world cost as they are.
fn bill(world: &World, prices: &PriceBook) -> Bill {
    let class = |name: &Arc<str>| world.class_of(name).unwrap_or(Class::Unknown);
    Bill::of(world.view().nodes().iter().map(|node| (node, class(&node.name))), prices)
}

/// One run, to its end.
fn run(model: &Model, process: &Process, observer: Arc<dyn Observer>, settings: Settings) -> anyhow::Result<Outcome> {
    let migrator = Migrator::new(process.ports_alone(observer), settings);
    let ended = block_on(model, migrator.once(&Stop::default())).context("the simulation came to no end")?;
    Ok(ended.context("the simulated run failed")?.outcome)
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

/// What is left of an earlier process is finished, and then, at the next tick, there is a run.
fn go_on(model: &Model, process: &Process, recorder: &Arc<Recorder>, settings: Settings) -> anyhow::Result<()> {
    let stop = Stop::default();
    let observer = recorder.witness(Until::Migrated(stop.clone()));
    let migrator = Migrator::new(process.ports_alone(observer), settings);
    let ended = block_on(model, migrator.run(&stop)).context("the simulation came to no end")?;
    ended.context("the simulated process failed")
}

impl Cast {
    fn of(world: &World) -> Self {
        let view = world.view();
        let is_moved = |pod: &PodSnapshot| {
            let on_demand = pod.node.as_ref().is_none_or(|node| world.class_of(node) == Some(Class::OnDemand));
            pod.is_movable() && on_demand
        };
        let pods = view.pods().filter(|pod| is_moved(pod));
        let mut cast = Self { pods: pods.count(), ..Self::default() };
        for node in view.nodes() {
            match world.class_of(node.name.as_ref()) {
                _ if is_control_plane(node) => cast.control_plane += 1,
                Some(Class::OnDemand) => cast.on_demand += 1,
                Some(Class::Spot) => cast.spot += 1,
                Some(Class::Reserved | Class::Unknown) | None => cast.others += 1,
            }
        }
        cast
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
