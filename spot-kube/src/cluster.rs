//! The port to a Kubernetes cluster.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::memory::Memory;
use spot_core::node::{NodeRef, NodeSnapshot};
use spot_core::pod::PodRef;
use spot_core::ports::{Clock, Cluster, Erased, EvictAnswer, Instant, Live, NodeChange, Scope, Write, Written};
use spot_core::retire::{DeletableNode, DoomedPod};

use crate::access_review::{Right, is_allowed};
use crate::board::Board;
use crate::evict::{self, DeleteOptions, Meaning};
use crate::live::{self, KubeLive, Watches};
use crate::requests::{Call, Needs, Reply, Requests, escaped};
use crate::watch::PauseAt;
use crate::{memory, patch, snapshot};

/// What a [`KubeCluster`] needs to know.
#[derive(Clone)]
pub struct Settings {
    /// The namespace of the ConfigMap.
    pub namespace: String,
    /// The name of the ConfigMap that is the cluster's memory.
    pub config_map: String,
    /// The clocks; every deadline is of its monotonic one.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, config_map, clock: _ } = self;
        f.debug_struct("Settings").field("namespace", namespace).field("config_map", config_map).finish_non_exhaustive()
    }
}

/// A cluster behind an API server.
///
/// Reads, and writes that may be repeated, are tried again within their deadline; evictions never. Every write that
/// races is conditional: on the UID, and on the resourceVersion where one is given.
///
/// Views of the whole cluster that are held side by side share their watches and one copy of the cluster in memory,
/// unless these have failed: the second is open at once, as new as the first. A view of one node follows that node and
/// its pods alone, with rights to nothing else.
///
/// Dropping any future is safe: what it had sent may take effect or not. Dropping the last [`Live`] of its watches ends
/// them.
#[derive(Debug)]
pub struct KubeCluster {
    requests: Arc<Requests>,
    /// Where the memory is; none: there is none.
    memory_at: Option<PauseAt>,
    /// The views that are held, so that our own writes show in them at once.
    boards: Mutex<Vec<Weak<Board>>>,
    /// The watches of the whole cluster, while somebody holds a view of it; locked while they are opened.
    shared: tokio::sync::Mutex<Weak<Watches>>,
}

impl KubeCluster {
    /// A cluster that this client reaches. Nothing is sent yet. The client must not retry by itself: one of
    /// [`connect`](crate::connect)'s does not.
    #[must_use]
    pub fn new(client: kube::Client, settings: Settings) -> Self {
        let Settings { namespace, config_map, clock } = settings;
        Self { memory_at: Some(PauseAt { namespace, config_map }), ..Self::without_memory(client, clock) }
    }

    /// The same for who only looks, or only lets go of nodes: nothing is remembered, and no pause is seen.
    #[must_use]
    pub fn without_memory(client: kube::Client, clock: Arc<dyn Clock>) -> Self {
        let requests = Arc::new(Requests::new(client, clock));
        Self { requests, memory_at: None, boards: Mutex::default(), shared: tokio::sync::Mutex::default() }
    }

    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Namespace and name of the ConfigMap, where there is one.
    pub(crate) fn memory_at(&self) -> Option<(&str, &str)> {
        self.memory_at.as_ref().map(|at| (&*at.namespace, &*at.config_map))
    }

    async fn watches(&self, scope: &Scope, by: Instant) -> Result<Arc<Watches>, PortError> {
        let board = Arc::new(Board::new(live::known(scope)));
        {
            let mut boards = self.boards.lock().unwrap_or_else(PoisonError::into_inner);
            boards.retain(|board| board.strong_count() > 0);
            boards.push(Arc::downgrade(&board));
        }
        let requests = Arc::clone(&self.requests);
        Ok(Arc::new(Watches::open(requests, board, scope, self.memory_at.as_ref(), by).await?))
    }

    /// The node as it is now, no older than the request; none: it is gone, whatever bears its name now.
    async fn node_now(&self, node: &NodeRef, write: &Write) -> Result<Option<Arc<NodeSnapshot>>, PortError> {
        let uri = format!("/api/v1/nodes/{}", escaped(&node.name));
        let call = Call::get(Needs { verb: "get", resource: "nodes" }, &*node.name, uri);
        let reply = self.requests.write(&call, write).await?;
        if reply.status().is_not_found() {
            return Ok(None);
        }
        if !reply.is_success() {
            return Err(reply.error(&call));
        }
        let now = self.answered(&call, &reply)?;
        Ok((now.uid == node.uid).then_some(now))
    }

    /// The node in an answer, which every view shows from now on.
    fn answered(&self, call: &Call, reply: &Reply) -> Result<Arc<NodeSnapshot>, PortError> {
        // The effect, if any, took place: so it is not permanent.
        let unreadable = |error| call.error(ErrorClass::Transient).caused_by(error);
        let node = Arc::new(snapshot::node(reply.object(call)?).map_err(unreadable)?);
        let mut boards = self.boards.lock().unwrap_or_else(PoisonError::into_inner);
        boards.retain(|board| match board.upgrade() {
            Some(board) => {
                board.answered(&node);
                true
            }
            None => false,
        });
        Ok(node)
    }
}

