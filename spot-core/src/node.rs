//! What the decisions read of a Kubernetes Node, and the names that other projects gave to what they read.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::claim::{BackOff, ClaimRecord};
use crate::labels::Labels;

/// Keys of labels, annotations and taints, each with the project that defined it.
pub mod key {
    /// Ours: the mark of a node that is being retired; only the value `true` counts.
    pub const SELECTED: &str = "spot-migrator.io/selected-for-deletion";
    /// Ours: the JSON record of a retirement under way.
    pub const CLAIM: &str = "spot-migrator.io/claim";
    /// Ours: until when a node is left alone after a failed retirement.
    pub const BACK_OFF: &str = "spot-migrator.io/back-off";
    /// Ours: the soft taint of nodes that may still go in this run.
    pub const LEAVING: &str = "spot-migrator.io/leaving";
    /// Ours: the soft taint of a node whose machine is likelier than others to be taken back; its value is when that was
    /// announced, in seconds.
    pub const REBALANCE: &str = "spot-migrator.io/rebalance-recommended";
    /// Ours: the label of each node of a pool; its value is the pool.
    pub const POOL: &str = "spot-migrator.io/pool";
    /// Ours: the opt-out of a node, as label or annotation, value `true`.
    pub const DO_NOT_MIGRATE: &str = "spot-migrator.io/do-not-migrate";
    /// Ours: the opt-out of a pod, as label or annotation, value `true`.
    pub const DO_NOT_EVICT: &str = "spot-migrator.io/do-not-evict";
    /// cost-manager: the mark of the tool that this one replaces. Read as ours, never written.
    pub const COST_MANAGER_SELECTED: &str = "cost-manager.io/selected-for-deletion";
    /// Kubernetes, since 1.20 (kubeadm): a control-plane node, whatever the value.
    pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
    /// Kubernetes, before 1.24 (kubeadm): a control-plane node, whatever the value.
    pub const MASTER: &str = "node-role.kubernetes.io/master";
    /// cluster-autoscaler: the taint of a node that it is about to delete.
    pub const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
    /// cluster-autoscaler: the taint of a node that it may delete later.
    pub const DELETION_CANDIDATE: &str = "DeletionCandidateOfClusterAutoscaler";
    /// cluster-autoscaler: the opt-out of a node, an annotation.
    pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    /// cluster-autoscaler: `false` opts a pod out, an annotation.
    pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    /// Karpenter: the opt-out of a node or pod, an annotation.
    pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
    /// Karpenter: the label of the pool that provisioned a node.
    pub const NODE_POOL: &str = "karpenter.sh/nodepool";
    /// Karpenter: the finalizer by which it removes the machine when the Node is deleted.
    pub const KARPENTER_FINALIZER: &str = "karpenter.sh/termination";
}

/// Identity of a Kubernetes object. A name is only an address: it is used again.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Arc<str>);

impl Uid {
    /// The identity with this text.
    #[must_use]
    pub fn new(uid: impl Into<Arc<str>>) -> Self {
        Self(uid.into())
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({})", self.0)
    }
}

impl std::borrow::Borrow<str> for Uid {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A taint's effect, as Kubernetes names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Pods that do not tolerate the taint are not scheduled here.
    NoSchedule,
    /// Pods that do not tolerate the taint are scheduled here last.
    PreferNoSchedule,
    /// Pods that do not tolerate the taint are evicted.
    NoExecute,
}

impl Effect {
    /// Every effect.
    pub const ALL: [Self; 3] = [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute];

    /// Kubernetes' word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// The effect with Kubernetes' word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.as_str() == word)
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, often empty.
    pub value: String,
    /// Its effect.
    pub effect: Effect,
    /// When it was put on; only the API server and some controllers set it, but a write must not lose it.
    pub time_added: Option<Timestamp>,
}

impl Taint {
    /// A taint of this key, value and effect.
    pub fn new(key: impl Into<String>, value: impl Into<String>, effect: Effect) -> Self {
        Self { key: key.into(), value: value.into(), effect, time_added: None }
    }

    /// Whether it has this key and effect, whatever its value.
    #[must_use]
    pub fn is(&self, key: &str, effect: Effect) -> bool {
        self.effect == effect && self.key == key
    }
}

/// What the kubelet's `Ready` condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The node is ready.
    Ready,
    /// Its kubelet says that it is not, or has yet to say anything, since then.
    NotReady {
        /// The condition's last transition; the node's creation where there is no condition.
        since: Timestamp,
    },
    /// Nobody has heard of its kubelet since then: what it runs, and whether, is not known.
    Unreachable {
        /// The condition's last transition.
        since: Timestamp,
    },
}

/// What the decisions need to know of a node. Implement it to use them on a node type of one's own.
///
/// The provided methods answer for node types that have no such thing.
pub trait Node {
    /// The node's name: an address, not an identity.
    fn name(&self) -> &str;
    /// The node's identity.
    fn uid(&self) -> &str;
    /// The cloud's name of the machine; empty is none.
    fn provider_id(&self) -> Option<&str>;
    /// When the object was created.
    fn created_at(&self) -> Timestamp;
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
    /// The value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// The taints.
    fn taints(&self) -> &[Taint];
    /// Whether it is cordoned.
    fn is_unschedulable(&self) -> bool;
    /// What its kubelet says.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }
    /// Since when the object is being deleted.
    fn deleting_since(&self) -> Option<Timestamp> {
        None
    }
    /// The retirement that is recorded on it.
    fn claim(&self) -> ClaimRecord<'_> {
        ClaimRecord::None
    }
    /// Until when it is left alone after a failure.
    fn back_off(&self) -> Option<BackOff> {
        None
    }
}

