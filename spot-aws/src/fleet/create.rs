//! A pool's launch template, its versions and its fleet are brought about, as far as they are missing.
//!
//! Each step finds out anew what is there, and each request bears a token that is the same for the same request: whoever
//! is killed in between, at any moment, and starts again, gets what was made before. No fleet is asked for twice.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_ec2::types;
use aws_smithy_types::DateTime;
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::{Instant, Write};

use super::cause::explained;
use super::difference::Existing;
use super::node_pool::NodePool;
use super::request::{Launch, Version};
use super::role::Missing;
use super::sdk::{Terms, tags};
use crate::action::Action;
use crate::client::once;
use crate::error::CallError;

/// How often a request is made again, and what was made is looked for: describes are late by seconds.
const AGAIN: Duration = Duration::from_secs(2);
/// How late describes tell of a fleet, at most. One that is not told after that has ended so long ago that EC2 has forgotten
/// it, but not yet the token that it was asked for with.
const LATE: Duration = Duration::from_mins(1);

/// The fleet that is what a pool asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Ensured {
    /// Its ID.
    pub fleet: String,
    /// Whether it was asked for just now.
    pub created: bool,
}

/// A launch template, with the numbers of the versions that are needed, by their descriptions.
struct Made {
    template: String,
    versions: BTreeMap<String, i64>,
}

impl NodePool {
    /// Makes the launch template, its versions and the fleet, as far as they are missing: `target` is what a new fleet
    /// wants, `capacity` what the pool as a whole does. A fleet that is there is left as it is. Idempotent. Done when EC2
    /// tells of the fleet.
    ///
    /// # Errors
    /// When something of the pool's name is somebody else's, before anything is made; when EC2 refuses, in words that say
    /// why and what helps; when it does not tell of the fleet in time.
    pub async fn ensure(
        &self,
        launch: &Launch,
        target: u32,
        capacity: u32,
        write: &Write,
    ) -> Result<Ensured, PortError> {
        let existing = self.existing(write.by).await?;
        self.assert_nothing_foreign(&existing)?;
        if let Some(fleet) = existing.current(&launch.hash) {
            // Without a look at its template: it names a version by its number, and another one would not help it.
            return Ok(Ensured { fleet: fleet.id.clone(), created: false });
        }
        let role = self.role_arn(write.by).await?;
        let mut ended = existing.ended(&launch.hash).map(str::to_owned);
        let Made { template, versions } = self.ensure_template(launch, ended.as_deref(), write).await?;
        let mut asked: Option<(String, Instant)> = None;
        let mut forgotten = None;
        loop {
            let terms = Terms {
                token: launch.token(ended.as_deref()),
                template: &template,
                versions: &versions,
                role: role.clone(),
                target,
                capacity,
            };
            let error = match &asked {
                Some((fleet, _)) => untold(fleet),
                None => match self.request(launch, &terms, write).await? {
                    Ok(fleet) => {
                        let error = untold(&fleet);
                        asked = Some((fleet, self.api().clock.instant()));
                        error
                    }
                    Err(error) if is_untold(&error) => explained(error),
                    Err(error) if error.may_pass() => error.into(),
                    Err(error) => return Err(explained(error)),
                },
            };
            let existing = self.existing(write.by).await?;
            self.assert_nothing_foreign(&existing)?;
            if let Some(fleet) = existing.current(&launch.hash) {
                return Ok(Ensured { fleet: fleet.id.clone(), created: asked.is_some() });
            }
            // Fleets that have ended are told late too, and EC2 still knows the tokens that they were asked for with.
            let has_ended = |asked: &String| existing.fleets.iter().any(|fleet| fleet.id == *asked && fleet.has_ended);
            asked = asked.filter(|(asked, _)| !has_ended(asked));
            // Those that ended long ago are not told at all.
            if let Some((fleet, at)) = &asked
                && self.api().clock.instant() >= *at + LATE
                && self.is_unknown(fleet, write.by).await?
            {
                forgotten = asked.take().map(|(fleet, _)| fleet);
            }
            ended = forgotten.clone().or_else(|| existing.ended(&launch.hash).map(str::to_owned));
            if !self.api().pause(AGAIN, write.by).await {
                return Err(error);
            }
        }
    }