#[async_trait]
impl Cluster for KubeCluster {
    async fn open(&self, scope: Scope, by: Instant) -> Result<Box<dyn Live>, PortError> {
        let Scope::Cluster = scope else { return Ok(Box::new(KubeLive::of(self.watches(&scope, by).await?))) };
        let Some(mut shared) = self.requests.before(by, self.shared.lock()).await else {
            return Err(PortError::new(
                ErrorClass::Timeout,
                "somebody else's view of the cluster was not open in time",
            ));
        };
        if let Some(watches) = shared.upgrade().filter(|watches| watches.is_alive()) {
            return Ok(Box::new(KubeLive::of(watches)));
        }
        let watches = self.watches(&scope, by).await?;
        *shared = Arc::downgrade(&watches);
        Ok(Box::new(KubeLive::of(watches)))
    }

    async fn write_node(&self, node: &NodeRef, change: &NodeChange, write: &Write) -> Result<Written, PortError> {
        let call = patch::call(node, change);
        let reply = self.requests.write(&call, write).await?;
        let status = reply.status();
        if reply.is_success() {
            return Ok(Written::Applied(self.answered(&call, &reply)?));
        }
        if status.is_not_found() {
            return Ok(Written::Gone);
        }
        // The UID is immutable: a patch that holds another one is a conflict, or invalid.
        if !matches!(reply.code, 409 | 422) {
            return Err(reply.error(&call));
        }
        match self.node_now(node, write).await? {
            None => Ok(Written::Gone),
            Some(now) if reply.code == 409 => Ok(Written::Conflict(now)),
            Some(_) => Err(reply.error(&call)),
        }
    }

    async fn evict(&self, pod: &PodRef, grace: Option<Duration>, write: &Write) -> Result<EvictAnswer, PortError> {
        let call = evict::call(pod, grace);
        let reply = self.requests.once(&call, write.by, Some(write)).await?;
        let said = match evict::meaning(pod, &call, &reply)? {
            Meaning::Answer(answer) => return Ok(answer),
            Meaning::Forbidden(said) => said,
        };
        let right = Right {
            namespace: Some(pod.namespace.to_string()),
            group: "",
            resource: "pods",
            subresource: Some("eviction"),
            verb: "create",
            name: None,
        };
        Ok(match is_allowed(&self.requests, &right, write.by, Some(write)).await {
            Ok(true) => EvictAnswer::Webhook(said),
            Ok(false) => EvictAnswer::Denied(said),
            // The pod stays either way, and the next answer is reviewed again.
            Err(error) => EvictAnswer::Webhook(format!("{said} (nor is it known whether we may: {})", chain(&error))),
        })
    }

    async fn delete_pod(&self, pod: &DoomedPod, grace: Duration, write: &Write) -> Result<(), PortError> {
        let pod = pod.pod();
        let needs = Needs { verb: "delete", resource: "pods" };
        let body = options(&DeleteOptions::new(pod.uid.as_str(), Some(grace)));
        let call = Call::new(Method::DELETE, needs, pod.to_string(), evict::uri(pod), body);
        let reply = self.requests.write(&call, write).await?;
        let status = reply.status();
        if reply.is_success() || status.is_not_found() || status.is_other_uid() {
            return Ok(());
        }
        Err(reply.error(&call))
    }

    async fn delete_node(&self, node: &DeletableNode, write: &Write) -> Result<Erased, PortError> {
        let node = node.node();
        let needs = Needs { verb: "delete", resource: "nodes" };
        let uri = format!("/api/v1/nodes/{}", escaped(&node.name));
        let body = options(&DeleteOptions::new(node.uid.as_str(), None).at(node.resource_version.as_deref()));
        let call = Call::new(Method::DELETE, needs, &*node.name, uri, body);
        let reply = self.requests.write(&call, write).await?;
        let status = reply.status();
        if reply.is_success() || status.is_not_found() || status.is_other_uid() {
            return Ok(Erased::Gone);
        }
        if reply.code != 409 {
            return Err(reply.error(&call));
        }
        Ok(self.node_now(node, write).await?.map_or(Erased::Gone, Erased::Changed))
    }

    async fn recall(&self, by: Instant) -> Result<Memory, PortError> {
        match &self.memory_at {
            Some(at) => memory::recall(&self.requests, at, by).await,
            None => Ok(Memory::default()),
        }
    }

    async fn remember(&self, memory: &Memory, write: &Write) -> Result<Memory, PortError> {
        let Some(at) = &self.memory_at else {
            return Err(PortError::new(ErrorClass::Permanent, "there is no ConfigMap to remember anything in"));
        };
        let call = memory::write(at, memory);
        let reply = self.requests.write(&call, write).await?;
        if reply.is_success() {
            return Ok(memory::memory(&reply.object(&call)?));
        }
        // The first write of all finds nothing missing but the namespace.
        let first = memory.version.is_none();
        if reply.code == 409 || (!first && reply.status().is_not_found()) {
            let what = format!("somebody else wrote it: could not {call}");
            return Err(PortError::new(ErrorClass::Transient, what).caused_by(reply.status()));
        }
        Err(reply.error(&call))
    }
}

/// Writing plain structs of strings and numbers to JSON can't fail.
fn options(options: &DeleteOptions<'_>) -> Vec<u8> {
    serde_json::to_vec(options).unwrap_or_default()
}
