//! `run`: the migrator on a real cluster, with everything that goes on beside it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use spot_core::error::RunError;
use spot_core::migrator::Migrator;
use spot_core::ports::{Cluster, Observer, Ports};
use spot_core::progress::Report;
use spot_core::stop::Stop;
use spot_kube::preflight::Features;
use spot_kube::{Events, EventsWorker, Right};
use tokio::runtime;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::cli::{Environment, RunArgs};
use crate::config::Config;
use crate::connection::{self, Connection};
use crate::exit::{Exit, Fault};
use crate::http::{Readiness, Server};
use crate::leadership::{self, Election};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::observers::Observers;
use crate::provider::Provider;
use crate::settings::{self, Own};
use crate::signals::Signals;
use crate::telemetry;

/// How long an API server may be out of reach at the start: one that is being replaced is back in minutes, and a pod
/// that ends is started again anyway.
const PATIENCE: Duration = Duration::from_mins(5);
/// The same for a single run, whose caller decides when to try again.
const NO_PATIENCE: Duration = Duration::ZERO;
/// How long Events that wait may take to be sent once the work is done.
const LAST_EVENTS: Duration = Duration::from_secs(5);
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
    telemetry::start(config.log)?;
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("can't start the runtime")?;
    let ended = runtime.block_on(Work { args, config: &config, environment }.until_told());
    runtime.shutdown_timeout(LAST_LOOKUPS);
    ended
}

/// What is to be done.
struct Work<'a> {
    args: &'a RunArgs,
    config: &'a Config,
    environment: &'a Environment,
}

impl Work<'_> {
    /// Works until it is done, or told to end.
    async fn until_told(&self) -> Result<Exit, Fault> {
        let mut signals = Signals::catch()?;
        let stop = Stop::default();
        tokio::select! {
            ended = self.work(&stop) => ended,
            why = signals.hurry(&stop, self.config.shutdown_grace_period) => Err(Fault::failed(why)),
        }
    }

    async fn work(&self, stop: &Stop) -> Result<Exit, Fault> {
        let own = Own::of(self.environment);
        self.introduce(&own);
        let connection = Connection::open(&self.args.access, self.environment, self.config).await?;
        let namespace = connection.namespace()?;
        let metrics = Metrics::new().context("can't make the metrics")?;
        let provider = Provider::of(self.config, self.environment, &connection.clock, Some(&metrics)).await?;
        let readiness = Readiness::new(stop.clone());
        let mut observers = Observers::default()
            .and(Arc::new(Log::default()))
            .and(Arc::new(metrics.clone()))
            .and(Arc::new(readiness.clone()));
        let mut beside = Beside::default();
        // Before anything is waited for: an API server that is slow to come must not look like a process that hangs.
        if !self.args.once {
            let server = Server::bind(self.config.server_address, metrics.clone(), readiness.clone()).await?;
            info!(address = %server.address()?, "metrics and health");
            beside.server = Some(tokio::spawn(server.run(stop.clone())));
        }
        let with_events = tokio::select! {
            answered = self.preflight(&connection, &provider, stop) => answered?,
            died = beside.first_to_die(stop) => return Err(Fault::failed(died)),
        };
        let Some(with_events) = with_events else {
            beside.end().await;
            return Ok(Exit::Orderly);
        };
        if with_events {
            let instance = self.environment.get("POD_NAME").or_else(|| self.environment.get("HOSTNAME"));
            let clock = Arc::clone(&connection.clock);
            let (events, worker) =
                Events::new(connection.client.clone(), clock, instance.unwrap_or("spot-migrator").to_owned());
            observers = observers.and(Arc::new(events));
            beside.events = Some(tokio::spawn(EventsWorker::run(worker)));
        }

        // Kept until the lead was given back: the publisher of Events ends with its last observer.
        let observer: Arc<dyn Observer> = Arc::new(observers);
        let leading = async {
            let election = Election {
                args: self.args,
                config: self.config,
                environment: self.environment,
                connection: &connection,
                namespace,
            };
            let Some(lead) = election.win(&readiness, stop).await? else { return Ok(Exit::Orderly) };
            // Standing by it was ready; leading it is once it has its first view.
            readiness.follows(false);
            metrics.leads(!self.config.dry_run);
            let ports = Ports {
                cluster: Arc::clone(&connection.cluster) as Arc<dyn Cluster>,
                cloud: provider.port(),
                clock: Arc::clone(&connection.clock),
                observer: Arc::clone(&observer),
                leadership: lead.leadership(),
            };
            let ended = self.migrate(&Migrator::new(ports, settings::settings(self.config, &own)), stop).await;
            metrics.leads(false);
            let lost = lead.end().await?;
            ended.map_err(|fault| because(fault, lost))
        };
        let ended = tokio::select! {
            ended = leading => ended,
            died = beside.first_to_die(stop) => Err(Fault::failed(died)),
        };
        drop(observer);
        if ended.as_ref().is_err_and(|fault| fault.exit == Exit::LeadershipLost) {
            beside.fall_silent();
        }
        stop.set();
        beside.end().await;
        ended
    }

    async fn migrate(&self, migrator: &Migrator, stop: &Stop) -> Result<Exit, Fault> {
        if self.args.once {
            let report = migrator.once(stop).await.map_err(fault)?;
            return match failures(&report) {
                None => Ok(Exit::of(&report, self.args.detailed_exit_code)),
                Some(error) => Err(Fault::failed(error)),
            };
        }
        migrator.run(stop).await.map_err(fault)?;
        if !stop.is_set() {
            warn!("the schedule does not fire any more");
        }
        Ok(Exit::Orderly)
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
        if !self.config.leader_election.enabled {
            warn!("`leaderElection.enabled` is off: see to it that only ever one process runs");
        }
    }

    /// Whether Events may be published; none: told to stop before API server and cloud answered.
    async fn preflight(
        &self,
        connection: &Connection,
        provider: &Provider,
        stop: &Stop,
    ) -> Result<Option<bool>, Fault> {
        let features = features(self.config);
        let patience = if self.args.once { NO_PATIENCE } else { PATIENCE };
        let missing = tokio::select! {
            missing = connection.missing_rights(&features, patience) => missing?,
            () = stop.wait() => return Ok(None),
        };
        let (for_events, needed): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_for_events);
        connection::need(&needed)?;
        for right in &for_events {
            warn!(%right, "a right is missing: no Kubernetes Events are published");
        }
        tokio::select! {
            answered = provider.must_answer(connection.clock.as_ref(), patience) => answered?,
            () = stop.wait() => return Ok(None),
        }
        Ok(Some(for_events.is_empty()))
    }
}

