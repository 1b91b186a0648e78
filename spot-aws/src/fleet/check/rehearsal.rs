//! What EC2 says that it would do: dry runs of the fleet's request, and of a launch of one machine.

use std::collections::BTreeMap;

use aws_sdk_ec2::types;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use futures::future::{self, FutureExt as _};
use spot_core::ports::Instant;

use super::{Finding, NodePool, Trouble};
use crate::action::Action;
use crate::error::{CallError, Kind};
use crate::fleet::cause::Cause;
use crate::fleet::image::Image;
use crate::fleet::request::{Launch, Machine, Metadata, Override, Root};
use crate::fleet::sdk::{Terms, number, tags};

/// The most launch specifications of one request.
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/fleet-quotas.html>
const SPECIFICATIONS: usize = 50;
/// The right to hand a role to a service.
const PASS_ROLE: &str = "iam:PassRole";

impl NodePool {
    /// What EC2 says of the fleet's request and of one machine. Without a root device there is nothing to ask about.
    pub(super) async fn rehearse(&self, image: &Image, by: Instant) -> Vec<Finding> {
        let Some(device) = image.device(self.pool.root_volume.device.as_ref()) else { return Vec::new() };
        let launch = Launch::of(&self.pool, device);
        let (fleet, machine) = (self.rehearse_fleet(&launch, by).boxed(), self.rehearse_machine(&launch, by).boxed());
        let (fleet, machine) = future::join(fleet, machine).await;
        fleet.into_iter().chain(machine).collect()
    }

    /// None without the role, which has a finding of its own.
    async fn rehearse_fleet(&self, launch: &Launch, by: Instant) -> Option<Finding> {
        let role = self.role_arn(by).await.ok()?;
        let (target, versions) = (self.pool.target_capacity, BTreeMap::new());
        let terms = Terms { token: String::new(), template: "", versions: &versions, role, target, capacity: target };
        let mut config = launch.request.config(&terms);
        // The launch template is not there yet: the same, said without one.
        config.client_token = None;
        config.launch_template_configs = None;
        config.launch_specifications = Some(offers(launch).take(SPECIFICATIONS).map(specification).collect());
        let request = self.api().ec2.request_spot_fleet().spot_fleet_request_config(config).dry_run(true);
        let answer = self.api().call(Action::RequestSpotFleet, by, agreed(request.send()).boxed()).await;
        Some(Finding::new("the fleet, by a dry run", answer.map_err(|error| self.told(error))))
    }

    /// On demand: a launch on spot would need a right more, which the fleet's role has, and we have no use for.
    async fn rehearse_machine(&self, launch: &Launch, by: Instant) -> Option<Finding> {
        let (machine, offer) = offers(launch).next()?;
        let tagged = |kind: types::ResourceType| {
            types::TagSpecification::builder().resource_type(kind).set_tags(Some(tags(&machine.tags))).build()
        };
        let request = self.api().ec2.run_instances().min_count(1).max_count(1).dry_run(true);
        let request = request
            .image_id(&machine.image)
            .instance_type(offer.instance_type.as_str().into())
            .subnet_id(&offer.subnet)
            .set_security_group_ids(Some(machine.security_groups.iter().cloned().collect()))
            .set_key_name(machine.ssh_key.clone())
            .iam_instance_profile(profile(machine))
            // Organisations ask for tokens and encryption.
            .metadata_options(metadata(&machine.metadata))
            .block_device_mappings(volume(&machine.root_volume))
            .tag_specifications(tagged(types::ResourceType::Instance))
            .tag_specifications(tagged(types::ResourceType::Volume));
        let answer = self.api().call(Action::RunInstances, by, agreed(request.send()).boxed()).await;
        Some(Finding::new("a machine, by a dry run", answer.map_err(|error| self.told(error))))
    }

    /// What it means that EC2 would not.
    fn told(&self, error: CallError) -> Trouble {
        let (policy, words) = (error.action.policy(), format!("{}: {}", error.code, error.words));
        let trouble = match error.kind {
            Kind::Denied if let Some(by) = forbidding(&words) => {
                let why = format!("{} is forbidden by {by}", denied(&error));
                let remedy = format!(
                    "{policy} does not help, ask whoever keeps that one; `spot-fleet plan` shows what is asked for"
                );
                // What is forbidden to a machine on demand may be allowed to one on spot.
                if error.action == Action::RunInstances {
                    Trouble::advice(why, remedy)
                } else {
                    Trouble::new(why, remedy)
                }
            }
            Kind::Denied if words.contains(PASS_ROLE) => Trouble::new(
                format!("the right {PASS_ROLE} on {} is missing", self.passed(&error)),
                format!(
                    "attach {policy} to the role or user that runs this, with the names of both roles of the pool in it"
                ),
            ),
            Kind::Denied => {
                let why = format!("the right {} is missing", denied(&error));
                Trouble::new(why, format!("attach {policy} to the role or user that runs this"))
            }
            Kind::Refused => match Cause::named_in(&words).and_then(|cause| cause.said().split_once(": ")) {
                Some((why, remedy)) => Trouble::new(why, remedy),
                None => Trouble::new("EC2 would refuse it", "see its own words"),
            },
            Kind::Throttled | Kind::Unavailable | Kind::Timeout | Kind::Credentials => {
                return Trouble::unanswered(error);
            }
        };
        trouble.caused_by(error)
    }

