//! What runs on the nodes of a test cluster.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    policy::v1::PodDisruptionBudget,
};
use serde_json::{Value, json};

use crate::kwok::{READY_AFTER, STOP_AFTER};

/// The label by which a workload, its pods and its budget belong together.
pub const APP: &str = "app";

/// Pods that a controller keeps up in namespace `default`, and perhaps a budget for them.
#[derive(Clone, Debug)]
pub struct Workload {
    name: String,
    kind: Kind,
    max_unavailable: Option<u32>,
    annotations: serde_json::Map<String, Value>,
    pod: serde_json::Map<String, Value>,
    finalizers: Vec<String>,
    cpu: String,
}

/// What keeps the pods of a [`Workload`] up.
#[derive(Clone, Debug)]
pub(crate) enum Controller {
    Deployment(Deployment),
    StatefulSet(StatefulSet),
    DaemonSet(DaemonSet),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Deployment { replicas: u32 },
    StatefulSet { replicas: u32 },
    DaemonSet,
}

impl Workload {
    /// A Deployment. Its pods ask for a tenth of a CPU.
    #[must_use]
    pub fn deployment(name: &str, replicas: u32) -> Self {
        Self::new(name, Kind::Deployment { replicas })
    }

    /// A `StatefulSet`, whose pods come back under the same name, all at once.
    #[must_use]
    pub fn stateful_set(name: &str, replicas: u32) -> Self {
        Self::new(name, Kind::StatefulSet { replicas })
    }

    /// A DaemonSet that tolerates everything, as node agents do.
    #[must_use]
    pub fn daemon_set(name: &str) -> Self {
        Self::new(name, Kind::DaemonSet).spec("tolerations", json!([{"operator": "Exists"}]))
    }

    /// The same with a budget that lets so many of its pods be down.
    #[must_use]
    pub fn max_unavailable(mut self, pods: u32) -> Self {
        self.max_unavailable = Some(pods);
        self
    }

    /// The same with pods that ask for so much CPU, as in `500m`.
    #[must_use]
    pub fn cpu(mut self, quantity: &str) -> Self {
        quantity.clone_into(&mut self.cpu);
        self
    }

    /// The same with pods that become ready so long after they were placed, as in `1s`.
    #[must_use]
    pub fn ready_after(self, duration: &str) -> Self {
        self.annotation(READY_AFTER, duration)
    }

    /// The same with pods that take so long to stop, as in `30s`.
    #[must_use]
    pub fn stop_after(self, duration: &str) -> Self {
        self.annotation(STOP_AFTER, duration)
    }

    /// The same with an annotation on its pods.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), json!(value));
        self
    }

    /// The same with pods whose objects stay until somebody takes this finalizer off.
    #[must_use]
    pub fn finalizer(mut self, name: &str) -> Self {
        self.finalizers.push(name.to_owned());
        self
    }

    /// The same with pods on as many nodes as there are.
    #[must_use]
    pub fn spread_over_nodes(self) -> Self {
        let constraint = json!({
            "topologyKey": "kubernetes.io/hostname",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "nodeTaintsPolicy": "Honor",
            "labelSelector": self.match_labels(),
        });
        self.spec("topologySpreadConstraints", json!([constraint]))
    }

    /// The same with a field of its pods' spec.
    #[must_use]
    pub fn spec(mut self, field: &str, value: Value) -> Self {
        self.pod.insert(field.to_owned(), value);
        self
    }

    /// Its name, which is also the value of its pods' label [`APP`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many pods it wants; nothing for a DaemonSet, whose number is the nodes'.
    #[must_use]
    pub fn replicas(&self) -> Option<u32> {
        match self.kind {
            Kind::Deployment { replicas } | Kind::StatefulSet { replicas } => Some(replicas),
            Kind::DaemonSet => None,
        }
    }

    /// How many pods must be up at any moment by its budget; without one, none.
    #[must_use]
    pub fn least_up(&self) -> u32 {
        match (self.replicas(), self.max_unavailable) {
            (Some(replicas), Some(down)) => replicas.saturating_sub(down),
            (None, _) | (_, None) => 0,
        }
    }

    /// The selector of its pods, as text.
    #[must_use]
    pub fn selector(&self) -> String {
        format!("{APP}={}", self.name)
    }

    /// The object whose controller keeps the pods up.
    pub(crate) fn controller(&self) -> Controller {
        let mut object = json!({
            "metadata": self.metadata(),
            "spec": {"selector": self.match_labels(), "template": self.template()},
        });
        let spec = &mut object["spec"];
        match self.kind {
            Kind::Deployment { replicas } => {
                spec["replicas"] = json!(replicas);
                Controller::Deployment(serde_json::from_value(object).expect("the fields are those of a Deployment"))
            }
            Kind::StatefulSet { replicas } => {
                spec["replicas"] = json!(replicas);
                spec["serviceName"] = json!(self.name);
                spec["podManagementPolicy"] = json!("Parallel");
                Controller::StatefulSet(serde_json::from_value(object).expect("the fields are those of a StatefulSet"))
            }
            Kind::DaemonSet => {
                Controller::DaemonSet(serde_json::from_value(object).expect("the fields are those of a DaemonSet"))
            }
        }
    }

    pub(crate) fn budget(&self) -> Option<PodDisruptionBudget> {
        let down = self.max_unavailable?;
        let object = json!({
            "metadata": self.metadata(),
            "spec": {"maxUnavailable": down, "selector": self.match_labels()},
        });
        Some(serde_json::from_value(object).expect("the fields are those of a PodDisruptionBudget"))
    }

    fn new(name: &str, kind: Kind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            max_unavailable: None,
            annotations: serde_json::Map::new(),
            pod: serde_json::Map::new(),
            finalizers: Vec::new(),
            cpu: "100m".to_owned(),
        }
    }

    fn metadata(&self) -> Value {
        json!({"name": self.name, "namespace": "default"})
    }

    fn match_labels(&self) -> Value {
        json!({"matchLabels": {APP: self.name}})
    }

    fn template(&self) -> Value {
        let mut spec = self.pod.clone();
        let container = json!({"name": "main", "image": "nothing", "resources": {"requests": {"cpu": self.cpu}}});
        spec.insert("containers".to_owned(), json!([container]));
        json!({
            "metadata": {
                "labels": {APP: self.name},
                "annotations": self.annotations,
                "finalizers": self.finalizers,
            },
            "spec": spec,
        })
    }
}
