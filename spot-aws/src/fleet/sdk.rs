//! What a pool asks for in the types of EC2's SDK, and what EC2 tells of it back in ours.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types;
use aws_smithy_types::base64;

use super::request::{Launches, Machine, Metadata, Override, Replacement, Request, Root, price};
use super::tags::tag;

impl Machine {
    /// As a launch template holds it.
    pub(super) fn data(&self) -> types::RequestLaunchTemplateData {
        let profile = types::LaunchTemplateIamInstanceProfileSpecificationRequest::builder();
        let profile = match &self.instance_profile {
            arn if arn.starts_with("arn:") => profile.arn(arn),
            name => profile.name(name),
        };
        let tagged = |kind: types::ResourceType| {
            let tags = tags(&self.tags);
            types::LaunchTemplateTagSpecificationRequest::builder().resource_type(kind).set_tags(Some(tags)).build()
        };
        types::RequestLaunchTemplateData::builder()
            .image_id(&self.image)
            .set_key_name(self.ssh_key.clone())
            .iam_instance_profile(profile.build())
            .set_security_group_ids(Some(self.security_groups.iter().cloned().collect()))
            .metadata_options(self.metadata.options())
            .block_device_mappings(self.root_volume.mapping())
            .tag_specifications(tagged(types::ResourceType::Instance))
            .tag_specifications(tagged(types::ResourceType::Volume))
            .user_data(base64::encode(&self.user_data))
            .build()
    }

    /// As EC2 tells of a version. None if it holds no root volume, or user data that is no text: it is none of ours.
    pub(super) fn told(data: &types::ResponseLaunchTemplateData) -> Option<Self> {
        let profile = data.iam_instance_profile();
        let user_data = base64::decode(data.user_data().unwrap_or_default()).ok()?;
        let of_instance =
            |one: &&types::LaunchTemplateTagSpecification| one.resource_type() == Some(&types::ResourceType::Instance);
        Some(Self {
            image: text(data.image_id()),
            ssh_key: data.key_name().map(str::to_owned),
            instance_profile: text(profile.and_then(|profile| profile.arn().or_else(|| profile.name()))),
            security_groups: data.security_group_ids().iter().cloned().collect(),
            metadata: data.metadata_options().map(Metadata::told)?,
            root_volume: data.block_device_mappings().iter().find_map(Root::told)?,
            tags: data.tag_specifications().iter().find(of_instance).map(|one| texts(one.tags())).unwrap_or_default(),
            user_data: String::from_utf8(user_data).ok()?,
        })
    }
}

impl Metadata {
    fn options(&self) -> types::LaunchTemplateInstanceMetadataOptionsRequest {
        types::LaunchTemplateInstanceMetadataOptionsRequest::builder()
            .http_endpoint(self.endpoint.as_str().into())
            .http_tokens(self.tokens.as_str().into())
            .http_put_response_hop_limit(number(self.hop_limit))
            .instance_metadata_tags(self.instance_tags.as_str().into())
            .build()
    }

    fn told(options: &types::LaunchTemplateInstanceMetadataOptions) -> Self {
        Self {
            endpoint: text(options.http_endpoint().map(types::LaunchTemplateInstanceMetadataEndpointState::as_str)),
            tokens: text(options.http_tokens().map(types::LaunchTemplateHttpTokensState::as_str)),
            hop_limit: size(options.http_put_response_hop_limit()),
            instance_tags: text(
                options.instance_metadata_tags().map(types::LaunchTemplateInstanceMetadataTagsState::as_str),
            ),
        }
    }
}

impl Root {
    fn mapping(&self) -> types::LaunchTemplateBlockDeviceMappingRequest {
        let volume = types::LaunchTemplateEbsBlockDeviceRequest::builder()
            .volume_type(self.kind.as_str().into())
            .volume_size(number(self.size))
            .set_iops(self.iops.map(number))
            .set_throughput(self.throughput.map(number))
            .encrypted(self.encrypted)
            .set_kms_key_id(self.kms_key.clone())
            .delete_on_termination(self.delete_on_termination)
            .build();
        types::LaunchTemplateBlockDeviceMappingRequest::builder().device_name(&self.device).ebs(volume).build()
    }

