//! A member of a fleet goes with the fleet's target lowered; if it stays after all, the target is raised again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_sdk_ec2::types::{
    ExcessCapacityTerminationPolicy as SpotExcess, FleetExcessCapacityTerminationPolicy as Ec2Excess,
    TargetCapacitySpecificationRequest,
};
use spot_core::claim::{FleetBefore, InstanceId, Machine};
use spot_core::cloud::Deletion;
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::{Node, NodeSnapshot};
use spot_core::ports::{Instant, Write};

use super::{LATE, MODIFYING, Next, STALE, Terminated};
use crate::action::Action;
use crate::client::once;
use crate::error::CallError;
use crate::provider::Aws;
use crate::provider::instance::{FleetId, Instance};
use crate::provider::maintain::{Fleet, Target};
use crate::provider::survey::{Kept, Known};

/// A fleet whose target was lowered for a member that is not terminated yet.
#[derive(Debug)]
pub(super) struct Lowered {
    /// As it was before.
    fleet: Fleet,
    target: Target,
    /// When EC2 said that it would be.
    accepted: Option<Instant>,
}

impl Aws {
    /// Learns the members of the fleets that keep chosen instances.
    pub(crate) async fn learn_fleet_members(&self, chosen: &BTreeSet<String>, by: Instant, known: &mut Known) {
        let fleet = |id: &String| match known.keeper_of(id, known.instances.get(id)?) {
            Kept::Fleet(fleet) => Some(fleet.id.clone()),
            Kept::Group(_) | Kept::Detached(_) | Kept::Unasked | Kept::Nobody => None,
        };
        let fleets: BTreeSet<_> = chosen.iter().filter_map(fleet).collect();
        for fleet in fleets {
            match self.members_of(&fleet, by).await {
                Ok(members) => drop(known.members.insert(fleet, members)),
                Err(error) => known.doubt_keeper(fleet.as_str(), &error),
            }
        }
    }

    async fn members_of(&self, fleet: &FleetId, by: Instant) -> Result<BTreeMap<String, Instance>, CallError> {
        let members = self.api.fleet_members(fleet, by).await?;
        let ids: Vec<_> = members.iter().map(String::as_str).collect();
        self.api.all_instances(&ids, by).await
    }

    /// What is next for a member of a fleet that refuses nothing.
    ///
    /// A target is never lowered twice for one member. What this process has lowered, it knows. What another one may
    /// have, before it died, is told by the target that the claim recorded: as it was then, it was not lowered; less by
    /// the member's weight, it was; anything else is somebody else's doing, and what that was meant to be is not ours to
    /// guess: the member stays. A record counts until this process has changed the fleet. So of several members that
    /// another process let go side by side, one may be taken for one whose lowering was used up by its sibling; its
    /// fleet's target then stays too high by its weight, which is warned of.
    pub(super) fn next_of_fleet(
        &self,
        fleet: &Fleet,
        id: &str,
        before: Option<&FleetBefore>,
        known: &Known,
        terminated: &Terminated,
    ) -> Result<Next, PortError> {
        if terminated.lowered.get(id).is_some_and(|lowered| lowered.target == fleet.target) {
            return Ok(Next::Plainly(Some(fleet.id.clone())));
        }
        let nobody = BTreeMap::new();
        let members = known.members.get(&fleet.id).unwrap_or(&nobody);
        if let Some(before) = before.filter(|_| !terminated.handled.contains(&fleet.id)) {
            let weight = members.get(id).and_then(|member| fleet.weight(member).ok()).unwrap_or_default();
            match Since::of(before, fleet, weight) {
                Since::Untouched => {}
                Since::Lowered(from) => return Ok(Next::Lowered(fleet.clone(), from)),
                Since::Changed => {
                    let FleetBefore { fleet: name, target, on_demand } = before;
                    let what = format!(
                        "before {id} was to go, fleet {name} wanted {target}, {on_demand} of it on-demand; {} wants {} \
                         now, {} of it on-demand, by somebody else's doing",
                        fleet.id, fleet.target.total, fleet.target.on_demand,
                    );
                    return Err(PortError::new(ErrorClass::Permanent, what));
                }
            }
        }
        let target = match fleet.without(id, members, &terminated.plainly) {
            Ok(target) => target,
            Err(reason) => return Ok(Next::Short(reason)),
        };
        if target == fleet.target {
            return Ok(Next::Plainly(Some(fleet.id.clone())));
        }
        let told_late = |lowered: &Lowered| {
            let at = lowered.accepted.filter(|_| lowered.fleet.target == fleet.target);
            at.is_some_and(|at| self.api.clock.instant() < at + LATE)
        };
        if terminated.lowered.get(id).is_some_and(told_late) {
            return Ok(Next::Await(fleet.id.clone()));
        }
        Ok(Next::Lower(fleet.clone(), target))
    }

