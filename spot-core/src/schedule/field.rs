//! One field of an expression: its bounds, its names, and its text as a set of values.

use std::fmt;

use super::{ScheduleError, near_miss};

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// A field of a cron expression, in the order in which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31.
    DayOfMonth,
    /// 1 to 12, or JAN to DEC.
    Month,
    /// 0 to 6 from Sunday, or SUN to SAT.
    DayOfWeek,
}

impl Field {
    /// Every field, in the order in which they are written.
    pub const ALL: [Self; 5] = [Self::Minute, Self::Hour, Self::DayOfMonth, Self::Month, Self::DayOfWeek];

    /// Reads a list of values, ranges and steps.
    pub(super) fn parse(self, text: &str) -> Result<Values, ScheduleError> {
        let mut values = Values { bits: 0, starred: false };
        for item in text.split(',') {
            if item.is_empty() {
                return Err(self.malformed(text, "take out the comma that has nothing on one side"));
            }
            let Values { bits, starred } = self.parse_item(item)?;
            values = Values { bits: values.bits | bits, starred: values.starred || starred };
        }
        Ok(values)
    }

    fn parse_item(self, item: &str) -> Result<Values, ScheduleError> {
        let (range, step) = match item.split_once('/') {
            None => (item, None),
            Some((range, step)) => (range, Some(self.parse_step(item, step)?)),
        };
        let (first, last) = match range.split_once('-') {
            None => (range, None),
            Some((first, last)) if first.is_empty() || last.is_empty() || last.contains('-') => {
                return Err(self.malformed(item, "a range has one value on each side of one hyphen"));
            }
            Some((first, last)) => (first, Some(last)),
        };
        if self == Self::DayOfWeek && [Some(first), last].into_iter().flatten().any(|day| number(day) == Some(7)) {
            return Err(self.sunday_as_seven(item, first, last, step));
        }

        let (min, max) = self.bounds();
        let starred = first == "*" || first == "?";
        let start = if starred { min } else { self.parse_value(first)? };
        let last = last.map(|last| self.parse_value(last)).transpose()?;
        let end = match last {
            // A star with an upper end is a star still: that is how robfig/cron reads `*-5`.
            _ if starred => max,
            Some(last) => last,
            // `N/step` runs on to the maximum.
            None if step.is_some() => max,
            None => start,
        };
        if start > end {
            return Err(self.reversed(item, (start, end), step));
        }
        let step = step.unwrap_or(1);
        let bits = (start..=end).step_by(step).fold(0, |bits, value| bits | (1 << value));
        // `*/2` restricts, `*/1` does not.
        Ok(Values { bits, starred: starred && step == 1 })
    }

    fn parse_step(self, item: &str, step: &str) -> Result<usize, ScheduleError> {
        match number(step) {
            None | Some(0) => Err(ScheduleError::BadStep { field: self, value: item.to_owned() }),
            // Steps beyond the maximum leave the first value alone, however large.
            Some(step) => Ok(usize::try_from(step).unwrap_or(usize::MAX)),
        }
    }

    fn parse_value(self, text: &str) -> Result<u8, ScheduleError> {
        let (min, max) = self.bounds();
        if let Some(number) = number(text) {
            return u8::try_from(number)
                .ok()
                .filter(|value| (min..=max).contains(value))
                .ok_or_else(|| ScheduleError::OutOfRange { field: self, value: text.to_owned(), min, max });
        }
        (min..).zip(self.names()).find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(value, _)| value).ok_or_else(
            || ScheduleError::UnknownValue { field: self, value: text.to_owned(), remedy: self.value_remedy(text) },
        )
    }

    fn bounds(self) -> (u8, u8) {
        match self {
            Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 6),
        }
    }

    /// The names of the values from the minimum on.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Minute | Self::Hour | Self::DayOfMonth => &[],
            Self::Month => &MONTHS,
            Self::DayOfWeek => &WEEKDAYS,
        }
    }

    fn value_remedy(self, text: &str) -> String {
        let (min, max) = self.bounds();
        let names = self.names();
        let by_name = match (names.first(), names.last()) {
            (Some(first), Some(last)) => format!(" or a name from {first} to {last}"),
            _ => String::new(),
        };
        let allowed = format!("write a number from {min} to {max}{by_name}");
        // Names are written in full more often than they are misspelt.
        let meant = names
            .iter()
            .copied()
            .find(|name| text.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(name)))
            .filter(|_| text.bytes().all(|byte| byte.is_ascii_alphabetic()))
            .or_else(|| near_miss::closest(text, names.iter().copied(), 1));
        let foreign = text.contains('#')
            || matches!(text.trim_start_matches(|c: char| c.is_ascii_digit()), "L" | "W" | "LW" | "H");
        match meant {
            Some(name) => format!("did you mean `{name}`? {allowed}"),
            None if foreign => format!("`#`, `L`, `W` and `H` belong to other dialects; {allowed}"),
            None => allowed,
        }
    }

    fn malformed(self, value: &str, remedy: &str) -> ScheduleError {
        ScheduleError::Malformed { field: self, value: value.to_owned(), remedy: remedy.to_owned() }
    }

    fn sunday_as_seven(self, item: &str, first: &str, last: Option<&str>, step: Option<usize>) -> ScheduleError {
        let start = self.parse_value(first).ok();
        let remedy = match (start, last, step) {
            (Some(0 | 1), Some(_), None) => "write `*`, which is every day".to_owned(),
            (Some(6), Some(_), None) => format!("write `{first},0`"),
            (Some(_), Some(_), None) => format!("write `{first}-6,0`"),
            _ => "write `0` or `SUN`".to_owned(),
        };
        ScheduleError::SundayAsSeven { value: item.to_owned(), remedy }
    }

    fn reversed(self, item: &str, (start, end): (u8, u8), step: Option<usize>) -> ScheduleError {
        let (min, max) = self.bounds();
        let by_name = item.starts_with(|c: char| c.is_ascii_alphabetic());
        let written = |value: u8| match self.names().get(usize::from(value - min)) {
            Some(name) if by_name => (*name).to_owned(),
            _ => value.to_string(),
        };
        let range = |start, end| {
            if start == end { written(start) } else { format!("{}-{}", written(start), written(end)) }
        };
        let remedy = match step {
            None => format!("write two, `{},{}`", range(start, max), range(min, end)),
            Some(_) => "write the values one by one, with commas".to_owned(),
        };
        ScheduleError::ReversedRange { field: self, value: item.to_owned(), remedy }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        })
    }
}

/// What a field's text allows: bit n stands for the value n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Values {
    pub(super) bits: u64,
    /// Whether a star without a real step is among the items: such a day field leaves the choice to the other.
    pub(super) starred: bool,
}

/// Digits alone, without a sign; too many of them are the largest number.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}
