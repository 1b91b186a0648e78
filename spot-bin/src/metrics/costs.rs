//! What nodes cost, as numbers.

use prometheus::{Counter, Gauge, GaugeVec, Opts, Result};
use spot_core::capacity::Class;

use super::maker::Maker;
use crate::cost::Totals;

/// The classes whose price is one by the hour.
const CLASSES: [Class; 2] = [Class::OnDemand, Class::Spot];

/// The numbers.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    by_class: GaugeVec,
    possible: Gauge,
    saved: Counter,
}

impl Costs {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self> {
        let by_class = Opts::new(
            "spot_migrator_cost_dollars_per_hour",
            "What the nodes cost whose price is known, by class, as the last look at the cloud found them.",
        );
        let by_class = make.kept(GaugeVec::new(by_class, &["class"])?)?;
        for class in CLASSES {
            by_class.get_metric_with_label_values(&[class.as_str()])?;
        }
        Ok(Self {
            by_class,
            possible: make.kept(Gauge::new(
                "spot_migrator_possible_saving_dollars_per_hour",
                "How much less the on-demand nodes would cost on spot, as far as both prices are known.",
            )?)?,
            saved: make.kept(Counter::new(
                "spot_migrator_saved_dollars_per_hour_total",
                "How much less an hour of all retired nodes would cost on spot, as far as both prices are known.",
            )?)?,
        })
    }

    pub(super) fn seen(&self, totals: Totals) {
        self.by_class.with_label_values(&[Class::OnDemand.as_str()]).set(totals.on_demand);
        self.by_class.with_label_values(&[Class::Spot.as_str()]).set(totals.spot);
        self.possible.set(totals.saving);
    }

    pub(super) fn saved(&self, hourly: f64) {
        // On spot it may have been dearer, and a counter never falls.
        self.saved.inc_by(hourly.max(0.0));
    }
}
