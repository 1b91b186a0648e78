//! From what AWS said to what the judgement reads. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spot_core::capacity::{CapacityLabels, Class, Said};
use spot_core::claim::{InstanceId, Machine, Owner};
use spot_core::cloud::{self, CloudFact, CloudFacts, GroupKind};
use spot_core::node::{Node, NodeRef, NodeSnapshot, Uid, key};
use spot_core::reason::{Reason, ReasonKind};

use crate::ProviderId;
use crate::error::{CallError, Kind};
use crate::provider::Identity;
use crate::provider::describe::Membership;
use crate::provider::group::{Group, Shrinking};
use crate::provider::instance::{CLUSTER_TAG, FleetId, Instance, Keeper};
use crate::provider::maintain::{Fleet, Target};

/// By which rules a machine is a node's own.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) cluster_name: String,
    pub(crate) require_cluster_tag: bool,
    pub(crate) identity: Identity,
    pub(crate) labels: CapacityLabels,
}

/// What AWS said.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) instances: BTreeMap<String, Instance>,
    pub(crate) groups: BTreeMap<String, Group>,
    pub(crate) fleets: BTreeMap<FleetId, Fleet>,
    /// The members of fleets that keep chosen instances.
    pub(crate) members: BTreeMap<FleetId, BTreeMap<String, Instance>>,
    /// The groups of chosen instances by Auto Scaling's own word; only for those in `asked`.
    pub(crate) memberships: BTreeMap<String, Membership>,
    pub(crate) asked: BTreeSet<String>,
    /// Further reasons why an instance may not go, found by calls of its own, or because a call failed.
    pub(crate) of_instance: BTreeMap<String, Vec<Reason>>,
    /// The same of all members of a group or fleet.
    pub(crate) of_keeper: BTreeMap<String, Vec<Reason>>,
    /// Whether a call failed for want of a right.
    pub(crate) denied: bool,
}

/// Who keeps an instance, with what is known of it.
pub(crate) enum Kept<'a> {
    Group(&'a Group),
    Fleet(&'a Fleet),
    /// It says by its tags that a group keeps it, and the group does not say so.
    Detached(&'a str),
    /// What keeps it could not be asked.
    Unasked,
    Nobody,
}

impl Known {
    pub(crate) fn keeper_of(&self, id: &str, instance: &Instance) -> Kept<'_> {
        let unasked = |keeper: &str| self.of_keeper.contains_key(keeper);
        let member = self.memberships.get(id).map(|membership| membership.group.as_str());
        // Tags are copied with an instance's leaving; a membership is not.
        let tagged = match &instance.keeper {
            Keeper::Group(name) => Some(name.as_str()),
            Keeper::Fleet(_) | Keeper::Nobody => None,
        };
        if let Some(name) = member.or(tagged) {
            return match self.groups.get_key_value(name) {
                Some((_, group)) if group.members.contains_key(id) => Kept::Group(group),
                None if unasked(name) => Kept::Unasked,
                _ if member.is_some() => Kept::Unasked,
                Some((name, _)) => Kept::Detached(name),
                None => Kept::Detached("that is gone"),
            };
        }
        match &instance.keeper {
            Keeper::Fleet(fleet) => match self.fleets.get(fleet) {
                Some(fleet) if fleet.is_keeping() => Kept::Fleet(fleet),
                None if unasked(fleet.as_str()) => Kept::Unasked,
                Some(_) | None => Kept::Nobody,
            },
            Keeper::Group(_) | Keeper::Nobody => Kept::Nobody,
        }
    }

    /// Notes that a call about an instance failed: what could not be asked is not touched.
    pub(crate) fn doubt_instance(&mut self, id: &str, error: &CallError) {
        let reason = self.unreachable(error);
        self.of_instance.entry(id.to_owned()).or_default().push(reason);
    }

    /// The same of a call about a group or fleet.
    pub(crate) fn doubt_keeper(&mut self, keeper: &str, error: &CallError) {
        let reason = self.unreachable(error);
        self.of_keeper.entry(keeper.to_owned()).or_default().push(reason);
    }

    fn unreachable(&mut self, error: &CallError) -> Reason {
        self.denied |= matches!(error.kind, Kind::Denied | Kind::Credentials);
        Reason::Cloud(ReasonKind::CloudUnreachable, error.to_string())
    }

    fn class(&self, id: &str) -> Option<Class> {
        self.instances.get(id).map(|instance| instance.class)
    }
}

/// A node whose labels say something else than EC2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    pub(crate) node: NodeRef,
    pub(crate) labels: Option<Class>,
    pub(crate) cloud: Class,
}

