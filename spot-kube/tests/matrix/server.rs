//! The API server: a tower service for each process, all of them on one world.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::channel::Channel;
use serde_json::{Map, Value, json};
use spot_core::memory::Memory;
use spot_core::model::{Model, Process, WorldBuilder};
use spot_core::node::{NodeRef, Uid};
use spot_core::pod::PodRef;
use spot_core::ports::{Alone, Clock, Cluster, Erased, Instant, Live, NodeChange, Scope, Write, Written};
use spot_core::retire::DeletableNode;
use tokio::sync::Notify;

use crate::fault::{Break, Fault, No};
use crate::feed::Feed;
use crate::object;
use crate::request::{Asked, MEMORY, Watch};
use crate::status::{Answer, Body};
use crate::store::{Kind, Selector, Store};

/// How long a request is on its way, and its answer.
const THERE: Duration = Duration::from_millis(2);
const BACK: Duration = Duration::from_millis(3);

/// When a late request has its effect: the client waits for ten seconds.
const LATE: Duration = Duration::from_secs(15);

/// A cluster's API server. Clones are the same one.
#[derive(Clone)]
pub(crate) struct ApiServer {
    pub(crate) model: Model,
    store: Store,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    requests: Vec<Received>,
    faults: BTreeMap<usize, Fault>,
    wrong: Vec<String>,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) line: String,
    /// None: it made no sense.
    pub(crate) asked: Option<Asked>,
    /// The events that it showed, if it was a watch.
    pub(crate) events: usize,
}

impl ApiServer {
    /// One for a world that is yet to be built.
    pub(crate) fn of(world: WorldBuilder) -> Self {
        let store = Store::default();
        let model = world.build_after(|world| store.follow(world));
        Self { model, store, log: Arc::default() }
    }

    /// Has this go wrong at the request of this number, counted from 0 over all processes.
    pub(crate) fn fault_at(&self, number: usize, fault: Fault) {
        self.log.lock().unwrap().faults.insert(number, fault);
    }

    /// The faults that have yet to strike.
    pub(crate) fn faults_left(&self) -> usize {
        self.log.lock().unwrap().faults.len()
    }

    /// Everything that came.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.log.lock().unwrap().requests.clone()
    }

    /// What the real server would have refused, or silently ignored.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.log.lock().unwrap().wrong.clone()
    }

    fn wrong_is(&self, what: String) -> Answer {
        let answer = Answer::no(400, "BadRequest", &what);
        self.log.lock().unwrap().wrong.push(what);
        answer
    }
}

/// The way of one process to the server.
pub(crate) struct Connection {
    server: ApiServer,
    process: Process,
    /// The world as the server reads it for this process.
    live: Box<dyn Live>,
    killed: Notify,
}

impl Connection {
    pub(crate) async fn of(server: &ApiServer, process: &Process) -> Arc<Self> {
        let live = process.open(Scope::Cluster, FOREVER).await.unwrap();
        Arc::new(Self { server: server.clone(), process: process.clone(), live, killed: Notify::new() })
    }

    /// Returns when the process is killed.
    pub(crate) async fn killed(&self) {
        self.killed.notified().await;
    }

    /// A client whose requests come here.
    pub(crate) fn client(self: &Arc<Self>) -> kube::Client {
        let connection = Arc::clone(self);
        let service = tower::service_fn(move |request| Arc::clone(&connection).serve(request));
        kube::Client::new(service, "default")
    }

