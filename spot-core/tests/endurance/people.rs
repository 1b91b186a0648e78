//! The operator's commands, as the program has them: a pause and its end, and everything of ours off nodes.

use std::sync::Arc;

use jiff::tz::TimeZone;
use spot_core::Migrator;
use spot_core::migrator::{Settings, Which};
use spot_core::model::Process;
use spot_core::ports::{Clock, Instant, Observer};
use spot_core::progress::Progress;
use spot_core::schedule::Schedule;

use super::SECOND;
use super::cluster::Plan;
use super::crew::Shared;

/// Nobody listens.
struct Deaf;

impl Observer for Deaf {
    fn observe(&self, _at: jiff::Timestamp, _event: &Progress) {}
}

/// Comes now and then, until the weather is good.
pub(crate) async fn operate(plan: Plan, process: Process, board: Shared, begins: Instant) {
    let mut chance = plan.chance(u64::from(process.id().0) << 8);
    let settings = Settings::new(Schedule::parse("@hourly", &TimeZone::UTC).unwrap());
    let migrator = Migrator::new(process.ports_alone(Arc::new(Deaf)), settings);
    process.sleep_until(begins).await;
    // one who was interrupted may have left it
    let mut ended = migrator.pause(false).await.map(|_| ());
    while process.instant().0 < plan.storm && !board.is_over() {
        let wait = SECOND * u32::try_from(600 + chance.below(50_000)).unwrap();
        process.sleep_until(process.instant() + wait).await;
        if ended.is_ok() {
            board.lock().figures.acts += 1;
        }
        ended = match chance.below(3) {
            0 => migrator.release(&Which::All).await.map(|_| ()),
            _ => migrator.pause(true).await.map(|_| ()),
        };
        let wait = SECOND * u32::try_from(60 + chance.below(9_000)).unwrap();
        process.sleep_until(process.instant() + wait).await;
        // what fails is tried again by people
        while migrator.pause(false).await.is_err() {
            process.sleep_until(process.instant() + 60 * SECOND).await;
        }
    }
    process.sleep_until(Instant(plan.end())).await;
}
