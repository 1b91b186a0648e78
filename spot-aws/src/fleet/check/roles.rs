//! The roles that fleets need.

use std::sync::Arc;

use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::Instant;

use super::{Finding, NodePool, Trouble};
use crate::action::Action;
use crate::fleet::{Missing, Roles, ServiceLinked};

impl NodePool {
    /// The role that the fleet is given, and those that AWS' own services have for themselves.
    pub(super) async fn check_roles(&self, by: Instant) -> Vec<Finding> {
        let (role, what) = (&self.pool.fleet_role, format!("fleet role {}", self.pool.fleet_role));
        let missing = match Roles::new(Arc::clone(&self.aws), role).missing(by).await {
            Ok(missing) => missing,
            Err(error) => return vec![Finding::new(what, Err(unanswered(error)))],
        };
        // Of a role that is not there, nothing else is to be said.
        let of_fleet = missing.iter().find(|one| !matches!(one, Missing::ServiceLinked(_)));
        let mut findings = vec![Finding::new(what, of_fleet.map_or(Ok(()), |one| Err(told(one))))];
        findings.extend(ServiceLinked::ALL.map(|own| {
            let missing = missing.iter().find(|one| **one == Missing::ServiceLinked(own));
            Finding::new(format!("service-linked role {}", own.name()), missing.map_or(Ok(()), |one| Err(told(one))))
        }));
        findings
    }
}

fn told(missing: &Missing) -> Trouble {
    let told = if missing.is_certain() { Trouble::new } else { Trouble::advice };
    told(missing.why(), missing.remedy())
}

fn unanswered(error: PortError) -> Trouble {
    let is_certain = error.class == ErrorClass::Permanent;
    let (why, remedy) = match error.class {
        ErrorClass::Denied => (
            "IAM may not be asked for it",
            format!("attach {} to the role or user that runs this, and see its credentials", Action::GetRole.policy()),
        ),
        ErrorClass::Transient | ErrorClass::Timeout | ErrorClass::NotLeader => {
            ("IAM did not say in time", "run it again in a minute".to_owned())
        }
        ErrorClass::Permanent => ("IAM would not say", "see its own words".to_owned()),
    };
    Trouble { cause: Some(error), is_certain, ..Trouble::new(why, remedy) }
}
