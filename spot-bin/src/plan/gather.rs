//! What a plan is made of: from the cluster, or from files.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use spot_core::cloud::CloudFacts;
use spot_core::judge::{Facts, RunFacts, judge};
use spot_core::memory::Memory;
use spot_core::ports::{Clock, Cluster as _, Scope};
use spot_core::view::{Known, View};
use spot_kube::preflight::Features;
use spot_kube::saved::{self, SAVE, SavedFile};
use spot_kube::{KubeCluster, NodeObject, Right, TokioClock};
use tokio::runtime;

use super::Plan;
use crate::cli::{Environment, PlanArgs};
use crate::config::{Config, Log, LogLevel};
use crate::connection::{self, Connection};
use crate::exit::Fault;
use crate::settings::{self, Own};
use crate::telemetry;

/// Why the memory is not read where nobody says where it is.
const UNNAMED: &str = "name its namespace with `state.namespace`, --state-namespace or SPOT_MIGRATOR_STATE_NAMESPACE";

/// How long the cluster may take to list everything.
const LISTING: Duration = Duration::from_mins(2);

/// A plan, and what is to be said beside it.
pub(super) struct Gathered {
    pub(super) plan: Plan,
    pub(super) notes: Vec<String>,
}

/// What was seen.
struct Seen {
    view: Arc<View>,
    memory: Memory,
    notes: Vec<String>,
}

/// The plan for what these arguments name.
pub(super) fn plan(
    args: &PlanArgs,
    overrides: &BTreeMap<String, String>,
    environment: &Environment,
) -> Result<Gathered, Fault> {
    let (config, mut notes) = configuration(args, overrides, environment)?;
    settings::supported(&config).map_err(Fault::usage)?;
    let own = Own::of(environment);
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let provider = connection::provider(&config, &clock)?;
    let seen = if args.files.is_empty() {
        // Only what may be wrong with the plan belongs beside it.
        telemetry::start(Log { level: config.log.level.min(LogLevel::Warn), ..config.log })?;
        live(args, environment, &config)?
    } else {
        saved(args)?
    };
    notes.extend(seen.notes);

    let cloud = facts(&provider, &seen.view);
    let run = RunFacts::default();
    let facts = Facts { view: &seen.view, cloud: &cloud, memory: &seen.memory, run: &run };
    let policy = settings::settings(&config, &own).policy;
    let plan = Plan::of(&judge(seen.view.nodes(), &facts, &policy, clock.now()), own.node.as_deref());
    Ok(Gathered { plan, notes })
}

/// The configuration, and what had to be assumed for it.
fn configuration(
    args: &PlanArgs,
    overrides: &BTreeMap<String, String>,
    environment: &Environment,
) -> Result<(Config, Vec<String>), Fault> {
    let (config, assumed) = connection::configuration_of_any_provider(&args.config, environment, overrides)?;
    let note = assumed.then(|| "no provider is named: planning for `--cloud-provider-name node-object`".to_owned());
    Ok((config, note.into_iter().collect()))
}

fn facts(provider: &NodeObject, view: &View) -> CloudFacts {
    view.nodes().iter().map(|node| (node.uid.clone(), provider.fact(node))).collect()
}

fn live(args: &PlanArgs, environment: &Environment, config: &Config) -> Result<Seen, Fault> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().context("can't start the runtime")?;
    runtime.block_on(async {
        let connection = Connection::open(&args.access, environment, config).await?;
        let missing = connection.missing_rights(&Features::default(), Duration::ZERO).await?;
        let (of_memory, needed): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_of_memory);
        connection::need(&needed)?;
        let note = match (of_memory.first(), connection.namespace()) {
            (Some(right), _) => Some(forgotten(&format!("the right `{right}` is missing"))),
            (None, Err(_)) => Some(forgotten(UNNAMED)),
            (None, Ok(_)) => None,
        };
        let cluster = if note.is_none() {
            connection.cluster
        } else {
            Arc::new(KubeCluster::without_memory(connection.client.clone(), Arc::clone(&connection.clock)))
        };
        let by = connection.clock.instant() + LISTING;
        let live = cluster.open(Scope::Cluster, by).await.context("could not read the cluster")?;
        let memory = cluster.recall(by).await.context("could not read the cluster's memory")?;
        Ok(Seen { view: live.view(), memory, notes: note.into_iter().collect() })
    })
}

fn saved(args: &PlanArgs) -> Result<Seen, Fault> {
    let files: Vec<_> = args.files.iter().map(|path| read(path)).collect::<Result<_, _>>().map_err(Fault::usage)?;
    let files: Vec<_> = files.iter().map(|(name, text)| SavedFile { name, text }).collect();
    let view = saved::view(&files).map_err(Fault::usage)?;
    let notes = unknown(view.known()).into_iter().collect();
    Ok(Seen { view: Arc::new(view), memory: Memory::default(), notes })
}

fn read(path: &Path) -> anyhow::Result<(String, String)> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("can't read standard input")?;
        return Ok(("standard input".to_owned(), text));
    }
    let name = path.display().to_string();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("can't read {name}: name a file that exists; {SAVE}"))?;
    Ok((name, text))
}

/// The plan can do without it.
fn is_of_memory(right: &Right) -> bool {
    right.resource == "configmaps"
}

/// What is said when the memory is not read.
fn forgotten(why: &str) -> String {
    format!("what the migrator remembers is unknown, a pause and the nodes of today included: {why}")
}

/// What is said of the kinds that no file holds.
fn unknown(known: Known) -> Option<String> {
    let Known { pods, budgets, daemon_sets, claims, volumes } = known;
    let kinds = [
        (pods, "pods"),
        (budgets, "PodDisruptionBudgets"),
        (daemon_sets, "DaemonSets"),
        (claims, "PersistentVolumeClaims"),
        (volumes, "PersistentVolumes"),
    ];
    let missing: Vec<_> = kinds.into_iter().filter(|(known, _)| !known).map(|(_, kind)| kind).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the files hold no {}: what they would say is unknown, and refuses nothing; {SAVE}",
            missing.join(", no ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_missing_are_said_in_one_line() {
        let known = Known { budgets: false, daemon_sets: false, ..Known::default() };
        let said = unknown(known).expect("two are missing");
        assert!(said.starts_with("the files hold no PodDisruptionBudgets, no DaemonSets: "), "{said}");
        assert_eq!(unknown(Known::default()), None);
    }
}
