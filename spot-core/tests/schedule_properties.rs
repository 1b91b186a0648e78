//! Schedules against two oracles: the `cron` crate on fixed offsets, and a clock that is watched minute by minute.
#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

use std::collections::{BTreeSet, HashSet};

use jiff::{
    SignedDuration, Timestamp,
    civil::DateTime,
    tz::{Offset, TimeZone},
};
use proptest::{
    prelude::*,
    sample::{select, subsequence},
    test_runner::FileFailurePersistence,
};
use spot_core::{Schedule, ScheduleError, schedule::time_zone};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn utc(expression: &str) -> Result<Schedule, ScheduleError> {
    Schedule::parse(expression, &TimeZone::UTC)
}

fn fires(schedule: &Schedule, after: Timestamp) -> impl Iterator<Item = Timestamp> {
    std::iter::successors(schedule.next_after(after), |previous| schedule.next_after(*previous))
}

/// One item of a field's list, as a person means it.
#[derive(Clone, Debug)]
enum Item {
    Star { question: bool, step: Option<u8> },
    One { value: u8, step: Option<u8>, named: bool },
    Range { ends: (u8, u8), step: Option<u8>, named: bool },
}

/// The bounds of a field and its names, written down a second time.
#[derive(Clone, Copy, Debug)]
struct Shape {
    min: u8,
    max: u8,
    names: &'static str,
}

const SHAPES: [Shape; 5] = [
    Shape { min: 0, max: 59, names: "" },
    Shape { min: 0, max: 23, names: "" },
    Shape { min: 1, max: 31, names: "" },
    Shape { min: 1, max: 12, names: "jan FEB Mar apr MAY Jun jul AUG Sep oct NOV Dec" },
    Shape { min: 0, max: 6, names: "sun MON Tue wed THU Fri sat" },
];

impl Item {
    fn text(&self, shape: Shape) -> String {
        let value = |value: u8, named: bool| {
            let name = shape.names.split(' ').nth(usize::from(value - shape.min)).filter(|name| !name.is_empty());
            name.filter(|_| named).map_or_else(|| value.to_string(), str::to_owned)
        };
        let step = |step: &Option<u8>| step.map_or_else(String::new, |step| format!("/{step}"));
        match self {
            Self::Star { question, step: by } => format!("{}{}", if *question { "?" } else { "*" }, step(by)),
            Self::One { value: one, step: by, named } => format!("{}{}", value(*one, *named), step(by)),
            Self::Range { ends: (first, last), step: by, named } => {
                format!("{}-{}{}", value(*first, *named), value(*last, false), step(by))
            }
        }
    }

    fn allows(&self, shape: Shape, value: u8) -> bool {
        let within = |first: u8, last: u8, step: Option<u8>| {
            first <= value && value <= last && (value - first).is_multiple_of(step.unwrap_or(1))
        };
        match *self {
            Self::Star { step, .. } => within(shape.min, shape.max, step),
            Self::One { value: one, step: None, .. } => value == one,
            Self::One { value: one, step, .. } => within(one, shape.max, step),
            Self::Range { ends: (first, last), step, .. } => within(first, last, step),
        }
    }

    fn is_star(&self) -> bool {
        matches!(self, Self::Star { step: None | Some(1), .. })
    }
}

/// A field as text, and as the values that it stands for.
#[derive(Clone, Debug)]
struct Written {
    text: String,
    values: Vec<u8>,
    star: bool,
}

fn item(shape: Shape) -> impl Strategy<Value = Item> {
    let step = || prop_oneof![3 => Just(None), 3 => (1_u8..8).prop_map(Some), 1 => (1_u8..=100).prop_map(Some)];
    let value = shape.min..=shape.max;
    prop_oneof![
        2 => (any::<bool>(), step()).prop_map(|(question, step)| Item::Star { question, step }),
        3 => (value.clone(), step(), any::<bool>()).prop_map(|(value, step, named)| Item::One { value, step, named }),
        3 => (value.clone(), value, step(), any::<bool>()).prop_map(|(one, other, step, named)| Item::Range {
            ends: (one.min(other), one.max(other)),
            step,
            named
        }),
    ]
}

fn written(shape: Shape) -> impl Strategy<Value = Written> {
    let items = prop_oneof![3 => Just(1), 2 => Just(2), 1 => Just(3)];
    items.prop_flat_map(move |count| proptest::collection::vec(item(shape), count)).prop_map(move |items| Written {
        text: items.iter().map(|item| item.text(shape)).collect::<Vec<_>>().join(","),
        values: (shape.min..=shape.max).filter(|value| items.iter().any(|item| item.allows(shape, *value))).collect(),
        star: items.iter().any(Item::is_star),
    })
}

