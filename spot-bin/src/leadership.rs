//! Waiting to lead, leading, and giving the lead back once the work has ended.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use spot_core::error::{ErrorClass, chain};
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

/// How long the lease may take before it is said what is waited for.
const SOON: Duration = Duration::from_secs(2);

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
    /// Who is told what is waited for, once it takes long; none: nobody but the log.
    pub told: Option<&'a dyn Fn(&str)>,
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
    /// When there is no client, or another process leads for as long as is waited; at once when it is not waited for
    /// ever, and the lease can't be taken, however often that is tried.
    pub async fn win(&self, readiness: &Readiness, stop: &Stop) -> Result<Option<Lead>, Fault> {
        let Some(settings) = self.lease else { return Ok(Some(Lead::alone())) };
        // One of its own, whose connections no other request uses.
        let client = spot_kube::connect(&connection::access(self.access, self.environment)).await;
        let client = client.context("no second client for the lease").map_err(Fault::usage)?;
        let candidate = Candidate::new(client, settings.clone(), Arc::clone(self.clock));
        let standing = RefCell::new(Standing::of(settings));
        let hopeless = Stop::default();
        let tell = |why: &Waits<'_>| {
            readiness.follows(!matches!(why, Waits::Failed(_)));
            standing.borrow_mut().hears(why);
            if self.patience.is_some() && is_lasting(why) {
                hopeless.set();
            }
        };
        let telling = async {
            if let Some(told) = self.told {
                self.clock.sleep_until(self.clock.instant() + SOON).await;
                told(&standing.borrow().waits(self.patience));
            }
            std::future::pending::<()>().await;
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
            () = hopeless.wait() => Err(standing.borrow().fault()),
            () = patience => Err(standing.borrow().fault()),
            () = telling => Err(standing.borrow().fault()),
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

/// Whether it fails again however often it is tried.
fn is_lasting(why: &Waits<'_>) -> bool {
    match why {
        Waits::Failed(error) => matches!(error.class, ErrorClass::Denied | ErrorClass::Permanent),
        Waits::HeldBy(_) | Waits::Outrun => false,
    }
}

/// What stands in the way of leading.
struct Standing {
    lease: String,
    namespace: String,
    obstacle: Option<String>,
    other_leads: bool,
    is_lasting: bool,
}

impl Standing {
    fn of(lease: &lease::Settings) -> Self {
        let (namespace, lease) = (lease.namespace.clone(), lease.to_string());
        Self { lease, namespace, obstacle: None, other_leads: false, is_lasting: false }
    }

    /// Says it once, until it changes.
    fn hears(&mut self, why: &Waits<'_>) {
        let obstacle = match why {
            Waits::HeldBy(holder) => format!("{holder} holds the lease {}", self.lease),
            Waits::Outrun => format!("another process was faster to take the lease {}", self.lease),
            Waits::Failed(error) => chain(*error),
        };
        self.other_leads = !matches!(why, Waits::Failed(_));
        self.is_lasting = is_lasting(why);
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

    fn obstacle(&self) -> &str {
        self.obstacle.as_deref().unwrap_or("there was no answer")
    }

    /// What is waited for.
    fn waits(&self, patience: Option<Duration>) -> String {
        let how_long = patience.map_or_else(String::new, |patience| format!(" up to {} s", patience.as_secs()));
        format!("waiting{how_long} for the lease {}: {}", self.lease, self.obstacle())
    }

    fn fault(&self) -> Fault {
        let obstacle = self.obstacle();
        if self.other_leads {
            let error = anyhow!(
                "another process leads, and nothing was touched: {obstacle}: try again when it has ended, or end it first"
            );
            return Fault { exit: Exit::LeadershipLost, error };
        }
        let remedy = if self.is_lasting {
            let namespace = &self.namespace;
            format!(
                ": see that namespace {namespace} is there (`kubectl create namespace {namespace}`) and that you may write \
                 leases in it, or name another with `state.namespace`"
            )
        } else {
            String::new()
        };
        Fault::failed(anyhow!("the lease {} can't be taken, and nothing was touched: {obstacle}{remedy}", self.lease))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc;

    use spot_core::error::PortError;
    use spot_kube::TokioClock;

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
        let mut standing = standing();
        standing.hears(&Waits::HeldBy("uid-7"));
        let fault = standing.fault();
        assert_eq!(fault.exit, Exit::LeadershipLost);
        assert!(fault.error.to_string().contains("uid-7 holds the lease ns/lease"), "{}", fault.error);

        standing.hears(&Waits::Failed(&PortError::new(ErrorClass::Denied, "not allowed")));
        let fault = standing.fault();
        assert_eq!(fault.exit, Exit::Failed);
        assert!(fault.error.to_string().contains("not allowed"), "{}", fault.error);
    }

    fn standing() -> Standing {
        let environment = environment(&[("HOSTNAME", "host")]);
        Standing::of(&lease(&config(&[]).leader_election, "lease", "ns", &environment, true))
    }

    #[test]
    fn a_lease_that_can_never_be_taken_is_told_with_the_namespace_to_make_and_without_anybody_who_leads() {
        let gone = PortError::new(ErrorClass::Permanent, "could not create leases ns/lease");
        let gone = Waits::Failed(&gone);
        let mut standing = standing();
        standing.hears(&gone);
        assert!(is_lasting(&gone));
        let fault = standing.fault();
        assert_eq!(fault.exit, Exit::Failed);
        let said = fault.error.to_string();
        for word in ["could not create leases", "kubectl create namespace ns`", "`state.namespace`"] {
            assert!(said.contains(word), "{word} is not named in {said}");
        }
        assert!(!said.contains("another process"), "{said}");
    }

    /// An API server that has no such namespace: where its kubeconfig is, and the methods that it was asked with.
    fn without_namespace(folder: &Path) -> (PathBuf, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let (asked, requests) = mpsc::channel();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = vec![0; 65_536];
                let read = stream.read(&mut request).unwrap_or_default();
                let request = String::from_utf8_lossy(&request[..read]);
                let _heard = asked.send(request.split(' ').next().unwrap_or_default().to_owned());
                let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#;
                let head = "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\nconnection: close\r\n";
                let _answered = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
            }
        });
        let kubeconfig = folder.join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             clusters: [{{name: a, cluster: {{server: \"http://{address}\"}}}}]\n\
             users: [{{name: a, user: {{}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n"
        );
        fs::write(&kubeconfig, text).expect("the folder is writable");
        (kubeconfig, requests)
    }

    #[tokio::test]
    async fn a_single_run_asks_once_for_a_lease_in_a_namespace_that_is_not_there() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (kubeconfig, requests) = without_namespace(folder.path());
        let access = AccessArgs { kubeconfig: Some(kubeconfig), context: None };
        let environment = environment(&[("HOSTNAME", "host")]);
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let lease = lease::Settings {
            // Others would ask again and again until patience is over.
            retry_period: Duration::from_millis(10),
            ..lease(&config(&[]).leader_election, "lease", "gone", &environment, true)
        };
        let election = Election {
            access: &access,
            environment: &environment,
            clock: &clock,
            lease: Some(&lease),
            patience: Some(Duration::from_secs(5)),
            told: None,
        };
        let fault = election.win(&Readiness::default(), &Stop::default()).await.expect_err("there is no namespace");
        assert!(fault.error.to_string().contains("kubectl create namespace gone"), "{}", fault.error);
        assert_eq!(requests.try_iter().collect::<Vec<_>>(), ["GET", "POST"]);
    }

    #[test]
    fn what_may_pass_is_waited_for_and_told_as_what_it_is() {
        let slow = PortError::new(ErrorClass::Timeout, "no answer");
        let slow = Waits::Failed(&slow);
        let mut standing = standing();
        let patience = Some(Duration::from_secs(25));
        standing.hears(&slow);
        assert_eq!(standing.waits(patience), "waiting up to 25 s for the lease ns/lease: no answer");
        assert!(!is_lasting(&slow) && !is_lasting(&Waits::HeldBy("uid-7")) && !is_lasting(&Waits::Outrun));
        standing.hears(&Waits::HeldBy("uid-7"));
        assert!(standing.waits(patience).contains("uid-7 holds the lease"), "{}", standing.waits(patience));
        assert!(!standing.fault().error.to_string().contains("kubectl create namespace"));
    }
}
