//! A cluster to judge.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use spot_core::NodeSnapshot;
use spot_core::capacity::Class;
use spot_core::cloud::{CloudFact, CloudFacts};
use spot_core::judge::{Batch, Facts, Judgement, Policy, RunFacts, Verdict, judge};
use spot_core::memory::Memory;
use spot_core::node::Uid;
use spot_core::pod::{BudgetSnapshot, PodSnapshot};
use spot_core::reason::{Reason, ReasonKind};
use spot_core::view::{Change, View};

use super::build::{fact, labelled, node, noon, secs, uid};

/// Everything that a judgement is made of.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) nodes: Vec<NodeSnapshot>,
    pub(crate) cloud: BTreeMap<Uid, CloudFact>,
    /// What fleets still launch.
    pub(crate) pending_spot: u32,
    pub(crate) view: View,
    pub(crate) memory: Memory,
    pub(crate) run: RunFacts,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
}

/// Who goes next, by name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Turn {
    Nodes(Vec<String>),
    Wait(Vec<(String, ReasonKind)>),
    AllSpot,
    Nobody(BTreeMap<ReasonKind, usize>),
}

impl Scene {
    pub(crate) fn empty() -> Self {
        Self {
            nodes: Vec::new(),
            cloud: BTreeMap::new(),
            pending_spot: 0,
            view: View::default(),
            memory: Memory::default(),
            run: RunFacts::default(),
            policy: Policy { own_node: Some("sp-1".to_owned()), ..Policy::default() },
            now: noon(),
        }
    }

    /// One control-plane node, three on-demand nodes of which `od-1` is the oldest, and two spot nodes.
    pub(crate) fn b0() -> Self {
        let mut scene = Self::empty();
        scene.put(labelled(node("cp-1"), "node-role.kubernetes.io/control-plane", ""), Class::OnDemand);
        for (name, younger) in [("od-1", 0), ("od-2", 1), ("od-3", 2)] {
            let plain = node(name);
            scene.put(NodeSnapshot { created_at: plain.created_at + secs(younger), ..plain }, Class::OnDemand);
        }
        scene.put(node("sp-1"), Class::Spot);
        scene.put(node("sp-2"), Class::Spot);
        scene
    }

    pub(crate) fn put(&mut self, node: NodeSnapshot, class: Class) {
        self.cloud.insert(node.uid.clone(), fact(&node.name, class));
        self.nodes.push(node);
    }

    pub(crate) fn node(&mut self, name: &str) -> &mut NodeSnapshot {
        self.nodes.iter_mut().find(|node| &*node.name == name).unwrap()
    }

    pub(crate) fn fact(&mut self, name: &str) -> &mut CloudFact {
        self.cloud.get_mut(&uid(name)).unwrap()
    }

    pub(crate) fn pod(&mut self, pod: PodSnapshot) {
        self.view.apply(Change::Pod(Arc::new(pod)));
    }

    pub(crate) fn budget(&mut self, budget: BudgetSnapshot) {
        self.view.apply(Change::Budget(Arc::new(budget)));
    }

    pub(crate) fn judged<T>(&self, look: impl FnOnce(&Judgement<'_, NodeSnapshot>) -> T) -> T {
        let cloud = CloudFacts::from_iter(self.cloud.clone()).with_pending_spot(self.pending_spot);
        let facts = Facts { view: &self.view, cloud: &cloud, memory: &self.memory, run: &self.run };
        look(&judge(&self.nodes, &facts, &self.policy, self.now))
    }

    pub(crate) fn verdict(&self, name: &str) -> Verdict {
        let node = self.nodes.iter().find(|node| &*node.name == name).unwrap();
        self.judged(|judgement| judgement.verdict(node))
    }

    /// Why the node may not go; none: it may. Fails on a node that is no candidate.
    pub(crate) fn reasons(&self, name: &str) -> Vec<Reason> {
        match self.verdict(name) {
            Verdict::Eligible => Vec::new(),
            Verdict::Refused(reasons) => {
                assert!(!reasons.is_empty(), "{name} is refused without a reason");
                reasons
            }
            Verdict::NotACandidate => panic!("{name} is no candidate"),
        }
    }

    pub(crate) fn kinds(&self, name: &str) -> Vec<ReasonKind> {
        self.reasons(name).iter().map(Reason::kind).collect()
    }

    /// All nodes in the order in which they would go, by name, with their verdicts.
    pub(crate) fn verdicts(&self) -> Vec<(String, Verdict)> {
        self.judged(|judgement| {
            judgement.verdicts().into_iter().map(|(node, verdict)| (node.name.to_string(), verdict)).collect()
        })
    }

    pub(crate) fn turn(&self) -> Turn {
        self.judged(|judgement| match judgement.batch() {
            Batch::Nodes(nodes) => Turn::Nodes(nodes.into_iter().map(|node| node.name.to_string()).collect()),
            Batch::Wait(waiting) => {
                Turn::Wait(waiting.into_iter().map(|(node, reason)| (node.name.to_string(), reason.kind())).collect())
            }
            Batch::AllSpot => Turn::AllSpot,
            Batch::Nobody(kinds) => Turn::Nobody(kinds),
        })
    }

    /// The batch, by name; nobody is an empty one.
    pub(crate) fn batch(&self) -> Vec<String> {
        match self.turn() {
            Turn::Nodes(names) => names,
            Turn::Wait(_) | Turn::AllSpot | Turn::Nobody(_) => Vec::new(),
        }
    }
}
