//! Where a pod could run: what it demands of a node, held against nodes that are there and shapes of nodes that were.
//!
//! Only what rules a node out counts, and only what nodes of one pool have in common: preferences, room, other pods, and
//! taints of a node's life are no reason why a pod could never run on spot.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::{Effect, Node, Taint, key};
use crate::selector::{Operator, Requirement};

/// The most shapes that are remembered; the oldest go first. A pool has one for each zone and instance type.
pub const MOST_SHAPES: usize = 32;
/// The most text that a remembered shape may have, so that all together fit into a ConfigMap of one megabyte.
const LONGEST_SHAPE: usize = 16 * 1024;

/// Kubernetes: the label of the host's name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Labels by which drivers bind a volume to the host that has it.
const OF_HOSTS: [&str; 4] = [
    HOSTNAME,
    // TopoLVM
    "topology.topolvm.io/node",
    // OpenEBS
    "openebs.io/nodename",
    // the example driver of Kubernetes
    "topology.hostpath.csi/node",
];

/// Labels whose value differs from one node to the next, beside those that hold its name or its instance ID.
const OF_ONE_NODE: [&str; 5] = [
    HOSTNAME,
    // eksctl
    "alpha.eksctl.io/instance-id",
    // AWS' cloud controller: where in the data centre the machine is
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
];

/// Taints that come and go in a node's life.
const OF_LIFE: [&str; 5] = [
    key::TO_BE_DELETED,
    key::DELETION_CANDIDATE,
    // Karpenter, since 1.0 and before
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "karpenter.sh/unregistered",
];

/// Beginnings of the keys of such taints: ours, Kubernetes', the cloud controllers', the termination handler's of AWS.
const OF_LIFE_BEGIN: [&str; 4] =
    ["spot-migrator.io/", "node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "aws-node-termination-handler/"];

/// The end of the keys of taints that agents take off when they run: Cilium's, the drivers' of AWS.
const NOT_READY: &str = "/agent-not-ready";

/// What one label, or the name, of a node must be like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Demand {
    /// What a label selector can say too.
    Label(Requirement),
    /// The label is a whole number above this one.
    Above(String, i64),
    /// The label is a whole number below this one.
    Below(String, i64),
    /// As the first, but of the node's name.
    Name(Requirement),
    /// Something that we do not understand; it rules nothing out.
    Unknown,
}

/// Demands that must all be met. None at all are met by no node: so Kubernetes reads an empty term.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(Vec<Demand>);

/// Terms of which one must be met: a `NodeSelector` of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Terms(Vec<Term>);

/// A taint that a pod puts up with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// The taint's key; none: any.
    pub key: Option<String>,
    /// The taint's value; none: any.
    pub value: Option<String>,
    /// The taint's effect; none: any.
    pub effect: Option<Effect>,
}

/// What a pod demands of a node, volumes aside. The default demands nothing, and tolerates nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Needs {
    selector: Vec<Requirement>,
    affinity: Option<Terms>,
    tolerations: Vec<Toleration>,
}

/// What the nodes of one pool have in common: labels and taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    labels: BTreeMap<String, String>,
    taints: BTreeSet<(String, String, Effect)>,
}

/// Where a pod might run.
trait Site {
    fn name(&self) -> Option<&str>;
    fn label(&self, key: &str) -> Option<&str>;
    fn all_taints(&self, tolerated: impl Fn(&str, &str, Effect) -> bool) -> bool;
}

/// A node that is there.
struct Present<'a, N>(&'a N);

/// Another one like this, which is not there yet: what others put on this one does not count.
struct Like<'a, N>(&'a N);

impl<N: Node> Site for Present<'_, N> {
    fn name(&self) -> Option<&str> {
        Some(self.0.name())
    }
    fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }
    fn all_taints(&self, tolerated: impl Fn(&str, &str, Effect) -> bool) -> bool {
        let mut taints = self.0.taints().iter().filter(|taint| keeps_pods_away(taint));
        taints.all(|taint| tolerated(&taint.key, &taint.value, taint.effect))
    }
}

