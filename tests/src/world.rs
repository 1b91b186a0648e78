//! The cluster that a test plays in.

use std::{collections::BTreeMap, time::Duration};

use futures::future::try_join_all;
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        coordination::v1::Lease,
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    serde::de::DeserializeOwned,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    audit::AuditLog,
    control_plane::ControlPlane,
    karpenter::Karpenter,
    kwok::{Kwok, SILENT},
    machine::Machine,
    wait::{PATIENCE, until},
    witness::Witness,
    workload::{Controller, Workload},
};

/// A cluster of the test's own: control plane, kubelets, perhaps an autoscaler.
#[derive(Debug)]
pub struct World {
    // Dropped in this order: the control plane last.
    karpenter: Option<Karpenter>,
    kwok: Kwok,
    control_plane: ControlPlane,
}

impl World {
    /// Starts a cluster without nodes.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start() -> Self {
        let control_plane = ControlPlane::start().await;
        let kwok = Kwok::start(&control_plane);
        Self { karpenter: None, kwok, control_plane }
    }

    /// Starts a cluster without nodes, in which Karpenter buys some for pending pods.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn with_karpenter() -> Self {
        let mut world = Self::start().await;
        world.karpenter = Some(Karpenter::start(&world.control_plane).await);
        world
    }

    /// The control plane.
    #[must_use]
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The control plane, to restart parts of it.
    #[must_use]
    pub fn control_plane_mut(&mut self) -> &mut ControlPlane {
        &mut self.control_plane
    }

    /// The kubelets.
    #[must_use]
    pub fn kwok(&self) -> &Kwok {
        &self.kwok
    }

    /// Starts the kubelets anew: KWOK needs minutes to find an API server again that was restarted.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn restart_kwok(&mut self) {
        self.kwok = Kwok::start(&self.control_plane);
        // Else it waits until those of its predecessor are over.
        let leases: Api<Lease> = Api::namespaced(self.client(), "kube-node-lease");
        let all = (DeleteParams::default(), ListParams::default());
        let _deleted = leases.delete_collection(&all.0, &all.1).await.expect("leases can be deleted");
    }

    /// The autoscaler.
    ///
    /// # Panics
    /// If the world was started without one.
    #[must_use]
    pub fn karpenter(&self) -> &Karpenter {
        self.karpenter.as_ref().expect("the world was started with Karpenter")
    }

    /// A client of the test itself, which may do everything.
    #[must_use]
    pub fn client(&self) -> Client {
        self.control_plane.client()
    }

    /// What the API server was asked for so far.
    pub async fn audit(&self) -> AuditLog {
        self.control_plane.audit().await
    }

    /// Follows pods and nodes from now on.
    pub async fn witness(&self) -> Witness {
        Witness::start(self.client()).await
    }

    /// The same where the API server is restarted; see [`Witness::through_restarts`].
    pub async fn witness_through_restarts(&self) -> Witness {
        Witness::through_restarts(self.client()).await
    }

    /// Lets machines join, and waits until their Nodes are ready for pods.
    ///
    /// # Panics
    /// If they don't become ready.
    pub async fn join(&self, machines: &[Machine]) {
        let nodes: Api<Node> = self.all();
        // One after the other: a test may want to rely on their age, which has a resolution of a second.
        for machine in machines {
            nodes.create(&PostParams::default(), &machine.node()).await.expect("the Node is accepted");
        }
        until("the nodes to be ready", PATIENCE, || async {
            let all = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let waiting: Vec<_> = all.iter().filter(|node| !takes_pods(node)).map(ResourceExt::name_any).collect();
            if waiting.is_empty() { Ok(()) } else { Err(format!("not ready: {waiting:?}")) }
        })
        .await;
    }

    /// Creates workloads, and waits until all their pods are ready and their budgets know it.
    ///
    /// # Panics
    /// If they don't become ready.
    pub async fn run(&self, workloads: &[Workload]) {
        self.create(workloads).await;
        self.settled(workloads).await;
    }

    /// Creates workloads and waits for nothing.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn create(&self, workloads: &[Workload]) {
        try_join_all(workloads.iter().map(|workload| self.create_one(workload))).await.expect("workloads are accepted");
    }

    /// Waits until all pods of `workloads` are ready and their budgets know it.
    ///
    /// # Panics
    /// If they don't become ready.
    pub async fn settled(&self, workloads: &[Workload]) {
        until("the workloads to be ready", PATIENCE, || async {
            for workload in workloads {
                self.is_settled(workload).await?;
            }
            Ok(())
        })
        .await;
    }

    /// All nodes, by name.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn nodes(&self) -> BTreeMap<String, Node> {
        let all = self.all::<Node>().list(&ListParams::default()).await.expect("nodes can be listed");
        all.into_iter().map(|node| (node.name_any(), node)).collect()
    }

    /// The pods of `workload`.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn pods(&self, workload: &Workload) -> Vec<Pod> {
        let of_workload = ListParams::default().labels(&workload.selector());
        self.own::<Pod>().list(&of_workload).await.expect("pods can be listed").items
    }

    /// The pods on `node`, but for those of DaemonSets.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn pods_on(&self, node: &str) -> Vec<Pod> {
        let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let mut pods = self.all::<Pod>().list(&there).await.expect("pods can be listed").items;
        pods.retain(|pod| pod.owner_references().iter().all(|owner| owner.kind != "DaemonSet"));
        pods
    }

    /// Waits until `node` satisfies `holds`, and returns it.
    ///
    /// # Panics
    /// If it does not within `patience`.
    pub async fn node_when(&self, node: &str, what: &str, patience: Duration, holds: impl Fn(&Node) -> bool) -> Node {
        let nodes = self.all::<Node>();
        until(&format!("{node} to be {what}"), patience, || async {
            let node = nodes.get(node).await.map_err(|error| error.to_string())?;
            if holds(&node) { Ok(node) } else { Err(format!("{:?}", node.spec)) }
        })
        .await
    }

    /// Changes a Node as `kubectl patch` does, by a merge patch.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn patch_node(&self, node: &str, patch: &Value) {
        let patch = Patch::Merge(patch);
        self.all::<Node>().patch(node, &PatchParams::default(), &patch).await.expect("the Node can be patched");
    }

    /// Changes a Node's status as its kubelet does, by a merge patch.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn patch_node_status(&self, node: &str, status: &Value) {
        let patch = json!({"status": status});
        let patched = self.all::<Node>().patch_status(node, &PatchParams::default(), &Patch::Merge(&patch)).await;
        patched.expect("the Node's status can be patched");
    }

    /// Makes a Node fall silent, as one whose machine has lost its network: it is not ready from now on.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn silence(&self, node: &str) {
        self.patch_node(node, &json!({"metadata": {"annotations": {SILENT: "true"}}})).await;
        let now = self.all::<Node>().get(node).await.expect("the Node is there");
        let mut status = json!({"status": now.status});
        let conditions = status.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter(|condition| condition["type"] == "Ready") {
            condition["status"] = json!("Unknown");
            condition["reason"] = json!("NodeStatusUnknown");
        }
        let patch = Patch::Merge(&status);
        let patched = self.all::<Node>().patch_status(node, &PatchParams::default(), &patch).await;
        patched.expect("the Node's status can be patched");
    }

    /// Creates or changes objects of any kind, as `kubectl apply` does.
    ///
    /// # Panics
    /// If the API server refuses.
    pub fn apply(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let file = tempfile::NamedTempFile::new_in(self.control_plane.folder()).expect("the folder is writable");
        std::fs::write(file.path(), list.to_string()).expect("the file is writable");
        let path = file.path().to_str().expect("the path is UTF-8");
        let _printed: String = self.control_plane.kubectl(&["apply", "--validate=strict", "-f", path]);
    }

    /// Deletes a Node, and waits until it is gone.
    ///
    /// # Panics
    /// If it stays.
    pub async fn delete_node(&self, node: &str) {
        let nodes = self.all::<Node>();
        nodes.delete(node, &DeleteParams::default()).await.expect("the Node can be deleted");
        until(&format!("Node {node} to be gone"), PATIENCE, || async {
            match nodes.get_opt(node).await.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(node) => Err(format!("finalizers: {:?}", node.metadata.finalizers)),
            }
        })
        .await;
    }

    async fn create_one(&self, workload: &Workload) -> kube::Result<()> {
        let create = PostParams::default();
        // The budget first: so no pod is ever without it.
        if let Some(budget) = workload.budget() {
            self.own().create(&create, &budget).await?;
        }
        match workload.controller() {
            Controller::Deployment(object) => self.own().create(&create, &object).await.map(drop),
            Controller::StatefulSet(object) => self.own().create(&create, &object).await.map(drop),
            Controller::DaemonSet(object) => self.own().create(&create, &object).await.map(drop),
        }
    }

    async fn is_settled(&self, workload: &Workload) -> Result<(), String> {
        let text = |error: kube::Error| error.to_string();
        let name = workload.name();
        let (ready, wanted) = match workload.controller() {
            Controller::Deployment(_) => {
                let status = self.own::<Deployment>().get(name).await.map_err(text)?.status.unwrap_or_default();
                (status.ready_replicas.unwrap_or(0), None)
            }
            Controller::StatefulSet(_) => {
                let status = self.own::<StatefulSet>().get(name).await.map_err(text)?.status.unwrap_or_default();
                (status.ready_replicas.unwrap_or(0), None)
            }
            Controller::DaemonSet(_) => {
                let status = self.own::<DaemonSet>().get(name).await.map_err(text)?.status.unwrap_or_default();
                (status.number_ready, Some(status.desired_number_scheduled.max(1)))
            }
        };
        let replicas = workload.replicas().map_or(i32::MAX, |replicas| i32::try_from(replicas).unwrap_or(i32::MAX));
        let wanted = wanted.unwrap_or(replicas);
        if ready != wanted {
            return Err(format!("{name}: {ready} of {wanted} pods are ready"));
        }
        if workload.budget().is_some() {
            let budget = self.own::<PodDisruptionBudget>().get(name).await.map_err(text)?;
            let status = budget.status.unwrap_or_default();
            if status.current_healthy != wanted {
                return Err(format!("{name}: its budget sees {} of {wanted} pods", status.current_healthy));
            }
        }
        Ok(())
    }

    /// Objects of the whole cluster.
    fn all<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        Api::all(self.client())
    }

    /// Objects of the namespace in which the workloads are.
    fn own<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + DeserializeOwned,
    {
        Api::namespaced(self.client(), "default")
    }
}

/// Ready, and without the taint that keeps pods off a Node which is not.
fn takes_pods(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        && !taints.any(|taint| taint.key == "node.kubernetes.io/not-ready")
}
