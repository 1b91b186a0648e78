//! The five fields as sets of bits, and the search among local times.

use jiff::civil::{Date, DateTime, time};

use super::{ScheduleError, field::Field};

/// February in a leap year has 29 days.
const LONGEST_MONTHS: [(u8, u32); 12] =
    [(1, 31), (2, 29), (3, 31), (4, 30), (5, 31), (6, 30), (7, 31), (8, 31), (9, 30), (10, 31), (11, 30), (12, 31)];

const EVERY_HOUR: u64 = (1 << 24) - 1;

/// The local times that match; bit n stands for the value n, and no set is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Calendar {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    day_rule: DayRule,
}

/// How day of month and day of week work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DayRule {
    /// One of them is a star: the other decides.
    Both,
    /// Both are restricted.
    Either,
}

impl Calendar {
    /// Reads five fields; refuses what never fires.
    pub(super) fn parse(expression: &str) -> Result<Self, ScheduleError> {
        let fields: Vec<&str> = expression.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else { return Err(field_count(expression, &fields)) };
        let days = Field::DayOfMonth.parse(day)?;
        let weekdays = Field::DayOfWeek.parse(weekday)?;
        let calendar = Self {
            minutes: Field::Minute.parse(minute)?.bits,
            hours: Field::Hour.parse(hour)?.bits,
            days: days.bits,
            months: Field::Month.parse(month)?.bits,
            weekdays: weekdays.bits,
            day_rule: if days.starred || weekdays.starred { DayRule::Both } else { DayRule::Either },
        };
        match calendar.day_that_never_comes() {
            None => Ok(calendar),
            Some(day) => Err(ScheduleError::NeverFires {
                expression: expression.to_owned(),
                remedy: format!("none of its months has a day {day}, so choose an earlier day or another month"),
            }),
        }
    }

    pub(super) fn is_every_hour(&self) -> bool {
        self.hours == EVERY_HOUR
    }

    /// The first local time at or after a whole minute, up to the end of `last_year`.
    pub(super) fn first_from(&self, from: DateTime, last_year: i16) -> Option<DateTime> {
        let mut date = self.first_day_from(from.date(), last_year)?;
        if date == from.date() {
            if let Some(found) = self.first_time_from(date, from.hour(), from.minute()) {
                return Some(found);
            }
            // An error is the end of representable time, here and below.
            date = self.first_day_from(date.tomorrow().ok()?, last_year)?;
        }
        self.first_time_from(date, 0, 0)
    }

    fn first_day_from(&self, from: Date, last_year: i16) -> Option<Date> {
        let mut date = from;
        while date.year() <= last_year {
            if !contains(self.months, date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
            } else if self.has_day(date) {
                return Some(date);
            } else {
                date = date.tomorrow().ok()?;
            }
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let day = contains(self.days, date.day());
        let weekday = contains(self.weekdays, date.weekday().to_sunday_zero_offset());
        match self.day_rule {
            DayRule::Both => day && weekday,
            DayRule::Either => day || weekday,
        }
    }

    fn first_time_from(&self, date: Date, hour: i8, minute: i8) -> Option<DateTime> {
        if contains(self.hours, hour)
            && let Some(minute) = first_from(self.minutes, minute)
        {
            return Some(date.to_datetime(time(hour, minute, 0, 0)));
        }
        let hour = first_from(self.hours, hour + 1)?;
        Some(date.to_datetime(time(hour, first_from(self.minutes, 0)?, 0, 0)))
    }

    /// With a star for the day of week, the earliest day of month may be one that no chosen month reaches.
    fn day_that_never_comes(&self) -> Option<u32> {
        let earliest = self.days.trailing_zeros();
        let comes = LONGEST_MONTHS.iter().any(|&(month, length)| self.months & (1 << month) != 0 && earliest <= length);
        match self.day_rule {
            DayRule::Both if !comes => Some(earliest),
            DayRule::Both | DayRule::Either => None,
        }
    }
}

fn field_count(expression: &str, fields: &[&str]) -> ScheduleError {
    let is_year = |text: &&str| text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let shorter = match fields {
        [five @ .., year] if five.len() == 5 && is_year(year) => Some(("the year", five)),
        [_, five @ ..] if five.len() == 5 => Some(("the seconds", five)),
        [_, five @ .., _] if five.len() == 5 => Some(("the seconds and the year", five)),
        _ => None,
    };
    let remedy = shorter.map_or_else(
        || "write all five, for example `0 3 * * *`".to_owned(),
        |(surplus, five)| {
            let numbers_days = five.last().is_some_and(|days| days.contains(|c: char| c.is_ascii_digit()));
            // Dialects with seconds count Sunday as 1, so that the shorter text may mean another day.
            let caution = if numbers_days { " (days of the week count from Sunday = 0 here)" } else { "" };
            format!("drop {surplus} and write `{}`{caution}", five.join(" "))
        },
    );
    ScheduleError::FieldCount { expression: expression.to_owned(), found: fields.len(), remedy }
}

fn contains(set: u64, value: i8) -> bool {
    set & (1 << value) != 0
}

/// The smallest member that is not below `least`, which is less than 64.
fn first_from(set: u64, least: i8) -> Option<i8> {
    let rest = set & (u64::MAX << least);
    if rest == 0 { None } else { i8::try_from(rest.trailing_zeros()).ok() }
}