fn five_fields() -> impl Strategy<Value = [Written; 5]> {
    let [minute, hour, day, month, weekday] = SHAPES.map(written);
    (minute, hour, day, month, weekday).prop_map(<[Written; 5]>::from)
}

fn expression(fields: &[Written; 5]) -> String {
    fields.iter().map(|field| field.text.as_str()).collect::<Vec<_>>().join(" ")
}

/// The `cron` crate's answer, which wants seconds, counts Sunday as 1, and joins the day fields by AND.
fn oracle(fields: &[Written; 5], offset_seconds: i32, after: Timestamp) -> Option<Timestamp> {
    let list = |values: &[u8], shift: u8| values.iter().map(|v| (v + shift).to_string()).collect::<Vec<_>>().join(",");
    let [minute, hour, day, month, weekday] = fields;
    let (days, weekdays) = (list(&day.values, 0), list(&weekday.values, 1));
    let zone = chrono::FixedOffset::east_opt(offset_seconds).unwrap();
    let start = chrono::DateTime::from_timestamp(after.as_second(), 0).unwrap().with_timezone(&zone);
    let ask = |days: &str, weekdays: &str| {
        let (minutes, hours, months) = (list(&minute.values, 0), list(&hour.values, 0), list(&month.values, 0));
        let text = format!("0 {minutes} {hours} {days} {months} {weekdays}");
        let schedule: cron::Schedule = text.parse().unwrap();
        schedule.after(&start).next().map(|time| Timestamp::from_second(time.timestamp()).unwrap())
    };
    if day.star || weekday.star {
        ask(&days, &weekdays)
    } else {
        [ask(&days, "*"), ask("*", &weekdays)].into_iter().flatten().min()
    }
}

/// A clock on a wall, watched minute by minute: when a schedule fires in the days after `start`, by the rules as they
/// are told to people.
fn watch_the_wall(fields: &[Written; 5], zone: &TimeZone, start: Timestamp, minutes: i64) -> BTreeSet<Timestamp> {
    let minute = SignedDuration::from_mins(1);
    let [in_minutes, in_hours, in_days, in_months, in_weekdays] = fields;
    let matches = |time: DateTime| {
        let has = |field: &Written, value: i8| field.values.contains(&u8::try_from(value).unwrap());
        let (day, weekday) = (has(in_days, time.day()), has(in_weekdays, time.weekday().to_sunday_zero_offset()));
        let day = if in_days.star || in_weekdays.star { day && weekday } else { day || weekday };
        day && has(in_minutes, time.minute()) && has(in_hours, time.hour()) && has(in_months, time.month())
    };
    let every_hour = in_hours.values.len() == 24;
    let mut shown_before = HashSet::new();
    let mut fires = BTreeSet::new();
    let mut expected = zone.to_datetime(start);
    for passed in 0..minutes {
        let now = start.checked_add(minute * i32::try_from(passed).unwrap()).unwrap();
        let shown = zone.to_datetime(now);
        if shown.duration_since(expected) < SignedDuration::from_hours(24) {
            while !every_hour && expected < shown {
                if matches(expected) {
                    fires.insert(now);
                }
                expected = expected.checked_add(minute).unwrap();
            }
        }
        let first_showing = shown_before.insert(shown);
        if (first_showing || every_hour) && matches(shown) {
            fires.insert(now);
        }
        expected = shown.checked_add(minute).unwrap();
    }
    fires
}

