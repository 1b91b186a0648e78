//! Waiting to lead, leading, and giving the lead back once the work has ended.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use spot_core::error::chain;
use spot_core::ports::{Alone, Clock, Leadership};
use spot_core::stop::Stop;
use spot_kube::lease::{self, Candidate, End, Term, Waits, identity};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::cli::{AccessArgs, Environment};
use crate::config::{Config, LeaderElection};
use crate::connection;
use crate::exit::{Exit, Fault};
use crate::http::Readiness;

/// The lead; dropping it gives it back, so it has to live longer than the work.
pub struct Lead {
    leadership: Arc<dyn Leadership>,
    done: Stop,
    holding: Option<JoinHandle<End>>,
}

/// Who wants to lead, and how.
#[derive(Clone, Copy)]
pub struct Election<'a> {
    /// How the cluster is reached.
    pub access: &'a AccessArgs,
    /// The process's environment.
    pub environment: &'a Environment,
    /// The clocks.
    pub clock: &'a Arc<dyn Clock>,
    /// The lease that leads; none: nobody else is kept off.
    pub lease: Option<&'a lease::Settings>,
    /// How long to wait for it; none: for ever.
    pub patience: Option<Duration>,
}

impl fmt::Debug for Election<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("lease", &self.lease).field("patience", &self.patience).finish_non_exhaustive()
    }
}

/// The name of the lease that a process of this configuration has to hold; none: it writes nothing that needs one.
#[must_use]
pub fn lease_name(config: &Config) -> Option<&str> {
    let election = &config.leader_election;
    (election.enabled && !config.dry_run).then_some(&*election.lease_name)
}

/// A lease of this name in `namespace`, as the configuration has leases held; a `single` run is always somebody else
/// than any other process.
#[must_use]
pub fn lease(
    election: &LeaderElection,
    name: &str,
    namespace: &str,
    environment: &Environment,
    single: bool,
) -> lease::Settings {
    lease::Settings {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        identity: own_identity(environment, !single && std::process::id() == 1),
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
    }
}

/// How long a single run waits: until the lease of a process that died has expired, with room for a slow answer.
#[must_use]
pub fn patience(lease: &lease::Settings) -> Duration {
    lease.lease_duration + lease.renew_deadline
}

impl Election<'_> {
    /// Waits until this process leads; none: it was told to stop before.
    ///
    /// # Errors
    /// When there is no client, or another process leads for as long as is waited.
    pub async fn win(&self, readiness: &Readiness, stop: &Stop) -> Result<Option<Lead>, Fault> {
        let Some(settings) = self.lease else { return Ok(Some(Lead::alone())) };
        // One of its own, whose connections no other request uses.
        let client = spot_kube::connect(&connection::access(self.access, self.environment)).await;
        let client = client.context("no second client for the lease").map_err(Fault::usage)?;
        let candidate = Candidate::new(client, settings.clone(), Arc::clone(self.clock));
        let standing = RefCell::new(Standing { lease: settings.to_string(), obstacle: None, other_leads: false });
        let tell = |why: &Waits<'_>| {
            readiness.follows(!matches!(why, Waits::Failed(_)));
            standing.borrow_mut().hears(why);
        };
        let patience = async {
            match self.patience {
                Some(patience) => self.clock.sleep_until(self.clock.instant() + patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.wait() => Ok(None),
            term = candidate.lead(tell) => Ok(Some(Lead::of(term))),
            () = patience => Err(standing.borrow().fault()),
        }
    }
}

impl Lead {
    fn alone() -> Self {
        Self { leadership: Arc::new(Alone), done: Stop::default(), holding: None }
    }

    fn of(term: Term) -> Self {
        let done = Stop::default();
        let leadership = Arc::new(term.leader());
        let ended = done.clone();
        let holding = tokio::spawn(term.hold(async move { ended.wait().await }));
        Self { leadership, done, holding: Some(holding) }
    }

    /// What the work asks before each request.
    #[must_use]
    pub fn leadership(&self) -> Arc<dyn Leadership> {
        Arc::clone(&self.leadership)
    }

