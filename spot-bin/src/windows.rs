//! When a schedule first fires inside a window. Pure.

use jiff::{SignedDuration, Timestamp};
use spot_core::budget::Budgets;
use spot_core::schedule::Schedule;

/// How far windows are looked for. They come again each week: a year has every day of a schedule on every weekday that
/// it will soon have.
const AHEAD: SignedDuration = SignedDuration::from_hours(366 * 24);

/// How many times are looked at: those of two weeks, for a schedule that fires each minute.
const LOOKED_AT: usize = 14 * 24 * 60;

/// The first time of the schedule, after that moment, at which nodes may be begun; or the last one that was looked at,
/// where there is none.
pub(crate) fn first(schedule: &Schedule, budgets: &Budgets, after: Timestamp) -> Result<Timestamp, Timestamp> {
    let times = std::iter::successors(schedule.next_after(after), |time| schedule.next_after(*time));
    let end = after.checked_add(AHEAD).unwrap_or(Timestamp::MAX);
    let mut last = after;
    let mut ahead = times.take(LOOKED_AT).take_while(|time| *time <= end).inspect(|time| last = *time);
    ahead.find(|time| budgets.is_open(*time)).ok_or(last)
}
