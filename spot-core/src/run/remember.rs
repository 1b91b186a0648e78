//! What a run leaves to the next ones: how many nodes went today, whether spot is short, what spot nodes look like.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Run;
use crate::capacity::Class;
use crate::claim::BackOff;
use crate::error::{ErrorClass, RunError, chain};
use crate::judge::is_relieved;
use crate::memory::{Exhaustion, Memory};
use crate::placement::Shape;
use crate::ports::{Lane, Write};
use crate::progress::{Outcome, Progress};
use crate::wait::{REQUEST, within};

/// How often the memory is written anew when somebody else wrote it in between.
const MEMORY_TRIES: u32 = 3;

impl Run<'_> {
    /// Writes down how many nodes were retired today, and what is known of spot's capacity. What stands in the way is
    /// reported: it must not hide how the run ended.
    pub(super) async fn remember(&mut self, outcome: Option<&Outcome>) -> Result<(), RunError> {
        for _try in 0..MEMORY_TRIES {
            let wanted = self.remembering(outcome);
            if wanted == self.memory {
                return Ok(());
            }
            let by = self.ports.clock.instant() + REQUEST;
            let write = Write::new(by, Lane::Planned, Arc::clone(&self.ports.leadership));
            let cluster = &self.ports.cluster;
            let error = match within(self.ports, by, "writing the memory", cluster.remember(&wanted, &write)).await {
                Ok(memory) => {
                    self.memory = memory;
                    self.facts.retired = 0;
                    return Ok(());
                }
                Err(error) if error.class == ErrorClass::NotLeader => return Err(RunError::LostLeadership),
                Err(error) => error,
            };
            self.tell(&Progress::Problem { node: None, class: error.class, what: chain(&error) });
            if error.class.had_no_effect() {
                return Ok(());
            }
            // Somebody else may have written it, or we did and the answer was lost.
            let by = self.ports.clock.instant() + REQUEST;
            match within(self.ports, by, "reading the memory", cluster.recall(by)).await {
                Ok(memory) if is_as_wanted(&memory, &wanted) => return Ok(()),
                Ok(memory) => self.memory = memory,
                Err(error) => {
                    self.tell(&Progress::Problem { node: None, class: error.class, what: chain(&error) });
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The shapes of the spot nodes that are there.
    fn spot_shapes(&self) -> BTreeSet<Shape> {
        let view = self.live.view();
        let spot = view.nodes().iter().filter(|node| self.cloud.class(node.uid.as_str()) == Class::Spot);
        spot.map(|node| Shape::of(node, node.labels.iter())).collect()
    }

    fn remembering(&self, outcome: Option<&Outcome>) -> Memory {
        let now = self.ports.clock.now();
        let mut memory = self.memory.with_shapes(&self.spot_shapes());
        if self.facts.retired > 0 {
            memory = memory.with_retired(self.task.policy.budgets.day(now), self.facts.retired);
        }
        match outcome {
            Some(Outcome::SpotExhausted(_)) => {
                let (initial, max) = self.task.exhaustion;
                let previous = self
                    .memory
                    .exhausted
                    .filter(|known| !is_relieved(self.live.view().nodes(), &self.cloud, known))
                    .map(|known| known.back_off);
                let back_off = BackOff::after(previous, now, initial, max);
                memory.exhausted = Some(Exhaustion { since: now, back_off });
            }
            // Everything runs on spot, or the pods of retired nodes found room there: the shortage is over.
            Some(Outcome::AllSpot) => memory.exhausted = None,
            Some(Outcome::NothingEligible(_)) if !self.report.retired.is_empty() => memory.exhausted = None,
            Some(
                Outcome::NothingEligible(_)
                | Outcome::NotSettled(_)
                | Outcome::Recovered
                | Outcome::DryRun(_)
                | Outcome::Stopped,
            )
            | None => {}
        }
        memory
    }
}

/// Whether somebody, probably we, wrote what was to be written.
fn is_as_wanted(memory: &Memory, wanted: &Memory) -> bool {
    memory.retired == wanted.retired && memory.exhausted == wanted.exhausted && memory.shapes == wanted.shapes
}
