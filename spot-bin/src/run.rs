//! `run`: the migrator and the answer to interruptions on a real cluster, with everything that goes on beside them.

pub(crate) mod beside;
mod led;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use spot_core::error::RunError;
use spot_core::ports::{CloudProvider, Cluster, Observer, Ports};
use spot_core::stop::Stop;
use spot_kube::{Events, EventsWorker};
use tokio::runtime;
use tokio::sync::watch;
use tracing::{info, warn};

use self::beside::Beside;
use self::led::Led;
use crate::cli::{Environment, RunArgs};
use crate::config::Config;
use crate::connection::{self, Connection};
use crate::cost::{Ledger, PriceBook};
use crate::exit::{Exit, Fault};
use crate::http::{Readiness, Server};
use crate::leadership::{self, Election};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::notices::Notices;
use crate::notify::{self, Audience, Listener};
use crate::observers::Observers;
use crate::provider::Provider;
use crate::reload::{self, Given, Named, Reload};
use crate::rights::{self, Missing};
use crate::settings::{self, Own};
use crate::signals::Signals;
use crate::telemetry::{self, Lines};

/// How long an API server may be out of reach at the start: one that is being replaced is back in minutes, and a pod
/// that ends is started again anyway.
const PATIENCE: Duration = Duration::from_mins(5);
/// The same for a single run, whose caller decides when to try again.
const NO_PATIENCE: Duration = Duration::ZERO;
/// How long names that are being looked up may hold up the end of the process.
const LAST_LOOKUPS: Duration = Duration::from_millis(100);

/// Runs the migrator.
///
/// # Errors
/// When arguments or configuration are wrong, the cluster can't be reached, a right is missing, the run fails, or a
/// task beside it dies.
pub fn run(args: &RunArgs, overrides: &BTreeMap<String, String>, environment: &Environment) -> Result<Exit, Fault> {
    let config = connection::configuration(&args.config, environment, overrides)?;
    settings::supported(&config).map_err(Fault::usage)?;
    // Before signals are caught: a file system that hangs must not keep anybody from ending the process.
    let files = Files::read(&config).map_err(Fault::usage)?;
    let lines = telemetry::start(config.log)?;
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("can't start the runtime")?;
    let ended =
        runtime.block_on(Work { args, config: &config, environment, overrides, lines: &lines }.until_told(files));
    runtime.shutdown_timeout(LAST_LOOKUPS);
    ended
}

/// What is to be done.
struct Work<'a> {
    args: &'a RunArgs,
    config: &'a Config,
    environment: &'a Environment,
    overrides: &'a BTreeMap<String, String>,
    lines: &'a Lines,
}

/// What the files hold that the configuration names.
struct Files {
    named: Named,
    prices: PriceBook,
    listener: Option<Listener>,
}

impl Files {
    fn read(config: &Config) -> anyhow::Result<Self> {
        // First: whatever changes meanwhile is another than this.
        let named = Named::of(config);
        let (prices, listener) = (PriceBook::read(config.prices.as_deref())?, Listener::of(&config.notifications)?);
        Ok(Self { named, prices, listener })
    }
}

