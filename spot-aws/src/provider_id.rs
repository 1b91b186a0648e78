//! The provider ID of a Node, read strictly: only what names an EC2 instance becomes a [`ProviderId`].
//!
//! A kubelet writes it, so nothing about it is believed beyond its form, and one odd ID never concerns another node.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

const SCHEME: &str = "aws";
/// What AWS calls the scheme of on-premises nodes that joined an EKS cluster.
const HYBRID_SCHEME: &str = "eks-hybrid";
/// How the names of Fargate's nodes begin; a hash stands before them in the provider ID.
const FARGATE_PREFIX: &str = "fargate-";
const INSTANCE_PREFIX: &str = "i-";
/// The lengths of an instance ID's hexadecimal part: until 2016, and since.
const INSTANCE_DIGITS: [usize; 2] = [8, 17];

/// The EC2 instance behind a Node, as `spec.providerID` names it.
///
/// Two forms are read: `aws:///zone/i-…` and, where the writer did not know the zone, `aws:////i-…`. They are written
/// back as they were read; to tell whether two of them mean the same machine, compare [`instance_id`](Self::instance_id).
///
/// ```
/// use spot_aws::ProviderId;
///
/// let id = ProviderId::parse("aws:///eu-west-1b/i-0123456789abcdef0")?;
/// assert_eq!(id.instance_id(), "i-0123456789abcdef0");
/// assert_eq!(id.zone(), Some("eu-west-1b"));
/// # Ok::<(), spot_aws::ProviderIdError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderId {
    zone: Option<String>,
    instance_id: String,
}

/// Why a provider ID names no EC2 instance.
///
/// What was found is quoted with escapes, since it may hold anything.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProviderIdError {
    /// The Node has none: no cloud provider has initialized it.
    #[error("the provider ID is empty")]
    Empty,
    /// A Fargate node: it has no EC2 instance, and lives as long as its pod.
    #[error("{found:?} is a Fargate node, not an EC2 instance")]
    Fargate {
        /// The provider ID.
        found: String,
    },
    /// A hybrid node of EKS: a machine outside of AWS.
    #[error("{found:?} is a hybrid node, not an EC2 instance")]
    Hybrid {
        /// The provider ID.
        found: String,
    },
    /// A node of another provider, like `kind` or `gce`.
    #[error("{found:?} is a node of the provider {scheme:?}, not an EC2 instance")]
    OtherProvider {
        /// The part before `://`.
        scheme: String,
        /// The provider ID.
        found: String,
    },
    /// Not of the form `scheme://…`.
    #[error("{found:?} has no scheme like `aws://`")]
    NoScheme {
        /// The provider ID.
        found: String,
    },
    /// Of AWS, but not a zone and an instance ID.
    #[error("{found:?} is not of the form `aws:///zone/i-…` or `aws:////i-…`")]
    Form {
        /// The provider ID.
        found: String,
    },
    /// The zone has other characters than lower-case letters, digits and hyphens.
    #[error("{zone:?} in {found:?} is not an availability zone")]
    Zone {
        /// The part where the zone should be.
        zone: String,
        /// The provider ID.
        found: String,
    },
    /// The instance ID is not `i-` and 8 or 17 lower-case hexadecimal digits.
    #[error("{instance_id:?} in {found:?} is not an instance ID: `i-` and 8 or 17 lower-case hexadecimal digits")]
    InstanceId {
        /// The part where the instance ID should be.
        instance_id: String,
        /// The provider ID.
        found: String,
    },
}

impl ProviderId {
    /// Reads a Node's `spec.providerID`.
    ///
    /// # Errors
    /// When it is not the provider ID of an EC2 instance; the error says what it is instead.
    pub fn parse(found: &str) -> Result<Self, ProviderIdError> {
        let found_owned = || found.to_owned();
        if found.is_empty() {
            return Err(ProviderIdError::Empty);
        }
        let Some((scheme, rest)) = found.split_once("://") else {
            return Err(ProviderIdError::NoScheme { found: found_owned() });
        };
        match scheme {
            SCHEME => {}
            HYBRID_SCHEME => return Err(ProviderIdError::Hybrid { found: found_owned() }),
            other => return Err(ProviderIdError::OtherProvider { scheme: other.to_owned(), found: found_owned() }),
        }
        let parts: Vec<_> = rest.split('/').collect();
        match *parts.as_slice() {
            ["", .., name] if name.starts_with(FARGATE_PREFIX) => {
                Err(ProviderIdError::Fargate { found: found_owned() })
            }
            ["", zone, instance_id] => Ok(Self {
                zone: if zone.is_empty() { None } else { Some(read_zone(zone, found)?) },
                instance_id: read_instance_id(instance_id, found)?,
            }),
            _ => Err(ProviderIdError::Form { found: found_owned() }),
        }
    }

    /// The instance's ID, `i-…`.
    #[must_use]
    pub fn instance_id(&self) -> &str {
        &self.instance_id
    }

    /// The availability zone, if the provider ID names one.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }
}

/// Writes it as it was read.
impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}:///{}/{}", self.zone.as_deref().unwrap_or_default(), self.instance_id)
    }
}

impl FromStr for ProviderId {
    type Err = ProviderIdError;

    fn from_str(found: &str) -> Result<Self, Self::Err> {
        Self::parse(found)
    }
}

/// Zones of all kinds: `eu-west-1b`, `us-west-2-lax-1a`, `us-east-1-wl1-bos-wlz-1`.
fn read_zone(zone: &str, found: &str) -> Result<String, ProviderIdError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if zone.bytes().all(allowed) {
        Ok(zone.to_owned())
    } else {
        Err(ProviderIdError::Zone { zone: zone.to_owned(), found: found.to_owned() })
    }
}

fn read_instance_id(instance_id: &str, found: &str) -> Result<String, ProviderIdError> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match instance_id.strip_prefix(INSTANCE_PREFIX) {
        Some(digits) if INSTANCE_DIGITS.contains(&digits.len()) && digits.bytes().all(is_digit) => {
            Ok(instance_id.to_owned())
        }
        _ => Err(ProviderIdError::InstanceId { instance_id: instance_id.to_owned(), found: found.to_owned() }),
    }
}
