//! What the cloud says of the machines behind the nodes.

use std::collections::HashMap;

use crate::capacity::Class;
use crate::claim::Machine;
use crate::node::Uid;
use crate::reason::Reason;

/// What the cloud says of one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct CloudFact {
    /// How it is paid for.
    pub class: Class,
    /// How it goes; none if it can't be told, with the reason among the refusals.
    pub machine: Option<Machine>,
    /// The group that would replace it, if any.
    pub group: Option<Group>,
    /// Why its deletion would not be accepted.
    pub refusals: Vec<Reason>,
}

/// A group that keeps a number of machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name, unique in the cloud account.
    pub id: String,
    /// The capacity that it keeps.
    pub desired: u32,
    /// The capacity below which it refuses to go.
    pub floor: u32,
    /// How much of that this machine is.
    pub weight: u32,
    /// How it comes to want less.
    pub kind: GroupKind,
}

/// How a group comes to want less when a machine goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// By the machine's deletion.
    Group,
    /// It is a fleet: it is told so first.
    Fleet {
        /// How much of what it wants is to be on-demand.
        on_demand: u32,
    },
}

/// What the cloud says of all nodes; a node that is not in it is of unknown class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CloudFacts {
    /// Asked by key alone and never gone through, so that its order can't be seen. Of 100,000 nodes each is asked for in
    /// every judgement: an ordered map would take half of that time.
    by_node: HashMap<Uid, CloudFact>,
    pending_spot: u32,
}

impl CloudFacts {
    /// The same, with the capacity that fleets of the cluster still launch on spot.
    #[must_use]
    pub fn with_pending_spot(self, units: u32) -> Self {
        Self { pending_spot: units, ..self }
    }

    /// How much spot capacity the cluster's own fleets were asked for and have not launched yet, in their units; zero
    /// where none is pending, and where it could not be asked.
    ///
    /// A migration takes it for room on spot that is not seen yet: though no spot node is known, it retires as many
    /// nodes at once as its budgets say, and not one that is to show whether spot has room. What has been launched and has
    /// not joined is neither pending nor known.
    #[must_use]
    pub fn pending_spot(&self) -> u32 {
        self.pending_spot
    }

    /// What it says of this node.
    #[must_use]
    pub fn of(&self, uid: &str) -> Option<&CloudFact> {
        self.by_node.get(uid)
    }

    /// The class of this node.
    #[must_use]
    pub fn class(&self, uid: &str) -> Class {
        self.of(uid).map_or(Class::Unknown, |fact| fact.class)
    }
}

impl FromIterator<(Uid, CloudFact)> for CloudFacts {
    fn from_iter<I: IntoIterator<Item = (Uid, CloudFact)>>(facts: I) -> Self {
        Self { by_node: facts.into_iter().collect(), pending_spot: 0 }
    }
}

/// How old an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Asked for in this run.
    Cached,
    /// Asked for now.
    Now,
}

/// Where an instance is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// It runs, or is about to: nobody terminated it.
    Running,
    /// It is on its way out.
    ShuttingDown,
    /// It goes as soon as these lifecycle hooks let it.
    Held(String),
    /// It is gone, or the cloud never heard of it.
    Gone,
}

/// The answer to a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The cloud deletes the instance, or had begun to already.
    Accepted,
    /// The machine goes when its Node object is deleted: the caller does that now.
    WithNode,
}
