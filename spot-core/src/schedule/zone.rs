//! Time zones by name, from the database that is compiled in.

use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::{ScheduleError, near_miss};
use crate::error::plain;

const PREFIXES: [&str; 2] = ["TZ=", "CRON_TZ="];

/// The time zone of an IANA name, case aside, such as `Europe/London`.
///
/// Only the bundled database answers, never the files of the machine: the same name means the same everywhere.
///
/// # Errors
///
/// [`ScheduleError::UnknownTimeZone`], with the name that was probably meant.
///
/// ```
/// use spot_core::schedule::time_zone;
///
/// assert_eq!(time_zone("Europe/London")?.iana_name(), Some("Europe/London"));
/// assert!(time_zone("Europe/Lodnon").unwrap_err().to_string().contains("did you mean `Europe/London`?"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn time_zone(name: &str) -> Result<TimeZone, ScheduleError> {
    let database = TimeZoneDatabase::bundled();
    match database.get(name) {
        // `Etc/Unknown` is a name for having none.
        Ok(zone) if !zone.is_unknown() => Ok(zone),
        // The error's text is about the database; what helps is the name.
        Ok(_) | Err(_) => {
            let remedy = remedy(&database, name);
            Err(ScheduleError::UnknownTimeZone { name: plain(name).into_owned(), remedy })
        }
    }
}

/// Takes a time zone off the front of an expression.
pub(super) fn split_prefix(expression: &str) -> Result<(Option<TimeZone>, &str), ScheduleError> {
    let Some(rest) = PREFIXES.iter().find_map(|prefix| expression.strip_prefix(prefix)) else {
        return Ok((None, expression));
    };
    let (name, timing) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Ok((Some(time_zone(name)?), timing.trim_start()))
}

fn remedy(database: &TimeZoneDatabase, typed: &str) -> String {
    let names: Vec<String> = database.available().map(|name| name.as_str().to_owned()).collect();
    let meant = meant(&names, typed).map_or_else(String::new, |name| format!("did you mean `{name}`? "));
    format!("{meant}write an IANA name such as `UTC` or `Europe/London`")
}

fn meant<'n>(names: &'n [String], typed: &str) -> Option<&'n str> {
    // `GMT+1` has neighbours among the names, and they mean another hour (`Etc/GMT+1` is west of Greenwich).
    if typed.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let typed = typed.trim().replace(' ', "_");
    let city = |name: &&str| name.rsplit_once('/').is_some_and(|(_, city)| city.eq_ignore_ascii_case(&typed));
    let names = || names.iter().map(String::as_str);
    // One edit in four characters: a slip in `Europe/London`, but not one abbreviation for another.
    names().find(city).or_else(|| near_miss::closest(&typed, names(), typed.chars().count() / 4))
}
