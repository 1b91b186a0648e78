//! Views that follow the cluster; those of the whole cluster share one set of watches.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::NodeRef;
use spot_core::pod::PodSnapshot;
use spot_core::ports::{Instant, Live, Scope};
use spot_core::view::{Known, Revision, View};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::board::Board;
use crate::list::Source;
use crate::memory;
use crate::requests::Requests;
use crate::snapshot::{Interner, Pod, pod};
use crate::watch::kind::{Attachments, Budgets, DaemonSets, Kind, Nodes, Pause, Pods, VolumeClaims, Volumes};
use crate::watch::{PauseAt, Watch};

/// How old what is known of the pause may be: a person who pauses waits that long at most, and nodes that go faster
/// than this cost no request each.
const PAUSE_AGE: Duration = Duration::from_secs(10);

/// A view; the watches end with the last one that was made of them.
pub(crate) struct KubeLive(Arc<Watches>);

impl KubeLive {
    pub(crate) const fn of(watches: Arc<Watches>) -> Self {
        Self(watches)
    }
}

impl fmt::Debug for KubeLive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeLive").finish_non_exhaustive()
    }
}

#[async_trait]
impl Live for KubeLive {
    fn view(&self) -> Arc<View> {
        self.0.board.view()
    }

    async fn latest_pods(&self, node: &NodeRef, by: Instant) -> Result<Vec<Arc<PodSnapshot>>, PortError> {
        let source = Source::new("pods", "/api/v1/pods").with_field("spec.nodeName", &node.name).few();
        let listed = source.list::<Pod>(&self.0.requests, by).await?;
        let mut texts = Interner::default();
        let unreadable = |error| {
            PortError::new(ErrorClass::Permanent, format!("could not read the pods of node {node}")).caused_by(error)
        };
        listed.items.into_iter().map(|object| pod(object, &mut texts).map(Arc::new).map_err(unreadable)).collect()
    }

    async fn paused(&self, by: Instant) -> Result<bool, PortError> {
        let Watches { board, requests, pause, .. } = &*self.0;
        let Some((at, read)) = pause else { return Ok(false) };
        // Copied out: no lock is held while waiting.
        let last = *read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = requests.clock().instant();
        if board.view().paused() || now.since(last) < PAUSE_AGE {
            return Ok(board.view().paused());
        }
        let paused = memory::recall(requests, at, by).await?.paused;
        if !paused {
            *read.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
        Ok(paused)
    }

    async fn changed(&self, seen: Revision) -> Result<(), PortError> {
        self.0.board.changed(seen).await
    }
}

/// The watches of one scope, and the one view that they keep up to date.
pub(crate) struct Watches {
    board: Arc<Board>,
    requests: Arc<Requests>,
    /// Where the pause is, and when there was last certainly none.
    pause: Option<(PauseAt, Mutex<Instant>)>,
    /// Aborted on drop.
    _tasks: JoinSet<()>,
}

impl Watches {
    /// Lists every kind once, then watches.
    pub(crate) async fn open(
        requests: Arc<Requests>,
        board: Arc<Board>,
        scope: &Scope,
        pause: Option<&PauseAt>,
        by: Instant,
    ) -> Result<Self, PortError> {
        let began = requests.clock().instant();
        let mut opening = Opening { requests, board, by, tasks: JoinSet::new(), listed: Vec::new() };
        opening.watch(Nodes::of(scope));
        opening.watch(Pods::of(scope));
        if let Some(pause) = pause {
            opening.watch(Pause(pause.clone()));
        }
        if *scope == Scope::Cluster {
            opening.watch(Budgets);
            opening.watch(DaemonSets);
            opening.watch(VolumeClaims::default());
            opening.watch(Volumes::default());
            opening.watch(Attachments::default());
        }
        for listed in opening.listed {
            let ended = |_| PortError::new(ErrorClass::Transient, "a watch ended before its first list");
            listed.await.map_err(ended)??;
        }
        let pause = pause.map(|at| (at.clone(), Mutex::new(began)));
        Ok(Self { board: opening.board, requests: opening.requests, pause, _tasks: opening.tasks })
    }

    /// Whether the view is still kept up to date.
    pub(crate) fn is_alive(&self) -> bool {
        !self.board.has_ended()
    }
}

/// Which kinds are followed. Of one node only what can't be done without: an eviction's answer tells of budgets, a pod
/// of a DaemonSet is left where it is, and volumes are read of planned work alone.
pub(crate) fn known(scope: &Scope) -> Known {
    match scope {
        Scope::Cluster => Known::default(),
        Scope::Node(_) => Known { pods: true, budgets: false, daemon_sets: false, claims: false, volumes: false },
    }
}

/// The watches that have been begun.
struct Opening {
    requests: Arc<Requests>,
    board: Arc<Board>,
    by: Instant,
    tasks: JoinSet<()>,
    listed: Vec<oneshot::Receiver<Result<(), PortError>>>,
}

impl Opening {
    fn watch<K: Kind>(&mut self, kind: K) {
        let (tell, listed) = oneshot::channel();
        self.listed.push(listed);
        let watch = Watch::new(kind, Arc::clone(&self.requests), Arc::clone(&self.board));
        let by = self.by;
        self.tasks.spawn(async move { watch.run(by, tell).await });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;
    use crate::clock::TokioClock;

    /// Requests to a server whose lists are empty, whose watches are silent, and whose ConfigMap pauses us; and how
    /// often that was read.
    fn silent() -> (Arc<Requests>, Arc<AtomicUsize>) {
        let read = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&read);
        let service = tower::service_fn(move |request: Request<Body>| {
            let counted = Arc::clone(&counted);
            async move {
                let uri = request.uri().to_string();
                let text = if uri.contains("watch=true") {
                    std::future::pending().await
                } else if uri.ends_with("/configmaps/memory") {
                    counted.fetch_add(1, Ordering::Relaxed);
                    r#"{"metadata":{"name":"memory","resourceVersion":"2"},"data":{"paused":"true"}}"#
                } else {
                    r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#
                };
                Ok::<_, Infallible>(Response::new(Body::from(text.as_bytes().to_vec())))
            }
        });
        let client = kube::Client::new(service, "default");
        (Arc::new(Requests::new(client, Arc::new(TokioClock::new()))), read)
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_no_watch_shows_is_read_again_but_not_for_every_node() {
        let (requests, read) = silent();
        let by = requests.clock().instant() + 2 * PAUSE_AGE;
        let at = PauseAt { namespace: "ours".to_owned(), config_map: "memory".to_owned() };
        let board = Arc::new(Board::new(Known::default()));
        let watches = Watches::open(requests, board, &Scope::Cluster, Some(&at), by).await.unwrap();
        let live = KubeLive::of(Arc::new(watches));
        assert!(!live.paused(by).await.unwrap(), "its list was read a moment ago");
        assert_eq!(read.load(Ordering::Relaxed), 0);
        tokio::time::advance(PAUSE_AGE).await;
        assert!(!live.view().paused(), "the watch is silent");
        assert!(live.paused(by).await.unwrap() && live.paused(by).await.unwrap());
        assert_eq!(read.load(Ordering::Relaxed), 2, "a pause is not remembered: a person may end it");
    }
}
