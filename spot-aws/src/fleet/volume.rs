//! Root volumes: what an offer has, by the weight of its machine, within what EBS allows.
//!
//! The limits are those of <https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html> and
//! <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_EbsBlockDevice.html>. Those of gp3 were raised in 2025; what
//! a region does not have yet, EC2 refuses.

use std::ops::RangeInclusive;

use super::pool::{Offer, Pool, VolumeKind};
use super::request::Root;

/// Operations a second that a gp3 volume has by itself, whatever its size.
pub(super) const GP3_BASE: u32 = 3_000;
/// MiB/s of a gp3 volume: at most one for every four of its operations a second.
const OPERATIONS_PER_MIB: u32 = 4;

/// What a kind of volume may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// In GiB.
    pub(super) size: RangeInclusive<u32>,
    /// In operations a second, and at most so many for each GiB; none: they can't be asked for.
    pub(super) iops: Option<(RangeInclusive<u32>, u32)>,
    /// In MiB a second; none: it can't be asked for.
    pub(super) throughput: Option<RangeInclusive<u32>>,
}

/// The root volume of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) size: u32,
    pub(super) iops: Option<u32>,
    pub(super) throughput: Option<u32>,
    /// What is other than unit times weight.
    pub(super) notes: Vec<String>,
}

/// Unit times weight, or what the offer says itself, within what the kind allows.
pub(super) fn of(pool: &Pool, offer: &Offer) -> Volume {
    let kind = pool.root_volume.kind;
    let (limits, own) = (kind.limits(), &offer.root_volume);
    let mut notes = Vec::new();
    let mut within = |wanted: u32, allowed: RangeInclusive<u32>, unit: &str| {
        let (min, max) = allowed.into_inner();
        let given = wanted.clamp(min, max);
        if given != wanted {
            let (kind, name) = (kind.as_str(), &offer.instance_type);
            notes
                .push(format!("{name}: root volume of {given} {unit} in place of {wanted}: {kind} has {min} to {max}"));
        }
        given
    };
    let by_weight = |unit: u32| unit.saturating_mul(offer.weight);
    let size = within(own.size.unwrap_or_else(|| by_weight(pool.root_volume.unit_size)), limits.size.clone(), "GiB");
    let wanted = own.iops.or_else(|| pool.root_volume.unit_iops.map(by_weight));
    let iops = limits.iops_of(size).zip(wanted).map(|(allowed, wanted)| within(wanted, allowed, "IOPS"));
    let allowed = limits.throughput_of(iops);
    let throughput = allowed.zip(own.throughput).map(|(allowed, wanted)| within(wanted, allowed, "MiB/s"));
    Volume { size, iops, throughput, notes }
}

impl Limits {
    /// The operations a second that a volume of this size may have.
    pub(super) fn iops_of(&self, size: u32) -> Option<RangeInclusive<u32>> {
        let (allowed, per_gib) = self.iops.clone()?;
        let (min, max) = allowed.into_inner();
        Some(min..=per_gib.saturating_mul(size).clamp(min, max))
    }

    /// The MiB a second that a volume with so many operations may have.
    pub(super) fn throughput_of(&self, iops: Option<u32>) -> Option<RangeInclusive<u32>> {
        let (min, max) = self.throughput.clone()?.into_inner();
        Some(min..=(iops.unwrap_or(GP3_BASE) / OPERATIONS_PER_MIB).clamp(min, max))
    }
}

impl VolumeKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Gp3, Self::Gp2, Self::Io1, Self::Io2];

    /// EBS' word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gp3 => "gp3",
            Self::Gp2 => "gp2",
            Self::Io1 => "io1",
            Self::Io2 => "io2",
        }
    }

    pub(super) const fn limits(self) -> Limits {
        match self {
            Self::Gp3 => {
                Limits { size: 1..=65_536, iops: Some((GP3_BASE..=80_000, 500)), throughput: Some(125..=2_000) }
            }
            Self::Gp2 => Limits { size: 1..=16_384, iops: None, throughput: None },
            Self::Io1 => Limits { size: 4..=16_384, iops: Some((100..=64_000, 50)), throughput: None },
            Self::Io2 => Limits { size: 4..=65_536, iops: Some((100..=256_000, 1_000)), throughput: None },
        }
    }

    /// Whether it has no operations a second by itself.
    pub(super) const fn needs_iops(self) -> bool {
        matches!(self, Self::Io1 | Self::Io2)
    }
}

impl Volume {
    /// As the launch template has it.
    pub(super) fn root(&self, pool: &Pool, device: &str) -> Root {
        Root {
            size: self.size,
            kind: pool.root_volume.kind.as_str().to_owned(),
            iops: self.iops,
            throughput: self.throughput,
            device: device.to_owned(),
            encrypted: pool.root_volume.encrypted,
            kms_key: pool.root_volume.kms_key.clone(),
            delete_on_termination: true,
        }
    }
}
