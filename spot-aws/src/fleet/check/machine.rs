//! What machines are made of: AMI, instance types, SSH key and instance profile.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types;
use futures::future::{self, FutureExt as _};
use spot_core::ports::Instant;

use super::{Finding, NodePool, Trouble, VALUES, each, filter};
use crate::action::Action;
use crate::error::{CallError, Kind};
use crate::fleet::image::Image;
use crate::fleet::volume;
use crate::provider::describe::more;

/// An instance type.
struct InstanceType {
    architectures: Vec<String>,
    on_spot: bool,
}

impl NodePool {
    /// The findings, and the AMI if it is there.
    pub(super) async fn check_machine(&self, by: Instant) -> (Vec<Finding>, Option<Image>) {
        let pool = &self.pool;
        let (image, kinds, keys, profile) = future::join4(
            self.image(by).boxed(),
            self.instance_types(by).boxed(),
            self.keys(by).boxed(),
            self.check_profile(by).boxed(),
        )
        .await;
        let mut findings = vec![profile];
        let image = image.map(|found| found.map(|image| (pool.image.clone(), image)).into_iter().collect());
        findings.extend(each("AMI", [&pool.image], &image, |id, image| match image {
            Some(image) => self.judge_image(id, image),
            None => Err(self.missing("AMI", id, "correct `image` or `region`, or have it shared with this account")),
        }));
        let image = image.ok().and_then(|mut found| found.remove(&pool.image));
        let names: BTreeSet<_> = pool.offers.iter().map(|offer| &offer.instance_type).collect();
        findings.extend(each("instance type", names, &kinds, |name, kind| match kind {
            Some(kind) => self.judge_type(name, kind, image.as_ref()),
            None => Err(self.missing("instance type", name, "correct `launchSpecifications`, or `region`")),
        }));
        findings.extend(each("SSH key", &pool.ssh_key, &keys, |name, key| match key {
            Some(_id) => Ok(()),
            None => Err(self.missing("SSH key", name, "correct `sshKey`, or leave it out")),
        }));
        (findings, image)
    }