    /// Lowers a fleet's target for this member, and has the fleet choose no victim of its own.
    pub(super) async fn lower(
        &self,
        fleet: Fleet,
        target: Target,
        id: &str,
        write: &Write,
        terminated: &mut Terminated,
    ) -> Result<Result<Option<Deletion>, CallError>, PortError> {
        let fleet_id = fleet.id.clone();
        // Before it is asked for: this future may be dropped. A repetition starts from what was there first.
        let first = !terminated.lowered.contains_key(id);
        let lowered = terminated.lowered.entry(id.to_owned()).or_insert(Lowered { fleet, target, accepted: None });
        lowered.target = target;
        terminated.handled.insert(fleet_id.clone());
        let asked = self.set_target(&fleet_id, target, true, write).await?;
        if let (Ok(_), Some(lowered)) = (&asked, terminated.lowered.get_mut(id)) {
            lowered.accepted = Some(self.api.clock.instant());
        }
        if first && asked.as_ref().is_err_and(|error| !error.may_pass()) {
            terminated.lowered.remove(id);
        }
        Ok(asked)
    }

    /// Raises the target again that was lowered for a member which is not to go after all.
    pub(super) async fn raise(
        &self,
        id: &str,
        error: PortError,
        write: &Write,
        terminated: &mut Terminated,
    ) -> PortError {
        let Some(lowered) = terminated.lowered.get(id) else { return error };
        let Lowered { fleet: Fleet { id: fleet, target: Target { total, .. }, .. }, .. } = lowered;
        let words = match self.restore(lowered, write).await {
            Ok(()) => format!("{error}; fleet {fleet} keeps {total} again"),
            Err(why) => format!("{error}; fleet {fleet} kept {total} before, and was not raised again: {why}"),
        };
        terminated.lowered.remove(id);
        PortError::new(error.class, words).caused_by(error)
    }

    /// Raises the target again that an earlier process has lowered for a member which is not to go after all, as far as
    /// that is certain: by what its claim recorded, and if nothing is launched for it.
    pub(crate) async fn raise_recorded(&self, node: &NodeSnapshot, id: &str, write: &Write) -> Result<(), PortError> {
        let claim = node.claim().of(node.uid.as_str());
        let claim = claim.filter(|claim| claim.machine == Machine::Instance(InstanceId::new(id)));
        let Some(recorded) = claim.and_then(|claim| claim.fleet_before.as_ref()) else { return Ok(()) };
        let mut terminated = self.alone(id, write.by).await?;
        if terminated.handled.iter().any(|fleet| fleet.as_str() == recorded.fleet) {
            return Ok(());
        }
        let untold = || {
            let what = format!("whether fleet {} was lowered for {id}, which stays, could not be told", recorded.fleet);
            PortError::new(ErrorClass::Transient, what)
        };
        let nodes = [Arc::new(node.clone())];
        let known = self.learn(&nodes, &[node.reference()], self.api.clock.instant(), write.by).await?;
        let fleet = match known.instances.get(id).map(|instance| known.keeper_of(id, instance)) {
            Some(Kept::Fleet(fleet)) => fleet,
            Some(Kept::Unasked) => return Err(untold()),
            Some(Kept::Group(_) | Kept::Detached(_) | Kept::Nobody) | None => return Ok(()),
        };
        let members = known.members.get(&fleet.id).ok_or_else(untold)?;
        let weight = members.get(id).and_then(|member| fleet.weight(member).ok()).unwrap_or_default();
        let Since::Lowered(from) = Since::of(recorded, fleet, weight) else { return Ok(()) };
        // Else it was lowered for another member, which is gone.
        if fleet.has(from, members, &terminated.plainly) != Ok(true) {
            return Ok(());
        }
        let mut before = fleet.clone();
        before.target = from;
        let lowered = Lowered { fleet: before, target: fleet.target, accepted: None };
        let restored = self.restore(&lowered, write).await;
        terminated.handled.insert(fleet.id.clone());
        restored.map_err(|error| {
            let what =
                format!("{id} stays, and fleet {}, which kept {} before, was not raised again", fleet.id, from.total);
            PortError::new(error.class, what).caused_by(error)
        })
    }