impl<N: Node> Site for Like<'_, N> {
    fn name(&self) -> Option<&str> {
        None
    }
    fn label(&self, key: &str) -> Option<&str> {
        self.0
            .label(key)
            .filter(|value| !OF_HOSTS.contains(&key) && !OF_ONE_NODE.contains(&key) && *value != self.0.name())
    }
    fn all_taints(&self, _tolerated: impl Fn(&str, &str, Effect) -> bool) -> bool {
        true
    }
}

impl Site for Shape {
    fn name(&self) -> Option<&str> {
        None
    }
    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
    fn all_taints(&self, tolerated: impl Fn(&str, &str, Effect) -> bool) -> bool {
        self.taints.iter().all(|(key, value, effect)| tolerated(key, value, *effect))
    }
}

impl Demand {
    /// Whether it can only be met by a host that it names.
    fn binds_to_a_host(&self) -> bool {
        match self {
            Self::Label(requirement) => requirement.operator() == Operator::In && OF_HOSTS.contains(&requirement.key()),
            Self::Name(requirement) => requirement.operator() == Operator::In,
            Self::Above(..) | Self::Below(..) | Self::Unknown => false,
        }
    }

    fn is_met(&self, site: &impl Site) -> bool {
        let number = |key: &str| site.label(key).and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Label(requirement) => requirement.matches(site.label(requirement.key())),
            Self::Above(key, bound) => number(key).is_some_and(|value| value > *bound),
            Self::Below(key, bound) => number(key).is_some_and(|value| value < *bound),
            Self::Name(requirement) => requirement.matches(site.name()),
            Self::Unknown => true,
        }
    }
}

impl Term {
    /// Joins these by AND.
    #[must_use]
    pub fn new(demands: impl IntoIterator<Item = Demand>) -> Self {
        Self(demands.into_iter().collect())
    }

    /// The demands.
    #[must_use]
    pub fn demands(&self) -> &[Demand] {
        &self.0
    }

    fn is_met(&self, site: &impl Site) -> bool {
        !self.0.is_empty() && self.0.iter().all(|demand| demand.is_met(site))
    }
}

impl Terms {
    /// Joins these by OR; none at all are met by no node.
    #[must_use]
    pub fn new(terms: impl IntoIterator<Item = Term>) -> Self {
        Self(terms.into_iter().collect())
    }

    /// The terms.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.0
    }

    /// Whether this node meets one of them.
    #[must_use]
    pub fn met_by(&self, node: &impl Node) -> bool {
        self.are_met(&Present(node))
    }

    /// Whether nodes of this shape meet one of them.
    #[must_use]
    pub fn met_by_shape(&self, shape: &Shape) -> bool {
        self.are_met(shape)
    }

    /// Whether another node like this one meets one of them.
    #[must_use]
    pub fn met_by_like(&self, node: &impl Node) -> bool {
        self.are_met(&Like(node))
    }

    /// Whether each of them names a host.
    #[must_use]
    pub fn bind_to_a_host(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|term| term.0.iter().any(Demand::binds_to_a_host))
    }

    fn are_met(&self, site: &impl Site) -> bool {
        self.0.iter().any(|term| term.is_met(site))
    }
}

impl Toleration {
    /// Whether it has to do with a taint that counts: all others are not worth keeping.
    #[must_use]
    pub fn counts(&self) -> bool {
        let keyed = self.key.as_deref().is_none_or(|key| !is_of_life(key));
        let kept_away = match self.effect {
            None | Some(Effect::NoSchedule | Effect::NoExecute) => true,
            Some(Effect::PreferNoSchedule) => false,
        };
        keyed && kept_away
    }

    fn covers(&self, key: &str, value: &str, effect: Effect) -> bool {
        self.key.as_deref().is_none_or(|own| own == key)
            && self.value.as_deref().is_none_or(|own| own == value)
            && self.effect.is_none_or(|own| own == effect)
    }
}

impl Needs {
    /// Joins a selector, the required affinity if there is one, and tolerations, of which only those count that have to
    /// do with a pool's taints. Nothing at all is `None`, as with most pods.
    #[must_use]
    pub fn new(
        selector: impl IntoIterator<Item = Requirement>,
        affinity: Option<Terms>,
        tolerations: impl IntoIterator<Item = Toleration>,
    ) -> Option<Self> {
        let tolerations = tolerations.into_iter().filter(Toleration::counts).collect();
        let needs = Self { selector: selector.into_iter().collect(), affinity, tolerations };
        (needs != Self::default()).then_some(needs)
    }

