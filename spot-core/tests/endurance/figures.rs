//! What was done and what happened.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// Counts of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) calls: usize,
    pub(crate) runs: usize,
    pub(crate) failed: usize,
    pub(crate) retired: usize,
    pub(crate) released: usize,
    pub(crate) processes: usize,
    pub(crate) kills: usize,
    pub(crate) handovers: usize,
    pub(crate) interruptions: usize,
    pub(crate) faults: usize,
    pub(crate) acts: usize,
    /// The longest run.
    pub(crate) longest: Duration,
    /// The oldest claim that was seen on a node that is not departing.
    pub(crate) oldest: Duration,
    /// The most timers and watches at one time.
    pub(crate) waiting: usize,
}

impl Add for Figures {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            runs: self.runs + other.runs,
            failed: self.failed + other.failed,
            retired: self.retired + other.retired,
            released: self.released + other.released,
            processes: self.processes + other.processes,
            kills: self.kills + other.kills,
            handovers: self.handovers + other.handovers,
            interruptions: self.interruptions + other.interruptions,
            faults: self.faults + other.faults,
            acts: self.acts + other.acts,
            longest: self.longest.max(other.longest),
            oldest: self.oldest.max(other.oldest),
            waiting: self.waiting.max(other.waiting),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, runs, failed, retired, released, processes, kills, handovers, .. } = self;
        let Self { interruptions, faults, acts, longest, oldest, waiting, .. } = self;
        write!(
            f,
            "{calls} calls, {runs} runs ({failed} failed), {retired} nodes retired, {released} released, {processes} \
             processes, {kills} kills, {handovers} handovers, {interruptions} interruptions, {faults} faults, {acts} \
             other events; longest run {longest:?}, oldest claim {oldest:?}, at most {waiting} timers and watches"
        )
    }
}