    /// The role that may not be handed over: as EC2 says, or else as the pool does.
    fn passed(&self, error: &CallError) -> String {
        let told = error.words.split_once("on resource: ").and_then(|(_, rest)| rest.split_whitespace().next());
        told.map_or_else(
            || format!("role {} and the role of instance profile {}", self.pool.fleet_role, self.pool.instance_profile),
            str::to_owned,
        )
    }
}

/// What is launched of each version in each place.
fn offers(launch: &Launch) -> impl Iterator<Item = (&Machine, &Override)> {
    let machine = |version: &str| launch.template.versions.iter().find(|one| one.description == version);
    launch.request.launches.iter().flat_map(move |launches| {
        let machine = machine(&launches.version).map(|version| &version.machine);
        machine.into_iter().flat_map(|machine| launches.overrides.iter().map(move |offer| (machine, offer)))
    })
}

fn specification((machine, offer): (&Machine, &Override)) -> types::SpotFleetLaunchSpecification {
    let group = |id: &String| types::GroupIdentifier::builder().group_id(id).build();
    types::SpotFleetLaunchSpecification::builder()
        .image_id(&machine.image)
        .instance_type(offer.instance_type.as_str().into())
        .subnet_id(&offer.subnet)
        .weighted_capacity(f64::from(offer.weight))
        .set_spot_price(offer.max_price.clone())
        .set_security_groups(Some(machine.security_groups.iter().map(group).collect()))
        .set_key_name(machine.ssh_key.clone())
        .iam_instance_profile(profile(machine))
        .build()
}

fn profile(machine: &Machine) -> types::IamInstanceProfileSpecification {
    let profile = types::IamInstanceProfileSpecification::builder();
    match &machine.instance_profile {
        arn if arn.starts_with("arn:") => profile.arn(arn).build(),
        name => profile.name(name).build(),
    }
}

fn metadata(metadata: &Metadata) -> types::InstanceMetadataOptionsRequest {
    types::InstanceMetadataOptionsRequest::builder()
        .http_endpoint(metadata.endpoint.as_str().into())
        .http_tokens(metadata.tokens.as_str().into())
        .http_put_response_hop_limit(number(metadata.hop_limit))
        .instance_metadata_tags(metadata.instance_tags.as_str().into())
        .build()
}

fn volume(root: &Root) -> types::BlockDeviceMapping {
    let volume = types::EbsBlockDevice::builder()
        .volume_type(root.kind.as_str().into())
        .volume_size(number(root.size))
        .set_iops(root.iops.map(number))
        .set_throughput(root.throughput.map(number))
        .encrypted(root.encrypted)
        .set_kms_key_id(root.kms_key.clone())
        .delete_on_termination(root.delete_on_termination)
        .build();
    types::BlockDeviceMapping::builder().device_name(&root.device).ebs(volume).build()
}

/// The right that EC2 says is missing, or else that of the call itself.
fn denied(error: &CallError) -> String {
    let told = error.words.split_once("to perform: ").and_then(|(_, rest)| rest.split_whitespace().next());
    told.unwrap_or_else(|| error.action.right()).to_owned()
}

/// The policy that forbids it, whatever others allow: its kind, in AWS' words.
fn forbidding(words: &str) -> Option<&str> {
    let (_, by) = words.split_once("with an explicit deny in ")?;
    by.split(['.', ':', '\n']).next().map(str::trim_end)
}

/// An answer to a dry run: that it would succeed is an error by its form.
async fn agreed<T, E: ProvideErrorMetadata>(
    answer: impl Future<Output = Result<T, SdkError<E, Response>>>,
) -> Result<(), SdkError<E, Response>> {
    match answer.await {
        Err(SdkError::ServiceError(answer)) if answer.err().code() == Some("DryRunOperation") => Ok(()),
        answer => answer.map(|_| ()),
    }
}
