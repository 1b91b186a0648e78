//! Nodes of a test cluster.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

/// A machine that plays along: a Node that KWOK keeps Ready, and whose machine ends with it.
#[derive(Clone, Debug)]
pub struct Machine {
    name: String,
    labels: Vec<(String, String)>,
    taints: Vec<Value>,
    cpus: u32,
    cordoned: bool,
    provider_id: String,
}

impl Machine {
    /// A worker that the table of capacity labels knows as on-demand.
    #[must_use]
    pub fn on_demand(name: &str) -> Self {
        Self::unlabelled(name).label("node.kubernetes.io/lifecycle", "on-demand")
    }

    /// A worker that the table of capacity labels knows as spot.
    #[must_use]
    pub fn spot(name: &str) -> Self {
        Self::unlabelled(name).label("node.kubernetes.io/lifecycle", "spot")
    }

    /// A machine of the control plane, with kubeadm's label and taint. It is on-demand, as most are.
    #[must_use]
    pub fn control_plane(name: &str) -> Self {
        let key = "node-role.kubernetes.io/control-plane";
        Self::on_demand(name).label(key, "").taint(key, "", "NoSchedule")
    }

    /// A worker without a label that tells its capacity.
    #[must_use]
    pub fn unlabelled(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: Vec::new(),
            taints: Vec::new(),
            cpus: 16,
            cordoned: false,
            provider_id: format!("kwok://{name}"),
        }
    }

    /// The same with a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The same with a taint.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(json!({"key": key, "value": value, "effect": effect}));
        self
    }

    /// The same with room for so many CPUs' worth of pods; 16 unless said otherwise.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// The same on this instance of EC2, to which its name bears no relation.
    #[must_use]
    pub fn instance(mut self, id: &str) -> Self {
        self.provider_id = format!("aws:///eu-west-1a/{id}");
        self
    }

    /// The same, unschedulable from the start.
    #[must_use]
    pub fn cordoned(mut self) -> Self {
        self.cordoned = true;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Node as it joins the cluster.
    ///
    /// # Panics
    /// Never: the fields are those of a Node.
    #[must_use]
    pub fn node(&self) -> Node {
        let mut labels: serde_json::Map<String, Value> =
            self.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        labels.insert("kubernetes.io/hostname".to_owned(), json!(self.name));
        let room = json!({"cpu": self.cpus.to_string(), "memory": "64Gi", "pods": "250"});
        serde_json::from_value(json!({
            "metadata": {"name": self.name, "labels": labels},
            "spec": {
                "providerID": self.provider_id,
                "taints": self.taints,
                "unschedulable": self.cordoned,
            },
            "status": {"allocatable": room, "capacity": room},
        }))
        .expect("the fields are those of a Node")
    }
}
