//! Schedules by example, and the two tables.
#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use spot_core::{
    Schedule, ScheduleError,
    schedule::{Field, time_zone},
};

const CRON: &str = include_str!("../testdata/cron.tsv");
const CRON_DST: &str = include_str!("../testdata/cron-dst.tsv");

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn utc(expression: &str) -> Result<Schedule, ScheduleError> {
    Schedule::parse(expression, &TimeZone::UTC)
}

fn in_zone(expression: &str, zone: &str) -> Schedule {
    Schedule::parse(expression, &time_zone(zone).unwrap()).unwrap()
}

fn fires(schedule: &Schedule, after: Timestamp) -> impl Iterator<Item = Timestamp> {
    std::iter::successors(schedule.next_after(after), |previous| schedule.next_after(*previous))
}

fn refusal(expression: &str) -> String {
    match utc(expression) {
        Ok(schedule) => format!("accepted {schedule}"),
        Err(error) => error.to_string(),
    }
}

/// What is wrong with a row of the tables, if anything.
fn fault(row: &str) -> Option<String> {
    let columns: Vec<&str> = row.split('\t').collect();
    let [expression, zone, after, expected @ ..] = &columns[..] else { return Some(format!("{row}: too short")) };
    let parsed = Schedule::parse(expression, &time_zone(zone).unwrap());
    match (parsed, expected) {
        (Err(ScheduleError::NeverFires { .. }), ["none"]) => None,
        (Err(ScheduleError::NeverFires { .. }), _) => Some(format!("{row}: never fires")),
        (Err(_), ["ERR", _]) => None,
        (Ok(schedule), [_, _, _]) => {
            let expected: Vec<Timestamp> = expected.iter().map(|time| at(time)).collect();
            let found: Vec<Timestamp> = fires(&schedule, at(after)).take(3).collect();
            (found != expected).then(|| format!("{row}: found {found:?}"))
        }
        (parsed, _) => Some(format!("{row}: parsed as {parsed:?}")),
    }
}

fn faults(table: &str) -> (usize, Vec<String>) {
    let rows: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
    (rows.len(), rows.into_iter().filter_map(fault).collect())
}

#[test]
fn every_row_of_the_cron_table_holds() {
    assert_eq!(faults(CRON), (52, Vec::new()));
}

#[test]
fn every_row_of_the_daylight_saving_table_holds() {
    assert_eq!(faults(CRON_DST), (9, Vec::new()));
}

#[test]
fn rb_13_a_schedule_that_never_matches_is_refused_and_has_no_next_time_to_be_mistaken() {
    assert!(refusal("0 0 30 2 *").contains("never fires"));
    assert!(matches!(utc("0 0 30 2 *"), Err(ScheduleError::NeverFires { .. })));
    // What can fire may still have no next time: none, and no moment in the past.
    let last = utc("0 0 29 2 *").unwrap();
    assert_eq!(last.next_after(Timestamp::MAX), None);
    assert!(last.next_after(at("2026-01-01T00:00:00Z")) > Some(at("2026-01-01T00:00:00Z")));
}

#[test]
fn rb_19_sunday_is_0_and_7_is_refused_rather_than_taken_for_saturday() {
    let wednesday = at("2025-01-01T00:00:00Z");
    for (expression, first) in [("0 3 * * 0", "05"), ("0 3 * * 1", "06"), ("0 3 * * SUN", "05")] {
        let expected = Some(at(&format!("2025-01-{first}T03:00:00Z")));
        assert_eq!(utc(expression).unwrap().next_after(wednesday), expected, "{expression}");
    }
    assert!(refusal("0 3 * * 7").contains("Sunday is 0 here, not 7"));
}

