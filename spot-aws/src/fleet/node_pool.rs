//! A node pool on AWS.

use std::sync::Arc;

use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::Instant;

use super::pool::Pool;
use super::request::Launch;
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
        let id = &self.pool.image;
        let refused = |what: String| PortError::new(ErrorClass::Permanent, what);
        let missing = || {
            refused(format!(
                "there is no AMI {id} for this account in this region: name one that is there in `image`, or share it"
            ))
        };
        let image = self.image(by).await?.ok_or_else(missing)?;
        let no_volume = || {
            refused(format!(
                "the root device of AMI {id} is no EBS volume: name one with an EBS root volume in `image`"
            ))
        };
        Ok(Launch::of(&self.pool, image.root.as_ref().ok_or_else(no_volume)?))
    }

    pub(super) fn api(&self) -> &Api {
        &self.aws.api
    }
}
