//! A member of a fleet goes that no node names: it never joined, or its Node is gone.

use std::collections::BTreeSet;

use spot_core::claim::InstanceId;
use spot_core::cloud::{Deletion, InstanceState};
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::{Instant, Write};
use spot_core::reason::{Reason, ReasonKind};

use super::{Leaving, Next, Terminated, refusal};
use crate::provider::Aws;
use crate::provider::instance::{FleetId, Keeper};
use crate::provider::survey::Kept;

impl Aws {
    /// Has a member deleted that no node names, its fleet's target being lowered for it first.
    pub(crate) async fn terminate_member(
        &self,
        fleet: &FleetId,
        id: &InstanceId,
        write: &Write,
    ) -> Result<Deletion, PortError> {
        self.terminate_leaving(Leaving::Member(fleet), id.as_str(), write).await
    }

    /// Finds out what is to be done for it, and whether it may be.
    ///
    /// What an earlier process has lowered for it is told by what is there: the target is lowered where the other members
    /// are not enough for it, and not where they are.
    pub(super) async fn next_of_member(
        &self,
        fleet: &FleetId,
        id: &str,
        by: Instant,
        terminated: &Terminated,
    ) -> Result<Next, PortError> {
        let ids: BTreeSet<_> = [id.to_owned()].into();
        let known = self.learn_of(&ids, &ids, &ids, self.api.clock.instant(), by).await?;
        let refused = |kind, words: String| refusal(Leaving::Member(fleet), &Reason::Cloud(kind, words));
        let Some(instance) = known.instances.get(id) else { return Ok(Next::Nothing) };
        if instance.life() != InstanceState::Running {
            return Ok(Next::Nothing);
        }
        if instance.keeper != Keeper::Fleet(fleet.clone()) {
            return Err(refused(ReasonKind::IdentityMismatch, format!("EC2 does not say that {id} is one")));
        }
        let keeper = known.of_keeper.get(fleet.as_str()).into_iter().flatten();
        if let Some(reason) = known.of_instance.get(id).into_iter().flatten().chain(keeper).next() {
            let denied = known.denied && reason.kind() == ReasonKind::CloudUnreachable;
            let denied = denied.then(|| PortError::new(ErrorClass::Denied, reason.to_string()));
            return Err(denied.unwrap_or_else(|| refusal(Leaving::Member(fleet), reason)));
        }
        match known.keeper_of(id, instance) {
            Kept::Fleet(kept) => match kept.refusal() {
                None => self.next_of_fleet(kept, id, None, &known, terminated),
                Some(reason) if reason.kind() == ReasonKind::GroupRefreshing => Ok(Next::Await(kept.id.clone())),
                Some(reason) => Ok(Next::Short(reason)),
            },
            // Its fleet has ended, and launches nothing in its place.
            Kept::Nobody => Ok(Next::Plainly(None)),
            Kept::Group(_) | Kept::Detached(_) | Kept::Unasked => {
                Err(refused(ReasonKind::CloudUnreachable, format!("what keeps {id} could not be told")))
            }
        }
    }
}