#[test]
fn rb_59_five_fields_and_shortcuts_are_read_and_six_fields_are_not_shifted_by_one() {
    let after = at("2026-01-01T00:07:00Z");
    for (expression, next) in [
        ("@hourly", "2026-01-01T01:00:00Z"),
        ("@daily", "2026-01-02T00:00:00Z"),
        ("@midnight", "2026-01-02T00:00:00Z"),
        ("@weekly", "2026-01-04T00:00:00Z"),
        ("@monthly", "2026-02-01T00:00:00Z"),
        ("@yearly", "2027-01-01T00:00:00Z"),
        ("@annually", "2027-01-01T00:00:00Z"),
        ("@every 1h", "2026-01-01T01:07:00Z"),
        ("*/15 * * * *", "2026-01-01T00:15:00Z"),
        ("TZ=UTC 0 3 * * *", "2026-01-01T03:00:00Z"),
    ] {
        assert_eq!(utc(expression).unwrap().next_after(after), Some(at(next)), "{expression}");
    }
    let six = refusal("0 */15 * * * *");
    assert!(six.contains("6 fields") && six.contains("`*/15 * * * *`"), "{six}");
    assert_eq!(utc(""), Err(ScheduleError::Empty));
}

#[test]
fn rb_67_clock_changes_skip_no_day_double_no_run_and_leave_no_hour_out() {
    let at_once = |schedule: &Schedule, zone: &str, after: &str, runs: usize| -> Vec<String> {
        let zone = time_zone(zone).unwrap();
        let times = fires(schedule, at(after)).take(runs);
        times.map(|time| zone.to_datetime(time).strftime("%m-%d %H:%M").to_string()).collect()
    };
    let berlin = in_zone("30 2 * * *", "Europe/Berlin");
    let spring = at_once(&berlin, "Europe/Berlin", "2025-03-29T12:00:00Z", 3);
    assert_eq!(spring, ["03-30 03:00", "03-31 02:30", "04-01 02:30"]);
    let autumn = at_once(&berlin, "Europe/Berlin", "2025-10-25T12:00:00Z", 3);
    assert_eq!(autumn, ["10-26 02:30", "10-27 02:30", "10-28 02:30"]);
    let sao_paulo = in_zone("0 0 * * *", "America/Sao_Paulo");
    let no_midnight = at_once(&sao_paulo, "America/Sao_Paulo", "2018-11-03T12:00:00Z", 2);
    assert_eq!(no_midnight, ["11-04 01:00", "11-05 00:00"]);
    let hour = SignedDuration::from_hours(1);
    for zone in ["Europe/Berlin", "America/Sao_Paulo"] {
        let hourly = in_zone("@hourly", zone);
        for after in ["2018-02-17T12:00:00Z", "2018-03-24T12:00:00Z", "2018-10-27T12:00:00Z", "2018-11-03T12:00:00Z"] {
            let times: Vec<_> = fires(&hourly, at(after)).take(48).collect();
            assert!(times.windows(2).all(|pair| pair[1].duration_since(pair[0]) == hour), "{zone} after {after}");
        }
    }
}

#[test]
fn rb_68_a_day_of_the_month_or_of_the_week_is_enough_when_both_are_given() {
    let new_year = at("2025-01-01T00:00:00Z");
    assert_eq!(utc("0 0 1 * MON").unwrap().next_after(new_year), Some(at("2025-01-06T00:00:00Z")));
    let mondays: Vec<Timestamp> = fires(&utc("0 0 31 2 MON").unwrap(), new_year).take(5).collect();
    let of_february = ["2025-02-03", "2025-02-10", "2025-02-17", "2025-02-24", "2026-02-02"];
    assert_eq!(mondays, of_february.map(|day| at(&format!("{day}T00:00:00Z"))));
}

#[test]
fn days_of_the_week_count_from_sunday_as_zero() {
    let wednesday = at("2025-01-01T00:00:00Z");
    for (expression, first) in [
        ("0 3 * * 0", "2025-01-05"),
        ("0 3 * * SUN", "2025-01-05"),
        ("0 3 * * 1", "2025-01-06"),
        ("0 3 * * 6", "2025-01-04"),
    ] {
        assert_eq!(
            utc(expression).unwrap().next_after(wednesday),
            Some(at(&format!("{first}T03:00:00Z"))),
            "{expression}"
        );
    }
}