/// Tasks beside the migrator. None of them may end before it.
#[derive(Debug, Default)]
struct Beside {
    server: Option<JoinHandle<anyhow::Result<()>>>,
    events: Option<JoinHandle<()>>,
}

impl Beside {
    /// Returns which of them died, and why; never, once they are to end.
    async fn first_to_die(&mut self, stop: &Stop) -> anyhow::Error {
        // A task that has ended must not be waited for again.
        tokio::select! {
            biased;
            () = stop.wait() => std::future::pending().await,
            ended = joined(self.server.as_mut()) => {
                self.server = None;
                match ended {
                    Ok(Ok(())) => anyhow!("the server of metrics and health ended by itself"),
                    Ok(Err(error)) => error,
                    Err(error) => anyhow::Error::new(error).context("the server of metrics and health died"),
                }
            }
            ended = joined(self.events.as_mut()) => {
                self.events = None;
                match ended {
                    Ok(()) => anyhow!("the publisher of Events ended by itself"),
                    Err(error) => anyhow::Error::new(error).context("the publisher of Events died"),
                }
            }
        }
    }

    /// Publishes nothing more: another process leads.
    fn fall_silent(&mut self) {
        if let Some(events) = self.events.take() {
            events.abort();
        }
    }

    /// Waits, within limits, until they have ended.
    async fn end(self) {
        if let Some(server) = self.server
            && let Err(error) = server.await
        {
            warn!(%error, "the server of metrics and health died");
        }
        if let Some(events) = self.events
            && tokio::time::timeout(LAST_EVENTS, events).await.is_err()
        {
            warn!("some Events were not published in time");
        }
    }
}

/// The end of a task; never, where there is none.
async fn joined<T>(task: Option<&mut JoinHandle<T>>) -> Result<T, tokio::task::JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

/// What a run does, each of which needs rights.
pub(crate) fn features(config: &Config) -> Features {
    Features {
        retire: !config.dry_run,
        events: true,
        lease: leadership::lease_name(config).map(str::to_owned),
        ..Features::default()
    }
}

/// A run goes on without these.
pub(crate) fn is_for_events(right: &Right) -> bool {
    right.resource == "events"
}

fn fault(error: RunError) -> Fault {
    let exit = if matches!(error, RunError::LostLeadership) { Exit::LeadershipLost } else { Exit::Failed };
    Fault { exit, error: error.into() }
}

/// The same with the reason why the lease was lost, if that is what went wrong.
fn because(fault: Fault, lost: Option<String>) -> Fault {
    match lost {
        Some(why) if fault.exit == Exit::LeadershipLost => {
            Fault { error: anyhow!(why).context(fault.error.to_string()), ..fault }
        }
        Some(_) | None => fault,
    }
}

/// What failed in a run that went to its end.
fn failures(report: &Report) -> Option<anyhow::Error> {
    let (node, why) = report.failed.first()?;
    Some(match report.failed.len() {
        1 => anyhow!("node {node} was not retired, and was released: {why}"),
        failed => anyhow!("{failed} nodes were not retired, and were released; the first, {node}: {why}"),
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use spot_core::error::{ErrorClass, PortError};

    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_by_itself_is_named() {
        let mut beside = Beside { server: Some(tokio::spawn(async { Ok(()) })), events: None };
        let died = beside.first_to_die(&Stop::default()).await;
        assert_eq!(died.to_string(), "the server of metrics and health ended by itself");
        beside.end().await;

        let mut beside = Beside { server: None, events: Some(tokio::spawn(async { panic!("it dies") })) };
        let died = beside.first_to_die(&Stop::default()).await;
        assert_eq!(died.to_string(), "the publisher of Events died");
        beside.end().await;
    }

    #[tokio::test]
    async fn a_task_that_was_told_to_end_is_none_that_died() {
        let mut beside = Beside { server: Some(tokio::spawn(async { Ok(()) })), events: None };
        let stop = Stop::default();
        stop.set();
        assert!(beside.first_to_die(&stop).now_or_never().is_none());
        beside.end().await;
    }

    #[test]
    fn a_lost_leadership_has_a_code_of_its_own() {
        assert_eq!(fault(RunError::LostLeadership).exit, Exit::LeadershipLost);
        let unreachable = RunError::Cluster(PortError::new(ErrorClass::Timeout, "no answer"));
        assert_eq!(fault(unreachable).exit, Exit::Failed);
    }
}