    async fn serve(self: Arc<Self>, request: Request<kube::client::Body>) -> Result<Response<Body>, io::Error> {
        let (head, body) = request.into_parts();
        let body = String::from_utf8(body.collect_bytes().await.unwrap().to_vec()).unwrap();
        let asked = Asked::read(&head, &body);
        let line = format!("{} {} {body}", head.method, head.uri);
        let (number, fault) = {
            let mut log = self.server.log.lock().unwrap();
            let number = log.requests.len();
            log.requests.push(Received { line: line.clone(), asked: asked.as_ref().ok().cloned(), events: 0 });
            (number, log.faults.remove(&number))
        };
        self.pass(THERE).await;
        let asked = match asked {
            Ok(asked) => asked,
            Err(why) => return Ok(self.server.wrong_is(format!("{why}: {line}")).sent().await),
        };
        match fault {
            None | Some(Fault::AnswerLost | Fault::AnswerReset | Fault::KilledAfter | Fault::Breaks(..)) => {}
            Some(Fault::Says(no)) => {
                self.pass(BACK).await;
                return Ok(no.answer().sent().await);
            }
            Some(Fault::Hangs) => return std::future::pending().await,
            Some(Fault::Reset) => return Err(reset()),
            Some(Fault::KilledBefore) => return self.kill().await,
            Some(Fault::Late) => {
                tokio::spawn(async move {
                    self.pass(LATE).await;
                    self.effect(asked).await
                });
                return std::future::pending().await;
            }
        }
        if let Asked::Watch(watch) = asked {
            let breaks = match fault {
                Some(Fault::Breaks(event, how)) => Some((event, how)),
                _ => None,
            };
            self.pass(BACK).await;
            return Ok(self.watch(number, watch, breaks).await);
        }
        let answer = self.effect(asked).await;
        match fault {
            Some(Fault::AnswerLost) => return std::future::pending().await,
            Some(Fault::AnswerReset) => return Err(reset()),
            Some(Fault::KilledAfter) => return self.kill().await,
            _ => {}
        }
        self.pass(BACK).await;
        Ok(answer.sent().await)
    }

    async fn kill(&self) -> Result<Response<Body>, io::Error> {
        self.process.kill();
        self.killed.notify_one();
        std::future::pending().await
    }

    async fn pass(&self, time: Duration) {
        self.process.sleep_until(self.process.instant() + time).await;
    }

    /// Opens the watch that the request of this number asks for.
    async fn watch(&self, number: usize, watch: Watch, breaks: Option<(usize, Break)>) -> Response<Body> {
        let Watch { kind, selector, after, lasting } = watch;
        let store = &self.server.store;
        if store.is_compacted(kind, after) {
            return No::Expired.answer().sent().await;
        }
        let (to, body) = Channel::new(64);
        let (store, clock) = (store.clone(), self.process.clone());
        let until = self.process.instant() + lasting;
        let feed = Feed { store, clock, kind, selector, after, until, breaks, to };
        let log = Arc::clone(&self.server.log);
        tokio::spawn(feed.run(move || {
            if let Some(request) = log.lock().unwrap().requests.get_mut(number) {
                request.events += 1;
            }
        }));
        Response::new(body)
    }

    /// What a request does, and its answer.
    async fn effect(&self, asked: Asked) -> Answer {
        let store = &self.server.store;
        match asked {
            Asked::List { kind, selector } => self.list(kind, selector.as_ref()).await,
            Asked::Watch(_) => self.server.wrong_is("a watch has no effect".to_owned()),
            Asked::GetNode(name) => match store.named(Kind::Nodes, None, &name) {
                Some(node) => Answer::object(200, node),
                None => Answer::not_found("nodes", &name),
            },
            Asked::PatchNode { node, change } => self.patch_node(&node, &change).await,
            Asked::DeleteNode(node) => self.delete_node(node).await,
            Asked::Evict { pod, grace } => self.evict(&pod, grace).await,
            Asked::GetMemory => {
                self.process.recall(FOREVER).await.unwrap();
                match store.named(Kind::ConfigMaps, Some(MEMORY.0), MEMORY.1) {
                    Some(memory) => Answer::object(200, memory),
                    None => Answer::not_found("configmaps", MEMORY.1),
                }
            }
            Asked::CreateMemory(data) => self.remember(None, data).await,
            Asked::PatchMemory { version, data } => self.remember(Some(version), data).await,
            Asked::MayWeEvict => {
                Answer::object(201, json!({"kind": "SelfSubjectAccessReview", "status": {"allowed": true}}))
            }
        }
    }

    async fn list(&self, kind: Kind, selector: Option<&Selector>) -> Answer {
        let store = &self.server.store;
        let items = store.list(kind, selector);
        if let Some(node) = selector.filter(|_| kind == Kind::Pods) {
            // The world takes note of whoever looks what is left on a node.
            let meant = store.named(Kind::Nodes, None, &node.value);
            let uid = meant.as_ref().and_then(|node| node["metadata"]["uid"].as_str());
            let node = NodeRef {
                name: node.value.as_str().into(),
                uid: Uid::new(uid.unwrap_or_default()),
                resource_version: None,
            };
            let there = self.live.latest_pods(&node, FOREVER).await.unwrap();
            assert_eq!(there.len(), items.len(), "the store is the world");
        }
        let version = self.server.model.with(|world| world.version());
        let bare = |mut item: Value| {
            let fields = item.as_object_mut().unwrap();
            fields.remove("kind");
            fields.remove("apiVersion");
            item
        };
        let items: Vec<Value> = items.into_iter().map(bare).collect();
        Answer::object(
            200,
            json!({"kind": "List", "metadata": {"resourceVersion": version.to_string()}, "items": items}),
        )
    }