#[test]
fn a_star_in_a_day_field_leaves_the_choice_to_the_other() {
    let tuesday = at("2026-12-01T00:00:00Z");
    for star in ["*", "?", "*/1", "*,5", "*-5"] {
        let schedule = utc(&format!("0 0 {star} * 1")).unwrap();
        assert_eq!(schedule.next_after(tuesday), Some(at("2026-12-07T00:00:00Z")), "{star}");
    }
}

#[test]
fn a_fixed_hour_fires_once_on_every_day_of_the_year() {
    for zone in ["Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"] {
        let zone = time_zone(zone).unwrap();
        for expression in ["30 2 * * *", "0 0 * * *", "45 1 * * *", "15 3 * * *", "30 23 * * *"] {
            let schedule = Schedule::parse(expression, &zone).unwrap();
            let dates: Vec<_> = fires(&schedule, at("2018-01-01T12:00:00Z"))
                .take(366)
                .map(|time| zone.to_datetime(time).date())
                .collect();
            assert!(dates.windows(2).all(|pair| pair[0].tomorrow().unwrap() == pair[1]), "{expression} in {zone:?}");
        }
    }
}

#[test]
fn a_skipped_time_fires_at_the_end_of_the_gap_and_a_repeated_one_at_first() {
    let berlin = in_zone("30 2 * * *", "Europe/Berlin");
    let spring: Vec<_> = fires(&berlin, at("2026-03-28T12:00:00Z")).take(2).collect();
    assert_eq!(spring, [at("2026-03-29T03:00:00+02:00"), at("2026-03-30T02:30:00+02:00")]);
    let autumn: Vec<_> = fires(&berlin, at("2026-10-24T12:00:00Z")).take(2).collect();
    assert_eq!(autumn, [at("2026-10-25T02:30:00+02:00"), at("2026-10-26T02:30:00+01:00")]);
}

#[test]
fn a_process_that_starts_within_the_repeated_hour_does_not_fire_again() {
    let berlin = in_zone("30 2 * * *", "Europe/Berlin");
    for start in ["2026-10-25T02:00:00+01:00", "2026-10-25T02:10:00+01:00", "2026-10-25T02:30:00+01:00"] {
        assert_eq!(berlin.next_after(at(start)), Some(at("2026-10-26T02:30:00+01:00")), "{start}");
    }
}

#[test]
fn an_hourly_schedule_fires_every_real_hour_across_both_changes() {
    for expression in ["@hourly", "0 * * * *", "0 0-23 * * *", "0 */1 * * *"] {
        let berlin = in_zone(expression, "Europe/Berlin");
        for after in ["2026-03-28T23:00:00Z", "2026-10-24T22:00:00Z"] {
            let hour = SignedDuration::from_hours(1);
            let times: Vec<_> = std::iter::once(at(after)).chain(fires(&berlin, at(after))).take(8).collect();
            assert!(times.windows(2).all(|pair| pair[1].duration_since(pair[0]) == hour), "{expression}: {times:?}");
        }
    }
}

#[test]
fn a_day_that_a_zone_leaves_out_has_no_run() {
    let apia = in_zone("0 3 * * *", "Pacific/Apia");
    let found: Vec<_> = fires(&apia, at("2011-12-29T00:00:00-10:00")).take(2).collect();
    assert_eq!(found, [at("2011-12-29T03:00:00-10:00"), at("2011-12-31T03:00:00+14:00")]);
}

#[test]
fn a_time_zone_in_the_expression_wins() {
    let schedule = in_zone("CRON_TZ=America/New_York 0 9 * * *", "Europe/London");
    assert_eq!(schedule.time_zone(), &time_zone("America/New_York").unwrap());
    assert_eq!(schedule.next_after(at("2026-11-30T00:00:00Z")), Some(at("2026-11-30T14:00:00Z")));
}

