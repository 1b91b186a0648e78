//! The duration of `@every`, as Go writes it.

use jiff::SignedDuration;

use super::ScheduleError;

/// A schedule that does not fire within five years is one that never fires.
const LONGEST_SECONDS: u128 = 5 * 365 * 24 * 60 * 60;

/// More digits of a fraction are below a nanosecond of an hour.
const FRACTION_DIGITS: usize = 18;

/// The units with their nanoseconds; the two kinds of micro sign are different characters.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a positive duration, down to whole seconds and at least one.
pub(super) fn parse(text: &str) -> Result<SignedDuration, ScheduleError> {
    let bad = |remedy: String| ScheduleError::BadInterval { value: text.to_owned(), remedy };
    let nanoseconds = parse_nanoseconds(text).map_err(bad)?;
    if nanoseconds == 0 {
        return Err(bad("write a duration above zero, such as `@every 1h30m`".to_owned()));
    }
    let seconds = (nanoseconds / 1_000_000_000).max(1);
    match i64::try_from(seconds) {
        Ok(whole) if seconds <= LONGEST_SECONDS => Ok(SignedDuration::from_secs(whole)),
        _ => Err(bad("write a duration of at most five years, `43800h`".to_owned())),
    }
}

/// Fails with the remedy.
fn parse_nanoseconds(text: &str) -> Result<u128, String> {
    if text.is_empty() {
        return Err("write a duration after it, such as `@every 1h30m`".to_owned());
    }
    if text.contains(char::is_whitespace) {
        let joined: String = text.split_whitespace().collect();
        return Err(format!("write the duration without spaces, `@every {joined}`"));
    }
    if text.starts_with('-') {
        return Err("write a duration above zero, such as `@every 1h30m`".to_owned());
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    let mut total: u128 = 0;
    loop {
        let (part, behind) = parse_part(rest)?;
        total = total.saturating_add(part);
        if behind.is_empty() {
            return Ok(total);
        }
        rest = behind;
    }
}

/// One number with its unit, in nanoseconds, and the text behind it.
fn parse_part(text: &str) -> Result<(u128, &str), String> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err("write numbers with their units, such as `1h30m`".to_owned());
    }
    let (unit, rest) = rest.split_at(rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len()));
    let Some(&(_, nanoseconds)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(unit_remedy(whole, unit));
    };
    // Digits alone: an error is a number too large, which the caller refuses.
    let whole = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(u128::MAX) };
    Ok((whole.saturating_mul(nanoseconds).saturating_add(fraction_of(nanoseconds, fraction)), rest))
}

fn fraction_of(nanoseconds: u128, digits: &str) -> u128 {
    let (value, scale) = digits
        .bytes()
        .take(FRACTION_DIGITS)
        .fold((0, 1), |(value, scale), digit| (value * 10 + u128::from(digit - b'0'), scale * 10));
    nanoseconds * value / scale
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn unit_remedy(whole: &str, unit: &str) -> String {
    let hours_in = match unit {
        "d" | "day" | "days" => Some(24_u64),
        "w" | "week" | "weeks" => Some(7 * 24),
        _ => None,
    };
    let hours = hours_in.and_then(|hours| hours.checked_mul(whole.parse().ok()?));
    match hours {
        Some(hours) => format!("the largest unit is the hour, write `{hours}h`"),
        None if unit.is_empty() => format!("write the unit, such as `{whole}m` or `{whole}h`"),
        None => format!("`{unit}` is no unit, use h, m, s, ms, us or ns"),
    }
}