/// The assembly of a survey's facts.
pub(crate) struct Survey<'a> {
    rules: &'a Rules,
    known: &'a Known,
    /// Which nodes claim an instance.
    claimants: BTreeMap<String, Vec<&'a str>>,
    /// The groups, as they are once those that are on their way are gone.
    shrinking: BTreeMap<&'a str, Shrinking<'a>>,
}

impl<'a> Survey<'a> {
    /// Of these nodes. One whose deletion is being asked for right now is `asking`: it is not gone yet.
    pub(crate) fn new(
        nodes: &'a [Arc<NodeSnapshot>],
        asking: Option<&Uid>,
        rules: &'a Rules,
        known: &'a Known,
    ) -> Self {
        let mut claimants: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut going = BTreeSet::new();
        for node in nodes {
            let Ok(id) = ProviderId::parse(&node.provider_id) else { continue };
            if is_going(node) && asking != Some(&node.uid) {
                going.insert(id.instance_id().to_owned());
            }
            claimants.entry(id.instance_id().to_owned()).or_default().push(&node.name);
        }
        let shrink = |group: &'a Group| Shrinking::of(group, &going, |id| known.class(id));
        let shrinking = known.groups.values().map(|group| (group.name.as_str(), shrink(group))).collect();
        Self { rules, known, claimants, shrinking }
    }

    /// The facts of all nodes. Of `chosen`, in the order of preference, each may go whichever of those before it that may
    /// go have gone.
    pub(crate) fn facts(&self, nodes: &[Arc<NodeSnapshot>], chosen: &[NodeRef]) -> CloudFacts {
        let mut facts: BTreeMap<Uid, CloudFact> = BTreeMap::new();
        let mut left = self.shrinking.clone();
        for chosen in chosen {
            let Some(node) = nodes.iter().find(|node| node.uid == chosen.uid) else { continue };
            let fact = self.fact(node, &left);
            if let (Some(group), Some(Machine::Instance(id))) = (&fact.group, &fact.machine)
                && fact.refusals.is_empty()
                && let Some(group) = left.get_mut(group.id.as_str())
            {
                group.take(id.as_str(), fact.class);
            }
            facts.insert(node.uid.clone(), fact);
        }
        for node in nodes {
            facts.entry(node.uid.clone()).or_insert_with(|| self.fact(node, &self.shrinking));
        }
        facts.into_iter().collect()
    }

    /// Nodes whose labels contradict EC2, or each other.
    pub(crate) fn contradictions(&self, nodes: &[Arc<NodeSnapshot>]) -> Vec<Contradiction> {
        let contradiction = |node: &Arc<NodeSnapshot>| {
            let id = ProviderId::parse(&node.provider_id).ok()?;
            let cloud = self.known.class(id.instance_id())?;
            let labels = match self.rules.labels.said(node) {
                Said::Class(class) if class == cloud => return None,
                Said::Nothing => return None,
                Said::Class(class) => Some(class),
                Said::Contradiction => None,
            };
            Some(Contradiction { node: node.reference(), labels, cloud })
        };
        nodes.iter().filter_map(contradiction).collect()
    }

    /// The fact of one node, its group being as it is in `groups`.
    fn fact(&self, node: &NodeSnapshot, groups: &BTreeMap<&str, Shrinking<'_>>) -> CloudFact {
        let refused = |kind, words: String| vec![Reason::Cloud(kind, words)];
        let labels = self.rules.labels.classify(node);
        let id = match ProviderId::parse(&node.provider_id) {
            Ok(id) => id.instance_id().to_owned(),
            Err(error) => {
                let refusals = refused(ReasonKind::UnsupportedProviderId, error.to_string());
                return CloudFact { class: labels, machine: None, group: None, refusals };
            }
        };
        let machine = Some(Machine::Instance(InstanceId::new(id.as_str())));
        let Some(instance) = self.known.instances.get(&id) else {
            let unknown = || refused(ReasonKind::IdentityMismatch, format!("EC2 knows no instance {id}"));
            let refusals = self.known.of_instance.get(&id).cloned().unwrap_or_else(unknown);
            return CloudFact { class: labels, machine, group: None, refusals };
        };
        let class = instance.class;
        if node.label(key::NODE_POOL).is_some() {
            let owned = node.takes_its_machine_along();
            let words = format!("a node pool provisioned {id}, and nothing would remove it when its Node is deleted");
            let refusals = if owned { Vec::new() } else { refused(ReasonKind::NoMachineOwner, words) };
            return CloudFact { class, machine: owned.then_some(Machine::WithNode), group: None, refusals };
        }
        let mut refusals = self.identity(node, &id, instance);
        if !instance.is_running() {
            let words = format!("{id} is {}", instance.state);
            refusals.push(Reason::Cloud(ReasonKind::InstanceInTransition, words));
        }
        let group = self.kept(&id, instance, groups, &mut refusals);
        refusals.extend(self.known.of_instance.get(&id).into_iter().flatten().cloned());
        CloudFact { class, machine, group, refusals }
    }

