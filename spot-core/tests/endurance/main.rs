//! Weeks of the real run loop on the model, under whatever can come: spot runs out and comes back, machines are taken
//! back, calls fail, processes die and start again, two of them take turns, people interfere. What must hold is looked
//! at after each call, and in the end, after two days of good weather, all is spot and nothing of ours is left.
//!
//! `SPOT_ENDURANCE_DAYS`, `SPOT_ENDURANCE_SEEDS` and `SPOT_ENDURANCE_FIRST` ask for longer, for more and for other
//! seeds.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy's allowance for tests does not reach their helpers: a test that can't go on is to fail"
)]

mod bounds;
mod cluster;
mod crew;
mod figures;
mod people;
mod weather;

use std::time::Duration;

use cluster::Plan;
use crew::Crew;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// How long the weather is good in the end.
const CALM: Duration = Duration::from_hours(48);

/// A number that the person at the keyboard asks for.
fn asked(name: &str, otherwise: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the person who runs the test says so, not the code under test")]
    let said = std::env::var(name);
    said.map_or(otherwise, |said| said.parse().unwrap_or_else(|_| panic!("{name}={said} is no number")))
}

#[test]
fn weeks_of_bad_weather_break_no_promise_and_leave_nothing_behind() {
    let days = asked("SPOT_ENDURANCE_DAYS", 4);
    let first = asked("SPOT_ENDURANCE_FIRST", 1);
    let seeds = asked("SPOT_ENDURANCE_SEEDS", 3);
    assert!(days >= 3, "the last two days are calm");
    let mut total = figures::Figures::default();
    for seed in first..first + seeds {
        let plan = Plan { seed, storm: DAY * u32::try_from(days - 2).unwrap() };
        let (figures, broken) = Crew::new(plan).endure();
        println!("seed {seed}: {figures}");
        assert!(
            broken.is_empty(),
            "seed {seed} over {days} days: {}\nSPOT_ENDURANCE_DAYS={days} SPOT_ENDURANCE_FIRST={seed} \
             SPOT_ENDURANCE_SEEDS=1 cargo test -p spot-core --features test-util --test endurance -- --nocapture",
            broken.join("\n")
        );
        total = total + figures;
    }
    println!("{seeds} seeds of {days} days: {total}");
}
