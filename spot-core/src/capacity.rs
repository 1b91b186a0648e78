//! Which class of capacity a node is, told from its labels.

use std::collections::BTreeMap;
use std::fmt;

use crate::node::Node;

/// How a node's machine is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// By the hour, for as long as we like: what the migration retires.
    OnDemand,
    /// Spare capacity, cheap, and taken back at short notice: where workloads ought to run.
    Spot,
    /// Paid for in advance; never touched.
    Reserved,
    /// Nobody could tell; never touched.
    Unknown,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::OnDemand, Self::Spot, Self::Reserved, Self::Unknown];

    /// Its word in configuration, metrics and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::Reserved => "reserved",
            Self::Unknown => "unknown",
        }
    }

    /// The class with this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Labels that tell the class, each with the project that sets it.
const LABELS: [(&str, &str, Class); 18] = [
    // EKS managed node groups
    ("eks.amazonaws.com/capacityType", "SPOT", Class::Spot),
    ("eks.amazonaws.com/capacityType", "ON_DEMAND", Class::OnDemand),
    ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK", Class::Reserved),
    // Karpenter
    ("karpenter.sh/capacity-type", "spot", Class::Spot),
    ("karpenter.sh/capacity-type", "on-demand", Class::OnDemand),
    ("karpenter.sh/capacity-type", "reserved", Class::Reserved),
    // a convention of user-data examples
    ("node.kubernetes.io/lifecycle", "spot", Class::Spot),
    ("node.kubernetes.io/lifecycle", "on-demand", Class::OnDemand),
    ("node.kubernetes.io/lifecycle", "normal", Class::OnDemand),
    ("node-lifecycle", "spot", Class::Spot),
    ("node-lifecycle", "on-demand", Class::OnDemand),
    // GKE
    ("cloud.google.com/gke-spot", "true", Class::Spot),
    ("cloud.google.com/gke-preemptible", "true", Class::Spot),
    // AKS
    ("kubernetes.azure.com/scalesetpriority", "spot", Class::Spot),
    ("kubernetes.azure.com/scalesetpriority", "regular", Class::OnDemand),
    // Spot by NetApp, CAST AI
    ("spotinst.io/node-lifecycle", "spot", Class::Spot),
    ("spotinst.io/node-lifecycle", "od", Class::OnDemand),
    ("scheduling.cast.ai/spot", "true", Class::Spot),
];

/// kOps: the label's presence tells, whatever its value.
const SPOT_WORKER: &str = "node-role.kubernetes.io/spot-worker";

/// What the labels of a node say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// All that say anything say this.
    Class(Class),
    /// Two of them contradict each other.
    Contradiction,
    /// None of them says anything.
    Nothing,
}

/// The table of labels, ours and the user's.
#[derive(Clone, Debug)]
pub struct CapacityLabels {
    by_key: BTreeMap<String, BTreeMap<String, Class>>,
    /// What no label at all means.
    unlabelled: Class,
}

impl Default for CapacityLabels {
    fn default() -> Self {
        Self::new([], Class::Unknown)
    }
}

impl CapacityLabels {
    /// The well-known labels and `additions`, `((key, value), class)`; `unlabelled` is the class of a node without any.
    pub fn new(additions: impl IntoIterator<Item = ((String, String), Class)>, unlabelled: Class) -> Self {
        let known = LABELS.iter().map(|(key, value, class)| (((*key).to_owned(), (*value).to_owned()), *class));
        let mut by_key: BTreeMap<String, BTreeMap<String, Class>> = BTreeMap::new();
        for ((key, value), class) in known.chain(additions) {
            by_key.entry(key).or_default().insert(value, class);
        }
        Self { by_key, unlabelled }
    }

    /// What the labels of this node say.
    #[must_use]
    pub fn said(&self, node: &impl Node) -> Said {
        let kops = node.label(SPOT_WORKER).map(|_| Class::Spot);
        let classes = self.by_key.iter().filter_map(|(key, values)| values.get(node.label(key)?).copied());
        let mut said = Said::Nothing;
        for class in classes.chain(kops) {
            match said {
                Said::Nothing => said = Said::Class(class),
                Said::Class(other) if other == class => {}
                Said::Class(_) | Said::Contradiction => return Said::Contradiction,
            }
        }
        said
    }

    /// What one label says by itself.
    #[must_use]
    pub fn class_of(&self, key: &str, value: &str) -> Option<Class> {
        self.by_key.get(key)?.get(value).copied()
    }

    /// A value with which this label says that class.
    #[must_use]
    pub fn value_of(&self, key: &str, class: Class) -> Option<&str> {
        self.by_key.get(key)?.iter().find(|(_, said)| **said == class).map(|(value, _)| value.as_str())
    }

    /// The class of this node where no cloud can be asked.
    #[must_use]
    pub fn classify(&self, node: &impl Node) -> Class {
        match self.said(node) {
            Said::Class(class) => class,
            Said::Contradiction => Class::Unknown,
            Said::Nothing => self.unlabelled,
        }
    }
}
