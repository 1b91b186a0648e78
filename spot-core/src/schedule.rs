//! Cron expression → next fire time, pure: no clock, no files.
//!
//! The language is the standard five fields as Kubernetes' `CronJob` reads them, with one difference that is meant:
//! a fixed hour fires exactly once a day, also on the days when the clock changes. `schedule/calendar.rs` knows the
//! fields and searches among local times; this file carries the answer across changes of the clock.

mod calendar;
mod error;
mod field;
mod interval;
mod near_miss;
mod zone;

use std::fmt;

use jiff::{
    SignedDuration, Timestamp, ToSpan as _, Unit,
    civil::{DateTime, DateTimeRound},
    tz::TimeZone,
};

use self::calendar::Calendar;
pub use self::{error::ScheduleError, field::Field, zone::time_zone};
use crate::error::plain;

/// The shortcuts and the fields they stand for.
const SHORTCUTS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// How far the search goes: what is not found by the end of the fifth year is "never", as in robfig/cron.
const YEARS_SEARCHED: i16 = 5;

/// When to fire: five cron fields in a time zone, or a fixed interval.
///
/// - Fields: minute, hour, day of month, month, day of week (Sunday is 0), with lists, ranges, steps, `*`, `?`, and
///   three-letter names of months and days in any case. When both day fields are restricted, a day that matches
///   either fires; a step above 1 restricts.
/// - Shortcuts: `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly`, `@annually`.
/// - Interval: `@every 1h30m`, in whole seconds, counted from the previous run ([`Schedule::interval`]).
/// - A prefix `TZ=` or `CRON_TZ=` with an IANA name overrides the time zone.
///
/// Where clocks change, a schedule of certain hours fires once for each of them: at the end of the gap when the time
/// is skipped, the first time when it is repeated. A schedule of every hour follows the clock on the wall, so that it
/// fires in every real hour.
///
/// ```
/// use jiff::Timestamp;
/// use spot_core::schedule::{Schedule, time_zone};
///
/// let schedule = Schedule::parse("0 3 * * mon-fri", &time_zone("Europe/London")?)?;
/// let friday: Timestamp = "2026-11-27T12:00:00Z".parse()?;
/// let monday: Timestamp = "2026-11-30T03:00:00Z".parse()?;
/// assert_eq!(schedule.next_after(friday), Some(monday));
/// assert_eq!(schedule.to_string(), "0 3 * * mon-fri");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    expression: String,
    time_zone: TimeZone,
    cadence: Cadence,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cadence {
    Calendar(Calendar),
    Interval(SignedDuration),
}

impl Schedule {
    /// Reads an expression, whose times are those of `time_zone` unless it names its own.
    ///
    /// # Errors
    ///
    /// Fails on anything that is not the language above, and on a schedule that never fires, such as 30 February.
    /// Each message names the field, the value and the remedy.
    ///
    /// ```
    /// use jiff::tz::TimeZone;
    /// use spot_core::schedule::Schedule;
    ///
    /// let error = Schedule::parse("0 0 3 * * *", &TimeZone::UTC).unwrap_err();
    /// assert!(error.to_string().ends_with("drop the seconds and write `0 3 * * *`"));
    /// ```
    pub fn parse(expression: &str, time_zone: &TimeZone) -> Result<Self, ScheduleError> {
        let written = plain(expression.trim());
        let (own_zone, timing) = zone::split_prefix(&written)?;
        if timing.is_empty() {
            return Err(ScheduleError::Empty);
        }
        let cadence =
            if timing.starts_with('@') { parse_shortcut(timing)? } else { Cadence::Calendar(Calendar::parse(timing)?) };
        Ok(Self {
            expression: expression.to_owned(),
            time_zone: own_zone.unwrap_or_else(|| time_zone.clone()),
            cadence,
        })
    }

    /// The first fire time strictly after the given moment.
    ///
    /// An interval counts from `after`, so that the caller passes the start of the previous run. `None` when nothing
    /// is found in the five years after `after`: parsing has refused what never fires, so this is 29 February round a
    /// year like 2100, or the end of representable time.
    ///
    /// ```
    /// use jiff::{Timestamp, tz::TimeZone};
    /// use spot_core::schedule::Schedule;
    ///
    /// let hourly = Schedule::parse("@hourly", &TimeZone::UTC)?;
    /// let now: Timestamp = "2026-11-30T10:00:00Z".parse()?;
    /// assert_eq!(hourly.next_after(now), Some("2026-11-30T11:00:00Z".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.cadence {
            Cadence::Calendar(calendar) => next_in_zone(calendar, &self.time_zone, after),
            Cadence::Interval(interval) => next_in_interval(*interval, after),
        }
    }

    /// The length of an `@every` schedule, which counts from the previous run; `None` for fixed times.
    #[must_use]
    pub fn interval(&self) -> Option<SignedDuration> {
        match self.cadence {
            Cadence::Calendar(_) => None,
            Cadence::Interval(interval) => Some(interval),
        }
    }

    /// The time zone in force: the expression's own, else the one it was parsed with.
    #[must_use]
    pub fn time_zone(&self) -> &TimeZone {
        &self.time_zone
    }
}

