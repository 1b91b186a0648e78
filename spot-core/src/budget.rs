//! When, and how many: windows, nodes per run, at once and per day.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;

/// A time of day at which nodes may be begun, on some days of the week.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The days on which it opens; empty: every day.
    pub days: Vec<Weekday>,
    /// When it opens, local time.
    pub start: Time,
    /// How long it stays open, at most 24 h; it may reach over midnight.
    pub duration: Duration,
    /// The time zone of `days` and `start`.
    pub time_zone: TimeZone,
}

impl Window {
    /// Whether it is open at `now`.
    #[must_use]
    pub fn is_open(&self, now: Timestamp) -> bool {
        let today = now.to_zoned(self.time_zone.clone()).date();
        // A window of 24 h reaches into the second next day when the clocks skip an hour.
        std::iter::successors(Some(today), |day| day.yesterday().ok()).take(3).any(|day| self.opened_on(day, now))
    }

    fn opened_on(&self, day: Date, now: Timestamp) -> bool {
        if !self.days.is_empty() && !self.days.contains(&day.weekday()) {
            return false;
        }
        // A local time that a change of clocks skips opens when the clocks go on: jiff's "compatible" rule.
        let Ok(opens) = day.to_datetime(self.start).to_zoned(self.time_zone.clone()) else { return false };
        let opens = opens.timestamp();
        let closes = opens.checked_add(self.duration).unwrap_or(Timestamp::MAX);
        opens <= now && now < closes
    }
}

/// How many nodes may go, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Budgets {
    /// Nodes that are retired side by side.
    pub at_once: usize,
    /// Nodes that a run may begin; none: no limit.
    pub per_run: Option<usize>,
    /// Nodes that may be retired in a day; none: no limit.
    pub per_day: Option<u32>,
    /// Other ready, schedulable nodes that must be left.
    pub min_remaining: usize,
    /// When nodes may be begun; empty: always.
    pub windows: Vec<Window>,
    /// Where a day begins.
    pub time_zone: TimeZone,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            at_once: 1,
            per_run: None,
            per_day: None,
            min_remaining: 1,
            windows: Vec::new(),
            time_zone: TimeZone::UTC,
        }
    }
}

impl Budgets {
    /// Whether nodes may be begun at `now`.
    #[must_use]
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.windows.is_empty() || self.windows.iter().any(|window| window.is_open(now))
    }

    /// The day that `now` belongs to.
    #[must_use]
    pub fn day(&self, now: Timestamp) -> Date {
        now.to_zoned(self.time_zone.clone()).date()
    }
}