#[test]
fn the_search_ends_with_the_fifth_year() {
    let leap_day = utc("0 0 29 2 *").unwrap();
    assert_eq!(leap_day.next_after(at("2096-03-01T00:00:00Z")), None);
    assert_eq!(leap_day.next_after(at("2099-01-01T00:00:00Z")), Some(at("2104-02-29T00:00:00Z")));
}

#[test]
fn the_ends_of_representable_time_are_no_trouble() {
    for expression in ["* * * * *", "0 0 1 1 *", "@every 1h"] {
        for zone in ["UTC", "Pacific/Kiritimati", "Pacific/Niue", "Europe/London"] {
            let schedule = in_zone(expression, zone);
            assert_eq!(schedule.next_after(Timestamp::MAX), None, "{expression} in {zone}");
            assert!(schedule.next_after(Timestamp::MIN).is_some(), "{expression} in {zone}");
        }
    }
}

#[test]
fn an_interval_counts_from_the_previous_run_in_whole_seconds() {
    let cases = [
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5h", 1800),
        ("1.h", 3600),
        ("+90m", 5400),
        ("1h1m1s", 3661),
        ("1999ms", 1),
        ("1s", 1),
        ("1ns", 1),
        ("1us", 1),
        ("2000000\u{b5}s", 2),
        ("2000000\u{3bc}s", 2),
        ("3000000000ns", 3),
        ("0.5m0.5m", 60),
        ("2.000000000000000000001h", 7200),
        ("43800h", 157_680_000),
    ];
    for (duration, seconds) in cases {
        let schedule = utc(&format!("@every {duration}")).unwrap();
        assert_eq!(schedule.interval(), Some(SignedDuration::from_secs(seconds)), "{duration}");
        for (previous, floor) in
            [("2026-11-30T10:07:30.9Z", "2026-11-30T10:07:30Z"), ("1969-12-31T23:59:58.1Z", "1969-12-31T23:59:58Z")]
        {
            let expected = at(floor).checked_add(SignedDuration::from_secs(seconds)).unwrap();
            assert_eq!(schedule.next_after(at(previous)), Some(expected), "{duration}");
        }
    }
    assert_eq!(utc("@hourly").unwrap().interval(), None);
}

#[test]
fn a_schedule_shows_the_text_it_was_written_as() {
    for text in ["0 3 * * mon-fri", "@hourly", "@every 1h30m", "TZ=Europe/London 0 3 * * *"] {
        assert_eq!(utc(text).unwrap().to_string(), text);
    }
}

#[test]
fn six_fields_are_refused_with_the_five_that_are_meant() {
    assert_eq!(
        refusal("0 0 3 * * *"),
        "schedule `0 0 3 * * *` has 6 fields, not 5 (minute, hour, day of month, month, day of week): \
         drop the seconds and write `0 3 * * *`"
    );
    for (expression, remedy) in [
        ("0 */15 * * * *", "drop the seconds and write `*/15 * * * *`"),
        ("0 0 3 ? * 1", "drop the seconds and write `0 3 ? * 1` (days of the week count from Sunday = 0 here)"),
        ("0 3 * * * 2026", "drop the year and write `0 3 * * *`"),
        ("0 0 3 * * * 2026", "drop the seconds and the year and write `0 3 * * *`"),
        (
            "0 3 * *",
            "has 4 fields, not 5 (minute, hour, day of month, month, day of week): write all five, for example `0 3 * * *`",
        ),
        ("1 2 3 4 5 6 7 8", "write all five, for example `0 3 * * *`"),
    ] {
        assert!(refusal(expression).ends_with(remedy), "{}", refusal(expression));
    }
}

#[test]
fn seven_as_a_day_is_refused_with_zero_as_the_remedy() {
    assert_eq!(refusal("0 0 * * 7"), "day of week `7` is refused because Sunday is 0 here, not 7: write `0` or `SUN`");
    for (days, remedy) in [
        ("5-7", "`5-6,0`"),
        ("6-7", "`6,0`"),
        ("1-7", "`*`, which is every day"),
        ("fri-7", "`fri-6,0`"),
        ("7-1", "`SUN`"),
        ("7/2", "`SUN`"),
    ] {
        let message = refusal(&format!("0 0 * * {days}"));
        assert!(message.contains("Sunday is 0 here") && message.ends_with(remedy), "{message}");
    }
}

