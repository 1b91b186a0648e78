//! What a process is for now, as numbers: whether it leads, writes at all, and does all that it was asked for.

use prometheus::{IntGauge, IntGaugeVec, Result};

use super::maker::Maker;
use crate::feature::Feature;

/// The numbers.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) leader: IntGauge,
    pub(super) dry_run: IntGauge,
    disabled: IntGaugeVec,
}

impl Standing {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self> {
        Ok(Self {
            leader: make.kept(IntGauge::new("spot_migrator_leader", "1 if this process may write.")?)?,
            dry_run: make.kept(IntGauge::new(
                "spot_migrator_dry_run",
                "1 if this process only says what it would do: it waits for no lease, and never leads.",
            )?)?,
            disabled: make.gauges(
                "spot_migrator_feature_disabled",
                "1 if the configuration asks for the feature, and the process goes on without it: what it needs was \
                 refused at the start.",
                "feature",
                Feature::ALL.map(Feature::as_str),
            )?,
        })
    }

    pub(super) fn goes_without(&self, feature: Feature) {
        self.disabled.with_label_values(&[feature.as_str()]).set(1);
    }
}
