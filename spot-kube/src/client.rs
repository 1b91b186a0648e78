//! How the API server is reached.

use std::path::PathBuf;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Sent with every request, so that an audit log tells who it was.
const AGENT: &str = concat!("spot-migrator/", env!("CARGO_PKG_VERSION"));

/// Where address and credentials come from. The caller chooses: a kubeconfig that happens to lie in a container must
/// not win over the pod's own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The account of the pod in which the process runs.
    InCluster,
    /// A kubeconfig.
    Kubeconfig {
        /// The file; none: what kubectl would read.
        path: Option<PathBuf>,
        /// The context; none: the current one.
        context: Option<String>,
    },
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The pod's account can't be used.
    #[error("the pod's service account can't be used")]
    InCluster(#[source] kube::config::InClusterError),
    /// The kubeconfig can't be used.
    #[error("the kubeconfig{} can't be used", .path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default())]
    Kubeconfig {
        /// The file that was named.
        path: Option<PathBuf>,
        /// What is wrong with it.
        source: kube::config::KubeconfigError,
    },
    /// Address or credentials can't be used.
    #[error("no client can be made of the cluster's address and credentials")]
    Client(#[source] Box<kube::Error>),
}

/// A client with no retries of its own. Nothing is sent yet.
///
/// Calls that must not wait for others, those for the lease, need a client of their own: this one speaks HTTP/1.1.
///
/// # Errors
/// When address or credentials can't be read.
pub async fn connect(access: &Access) -> Result<Client, AccessError> {
    let mut config = match access {
        Access::InCluster => Config::incluster().map_err(AccessError::InCluster)?,
        Access::Kubeconfig { path, context } => {
            let wrap = |source| AccessError::Kubeconfig { path: path.clone(), source };
            let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
            match path {
                Some(path) => {
                    let file = Kubeconfig::read_from(path).map_err(wrap)?;
                    Config::from_custom_kubeconfig(file, &options).await.map_err(wrap)?
                }
                None => Config::from_kubeconfig(&options).await.map_err(wrap)?,
            }
        }
    };
    // It retries even what is an answer: a pod that a budget protects is a 429. Ours ends at a deadline.
    config.default_retry = false;
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    Client::try_from(config).map_err(|error| AccessError::Client(Box::new(error)))
}
