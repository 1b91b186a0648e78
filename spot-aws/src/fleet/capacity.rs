//! A pool's fleets, as what keeps its capacity.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use spot_core::claim::InstanceId;
use spot_core::cloud::InstanceState;
use spot_core::error::{ErrorClass, PortError};
use spot_core::pool::{Fleet, Member, PoolCapacity};
use spot_core::ports::{Instant, Write};

use super::cause::explained;
use super::existing::{spot, value};
use super::members::Described;
use super::node_pool::NodePool;
use super::tags::tag;
use crate::action::Action;
use crate::client::once;
use crate::error::CallError;
use crate::provider::maintain::{self, Target};
use crate::provider::terminate::STALE;

/// How often a fleet is looked at that can't be changed now, or whose change is not told of yet.
const LOOK: Duration = Duration::from_secs(2);

#[async_trait]
impl PoolCapacity for NodePool {
    async fn fleets(&self, by: Instant) -> Result<Vec<Fleet>, PortError> {
        let mut requests = self.requests(by).await?;
        requests.retain(|request| self.owns(request.tags()));
        let ids: Vec<_> = requests.iter().filter_map(|request| request.spot_fleet_request_id()).collect();
        let machines = self.described(&ids, by).await?;
        let hash = self.pool.hash();
        let mut current = false;
        let mut fleets = Vec::new();
        for request in &requests {
            let Some(kept) = maintain::Fleet::of_spot(request) else { continue };
            let of_fleet = machines.iter().filter(|machine| machine.is_of(kept.id.as_str())).collect::<Vec<_>>();
            if kept.has_ended() && of_fleet.is_empty() {
                continue;
            }
            let has_hash = value(request.tags(), tag::HASH) == Some(hash.as_str());
            let is_current = has_hash && !kept.has_ended() && !current;
            current |= is_current;
            fleets.push(Fleet {
                id: kept.id.to_string(),
                target: kept.target.total,
                is_current,
                is_settled: kept.is_settled(),
                has_ended: kept.has_ended(),
                members: members(&kept, &of_fleet)?,
            });
        }
        Ok(fleets)
    }

    async fn resize(&self, fleet: &str, from: u32, to: u32, write: &Write) -> Result<(), PortError> {
        let id = spot(fleet);
        let mut terminated = self.aws.alone(fleet, write.by).await?;
        let mut sent = false;
        let stale = self.api().clock.instant() + STALE;
        loop {
            let Some(now) = self.own_fleet(fleet, write.by).await?.filter(|now| !now.has_ended()) else {
                return Err(PortError::new(ErrorClass::Permanent, format!("fleet {fleet} has ended")));
            };
            let target = now.target.total;
            let error = if !now.is_settled() {
                busy(fleet)
            } else if target == to && now.spares {
                return Ok(());
            } else if target != from && target != to {
                let what = format!("fleet {fleet} wants {target}, not {from}, by somebody else's doing: it is left so");
                let error = PortError::new(ErrorClass::Permanent, what);
                if self.api().clock.instant() >= stale {
                    return Err(error);
                }
                error
            } else {
                // Before it is asked for: this future may be dropped.
                terminated.handle(&id);
                let wanted = Target { total: to, on_demand: now.target.on_demand.min(to) };
                let asked = if sent { Ok(None) } else { self.aws.set_target(&id, wanted, true, write).await? };
                match asked {
                    Ok(_) => {
                        sent = true;
                        let what = format!("fleet {fleet} was told to want {to}, and EC2 still tells of {target}");
                        PortError::new(ErrorClass::Timeout, what)
                    }
                    Err(refused) if refused.may_pass() => refused.into(),
                    Err(refused) => return Err(explained(refused)),
                }
            };
            if !self.api().pause(LOOK, write.by).await {
                return Err(error);
            }
        }
    }

    async fn terminate(&self, fleet: &str, instance: &InstanceId, write: &Write) -> Result<(), PortError> {
        // EC2 forgets a fleet that has ended and has no machines any more.
        if self.own_fleet(fleet, write.by).await?.is_none() {
            return Err(PortError::new(ErrorClass::Permanent, format!("EC2 tells of no fleet {fleet}")));
        }
        self.aws.terminate_member(&spot(fleet), instance, write).await.map(|_deletion| ())
    }

    async fn cancel(&self, fleet: &str, write: &Write) -> Result<(), PortError> {
        let _alone = self.aws.alone(fleet, write.by).await?;
        loop {
            let Some(now) = self.own_fleet(fleet, write.by).await?.filter(|now| !now.has_ended()) else {
                return Ok(());
            };
            let error = if !now.is_settled() {
                busy(fleet)
            } else if let Some(member) = self.member_of_empty(&now, write.by).await? {
                let what = format!("fleet {fleet} still lists {member}, and is not ended");
                PortError::new(ErrorClass::Timeout, what)
            } else {
                match self.ask_to_cancel(fleet, write).await? {
                    Ok(true) => return Ok(()),
                    Ok(false) => PortError::new(ErrorClass::Transient, format!("fleet {fleet} can't be cancelled now")),
                    Err(refused) if refused.may_pass() => refused.into(),
                    Err(refused) => return Err(explained(refused)),
                }
            };
            if !self.api().pause(LOOK, write.by).await {
                return Err(error);
            }
        }
    }
}

fn busy(fleet: &str) -> PortError {
    PortError::new(ErrorClass::Timeout, format!("fleet {fleet} is still being modified"))
}

/// Those of them that run, or are about to, with their weights.
fn members(fleet: &maintain::Fleet, machines: &[&Described]) -> Result<BTreeMap<InstanceId, Member>, PortError> {
    let alive = machines.iter().filter(|machine| machine.instance.life() == InstanceState::Running);
    let member = |machine: &&Described| {
        let weight = fleet.weight(&machine.instance);
        let weight = weight.map_err(|reason| PortError::new(ErrorClass::Permanent, reason.to_string()))?;
        Ok((InstanceId::new(machine.id.as_str()), Member { weight, launched: machine.launched }))
    };
    alive.map(member).collect()
}

impl NodePool {
    /// That a fleet wants nothing and has nothing, so that ending it takes nothing away that is of use; a member that it
    /// lists all the same. EC2 tells of its machines late, and the fleet itself, of those that are gone.
    async fn member_of_empty(&self, fleet: &maintain::Fleet, by: Instant) -> Result<Option<String>, PortError> {
        let refuse = |what: String| Err(PortError::new(ErrorClass::Permanent, what));
        let (id, target) = (&fleet.id, fleet.target.total);
        if target != 0 {
            return refuse(format!("fleet {id} still wants {target}, and is not ended"));
        }
        let machines = self.described(&[id.as_str()], by).await?;
        let alive: Vec<_> = machines.iter().filter(|one| one.instance.life() == InstanceState::Running).collect();
        match alive.as_slice() {
            [] => Ok(self.api().fleet_members(id, by).await?.pop()),
            [one, ..] => {
                refuse(format!("fleet {id} still has {} members, as {}, and is not ended", alive.len(), one.id))
            }
        }
    }

    /// Asks for the end of a fleet, and of what it may be launching; whether EC2 does that.
    async fn ask_to_cancel(&self, fleet: &str, write: &Write) -> Result<Result<bool, CallError>, PortError> {
        let request = self.api().ec2.cancel_spot_fleet_requests().spot_fleet_request_ids(fleet);
        let request = request.terminate_instances(true).customize().config_override(once());
        let answer = self.api().write(Action::CancelSpotFleetRequests, write, request.send()).await?;
        Ok(answer.map(|answer| answer.unsuccessful_fleet_requests().is_empty()))
    }
}
