//! What is there of a pool: by its tags, as EC2 tells them.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{self, Filter};
use jiff::Timestamp;
use spot_core::cloud::InstanceState;
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::Instant;

use super::difference::{Existing, ExistingFleet, ExistingTemplate, ExistingVersion};
use super::node_pool::NodePool;
use super::request::{Machine, Request, last_of};
use super::sdk::whole;
use super::tags::{OWNED, tag};
use crate::action::Action;
use crate::error::CallError;
use crate::provider::describe::more;
use crate::provider::instance::FleetId;
use crate::provider::maintain;

impl NodePool {
    /// What is there of the pool, and what bears its name without being its own.
    ///
    /// # Errors
    /// When EC2 could not be asked. An answer in part is none.
    pub async fn existing(&self, by: Instant) -> Result<Existing, PortError> {
        let requests = self.requests(by).await?;
        let template = match self.template(by).await? {
            None => None,
            Some(template) => {
                let (id, ours) = (template.launch_template_id().unwrap_or_default(), self.owns(template.tags()));
                let versions = if ours { self.versions(id, by).await? } else { Vec::new() };
                let versions = versions.iter().filter_map(existing_version).collect();
                Some(ExistingTemplate { id: id.to_owned(), ours, versions })
            }
        };
        let versions = template.iter().flat_map(|template| &template.versions);
        let versions = versions.map(|version| (version.number.to_string(), version.description.clone())).collect();
        let fleets = requests.iter().filter_map(|request| self.existing_fleet(request, &versions)).collect();
        let mut existing = Existing { template, fleets };
        self.weigh(&mut existing.fleets, &requests, by).await?;
        Ok(existing)
    }

    /// Finds the lightest machine of each fleet that has more than it wants.
    async fn weigh(
        &self,
        fleets: &mut [ExistingFleet],
        requests: &[types::SpotFleetRequestConfig],
        by: Instant,
    ) -> Result<(), CallError> {
        let has_more = |fleet: &&mut ExistingFleet| fleet.ours && !fleet.has_ended && fleet.fulfilled > fleet.target;
        for fleet in fleets.iter_mut().filter(has_more) {
            let machines = self.described(&[&fleet.id], by).await?;
            let alive = machines.iter().filter(|machine| machine.instance.life() == InstanceState::Running);
            let kept = requests.iter().filter_map(maintain::Fleet::of_spot).find(|kept| kept.id.as_str() == fleet.id);
            fleet.lightest =
                kept.and_then(|kept| alive.filter_map(|machine| kept.weight(&machine.instance).ok()).min());
        }
        Ok(())
    }

    /// The requests that are the pool's, or bear its name, in the order of their creation.
    pub(super) async fn requests(&self, by: Instant) -> Result<Vec<types::SpotFleetRequestConfig>, CallError> {
        let mut requests = self.api().spot_fleet_requests(by).await?;
        let name = self.pool.full_name();
        let is_named = |tags: &[types::Tag]| value(tags, tag::NAME) == Some(name.as_str());
        requests.retain(|request| self.owns(request.tags()) || is_named(request.tags()));
        requests.sort_by_key(|request| (created(request), request.spot_fleet_request_id().map(str::to_owned)));
        Ok(requests)
    }

    /// A fleet that is the pool's own, as it is now; none if EC2 tells of none.
    ///
    /// # Errors
    /// Of class [`Permanent`](ErrorClass::Permanent) where it is somebody else's.
    pub(super) async fn own_fleet(&self, fleet: &str, by: Instant) -> Result<Option<maintain::Fleet>, PortError> {
        let requests = self.api().spot_fleet_requests(by).await?;
        let Some(request) = requests.iter().find(|request| request.spot_fleet_request_id() == Some(fleet)) else {
            return Ok(None);
        };
        if !self.owns(request.tags()) {
            return Err(self.foreign(&format!("fleet {fleet}")));
        }
        Ok(maintain::Fleet::of_spot(request))
    }

    /// Whether these are tags of the pool's own.
    pub(super) fn owns(&self, tags: &[types::Tag]) -> bool {
        value(tags, tag::POOL) == Some(self.pool.name.as_str())
            && value(tags, &tag::cluster(&self.pool.cluster)) == Some(OWNED)
    }