/// The text it was parsed from.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expression)
    }
}

fn parse_shortcut(timing: &str) -> Result<Cadence, ScheduleError> {
    if let Some((_, fields)) = SHORTCUTS.iter().find(|(name, _)| *name == timing) {
        return Calendar::parse(fields).map(Cadence::Calendar);
    }
    match timing.strip_prefix("@every") {
        Some(duration) if duration.is_empty() || duration.starts_with(char::is_whitespace) => {
            interval::parse(duration.trim()).map(Cadence::Interval)
        }
        _ => Err(unknown_shortcut(timing)),
    }
}

fn unknown_shortcut(timing: &str) -> ScheduleError {
    let names = || SHORTCUTS.iter().map(|(name, _)| *name);
    let word = timing.split_whitespace().next().unwrap_or(timing);
    let every = word.strip_prefix("@every").filter(|duration| !duration.is_empty());
    let hint = if word == "@reboot" {
        "a start is not a time; ".to_owned()
    } else if let Some(duration) = every {
        format!("write `@every {duration}` with a space; ")
    } else {
        near_miss::closest(word, names().chain(["@every"]), 2)
            .map_or_else(String::new, |name| format!("did you mean `{name}`? "))
    };
    let list = names().collect::<Vec<_>>().join(", ");
    ScheduleError::UnknownShortcut {
        value: timing.to_owned(),
        remedy: format!("{hint}use one of {list}, or `@every` with a duration such as `@every 1h30m`"),
    }
}

/// Walks the stretches between changes of the clock; in each, local time runs evenly.
///
/// `from` is the first local time that is still to come. Behind a change, a schedule of every hour goes on from what
/// the clock shows then. One of certain hours goes on from where the clock stood: what was skipped is due at the
/// change, and what is repeated has been served.
fn next_in_zone(calendar: &Calendar, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut offset = zone.to_offset(after);
    let mut stretch_began = after;
    let local = offset.to_datetime(after);
    let last_year = local.year().saturating_add(YEARS_SEARCHED);
    let mut from = minute_after(local)?;
    if !calendar.is_every_hour()
        && let Some(stood) = where_the_clock_stood(zone, after)
    {
        from = from.max(minute_from(stood)?);
    }

    for change in zone.following(after).map(Some).chain([None]) {
        let due = calendar.first_from(from, last_year)?;
        // An error is a time beyond the end of representable time: there is no next one.
        let fires = offset.to_timestamp(due).ok()?.max(stretch_began);
        let Some(change) = change.filter(|change| change.timestamp() <= fires) else { return Some(fires) };

        stretch_began = change.timestamp();
        let stood = offset.to_datetime(stretch_began);
        offset = change.offset();
        let shows = offset.to_datetime(stretch_began);
        // A zone that crosses the date line leaves out a whole day, which then has no hours to make up for.
        let day_left_out = shows.duration_since(stood) >= SignedDuration::from_hours(24);
        from = minute_from(if calendar.is_every_hour() || day_left_out { shows } else { stood })?;
    }
    None
}

/// What the clock would have shown at its latest change up to now, had it not been changed.
fn where_the_clock_stood(zone: &TimeZone, now: Timestamp) -> Option<DateTime> {
    let instant = SignedDuration::from_nanos(1);
    let change = zone.preceding(now.saturating_add(instant).ok()?).next()?.timestamp();
    Some(zone.to_offset(change.saturating_sub(instant).ok()?).to_datetime(change))
}

/// The first whole minute strictly after; `None` at the end of representable time.
fn minute_after(time: DateTime) -> Option<DateTime> {
    start_of_minute(time)?.checked_add(1.minute()).ok()
}

/// The first whole minute at or after; `None` at the end of representable time.
fn minute_from(time: DateTime) -> Option<DateTime> {
    let start = start_of_minute(time)?;
    if start == time { Some(time) } else { minute_after(time) }
}

fn start_of_minute(time: DateTime) -> Option<DateTime> {
    time.round(DateTimeRound::new().smallest(Unit::Minute).mode(jiff::RoundMode::Floor)).ok()
}

/// Lands on a whole second, as robfig/cron does.
fn next_in_interval(interval: SignedDuration, after: Timestamp) -> Option<Timestamp> {
    // The nanosecond part of a time before 1970 is negative, and its second one too late.
    let second = after.as_second() - i64::from(after.subsec_nanosecond() < 0);
    Timestamp::from_second(second.checked_add(interval.as_secs())?).ok()
}
