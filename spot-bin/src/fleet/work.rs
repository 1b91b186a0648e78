//! What the commands have in common: the runtime and the signals, the pool in the cloud, and the lease under which it is
//! changed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use spot_aws::fleet::{NodePool, Roles};
use spot_aws::{Aws, AwsSettings, Identity};
use spot_core::budget::Budgets;
use spot_core::capacity::CapacityLabels;
use spot_core::drain::plan::DrainRules;
use spot_core::error::{PortError, RunError};
use spot_core::judge::Policy;
use spot_core::pool::{PoolCapacity, Pools, Report, Settings};
use spot_core::ports::{Alone, Clock, CloudProvider, Cluster, Instant, Leadership, Observer, Ports, Write};
use spot_core::retire::RetireSettings;
use spot_core::stop::Stop;
use spot_kube::preflight::Features;
use spot_kube::{Events, EventsWorker, Right, TokioClock};
use tokio::runtime;
use tracing::warn;

use super::cli::{Arguments, CreateRoleArgs};
use super::listened::Listened;
use super::progress::Shown;
use super::report;
use crate::cli::{AccessArgs, Environment};
use crate::connection::{self, Connection};
use crate::exit::{Exit, Fault};
use crate::http::Readiness;
use crate::leadership::{self, Election};
use crate::log::Log;
use crate::observers::Observers;
use crate::output;
use crate::pool::PoolFile;
use crate::provider::asks_metadata_service;
use crate::rights::NeededBy;
use crate::run::beside::Beside;
use crate::run::{because, fault};
use crate::settings::Own;
use crate::signals::Signals;
use crate::telemetry;

/// How long one round of questions to the cloud may take: a fleet's history and a pool's machines have pages.
const ROUND: Duration = Duration::from_mins(2);
/// How long it may take to ask for templates and a fleet: a fleet is told of only some time after it was asked for.
const REQUEST: Duration = Duration::from_mins(5);
/// How long an orderly end may take.
const GRACE: Duration = Duration::from_secs(30);
/// Where the namespace of memory and lease is written.
const NAMESPACE: &str = "write `state.namespace` into the pool's file";
/// How long names that are being looked up, or a question that nobody answers, may hold up the end of the process.
const LAST_LOOKUPS: Duration = Duration::from_millis(100);

/// A command at work.
pub(super) struct Work<'a> {
    pub(super) environment: &'a Environment,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stop: Stop,
    pub(super) shown: Arc<Shown>,
    is_verbose: bool,
    /// Set once something may have been changed.
    begun: Stop,
}

/// A pool in the cloud.
pub(super) struct Cloud {
    aws: Arc<Aws>,
    pub(super) pool: NodePool,
}

/// A pool under our lease.
pub(super) struct Held {
    pub(super) pools: Pools,
    clock: Arc<dyn Clock>,
    leadership: Arc<dyn Leadership>,
}

/// What a command is to do under the lease, and by which rules.
pub(super) struct Task<'a> {
    pub(super) file: &'a PoolFile,
    pub(super) access: &'a AccessArgs,
    pub(super) cloud: &'a Cloud,
    pub(super) settings: Settings,
    /// Whether pods are deleted that may not be evicted.
    pub(super) deletes_pods: bool,
    /// Whether more machines are waited for, so that what the fleet says of them is told.
    pub(super) grows: bool,
}

/// Does a command's work on a runtime of its own, until it is done or told to end.
pub(super) fn until_told(
    arguments: &Arguments,
    environment: &Environment,
    work: impl AsyncFnOnce(&Work<'_>) -> Result<Exit, Fault>,
) -> Result<Exit, Fault> {
    telemetry::start(arguments.log(output::is_watched()))?;
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("can't start the runtime")?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let is_verbose = arguments.verbose > 0;
        let shown = Arc::new(Shown::new(output::is_watched() && !is_verbose));
        let (stop, begun) = (Stop::default(), Stop::default());
        let command = Work { environment, clock, stop, shown, is_verbose, begun };
        let ended = tokio::select! {
            ended = work(&command) => ended,
            why = signals.hurry(&command.stop, ("its time", GRACE)) => Err(Fault::failed(why)),
            () = command.stopped_early() => Err(told_to_stop()),
        };
        // Whatever ended it: a bar that stays would be torn by what is said next.
        command.shown.end();
        ended
    });
    runtime.shutdown_timeout(LAST_LOOKUPS);
    ended
}