    /// That something is not the pool's own, and is left alone.
    pub(super) fn foreign(&self, what: &str) -> PortError {
        let (name, pool) = (self.pool.full_name(), &self.pool.name);
        let words = format!(
            "{what} bears the name {name}, and not the tags of pool {pool}: it was made by somebody else, and is left \
             alone; rename or remove it, or give the pool another name"
        );
        PortError::new(ErrorClass::Permanent, words)
    }

    fn existing_fleet(
        &self,
        request: &types::SpotFleetRequestConfig,
        versions: &BTreeMap<String, String>,
    ) -> Option<ExistingFleet> {
        let fleet = maintain::Fleet::of_spot(request)?;
        let fulfilled =
            request.spot_fleet_request_config().and_then(types::SpotFleetRequestConfigData::fulfilled_capacity);
        Some(ExistingFleet {
            id: request.spot_fleet_request_id()?.to_owned(),
            ours: self.owns(request.tags()),
            has_ended: fleet.has_ended(),
            is_settled: fleet.is_settled(),
            hash: value(request.tags(), tag::HASH).unwrap_or_default().to_owned(),
            target: fleet.target.total,
            fulfilled: fulfilled.map_or(0, whole),
            lightest: None,
            capacity: value(request.tags(), tag::CAPACITY).and_then(|units| units.parse().ok()),
            created: created(request),
            activity: request.activity_status().map(|activity| activity.as_str().to_owned()),
            request: Request::told(request, versions).map(|told| self.with_role_as_written(told)),
            state: fleet.state,
        })
    }

    /// EC2 tells the ARN of a role, where the pool may have its name, or the ARN of the time before.
    fn with_role_as_written(&self, told: Request) -> Request {
        let own = &self.pool.fleet_role;
        let is_same = last_of(&told.fleet_role) == last_of(own);
        let fleet_role = if is_same { own.clone() } else { told.fleet_role };
        Request { fleet_role, ..told }
    }

    /// The launch template of the pool's name.
    pub(super) async fn template(&self, by: Instant) -> Result<Option<types::LaunchTemplate>, CallError> {
        let name = Filter::builder().name("launch-template-name").values(self.pool.full_name()).build();
        let mut token = None;
        loop {
            let request = self.api().ec2.describe_launch_templates().filters(name.clone()).set_next_token(token);
            let page = self.api().call(Action::DescribeLaunchTemplates, by, request.send()).await?;
            token = more(page.next_token());
            let template = page.launch_templates.unwrap_or_default().pop();
            if template.is_some() || token.is_none() {
                return Ok(template);
            }
        }
    }

    /// The versions of a template; none if it is gone.
    pub(super) async fn versions(
        &self,
        template: &str,
        by: Instant,
    ) -> Result<Vec<types::LaunchTemplateVersion>, CallError> {
        let mut versions = Vec::new();
        let mut token = None;
        loop {
            let request = self.api().ec2.describe_launch_template_versions().launch_template_id(template);
            let request = request.set_next_token(token);
            let page = match self.api().call(Action::DescribeLaunchTemplateVersions, by, request.send()).await {
                Err(error) if error.is_not_found() => return Ok(Vec::new()),
                answer => answer?,
            };
            token = more(page.next_token());
            versions.extend(page.launch_template_versions.unwrap_or_default());
            if token.is_none() {
                return Ok(versions);
            }
        }
    }
}

fn existing_version(version: &types::LaunchTemplateVersion) -> Option<ExistingVersion> {
    let description = version.version_description().unwrap_or_default().to_owned();
    let machine = version.launch_template_data().and_then(Machine::told);
    Some(ExistingVersion { number: u64::try_from(version.version_number()?).ok()?, description, machine })
}

/// When a fleet was asked for. EC2 says it of each.
fn created(request: &types::SpotFleetRequestConfig) -> Timestamp {
    request.create_time().and_then(moment).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The fleet by its ID.
pub(super) fn spot(fleet: &str) -> FleetId {
    FleetId::Spot(fleet.to_owned())
}

/// The value of a tag.
pub(super) fn value<'t>(tags: &'t [types::Tag], key: &str) -> Option<&'t str> {
    tags.iter().find(|tag| tag.key() == Some(key)).and_then(types::Tag::value)
}

/// A moment of AWS'.
pub(super) fn moment(at: &aws_smithy_types::DateTime) -> Option<Timestamp> {
    Timestamp::new(at.secs(), i32::try_from(at.subsec_nanos()).ok()?).ok()
}