    /// Whether EC2 knows nothing of a fleet, even by its ID.
    async fn is_unknown(&self, fleet: &str, by: Instant) -> Result<bool, CallError> {
        let request = self.api().ec2.describe_spot_fleet_request_history().spot_fleet_request_id(fleet);
        let request = request.start_time(DateTime::from_secs(self.api().clock.now().as_second()));
        match self.api().call(Action::DescribeSpotFleetRequestHistory, by, request.send()).await {
            Ok(_) => Ok(false),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// That nothing of the pool's name is somebody else's.
    fn assert_nothing_foreign(&self, existing: &Existing) -> Result<(), PortError> {
        if let Some(template) = existing.template.as_ref().filter(|template| !template.ours) {
            return Err(self.foreign(&format!("launch template {}", template.id)));
        }
        match existing.fleets.iter().find(|fleet| !fleet.ours && !fleet.has_ended) {
            Some(fleet) => Err(self.foreign(&format!("fleet {}", fleet.id))),
            None => Ok(()),
        }
    }

    /// `youngest` is the youngest of the fleets that launched the same: what of the template is missing since is made anew.
    async fn ensure_template(&self, launch: &Launch, youngest: Option<&str>, write: &Write) -> Result<Made, PortError> {
        let (first, rest) =
            launch.template.versions.split_first().ok_or_else(|| {
                PortError::new(ErrorClass::Permanent, "the pool has no `launchSpecifications`: add one")
            })?;
        let mut made = self.ensure_first(launch, first, write).await?;
        for version in [first].into_iter().chain(rest) {
            if !made.versions.contains_key(&version.description) {
                let number = self.add_version(launch, &made.template, version, youngest, write).await?;
                made.versions.insert(version.description.clone(), number);
            }
        }
        Ok(made)
    }

    /// The launch template as it is, or a new one with a first version.
    async fn ensure_first(&self, launch: &Launch, first: &Version, write: &Write) -> Result<Made, PortError> {
        loop {
            if let Some(template) = self.template(write.by).await? {
                let id = template.launch_template_id().unwrap_or_default();
                if !self.owns(template.tags()) {
                    return Err(self.foreign(&format!("launch template {id}")));
                }
                let told = self.versions(id, write.by).await?;
                let described = |version: &types::LaunchTemplateVersion| {
                    Some((version.version_description()?.to_owned(), version.version_number()?))
                };
                return Ok(Made { template: id.to_owned(), versions: told.iter().filter_map(described).collect() });
            }
            let own = types::TagSpecification::builder()
                .resource_type(types::ResourceType::LaunchTemplate)
                .set_tags(Some(tags(&launch.template.tags)))
                .build();
            let request = self.api().ec2.create_launch_template().launch_template_name(&launch.template.name);
            // Without a token: its name is unique, and one that was deleted is not answered for.
            let request = request.tag_specifications(own);
            let request = request.version_description(&first.description).launch_template_data(first.machine.data());
            let request = request.customize().config_override(once());
            let error = match self.api().write(Action::CreateLaunchTemplate, write, request.send()).await? {
                Ok(answer) => match answer.launch_template().and_then(types::LaunchTemplate::launch_template_id) {
                    Some(id) => {
                        let versions = [(first.description.clone(), 1)].into();
                        return Ok(Made { template: id.to_owned(), versions });
                    }
                    None => PortError::new(ErrorClass::Transient, "EC2 did not name the launch template that it made"),
                },
                // Of our own making, or somebody else's: that shows when it is told of.
                Err(error) if is_untold(&error) || error.code.contains("AlreadyExists") => explained(error),
                Err(error) if error.may_pass() => error.into(),
                Err(error) => return Err(explained(error)),
            };
            if !self.api().pause(AGAIN, write.by).await {
                return Err(error);
            }
        }
    }

    /// A version that EC2 does not tell of; its number.
    async fn add_version(
        &self,
        launch: &Launch,
        template: &str,
        version: &Version,
        youngest: Option<&str>,
        write: &Write,
    ) -> Result<i64, PortError> {
        // What was asked for of a template that is gone is no version of this one.
        let within = format!("{template} {}", youngest.unwrap_or_default());
        loop {
            let request = self.api().ec2.create_launch_template_version().launch_template_id(template);
            let request = request.client_token(launch.version_token(version, Some(&within)));
            let request = request.version_description(&version.description);
            let request = request.launch_template_data(version.machine.data());
            let request = request.customize().config_override(once());
            let error = match self.api().write(Action::CreateLaunchTemplateVersion, write, request.send()).await? {
                Ok(answer) => {
                    match answer.launch_template_version().and_then(types::LaunchTemplateVersion::version_number) {
                        Some(number) => return Ok(number),
                        None => PortError::new(ErrorClass::Transient, "EC2 did not number the version that it made"),
                    }
                }
                Err(error) if error.may_pass() => error.into(),
                Err(error) => return Err(explained(error)),
            };
            if !self.api().pause(AGAIN, write.by).await {
                return Err(error);
            }
        }
    }

    async fn request(
        &self,
        launch: &Launch,
        terms: &Terms<'_>,
        write: &Write,
    ) -> Result<Result<String, CallError>, PortError> {
        let request = self.api().ec2.request_spot_fleet().spot_fleet_request_config(launch.request.config(terms));
        let request = request.customize().config_override(once());
        let answer = self.api().write(Action::RequestSpotFleet, write, request.send()).await?;
        Ok(answer.map(|answer| answer.spot_fleet_request_id.unwrap_or_default()))
    }

    /// The ARN of the fleet's role: EC2 wants no name.
    pub(super) async fn role_arn(&self, by: Instant) -> Result<String, PortError> {
        let role = &self.pool.fleet_role;
        if role.starts_with("arn:") {
            return Ok(role.clone());
        }
        let request = self.api().iam.get_role().role_name(role);
        match self.api().call(Action::GetRole, by, request.send()).await {
            Ok(answer) => Ok(answer.role.map(|role| role.arn).unwrap_or_default()),
            Err(error) if error.code == "NoSuchEntity" => {
                let missing = Missing::Role { name: role.clone() }.to_string();
                Err(PortError::new(ErrorClass::Permanent, missing).caused_by(PortError::from(error)))
            }
            Err(error) => Err(explained(error)),
        }
    }
}

fn untold(fleet: &str) -> PortError {
    let what = format!("fleet {fleet} was asked for, and EC2 does not tell of it yet: run it again");
    PortError::new(ErrorClass::Timeout, what)
}

/// Whether it says that something is there, or is not, which describes tell late.
fn is_untold(error: &CallError) -> bool {
    error.code == "IdempotentParameterMismatch" || (error.code.contains("LaunchTemplate") && error.is_not_found())
}