impl Work<'_> {
    /// Something may be changed from now on: the work is ended between two of its steps.
    pub(super) fn begin(&self) {
        self.begun.set();
    }

    /// Returns when it is to end and has changed nothing yet: questions can be left in the middle. Otherwise it is said
    /// that the end takes its time.
    async fn stopped_early(&self) {
        self.stop.wait().await;
        if self.begun.is_set() {
            self.shown.say("told to stop: ending after this step; told once more, at once");
            std::future::pending::<()>().await;
        }
    }

    /// When a round of questions that begins now has to be over.
    pub(super) fn by(&self) -> Instant {
        self.clock.instant() + ROUND
    }

    /// The cluster, by the same clock as the cloud. Nothing is sent yet.
    ///
    /// # Errors
    /// When address or credentials can't be read.
    pub(super) async fn connection(&self, file: &PoolFile, access: &AccessArgs) -> Result<Connection, Fault> {
        Connection::with_clock(access, self.environment, &file.state, Arc::clone(&self.clock)).await
    }

    /// The pool in the cloud. No API is called yet.
    ///
    /// # Errors
    /// When nobody says in which region it is.
    pub(super) async fn cloud(&self, file: &PoolFile) -> Result<Cloud, Fault> {
        let aws = self.aws(AwsSettings {
            region: file.region.clone(),
            endpoint_url: file.endpoint_url.clone(),
            cluster_name: file.pool.cluster.clone(),
            load_balancer: (file.load_balancer.drain, file.load_balancer.drain_max),
            ..self.settings()
        });
        let aws = aws.await.context("the pool file is refused: write `region` into it").map_err(Fault::usage)?;
        Ok(Cloud { pool: NodePool::new(Arc::clone(&aws), file.pool.clone()), aws })
    }

    /// The roles of fleets in the account. No API is called yet.
    ///
    /// # Errors
    /// When nobody says in which region an API is.
    pub(super) async fn roles(&self, args: &CreateRoleArgs) -> Result<Roles, Fault> {
        let CreateRoleArgs { name, dry_run: _, yes: _, region, endpoint_url } = args.clone();
        let aws = self.aws(AwsSettings { region, endpoint_url, ..self.settings() });
        Ok(Roles::new(aws.await.context("name a region with --region").map_err(Fault::usage)?, name))
    }

    async fn aws(&self, settings: AwsSettings) -> Result<Arc<Aws>, PortError> {
        Ok(Arc::new(Aws::connect(settings, Arc::clone(&self.clock), None).await?))
    }

    fn settings(&self) -> AwsSettings {
        AwsSettings {
            region: None,
            endpoint_url: None,
            cluster_name: String::new(),
            require_cluster_tag: true,
            identity: Identity::Name,
            labels: CapacityLabels::default(),
            load_balancer: (Duration::ZERO, Duration::ZERO),
            instance_metadata: asks_metadata_service(self.environment),
        }
    }

    /// A permit for what is nobody's but the account's.
    pub(super) fn permit(&self) -> Write {
        Write::planned(self.by(), Arc::new(Alone))
    }

    /// Works on the pool under its lease, with every right that this needs.
    ///
    /// # Errors
    /// When the cluster can't be reached, a right is missing, another command works on the pool, or the work fails.
    pub(super) async fn holding<T>(
        &self,
        task: Task<'_>,
        work: impl AsyncFnOnce(&Held) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let Task { file, access, cloud, settings, deletes_pods, grows } = task;
        let connection = self.connection(file, access).await?;
        let namespace = connection.namespace_or(NAMESPACE)?;
        let name = lease_name(file);
        let with_events = self.preflight(&connection, &features(file, deletes_pods)).await?;
        let shown: Arc<dyn Observer> =
            if self.is_verbose { Arc::new(Log::default()) } else { Arc::clone(&self.shown) as Arc<dyn Observer> };
        let mut observers = Observers::default().and(shown);
        let mut beside = Beside::default();
        if with_events {
            let clock = Arc::clone(&self.clock);
            let (events, worker) =
                Events::new(connection.client.clone(), clock, format!("spot-fleet-{}", file.pool.name));
            observers = observers.and(Arc::new(events));
            beside.events = Some(tokio::spawn(EventsWorker::run(worker)));
        }
        let lease = name.map(|name| leadership::lease(&file.leader_election, &name, namespace, self.environment, true));
        let election = Election {
            access,
            environment: self.environment,
            clock: &self.clock,
            lease: lease.as_ref(),
            patience: lease.as_ref().map(leadership::patience),
            told: Some(&|waits| self.shown.say(waits)),
        };
        let lead = election.win(&Readiness::default(), &self.stop).await?.ok_or_else(told_to_stop)?;
        self.begin();
        let ports = Ports {
            cluster: Arc::clone(&connection.cluster) as Arc<dyn Cluster>,
            cloud: Arc::clone(&cloud.aws) as Arc<dyn CloudProvider>,
            clock: Arc::clone(&self.clock),
            observer: Arc::new(observers),
            leadership: lead.leadership(),
        };
        let leadership = lead.leadership();
        let capacity = Arc::new(cloud.pool.clone()) as Arc<dyn PoolCapacity>;
        let pools = Pools::new(ports, capacity, file.pool.name.clone(), settings);
        let held = Held { pools, clock: Arc::clone(&self.clock), leadership: Arc::clone(&leadership) };
        let listened = Listened::new(self, &cloud.pool);
        let ended = tokio::select! {
            biased;
            () = leadership.lost() => Err(fault(RunError::LostLeadership)),
            ended = work(&held) => ended.map_err(|fault| listened.because(fault)),
            never = listened.listen(), if grows => match never {},
            died = beside.first_to_die(&self.stop) => Err(Fault::failed(died)),
        };
        // The publisher of Events ends with its last observer.
        drop(held);
        self.shown.end();
        let lost = lead.end().await?;
        if lost.is_some() {
            beside.fall_silent();
        }
        beside.end(GRACE).await;
        ended.map_err(|fault| because(fault, lost))
    }

    /// Looks whether the pool of this file may be worked on in the cluster.
    ///
    /// # Errors
    /// When the cluster can't be reached, or a right is missing.
    pub(super) async fn may_work(&self, file: &PoolFile, access: &AccessArgs) -> Result<(), Fault> {
        let connection = self.connection(file, access).await?;
        connection.namespace_or(NAMESPACE)?;
        self.preflight(&connection, &features(file, false)).await?;
        Ok(())
    }

    /// Whether Events may be published.
    ///
    /// # Errors
    /// When the cluster does not answer, or a right is missing that `features` need.
    pub(super) async fn preflight(&self, connection: &Connection, features: &Features) -> Result<bool, Fault> {
        let missing = connection.missing_rights(features, Duration::ZERO).await?;
        let is_for_events = |right: &Right| NeededBy::of(right) == NeededBy::Events;
        let (for_events, needed): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_for_events);
        connection::need_with(&needed, |right| match NeededBy::of(right) {
            NeededBy::Interruption => NeededBy::Interruption.remedy(),
            NeededBy::Everything | NeededBy::Migration | NeededBy::Events => {
                "grant what `deploy/rbac-fleet.yaml` grants"
            }
        })?;
        for right in &for_events {
            warn!(%right, "a right is missing: no Kubernetes Events are published");
        }
        Ok(for_events.is_empty())
    }
}

