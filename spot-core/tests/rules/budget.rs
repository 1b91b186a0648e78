//! When nodes may be begun, and on which day.

use jiff::civil::{Weekday, date, time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use spot_core::budget::{Budgets, Window};
use spot_core::schedule::time_zone;

use crate::support::build::{at, secs};
use crate::support::config;

const HOUR: u64 = 3_600;

fn window(days: &[Weekday], start: (i8, i8), hours: u64, zone: &str) -> Window {
    Window {
        days: days.to_vec(),
        start: time(start.0, start.1, 0, 0),
        duration: secs(hours * HOUR),
        time_zone: time_zone(zone).unwrap(),
    }
}

fn opens(window: &Window, rows: &[(&str, bool)]) {
    for (now, expected) in rows {
        assert_eq!(window.is_open(at(now)), *expected, "{now}");
    }
}

#[test]
fn a_window_opens_at_its_start_and_is_closed_at_its_end() {
    let daily = window(&[], (9, 30), 2, "UTC");
    opens(
        &daily,
        &[
            ("2026-03-02T09:29:59Z", false),
            ("2026-03-02T09:30:00Z", true),
            ("2026-03-02T11:29:59Z", true),
            ("2026-03-02T11:30:00Z", false),
            ("2026-03-03T10:00:00Z", true),
        ],
    );
}

#[test]
fn a_window_over_midnight_belongs_to_the_day_on_which_it_opens() {
    // 2026-03-02 is a Monday.
    let night = window(&[Weekday::Monday, Weekday::Friday], (22, 0), 6, "UTC");
    opens(
        &night,
        &[
            ("2026-03-02T01:00:00Z", false),
            ("2026-03-02T22:00:00Z", true),
            ("2026-03-03T00:00:00Z", true),
            ("2026-03-03T03:59:59Z", true),
            ("2026-03-03T04:00:00Z", false),
            ("2026-03-03T22:30:00Z", false),
            ("2026-03-07T03:00:00Z", true),
            ("2026-03-07T23:00:00Z", false),
        ],
    );
}

#[test]
fn days_and_times_are_those_of_the_windows_time_zone() {
    let tokyo = window(&[Weekday::Tuesday], (1, 0), 2, "Asia/Tokyo");
    opens(
        &tokyo,
        &[
            ("2026-03-02T15:59:59Z", false),
            ("2026-03-02T16:00:00Z", true),
            ("2026-03-02T18:00:00Z", false),
            ("2026-03-03T16:30:00Z", false),
        ],
    );
}

#[test]
fn a_window_keeps_its_local_time_when_the_clocks_change() {
    // London: on 2026-03-29 the clocks go from 01:00 to 02:00, on 2026-10-25 from 02:00 back to 01:00.
    let evening = window(&[], (22, 0), 1, "Europe/London");
    opens(
        &evening,
        &[
            ("2026-03-28T22:00:00Z", true),
            ("2026-03-29T20:59:59Z", false),
            ("2026-03-29T21:00:00Z", true),
            ("2026-03-29T22:00:00Z", false),
            ("2026-10-25T22:00:00Z", true),
            ("2026-10-25T21:59:59Z", false),
        ],
    );
    // It stays open for as long as it says, not until a time on the clock.
    let night = window(&[Weekday::Saturday], (23, 0), 3, "Europe/London");
    opens(
        &night,
        &[
            ("2026-03-28T23:00:00Z", true),
            ("2026-03-29T01:59:59Z", true),
            ("2026-03-29T02:00:00Z", false),
            ("2026-10-24T22:00:00Z", true),
            ("2026-10-25T00:59:59Z", true),
            ("2026-10-25T01:00:00Z", false),
        ],
    );
}

#[test]
fn a_start_that_the_clocks_skip_is_made_up_for_and_one_that_comes_twice_counts_once() {
    let skipped = window(&[Weekday::Sunday], (1, 30), 1, "Europe/London");
    opens(
        &skipped,
        &[
            ("2026-03-29T01:29:59Z", false),
            ("2026-03-29T01:30:00Z", true),
            ("2026-03-29T02:29:59Z", true),
            ("2026-03-29T02:30:00Z", false),
        ],
    );
    opens(
        &skipped,
        &[
            ("2026-10-25T00:29:59Z", false),
            ("2026-10-25T00:30:00Z", true),
            ("2026-10-25T01:29:59Z", true),
            ("2026-10-25T01:30:00Z", false),
        ],
    );
}

#[test]
fn a_window_of_a_whole_day_lasts_into_the_second_next_when_the_clocks_skip_an_hour() {
    let late = window(&[Weekday::Saturday], (23, 30), 24, "Europe/London");
    opens(
        &late,
        &[
            ("2026-03-28T23:30:00Z", true),
            ("2026-03-29T22:59:59Z", true),
            // Monday 00:15 in London.
            ("2026-03-29T23:15:00Z", true),
            ("2026-03-29T23:30:00Z", false),
        ],
    );
}

#[test]
fn without_windows_it_is_always_open_and_with_several_any_one_suffices() {
    let now = at("2026-03-02T12:00:00Z");
    assert!(Budgets::default().is_open(now));
    let noon = window(&[], (12, 0), 1, "UTC");
    let night = window(&[], (22, 0), 1, "UTC");
    for (windows, expected) in [(vec![night.clone()], false), (vec![night, noon.clone()], true), (vec![noon], true)] {
        assert_eq!(Budgets { windows, ..Budgets::default() }.is_open(now), expected);
    }
}

#[test]
fn a_day_is_that_of_the_schedules_time_zone() {
    let now = at("2026-03-02T23:30:00Z");
    let day_in = |zone| Budgets { time_zone: time_zone(zone).unwrap(), ..Budgets::default() }.day(now);
    assert_eq!(Budgets::default().day(now), date(2026, 3, 2));
    assert_eq!(day_in("Europe/Berlin"), date(2026, 3, 3));
    assert_eq!(day_in("America/New_York"), date(2026, 3, 2));
}

#[test]
fn the_default_takes_one_node_at_a_time_and_leaves_one() {
    let Budgets { at_once, per_run, per_day, min_remaining, windows, time_zone } = Budgets::default();
    assert_eq!((at_once, per_run, per_day, min_remaining, windows.len()), (1, None, None, 1, 0));
    assert_eq!(time_zone, TimeZone::UTC);
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn on_a_fixed_offset_a_window_is_open_by_the_arithmetic_of_seconds(
        days in prop::collection::btree_set(0_i64..7, 0..4),
        start in 0_i64..1_440,
        minutes in 1_i64..=1_440,
        offset in -14_i64..=14,
        now in 0_i64..4_000_000_000,
    ) {
        let weekday = |day: &i64| Weekday::from_monday_zero_offset(i8::try_from(*day).unwrap()).unwrap();
        let offset_seconds = i32::try_from(offset * 3_600).unwrap();
        let window = Window {
            days: days.iter().map(weekday).collect(),
            start: time(0, 0, 0, 0) + SignedDuration::from_mins(start),
            duration: secs(u64::try_from(minutes * 60).unwrap()),
            time_zone: TimeZone::fixed(jiff::tz::Offset::from_seconds(offset_seconds).unwrap()),
        };
        // 1970-01-01 was a Thursday.
        let local = now + offset * 3_600;
        let open = (0..3).any(|ago| {
            let day = local.div_euclid(86_400) - ago;
            let opens = day * 86_400 + start * 60;
            let chosen = days.is_empty() || days.contains(&(day + 3).rem_euclid(7));
            chosen && opens <= local && local < opens + minutes * 60
        });
        prop_assert_eq!(window.is_open(Timestamp::from_second(now).unwrap()), open);
    }
}
