//! One list and one watch of each kind, for as long as a view is held.

mod kind;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use kube::api::WatchEvent;
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::node::NodeRef;
use spot_core::pod::PodSnapshot;
use spot_core::ports::{Instant, Live, Scope};
use spot_core::view::{Change, Revision, View};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::board::{Board, Origin};
use crate::list::Source;
use crate::memory;
use crate::requests::Requests;
use crate::snapshot::doubt::Doubt;
use crate::snapshot::{Interner, Object, Pod, pod};
use kind::{Attachments, Budgets, DaemonSets, Kind, Nodes, Pause, Pods, VolumeClaims, Volumes};

/// How long the API server keeps a watch open, a little under its own default of five to ten minutes.
const LASTING: Duration = Duration::from_secs(290);

/// How long a watch may be silent: bookmarks come about once a minute, so then its connection is dead.
const SILENCE: Duration = Duration::from_secs(90);

/// How long a watch may take to be answered.
const OPENING: Duration = Duration::from_secs(10);

/// A watch that ends earlier was refused rather than served.
const AT_ONCE: Duration = Duration::from_secs(5);

/// How long a later list may take.
const LIST: Duration = Duration::from_mins(2);

/// The first and the longest wait after a failed watch or list: client-go's.
const WAITS: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));

/// How old what is known of the pause may be: a person who pauses waits that long at most, and nodes that go faster
/// than this cost no request each.
const PAUSE_AGE: Duration = Duration::from_secs(10);

/// Where our pause is written.
#[derive(Clone, Debug)]
pub(crate) struct PauseAt {
    pub(crate) namespace: String,
    pub(crate) config_map: String,
}

/// A view that follows the cluster until it is dropped.
pub(crate) struct KubeLive {
    board: Arc<Board>,
    requests: Arc<Requests>,
    /// Where the pause is, and when there was last certainly none.
    pause: Option<(PauseAt, Mutex<Instant>)>,
    /// Aborted on drop.
    _watches: JoinSet<()>,
}

impl fmt::Debug for KubeLive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeLive").finish_non_exhaustive()
    }
}

impl KubeLive {
    /// Lists every kind once, then watches.
    pub(crate) async fn open(
        requests: Arc<Requests>,
        board: Arc<Board>,
        scope: &Scope,
        pause: Option<&PauseAt>,
        by: Instant,
    ) -> Result<Self, PortError> {
        let began = requests.clock().instant();
        let mut opening = Opening { requests, board, by, watches: JoinSet::new(), listed: Vec::new() };
        opening.watch(Nodes::of(scope));
        opening.watch(Pods::of(scope));
        opening.watch(Budgets);
        opening.watch(DaemonSets);
        if let Some(pause) = pause {
            opening.watch(Pause(pause.clone()));
        }
        // They are read of planned work alone, which looks at the whole cluster.
        if *scope == Scope::Cluster {
            opening.watch(VolumeClaims::default());
            opening.watch(Volumes::default());
            opening.watch(Attachments::default());
        }
        for listed in opening.listed {
            let ended = |_| PortError::new(ErrorClass::Transient, "a watch ended before its first list");
            listed.await.map_err(ended)??;
        }
        let pause = pause.map(|at| (at.clone(), Mutex::new(began)));
        Ok(Self { board: opening.board, requests: opening.requests, pause, _watches: opening.watches })
    }
}

#[async_trait]
impl Live for KubeLive {
    fn view(&self) -> Arc<View> {
        self.board.view()
    }

    async fn latest_pods(&self, node: &NodeRef, by: Instant) -> Result<Vec<Arc<PodSnapshot>>, PortError> {
        let source = Source::new("pods", "/api/v1/pods").with_field("spec.nodeName", &node.name).few();
        let listed = source.list::<Pod>(&self.requests, by).await?;
        let mut texts = Interner::default();
        let unreadable = |error| {
            PortError::new(ErrorClass::Permanent, format!("could not read the pods of node {node}")).caused_by(error)
        };
        listed.items.into_iter().map(|object| pod(object, &mut texts).map(Arc::new).map_err(unreadable)).collect()
    }