/// A pointer to a node answers as the node does.
macro_rules! answers_as_its_node {
    ($($pointer:ty),*) => { $(
        impl<N: Node + ?Sized> Node for $pointer {
            fn name(&self) -> &str {
                (**self).name()
            }
            fn uid(&self) -> &str {
                (**self).uid()
            }
            fn provider_id(&self) -> Option<&str> {
                (**self).provider_id()
            }
            fn created_at(&self) -> Timestamp {
                (**self).created_at()
            }
            fn label(&self, key: &str) -> Option<&str> {
                (**self).label(key)
            }
            fn annotation(&self, key: &str) -> Option<&str> {
                (**self).annotation(key)
            }
            fn taints(&self) -> &[Taint] {
                (**self).taints()
            }
            fn is_unschedulable(&self) -> bool {
                (**self).is_unschedulable()
            }
            fn readiness(&self) -> Readiness {
                (**self).readiness()
            }
            fn deleting_since(&self) -> Option<Timestamp> {
                (**self).deleting_since()
            }
            fn claim(&self) -> ClaimRecord<'_> {
                (**self).claim()
            }
            fn back_off(&self) -> Option<BackOff> {
                (**self).back_off()
            }
        }
    )* };
}

answers_as_its_node!(&N, Arc<N>);

/// A claim annotation as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClaimAnnotation {
    /// There is none.
    #[default]
    Absent,
    /// It is a record.
    Valid(Box<crate::claim::Claim>),
    /// It is there, but it is not a record that we understand; the text says why.
    Unreadable(String),
}

/// A node as an adapter saw it: the fields that are read, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The version of the object that this is.
    pub resource_version: String,
    /// When the object was created.
    pub created_at: Timestamp,
    /// The cloud's name of the machine; empty is none.
    pub provider_id: String,
    /// All labels.
    pub labels: Labels,
    /// All annotations but the two that are decoded below.
    pub annotations: Labels,
    /// All taints, in their order.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// The `Ready` condition.
    pub readiness: Readiness,
    /// Since when it is ready: the condition's last transition; none where it is not, or that is not known.
    pub ready_since: Option<Timestamp>,
    /// Which boot of the machine this is.
    pub boot_id: String,
    /// The addresses that it says to have inside the cluster. Its kubelet may have written them.
    pub internal_addresses: Vec<String>,
    /// Since when the object is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// Who wants to do something before the object goes.
    pub finalizers: Vec<String>,
    /// The retirement recorded on it.
    pub claim: ClaimAnnotation,
    /// Until when it is left alone after a failure; an unreadable one is none.
    pub back_off: Option<BackOff>,
}

impl NodeSnapshot {
    /// Which object this is, in this very version.
    #[must_use]
    pub fn at_version(&self) -> NodeRef {
        NodeRef {
            name: Arc::clone(&self.name),
            uid: self.uid.clone(),
            resource_version: Some(self.resource_version.clone()),
        }
    }

    /// Whether Karpenter removes the machine when the Node object is deleted.
    #[must_use]
    pub fn takes_its_machine_along(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == key::KARPENTER_FINALIZER)
    }

    /// Which object this is, in whatever version.
    #[must_use]
    pub fn reference(&self) -> NodeRef {
        NodeRef { name: Arc::clone(&self.name), uid: self.uid.clone(), resource_version: None }
    }
}

impl Node for NodeSnapshot {
    fn name(&self) -> &str {
        &self.name
    }
    fn uid(&self) -> &str {
        self.uid.as_str()
    }
    fn provider_id(&self) -> Option<&str> {
        (!self.provider_id.is_empty()).then_some(self.provider_id.as_str())
    }
    fn created_at(&self) -> Timestamp {
        self.created_at
    }
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.value(key)
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.value(key)
    }
    fn taints(&self) -> &[Taint] {
        &self.taints
    }
    fn is_unschedulable(&self) -> bool {
        self.unschedulable
    }
    fn readiness(&self) -> Readiness {
        self.readiness
    }
    fn deleting_since(&self) -> Option<Timestamp> {
        self.deleting_since
    }
    fn claim(&self) -> ClaimRecord<'_> {
        match &self.claim {
            ClaimAnnotation::Absent => ClaimRecord::None,
            ClaimAnnotation::Valid(claim) => ClaimRecord::Valid(claim),
            ClaimAnnotation::Unreadable(_) => ClaimRecord::Unreadable,
        }
    }
    fn back_off(&self) -> Option<BackOff> {
        self.back_off
    }
}

/// Which Node object is meant, and in which version, where that matters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeRef {
    /// Its address.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The version on which a write depends; none: whatever version there is.
    pub resource_version: Option<String>,
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
