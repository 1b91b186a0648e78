//! `spot-agent`: answers what the metadata service of one machine announces, for the node that it is and no other.
//!
//! ```text
//! arguments ─► rights, node and machine ─► Interruptions, of this node ◄─ metadata service
//!                                               └─► log · metrics · http · Events
//! ```

pub mod arguments;
mod machine;
mod own_node;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use spot_aws::interruption::metadata::{Metadata, MetadataSettings};
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::interruption::{Hold, InterruptionSettings, Interruptions, Rebalance};
use spot_core::ports::{Alone, Clock, Cluster, Instant, Observer, Ports, Scope};
use spot_core::stop::Stop;
use spot_kube::preflight::rights_on_one_node;
use spot_kube::{Events, EventsWorker, KubeCluster, Right, TokioClock};
use tokio::runtime;
use tracing::{info, warn};

use self::arguments::{Arguments, Recommendation};
use self::machine::OwnMachine;
use crate::cli::Environment;
use crate::connection;
use crate::exit::{Exit, Fault};
use crate::http::{Readiness, Server};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::observers::Observers;
use crate::rights::NeededBy;
use crate::run::beside::Beside;
use crate::signals::Signals;
use crate::telemetry;

/// How long API server and metadata service may be out of reach at the start: a pod that ends is started again anyway.
const PATIENCE: Duration = Duration::from_mins(5);
/// How long one round of questions to the API server may take, and the pause until the next.
const ATTEMPT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(5);
/// How long an orderly end may take: notices are given back, which nobody waits for.
const GRACE: Duration = Duration::from_secs(12);
/// How long names that are being looked up may hold up the end of the process.
const LAST_LOOKUPS: Duration = Duration::from_millis(100);
/// Names are looked up on a thread, which needs little: it runs on every node.
const STACK: usize = 256 * 1024;

/// Runs the agent.
///
/// # Errors
/// When arguments or environment are wrong, API server or metadata service can't be reached, a right is missing, the
/// machine is not the node's, or a task beside it dies.
pub fn agent(arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    let node = arguments.node().map_err(Fault::usage)?;
    let endpoint = arguments.endpoint(environment).map_err(Fault::usage)?;
    telemetry::start(arguments.log())?;
    let mut runtime = runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).thread_stack_size(STACK).build();
    let runtime = runtime.context("can't start the runtime")?;
    let ended = runtime.block_on(Work { arguments, environment, node, endpoint }.until_told());
    runtime.shutdown_timeout(LAST_LOOKUPS);
    ended
}

/// What is to be done.
struct Work<'a> {
    arguments: &'a Arguments,
    environment: &'a Environment,
    node: &'a str,
    endpoint: String,
}

