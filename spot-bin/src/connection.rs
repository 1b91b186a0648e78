//! The configuration and the cluster, as arguments and environment name them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::ports::Clock;
use spot_kube::preflight::Features;
use spot_kube::{Access, KubeCluster, Right, TokioClock};
use tracing::warn;

use crate::cli::{AccessArgs, ConfigArgs, Environment};
use crate::config::{Config, State};
use crate::exit::Fault;
use crate::rights::NeededBy;
use crate::text;

/// How long the API server may take for one round of questions.
const ATTEMPT: Duration = Duration::from_secs(10);
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(5);

/// A cluster that has not been talked to yet.
pub struct Connection {
    /// The client that all use.
    pub client: kube::Client,
    /// The port to the cluster.
    pub cluster: Arc<KubeCluster>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The namespace of memory and lease; none: nobody names one.
    namespace: Option<String>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// The configuration in force.
///
/// # Errors
/// When the file can't be read, or a value is refused: each with its place and the remedy.
pub fn configuration(
    args: &ConfigArgs,
    environment: &Environment,
    overrides: &BTreeMap<String, String>,
) -> Result<Config, Fault> {
    let file = args.config.as_deref().map(read).transpose().map_err(Fault::usage)?;
    let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    Config::load(file, environment.all(), overrides).map_err(Fault::usage)
}

/// The same where the provider does not matter much: if none is named, the one that every build has; and then a note
/// that says so.
///
/// # Errors
/// As [`configuration`].
pub fn configuration_of_any_provider(
    args: &ConfigArgs,
    environment: &Environment,
    overrides: &BTreeMap<String, String>,
) -> Result<(Config, Option<String>), Fault> {
    const PROVIDER: &str = "cloudProvider.name";
    let assumed = args.config.is_none()
        && !overrides.contains_key(PROVIDER)
        && environment.get("SPOT_MIGRATOR_CLOUD_PROVIDER_NAME").is_none();
    let mut overrides = overrides.clone();
    if assumed {
        overrides.insert(PROVIDER.to_owned(), "node-object".to_owned());
    }
    let note = assumed.then(|| "no provider is named: taken as with `--cloud-provider-name node-object`".to_owned());
    Ok((configuration(args, environment, &overrides)?, note))
}

fn read(path: &Path) -> anyhow::Result<(String, String)> {
    let name = path.display().to_string();
    let text = text::read(path)
        .with_context(|| format!("can't read the configuration {name}: name a file that exists with --config"))?;
    Ok((name, text))
}

/// How the cluster is reached: by the pod's own account in a pod, unless a kubeconfig is asked for.
#[must_use]
pub fn access(args: &AccessArgs, environment: &Environment) -> Access {
    let AccessArgs { kubeconfig, context } = args;
    let asked_for = kubeconfig.is_some() || context.is_some() || environment.get("KUBECONFIG").is_some();
    // Kubernetes sets it in every pod. A kubeconfig that happens to lie in the image must not win there.
    let in_pod = environment.get("KUBERNETES_SERVICE_HOST").is_some();
    if in_pod && !asked_for {
        Access::InCluster
    } else {
        Access::Kubeconfig { path: kubeconfig.clone(), context: context.clone() }
    }
}

/// The namespace of memory and lease, as the configuration or the pod's manifest names it, or the one that the pod's
/// account is of. That of a kubeconfig's context has nothing to do with it.
fn namespace(state: &State, environment: &Environment, pods_own: Option<&str>) -> Option<String> {
    let named = state.namespace.as_deref().or_else(|| environment.get("POD_NAMESPACE"));
    named.or(pods_own).map(str::to_owned)
}

impl Connection {
    /// A client and the port on it, with the memory that is kept there. Nothing is sent yet.
    ///
    /// # Errors
    /// When address or credentials can't be read.
    pub async fn open(args: &AccessArgs, environment: &Environment, state: &State) -> Result<Self, Fault> {
        Self::with_clock(args, environment, state, Arc::new(TokioClock::new())).await
    }

    /// The same by a clock that others go by, too: what one says means nothing to another.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn with_clock(
        args: &AccessArgs,
        environment: &Environment,
        state: &State,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Fault> {
        let access = access(args, environment);
        let client = spot_kube::connect(&access)
            .await
            .context("no cluster to reach: name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a pod")
            .map_err(Fault::usage)?;
        let pods_own = (access == Access::InCluster).then(|| client.default_namespace());
        let namespace = namespace(state, environment, pods_own);
        let cluster = match &namespace {
            Some(namespace) => {
                let settings = spot_kube::Settings {
                    namespace: namespace.clone(),
                    config_map: state.config_map.clone(),
                    clock: Arc::clone(&clock),
                };
                KubeCluster::new(client.clone(), settings)
            }
            None => KubeCluster::without_memory(client.clone(), Arc::clone(&clock)),
        };
        Ok(Self { client, cluster: Arc::new(cluster), clock, namespace })
    }

    /// The namespace of memory and lease.
    ///
    /// # Errors
    /// When nobody names one: a guess could be another than that of the process that migrates.
    pub fn namespace(&self) -> Result<&str, Fault> {
        self.namespace_or(
            "name it with `state.namespace`, --state-namespace or SPOT_MIGRATOR_STATE_NAMESPACE, in a pod with \
             POD_NAMESPACE",
        )
    }

