//! The roles without which no fleet launches anything: the one that a fleet is given, and the two that belong to AWS.
//!
//! IAM tells of changes late, often by some seconds. What was made is therefore waited for, and a role that can't be made
//! because it is there is taken for made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_smithy_types::retry::RetryConfig;
use serde::Serialize;
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::{Instant, Write};

use super::request::last_of;
use crate::action::Action;
use crate::client::Api;
use crate::error::{CallError, Kind};
use crate::provider::Aws;

mod trust;

/// The service that acts by a fleet's role.
const SERVICE: &str = "spotfleet.amazonaws.com";
/// What AWS wrote for it.
/// <https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonEC2SpotFleetTaggingRole.html>
const POLICY: &str = "AmazonEC2SpotFleetTaggingRole";
/// How often it is looked again for what IAM tells late.
const AGAIN: Duration = Duration::from_secs(2);

/// The roles that pools need in an account.
#[derive(Clone, Debug)]
pub struct Roles {
    aws: Arc<Aws>,
    /// As the pool has it: a name, or an ARN.
    fleet_role: String,
}

/// What fleets need of IAM and don't have. In its text, why it is needed and what helps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "missing")]
pub enum Missing {
    /// There is no such role.
    Role {
        /// Its name.
        name: String,
    },
    /// The role of this name is another one. That is not made good here.
    Other {
        /// The ARN that was given.
        wanted: String,
        /// The ARN of the role that has its name.
        found: String,
    },
    /// The role does not trust Spot Fleet. That is not made good here: whom a role trusts is its owner's to say.
    Trust {
        /// Its name.
        name: String,
    },
    /// The role has no rights at all.
    Policy {
        /// Its name.
        name: String,
    },
    /// Whether the role has the rights that Spot Fleet needs can't be told: it has others than AWS wrote, or they may not
    /// be read. Nothing is given to it here: what a role of somebody's may do is its owner's to say.
    Rights {
        /// Its name.
        name: String,
    },
    /// AWS' own role is not there yet.
    ServiceLinked(ServiceLinked),
}

/// A role that an AWS service has for itself, once an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "service")]
pub enum ServiceLinked {
    /// Of EC2, for spot instances.
    /// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html>
    Spot,
    /// Of Spot Fleet.
    /// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-service-linked-roles.html>
    SpotFleet,
}

impl Roles {
    /// The roles in the account of `aws`; `fleet_role` is the name or the ARN of the one that Spot Fleet acts by. Nothing
    /// is called.
    #[must_use]
    pub fn new(aws: Arc<Aws>, fleet_role: impl Into<String>) -> Self {
        Self { aws, fleet_role: fleet_role.into() }
    }

    /// What is missing, in the order in which it would be made; empty: nothing. Changes nothing.
    ///
    /// # Errors
    /// When IAM could not be asked.
    pub async fn missing(&self, by: Instant) -> Result<Vec<Missing>, PortError> {
        let mut missing = self.missing_of_fleet(by).await?;
        for role in ServiceLinked::ALL {
            if self.found(role.name(), by).await?.is_none() {
                missing.push(Missing::ServiceLinked(role));
            }
        }
        Ok(missing)
    }

    /// Makes what is missing, waits until IAM tells of it, and returns what it made. Idempotent: whatever is there
    /// already, by whoever's doing, is left as it is.
    ///
    /// # Errors
    /// When something is certainly missing that can't be made, before anything is made; when IAM refuses; when it does not tell in
    /// time of what was made.
    pub async fn create(&self, write: &Write) -> Result<Vec<Missing>, PortError> {
        let missing = self.missing(write.by).await?;
        Self::assert_possible(&missing)?;
        let mut made = Vec::new();
        for one in missing.into_iter().filter(Missing::is_certain) {
            if self.make(&one, write).await? {
                made.push(one);
            }
        }
        loop {
            let missing = self.missing(write.by).await?;
            // Somebody else may have made another one meanwhile.
            Self::assert_possible(&missing)?;
            let Some(one) = missing.iter().find(|one| one.is_certain()) else { return Ok(made) };
            if !self.api().pause(AGAIN, write.by).await {
                return Err(untold(one));
            }
        }
    }

    fn api(&self) -> &Api {
        &self.aws.api
    }

    fn name(&self) -> &str {
        last_of(&self.fleet_role)
    }

    fn assert_possible(missing: &[Missing]) -> Result<(), PortError> {
        match missing.iter().find(|one| one.is_certain() && !one.can_be_made()) {
            Some(one) => Err(PortError::new(ErrorClass::Permanent, one.to_string())),
            None => Ok(()),
        }
    }

