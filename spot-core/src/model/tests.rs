//! Tests of the world itself, through its public face.

use std::sync::Arc;

use jiff::tz::TimeZone;

use super::*;
use crate::migrator::{Migrator, Settings as MigratorSettings};
use crate::ports::Silent;
use crate::progress::OutcomeKind;
use crate::schedule::Schedule;
use crate::stop::Stop;

fn migrator(model: &Model) -> Migrator {
    let schedule = Schedule::parse("@hourly", &TimeZone::UTC).unwrap();
    Migrator::new(model.ports(Arc::new(Silent)), MigratorSettings::new(schedule))
}

#[test]
fn the_real_run_loop_empties_a_world_with_spot_to_spare() {
    let model = Scenario::SpotAvailable.build(1, 6, 60);
    let report = block_on(&model, migrator(&model).once(&Stop::default())).unwrap().unwrap();
    assert_eq!(report.outcome.kind(), OutcomeKind::AllSpot, "{report:?}");
    assert_eq!(report.retired.len(), 6);
}
