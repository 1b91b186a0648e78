//! What the world is made of at its beginning: nodes, workloads, budgets.

use std::time::Duration;

use crate::capacity::Class;
use crate::node::Taint;
use crate::pod::UnhealthyPods;
use crate::volume::Reach;

/// What a budget demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// So many must be healthy.
    MinAvailable(u32),
    /// So many percent must be healthy, rounded up.
    MinAvailablePercent(u32),
    /// So many may be missing.
    MaxUnavailable(u32),
    /// So many percent may be missing, rounded up.
    MaxUnavailablePercent(u32),
    /// What the status of a budget said that was seen: so many there are to be, and so many of them healthy.
    AsSeen {
        /// How many there are to be.
        expected: i32,
        /// How many must be healthy.
        desired: i32,
    },
}

/// A PodDisruptionBudget to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSpec {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Pods with this value of the label `app` are protected.
    pub app: String,
    /// What it demands.
    pub allowance: Allowance,
    /// What it says of pods that are not ready.
    pub unhealthy_pods: UnhealthyPods,
}

/// Who brings pods back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// A Deployment: a replacement as soon as a pod is on its way out, under another name.
    Deployment,
    /// A StatefulSet: a replacement when the old pod is gone, under the same name.
    StatefulSet,
    /// A DaemonSet: one pod on every node, whatever its cordon and taints.
    DaemonSet,
    /// Nobody.
    Bare,
}

/// How pods live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodLife {
    /// They start, are ready, and end.
    #[default]
    Sound,
    /// They never become ready when they start again.
    Crashing,
    /// A finalizer holds their objects after their containers ended.
    Held,
    /// They have run to their end.
    Finished,
    /// Kubelets made them from files; only with [`WorkloadKind::Bare`].
    Mirror,
}

/// The volume that each pod of a kind has. A successor of the same name has the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Where it can be used.
    pub reach: Reach,
    /// How long it stays attached after its pod is gone.
    pub detach: Duration,
}

/// Pods of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadSpec {
    /// Its namespace.
    pub namespace: String,
    /// Its name, and the value of its pods' label `app`.
    pub name: String,
    /// Who brings its pods back.
    pub kind: WorkloadKind,
    /// How many pods it has; a DaemonSet has one on every node.
    pub replicas: u32,
    /// More labels of its pods.
    pub labels: Vec<(String, String)>,
    /// From a pod's placement to the start of its containers.
    pub pull: Duration,
    /// From the start of its containers to its readiness.
    pub start_up: Duration,
    /// How long its containers take to end, if the grace period is as long.
    pub stop: Duration,
    /// Its pods' grace period.
    pub grace: Duration,
    /// Keys of the `NoSchedule` taints that it tolerates.
    pub tolerations: Vec<String>,
    /// Labels that its pods' nodes must have.
    pub node_selector: Vec<(String, String)>,
    /// Whether its pods run on on-demand nodes only.
    pub needs_on_demand: bool,
    /// Which key opts its pods out.
    pub opted_out: Option<&'static str>,
    /// Whether its pods have local data.
    pub empty_dir: bool,
    /// The volume of each of its pods.
    pub volume: Option<VolumeSpec>,
    /// How its pods live.
    pub life: PodLife,
    /// Its budget, if any.
    pub budget: Option<Allowance>,
}

impl WorkloadSpec {
    /// A Deployment of so many pods that are ready two seconds after their placement and stop within one.
    #[must_use]
    pub fn deployment(name: &str, replicas: u32) -> Self {
        Self {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            kind: WorkloadKind::Deployment,
            replicas,
            labels: Vec::new(),
            pull: Duration::from_secs(1),
            start_up: Duration::from_secs(1),
            stop: Duration::from_secs(1),
            grace: Duration::from_secs(30),
            tolerations: Vec::new(),
            node_selector: Vec::new(),
            needs_on_demand: false,
            opted_out: None,
            empty_dir: false,
            volume: None,
            life: PodLife::default(),
            budget: None,
        }
    }

    /// A StatefulSet of so many pods.
    #[must_use]
    pub fn stateful_set(name: &str, replicas: u32) -> Self {
        Self { kind: WorkloadKind::StatefulSet, ..Self::deployment(name, replicas) }
    }

    /// A DaemonSet.
    #[must_use]
    pub fn daemon_set(name: &str) -> Self {
        Self { kind: WorkloadKind::DaemonSet, namespace: "kube-system".to_owned(), ..Self::deployment(name, 0) }
    }

    /// So many pods that nobody brings back.
    #[must_use]
    pub fn bare(name: &str, pods: u32) -> Self {
        Self { kind: WorkloadKind::Bare, ..Self::deployment(name, pods) }
    }

    /// With a budget of its own.
    #[must_use]
    pub const fn budget(mut self, allowance: Allowance) -> Self {
        self.budget = Some(allowance);
        self
    }

    /// Ready so long after its containers started.
    #[must_use]
    pub const fn start_up(mut self, start_up: Duration) -> Self {
        self.start_up = start_up;
        self
    }

    /// Its containers need so long to end, and are given as long at least.
    #[must_use]
    pub const fn stop(mut self, stop: Duration) -> Self {
        self.stop = stop;
        if self.grace.as_nanos() < stop.as_nanos() {
            self.grace = stop;
        }
        self
    }

    /// On on-demand nodes only.
    #[must_use]
    pub const fn spot_never(mut self) -> Self {
        self.needs_on_demand = true;
        self
    }

    /// With a volume for each pod, that can be used there, and stays attached so long after its pod is gone.
    #[must_use]
    pub fn volume(mut self, reach: Reach, detach: Duration) -> Self {
        self.volume = Some(VolumeSpec { reach, detach });
        self
    }

    /// On nodes with this label only.
    #[must_use]
    pub fn selects(mut self, key: &str, value: &str) -> Self {
        self.node_selector.push((key.to_owned(), value.to_owned()));
        self
    }

    /// With pods that live so.
    #[must_use]
    pub const fn life(mut self, life: PodLife) -> Self {
        self.life = life;
        self
    }

    /// Tolerates `NoSchedule` taints of this key.
    #[must_use]
    pub fn tolerates(mut self, key: &str) -> Self {
        self.tolerations.push(key.to_owned());
        self
    }
}

/// A node to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its name; none: the next of its class.
    pub name: Option<String>,
    /// How its machine is paid for.
    pub class: Class,
    /// How many pods fit on it, those of DaemonSets aside.
    pub slots: u32,
    /// More labels.
    pub labels: Vec<(String, String)>,
    /// Its annotations.
    pub annotations: Vec<(String, String)>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// How long before the world's beginning it was created.
    pub age: Duration,
    /// The group that keeps its machine.
    pub group: Option<String>,
    /// How much of that group's capacity its machine is.
    pub weight: u32,
}

impl NodeSpec {
    /// A node of this class with room for twenty pods, created an hour ago.
    #[must_use]
    pub fn new(class: Class) -> Self {
        Self {
            name: None,
            class,
            slots: 20,
            labels: Vec::new(),
            annotations: Vec::new(),
            taints: Vec::new(),
            unschedulable: false,
            age: Duration::from_hours(1),
            group: None,
            weight: 1,
        }
    }

    /// Of this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// With this label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    /// With this taint.
    #[must_use]
    pub fn taint(mut self, taint: Taint) -> Self {
        self.taints.push(taint);
        self
    }

    /// With room for so many pods.
    #[must_use]
    pub const fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// Kept by this group.
    #[must_use]
    pub fn group(mut self, group: &str) -> Self {
        self.group = Some(group.to_owned());
        self
    }
}