    async fn missing_of_fleet(&self, by: Instant) -> Result<Vec<Missing>, PortError> {
        let name = self.name().to_owned();
        let Some(role) = self.found(&name, by).await? else {
            return Ok(vec![Missing::Role { name: name.clone() }, Missing::Policy { name }]);
        };
        if self.fleet_role.starts_with("arn:") && role.arn != self.fleet_role {
            return Ok(vec![Missing::Other { wanted: self.fleet_role.clone(), found: role.arn }]);
        }
        let mut missing = Vec::new();
        if !trust::holds(role.assume_role_policy_document.as_deref().unwrap_or_default(), SERVICE) {
            missing.push(Missing::Trust { name: name.clone() });
        }
        missing.extend(self.missing_rights(&name, &policy_beside(&role.arn), by).await?);
        Ok(missing)
    }

    async fn found(&self, name: &str, by: Instant) -> Result<Option<aws_sdk_iam::types::Role>, PortError> {
        let request = self.api().iam.get_role().role_name(name);
        match self.api().call(Action::GetRole, by, request.send()).await {
            Ok(answer) => Ok(answer.role),
            Err(error) if is_unknown(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What is missing of the rights of a role, as far as that can be told by the names of its policies.
    async fn missing_rights(&self, name: &str, policy: &str, by: Instant) -> Result<Option<Missing>, PortError> {
        let name = || name.to_owned();
        let (mut marker, mut has_others) = (None, false);
        loop {
            let request = self.api().iam.list_attached_role_policies().role_name(name()).set_marker(marker.take());
            let answer = match self.api().call(Action::ListAttachedRolePolicies, by, request.send()).await {
                Ok(answer) => answer,
                Err(error) if is_unknown(&error) => return Ok(Some(Missing::Policy { name: name() })),
                Err(error) if error.kind == Kind::Denied => return Ok(Some(Missing::Rights { name: name() })),
                Err(error) => return Err(error.into()),
            };
            if answer.attached_policies().iter().any(|attached| attached.policy_arn() == Some(policy)) {
                return Ok(None);
            }
            has_others |= !answer.attached_policies().is_empty();
            match answer.marker {
                Some(next) if answer.is_truncated => marker = Some(next),
                Some(_) | None if has_others => return Ok(Some(Missing::Rights { name: name() })),
                Some(_) | None => break,
            }
        }
        let request = self.api().iam.list_role_policies().role_name(name()).max_items(1);
        match self.api().call(Action::ListRolePolicies, by, request.send()).await {
            Ok(answer) if answer.policy_names().is_empty() => Ok(Some(Missing::Policy { name: name() })),
            Err(error) if is_unknown(&error) => Ok(Some(Missing::Policy { name: name() })),
            Err(error) if error.kind != Kind::Denied => Err(error.into()),
            Ok(_) | Err(_) => Ok(Some(Missing::Rights { name: name() })),
        }
    }

    /// Makes it; whether it was not there already.
    async fn make(&self, missing: &Missing, write: &Write) -> Result<bool, PortError> {
        let mut may_be_ours = false;
        loop {
            let error = match self.request(missing, write).await? {
                Ok(()) => return Ok(true),
                Err(error) if is_taken(&error) => return Ok(may_be_ours),
                Err(error) => error,
            };
            let is_late = is_late(&error);
            if !(error.may_pass() || is_late) {
                return Err(error.into());
            }
            if !self.api().pause(AGAIN, write.by).await {
                return Err(if is_late { untold(missing).caused_by(PortError::from(error)) } else { error.into() });
            }
            may_be_ours |= !error.had_no_effect();
        }
    }

    async fn request(&self, missing: &Missing, write: &Write) -> Result<Result<(), CallError>, PortError> {
        let iam = &self.api().iam;
        match missing {
            Missing::Role { name } => {
                let request = iam.create_role().role_name(name).assume_role_policy_document(trust::of(SERVICE));
                let request = request.description("Spot Fleet launches, tags and terminates instances by it.");
                self.write(Action::CreateRole, write, request.customize().config_override(once()).send()).await
            }
            Missing::Policy { name } => {
                // It is AWS' own, and in the same partition as the role.
                let Some(role) = self.found(name, write.by).await? else {
                    return Ok(Err(no_role(name)));
                };
                let request = iam.attach_role_policy().role_name(name).policy_arn(policy_beside(&role.arn));
                self.write(Action::AttachRolePolicy, write, request.customize().config_override(once()).send()).await
            }
            Missing::ServiceLinked(role) => {
                let request = iam.create_service_linked_role().aws_service_name(role.principal());
                let request = request.customize().config_override(once());
                self.write(Action::CreateServiceLinkedRole, write, request.send()).await
            }
            Missing::Other { .. } | Missing::Trust { .. } | Missing::Rights { .. } => {
                Err(PortError::new(ErrorClass::Permanent, missing.to_string()))
            }
        }
    }

    async fn write<T, E>(
        &self,
        action: Action,
        write: &Write,
        request: impl Future<Output = Result<T, SdkError<E, Response>>>,
    ) -> Result<Result<(), CallError>, PortError>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        Ok(self.api().write(action, write, request).await?.map(drop))
    }
}

impl Missing {
    /// Whether [`create`](Roles::create) makes it.
    #[must_use]
    pub const fn can_be_made(&self) -> bool {
        match self {
            Self::Role { .. } | Self::Policy { .. } | Self::ServiceLinked(_) => true,
            Self::Other { .. } | Self::Trust { .. } | Self::Rights { .. } => false,
        }
    }

    /// Whether no fleet could launch anything without it, and it is not just unknown.
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        !matches!(self, Self::Rights { .. })
    }

    /// What is missing, and why it is needed.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::Role { name } => format!(
                "role {name} is missing, by which Spot Fleet launches, tags and terminates machines for this account"
            ),
            Self::Other { wanted, found } => {
                format!("role {wanted} is not in this account, where the role of that name is {found}")
            }
            Self::Trust { name } => {
                format!("role {name} does not trust {SERVICE}, so that Spot Fleet can't act by it")
            }
            Self::Policy { name } => format!(
                "role {name} lacks AWS' policy {POLICY}, without which Spot Fleet may not launch, tag and terminate machines"
            ),
            Self::Rights { name } => format!(
                "whether role {name} may launch, tag and terminate machines can't be told: AWS' policy {POLICY} is not \
                 among those that are attached to it, or these may not be read (iam:ListAttachedRolePolicies, \
                 iam:ListRolePolicies)"
            ),
            Self::ServiceLinked(role) => {
                format!("role {} is missing in this account, by which {}", role.name(), role.purpose())
            }
        }
    }

    /// What helps.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Role { name } | Self::Policy { name } => format!("run `spot-fleet create-role --name {name}`"),
            Self::Other { .. } => "correct `fleetRole`".to_owned(),
            Self::Trust { .. } => {
                "add that service to its trust policy, or name another role in `fleetRole`".to_owned()
            }
            Self::Rights { .. } => "attach that policy, or see that its own allow the same".to_owned(),
            Self::ServiceLinked(_) => "run `spot-fleet create-role`".to_owned(),
        }
    }

    /// What is done to make it, in a few words: `create role x`.
    #[must_use]
    pub fn step(&self) -> String {
        match self {
            Self::Role { name } => format!("create role {name}, which trusts {SERVICE}"),
            Self::Policy { name } => format!("attach AWS' policy {POLICY} to role {name}"),
            Self::ServiceLinked(role) => format!("create service-linked role {} of {}", role.name(), role.principal()),
            Self::Other { .. } | Self::Trust { .. } | Self::Rights { .. } => self.to_string(),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.why(), self.remedy())
    }
}

