//! What must hold of a pool's fleets.

use crate::node::{Node, NodeSnapshot, Readiness};
use crate::ports::{Edit, NodeChange};

use super::super::fleets::{FleetChange, Why};
use super::super::record::{Answer, Call, CallRecord};
use super::super::world::World;
use super::{Checker, Invariant};

/// What is to stay of a pool, in units of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Below this, no machine of it goes by our doing.
    pub floor: u32,
    /// Below this, none of its nodes is cordoned by our doing.
    pub ready: u32,
    /// More than this is never there.
    pub most: u32,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { floor: 0, ready: 0, most: u32::MAX }
    }
}

impl Checker {
    pub(super) fn check_pool(&mut self, world: &World, record: &CallRecord) {
        let (number, limits) = (record.number, self.limits.pool);
        let there: u32 = world.members().map(|(_, _, weight, _)| weight).sum();
        if there > limits.most {
            self.report(number, Invariant::Pool, format!("{there} are there, and {} at most may be", limits.most));
        }
        let changes = world.fleet_changes();
        for change in changes.get(self.changes..).unwrap_or_default() {
            let FleetChange { fleet, from, to, why } = change;
            let Why::Left(instance, weight) = why else { continue };
            if *to != from.saturating_sub(*weight) {
                let what = format!("fleet {fleet} goes from {from} to {to} for {instance}, which is {weight}");
                self.report(number, Invariant::Pool, what);
            }
        }
        self.changes = changes.len();
        let went = match (&record.call, &record.answer) {
            (Call::DeleteInstance { node, .. }, Answer::Deletion(_)) => {
                world.group_of_uid(node.uid.as_str()).is_some_and(|group| is_fleet(world, group))
            }
            (Call::Terminate { .. }, Answer::Done) => true,
            (Call::WriteNode { node, change }, Answer::Written(_)) => {
                let of_pool = world.group_of_uid(node.uid.as_str()).is_some_and(|group| is_fleet(world, group));
                let ready = ready(world);
                if of_pool && takes_away(world, node.uid.as_str(), change) && ready < limits.ready {
                    let what = format!("{node} is cordoned, and {ready} of {} stay ready", limits.ready);
                    self.report(number, Invariant::Pool, what);
                }
                false
            }
            _other => false,
        };
        if went && there < limits.floor {
            let what = format!("{there} are there after it, and {} are to stay", limits.floor);
            self.report(number, Invariant::Pool, what);
        }
    }
}

/// Whether a group is a fleet of the pool.
pub(super) fn is_fleet(world: &World, group: &str) -> bool {
    world.fleets().iter().any(|fleet| fleet.id == group)
}

/// How much of the pool takes pods.
fn ready(world: &World) -> u32 {
    let ready = world.members().filter(|(_, fleet, _, node)| node.is_some_and(|node| counts(world, fleet, node)));
    ready.map(|(_, _, weight, _)| weight).sum()
}

/// Whether a node of that fleet would be missed: what is cordoned where all is to go anyway runs its pods all the same.
fn counts(world: &World, fleet: &str, node: &NodeSnapshot) -> bool {
    let is_old = || world.fleets().iter().any(|told| told.id == fleet && !told.is_current);
    node.readiness == Readiness::Ready
        && node.claim().of(node.uid.as_str()).is_none()
        && (!node.unschedulable || is_old())
}

/// Whether a write took a ready node away from pods.
fn takes_away(world: &World, uid: &str, change: &NodeChange) -> bool {
    let before = world.replaced().filter(|before| before.uid.as_str() == uid);
    let fleet = world.group_of_uid(uid).unwrap_or_default();
    let is_taken = change.mark == Edit::Set(()) || change.unschedulable == Some(true);
    is_taken && before.is_some_and(|before| counts(world, fleet, before))
}
