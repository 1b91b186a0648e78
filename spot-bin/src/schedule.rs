//! `schedule`: when an expression fires.

use std::fmt::Write as _;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use spot_core::Schedule;
use spot_core::ports::Clock as _;
use spot_core::schedule::time_zone;
use spot_kube::TokioClock;

use crate::cli::{Output, ScheduleArgs};
use crate::exit::{Exit, Fault};
use crate::output;

/// The next times of a schedule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Fires {
    expression: String,
    time_zone: String,
    times: Vec<Time>,
}

/// One of them.
#[derive(Debug, Serialize)]
struct Time {
    /// With the offset that is in force then.
    local: String,
    utc: Timestamp,
    #[serde(skip)]
    day: String,
}

/// Prints the next times of a schedule.
///
/// # Errors
/// When expression or time zone are refused, or nothing can be printed.
pub fn schedule(args: &ScheduleArgs) -> Result<Exit, Fault> {
    let zone = time_zone(&args.time_zone).map_err(Fault::usage)?;
    let schedule = Schedule::parse(&args.expression, &zone).map_err(Fault::usage)?;
    let times = Fires::after(&schedule, args.from.unwrap_or_else(|| TokioClock::new().now()), args.count.get());
    let found = times.times.len();
    output::result(&match args.output {
        Output::Text => times.text(),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&times).context("can't write JSON")?),
    })?;
    if found < args.count.get() {
        output::note("there are no more times in the five years after");
    }
    Ok(Exit::Orderly)
}

impl Fires {
    fn after(schedule: &Schedule, from: Timestamp, count: usize) -> Self {
        let zone = schedule.time_zone();
        let times = std::iter::successors(schedule.next_after(from), |last| schedule.next_after(*last));
        let times = times.take(count).map(|utc| {
            let local = utc.to_zoned(zone.clone());
            Time {
                local: local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
                utc,
                day: local.strftime("%a").to_string(),
            }
        });
        Self {
            expression: schedule.to_string(),
            time_zone: zone.iana_name().unwrap_or("UTC").to_owned(),
            times: times.collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for Time { local, day, .. } in &self.times {
            // Writing into a String has no way to fail.
            let _written = writeln!(text, "{day} {local} {}", self.time_zone);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(expression: &str, zone: &str, from: &str, count: usize) -> Fires {
        let zone = time_zone(zone).expect("the zone exists");
        let schedule = Schedule::parse(expression, &zone).expect("it is a schedule");
        Fires::after(&schedule, from.parse().expect("it is a time"), count)
    }

    #[test]
    fn times_carry_the_offset_that_is_in_force_then() {
        let times = times("30 1 * * *", "Europe/London", "2026-03-28T00:00:00Z", 3);
        insta::assert_snapshot!(times.text(), @r"
        Sat 2026-03-28T01:30:00+00:00 Europe/London
        Sun 2026-03-29T02:00:00+01:00 Europe/London
        Mon 2026-03-30T01:30:00+01:00 Europe/London
        ");
    }

    #[test]
    fn an_interval_counts_from_the_time_before() {
        let times = times("@every 90m", "UTC", "2026-11-30T10:00:00Z", 2);
        let utc: Vec<_> = times.times.iter().map(|time| time.utc.to_string()).collect();
        assert_eq!(utc, ["2026-11-30T11:30:00Z", "2026-11-30T13:00:00Z"]);
    }

    #[test]
    fn as_json_each_time_is_local_and_utc() {
        let times = times("@daily", "Asia/Tokyo", "2026-11-30T10:00:00Z", 1);
        let json = serde_json::to_string(&times).expect("it is JSON");
        assert_eq!(
            json,
            r#"{"expression":"@daily","timeZone":"Asia/Tokyo","times":[{"local":"2026-12-01T00:00:00+09:00","utc":"2026-11-30T15:00:00Z"}]}"#
        );
    }
}
