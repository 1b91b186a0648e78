//! A node pool on AWS.

use std::sync::Arc;

use aws_sdk_ec2::types;
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::Instant;

use super::pool::Pool;
use super::request::Launch;
use crate::action::Action;
use crate::client::Api;
use crate::provider::Aws;

/// A node pool on AWS, over the same clients as the provider.
///
/// Every future of it may be dropped at any time: what it did is found out by the next call, from what is there.
#[derive(Clone, Debug)]
pub struct NodePool {
    pub(super) aws: Arc<Aws>,
    pub(super) pool: Arc<Pool>,
}

impl NodePool {
    /// The pool in the account and region of `aws`. Nothing is called.
    #[must_use]
    pub fn new(aws: Arc<Aws>, pool: Pool) -> Self {
        Self { aws, pool: Arc::new(pool) }
    }

    /// What its file asks for.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What it asks EC2 for. The AMI is asked for the name of its root device, unless the pool says it.
    ///
    /// # Errors
    /// When EC2 could not be asked, or has no such AMI.
    pub async fn launch(&self, by: Instant) -> Result<Launch, PortError> {
        if let Some(device) = &self.pool.root_volume.device {
            return Ok(Launch::of(&self.pool, device));
        }
        let image = &self.pool.image;
        let request = self.api().ec2.describe_images().image_ids(image);
        let images = match self.api().call(Action::DescribeImages, by, request.send()).await {
            Ok(answer) => answer.images.unwrap_or_default(),
            Err(error) if error.is_not_found() || error.code == "InvalidAMIID.Malformed" => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let found = images.first().and_then(types::Image::root_device_name);
        let missing = || {
            let what = format!(
                "there is no AMI {image} for this account in this region: name one that is there in `image`, or share it"
            );
            PortError::new(ErrorClass::Permanent, what)
        };
        Ok(Launch::of(&self.pool, found.ok_or_else(missing)?))
    }

    pub(super) fn api(&self) -> &Api {
        &self.aws.api
    }
}
