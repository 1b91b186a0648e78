//! AMIs: what they are for, and the volumes that machines get from them.

use std::collections::BTreeMap;

use aws_sdk_ec2::types;
use spot_core::ports::Instant;

use super::node_pool::NodePool;
use crate::action::Action;
use crate::error::CallError;

/// An AMI.
pub(super) struct Image {
    pub(super) state: String,
    pub(super) architecture: String,
    /// The name of its root device, if that is a volume.
    pub(super) root: Option<String>,
    /// Its volumes by their devices, and how large each is at least, in GiB.
    pub(super) volumes: BTreeMap<String, u32>,
}

impl NodePool {
    /// The pool's AMI, if it is there: by its ID, as a filter would go through all public ones.
    pub(super) async fn image(&self, by: Instant) -> Result<Option<Image>, CallError> {
        let request = self.api().ec2.describe_images().image_ids(&self.pool.image);
        match self.api().call(Action::DescribeImages, by, request.send()).await {
            Ok(answer) => Ok(answer.images().first().map(Image::of)),
            Err(error) if error.code.starts_with("InvalidAMIID") => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Image {
    fn of(described: &types::Image) -> Self {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let is_volume = described.root_device_type() == Some(&types::DeviceType::Ebs);
        let volume = |mapping: &types::BlockDeviceMapping| {
            let size = mapping.ebs()?.volume_size().and_then(|size| u32::try_from(size).ok());
            Some((mapping.device_name()?.to_owned(), size.unwrap_or_default()))
        };
        Self {
            state: text(described.state().map(types::ImageState::as_str)),
            architecture: text(described.architecture().map(types::ArchitectureValues::as_str)),
            root: described.root_device_name().filter(|_| is_volume).map(str::to_owned),
            volumes: described.block_device_mappings().iter().filter_map(volume).collect(),
        }
    }

    /// The device of the volume that a pool shapes: the one that it names, or else the root device.
    pub(super) fn device<'a>(&'a self, named: Option<&'a String>) -> Option<&'a String> {
        named.or(self.root.as_ref())
    }
}