    async fn paused(&self, by: Instant) -> Result<bool, PortError> {
        let Some((at, read)) = &self.pause else { return Ok(false) };
        // Copied out: no lock is held while waiting.
        let last = *read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.requests.clock().instant();
        if self.board.view().paused() || now.since(last) < PAUSE_AGE {
            return Ok(self.board.view().paused());
        }
        let paused = memory::recall(&self.requests, at, by).await?.paused;
        if !paused {
            *read.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
        Ok(paused)
    }

    async fn changed(&self, seen: Revision) -> Result<(), PortError> {
        self.board.changed(seen).await
    }
}

/// The watches that have been begun.
struct Opening {
    requests: Arc<Requests>,
    board: Arc<Board>,
    by: Instant,
    watches: JoinSet<()>,
    listed: Vec<oneshot::Receiver<Result<(), PortError>>>,
}

impl Opening {
    fn watch<K: Kind>(&mut self, kind: K) {
        let (tell, listed) = oneshot::channel();
        self.listed.push(listed);
        let watch = Watch {
            source: kind.source(),
            kind,
            seen: BTreeMap::new(),
            doubted: BTreeSet::new(),
            requests: Arc::clone(&self.requests),
            board: Arc::clone(&self.board),
            failures: 0,
        };
        let by = self.by;
        self.watches.spawn(async move { watch.run(by, tell).await });
    }
}

/// One kind's list and watch.
struct Watch<K: Kind> {
    kind: K,
    source: Source,
    /// What was seen last of each object.
    seen: BTreeMap<K::Key, K::Seen>,
    /// Which values that can't be read were told of: each event brings them again.
    doubted: BTreeSet<(K::Key, &'static str)>,
    requests: Arc<Requests>,
    board: Arc<Board>,
    /// Failures since the last event.
    failures: u32,
}

/// Why a watch stopped.
enum Stopped {
    /// It was open long enough, or fell silent: it goes on from there.
    AtItsEnd,
    /// What came after that version can't be told: everything is listed again.
    Expired(String),
    /// We may not watch.
    Denied(String),
    /// Anything else.
    Failed(String),
}

/// Tells whoever waits for changes when a watch is gone, even by a panic.
struct EndsTheView {
    board: Arc<Board>,
    resource: &'static str,
}

impl Drop for EndsTheView {
    fn drop(&mut self) {
        self.board.end(ErrorClass::Transient, format!("the watch of {} has ended", self.resource));
    }
}

impl<K: Kind> Watch<K> {
    async fn run(mut self, by: Instant, tell: oneshot::Sender<Result<(), PortError>>) {
        let _end = EndsTheView { board: Arc::clone(&self.board), resource: self.source.resource };
        let first = self.list(by, Strictness::Strict).await;
        let (first, version) = match first {
            Ok(version) => (Ok(()), Some(version)),
            Err(error) => (Err(error), None),
        };
        if tell.send(first).is_err() {
            return;
        }
        let Some(mut version) = version else { return };
        let mut watched = false;
        loop {
            match self.follow(&mut version, &mut watched).await {
                Stopped::AtItsEnd => {}
                Stopped::Expired(why) => {
                    // Again, without an event in between: a server that always says so is not asked at once.
                    if self.failures > 0 {
                        self.rest(&why).await;
                    }
                    self.failures = self.failures.max(1);
                    version = self.list_again().await;
                }
                Stopped::Denied(why) if !watched => return self.board.end(ErrorClass::Denied, why),
                Stopped::Denied(why) | Stopped::Failed(why) => self.rest(&why).await,
            }
        }
    }

    async fn list_again(&mut self) -> String {
        loop {
            let by = self.requests.clock().instant() + LIST;
            match self.list(by, Strictness::Lenient).await {
                Ok(version) => return version,
                Err(error) => self.rest(&chain(&error)).await,
            }
        }
    }

    /// Lists everything and shows it in one go; returns the list's version.
    async fn list(&mut self, by: Instant, strictness: Strictness) -> Result<String, PortError> {
        let moment = self.board.list_begins();
        let listed = self.source.list::<K::Raw>(&self.requests, by).await?;
        let mut changes = Vec::new();
        let mut seen = BTreeMap::new();
        for object in listed.items {
            let key = object.metadata().and_then(K::key);
            self.doubt(&object);
            match (self.kind.read(object), strictness) {
                (Ok((key, now)), _) => {
                    changes.extend(K::changes(self.seen.remove(&key).as_ref(), &now));
                    seen.insert(key, now);
                }
                (Err(error), Strictness::Strict) => {
                    let what = format!("could not read the list of {}", self.source.resource);
                    return Err(PortError::new(ErrorClass::Permanent, what).caused_by(error));
                }
                (Err(error), Strictness::Lenient) => {
                    self.unreadable(&error);
                    seen.extend(key.and_then(|key| self.seen.remove_entry(&key)));
                }
            }
        }
        let gone = std::mem::replace(&mut self.seen, seen);
        self.doubted.retain(|(key, _)| self.seen.contains_key(key));
        changes.extend(gone.iter().map(|(key, last)| K::gone(key, last)));
        self.board.apply(changes, Origin::List(moment));
        Ok(listed.version)
    }