    /// The same for a program that has it named in this way.
    ///
    /// # Errors
    /// As [`namespace`](Self::namespace).
    pub fn namespace_or(&self, remedy: &str) -> Result<&str, Fault> {
        self.namespace.as_deref().ok_or_else(|| {
            Fault::usage(anyhow!(
                "nobody says in which namespace the migrator keeps its ConfigMap and its lease: {remedy}; nothing was \
                 touched"
            ))
        })
    }

    /// The rights that are missing for these features, from the first answer within `patience`; one attempt at least.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses to.
    pub async fn missing_rights(&self, features: &Features, patience: Duration) -> Result<Vec<Right>, Fault> {
        let until = self.clock.instant() + patience;
        loop {
            let by = self.clock.instant() + ATTEMPT;
            let error = match self.cluster.missing_rights(features, by).await {
                Ok(missing) => return Ok(missing),
                Err(error) => error,
            };
            let next = self.clock.instant() + PAUSE;
            if !may_pass(&error) || next > until {
                let what = "the API server can't be asked what we may do: look at the address, the network and the \
                            credentials";
                return Err(Fault::failed(anyhow::Error::new(error).context(what)));
            }
            warn!(error = chain(&error), "the API server does not answer yet; trying again");
            self.clock.sleep_until(next).await;
        }
    }
}

fn may_pass(error: &PortError) -> bool {
    match error.class {
        ErrorClass::Transient | ErrorClass::Timeout => true,
        ErrorClass::Denied | ErrorClass::Permanent | ErrorClass::NotLeader => false,
    }
}

/// Refuses to work without these rights of a migrator.
///
/// # Errors
/// Names each of them.
pub fn need(missing: &[Right]) -> Result<(), Fault> {
    need_with(missing, |right| NeededBy::of(right).remedy())
}

/// Refuses to work without these rights; for each there is a remedy.
///
/// # Errors
/// Names each of them.
pub fn need_with(missing: &[Right], remedy: impl Fn(&Right) -> &'static str) -> Result<(), Fault> {
    if missing.is_empty() {
        return Ok(());
    }
    let remedies: BTreeSet<_> = missing.iter().map(remedy).collect();
    let remedies: Vec<_> = remedies.into_iter().collect();
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    let (count, list) = (missing.len(), missing.join(", "));
    let rights = if count == 1 { "a right is".to_owned() } else { format!("{count} rights are") };
    Err(Fault::failed(anyhow!("{rights} missing: {list}: {}; nothing was touched", remedies.join(", and "))))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rstest::rstest;

    use super::*;
    use crate::sample::environment;

    const POD: (&str, &str) = ("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    const KUBECONFIG: (&str, &str) = ("KUBECONFIG", "/home/me/config");

    #[rstest]
    #[case::in_a_pod_its_own_account(&[POD], None, true)]
    #[case::in_a_pod_a_kubeconfig_that_is_asked_for(&[POD, KUBECONFIG], None, false)]
    #[case::in_a_pod_a_context_that_is_asked_for(&[POD], Some("kind"), false)]
    #[case::elsewhere_what_kubectl_would_read(&[], None, false)]
    fn the_pods_own_account_wins_unless_a_kubeconfig_is_asked_for(
        #[case] variables: &[(&str, &str)],
        #[case] context: Option<&str>,
        #[case] in_cluster: bool,
    ) {
        let args = AccessArgs { kubeconfig: None, context: context.map(str::to_owned) };
        assert_eq!(access(&args, &environment(variables)) == Access::InCluster, in_cluster);
    }

    #[rstest]
    #[case::as_configured(Some("configured"), &[("POD_NAMESPACE", "pod")], Some("own"), Some("configured"))]
    #[case::as_the_manifest_says(None, &[("POD_NAMESPACE", "pod")], Some("own"), Some("pod"))]
    #[case::that_of_the_pods_account(None, &[], Some("own"), Some("own"))]
    #[case::outside_a_pod_none(None, &[], None, None)]
    fn the_namespace_is_never_guessed(
        #[case] configured: Option<&str>,
        #[case] variables: &[(&str, &str)],
        #[case] pods_own: Option<&str>,
        #[case] expected: Option<&str>,
    ) {
        let configured = configured.map(|namespace| ("state.namespace".to_owned(), namespace.to_owned()));
        let provider = ("cloudProvider.name".to_owned(), "node-object".to_owned());
        let overrides = configured.into_iter().chain([provider]).collect();
        let config = Config::load(None, [], &overrides).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(namespace(&config.state, &environment(variables), pods_own).as_deref(), expected);
    }

    #[test]
    fn a_missing_right_is_named() {
        let right = Right { resource: "pods", subresource: Some("eviction"), verb: "create", ..Right::default() };
        let fault = need(&[right]).expect_err("it is missing");
        let said = fault.error.to_string();
        assert!(said.contains("create pods/eviction") && said.contains("nothing was touched"), "{said}");
        assert_eq!(fault.exit, crate::exit::Exit::Failed);
        assert!(need(&[]).is_ok());
    }

    #[test]
    fn a_configuration_that_is_not_there_is_a_usage_error_that_names_it() {
        let args = ConfigArgs { config: Some(PathBuf::from("/no/such.yaml")) };
        let fault = configuration(&args, &Environment::default(), &BTreeMap::new()).expect_err("it is not there");
        assert!(fault.error.to_string().contains("/no/such.yaml"), "{:#}", fault.error);
        assert_eq!(fault.exit, crate::exit::Exit::Usage);
    }
}
