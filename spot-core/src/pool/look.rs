//! A pool as it is at one moment: its fleets, and the node of each machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Count, Fleet, Member};
use crate::claim::{InstanceId, Machine};
use crate::cloud::CloudFacts;
use crate::judge::is_usable;
use crate::node::{NodeRef, NodeSnapshot, Readiness, Uid, key};
use crate::reason::{Reason, ReasonKind};
use crate::view::View;

/// A pool as it is at one moment.
pub(super) struct Look {
    /// Its fleets, in the order of their creation.
    pub(super) fleets: Vec<Fleet>,
    nodes: BTreeMap<InstanceId, Arc<NodeSnapshot>>,
    /// The pool's nodes whose machine nobody can name.
    unnamed: Vec<Arc<NodeSnapshot>>,
    /// How much of it is on its way out, is none of the members any more, and was there when the cloud was asked.
    pub(super) leaving: u32,
}

impl Look {
    pub(super) fn of(fleets: Vec<Fleet>, view: &View, cloud: &CloudFacts, pool: &str) -> Self {
        let (mut nodes, mut unnamed) = (BTreeMap::new(), Vec::new());
        let is_member = |instance: &InstanceId| fleets.iter().any(|fleet| fleet.members.contains_key(instance));
        for node in view.nodes() {
            let is_told = cloud.of(node.uid.as_str()).is_some_and(|fact| fact.machine.is_some());
            if node.labels.value(key::POOL) == Some(pool)
                && !is_told
                && !instances_of(node, cloud).any(|instance| is_member(&instance))
            {
                unnamed.push(Arc::clone(node));
            }
            for instance in instances_of(node, cloud) {
                nodes.insert(instance, Arc::clone(node));
            }
        }
        Self { fleets, nodes, unnamed, leaving: 0 }
    }

    /// The fleet that the pool's file asks for, if it is there and launches.
    pub(super) fn current(&self) -> Option<&Fleet> {
        self.fleets.iter().find(|fleet| fleet.is_current && !fleet.has_ended)
    }

    /// The fleets that are to go.
    pub(super) fn old(&self) -> impl Iterator<Item = &Fleet> {
        let current = self.current().map(|fleet| fleet.id.as_str());
        self.fleets.iter().filter(move |fleet| Some(fleet.id.as_str()) != current)
    }

    /// The machine of each node.
    pub(super) fn machines(&self) -> impl Iterator<Item = (Uid, InstanceId)> {
        self.nodes.iter().map(|(instance, node)| (node.uid.clone(), instance.clone()))
    }

    /// The node of a machine, if it has joined.
    pub(super) fn node(&self, instance: &InstanceId) -> Option<&Arc<NodeSnapshot>> {
        self.nodes.get(instance)
    }

    /// Whether a machine is a node that takes pods.
    pub(super) fn is_ready(&self, instance: &InstanceId) -> bool {
        self.node(instance).is_some_and(is_usable)
    }

    /// Whether a machine is a node whose kubelet is ready, cordoned or not.
    pub(super) fn runs(&self, instance: &InstanceId) -> bool {
        self.node(instance).is_some_and(|node| node.readiness == Readiness::Ready)
    }

    /// The pool's nodes whose machine nobody can name, which are never retired: any machine without a node may be theirs.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = (NodeRef, Reason)> {
        self.unnamed.iter().map(|node| {
            let words = format!("the cloud finds no machine by the provider ID {:?}", node.provider_id);
            (node.reference(), Reason::Cloud(ReasonKind::UnsupportedProviderId, words))
        })
    }

    /// The machines of all fleets, by how much of the pool they are.
    pub(super) fn weights(&self) -> BTreeMap<InstanceId, u32> {
        let members = self.fleets.iter().flat_map(|fleet| &fleet.members);
        members.map(|(instance, member)| (instance.clone(), member.weight)).collect()
    }

    /// How much of the room a node takes by these.
    pub(super) fn weight(&self, node: &NodeRef, machines: &BTreeMap<InstanceId, u32>) -> u32 {
        let of_it = machines.iter().filter(|(instance, _)| self.node(instance).is_some_and(|one| one.uid == node.uid));
        of_it.map(|(_, weight)| *weight).max().unwrap_or_default()
    }

    /// The machines of a fleet that are no nodes, those that were launched first before the others.
    pub(super) fn nodeless<'l>(&'l self, fleet: &'l Fleet) -> Vec<(&'l InstanceId, Member)> {
        let members = fleet.members.iter().map(|(instance, member)| (instance, *member));
        let mut nodeless: Vec<_> = members.filter(|(instance, _)| self.node(instance).is_none()).collect();
        nodeless.sort_by_key(|(instance, member)| (member.launched, *instance));
        nodeless
    }

    /// How much of these fleets is there.
    pub(super) fn count<'l>(&'l self, fleets: impl IntoIterator<Item = &'l Fleet>, wanted: u32) -> Count {
        let mut count = Count { wanted, ..Count::default() };
        for (instance, Member { weight, .. }) in fleets.into_iter().flat_map(|fleet| &fleet.members) {
            let add = |sum: &mut u32, is_so: bool| *sum = sum.saturating_add(if is_so { *weight } else { 0 });
            add(&mut count.launched, true);
            add(&mut count.joined, self.node(instance).is_some());
            add(&mut count.ready, self.is_ready(instance));
        }
        count
    }
}

/// The machine of a node by the cloud's word, and by the node's own: one that cloud and node do not agree about is a
/// node nevertheless.
fn instances_of(node: &NodeSnapshot, cloud: &CloudFacts) -> impl Iterator<Item = InstanceId> {
    let told = cloud.of(node.uid.as_str()).and_then(|fact| match fact.machine.as_ref()? {
        Machine::Instance(instance) => Some(instance.clone()),
        Machine::WithNode => None,
    });
    let claimed = node.provider_id.rsplit('/').next().filter(|last| !last.is_empty()).map(InstanceId::new);
    told.into_iter().chain(claimed)
}
