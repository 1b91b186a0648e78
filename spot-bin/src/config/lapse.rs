//! How long something may take, as people write it: `60s`, `25m`, `1h30m`.
//!
//! The grammar is narrower than most: whole numbers, each with its unit, from hours to milliseconds, the larger unit
//! first. Whatever could mean two things (`10`, `10M`, `1.5h`, `10 minutes`) is refused with the way to write it.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The shape of every duration, for the JSON Schema (an expression without look-ahead, which Helm's engine lacks).
pub(crate) const PATTERN: &str = "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$";

/// Beyond a year a duration is a slip of the pen, and its sum with a date may not exist.
const LONGEST: Duration = Duration::from_hours(366 * 24);

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A duration that may be zero.
pub(crate) type Wait = Lapse<true>;

/// A duration that must be longer than zero.
pub(crate) type Timeout = Lapse<false>;

/// A duration; `ZERO` says whether it may be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lapse<const ZERO: bool>(Duration);

/// A duration longer than zero, or nothing (written as the empty text).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionalTimeout(pub(crate) Option<Timeout>);

impl<const ZERO: bool> Lapse<ZERO> {
    /// For defaults; `seconds` is not checked.
    pub(crate) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub(crate) const fn get(self) -> Duration {
        self.0
    }

    fn parse(text: &str) -> Result<Self, String> {
        let duration = parse(text)?;
        if !ZERO && duration.is_zero() {
            return Err(format!(
                "found {text:?}, but it must be longer than zero: write a duration such as 30s or 10m"
            ));
        }
        Ok(Self(duration))
    }
}

impl<const ZERO: bool> fmt::Display for Lapse<ZERO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(self.0))
    }
}

impl<const ZERO: bool> Serialize for Lapse<ZERO> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const ZERO: bool> Deserialize<'de> for Lapse<ZERO> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor::<ZERO>)
    }
}

struct Visitor<const ZERO: bool>;

impl<const ZERO: bool> de::Visitor<'_> for Visitor<ZERO> {
    type Value = Lapse<ZERO>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 60s, 10m or 1h30m")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Lapse::parse(text).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Err(E::custom(without_unit(&number.to_string())))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Err(E::custom(negative(&number.to_string())))
    }
}

impl<const ZERO: bool> JsonSchema for Lapse<ZERO> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        if ZERO {
            json_schema!({ "type": "string", "minLength": 2, "pattern": PATTERN })
        } else {
            json_schema!({ "type": "string", "minLength": 2, "pattern": PATTERN, "not": { "pattern": "^[0hms]*$" } })
        }
    }
}

impl Serialize for OptionalTimeout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(timeout) => timeout.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }
}

impl<'de> Deserialize<'de> for OptionalTimeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OptionalVisitor)
    }
}

struct OptionalVisitor;

impl de::Visitor<'_> for OptionalVisitor {
    type Value = OptionalTimeout;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 60s, 10m or 1h30m, or \"\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if text.is_empty() {
            return Ok(OptionalTimeout(None));
        }
        Visitor::<false>.visit_str(text).map(|timeout| OptionalTimeout(Some(timeout)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Err(E::custom(without_unit(&number.to_string())))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Err(E::custom(negative(&number.to_string())))
    }
}

impl JsonSchema for OptionalTimeout {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "OptionalDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN, "not": { "pattern": "^[0hms]+$" } })
    }
}

/// Writes a duration so that [`parse`] reads it back; below two minutes in seconds, as people do.
pub(crate) fn written(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let units = if rest < 120_000 { &UNITS[2..] } else { &UNITS[..] };
    let parts = units.iter().map(|(unit, millis)| {
        let count = rest / u128::from(*millis);
        rest %= u128::from(*millis);
        if count > 0 { format!("{count}{unit}") } else { String::new() }
    });
    let text: String = parts.collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// The duration that a text in this grammar is, or what to write instead.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Err("found nothing: write a duration such as 60s, 10m or 1h30m".to_owned());
    }
    if text.starts_with('-') {
        return Err(negative(text));
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(without_unit(text));
    }
    let millis = millis(text).ok_or_else(|| format!("found {text:?}, which is no duration: write {}", remedy(text)))?;
    let duration = Duration::from_millis(millis);
    if duration > LONGEST {
        return Err(format!("found {text:?}, which is longer than a year: write at most {}", written(LONGEST)));
    }
    Ok(duration)
}

/// The milliseconds of a text that keeps to the grammar.
fn millis(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0u64;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: u64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..][..rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count()];
        // Units that were passed over don't come back, so each stands once, the larger first.
        let (_, millis) = units.find(|(name, _)| *name == unit)?;
        total = total.checked_add(count.checked_mul(*millis)?)?;
        rest = &rest[digits + unit.len()..];
    }
    Some(total)
}

/// What to write instead of `text`: exactly, where its meaning is plain.
fn remedy(text: &str) -> String {
    // A capital M is a month to some and a minute to others.
    match humantime::parse_duration(text) {
        Ok(meant) if !text.contains('M') && meant <= LONGEST => written(meant),
        _ => "whole numbers with the units h, m, s or ms, the larger first, such as 60s, 10m or 1h30m".to_owned(),
    }
}

fn without_unit(number: &str) -> String {
    format!("found {number}, which has no unit: write {number}s, {number}m or {number}h")
}

fn negative(text: &str) -> String {
    format!("found {text}, but a duration is never negative: write a duration such as 60s, 10m or 1h30m")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("60s", 60_000)]
    #[case("25m", 1_500_000)]
    #[case("1h30m", 5_400_000)]
    #[case("1h1m1s1ms", 3_661_001)]
    #[case("250ms", 250)]
    #[case("0s", 0)]
    #[case("0h0m", 0)]
    #[case("90m", 5_400_000)]
    #[case("24h", 86_400_000)]
    fn a_duration_is_numbers_with_units(#[case] text: &str, #[case] millis: u64) {
        let wait = Wait::parse(text).unwrap();
        assert_eq!(wait.get(), Duration::from_millis(millis));
        assert_eq!(Wait::parse(&wait.to_string()), Ok(wait), "what is written reads back");
    }

    #[rstest]
    #[case("10 minutes", "write 10m")]
    #[case("1h 30m", "write 1h30m")]
    #[case("90sec", "write 90s")]
    #[case("1d", "write 24h")]
    #[case("30m1h", "write 1h30m")]
    #[case("10M", "such as")]
    #[case("1.5h", "write 1h30m")]
    #[case("1h30", "such as")]
    #[case("h", "such as")]
    #[case("soon", "such as")]
    #[case("+5m", "such as")]
    #[case("５m", "such as")]
    #[case("10", "write 10s, 10m or 10h")]
    #[case("-5m", "never negative")]
    #[case("", "found nothing")]
    #[case("9000h", "write at most 8784h")]
    #[case("99999999999999999999h", "no duration")]
    fn what_could_mean_something_else_is_refused_with_the_way_to_write_it(#[case] text: &str, #[case] remedy: &str) {
        let message = Wait::parse(text).unwrap_err();
        assert!(message.contains(remedy), "{message}");
    }

    #[rstest]
    #[case("0s")]
    #[case("0h0m0s0ms")]
    fn a_timeout_of_zero_is_refused(#[case] text: &str) {
        assert!(Timeout::parse(text).unwrap_err().contains("longer than zero"));
        assert!(Wait::parse(text).is_ok());
    }
}