    fn told(mapping: &types::LaunchTemplateBlockDeviceMapping) -> Option<Self> {
        let volume = mapping.ebs()?;
        Some(Self {
            device: mapping.device_name()?.to_owned(),
            kind: volume.volume_type()?.as_str().to_owned(),
            size: size(volume.volume_size()),
            iops: volume.iops().map(|iops| size(Some(iops))),
            throughput: volume.throughput().map(|throughput| size(Some(throughput))),
            encrypted: volume.encrypted().unwrap_or_default(),
            kms_key: volume.kms_key_id().map(str::to_owned),
            delete_on_termination: volume.delete_on_termination().unwrap_or_default(),
        })
    }
}

/// What a request says that its pool does not: the numbers of versions, the ARN of the role, and how much is wanted.
#[derive(Clone, Debug)]
pub(super) struct Terms<'a> {
    pub(super) token: String,
    pub(super) template: &'a str,
    /// Versions by their descriptions.
    pub(super) versions: &'a BTreeMap<String, i64>,
    pub(super) role: String,
    pub(super) target: u32,
    pub(super) capacity: u32,
}

impl Request {
    /// As EC2 is asked for it.
    pub(super) fn config(&self, terms: &Terms<'_>) -> types::SpotFleetRequestConfigData {
        let Terms { token, template, versions, role, target, capacity } = terms;
        let launches = self.launches.iter().map(|launches| launches.config(template, versions)).collect();
        let mut own = tags(&self.tags);
        own.push(types::Tag::builder().key(tag::CAPACITY).value(capacity.to_string()).build());
        let own = types::TagSpecification::builder()
            .resource_type(types::ResourceType::SpotFleetRequest)
            .set_tags(Some(own))
            .build();
        types::SpotFleetRequestConfigData::builder()
            .client_token(token)
            .r#type(self.kind.as_str().into())
            .iam_fleet_role(role)
            .allocation_strategy(self.allocation_strategy.as_str().into())
            .excess_capacity_termination_policy(self.excess_capacity_termination.as_str().into())
            .instance_interruption_behavior(self.interruption.as_str().into())
            .replace_unhealthy_instances(self.replace_unhealthy)
            .set_spot_maintenance_strategies(self.capacity_rebalance.as_ref().map(Replacement::strategies))
            .set_launch_template_configs(Some(launches))
            .set_load_balancers_config(self.balancers())
            .target_capacity(number(*target))
            .tag_specifications(own)
            .build()
    }

    fn balancers(&self) -> Option<types::LoadBalancersConfig> {
        let classic = self.load_balancers.iter().map(|name| types::ClassicLoadBalancer::builder().name(name).build());
        let classic = types::ClassicLoadBalancersConfig::builder().set_classic_load_balancers(Some(classic.collect()));
        let groups = self.target_groups.iter().map(|arn| types::TargetGroup::builder().arn(arn).build());
        let groups = types::TargetGroupsConfig::builder().set_target_groups(Some(groups.collect()));
        let config = types::LoadBalancersConfig::builder()
            .set_classic_load_balancers_config((!self.load_balancers.is_empty()).then(|| classic.build()))
            .set_target_groups_config((!self.target_groups.is_empty()).then(|| groups.build()));
        (!self.load_balancers.is_empty() || !self.target_groups.is_empty()).then(|| config.build())
    }

