//! A real cluster's day: churn for so long, then a report of what was promised.
//!
//! `cargo run -p spot-tests --example day -- --minutes 60 --seed 7`

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a command that tests: what fails in it fails the day, and what it prints is its result"
)]

mod chance;
mod churn;
mod foreign;
mod log;
mod promises;
mod replica;
mod report;
mod scene;
mod weather;

use std::{process::ExitCode, time::Duration};

#[tokio::main]
async fn main() -> ExitCode {
    let (mut minutes, mut seed) = (60, 1);
    let words: Vec<_> = std::env::args().skip(1).collect();
    for pair in words.chunks(2) {
        let value = pair.get(1).and_then(|value| value.parse().ok());
        match (pair[0].as_str(), value) {
            ("--minutes", Some(value)) => minutes = value,
            ("--seed", Some(value)) => seed = value,
            _ => panic!("{pair:?}: write `--minutes 60 --seed 1`, each with a whole number"),
        }
    }
    let report = scene::play(Duration::from_mins(minutes), seed).await;
    println!("{report}");
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
