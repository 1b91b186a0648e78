//! What was true at every moment, told by watch events and not by looking now and then.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Debug},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use crate::{
    wait::{PATIENCE, until},
    workload::{APP, Workload},
};

/// Follows all pods and nodes from its start on. Every state that the API server's store went through is seen, in its
/// order.
///
/// Call [`Witness::caught_up`] before asking what was seen.
pub struct Witness {
    client: Client,
    pods: Trail<Pod>,
    nodes: Trail<Node>,
}

impl fmt::Debug for Witness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Witness").finish_non_exhaustive()
    }
}

impl Witness {
    /// Starts to follow.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn start(client: Client) -> Self {
        Self::begin(client, Gap::Breaks).await
    }

    /// The same, but where an API server that was restarted has forgotten where a watch was, everything is listed anew.
    /// What was written in the moment before and after is then seen by what came of it alone.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn through_restarts(client: Client) -> Self {
        Self::begin(client, Gap::Closes).await
    }

    async fn begin(client: Client, gap: Gap) -> Self {
        let pods = Trail::start(Api::all(client.clone()), gap).await;
        let nodes = Trail::start(Api::all(client.clone()), gap).await;
        Self { client, pods, nodes }
    }

    /// Waits until everything that happened before the call has been seen.
    ///
    /// # Panics
    /// If a watch broke in a way that may have lost events: then nothing can be said.
    pub async fn caught_up(&self) {
        self.pods.caught_up(Api::all(self.client.clone())).await;
        self.nodes.caught_up(Api::all(self.client.clone())).await;
    }

    /// The fewest pods of `workload` that were up at one moment. A pod is up from Ready until its deletion is asked
    /// for, which is how budgets count.
    #[must_use]
    pub fn fewest_up(&self, workload: &Workload) -> usize {
        self.pods
            .moments(|pods| {
                pods.values()
                    .filter(|pod| pod.labels().get(APP).is_some_and(|app| app == workload.name()) && is_up(pod))
                    .count()
            })
            .into_iter()
            .min()
            .unwrap_or(0)
    }

    /// Fails the test if at any moment more pods of `workload` were down than its budget allows.
    ///
    /// # Panics
    /// If so.
    pub fn assert_budget_kept(&self, workload: &Workload) {
        let (fewest, least) = (self.fewest_up(workload), workload.least_up() as usize);
        assert!(
            fewest >= least,
            "of {} only {fewest} pods were up at one moment, and its budget wants {least}",
            workload.name()
        );
    }

    /// The most nodes that were unschedulable at one moment.
    #[must_use]
    pub fn most_cordoned(&self) -> usize {
        self.nodes
            .moments(|nodes| nodes.values().filter(|node| is_cordoned(node)).count())
            .into_iter()
            .max()
            .unwrap_or(0)
    }

    /// The most nodes that satisfied `holds` at one moment.
    #[must_use]
    pub fn most_nodes(&self, holds: impl Fn(&Node) -> bool) -> usize {
        self.nodes.moments(|nodes| nodes.values().filter(|node| holds(node)).count()).into_iter().max().unwrap_or(0)
    }

    /// Every state of every Node, in order.
    #[must_use]
    pub fn node_states(&self) -> Vec<Node> {
        self.nodes.states(|_| true)
    }

    /// Every state of every pod that satisfied `holds`, in order.
    #[must_use]
    pub fn pod_states(&self, holds: impl Fn(&Pod) -> bool) -> Vec<Pod> {
        self.pods.states(holds)
    }

    /// The nodes that were made unschedulable at any time, in the order in which it happened first.
    #[must_use]
    pub fn cordoned(&self) -> Vec<String> {
        self.nodes.first_seen(is_cordoned)
    }

    /// The nodes that were there at any time, in the order in which they came.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        self.nodes.first_seen(|_| true)
    }

    /// The nodes that are gone, in the order in which they went.
    #[must_use]
    pub fn gone(&self) -> Vec<String> {
        self.nodes.gone().iter().map(ResourceExt::name_any).collect()
    }

    /// The Nodes that are gone, as they were when they went, in the order in which they went.
    #[must_use]
    pub fn nodes_gone(&self) -> Vec<Node> {
        self.nodes.gone()
    }

    /// Every state of the Nodes that had this name, in order.
    #[must_use]
    pub fn states_of(&self, node: &str) -> Vec<Node> {
        self.nodes.states(|object| object.name_any() == node)
    }

    /// The pods that are gone, as they were last seen, in the order in which they went.
    #[must_use]
    pub fn pods_gone(&self) -> Vec<Pod> {
        self.pods.gone()
    }

    /// The nodes that satisfied `holds` at any time, in the order in which they did first.
    #[must_use]
    pub fn nodes_that(&self, holds: impl Fn(&Node) -> bool) -> Vec<String> {
        self.nodes.first_seen(holds)
    }
}

fn is_up(pod: &Pod) -> bool {
    let ready = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && ready.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

/// What a watch that can't go on where it was means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    /// Nothing can be said any more.
    Breaks,
    /// Everything is listed anew.
    Closes,
}

/// Everything that happened to the objects of one kind.
#[derive(Debug)]
struct Trail<K> {
    seen: Arc<Mutex<Seen<K>>>,
    follower: JoinHandle<()>,
}

#[derive(Debug)]
struct Seen<K> {
    /// What was there at the start: one moment, not as many as there were objects.
    start: Objects<K>,
    changes: Vec<Change<K>>,
    broken: Option<String>,
}

/// The objects of a moment, by UID.
type Objects<K> = BTreeMap<String, Arc<K>>;

#[derive(Debug)]
enum Change<K> {
    /// It appeared or changed.
    Is(Arc<K>),
    /// It is gone.
    Gone(Arc<K>),
}

