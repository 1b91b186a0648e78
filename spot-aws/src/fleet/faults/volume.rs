//! Root volumes: what an offer says itself has to be what its kind of volume allows.

use std::ops::RangeInclusive;

use super::Faults;
use crate::fleet::pool::Offer;
use crate::fleet::volume;

impl Faults<'_> {
    pub(super) fn unit_iops(&mut self) {
        let kind = self.pool.root_volume.kind;
        let word = kind.as_str();
        match self.pool.root_volume.unit_iops {
            Some(0) => self.add("unitRootVolumeIops", "0: say how many each unit of weight has, or leave it out"),
            Some(_) if kind.limits().iops.is_none() => {
                let message =
                    format!("{word} has no operations to ask for: leave it out, or set `rootVolume.type: gp3`");
                self.add("unitRootVolumeIops", message);
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn volume(&mut self, key: &str, offer: &Offer) {
        let pool = self.pool;
        let (kind, own) = (pool.root_volume.kind, &offer.root_volume);
        let (limits, word) = (kind.limits(), kind.as_str());
        let key = |name| format!("{key}.rootVolume.{name}");
        let volume = volume::of(pool, offer);
        if let Some(size) = own.size {
            self.within(&key("size"), size, &limits.size, "GiB", word);
        }
        match (limits.iops_of(volume.size), own.iops) {
            (None, Some(_)) => {
                let message =
                    format!("{word} has no operations to ask for: leave it out, or set `rootVolume.type: gp3`");
                self.add(key("iops"), message);
            }
            (Some(allowed), Some(iops)) => {
                let what = format!("{word} of {} GiB", volume.size);
                self.within(&key("iops"), iops, &allowed, "IOPS", &what);
            }
            (Some(_), None) if kind.needs_iops() && pool.root_volume.unit_iops.is_none() => {
                let message = format!("missing, and {word} has none by itself: give it here, or `unitRootVolumeIops`");
                self.add(key("iops"), message);
            }
            (Some(_) | None, None) => {}
        }
        match (limits.throughput_of(volume.iops), own.throughput) {
            (None, Some(_)) => {
                let message =
                    format!("{word} has no throughput to ask for: leave it out, or set `rootVolume.type: gp3`");
                self.add(key("throughput"), message);
            }
            (Some(allowed), Some(throughput)) => {
                let what = format!("{word} of {} IOPS", volume.iops.unwrap_or(volume::GP3_BASE));
                self.within(&key("throughput"), throughput, &allowed, "MiB/s", &what);
            }
            (Some(_) | None, None) => {}
        }
    }

    fn within(&mut self, key: &str, value: u32, allowed: &RangeInclusive<u32>, unit: &str, what: &str) {
        if !allowed.contains(&value) {
            let (min, max) = (allowed.start(), allowed.end());
            self.add(key, format!("{value} {unit} is not what {what} may have: {min} to {max}"));
        }
    }
}
