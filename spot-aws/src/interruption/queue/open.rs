//! Messages that were delivered and are not settled.

use std::collections::BTreeMap;
use std::time::Duration;

use spot_core::claim::InstanceId;
use spot_core::interruption::Handled;
use spot_core::ports::Instant;

use crate::interruption::hook::Held;

/// What was not touched for so long is not open any more: SQS takes back what is kept for twelve hours.
const FORGOTTEN: Duration = Duration::from_hours(13);

/// A message that the core has.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// The hook that waits for the answer, if it is ours to complete.
    pub(super) held: Option<Held>,
    /// When anything last happened to it.
    pub(super) touched: Instant,
    /// What became of each machine's notice; none: nothing yet.
    answers: BTreeMap<InstanceId, Option<Handled>>,
}

impl Open {
    /// It was delivered, once more perhaps; the machines whose notices are to be answered.
    pub(super) fn delivered(
        &mut self,
        instances: Vec<InstanceId>,
        held: Option<Held>,
        now: Instant,
    ) -> Vec<InstanceId> {
        self.touched = now;
        // One that is known has had its heartbeats.
        match (&mut self.held, held) {
            (Some(known), Some(held)) => known.heartbeat = held.heartbeat.or(known.heartbeat),
            (known, held) => *known = known.take().or(held),
        }
        // All of it was answered, and yet it was not settled: what was done is to be done again.
        if self.is_done() {
            self.answers.clear();
        }
        let is_wanted = |instance: &InstanceId| !self.answers.get(instance).copied().is_some_and(is_final);
        let wanted: Vec<_> = instances.into_iter().filter(is_wanted).collect();
        self.answers.extend(wanted.iter().map(|instance| (instance.clone(), None)));
        wanted
    }

    /// A machine's notice was answered; what that makes of the message, if anything is known of it now.
    pub(super) fn answered(&mut self, instance: &InstanceId, handled: Handled) -> Option<Handled> {
        self.answers.insert(instance.clone(), Some(handled));
        if handled == Handled::Returned {
            return Some(Handled::Returned);
        }
        if self.answers.values().any(Option::is_none) {
            return None;
        }
        if !self.is_done() {
            return Some(Handled::Later);
        }
        let is_answered = self.answers.values().any(|answer| *answer == Some(Handled::Done));
        Some(if is_answered { Handled::Done } else { Handled::Ignored })
    }

    /// Whether each of its notices had its effect, or will have none.
    pub(super) fn is_done(&self) -> bool {
        self.answers.values().copied().all(is_final)
    }

    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        now.since(self.touched) > FORGOTTEN
    }
}

fn is_final(answer: Option<Handled>) -> bool {
    matches!(answer, Some(Handled::Done | Handled::Ignored))
}
