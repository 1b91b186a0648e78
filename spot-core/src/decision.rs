//! The decisions that need nothing but the nodes: which one goes first, which one is new, which ones are never touched.

use std::collections::HashSet;

use crate::capacity::Class;
use crate::node::{Effect, Node, key};

/// How gladly a node is retired: the policy is the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// Marked by us already.
    AlreadySelected,
    /// Cordoned.
    Unschedulable,
    /// cluster-autoscaler is about to delete it.
    ToBeDeleted,
    /// cluster-autoscaler may delete it later.
    DeletionCandidate,
    /// None of these.
    Ordinary,
    /// The migrator runs on it: last, since the work then goes on in another process.
    HostsMigrator,
}

impl Preference {
    /// Every preference, best first.
    pub const ALL: [Self; 6] = [
        Self::AlreadySelected,
        Self::Unschedulable,
        Self::ToBeDeleted,
        Self::DeletionCandidate,
        Self::Ordinary,
        Self::HostsMigrator,
    ];

    /// The preference for this node, when the migrator runs on the node named `own_node`.
    pub fn of(node: &impl Node, own_node: Option<&str>) -> Self {
        let tainted = |key, effect| node.taints().iter().any(|taint| taint.is(key, effect));
        if is_marked(node) {
            Self::AlreadySelected
        } else if node.is_unschedulable() {
            Self::Unschedulable
        } else if tainted(key::TO_BE_DELETED, Effect::NoSchedule) {
            Self::ToBeDeleted
        } else if tainted(key::DELETION_CANDIDATE, Effect::PreferNoSchedule) {
            Self::DeletionCandidate
        } else if own_node == Some(node.name()) {
            Self::HostsMigrator
        } else {
            Self::Ordinary
        }
    }

    /// Its word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AlreadySelected => "already_selected",
            Self::Unschedulable => "unschedulable",
            Self::ToBeDeleted => "to_be_deleted",
            Self::DeletionCandidate => "deletion_candidate",
            Self::Ordinary => "ordinary",
            Self::HostsMigrator => "hosts_migrator",
        }
    }
}

/// What nodes are ordered by: the preference, then the older one, then the UID, so that the order in which they are
/// given never matters.
pub type Rank<'n> = (Preference, jiff::Timestamp, &'n str);

/// The rank of this node, when the migrator runs on the node named `own_node`; the least goes first.
pub fn rank<'n>(node: &'n impl Node, own_node: Option<&str>) -> Rank<'n> {
    (Preference::of(node, own_node), node.created_at(), node.uid())
}

/// The node to delete first among these, when the migrator runs on the node named `own_node`; none of none.
///
/// It judges nothing: give it only nodes that may go.
#[must_use]
pub fn select_node_for_deletion<'n, N: Node>(nodes: &'n [N], own_node: Option<&str>) -> Option<&'n N> {
    nodes.iter().min_by_key(|node| rank(*node, own_node))
}

/// Whether a node is marked as one that we are retiring. Only the value `true` counts.
#[must_use]
pub fn is_marked(node: &impl Node) -> bool {
    [key::SELECTED, key::COST_MANAGER_SELECTED].into_iter().any(|key| node.label(key) == Some("true"))
}

/// Whether a node runs the control plane: by label or by taint, whatever their values.
#[must_use]
pub fn is_control_plane(node: &impl Node) -> bool {
    [key::CONTROL_PLANE, key::MASTER]
        .into_iter()
        .any(|key| node.label(key).is_some() || node.taints().iter().any(|taint| taint.key == key))
}

/// The key by which a node was opted out, if it was.
#[must_use]
pub fn opt_out(node: &impl Node) -> Option<&'static str> {
    let annotated = |key| node.annotation(key) == Some("true");
    if node.label(key::DO_NOT_MIGRATE) == Some("true") || annotated(key::DO_NOT_MIGRATE) {
        Some(key::DO_NOT_MIGRATE)
    } else {
        [key::SCALE_DOWN_DISABLED, key::DO_NOT_DISRUPT].into_iter().find(|key| annotated(key))
    }
}

/// The nodes that a run knows, by UID and by provider ID; whatever is not among them came since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownNodes {
    // Asked for members alone, so that their order can't be seen.
    uids: HashSet<String>,
    machines: HashSet<String>,
}

impl KnownNodes {
    /// Knows all of these, whatever their class.
    #[must_use]
    pub fn of<N: Node>(nodes: &[N]) -> Self {
        let mut known = Self::default();
        for node in nodes {
            known.add(node);
        }
        known
    }

    /// The nodes that are not known, by UID nor by provider ID.
    pub fn strangers<'n, N: Node>(&self, nodes: &'n [N]) -> impl Iterator<Item = &'n N> {
        nodes.iter().filter(|node| {
            !self.uids.contains(node.uid()) && node.provider_id().is_none_or(|id| !self.machines.contains(id))
        })
    }

    /// The on-demand node that is not known: the oldest, if there are several. A node that re-registered has a new UID
    /// and an old provider ID, and is known; an empty provider ID equals nothing.
    #[must_use]
    pub fn created<'n, N: Node>(&self, nodes: &'n [N], class: impl Fn(&N) -> Class) -> Option<&'n N> {
        self.strangers(nodes)
            .filter(|node| class(node) == Class::OnDemand && !is_control_plane(*node))
            .min_by(|a, b| (a.created_at(), a.uid()).cmp(&(b.created_at(), b.uid())))
    }

    /// A node that is not known, and whose class nobody could tell yet.
    #[must_use]
    pub fn unclassified<'n, N: Node>(&self, nodes: &'n [N], class: impl Fn(&N) -> Class) -> Option<&'n N> {
        self.strangers(nodes)
            .filter(|node| class(node) == Class::Unknown && !is_control_plane(*node))
            .min_by(|a, b| (a.created_at(), a.uid()).cmp(&(b.created_at(), b.uid())))
    }

    /// Learns the nodes that have a class. One that has none yet stays unknown.
    pub fn learn<N: Node>(&mut self, nodes: &[N], class: impl Fn(&N) -> Class) {
        for node in nodes {
            if !self.uids.contains(node.uid()) && class(node) != Class::Unknown {
                self.add(node);
            }
        }
    }

    fn add(&mut self, node: &impl Node) {
        self.uids.insert(node.uid().to_owned());
        if let Some(machine) = node.provider_id().filter(|id| !id.is_empty()) {
            self.machines.insert(machine.to_owned());
        }
    }
}