    /// Whether a pod that needs this could run on this node, room and other pods aside.
    #[must_use]
    pub fn met_by(&self, node: &impl Node) -> bool {
        self.are_met(&Present(node))
    }

    /// Whether a pod that needs this could run on another node like this one.
    #[must_use]
    pub fn met_by_like(&self, node: &impl Node) -> bool {
        self.are_met(&Like(node))
    }

    /// Whether a pod that needs this could run on a node of this shape.
    #[must_use]
    pub fn met_by_shape(&self, shape: &Shape) -> bool {
        self.are_met(shape)
    }

    fn are_met(&self, site: &impl Site) -> bool {
        let tolerated = |key: &str, value: &str, effect| {
            self.tolerations.iter().any(|toleration| toleration.covers(key, value, effect))
        };
        self.selector.iter().all(|requirement| requirement.matches(site.label(requirement.key())))
            && self.affinity.as_ref().is_none_or(|terms| terms.are_met(site))
            && site.all_taints(tolerated)
    }
}

impl Shape {
    /// A shape of these labels and taints. Taints that do not count are left out.
    pub fn new(
        labels: impl IntoIterator<Item = (String, String)>,
        taints: impl IntoIterator<Item = (String, String, Effect)>,
    ) -> Self {
        let kept = |(key, _, effect): &(String, String, Effect)| counts(key, *effect);
        Self { labels: labels.into_iter().collect(), taints: taints.into_iter().filter(kept).collect() }
    }

    /// The shape of a node with these labels: all but those that tell it from others of its pool.
    pub fn of<'l>(node: &impl Node, labels: impl IntoIterator<Item = (&'l String, &'l String)>) -> Self {
        let instance = node.provider_id().and_then(|id| id.rsplit('/').next()).filter(|id| !id.is_empty());
        let common = |(key, value): &(&String, &String)| {
            !OF_ONE_NODE.contains(&key.as_str())
                && !key.starts_with("spot-migrator.io/")
                && value.as_str() != node.name()
                && Some(value.as_str()) != instance
        };
        let labels = labels.into_iter().filter(common).map(|(key, value)| (key.clone(), value.clone()));
        let taints = node.taints().iter().map(|taint| (taint.key.clone(), taint.value.clone(), taint.effect));
        Self::new(labels, taints)
    }

    /// The labels.
    #[must_use]
    pub const fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// The taints, by key, value and effect.
    #[must_use]
    pub const fn taints(&self) -> &BTreeSet<(String, String, Effect)> {
        &self.taints
    }

    fn is_small(&self) -> bool {
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len());
        let taints = self.taints.iter().map(|(key, value, _)| key.len() + value.len());
        labels.chain(taints).sum::<usize>() <= LONGEST_SHAPE
    }
}

/// The shapes to remember, oldest first, once these are there. Nothing changes if all of them are known: the memory is
/// not written for their order.
#[must_use]
pub fn remembered(known: &[Shape], present: &BTreeSet<Shape>) -> Vec<Shape> {
    let present: BTreeSet<&Shape> = present.iter().filter(|shape| shape.is_small()).collect();
    if present.iter().all(|shape| known.contains(shape)) {
        return known.to_vec();
    }
    let older = known.iter().filter(|shape| !present.contains(shape));
    let mut all: Vec<Shape> = older.chain(present.iter().copied()).cloned().collect();
    all.split_off(all.len().saturating_sub(MOST_SHAPES))
}

fn keeps_pods_away(taint: &Taint) -> bool {
    counts(&taint.key, taint.effect)
}

/// Whether a taint of this key and effect belongs to a pool, and keeps pods away.
fn counts(key: &str, effect: Effect) -> bool {
    match effect {
        Effect::NoSchedule | Effect::NoExecute => !is_of_life(key),
        Effect::PreferNoSchedule => false,
    }
}

/// Whether a taint of this key comes and goes with what happens to a node.
pub(crate) fn is_of_life(key: &str) -> bool {
    OF_LIFE.contains(&key)
        || key.ends_with(NOT_READY)
        || OF_LIFE_BEGIN.iter().any(|beginning| key.starts_with(beginning))
}