impl Held {
    /// A permit to ask for templates and a fleet now.
    pub(super) fn permit(&self) -> Write {
        Write::planned(self.clock.instant() + REQUEST, Arc::clone(&self.leadership))
    }
}

/// Says what became of the work, and how the process ends for it; `detailed` tells "more to do" apart.
///
/// # Errors
/// When it failed.
pub(super) fn finished(work: &Work<'_>, report: &Report, detailed: bool) -> Result<Exit, Fault> {
    told(work, report)?;
    report::exit(report, detailed)
}

/// Says what became of the work.
///
/// # Errors
/// When it can't be said.
pub(super) fn told(work: &Work<'_>, report: &Report) -> Result<(), Fault> {
    work.shown.end();
    Ok(output::result(&report::text(report))?)
}

/// What work on the pool of this file needs in the cluster.
pub(super) fn features(file: &PoolFile, deletes_pods: bool) -> Features {
    Features { retire: true, delete_pods: deletes_pods, events: true, lease: lease_name(file) }
}

/// The lease under which the pool is changed; none: nobody else is kept off.
fn lease_name(file: &PoolFile) -> Option<String> {
    file.leader_election.enabled.then(|| file.lease_name())
}

fn told_to_stop() -> Fault {
    Fault::failed(anyhow!("told to stop before anything was touched"))
}