    /// As EC2 tells of it. `versions` are the descriptions of versions by their numbers.
    pub(super) fn told(request: &types::SpotFleetRequestConfig, versions: &BTreeMap<String, String>) -> Option<Self> {
        let config = request.spot_fleet_request_config()?;
        let balancers = config.load_balancers_config();
        let classic = balancers.and_then(types::LoadBalancersConfig::classic_load_balancers_config);
        let classic = classic.map(types::ClassicLoadBalancersConfig::classic_load_balancers).unwrap_or_default();
        let groups = balancers.and_then(types::LoadBalancersConfig::target_groups_config);
        let groups = groups.map(types::TargetGroupsConfig::target_groups).unwrap_or_default();
        let rebalance = config.spot_maintenance_strategies().and_then(|strategies| strategies.capacity_rebalance());
        let mut tags = texts(request.tags());
        tags.remove(tag::CAPACITY);
        Some(Self {
            kind: text(config.r#type().map(types::FleetType::as_str)),
            fleet_role: text(config.iam_fleet_role()),
            allocation_strategy: text(config.allocation_strategy().map(types::AllocationStrategy::as_str)),
            excess_capacity_termination: text(
                config.excess_capacity_termination_policy().map(types::ExcessCapacityTerminationPolicy::as_str),
            ),
            interruption: text(
                config.instance_interruption_behavior().map(types::InstanceInterruptionBehavior::as_str),
            ),
            replace_unhealthy: config.replace_unhealthy_instances().unwrap_or_default(),
            capacity_rebalance: rebalance.map(|rebalance| Replacement {
                strategy: text(rebalance.replacement_strategy().map(types::ReplacementStrategy::as_str)),
                termination_delay: rebalance.termination_delay().map(|delay| size(Some(delay))),
            }),
            launches: config.launch_template_configs().iter().map(|one| Launches::told(one, versions)).collect(),
            load_balancers: classic.iter().filter_map(|one| one.name().map(str::to_owned)).collect::<BTreeSet<_>>(),
            target_groups: groups.iter().filter_map(|one| one.arn().map(str::to_owned)).collect::<BTreeSet<_>>(),
            tags,
        })
    }
}

impl Launches {
    fn config(&self, template: &str, versions: &BTreeMap<String, i64>) -> types::LaunchTemplateConfig {
        let version = versions.get(&self.version).map(ToString::to_string);
        let template = types::FleetLaunchTemplateSpecification::builder()
            .launch_template_id(template)
            .set_version(version)
            .build();
        let overrides = self.overrides.iter().map(Override::spec).collect();
        types::LaunchTemplateConfig::builder()
            .launch_template_specification(template)
            .set_overrides(Some(overrides))
            .build()
    }

    fn told(config: &types::LaunchTemplateConfig, versions: &BTreeMap<String, String>) -> Self {
        let number = config.launch_template_specification().and_then(|template| template.version()).unwrap_or_default();
        Self {
            version: versions.get(number).cloned().unwrap_or_else(|| number.to_owned()),
            overrides: config.overrides().iter().map(Override::told).collect(),
        }
    }
}

impl Override {
    fn spec(&self) -> types::LaunchTemplateOverrides {
        types::LaunchTemplateOverrides::builder()
            .instance_type(self.instance_type.as_str().into())
            .subnet_id(&self.subnet)
            .weighted_capacity(f64::from(self.weight))
            .set_spot_price(self.max_price.clone())
            .build()
    }

    fn told(told: &types::LaunchTemplateOverrides) -> Self {
        Self {
            instance_type: told.instance_type().map(|kind| kind.as_str().to_owned()).unwrap_or_default(),
            subnet: told.subnet_id().unwrap_or_default().to_owned(),
            weight: told.weighted_capacity().map_or(1, whole),
            max_price: told.spot_price().map(price),
        }
    }
}

impl Replacement {
    fn strategies(&self) -> types::SpotMaintenanceStrategies {
        let rebalance = types::SpotCapacityRebalance::builder()
            .replacement_strategy(self.strategy.as_str().into())
            .set_termination_delay(self.termination_delay.map(number))
            .build();
        types::SpotMaintenanceStrategies::builder().capacity_rebalance(rebalance).build()
    }
}

/// Tags in the SDK's types.
pub(super) fn tags(tags: &BTreeMap<String, String>) -> Vec<types::Tag> {
    tags.iter().map(|(key, value)| types::Tag::builder().key(key).value(value).build()).collect()
}

fn texts(tags: &[types::Tag]) -> BTreeMap<String, String> {
    tags.iter().filter_map(|tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned()))).collect()
}

/// A number of ours. None that is valid is too large.
pub(super) fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn text(value: Option<&str>) -> String {
    value.unwrap_or_default().to_owned()
}

fn size(number: Option<i32>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

/// Units: all weights are whole, but EC2 tells them, and what they add up to, as numbers with a fraction.
pub(super) fn whole(units: f64) -> u32 {
    format!("{units:.0}").parse().unwrap_or_default()
}