impl ServiceLinked {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Spot, Self::SpotFleet];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spot => "AWSServiceRoleForEC2Spot",
            Self::SpotFleet => "AWSServiceRoleForEC2SpotFleet",
        }
    }

    /// The service that has it.
    #[must_use]
    pub const fn principal(self) -> &'static str {
        match self {
            Self::Spot => "spot.amazonaws.com",
            Self::SpotFleet => SERVICE,
        }
    }

    const fn purpose(self) -> &'static str {
        match self {
            Self::Spot => "EC2 launches spot instances and takes them back",
            Self::SpotFleet => "Spot Fleet keeps its instances and their load balancers",
        }
    }
}

/// The ARN of AWS' policy in the partition of this role.
fn policy_beside(role: &str) -> String {
    let partition = role.split(':').nth(1).unwrap_or("aws");
    format!("arn:{partition}:iam::aws:policy/service-role/{POLICY}")
}

/// Without the SDK's own repetitions: else one would be refused because of the one before.
fn once() -> aws_sdk_iam::config::Builder {
    aws_sdk_iam::Config::builder().retry_config(RetryConfig::disabled())
}

fn is_unknown(error: &CallError) -> bool {
    error.code == "NoSuchEntity"
}

fn is_taken(error: &CallError) -> bool {
    error.code == "EntityAlreadyExists" || (error.code == "InvalidInput" && error.words.contains("has been taken"))
}

/// Whether IAM does not know yet what it will know soon.
fn is_late(error: &CallError) -> bool {
    is_unknown(error) || error.code == "ConcurrentModification"
}

/// That there was not enough time for IAM to tell.
fn untold(missing: &Missing) -> PortError {
    let what = format!("IAM does not tell yet of what was made: run it again; it still says that {missing}");
    PortError::new(ErrorClass::Timeout, what)
}

/// That a policy can't be given to a role before the role is told.
fn no_role(name: &str) -> CallError {
    let words = format!("IAM does not tell of role {name}");
    CallError { action: Action::GetRole, kind: Kind::Refused, code: "NoSuchEntity".to_owned(), words }
}