impl<K: Resource> Seen<K> {
    /// What is there, as far as it was seen.
    fn now(&self) -> Objects<K> {
        self.changes.iter().fold(self.start.clone(), |mut objects, change| {
            change.apply(&mut objects);
            objects
        })
    }
}

impl<K> Trail<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    async fn start(api: Api<K>, gap: Gap) -> Self {
        let list = api.list(&ListParams::default()).await.expect("the API server lists");
        let version = list.metadata.resource_version.expect("a list has a version");
        let start = list.items.into_iter().map(|object| (uid(&object), Arc::new(object))).collect();
        let seen = Arc::new(Mutex::new(Seen { start, changes: Vec::new(), broken: None }));
        let follower = tokio::spawn(follow(api, version, Arc::clone(&seen), gap));
        Self { seen, follower }
    }

    async fn caught_up(&self, api: Api<K>) {
        until("the witness to catch up", PATIENCE, || async {
            let objects = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let now: BTreeSet<_> =
                objects.items.iter().map(|object| (uid(object), object.resource_version())).collect();
            let seen = self.lock();
            if let Some(broken) = &seen.broken {
                panic!("the witness has lost sight: {broken}");
            }
            let last: BTreeSet<_> =
                seen.now().into_iter().map(|(uid, object)| (uid, object.resource_version())).collect();
            let different = last.symmetric_difference(&now).count();
            if different == 0 { Ok(()) } else { Err(format!("{different} versions differ")) }
        })
        .await;
    }

    /// What `ask` says of each moment, in order.
    fn moments<T>(&self, ask: impl Fn(&Objects<K>) -> T) -> Vec<T> {
        let seen = self.lock();
        let mut objects = seen.start.clone();
        let mut answers = vec![ask(&objects)];
        for change in &seen.changes {
            change.apply(&mut objects);
            answers.push(ask(&objects));
        }
        answers
    }

    /// The names of the objects of which `holds` was true at any time, in the order in which it was so first.
    fn first_seen(&self, holds: impl Fn(&K) -> bool) -> Vec<String> {
        let seen = self.lock();
        let all = seen.start.values().chain(seen.changes.iter().map(Change::object));
        let mut names = Vec::new();
        for object in all.filter(|object| holds(object)) {
            let name = object.name_any();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn states(&self, wanted: impl Fn(&K) -> bool) -> Vec<K> {
        let seen = self.lock();
        let all = seen.start.values().chain(seen.changes.iter().map(Change::object));
        all.filter(|object| wanted(object)).map(|object| K::clone(object)).collect()
    }

    fn gone(&self) -> Vec<K> {
        let gone = |change: &Change<K>| match change {
            Change::Gone(object) => Some(K::clone(object)),
            Change::Is(_) => None,
        };
        self.lock().changes.iter().filter_map(gone).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Seen<K>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Drop for Trail<K> {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl<K: Resource> Change<K> {
    fn object(&self) -> &Arc<K> {
        match self {
            Self::Is(object) | Self::Gone(object) => object,
        }
    }

    fn apply(&self, objects: &mut Objects<K>) {
        match self {
            Self::Is(object) => objects.insert(uid(&**object), Arc::clone(object)),
            Self::Gone(object) => objects.remove(&uid(&**object)),
        };
    }
}

fn uid<K: Resource>(object: &K) -> String {
    object.meta().uid.clone().expect("the API server gives every object a UID")
}

/// Follows the collection from `version` on, for ever. A watch that ends is begun again where it ended, so that
/// nothing is missed; where that can't be done, the trail is broken, or what changed meanwhile is listed.
async fn follow<K>(api: Api<K>, mut version: String, seen: Arc<Mutex<Seen<K>>>, gap: Gap)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let record = |change| seen.lock().unwrap_or_else(PoisonError::into_inner).changes.push(change);
    let breaks = |why| seen.lock().unwrap_or_else(PoisonError::into_inner).broken = Some(why);
    loop {
        let events = match api.watch(&WatchParams::default(), &version).await {
            Ok(events) => events,
            // The API server may be away for a while: a test may have restarted it.
            Err(kube::Error::Service(_) | kube::Error::HyperError(_)) => {
                tokio::task::yield_now().await;
                continue;
            }
            Err(error) if gap == Gap::Breaks => return breaks(error.to_string()),
            Err(_refused) => {
                version = close(&api, &seen).await.unwrap_or(version);
                continue;
            }
        };
        let mut events = pin!(events);
        // An error of the connection ends the stream; what was not read is read again.
        while let Some(Ok(event)) = events.next().await {
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version = object.resource_version().expect("an event's object has a version");
                    record(Change::Is(Arc::new(object)));
                }
                WatchEvent::Deleted(object) => {
                    version = object.resource_version().expect("an event's object has a version");
                    record(Change::Gone(Arc::new(object)));
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) if gap == Gap::Breaks => return breaks(status.message),
                WatchEvent::Error(_refused) => version = close(&api, &seen).await.unwrap_or(version),
            }
        }
    }
}

/// Lists everything, records what is different, and returns the list's version; nothing if it can't be listed.
async fn close<K>(api: &Api<K>, seen: &Mutex<Seen<K>>) -> Option<String>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let list = api.list(&ListParams::default()).await.ok()?;
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let mut known = seen.now();
    for object in list.items {
        let before = known.remove(&uid(&object));
        if before.is_none_or(|before| before.resource_version() != object.resource_version()) {
            seen.changes.push(Change::Is(Arc::new(object)));
        }
    }
    seen.changes.extend(known.into_values().map(Change::Gone));
    list.metadata.resource_version
}
