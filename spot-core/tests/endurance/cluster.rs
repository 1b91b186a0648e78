//! The cluster that all of it happens to.

use std::time::Duration;

use spot_core::capacity::Class;
use spot_core::model::{Autoscaler, Model, NodeSpec, Settings, SplitMix64, WorkloadSpec, WorldBuilder};

use super::{CALM, DAY, MINUTE, SECOND};

/// The workloads whose pods move.
pub(crate) const WORKLOADS: [(&str, u32); 5] = [("web", 10), ("api", 8), ("db", 3), ("slow", 4), ("alone", 1)];

/// How many pods fit on a machine.
const SLOTS: u32 = 8;

/// One stretch of weeks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// What all chance comes from.
    pub(crate) seed: u64,
    /// How long the weather is bad.
    pub(crate) storm: Duration,
}

impl Plan {
    /// How many nodes may go at once.
    pub(crate) const fn at_once(self) -> usize {
        if self.seed.is_multiple_of(3) { 2 } else { 1 }
    }

    /// When it is over.
    pub(crate) fn end(self) -> Duration {
        self.storm + CALM
    }

    /// Numbers of chance, other ones for each part.
    pub(crate) const fn chance(self, part: u64) -> SplitMix64 {
        SplitMix64::new(self.seed.wrapping_mul(0x0100_0000_01b3) ^ part)
    }

    /// The cluster at the beginning.
    pub(crate) fn cluster(self) -> Model {
        let settings = Settings {
            seed: self.seed,
            view_lag: if self.seed.is_multiple_of(2) { Duration::from_millis(80) } else { Duration::ZERO },
            describe_lag: if self.seed.is_multiple_of(4) { 20 * SECOND } else { Duration::ZERO },
            jitter_seconds: 3,
            autoscaler: Autoscaler { slots: SLOTS, ..Autoscaler::default() },
            horizon: self.end() + DAY,
            ..Settings::default()
        };
        let [web, api, db, slow, alone] = WORKLOADS;
        WorldBuilder::new(settings)
            .control_plane(1)
            .node(on_demand())
            .node(on_demand())
            .node(on_demand())
            .node(NodeSpec::new(Class::Spot).slots(SLOTS))
            .daemon_set("exporter")
            .guarded(web.0, web.1, 2)
            .deployment(api.0, api.1)
            .workload(WorkloadSpec::stateful_set(db.0, db.1).stop(20 * SECOND).budget(one()))
            .workload(WorkloadSpec::deployment(slow.0, slow.1).stop(30 * SECOND).start_up(2 * MINUTE))
            .deployment(alone.0, alone.1)
            .build()
    }
}

/// A machine that people add.
pub(crate) fn on_demand() -> NodeSpec {
    NodeSpec::new(Class::OnDemand).group("on-demand").slots(SLOTS)
}

const fn one() -> spot_core::model::Allowance {
    spot_core::model::Allowance::MaxUnavailable(1)
}
