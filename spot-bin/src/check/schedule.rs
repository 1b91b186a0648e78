//! When runs begin, and whether any of them begins inside a window. Pure.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use spot_core::budget::Budgets;
use spot_core::schedule::Schedule;

use super::{Finding, Subject};
use crate::windows;

/// How many of the next times are told.
const TIMES: usize = 3;

/// The next times of the schedule, told in this zone, and the first of them inside a window.
pub(super) fn findings(schedule: &Schedule, budgets: &Budgets, zone: &TimeZone, now: Timestamp) -> Vec<Finding> {
    let times = std::iter::successors(schedule.next_after(now), |time| schedule.next_after(*time));
    let told = |time: Timestamp| time.to_zoned(zone.clone()).strftime("%F %T %Z").to_string();
    let next: Vec<_> = times.take(TIMES).map(told).collect();
    if next.is_empty() {
        let detail = format!("`{schedule}` does not fire in the years to come");
        return vec![Finding::failure(Subject::Schedule, detail, Some("correct `schedule`"))];
    }
    let mut findings = vec![Finding::ok(Subject::Schedule, format!("`{schedule}` fires next at {}", next.join(", ")))];
    if budgets.windows.is_empty() {
        return findings;
    }
    let remedy = "change `schedule` or `windows`: a run that begins outside of all windows begins no node";
    findings.push(match windows::first(schedule, budgets, now) {
        Ok(first) => {
            Finding::ok(Subject::Schedule, format!("the next run inside one of `windows` begins at {}", told(first)))
        }
        Err(last) if schedule.interval().is_some() => {
            let detail = format!("begun now, no run before {} would begin inside one of `windows`", told(last));
            Finding::advice(Subject::Schedule, detail, remedy)
        }
        Err(last) => {
            let detail = format!("no run before {} begins inside one of `windows`", told(last));
            Finding::failure(Subject::Schedule, detail, Some(remedy))
        }
    });
    findings
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::civil::{Time, Weekday};
    use rstest::rstest;
    use spot_core::budget::Window;

    use super::super::Verdict;
    use super::*;

    /// What is said of this schedule on a Sunday at noon, in Berlin's winter, with windows that open at these hours.
    fn said(schedule: &str, windows: &[(Weekday, i8, u64)]) -> Vec<Finding> {
        let berlin = TimeZone::get("Europe/Berlin").expect("it is a time zone");
        let window = |(day, hour, hours): &(Weekday, i8, u64)| Window {
            days: vec![*day],
            start: Time::constant(*hour, 0, 0, 0),
            duration: Duration::from_secs(hours * 3600),
            time_zone: berlin.clone(),
        };
        let budgets = Budgets { windows: windows.iter().map(window).collect(), ..Budgets::default() };
        let schedule = Schedule::parse(schedule, &berlin).expect("it is a schedule");
        findings(&schedule, &budgets, &berlin, "2026-03-01T12:00:00Z".parse().expect("it is a time"))
    }

    #[test]
    fn the_next_times_are_told_in_the_zone_that_is_configured() {
        let [found] = &said("30 3 * * *", &[])[..] else { panic!("there is no window to tell of") };
        assert_eq!(found.verdict, Verdict::Ok);
        let times = "2026-03-02 03:30:00 CET, 2026-03-03 03:30:00 CET, 2026-03-04 03:30:00 CET";
        assert_eq!(found.detail, format!("`30 3 * * *` fires next at {times}"));
    }

    #[test]
    fn a_schedule_that_does_not_fire_for_years_fails() {
        let leap_days = Schedule::parse("0 0 29 2 *", &TimeZone::UTC).expect("it is a schedule");
        // The year 2100 has no leap day.
        let now = "2096-03-01T00:00:00Z".parse().expect("it is a time");
        let found = findings(&leap_days, &Budgets::default(), &TimeZone::UTC, now);
        assert_eq!(found.iter().map(|finding| finding.verdict).collect::<Vec<_>>(), [Verdict::Failure], "{found:?}");
    }

    #[rstest]
    #[case::tomorrow("0 3 * * *", &[(Weekday::Tuesday, 2, 4)], Verdict::Ok, "2026-03-03 03:00:00 CET")]
    #[case::in_the_first_that_is_met("@hourly", &[(Weekday::Friday, 2, 1), (Weekday::Monday, 9, 1)],
        Verdict::Ok, "2026-03-02 09:00:00 CET")]
    #[case::over_midnight("30 0 * * *", &[(Weekday::Monday, 22, 6)], Verdict::Ok, "2026-03-03 00:30:00 CET")]
    #[case::some_month("0 3 1 * *", &[(Weekday::Saturday, 2, 4)], Verdict::Ok, "2026-08-01 03:00:00 CEST")]
    #[case::just_after_it_closed("0 3 * * *", &[(Weekday::Tuesday, 2, 1)], Verdict::Failure, "2027-03-02")]
    #[case::on_another_day("0 3 * * sat", &[(Weekday::Sunday, 0, 24)], Verdict::Failure, "2027-02-27")]
    #[case::each_minute_of_another_hour("* 3 * * *", &[(Weekday::Tuesday, 4, 1)], Verdict::Failure, "CE")]
    #[case::each_minute("* * * * *", &[(Weekday::Sunday, 12, 1)], Verdict::Ok, "2026-03-08 12:00:00 CET")]
    #[case::counted_from_the_run_before("@every 168h", &[(Weekday::Tuesday, 4, 1)], Verdict::Advice, "begun now")]
    fn the_first_run_inside_a_window_is_told_and_that_there_is_none(
        #[case] schedule: &str,
        #[case] windows: &[(Weekday, i8, u64)],
        #[case] verdict: Verdict,
        #[case] words: &str,
    ) {
        let found = said(schedule, windows);
        let [_, window] = &found[..] else { panic!("windows are told of: {found:?}") };
        assert_eq!(window.verdict, verdict, "{window:?}");
        assert!(window.detail.contains(words), "{window:?}");
        assert_eq!(window.remedy.is_some(), verdict != Verdict::Ok, "{window:?}");
    }
}
