//! What a migrator tells of its runs.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

/// How long a run may take: a drain and two settle times of the configuration, for a few batches, and bad weather.
const RUN: Duration = Duration::from_mins(5);

/// How long the next run may be in coming: the schedule, and what puts planned work off.
const BETWEEN: Duration = Duration::from_mins(1);

/// The lines of all processes of a replica that are about runs.
#[derive(Debug)]
pub(crate) struct Log(Vec<(Timestamp, What)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A process starts.
    Starts,
    /// A run begins.
    Begins,
    /// A run is over.
    Over,
}

impl Log {
    pub(crate) fn read(output: &str) -> Self {
        let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = lines.filter_map(|line| {
            let what = match line["message"].as_str()? {
                "starting" => What::Starts,
                "run started" => What::Begins,
                "run ended" | "run failed" => What::Over,
                _ => return None,
            };
            Some((line["timestamp"].as_str()?.parse().ok()?, what))
        });
        Self(told.collect())
    }

    /// How many runs ended.
    pub(crate) fn ended(&self) -> usize {
        self.0.iter().filter(|(_, what)| *what == What::Over).count()
    }

    /// The longest run.
    pub(crate) fn longest(&self) -> Duration {
        self.spans(What::Begins, What::Over).max().unwrap_or_default()
    }

    /// Runs that did not end, or not in time, and schedules that stood still, of the replica with this name.
    pub(crate) fn violations(&self, name: &str) -> Vec<String> {
        let mut violations = Vec::new();
        if self.0.windows(2).any(|pair| pair[0].1 == What::Begins && pair[1].1 == What::Begins)
            || self.0.last().is_some_and(|(_, what)| *what == What::Begins)
        {
            violations.push(format!("a run of replica {name} has no end"));
        }
        if self.longest() > RUN {
            violations.push(format!("a run of replica {name} took {:?}", self.longest()));
        }
        let between = self.spans(What::Over, What::Begins).max().unwrap_or_default();
        if between > BETWEEN {
            violations.push(format!("replica {name} led for {between:?} without a run"));
        }
        violations
    }

    fn spans(&self, from: What, to: What) -> impl Iterator<Item = Duration> {
        let pairs = self.0.windows(2).filter(move |pair| pair[0].1 == from && pair[1].1 == to);
        pairs.map(|pair| pair[1].0.duration_since(pair[0].0).try_into().unwrap_or_default())
    }
}