#[test]
fn reversed_ranges_are_refused_with_the_two_ranges_that_are_meant() {
    assert_eq!(refusal("0 0 * * fri-mon"), "day of week range `fri-mon` runs backwards: write two, `FRI-SAT,SUN-MON`");
    for (expression, remedy) in [
        ("0 22-6 * * *", "hour range `22-6` runs backwards: write two, `22-23,0-6`"),
        ("0 0 * nov-jan *", "month range `nov-jan` runs backwards: write two, `NOV-DEC,JAN`"),
        ("0 0 * * 6-0", "day of week range `6-0` runs backwards: write two, `6,0`"),
        ("0 22-6/2 * * *", "hour range `22-6/2` runs backwards: write the values one by one, with commas"),
    ] {
        assert_eq!(refusal(expression), remedy);
    }
}

#[test]
fn a_bad_value_is_named_with_its_field_and_what_may_stand_there() {
    for (expression, message) in [
        ("60 * * * *", "minute `60` is out of range: write a number from 0 to 59"),
        ("* 24 * * *", "hour `24` is out of range: write a number from 0 to 23"),
        ("* * 0 * *", "day of month `0` is out of range: write a number from 1 to 31"),
        ("* * * 13 *", "month `13` is out of range: write a number from 1 to 12"),
        ("* * * * 8", "day of week `8` is out of range: write a number from 0 to 6"),
        (
            "99999999999999999999999 * * * *",
            "minute `99999999999999999999999` is out of range: write a number from 0 to 59",
        ),
        (
            "0 0 * JANUARY *",
            "month `JANUARY` is not known: did you mean `JAN`? write a number from 1 to 12 or a name from JAN to DEC",
        ),
        ("0 0 * * WDE", "day of week `WDE` is not known: write a number from 0 to 6 or a name from SUN to SAT"),
        (
            "0 0 * * MOM",
            "day of week `MOM` is not known: did you mean `MON`? write a number from 0 to 6 or a name from SUN to SAT",
        ),
        (
            "0 0 L * *",
            "day of month `L` is not known: `#`, `L`, `W` and `H` belong to other dialects; write a number from 1 to 31",
        ),
        (
            "0 0 * * MON#2",
            "day of week `MON#2` is not known: `#`, `L`, `W` and `H` belong to other dialects; \
             write a number from 0 to 6 or a name from SUN to SAT",
        ),
        ("mon * * * *", "minute `mon` is not known: write a number from 0 to 59"),
        ("+5 * * * *", "minute `+5` is not known: write a number from 0 to 59"),
        (
            "*/0 * * * *",
            "minute `*/0` has no valid step: write a whole number of at least 1 after the slash, such as `*/5`",
        ),
        (
            "*/x * * * *",
            "minute `*/x` has no valid step: write a whole number of at least 1 after the slash, such as `*/5`",
        ),
        (
            "*/2/2 * * * *",
            "minute `*/2/2` has no valid step: write a whole number of at least 1 after the slash, such as `*/5`",
        ),
        ("1,,2 * * * *", "minute `1,,2` is malformed: take out the comma that has nothing on one side"),
        ("-5 * * * *", "minute `-5` is malformed: a range has one value on each side of one hyphen"),
        ("1-2-3 * * * *", "minute `1-2-3` is malformed: a range has one value on each side of one hyphen"),
    ] {
        assert_eq!(refusal(expression), message);
    }
}

#[test]
fn nothing_is_refused_as_empty() {
    for expression in ["", "  \t", "TZ=UTC", "CRON_TZ=Europe/London  "] {
        assert_eq!(utc(expression), Err(ScheduleError::Empty), "{expression:?}");
    }
}