    /// Watches from a version on; keeps the version of the last event.
    async fn follow(&mut self, version: &mut String, watched: &mut bool) -> Stopped {
        let call = self.source.watch(version, LASTING);
        let request = match call.request() {
            Ok(request) => request,
            Err(error) => return Stopped::Failed(chain(&error)),
        };
        let requests = Arc::clone(&self.requests);
        let clock = Arc::clone(requests.clock());
        let began = clock.instant();
        let opened = requests.before(began + OPENING, requests.client().request_events::<K::Raw>(request)).await;
        let events = match opened {
            Some(Ok(events)) => events,
            Some(Err(error)) => return not_opened(&call.needs.to_string(), &error),
            None => return Stopped::Failed("no answer in time".to_owned()),
        };
        *watched = true;
        let mut events = pin!(events);
        loop {
            let next = requests.before(clock.instant() + SILENCE, events.next()).await;
            let event = match next {
                Some(Some(Ok(event))) => event,
                Some(Some(Err(error))) => return interrupted(&error),
                // A server that closes at once is not asked again at once.
                Some(None) if clock.instant().since(began) < AT_ONCE => {
                    return Stopped::Failed("the watch was closed at once".to_owned());
                }
                Some(None) | None => return Stopped::AtItsEnd,
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => self.put(object, version),
                WatchEvent::Deleted(object) => self.delete(object, version),
                WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
                // Mostly 410. After any other, too, nobody promises that the next watch misses nothing.
                WatchEvent::Error(status) => return Stopped::Expired(status.to_string()),
            }
            self.failures = 0;
        }
    }

    fn put(&mut self, object: K::Raw, version: &mut String) {
        if let Some(now) = object.resource_version() {
            now.clone_into(version);
        }
        self.doubt(&object);
        match self.kind.read(object) {
            Ok((key, now)) => {
                let changes = K::changes(self.seen.get(&key), &now);
                self.seen.insert(key, now);
                self.show(changes);
            }
            Err(error) => self.unreadable(&error),
        }
    }

    fn delete(&mut self, object: K::Raw, version: &mut String) {
        if let Some(now) = object.resource_version() {
            now.clone_into(version);
        }
        match self.kind.read(object) {
            Ok((key, now)) => {
                let last = self.seen.remove(&key).unwrap_or(now);
                self.doubted.retain(|(doubted, _)| *doubted != key);
                self.show(vec![K::gone(&key, &last)]);
            }
            Err(error) => self.unreadable(&error),
        }
    }

    fn show(&self, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.board.apply(changes, Origin::Watch);
        }
    }

    /// What can't be read is neither new nor gone: what was seen of it before goes on being shown.
    fn unreadable(&self, error: &dyn std::error::Error) {
        tracing::warn!(resource = self.source.resource, error = %chain(error), "an object can't be read");
    }

    /// Tells of values that can't be read, once for each object and key.
    fn doubt(&mut self, object: &K::Raw) {
        let doubts = K::doubts(object);
        let Some((metadata, id)) = object.metadata().and_then(|metadata| Some((metadata, K::key(metadata)?))) else {
            return;
        };
        for Doubt { key, fault, counts_as } in doubts {
            if self.doubted.insert((id.clone(), key)) {
                let (resource, object) = (self.source.resource, metadata.title());
                tracing::warn!(resource, object, key, fault, "a value can't be read: {counts_as}");
            }
        }
    }

    async fn rest(&mut self, why: &str) {
        let (first, longest) = WAITS;
        let pause = self.requests.pause(self.failures, first, longest);
        self.failures = self.failures.saturating_add(1);
        tracing::warn!(resource = self.source.resource, error = why, failures = self.failures, "a watch failed");
        let clock = self.requests.clock();
        clock.sleep_until(clock.instant() + pause).await;
    }
}

/// What an object that can't be read does to a list.
#[derive(Clone, Copy)]
enum Strictness {
    /// The list fails.
    Strict,
    /// It is left out, with a warning.
    Lenient,
}

fn not_opened(right: &str, error: &kube::Error) -> Stopped {
    match error {
        kube::Error::Api(status) if status.code == 410 => Stopped::Expired(status.to_string()),
        kube::Error::Api(status) if status.code == 403 => {
            Stopped::Denied(format!("not allowed: the right `{right}` is missing: {}", status.message))
        }
        error => Stopped::Failed(chain(error)),
    }
}

fn interrupted(error: &kube::Error) -> Stopped {
    match error {
        // A line that is no event: what it told can't be known.
        kube::Error::Api(_) | kube::Error::SerdeError(_) => Stopped::Expired(chain(error)),
        error => Stopped::Failed(chain(error)),
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
        let by = requests.clock().instant() + LIST;
        let at = PauseAt { namespace: "ours".to_owned(), config_map: "memory".to_owned() };
        let board = Arc::new(Board::new());
        let live = KubeLive::open(requests, board, &Scope::Cluster, Some(&at), by).await.unwrap();
        assert!(!live.paused(by).await.unwrap(), "its list was read a moment ago");
        assert_eq!(read.load(Ordering::Relaxed), 0);
        tokio::time::advance(PAUSE_AGE).await;
        assert!(!live.view().paused(), "the watch is silent");
        assert!(live.paused(by).await.unwrap() && live.paused(by).await.unwrap());
        assert_eq!(read.load(Ordering::Relaxed), 2, "a pause is not remembered: a person may end it");
    }
}
