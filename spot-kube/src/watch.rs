//! One list and one watch of each kind, for as long as a view is held.

pub(crate) mod kind;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::WatchEvent;
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::ports::Instant;
use spot_core::view::Change;
use tokio::sync::oneshot;

use crate::board::{Board, Origin};
use crate::list::Source;
use crate::requests::Requests;
use crate::snapshot::Object;
use crate::snapshot::doubt::Doubt;
use kind::Kind;

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

/// Where our pause is written.
#[derive(Clone, Debug)]
pub(crate) struct PauseAt {
    pub(crate) namespace: String,
    pub(crate) config_map: String,
}

/// One kind's list and watch.
pub(crate) struct Watch<K: Kind> {
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
    pub(crate) fn new(kind: K, requests: Arc<Requests>, board: Arc<Board>) -> Self {
        let (seen, doubted) = (BTreeMap::new(), BTreeSet::new());
        Self { source: kind.source(), kind, seen, doubted, requests, board, failures: 0 }
    }

    /// Lists once by a deadline, tells whether that went well, and watches for ever.
    pub(crate) async fn run(mut self, by: Instant, tell: oneshot::Sender<Result<(), PortError>>) {
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
