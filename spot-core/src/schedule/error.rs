//! Why an expression is refused, and how to write it instead.

use super::field::Field;

/// Why a schedule or a time zone is refused: what was written, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// There is nothing to read, perhaps after a time zone.
    #[error("the schedule is empty: write five fields such as `0 3 * * *`, or a shortcut such as `@hourly`")]
    Empty,
    /// Not five fields; six are usually those of a dialect with seconds.
    #[error(
        "schedule `{expression}` has {found} fields, not 5 (minute, hour, day of month, month, day of week): {remedy}"
    )]
    FieldCount {
        /// The fields as written.
        expression: String,
        /// How many there are.
        found: usize,
        /// How to write it in five.
        remedy: String,
    },
    /// A number beyond the field's bounds.
    #[error("{field} `{value}` is out of range: write a number from {min} to {max}")]
    OutOfRange {
        /// Where it stands.
        field: Field,
        /// The number as written.
        value: String,
        /// The smallest that is possible.
        min: u8,
        /// The largest that is possible.
        max: u8,
    },
    /// `7` as a day of the week, which is Sunday in one dialect and Saturday in another.
    #[error("day of week `{value}` is refused because Sunday is 0 here, not 7: {remedy}")]
    SundayAsSeven {
        /// The item as written.
        value: String,
        /// The same with 0.
        remedy: String,
    },
    /// A range whose end is before its start.
    #[error("{field} range `{value}` runs backwards: {remedy}")]
    ReversedRange {
        /// Where it stands.
        field: Field,
        /// The range as written.
        value: String,
        /// The same in two ranges.
        remedy: String,
    },
    /// Neither a number nor a name of this field.
    #[error("{field} `{value}` is not known: {remedy}")]
    UnknownValue {
        /// Where it stands.
        field: Field,
        /// The value as written.
        value: String,
        /// What may stand there.
        remedy: String,
    },
    /// A step that is no positive number.
    #[error("{field} `{value}` has no valid step: write a whole number of at least 1 after the slash, such as `*/5`")]
    BadStep {
        /// Where it stands.
        field: Field,
        /// The item as written.
        value: String,
    },
    /// An item without its parts in place.
    #[error("{field} `{value}` is malformed: {remedy}")]
    Malformed {
        /// Where it stands.
        field: Field,
        /// The list or item as written.
        value: String,
        /// What is missing or too much.
        remedy: String,
    },
    /// An `@` word that stands for nothing.
    #[error("shortcut `{value}` is not known: {remedy}")]
    UnknownShortcut {
        /// The shortcut as written.
        value: String,
        /// What may stand there.
        remedy: String,
    },
    /// An `@every` without a usable duration.
    #[error("interval `@every {value}` is not valid: {remedy}")]
    BadInterval {
        /// The duration as written.
        value: String,
        /// What to write.
        remedy: String,
    },
    /// A date that no year has.
    #[error("schedule `{expression}` never fires: {remedy}")]
    NeverFires {
        /// The fields as written.
        expression: String,
        /// Which day is missing.
        remedy: String,
    },
    /// A name that the time-zone database does not have.
    #[error("time zone `{name}` is not known: {remedy}")]
    UnknownTimeZone {
        /// The name as written.
        name: String,
        /// What to write.
        remedy: String,
    },
}