impl Work<'_> {
    /// Works until it is told to end.
    async fn until_told(&self) -> Result<Exit, Fault> {
        let mut signals = Signals::catch()?;
        let stop = Stop::default();
        tokio::select! {
            ended = self.work(&stop) => ended,
            why = signals.hurry(&stop, ("its time", GRACE)) => Err(Fault::failed(why)),
        }
    }

    async fn work(&self, stop: &Stop) -> Result<Exit, Fault> {
        info!(version = env!("CARGO_PKG_VERSION"), node = self.node, endpoint = self.endpoint, "starting");
        let client = spot_kube::connect(&connection::access(&self.arguments.access, self.environment))
            .await
            .context("no cluster to reach: run in a pod, or name a kubeconfig with --kubeconfig or KUBECONFIG")
            .map_err(Fault::usage)?;
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let cluster = Arc::new(KubeCluster::without_memory(client.clone(), Arc::clone(&clock)));
        let metrics = Metrics::new().context("can't make the metrics")?;
        let readiness = Readiness::new(stop.clone());
        let address = ("--server-address", self.arguments.server_address);
        let server = Server::bind(address, metrics.clone(), readiness.clone()).await?;
        info!(address = %server.address()?, "metrics and health");
        let mut beside = Beside { server: Some(tokio::spawn(server.run(stop.clone()))), ..Beside::default() };
        let with_events = tokio::select! {
            answered = may_publish(&cluster, clock.as_ref()) => answered,
            () = stop.wait() => return Ok(end(beside, stop).await),
            died = beside.first_to_die(stop) => Err(Fault::failed(died)),
        }?;
        let log = Arc::new(Log::default());
        let mut observers = Observers::default().and(log).and(Arc::new(metrics)).and(Arc::new(readiness));
        if with_events {
            let instance = self.environment.get("POD_NAME").unwrap_or(self.node).to_owned();
            let (events, worker) = Events::new(client, Arc::clone(&clock), instance);
            observers = observers.and(Arc::new(events));
            beside.events = Some(tokio::spawn(EventsWorker::run(worker)));
        }
        let observer: Arc<dyn Observer> = Arc::new(observers);
        let ended = tokio::select! {
            ended = self.answer(cluster, clock, observer, stop) => ended,
            died = beside.first_to_die(stop) => Err(Fault::failed(died)),
        };
        end(beside, stop).await;
        ended
    }

    /// Answers what is announced of the machine, once it is certain which one that is.
    async fn answer(
        &self,
        cluster: Arc<dyn Cluster>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        stop: &Stop,
    ) -> Result<Exit, Fault> {
        let source = tokio::select! {
            opened = self.source(cluster.as_ref(), &clock, &observer) => opened?,
            () = stop.wait() => return Ok(Exit::Orderly),
        };
        info!(instance = %source.instance(), "answering what is announced of this machine");
        let ports = Ports { cluster, cloud: Arc::new(OwnMachine), clock, observer, leadership: Arc::new(Alone) };
        let interruptions = Interruptions::new(ports, Arc::new(source), self.settings(), Hold::default());
        interruptions.run(stop).await.map_err(Fault::failed)?;
        if stop.is_set() { Ok(Exit::Orderly) } else { Err(Fault::failed(anyhow!("the answers ended by themselves"))) }
    }

    /// The notices of the machine, which is the node's.
    async fn source(
        &self,
        cluster: &dyn Cluster,
        clock: &Arc<dyn Clock>,
        observer: &Arc<dyn Observer>,
    ) -> Result<Metadata, Fault> {
        let provider_id = own_node::provider_id(cluster, clock.as_ref(), self.node).await?;
        let settings = MetadataSettings {
            endpoint: self.endpoint.clone(),
            rebalance: self.arguments.rebalance_recommendation != Recommendation::Ignore,
        };
        let by = clock.instant() + PATIENCE;
        let opened = Metadata::open(&settings, &provider_id, Arc::clone(clock), Arc::clone(observer), by).await;
        opened.map_err(|error| match error.class {
            ErrorClass::Permanent => Fault::usage(error),
            _ => Fault::failed(anyhow::Error::new(error).context(
                "the metadata service can't be reached: run in the network of the host (`hostNetwork: true`), or allow \
                 two hops (`HttpPutResponseHopLimit: 2`)",
            )),
        })
    }

    fn settings(&self) -> InterruptionSettings {
        InterruptionSettings {
            scope: Scope::Node(self.node.to_owned()),
            rebalance: match self.arguments.rebalance_recommendation {
                Recommendation::Ignore => Rebalance::Ignore,
                Recommendation::Taint => Rebalance::Taint,
            },
            scheduled_change_lead: self.arguments.scheduled_change_lead,
            delete_blocked_after: self.arguments.delete_blocked_pods_after,
            ..InterruptionSettings::default()
        }
    }
}

/// Ends what goes on beside the work.
async fn end(beside: Beside, stop: &Stop) -> Exit {
    stop.set();
    beside.end(GRACE).await;
    Exit::Orderly
}

/// Refuses to work without the rights that it takes. Whether Events may be published is another matter.
async fn may_publish(cluster: &KubeCluster, clock: &dyn Clock) -> Result<bool, Fault> {
    let missing = patiently(clock, async |by| cluster.missing_of(rights_on_one_node(), by).await).await?;
    let is_for_events = |right: &Right| NeededBy::of(right) == NeededBy::Events;
    let (for_events, needed): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_for_events);
    if !needed.is_empty() {
        let needed: Vec<_> = needed.iter().map(ToString::to_string).collect();
        let list = needed.join(", ");
        return Err(Fault::failed(anyhow!(
            "rights are missing: {list}: grant what `deploy/agent/rbac.yaml` grants; nothing was touched"
        )));
    }
    for right in &for_events {
        warn!(%right, "a right is missing: no Kubernetes Events are published");
    }
    Ok(for_events.is_empty())
}

/// The first answer of the API server within [`PATIENCE`].
async fn patiently<T>(clock: &dyn Clock, ask: impl AsyncFn(Instant) -> Result<T, PortError>) -> Result<T, Fault> {
    let until = clock.instant() + PATIENCE;
    loop {
        let error = match ask(clock.instant() + ATTEMPT).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let next = clock.instant() + PAUSE;
        let may_pass = matches!(error.class, ErrorClass::Transient | ErrorClass::Timeout);
        if !may_pass || next > until {
            let what = "the API server does not answer what the agent asks: look at the address, the network and the \
                        credentials";
            return Err(Fault::failed(anyhow::Error::new(error).context(what)));
        }
        warn!(error = chain(&error), "the API server does not answer yet; trying again");
        clock.sleep_until(next).await;
    }
}