#[test]
fn an_unknown_shortcut_is_refused_with_the_list() {
    let list = "use one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, \
                or `@every` with a duration such as `@every 1h30m`";
    for (shortcut, hint) in [
        ("@reboot", "a start is not a time; "),
        ("@dayly", "did you mean `@daily`? "),
        ("@Hourly", "did you mean `@hourly`? "),
        ("@fortnightly", ""),
        ("@every1h", "write `@every 1h` with a space; "),
        ("@daily 5", "did you mean `@daily`? "),
        ("@", ""),
    ] {
        assert_eq!(refusal(shortcut), format!("shortcut `{shortcut}` is not known: {hint}{list}"));
    }
}

#[test]
fn a_bad_interval_is_refused_with_its_remedy() {
    for (duration, remedy) in [
        ("", "write a duration after it, such as `@every 1h30m`"),
        ("0", "write a duration above zero, such as `@every 1h30m`"),
        ("0s", "write a duration above zero, such as `@every 1h30m`"),
        ("-5m", "write a duration above zero, such as `@every 1h30m`"),
        ("5", "write the unit, such as `5m` or `5h`"),
        ("1h30", "write the unit, such as `30m` or `30h`"),
        ("2d", "the largest unit is the hour, write `48h`"),
        ("1w", "the largest unit is the hour, write `168h`"),
        ("5min", "`min` is no unit, use h, m, s, ms, us or ns"),
        ("h", "write numbers with their units, such as `1h30m`"),
        (".h", "write numbers with their units, such as `1h30m`"),
        ("1h 30m", "write the duration without spaces, `@every 1h30m`"),
        ("43801h", "write a duration of at most five years, `43800h`"),
        ("99999999999999999999999999999999999999999h", "write a duration of at most five years, `43800h`"),
    ] {
        let expected = format!("interval `@every {duration}` is not valid: {remedy}");
        assert_eq!(refusal(&format!("@every {duration}")), expected);
    }
}

#[test]
fn what_never_fires_is_refused() {
    assert_eq!(
        refusal("0 0 30 2 *"),
        "schedule `0 0 30 2 *` never fires: none of its months has a day 30, so choose an earlier day or another month"
    );
    for never in ["0 0 31 2,4,6,9,11 *", "0 0 31 FEB ?", "0 0 31 4 */1", "TZ=Europe/London 0 0 30-31 2 *"] {
        assert!(matches!(utc(never), Err(ScheduleError::NeverFires { .. })), "{never}");
    }
    for sometimes in ["0 0 29 2 *", "0 0 31 2,3 *", "0 0 31 2 1", "0 0 30,29 2 *"] {
        assert!(utc(sometimes).unwrap().next_after(at("2026-11-30T00:00:00Z")).is_some(), "{sometimes}");
    }
}

#[test]
fn an_unknown_time_zone_is_refused_with_the_one_that_is_meant() {
    for (name, hint) in [
        ("Europe/Lodnon", "did you mean `Europe/London`? "),
        ("London", "did you mean `Europe/London`? "),
        ("new york", "did you mean `America/New_York`? "),
        ("America/New York", "did you mean `America/New_York`? "),
        ("PST", ""),
        ("GMT+1", ""),
        ("Etc/Unknown", ""),
        ("Local", ""),
        ("", ""),
    ] {
        let expected =
            format!("time zone `{name}` is not known: {hint}write an IANA name such as `UTC` or `Europe/London`");
        assert_eq!(time_zone(name).unwrap_err().to_string(), expected);
    }
    assert!(matches!(utc("TZ=Mars/Base 0 3 * * *"), Err(ScheduleError::UnknownTimeZone { .. })));
    assert_eq!(time_zone("europe/london").unwrap(), time_zone("Europe/London").unwrap());
}

#[test]
fn the_fields_are_named_in_the_order_in_which_they_are_written() {
    let names = Field::ALL.map(|field| field.to_string());
    assert_eq!(names, ["minute", "hour", "day of month", "month", "day of week"]);
}