/// The core's settings for this file.
pub(super) fn settings(file: &PoolFile, own: &Own) -> Settings {
    let drain = DrainRules {
        force: file.drain.force,
        delete_empty_dir_data: file.drain.delete_empty_dir_data,
        pod_grace: file.drain.pod_grace_period,
    };
    Settings {
        policy: Policy {
            budgets: Budgets::default(),
            drain,
            drain_timeout: Some(file.drain.timeout),
            own_node: own.node.clone(),
            own_pod: own.pod.clone(),
            ..Policy::default()
        },
        retire: RetireSettings {
            drain_timeout: file.drain.timeout,
            load_balancer: (file.load_balancer.drain, file.load_balancer.drain_max),
            node_gone_timeout: file.node_gone.timeout,
            delete_node_object: file.node_gone.delete_node_object,
            ..RetireSettings::default()
        },
        settle_timeout: file.settle_timeout,
        ready_timeout: file.ready_timeout,
        floor: file.pool.min_capacity,
    }
}

#[cfg(test)]
mod tests {
    use spot_core::node::Uid;

    use super::*;
    use crate::sample::pool_file;

    #[test]
    fn the_defaults_are_those_of_the_core() {
        let settings = settings(&pool_file(""), &Own::default());
        let mut core = Settings { floor: 1, ..Settings::default() };
        // A judgement alone knows no drain whose time it could hold a pod to.
        core.policy.drain_timeout = Some(core.retire.drain_timeout);
        assert_eq!(format!("{settings:?}"), format!("{core:?}"));
    }

    #[test]
    fn every_key_reaches_the_core() {
        let file = pool_file(
            "drain: {timeout: 7m, force: true, deleteEmptyDirData: false, podGracePeriod: 8s}\n\
             loadBalancer: {drain: 1s, drainMax: 2m}\nsettle: {timeout: 9m}\nready: {timeout: 3m}\n\
             nodeGone: {timeout: 10m, deleteNodeObject: false}\n",
        );
        let own = Own { node: Some("node-7".to_owned()), pod: Some(Uid::new("uid-7")) };
        let Settings { policy, retire, settle_timeout, ready_timeout, floor } = settings(&file, &own);
        let minutes = Duration::from_mins;
        let drain = DrainRules { force: true, delete_empty_dir_data: false, pod_grace: Some(Duration::from_secs(8)) };
        assert_eq!((&policy.drain, policy.drain_timeout), (&drain, Some(minutes(7))));
        assert_eq!((policy.own_node.as_deref(), policy.own_pod), (Some("node-7"), Some(Uid::new("uid-7"))));
        assert_eq!((retire.drain_timeout, retire.load_balancer), (minutes(7), (Duration::from_secs(1), minutes(2))));
        assert_eq!((retire.node_gone_timeout, retire.delete_node_object), (minutes(10), false));
        assert_eq!((settle_timeout, ready_timeout, floor), (minutes(9), minutes(3), 1));
    }
}
