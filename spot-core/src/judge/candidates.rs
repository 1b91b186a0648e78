//! Which nodes are looked for, and how much of what keeps them may go.

use std::collections::BTreeMap;

use super::{Policy, Verdict};
use crate::capacity::Class;
use crate::claim::{InstanceId, Machine, Owner};
use crate::cloud::CloudFact;
use crate::decision::is_control_plane;
use crate::drain::plan::Force;
use crate::node::{Node, key};
use crate::reason::{Reason, ReasonKind};

/// Which nodes are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Candidates {
    /// Those that are on-demand, or possibly so.
    #[default]
    OnDemand,
    /// Those of a pool, whatever their class.
    Pool(PoolCandidates),
}

/// The nodes of a pool of which some are to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCandidates {
    /// The pool: whose claims are taken up.
    pub pool: String,
    /// The machines of which some are to go, each with how much of the room it takes.
    pub machines: BTreeMap<InstanceId, u32>,
    /// How much of them may go.
    pub room: u32,
    /// What becomes of those that do not go now.
    pub others: Others,
    /// How hard it is tried: forced, pods do not hold a node.
    pub force: Force,
}

/// What becomes of the machines of a pool that do not go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They stay, so that pods may move to them.
    Stay,
    /// They go later.
    Go,
    /// They go later, and more of their like is asked for before: pods that could run on one of them could run there.
    Follow,
}

impl PoolCandidates {
    /// How much of the room this node takes; none if it is not of the machines.
    fn weight(&self, fact: Option<&CloudFact>) -> Option<u32> {
        match fact?.machine.as_ref()? {
            Machine::Instance(instance) => self.machines.get(instance).copied(),
            Machine::WithNode => None,
        }
    }
}

/// What may become less by a node's going.
pub(super) struct Room<'a> {
    /// Nodes of the same name share it.
    pub(super) name: &'a str,
    pub(super) left: u32,
    /// How much of it the node takes.
    pub(super) weight: u32,
}

impl Candidates {
    /// Whose claims they bear while they go.
    pub(super) fn is_owner(&self, owner: &Owner) -> bool {
        match (self, owner) {
            (Self::OnDemand, Owner::Migrator) => true,
            (Self::Pool(pool), Owner::Fleet(name)) => pool.pool == *name,
            (Self::OnDemand | Self::Pool(_), Owner::Migrator | Owner::Interruption | Owner::Fleet(_)) => false,
        }
    }

    /// How hard it is tried to have them go.
    pub(super) fn force(&self) -> Force {
        match self {
            Self::OnDemand => Force::Planned,
            Self::Pool(pool) => pool.force,
        }
    }

    /// What keeps this node, if anything does.
    pub(super) fn room<'a>(&'a self, fact: Option<&'a CloudFact>) -> Option<Room<'a>> {
        match self {
            Self::OnDemand => {
                let group = fact?.group.as_ref()?;
                Some(Room { name: &group.id, left: group.desired.saturating_sub(group.floor), weight: group.weight })
            }
            Self::Pool(pool) => Some(Room { name: &pool.pool, left: pool.room, weight: pool.weight(fact)? }),
        }
    }

    /// Why this node would be too much.
    pub(super) fn too_much(&self, fact: Option<&CloudFact>) -> Option<Reason> {
        let Room { left, weight, .. } = self.room(fact).filter(|room| room.left < room.weight)?;
        let words = match self {
            Self::OnDemand => {
                let group = fact?.group.as_ref()?;
                format!("group {} keeps {} and may not go below {}", group.id, group.desired, group.floor)
            }
            Self::Pool(pool) => format!("pool {} may lose {left} now, and the node is {weight} of it", pool.pool),
        };
        Some(Reason::Cloud(ReasonKind::GroupAtMinimum, words))
    }

    /// Whether the others stay, so that their pods need not move.
    pub(crate) const fn others_stay(&self) -> bool {
        match self {
            Self::OnDemand => false,
            Self::Pool(pool) => matches!(pool.others, Others::Stay),
        }
    }

    /// Whether a node may have been touched for these: any of the pool, or any of none, since what earlier processes did
    /// is not known.
    pub(crate) fn cover(&self, node: &impl Node) -> bool {
        match self {
            Self::OnDemand => node.label(key::POOL).is_none(),
            Self::Pool(pool) => node.label(key::POOL) == Some(pool.pool.as_str()),
        }
    }

    /// Whether a node with this verdict goes now or later: those of a pool go when there is room for them.
    pub(crate) fn let_go(&self, verdict: &Verdict) -> bool {
        match (self, verdict) {
            (_, Verdict::Eligible) => true,
            (Self::Pool(_), Verdict::Refused(reasons)) => {
                reasons.iter().all(|reason| reason.kind() == ReasonKind::GroupAtMinimum)
            }
            (Self::OnDemand, Verdict::Refused(_)) | (_, Verdict::NotACandidate) => false,
        }
    }

    /// Why a node that was to go is to stay after all.
    pub(crate) fn keeps(&self, fact: Option<&CloudFact>) -> Option<&'static str> {
        match self {
            Self::OnDemand => match fact.map_or(Class::Unknown, |fact| fact.class) {
                Class::OnDemand => None,
                Class::Spot => Some("it is a spot node"),
                Class::Reserved => Some("it is a reserved node"),
                Class::Unknown => Some("its class is unknown now"),
            },
            Self::Pool(pool) => match pool.weight(fact) {
                None => Some("it is none of the machines that are to go"),
                Some(weight) if weight > pool.room => Some("the pool is to keep it"),
                Some(_) => None,
            },
        }
    }

    /// Leaves that much less room by a node that went.
    pub(crate) fn lose(&mut self, fact: Option<&CloudFact>) {
        if let Self::Pool(pool) = self {
            pool.room = pool.room.saturating_sub(pool.weight(fact).unwrap_or_default());
        }
    }

    /// Whether its class has to be known.
    pub(super) const fn need_a_class(&self) -> bool {
        matches!(self, Self::OnDemand)
    }
}

/// Whether a node is one that is looked for, and selected.
pub(super) fn is_candidate(node: &impl Node, fact: Option<&CloudFact>, policy: &Policy) -> bool {
    let wanted = match &policy.candidates {
        Candidates::OnDemand => match fact.map_or(Class::Unknown, |fact| fact.class) {
            Class::OnDemand | Class::Unknown => true,
            Class::Spot | Class::Reserved => false,
        },
        Candidates::Pool(pool) => pool.weight(fact).is_some(),
    };
    wanted && !is_control_plane(node) && policy.node_selector.matches(|key| node.label(key))
}
