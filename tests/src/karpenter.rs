//! Karpenter with its KWOK provider: the autoscaler that buys Nodes for pending pods.

use std::{fmt, process::Command};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::{
    control_plane::{ControlPlane, User, free_port},
    process::Process,
    programs,
    wait::{PATIENCE, until},
};

/// The pool that is asked first; its machines are spot.
pub const SPOT_POOL: &str = "spot";

/// The pool that is asked when spot has no room; its machines are on-demand.
pub const ON_DEMAND_POOL: &str = "on-demand";

/// The size of the machines it buys: 4 CPUs.
const INSTANCE_TYPE: &str = "c-4x-amd64-linux";

/// Karpenter with two pools, of which it prefers spot. It only buys: it never moves a pod by itself.
pub struct Karpenter {
    process: Process,
    client: Client,
}

impl fmt::Debug for Karpenter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Karpenter").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Karpenter {
    /// Starts Karpenter on `control_plane`, with both pools open.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(control_plane: &ControlPlane) -> Self {
        let client = control_plane.client();
        define(&client).await;
        let mut command = Command::new(programs::path("karpenter"));
        command
            .env("KUBECONFIG", control_plane.kubeconfig(User::Karpenter))
            .env("SYSTEM_NAMESPACE", "kube-system")
            .env("DISABLE_LEADER_ELECTION", "true")
            .env("METRICS_PORT", free_port().to_string())
            .env("HEALTH_PROBE_PORT", free_port().to_string())
            // Pods that come within a tenth of a second of each other are one purchase; a second is for real clouds.
            .env("BATCH_IDLE_DURATION", "100ms");
        let process = Process::start("karpenter", &mut command, control_plane.folder());
        let started = Self { process, client };
        for pool in [SPOT_POOL, ON_DEMAND_POOL] {
            started.pool_is_ready(pool).await;
        }
        started
    }

    /// Lets the cloud run out of spot machines: no further one can be bought.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn exhaust_spot(&self) {
        self.limit_spot(json!({"cpu": "0"})).await;
    }

    /// Lets the cloud have spot machines again.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn replenish_spot(&self) {
        self.limit_spot(Value::Null).await;
    }

    /// The names of the machines that it has bought and not given back.
    ///
    /// # Panics
    /// If the API server refuses.
    pub async fn machines(&self) -> Vec<String> {
        let claims = Api::<DynamicObject>::all_with(self.client.clone(), &resource("karpenter.sh", "v1", "NodeClaim"));
        let claims = claims.list(&kube::api::ListParams::default()).await.expect("NodeClaims are defined");
        claims.items.into_iter().filter_map(|claim| claim.metadata.name).collect()
    }

    /// Everything that it has printed so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.output()
    }

    async fn limit_spot(&self, limits: Value) {
        let patch = Patch::Merge(json!({"spec": {"limits": limits}}));
        self.pools().patch(SPOT_POOL, &PatchParams::default(), &patch).await.expect("the pool is there");
    }

    async fn pool_is_ready(&self, pool: &str) {
        until(&format!("Karpenter's pool {pool} to be ready"), PATIENCE, || async {
            let pool = self.pools().get(pool).await.map_err(|error| error.to_string())?;
            let conditions = &pool.data["status"]["conditions"];
            let ready = conditions
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"));
            if ready { Ok(()) } else { Err(conditions.to_string()) }
        })
        .await;
    }

    fn pools(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource("karpenter.sh", "v1", "NodePool"))
    }
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Creates the definitions, the class and the pools.
async fn define(client: &Client) {
    let definition = resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    for line in programs::output_of("karpenter", &["crds"]).lines() {
        create(client, &definition, line.parse().expect("`karpenter crds` prints a JSON document a line")).await;
    }
    let class = resource("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass");
    create(client, &class, json!({"metadata": {"name": "default"}, "spec": {}})).await;
    let pools = resource("karpenter.sh", "v1", "NodePool");
    for (name, weight) in [(SPOT_POOL, 100), (ON_DEMAND_POOL, 1)] {
        create(client, &pools, pool(name, weight)).await;
    }
}

/// Creates an object as soon as its kind is served: a definition takes effect a moment after it was created.
async fn create(client: &Client, resource: &ApiResource, mut object: Value) {
    object["apiVersion"] = json!(resource.api_version);
    object["kind"] = json!(resource.kind);
    let object: DynamicObject = serde_json::from_value(object).expect("it is an object");
    let api = Api::<DynamicObject>::all_with(client.clone(), resource);
    let what = format!("{} to be accepted", resource.kind);
    until(&what, PATIENCE, || async {
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
}

fn pool(capacity: &str, weight: u32) -> Value {
    json!({
        "metadata": {"name": capacity},
        "spec": {
            "weight": weight,
            "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]},
            "template": {"spec": {
                "expireAfter": "Never",
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [INSTANCE_TYPE]},
                ],
            }},
        },
    })
}