    /// Gives the lead back: the work has ended. Returns why it was lost before, if so.
    ///
    /// # Errors
    /// When the task died that held it.
    pub async fn end(mut self) -> anyhow::Result<Option<String>> {
        self.done.set();
        let Some(holding) = self.holding.take() else { return Ok(None) };
        match holding.await.context("the keeper of the lease died")? {
            End::Released => Ok(None),
            End::Lost(why) => Ok(Some(why)),
        }
    }
}

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead").field("holding", &self.holding).finish_non_exhaustive()
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.done.set();
    }
}

/// For its container's first process the pod's UID, which a restarted container keeps. Any other in the same pod, as
/// `kubectl exec` starts it, is somebody else, and so is every single run.
fn own_identity(environment: &Environment, first: bool) -> String {
    let host = match environment.get("HOSTNAME") {
        Some(host) => host.to_owned(),
        // Only a name for people to read: a random part tells processes apart.
        None => fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
    };
    let pod = environment.get("POD_UID");
    identity(pod.filter(|_| first), pod.unwrap_or(&host))
}

/// What stands in the way of leading.
struct Standing {
    lease: String,
    obstacle: Option<String>,
    other_leads: bool,
}

impl Standing {
    /// Says it once, until it changes.
    fn hears(&mut self, why: &Waits<'_>) {
        let obstacle = match why {
            Waits::HeldBy(holder) => format!("{holder} holds the lease {}", self.lease),
            Waits::Outrun => format!("another process was faster to take the lease {}", self.lease),
            Waits::Failed(error) => chain(*error),
        };
        self.other_leads = !matches!(why, Waits::Failed(_));
        if self.obstacle.as_ref() == Some(&obstacle) {
            return;
        }
        if self.other_leads {
            info!(obstacle, "waits to lead");
        } else {
            warn!(error = obstacle, "can't tell who leads; trying again");
        }
        self.obstacle = Some(obstacle);
    }

    fn fault(&self) -> Fault {
        let obstacle = self.obstacle.as_deref().unwrap_or("there was no answer");
        if self.other_leads {
            let error = anyhow!(
                "another process leads, and nothing was touched: {obstacle}: try again when it has ended, or end it first"
            );
            return Fault { exit: Exit::LeadershipLost, error };
        }
        Fault::failed(anyhow!("the lease {} can't be taken, and nothing was touched: {obstacle}", self.lease))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use spot_core::error::{ErrorClass, PortError};

    use super::*;
    use crate::sample::environment;

    fn config(overrides: &[(&str, &str)]) -> Config {
        let overrides: BTreeMap<_, _> = overrides
            .iter()
            .chain(&[("cloudProvider.name", "node-object")])
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Config::load(None, [], &overrides).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_pod_leads_under_its_uid_and_every_other_process_in_it_is_another() {
        let pod = environment(&[("POD_UID", "uid-7"), ("HOSTNAME", "host")]);
        assert_eq!(own_identity(&pod, true), "uid-7");
        let (one, other) = (own_identity(&pod, false), own_identity(&pod, false));
        assert!(one.starts_with("uid-7_") && one != other, "{one}, {other}");
        let host = environment(&[("HOSTNAME", "host")]);
        for first in [true, false] {
            let (one, other) = (own_identity(&host, first), own_identity(&host, first));
            assert!(one.starts_with("host_") && one != other, "{one}, {other}");
        }
    }

    #[test]
    fn only_who_may_write_needs_a_lease() {
        assert_eq!(lease_name(&config(&[])), Some("spot-migrator"));
        assert_eq!(lease_name(&config(&[("leaderElection.leaseName", "other")])), Some("other"));
        assert_eq!(lease_name(&config(&[("leaderElection.enabled", "false")])), None);
        assert_eq!(lease_name(&config(&[("dryRun", "true")])), None);
    }

    #[test]
    fn a_single_run_says_who_leads_or_what_is_wrong() {
        let mut standing = Standing { lease: "ns/lease".to_owned(), obstacle: None, other_leads: false };
        standing.hears(&Waits::HeldBy("uid-7"));
        let fault = standing.fault();
        assert_eq!(fault.exit, Exit::LeadershipLost);
        assert!(fault.error.to_string().contains("uid-7 holds the lease ns/lease"), "{}", fault.error);

        standing.hears(&Waits::Failed(&PortError::new(ErrorClass::Denied, "not allowed")));
        let fault = standing.fault();
        assert_eq!(fault.exit, Exit::Failed);
        assert!(fault.error.to_string().ends_with("not allowed"), "{}", fault.error);
    }
}