    async fn restore(&self, lowered: &Lowered, write: &Write) -> Result<(), PortError> {
        let Lowered { fleet: before, target, .. } = lowered;
        let stale = self.api.clock.instant() + STALE;
        loop {
            let ids = [before.id.clone()].into();
            let answer = match &before.id {
                FleetId::Ec2(_) => self.api.ec2_fleets(&ids, write.by).await,
                FleetId::Spot(_) => self.spot_fleets(&ids, write.by).await,
            };
            let gone = || PortError::new(ErrorClass::Permanent, "it is gone, or somebody else has changed it");
            let fleet = answer?.remove(&before.id).ok_or_else(gone)?;
            let busy = || PortError::new(ErrorClass::Timeout, "it is still being modified");
            let error = if !fleet.is_settled() {
                busy()
            } else if fleet.target != *target && fleet.target != before.target {
                let error = gone();
                if self.api.clock.instant() >= stale {
                    return Err(error);
                }
                error
            } else {
                match self.set_target(&before.id, before.target, before.spares, write).await? {
                    Ok(_) => return Ok(()),
                    Err(error) if error.may_pass() => error.into(),
                    Err(error) => return Err(error.into()),
                }
            };
            if !self.api.pause(MODIFYING, write.by).await {
                return Err(error);
            }
        }
    }

    /// Sets a fleet's target, and whether it lets members live that are too much.
    pub(crate) async fn set_target(
        &self,
        fleet: &FleetId,
        target: Target,
        spares: bool,
        write: &Write,
    ) -> Result<Result<Option<Deletion>, CallError>, PortError> {
        let number = |capacity: u32| i32::try_from(capacity).unwrap_or(i32::MAX);
        let (total, on_demand) = (number(target.total), number(target.on_demand));
        tracing::info!(fleet = %fleet, target = total, on_demand, "setting the fleet's target");
        match fleet {
            FleetId::Ec2(id) => {
                let capacity = TargetCapacitySpecificationRequest::builder()
                    .total_target_capacity(total)
                    .on_demand_target_capacity(on_demand)
                    .spot_target_capacity(total.saturating_sub(on_demand))
                    .build();
                let request = self.api.ec2.modify_fleet().fleet_id(id).target_capacity_specification(capacity);
                let policy = if spares { Ec2Excess::NoTermination } else { Ec2Excess::Termination };
                let request = request.excess_capacity_termination_policy(policy).customize().config_override(once());
                Ok(self.api.write(Action::ModifyFleet, write, request.send()).await?.map(|_| None))
            }
            FleetId::Spot(id) => {
                let request = self.api.ec2.modify_spot_fleet_request().spot_fleet_request_id(id);
                let request = request.target_capacity(total).on_demand_target_capacity(on_demand);
                let policy = if spares { SpotExcess::NoTermination } else { SpotExcess::Default };
                let request = request.excess_capacity_termination_policy(policy).customize().config_override(once());
                Ok(self.api.write(Action::ModifySpotFleetRequest, write, request.send()).await?.map(|_| None))
            }
        }
    }
}

/// What became of a fleet since its target was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Untouched,
    /// It was lowered by the member's weight, from there.
    Lowered(Target),
    Changed,
}

impl Since {
    fn of(before: &FleetBefore, fleet: &Fleet, weight: u32) -> Self {
        let Target { total, on_demand } = fleet.target;
        let recorded = Target { total: before.target, on_demand: before.on_demand };
        if before.fleet != fleet.id.as_str() {
            return Self::Changed;
        }
        if fleet.target == recorded {
            return Self::Untouched;
        }
        let lowered = |now: u32, then: u32| now == then || now == then.saturating_sub(weight);
        let no_more = on_demand == recorded.on_demand.min(total);
        let is_lowered = lowered(total, recorded.total) && (lowered(on_demand, recorded.on_demand) || no_more);
        if is_lowered { Self::Lowered(recorded) } else { Self::Changed }
    }
}

impl Terminated {
    /// Notes that a fleet's target is this process' doing from now on, whatever was recorded before.
    #[cfg(feature = "fleet")]
    pub(crate) fn handle(&mut self, fleet: &FleetId) {
        self.handled.insert(fleet.clone());
    }

    /// Takes over what another process has lowered for a member.
    pub(super) fn take_over(&mut self, id: &str, fleet: Fleet, from: Target) {
        tracing::warn!(
            instance = id, fleet = %fleet.id, was = from.total, is = fleet.target.total,
            "an earlier process has lowered the fleet's target for it, it seems: it is not lowered again"
        );
        let target = fleet.target;
        self.handled.insert(fleet.id.clone());
        let mut before = fleet;
        before.target = from;
        self.lowered.insert(id.to_owned(), Lowered { fleet: before, target, accepted: None });
    }

    /// Notes that a member is on its way: what its fleet's target was lowered by is used up.
    pub(super) fn used(&mut self, id: &str, keeper: Option<&FleetId>) {
        self.handled.extend(keeper.cloned());
        if self.lowered.remove(id).is_none() {
            self.lowered.retain(|_, lowered| Some(&lowered.fleet.id) != keeper);
        }
    }
}