    /// Why the machine may not be the node's own.
    fn identity(&self, node: &NodeSnapshot, id: &str, instance: &Instance) -> Vec<Reason> {
        let mut refusals = Vec::new();
        let Rules { cluster_name, require_cluster_tag, identity, labels: _ } = self.rules;
        if *require_cluster_tag && !instance.clusters.contains(cluster_name) {
            let words = format!("{id} bears no tag {CLUSTER_TAG}{cluster_name}");
            refusals.push(Reason::Cloud(ReasonKind::WrongCluster, words));
        }
        if !instance.is_machine_of(node, id, *identity) {
            let words = format!("EC2 calls {id} {:?}, not {:?}", instance.private_dns_name, node.name);
            refusals.push(Reason::Cloud(ReasonKind::IdentityMismatch, words));
        }
        let claimants = self.claimants.get(id).map(Vec::as_slice).unwrap_or_default();
        if claimants.len() > 1 {
            let words = format!("{id} is claimed by the nodes {}", claimants.join(" and "));
            refusals.push(Reason::Cloud(ReasonKind::ClaimedTwice, words));
        }
        refusals
    }

    /// The group or fleet that keeps an instance, and why that would not let it go.
    fn kept(
        &self,
        id: &str,
        instance: &Instance,
        groups: &BTreeMap<&str, Shrinking<'_>>,
        refusals: &mut Vec<Reason>,
    ) -> Option<cloud::Group> {
        let further = |keeper: &str| self.known.of_keeper.get(keeper).into_iter().flatten().cloned();
        match self.known.keeper_of(id, instance) {
            Kept::Group(group) => {
                let (member, shrinking) = (group.members.get(id)?, groups.get(group.name.as_str())?);
                refusals.extend(shrinking.refusals(id, member, instance.class));
                refusals.extend(further(&group.name));
                // As a whole: which of its members go is for the judgement to add up.
                let desired = self.shrinking.get(group.name.as_str())?.desired();
                let (id, floor, weight) = (group.name.clone(), group.min, member.weight);
                Some(cloud::Group { id, desired, floor, weight, kind: GroupKind::Group })
            }
            Kept::Fleet(fleet) => {
                refusals.extend(fleet.refusal());
                refusals.extend(further(fleet.id.as_str()));
                match fleet.weight(instance) {
                    Ok(weight) => {
                        let members = self.known.members.get(&fleet.id);
                        refusals.extend(members.and_then(|members| fleet.without(id, members, &BTreeSet::new()).err()));
                        let Target { total: desired, on_demand } = fleet.target;
                        let (id, kind) = (fleet.id.to_string(), GroupKind::Fleet { on_demand });
                        Some(cloud::Group { id, desired, floor: 0, weight, kind })
                    }
                    Err(refusal) => {
                        refusals.push(refusal);
                        None
                    }
                }
            }
            Kept::Detached(group) => {
                let words = format!("{id} is tagged as a member of a group ({group}) that does not list it");
                refusals.push(Reason::Cloud(ReasonKind::InstanceInTransition, words));
                None
            }
            Kept::Unasked => {
                let keeper = match &instance.keeper {
                    Keeper::Group(name) => name.as_str(),
                    Keeper::Fleet(fleet) => fleet.as_str(),
                    Keeper::Nobody => "",
                };
                let before = refusals.len();
                refusals.extend(further(keeper));
                if refusals.len() == before {
                    let words = format!("what keeps {id} could not be asked");
                    refusals.push(Reason::Cloud(ReasonKind::CloudUnreachable, words));
                }
                None
            }
            Kept::Nobody => None,
        }
    }
}

/// Whether the node's machine is on its way without the judgement's doing: departing, or somebody else's claim.
fn is_going(node: &NodeSnapshot) -> bool {
    node.claim().of(node.uid.as_str()).is_some_and(|claim| claim.is_departing() || claim.owner != Owner::Migrator)
}