impl Work<'_> {
    /// Works until it is done, or told to end.
    async fn until_told(&self, files: Files) -> Result<Exit, Fault> {
        let mut signals = if self.args.once { Signals::catch() } else { Signals::but_hang_up() }?;
        let stop = Stop::default();
        let grace = ("`shutdown.gracePeriod`", self.config.shutdown_grace_period);
        tokio::select! {
            ended = self.work(&stop, files) => ended,
            why = signals.hurry(&stop, grace) => Err(Fault::failed(why)),
        }
    }

    async fn work(&self, stop: &Stop, files: Files) -> Result<Exit, Fault> {
        let Files { named, prices, listener } = files;
        let own = Own::of(self.environment);
        self.introduce(&own);
        let connection = Connection::open(&self.args.access, self.environment, &self.config.state).await?;
        let namespace = connection.namespace()?;
        let metrics = Metrics::new().context("can't make the metrics")?;
        metrics.runs_dry(self.config.dry_run);
        let provider = Provider::of(self.config, self.environment, &connection.clock, Some(&metrics)).await?;
        let ledger = Arc::new(Ledger::new(provider.clone(), prices, Arc::clone(&connection.clock), metrics.clone()));
        let readiness = Readiness::new(stop.clone());
        let mut observers = Observers::default()
            .and(Arc::new(Log::default()))
            .and(Arc::new(metrics.clone()))
            .and(Arc::clone(&ledger) as Arc<dyn Observer>)
            .and(Arc::new(readiness.clone()));
        let mut beside = Beside::default();
        let saved = Arc::clone(&ledger);
        let saved: notify::Saved = Box::new(move || saved.saved_by_run());
        let (notifier, worker, audience) = notify::notifier(listener, &metrics, saved);
        let notifier = Arc::new(notifier);
        observers = observers.and(Arc::clone(&notifier) as Arc<dyn Observer>);
        beside.notifications = Some(tokio::spawn(worker.run()));
        // Before anything is waited for: an API server that is slow to come must not look like a process that hangs.
        if !self.args.once {
            let address = ("server.address", self.config.server_address);
            let server = Server::bind(address, metrics.clone(), readiness.clone()).await?;
            info!(address = %server.address()?, "metrics and health");
            beside.server = Some(tokio::spawn(server.run(stop.clone())));
        }
        let hang_up = (!self.args.once).then(reload::hang_up).transpose()?;
        let reload = self.reload(named, &metrics, &ledger, &audience);
        let in_force = reload.current.subscribe();
        let missing = tokio::select! {
            answered = self.preflight(&connection, &provider, stop) => answered?,
            died = beside.first_to_die(stop) => return Err(Fault::failed(died)),
        };
        let Some(missing) = missing else {
            // The sender of messages ends with its last observer.
            drop((observers, notifier));
            beside.end(self.config.shutdown_grace_period).await;
            return Ok(Exit::Orderly);
        };
        if missing.events.is_empty() {
            let (events, worker) = self.events(&connection);
            observers = observers.and(Arc::new(events));
            beside.events = Some(tokio::spawn(EventsWorker::run(worker)));
        }

        // Kept until the lead was given back: the publisher of Events ends with its last observer.
        let observer: Arc<dyn Observer> = Arc::new(observers);
        let notices = if self.answers() {
            let (clock, observer) = (&connection.clock, Arc::clone(&observer));
            Notices::of(self.config, self.environment, &provider, clock, Some(&metrics), observer).await
        } else {
            Ok(None)
        };
        let leading = async {
            let (election, once) = (&self.config.leader_election, self.args.once);
            let lease = leadership::lease_name(self.config)
                .map(|name| leadership::lease(election, name, namespace, self.environment, once));
            let election = Election {
                access: &self.args.access,
                environment: self.environment,
                clock: &connection.clock,
                lease: lease.as_ref(),
                patience: lease.as_ref().filter(|_| once).map(leadership::patience),
                told: None,
            };
            let Some(lead) = election.win(&readiness, stop).await? else { return Ok(Exit::Orderly) };
            // Standing by it was ready; leading it is once it has its first view.
            readiness.follows(false);
            metrics.leads(!self.config.dry_run);
            let ports = Ports {
                cluster: Arc::clone(&connection.cluster) as Arc<dyn Cluster>,
                cloud: Arc::clone(&ledger) as Arc<dyn CloudProvider>,
                clock: Arc::clone(&connection.clock),
                observer: Arc::clone(&observer),
                leadership: lead.leadership(),
            };
            let (own, metrics, provider) = (&own, &metrics, &provider);
            let (missing, notifier) = (&missing, &*notifier);
            let work = Led { work: self, in_force, own, metrics, notifier, ports, provider, missing, stop };
            let ended = Box::pin(work.everything(notices)).await;
            metrics.leads(false);
            let lost = lead.end().await?;
            ended.map_err(|fault| because(fault, lost))
        };
        let ended = tokio::select! {
            ended = leading => ended,
            died = beside.first_to_die(stop) => Err(Fault::failed(died)),
            never = reload.run(hang_up) => match never {},
        };
        drop((observer, notifier));
        if ended.as_ref().is_err_and(|fault| fault.exit == Exit::LeadershipLost) {
            beside.fall_silent();
        }
        stop.set();
        // Within the time after which an end is called none that is orderly.
        beside.end(self.config.shutdown_grace_period).await;
        ended
    }

    /// What follows the file.
    fn reload<'r>(
        &'r self,
        named: Named,
        metrics: &'r Metrics,
        ledger: &'r Ledger,
        audience: &'r Audience,
    ) -> Reload<'r> {
        Reload {
            path: self.args.config.config.as_deref(),
            given: Arc::new(Given { environment: self.environment.clone(), overrides: self.overrides.clone() }),
            metrics,
            ledger,
            lines: self.lines,
            audience,
            current: watch::Sender::new(Arc::new(self.config.clone())),
            named,
        }
    }

    /// The publisher of Events.
    fn events(&self, connection: &Connection) -> (Events, EventsWorker) {
        let instance = self.environment.get("POD_NAME").or_else(|| self.environment.get("HOSTNAME"));
        let instance = instance.unwrap_or("spot-migrator").to_owned();
        Events::new(connection.client.clone(), Arc::clone(&connection.clock), instance)
    }

    /// Says once what is in force, and what that leaves off.
    fn introduce(&self, own: &Own) {
        info!(version = env!("CARGO_PKG_VERSION"), configuration = self.config.to_json(), "starting");
        if own.node.is_none() {
            warn!(
                "NODE_NAME is not set: the node that runs the migrator is not known, and not kept for last; set it \
                 from spec.nodeName in the pod's manifest"
            );
        }
        if self.config.interruption.queue.is_some() && !self.answers() {
            let why = if self.args.once { "in a single run" } else { "in a dry run" };
            warn!("`interruption.queueUrl` is set, but no queue is read {why}");
        }
        if !self.config.leader_election.enabled {
            warn!("`leaderElection.enabled` is off: see to it that only ever one process runs");
        }
    }

    /// Whether interruptions are answered: a single run migrates, and nothing is written in a dry run.
    fn answers(&self) -> bool {
        !self.args.once && rights::answers(self.config)
    }

    /// The rights that something has to go without; none: told to stop before API server and cloud answered.
    async fn preflight(
        &self,
        connection: &Connection,
        provider: &Provider,
        stop: &Stop,
    ) -> Result<Option<Missing>, Fault> {
        let features = rights::features(self.config, self.answers());
        let patience = if self.args.once { NO_PATIENCE } else { PATIENCE };
        let missing = tokio::select! {
            missing = connection.missing_rights(&features, patience) => Missing::of(missing?),
            () = stop.wait() => return Ok(None),
        };
        connection::need(&missing.fatal(self.answers()))?;
        for right in &missing.events {
            warn!(%right, "a right is missing: no Kubernetes Events are published");
        }
        // Interruptions are answered meanwhile.
        if !self.answers() {
            tokio::select! {
                answered = provider.must_answer(connection.clock.as_ref(), patience) => answered?,
                () = stop.wait() => return Ok(None),
            }
        }
        Ok(Some(missing))
    }
}

/// How a process ends for this error.
pub(crate) fn fault(error: RunError) -> Fault {
    let exit = if matches!(error, RunError::LostLeadership) { Exit::LeadershipLost } else { Exit::Failed };
    Fault { exit, error: error.into() }
}

/// The same with the reason why the lease was lost, if that is what went wrong.
pub(crate) fn because(fault: Fault, lost: Option<String>) -> Fault {
    match lost {
        Some(why) if fault.exit == Exit::LeadershipLost => {
            Fault { error: anyhow!(why).context(fault.error.to_string()), ..fault }
        }
        Some(_) | None => fault,
    }
}

#[cfg(test)]
mod tests {
    use spot_core::error::{ErrorClass, PortError};

    use super::*;

    #[test]
    fn a_lost_leadership_has_a_code_of_its_own() {
        assert_eq!(fault(RunError::LostLeadership).exit, Exit::LeadershipLost);
        let unreachable = RunError::Cluster(PortError::new(ErrorClass::Timeout, "no answer"));
        assert_eq!(fault(unreachable).exit, Exit::Failed);
    }
}
