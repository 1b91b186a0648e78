//! Pods and disruption budgets, as far as a drain reads them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::node::Uid;
use crate::placement::Needs;
use crate::selector::LabelSelector;
use crate::volume::PodClaim;

/// Which Pod object is meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its address in the namespace.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Accepted, not all containers were started.
    Pending,
    /// Bound, and at least one container runs.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them not well.
    Failed,
    /// Its node does not answer.
    Unknown,
}

impl PodPhase {
    /// Whether no container will run again.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed => true,
            Self::Pending | Self::Running | Self::Unknown => false,
        }
    }
}

/// Who brings a pod back: its owner reference with `controller: true`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controller {
    /// The API group, without the version.
    pub group: Arc<str>,
    /// The kind.
    pub kind: Arc<str>,
    /// Its identity.
    pub uid: Uid,
}

impl Controller {
    /// Whether it is a DaemonSet of Kubernetes' own, not a namesake in another group.
    #[must_use]
    pub fn is_daemon_set(&self) -> bool {
        &*self.kind == "DaemonSet" && &*self.group == "apps"
    }
}

/// A pod as an adapter saw it: the fields that are read, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSnapshot {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The name of the node it is bound to.
    pub node: Option<Arc<str>>,
    /// When the object was created.
    pub created_at: Timestamp,
    /// Who brings it back.
    pub controller: Option<Controller>,
    /// Its labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Its phase.
    pub phase: PodPhase,
    /// Its `Ready` condition.
    pub ready: bool,
    /// When its grace period ends, if it is being deleted.
    pub deletion: Option<Timestamp>,
    /// Made by a kubelet from a file; the API server can't remove it.
    pub mirror: bool,
    /// Which key opted it out of being moved.
    pub opted_out: Option<&'static str>,
    /// Has an `emptyDir` volume, whose data is lost with the pod.
    pub empty_dir: bool,
    /// Its own grace period.
    pub grace: Duration,
    /// What it demands of a node; none: nothing, and it tolerates nothing. Adapters share what is equal.
    pub needs: Option<Arc<Needs>>,
    /// Its PersistentVolumeClaims; none: it has none.
    pub claims: Option<Arc<[PodClaim]>>,
}

impl PodSnapshot {
    /// Which object this is.
    #[must_use]
    pub fn reference(&self) -> PodRef {
        PodRef { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name), uid: self.uid.clone() }
    }

    /// Whether a drain would move it, by what it says itself: no DaemonSet's, no mirror, not finished. Whether its
    /// DaemonSet exists is not asked.
    #[must_use]
    pub fn is_movable(&self) -> bool {
        let of_daemon = self.controller.as_ref().is_some_and(Controller::is_daemon_set);
        !of_daemon && !self.mirror && !self.phase.is_finished()
    }

    /// Whether it takes part in its application: neither finished nor on its way out.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.phase.is_finished() && self.deletion.is_none()
    }
}

/// Which PodDisruptionBudget is meant. Budgets are only read, so an address is enough.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BudgetRef {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl fmt::Display for BudgetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// `unhealthyPodEvictionPolicy` of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnhealthyPods {
    /// Kubernetes' default: a pod that is not ready may go if enough others are healthy.
    #[default]
    IfHealthyBudget,
    /// A pod that is not ready may always go.
    AlwaysAllow,
}

/// A PodDisruptionBudget as an adapter saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSnapshot {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The version of the object that this is.
    pub resource_version: String,
    /// The pods it protects.
    pub selector: LabelSelector,
    /// What it says of pods that are not ready.
    pub unhealthy_pods: UnhealthyPods,
    /// Whether its status was computed from the specification as it stands.
    pub current: bool,
    /// How many of its pods may go now.
    pub disruptions_allowed: i32,
    /// How many are healthy.
    pub current_healthy: i32,
    /// How many must be.
    pub desired_healthy: i32,
    /// How many there are.
    pub expected_pods: i32,
    /// Names of pods whose eviction was accepted and that the budget's controller has not seen go.
    pub disrupted_pods: Vec<String>,
}

impl BudgetSnapshot {
    /// Which object this is.
    #[must_use]
    pub fn reference(&self) -> BudgetRef {
        BudgetRef { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }

    /// Whether the API server would refuse to evict this pod of ours now, as far as can be known from here.
    ///
    /// A hint: the answer to the eviction decides.
    #[must_use]
    pub fn refuses(&self, pod: &PodSnapshot) -> bool {
        if !self.current || !pod.is_active() || pod.phase == PodPhase::Pending {
            return false;
        }
        if !pod.ready {
            return match self.unhealthy_pods {
                UnhealthyPods::AlwaysAllow => false,
                UnhealthyPods::IfHealthyBudget => {
                    self.disruptions_allowed <= 0
                        && !(self.current_healthy >= self.desired_healthy && self.desired_healthy > 0)
                }
            };
        }
        self.disruptions_allowed <= 0
    }

    /// Whether waiting can't help: all of its pods are healthy, and none may go even so.
    #[must_use]
    pub fn never_allows(&self) -> bool {
        self.current && self.disruptions_allowed <= 0 && self.current_healthy >= self.expected_pods
    }
}