    fn judge_image(&self, id: &str, image: &Image) -> Result<(), Trouble> {
        let Image { state, root, volumes, .. } = image;
        if state != "available" {
            return Err(Trouble::new(format!("AMI {id} is {state}"), "name one that is available in `image`"));
        }
        let Some(root) = root else {
            let remedy = "name one with an EBS root volume in `image`";
            return Err(Trouble::new(format!("the root device of AMI {id} is no EBS volume"), remedy));
        };
        match &self.pool.root_volume.device {
            Some(device) if device != root && !volumes.contains_key(device) => {
                let others: BTreeSet<_> = volumes.keys().chain([root]).map(String::as_str).collect();
                let others = others.into_iter().collect::<Vec<_>>().join(", ");
                let why =
                    format!("AMI {id} has no volume at {device}, which `rootVolume.device` says, but at {others}");
                Err(Trouble::new(why, "leave `rootVolume.device` out, or correct it"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn judge_type(&self, name: &str, kind: &InstanceType, image: Option<&Image>) -> Result<(), Trouble> {
        let InstanceType { architectures, on_spot } = kind;
        if !on_spot {
            let remedy = "name another one in `launchSpecifications`";
            return Err(Trouble::new(format!("EC2 has no {name} on spot"), remedy));
        }
        let Some(image) = image else { return Ok(()) };
        if !architectures.contains(&image.architecture) {
            let (architectures, of_image) = (architectures.join(" or "), &image.architecture);
            let why = format!("{name} is {architectures}, and AMI {} is {of_image}", self.pool.image);
            return Err(Trouble::new(why, "name an AMI for it in `image`, or another instance type"));
        }
        let sizes = self.pool.offers.iter().filter(|offer| offer.instance_type == name);
        let sizes = sizes.map(|offer| volume::of(&self.pool, offer).size);
        let device = image.device(self.pool.root_volume.device.as_ref());
        match (sizes.min(), device.and_then(|device| image.volumes.get(device))) {
            (Some(size), Some(least)) if size < *least => {
                let why =
                    format!("the root volume of {name} has {size} GiB, and AMI {} needs {least}", self.pool.image);
                Err(Trouble::new(why, "raise `unitRootVolumeSize`, or `rootVolume.size` of its launch specification"))
            }
            _ => Ok(()),
        }
    }

    /// The instance profile, and that it holds a role.
    async fn check_profile(&self, by: Instant) -> Finding {
        let profile = &self.pool.instance_profile;
        // An ARN ends with path and name.
        let name = profile.rsplit('/').next().unwrap_or(profile);
        let request = self.api().iam.get_instance_profile().instance_profile_name(name);
        let outcome = match self.api().call(Action::GetInstanceProfile, by, request.send()).await {
            Ok(answer) => match answer.instance_profile {
                Some(found) if profile.starts_with("arn:") && found.arn != *profile => {
                    let why = format!("instance profile {name} of this account is {}", found.arn);
                    Err(Trouble::new(why, "correct `instanceProfile`, or use the account that it is of"))
                }
                Some(found) if found.roles.is_empty() => {
                    let command = format!(
                        "run `aws iam add-role-to-instance-profile --instance-profile-name {name} --role-name ROLE` with \
                         the role of the nodes"
                    );
                    Err(Trouble::new(format!("instance profile {name} holds no role"), command))
                }
                Some(_) => Ok(()),
                None => Err(no_profile(name)),
            },
            Err(error) if error.kind == Kind::Refused => Err(no_profile(name).caused_by(error)),
            Err(error) => Err(Trouble::unanswered(error)),
        };
        Finding::new(format!("instance profile {profile}"), outcome)
    }

    async fn instance_types(&self, by: Instant) -> Result<BTreeMap<String, InstanceType>, CallError> {
        let names: Vec<_> = self.pool.offers.iter().map(|offer| &offer.instance_type).collect();
        let mut found = BTreeMap::new();
        for names in names.chunks(VALUES) {
            let mut token = None;
            loop {
                let filter = filter("instance-type", names.iter().copied());
                let request = self.api().ec2.describe_instance_types().filters(filter).set_next_token(token);
                let page = self.api().call(Action::DescribeInstanceTypes, by, request.send()).await?;
                found.extend(page.instance_types().iter().filter_map(InstanceType::of));
                token = more(page.next_token());
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// The ID of the SSH key, if the pool has one.
    async fn keys(&self, by: Instant) -> Result<BTreeMap<String, String>, CallError> {
        if self.pool.ssh_key.is_none() {
            return Ok(BTreeMap::new());
        }
        let request = self.api().ec2.describe_key_pairs().filters(filter("key-name", &self.pool.ssh_key));
        let answer = self.api().call(Action::DescribeKeyPairs, by, request.send()).await?;
        let key = |key: &types::KeyPairInfo| Some((key.key_name()?.to_owned(), key.key_pair_id()?.to_owned()));
        Ok(answer.key_pairs().iter().filter_map(key).collect())
    }
}

impl InstanceType {
    fn of(described: &types::InstanceTypeInfo) -> Option<(String, Self)> {
        let processor = described.processor_info().map(types::ProcessorInfo::supported_architectures);
        let architectures = processor.unwrap_or_default().iter().map(|one| one.as_str().to_owned()).collect();
        let on_spot = described.supported_usage_classes().contains(&types::UsageClassType::Spot);
        Some((described.instance_type()?.as_str().to_owned(), Self { architectures, on_spot }))
    }
}

fn no_profile(name: &str) -> Trouble {
    let why = format!("there is no instance profile {name} in this account");
    Trouble::new(why, "correct `instanceProfile`, or create one that holds the role of the nodes")
}
