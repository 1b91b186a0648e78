//! What a plan is made of: from the cluster, or from files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use spot_core::cloud::{CloudFacts, Freshness};
use spot_core::error::chain;
use spot_core::judge::{Facts, Judgement, Policy, RunFacts, judge};
use spot_core::memory::Memory;
use spot_core::node::{NodeRef, NodeSnapshot};
use spot_core::ports::{Clock as _, Cluster as _, Scope};
use spot_core::view::View;
use spot_kube::preflight::Features;
use spot_kube::{KubeCluster, Right, TokioClock};
use tokio::runtime;

use super::Plan;
use crate::cli::{Environment, PlanArgs};
use crate::config::{Config, Log, LogLevel};
use crate::connection::{self, Connection};
use crate::cost::{self, PriceBook};
use crate::exit::Fault;
use crate::provider::Provider;
use crate::saved::Saved;
use crate::settings::{self, Own};
use crate::telemetry;

/// Why the memory is not read where nobody says where it is.
const UNNAMED: &str = "name its namespace with `state.namespace`, --state-namespace or SPOT_MIGRATOR_STATE_NAMESPACE";

/// How long the cloud may take to say what it knows of all nodes.
const SURVEY: Duration = Duration::from_mins(2);
/// How long the cloud may take to say what spot costs.
const PRICES: Duration = Duration::from_secs(20);
/// How long the cluster may take to list everything.
const LISTING: Duration = Duration::from_mins(2);

/// A plan, and what is to be said beside it.
pub(super) struct Gathered {
    pub(super) plan: Plan,
    pub(super) notes: Vec<String>,
}

/// What was seen.
struct Seen {
    at: Timestamp,
    view: Arc<View>,
    cloud: CloudFacts,
    memory: Memory,
    run: RunFacts,
    prices: PriceBook,
    notes: Vec<String>,
}

/// The plan for what these arguments name.
pub(super) fn plan(
    args: &PlanArgs,
    overrides: &BTreeMap<String, String>,
    environment: &Environment,
) -> Result<Gathered, Fault> {
    let (config, assumed) = connection::configuration_of_any_provider(&args.config, environment, overrides)?;
    let own = Own::of(environment);
    let policy = settings::settings(&config, &own).policy;
    let prices = PriceBook::read(config.prices.as_deref()).map_err(Fault::usage)?;
    let seen = if args.files.is_empty() {
        settings::supported(&config).map_err(Fault::usage)?;
        // Only what may be wrong with the plan belongs beside it.
        telemetry::start(Log { level: config.log.level.min(LogLevel::Warn), ..config.log })?;
        live(args, environment, &config, &policy, prices)?
    } else {
        saved(args, &config, prices)?
    };
    let plan = Plan::of(&seen.judged(&policy), &seen.view, own.node.as_deref(), &seen.prices);
    Ok(Gathered { plan, notes: assumed.into_iter().chain(seen.notes).collect() })
}

impl Seen {
    fn judged<'a>(&'a self, policy: &'a Policy) -> Judgement<'a, Arc<NodeSnapshot>> {
        let facts = Facts { view: &self.view, cloud: &self.cloud, memory: &self.memory, run: &self.run };
        judge(self.view.nodes(), &facts, policy, self.at)
    }
}

fn live(
    args: &PlanArgs,
    environment: &Environment,
    config: &Config,
    policy: &Policy,
    prices: PriceBook,
) -> Result<Seen, Fault> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().context("can't start the runtime")?;
    runtime.block_on(async {
        let connection = Connection::open(&args.access, environment, &config.state).await?;
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
        let (at, view) = (connection.clock.now(), live.view());
        let provider = Provider::of(config, environment, &connection.clock, None).await?;
        let port = provider.port();
        let by = connection.clock.instant() + SURVEY;
        let ask = async |chosen: &[NodeRef]| {
            let asked = port.survey(view.nodes(), chosen, Freshness::Cached, by).await;
            asked.context("could not ask the cloud")
        };
        let cloud = ask(&[]).await?;
        let by = connection.clock.instant() + PRICES;
        let (prices, unasked) = match provider.spot_prices(&cost::instance_types(view.nodes()), by).await {
            Ok(spot) => (prices.with_spot(spot), None),
            Err(error) => (prices, Some(format!("EC2 did not say what spot costs: {}", chain(&error)))),
        };
        let (run, notes) = (RunFacts::default(), note.into_iter().chain(unasked).collect());
        let mut seen = Seen { at, view: Arc::clone(&view), cloud, memory, run, prices, notes };
        // As a run does: what costs a call each is asked for those that would go first.
        let mut asked: Vec<NodeRef> = Vec::new();
        loop {
            let judged = seen.judged(policy);
            let more = judged.unasked(&judged.batch(), &asked);
            if more.is_empty() {
                return Ok(seen);
            }
            asked.extend(more.into_iter().map(|node| node.reference()));
            seen.cloud = ask(&asked).await?;
        }
    })
}

fn saved(args: &PlanArgs, config: &Config, prices: PriceBook) -> Result<Seen, Fault> {
    let Saved { view, cloud, notes } = Saved::read(&args.files, config)?;
    let (at, memory, run) = (TokioClock::new().now(), Memory::default(), RunFacts::default());
    Ok(Seen { at, view, cloud, memory, run, prices, notes })
}

/// The plan can do without it.
fn is_of_memory(right: &Right) -> bool {
    right.resource == "configmaps"
}

/// What is said when the memory is not read.
fn forgotten(why: &str) -> String {
    format!("what the migrator remembers is unknown, a pause and the nodes of today included: {why}")
}