    async fn patch_node(&self, node: &NodeRef, change: &NodeChange) -> Answer {
        match self.process.write_node(node, change, &permit()).await {
            Ok(Written::Applied(node)) => Answer::object(200, object::node(&node)),
            Ok(Written::Conflict(_)) => Answer::modified("nodes", &node.name),
            Ok(Written::Gone) => match self.server.store.named(Kind::Nodes, None, &node.name) {
                None => Answer::not_found("nodes", &node.name),
                Some(_) if node.resource_version.is_some() => Answer::modified("nodes", &node.name),
                Some(_) => {
                    let message = format!("Node \"{}\" is invalid: metadata.uid: field is immutable", node.name);
                    Answer::no(422, "Invalid", &message)
                }
            },
            Err(error) => self.server.wrong_is(error.to_string()),
        }
    }

    async fn delete_node(&self, node: NodeRef) -> Answer {
        let there = self.server.store.named(Kind::Nodes, None, &node.name);
        let erased = self.process.delete_node(&DeletableNode::assume(node.clone()), &permit()).await.unwrap();
        let Some(there) = there else { return Answer::not_found("nodes", &node.name) };
        let found = |field: &str| there["metadata"][field].as_str().unwrap_or_default().to_owned();
        let failed = |what: &str, asked: &str, found: &str| {
            let message =
                format!("Precondition failed: {what} in precondition: {asked}, {what} in object meta: {found}");
            Answer::no(409, "Conflict", &message)
        };
        let uid = found("uid");
        if uid != node.uid.as_str() {
            return failed("UID", node.uid.as_str(), &uid);
        }
        match erased {
            Erased::Changed(_) => {
                let asked = node.resource_version.unwrap_or_default();
                failed("ResourceVersion", &asked, &found("resourceVersion"))
            }
            Erased::Gone => Answer::object(200, there),
        }
    }

    async fn evict(&self, pod: &PodRef, grace: Option<Duration>) -> Answer {
        let there = self.server.store.named(Kind::Pods, Some(&pod.namespace), &pod.name);
        let answer = self.process.evict(pod, grace, &permit()).await.unwrap();
        let uid = there.as_ref().and_then(|pod| pod["metadata"]["uid"].as_str());
        Answer::eviction(pod, &answer, uid)
    }

    /// Writes the ConfigMap. The world keeps its version, and whether it pauses us.
    async fn remember(&self, version: Option<String>, data: Map<String, Value>) -> Answer {
        let store = &self.server.store;
        let there = store.named(Kind::ConfigMaps, Some(MEMORY.0), MEMORY.1);
        let mut texts = there.as_ref().and_then(|there| there["data"].as_object().cloned()).unwrap_or_default();
        texts.extend(data);
        texts.retain(|_, text| !text.is_null());
        let paused = texts.get("paused").is_some_and(|text| text == "true");
        let created = version.is_none();
        let memory = Memory { paused, version, ..Memory::default() };
        match (self.process.remember(&memory, &permit()).await, there) {
            (Ok(memory), _) => {
                let version = memory.version.unwrap();
                let object = json!({
                    "kind": "ConfigMap", "apiVersion": "v1",
                    "metadata": {
                        "name": MEMORY.1, "namespace": MEMORY.0, "uid": "uid-memory", "resourceVersion": version,
                        "creationTimestamp": "2026-01-05T00:00:00Z",
                    },
                    "data": texts,
                });
                let now = self.process.instant();
                store.put(Kind::ConfigMaps, MEMORY.1, object.clone(), version.parse().unwrap(), now);
                Answer::object(if created { 201 } else { 200 }, object)
            }
            (Err(_), Some(_)) if created => {
                let message = format!("configmaps \"{}\" already exists", MEMORY.1);
                Answer::no(409, "AlreadyExists", &message)
            }
            (Err(_), Some(_)) => Answer::modified("configmaps", MEMORY.1),
            (Err(_), None) => Answer::not_found("configmaps", MEMORY.1),
        }
    }
}

/// The world's own deadline of what it does at once.
const FOREVER: Instant = Instant(Duration::MAX);

fn permit() -> Write {
    Write::assume(FOREVER, Arc::new(Alone))
}

fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer")
}