/// Zones and moments near a change of their clocks: by an hour, by half an hour, at midnight, at other seasons, and
/// by a whole day.
const CHANGES: [(&str, &str); 14] = [
    ("Europe/London", "2026-03-29T01:00:00Z"),
    ("Europe/London", "2026-10-25T01:00:00Z"),
    ("America/New_York", "2026-03-08T07:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00:00Z"),
    ("Africa/Casablanca", "2026-03-22T02:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("America/Toronto", "1919-03-31T04:30:00Z"),
    ("Europe/Dublin", "2050-03-27T01:00:00Z"),
    ("UTC", "2026-06-30T00:00:00Z"),
];

fn moment() -> impl Strategy<Value = Timestamp> {
    // From 1990 to 2090: the oracle knows the years from 1970 to 2100, and 2100 has no leap day.
    (631_152_000_i64..3_786_912_000, prop_oneof![Just(0), 1..1_000_000_000])
        .prop_map(|(second, nanosecond)| Timestamp::new(second, nanosecond).unwrap())
}

/// Text that gets past the first refusals more often than noise does.
fn nearly_a_schedule() -> impl Strategy<Value = String> {
    let scrap = select(vec![
        "*",
        "?",
        "/",
        "-",
        ",",
        " ",
        "0",
        "7",
        "59",
        "60",
        "31",
        "mon",
        "FEB",
        "@",
        "@every ",
        "@daily",
        "h",
        "m",
        "µs",
        ".",
        "TZ=",
        "CRON_TZ=",
        "UTC ",
        "18446744073709551616",
        "é",
        "\u{a0}",
        "+",
        "L",
        "#",
    ]);
    proptest::collection::vec(scrap, 0..16).prop_map(|scraps| scraps.concat())
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 512,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn on_a_fixed_offset_a_schedule_agrees_with_the_cron_crate(
        fields in five_fields(),
        quarters in -48..=56_i32,
        after in moment(),
    ) {
        let offset = quarters * 15 * 60;
        let zone = TimeZone::fixed(Offset::from_seconds(offset).unwrap());
        match Schedule::parse(&expression(&fields), &zone) {
            Ok(schedule) => prop_assert_eq!(schedule.next_after(after), oracle(&fields, offset, after)),
            Err(ScheduleError::NeverFires { .. }) => prop_assert_eq!(None, oracle(&fields, offset, after)),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn near_a_change_of_the_clock_a_schedule_agrees_with_a_watched_clock(
        fields in five_fields(),
        hours in prop_oneof![Just(None), subsequence((0..24).collect::<Vec<u8>>(), 1..24).prop_map(Some)],
        every_day in any::<bool>(),
        (zone, change) in select(&CHANGES[..]),
        before in 0..3000_i32,
    ) {
        let mut fields = fields;
        if let Some(values) = hours {
            let text = values.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
            fields[1] = Written { text, values, star: false };
        }
        if every_day {
            for field in 2..5 {
                let Shape { min, max, .. } = SHAPES[field];
                fields[field] = Written { text: "*".to_owned(), values: (min..=max).collect(), star: true };
            }
        }
        let zone = time_zone(zone).unwrap();
        let Ok(schedule) = Schedule::parse(&expression(&fields), &zone) else { return Ok(()) };
        // Watched from well before, so that the watcher knows what has been shown when the question is asked.
        let start = at(change).checked_sub(SignedDuration::from_mins(3000)).unwrap();
        let minutes = 6000;
        let expected = watch_the_wall(&fields, &zone, start, minutes);
        let after = at(change).checked_sub(SignedDuration::from_mins(1) * (before - 1500)).unwrap();
        let end = start.checked_add(SignedDuration::from_mins(minutes)).unwrap();
        let found: Vec<Timestamp> = fires(&schedule, after).take_while(|time| *time < end).collect();
        let expected: Vec<Timestamp> = expected.into_iter().filter(|time| *time > after).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn the_next_time_is_later_and_never_earlier_for_a_later_question(
        fields in five_fields(),
        (zone, change) in select(&CHANGES[..]),
        minutes in (-3000..3000_i32, 0..3000_i32),
        nanoseconds in 0..60_000_000_000_i64,
    ) {
        let Ok(schedule) = Schedule::parse(&expression(&fields), &time_zone(zone).unwrap()) else { return Ok(()) };
        let minute = SignedDuration::from_mins(1);
        let jitter = SignedDuration::from_nanos(nanoseconds);
        let first = at(change).checked_add(minute * minutes.0 + jitter).unwrap();
        let second = first.checked_add(minute * minutes.1).unwrap();
        let (one, other) = (schedule.next_after(first), schedule.next_after(second));
        prop_assert!(one.is_none_or(|time| time > first));
        prop_assert!(one.is_none() || other.is_none() || one <= other);
        // Nothing lies between a question and its answer.
        if let Some(next) = one && next > second {
            prop_assert_eq!(other, Some(next));
        }
    }

    #[test]
    fn the_next_time_of_an_interval_is_later_by_the_interval_at_most(seconds in 1..100_000_i64, after in moment()) {
        let schedule = utc(&format!("@every {seconds}s")).unwrap();
        let waits = schedule.next_after(after).unwrap().duration_since(after);
        let interval = SignedDuration::from_secs(seconds);
        prop_assert!(waits > SignedDuration::ZERO && waits <= interval && interval - waits < SignedDuration::from_secs(1));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in prop_oneof![any::<String>(), nearly_a_schedule()], after in moment()) {
        if let Ok(schedule) = utc(&text) {
            prop_assert_eq!(schedule.to_string(), text.as_str());
            prop_assert!(schedule.next_after(after).is_some_and(|next| next > after));
        }
        if let Err(error) = time_zone(&text) {
            prop_assert!(error.to_string().contains(&text));
        }
    }
}
