//! A migration of two nodes, played again and again in one world.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::ConfigMap, policy::v1::PodDisruptionBudget},
    serde::de::DeserializeOwned,
};
use kube::{Api, Resource, ResourceExt, api::DeleteParams};
use serde_json::{Value, json};
use spot_tests::{
    Entry, Machine, Migrator, Proxy, Witness, Workload, World,
    control_plane::User,
    proxy::{Armed, Fault, Request},
    rights::NAMESPACE,
};

use crate::{judge, step::Call};

/// How long a run may take: a hang costs 10 s, and so does a predecessor's lease at the most.
const RUN: Duration = Duration::from_mins(2);

/// The runs that may be needed: one that is broken, one that takes up what it left, and those that go on from there.
const RUNS: usize = 4;

/// The node that all pods go to.
pub(crate) const SPOT: &str = "spot-1";

/// The pods, half of them on each node.
const PODS: u32 = 6;

/// A world, the product behind a proxy, and room for one migration after another.
#[derive(Debug)]
pub(crate) struct Scene {
    world: World,
    proxy: Proxy,
    migrator: Migrator,
    /// How many were played.
    played: u32,
    /// How much of the audit log belongs to them.
    seen: usize,
}

/// What happens to the `nth` request of a kind, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) fault: Fault,
    pub(crate) call: Call,
    pub(crate) nth: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} at {} #{}", self.fault, self.call, self.nth)
    }
}

/// A migration that was played, to be judged.
#[derive(Debug)]
pub(crate) struct Migration {
    /// The UIDs of the nodes that are to go, by name.
    pub(crate) nodes: BTreeMap<String, String>,
    /// The nodes of the pods that are to move, by UID.
    pub(crate) pods: BTreeMap<String, String>,
    pub(crate) workload: Workload,
    pub(crate) witness: Witness,
    /// What the product was answered.
    pub(crate) answered: Vec<Entry>,
    /// What the product asked for, by its first run and in all.
    pub(crate) asked: (Vec<Request>, Vec<Request>),
    /// How its runs ended; nothing for one that was killed.
    pub(crate) ends: Vec<Option<i32>>,
}

impl Scene {
    pub(crate) async fn set() -> Self {
        let world = World::start().await;
        world.join(&[Machine::spot(SPOT)]).await;
        let proxy = Proxy::start(&world).await;
        let migrator = Migrator::install(&world, settings()).await.through(&proxy);
        Self { world, proxy, migrator, played: 0, seen: 0 }
    }

    /// Migrates two nodes of three pods each, with or without a fault, and runs the product again until they are gone.
    /// Returns what the first run asked for, and how the runs ended.
    ///
    /// # Panics
    /// If the fault never fired, or the migration is not as one without it.
    pub(crate) async fn play(&mut self, case: Option<&Case>) -> (Vec<Request>, Vec<Option<i32>>) {
        let mut migration = self.lay_out().await;
        let armed = case.map(|Case { fault, call, nth }| {
            let call = call.clone();
            self.proxy.arm(*fault, *nth, move |request| Call::of(request) == call)
        });
        migration.ends.push(match &armed {
            Some(armed) if case.is_some_and(|case| case.fault.kills()) => self.kill_at(armed).await,
            Some(_) | None => self.run().await,
        });
        drop(armed);
        migration.asked.0 = self.proxy.take_asked();
        while migration.ends.last() != Some(&Some(0)) || !self.are_gone(&migration.nodes).await {
            assert!(
                migration.ends.len() < RUNS,
                "the nodes are still there after runs that ended {:?}",
                migration.ends
            );
            migration.ends.push(self.run().await);
        }
        migration.asked.1 = [migration.asked.0.clone(), self.proxy.take_asked()].concat();
        self.world.settled(std::slice::from_ref(&migration.workload)).await;
        migration.witness.caught_up().await;
        let audit = self.world.audit().await;
        let all: Vec<_> = audit.entries().collect();
        let ours = all.iter().skip(self.seen).filter(|entry| entry.user == User::Migrator.name());
        migration.answered = ours.map(|entry| Entry::clone(entry)).collect();
        self.seen = all.len();
        judge::judge(&self.world, &migration).await;
        self.clear(&migration.workload).await;
        (migration.asked.0, migration.ends)
    }

    /// Two on-demand nodes with three pods each, and room on a spot node.
    async fn lay_out(&mut self) -> Migration {
        self.played += 1;
        let world = &self.world;
        let nodes = [1, 2].map(|number| format!("on-demand-{}-{number}", self.played));
        let workload = Workload::deployment(&format!("web-{}", self.played), PODS)
            .max_unavailable(PODS / 2)
            .spec("terminationGracePeriodSeconds", json!(1));
        world.patch_node(SPOT, &json!({"spec": {"unschedulable": true}})).await;
        world.join(&[Machine::on_demand(&nodes[0]), Machine::on_demand(&nodes[1])]).await;
        world.run(std::slice::from_ref(&workload)).await;
        world.patch_node(SPOT, &json!({"spec": {"unschedulable": null}})).await;
        let all = world.nodes().await;
        let uid = |name: String| {
            let uid = all[&name].uid().expect("the API server gives every object a UID");
            (name, uid)
        };
        let pods = world.pods(&workload).await.into_iter().map(|pod| {
            let uid = pod.uid().expect("the API server gives every object a UID");
            (uid, pod.spec.and_then(|spec| spec.node_name).expect("it runs"))
        });
        let migration = Migration {
            nodes: nodes.map(uid).into(),
            pods: pods.collect(),
            workload,
            witness: world.witness().await,
            answered: Vec::new(),
            asked: (Vec::new(), Vec::new()),
            ends: Vec::new(),
        };
        let hosts: BTreeSet<_> = migration.pods.values().collect();
        assert_eq!(hosts, migration.nodes.keys().collect(), "each node has pods");
        migration
    }

    async fn run(&self) -> Option<i32> {
        self.migrator.run_once(RUN).await.code
    }

    async fn kill_at(&self, armed: &Armed) -> Option<i32> {
        self.migrator.run(&["--once"]).killed_at(armed.fired(), RUN).await
    }

    async fn are_gone(&self, nodes: &BTreeMap<String, String>) -> bool {
        let left = self.world.nodes().await;
        nodes.keys().all(|node| !left.contains_key(node))
    }

    /// Makes room for the next one, of which nothing is known yet.
    async fn clear(&self, workload: &Workload) {
        self.delete::<Deployment>("default", workload.name()).await;
        self.delete::<PodDisruptionBudget>("default", workload.name()).await;
        self.delete::<ConfigMap>(NAMESPACE, "spot-migrator").await;
        self.delete::<Lease>(NAMESPACE, "spot-migrator").await;
    }

    async fn delete<K>(&self, namespace: &str, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + fmt::Debug,
    {
        let objects: Api<K> = Api::namespaced(self.world.client(), namespace);
        let _deleted = objects.delete(name, &DeleteParams::background()).await.expect("it is there to be deleted");
    }
}

/// A short lease, so that nobody waits long for a killed process, and a node that failed is soon taken again.
fn settings() -> Value {
    json!({
        "leaderElection": {"leaseDuration": "6s", "renewDeadline": "5s", "retryPeriod": "500ms"},
        "drain": {"timeout": "1m"},
        "settle": {"timeout": "30s"},
        "backOff": {"initial": "1s", "max": "1s"},
    })
}
