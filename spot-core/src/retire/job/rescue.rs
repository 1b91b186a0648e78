//! The work on a node whose machine goes, or may go, by itself.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{self, Either};
use jiff::Timestamp;

use super::Job;
use crate::claim::{Claim, Owner};
use crate::drain::machine::LATE;
use crate::drain::plan::Force;
use crate::error::{Cause, ErrorClass, Failure};
use crate::interruption::{Limits, Terms};
use crate::node::Node;
use crate::progress::{Halted, Step};
use crate::retire::{Halt, record};

/// The pause after a cordon that failed, doubling up to [`LONGEST_PAUSE`]: every second of a notice counts.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// What a node is seized for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::retire) enum Seizing {
    /// To be drained.
    Drain,
    /// To be cordoned, and nothing else.
    Cordon,
}

impl Job<'_> {
    pub(in crate::retire) async fn rescue(
        &mut self,
        terms: &Terms,
        cordoned: impl Future<Output = ()>,
        emptied: impl FnOnce(),
    ) -> Result<(), Halt> {
        let limits = self.seize_in_time(terms, Seizing::Drain).await?;
        cordoned.await;
        let (retirer, purpose, node) = (self.retirer, self.purpose, self.node.reference());
        let mut evictions = self.evictions;
        let (out, is_out) = oneshot::channel();
        let ended = {
            let drain = retirer.empty(node.clone(), purpose, terms, &mut evictions, retirer.look(purpose));
            let halted = |drained: &Result<bool, Halt>| drained.as_ref().err().map(Halted::from);
            let work = async {
                retirer.timed(&node, Step::Drain, drain, halted).await?;
                emptied();
                if terms.limits().force == Force::Forced {
                    // A value is never sent: that the sender is gone is the signal.
                    match is_out.await {
                        Ok(()) | Err(oneshot::Canceled) => {}
                    }
                }
                Ok(())
            };
            match future::select(pin!(work), pin!(self.keep_up(terms, limits, out))).await {
                Either::Left((ended, _)) => ended,
                Either::Right((never, _)) => match never {},
            }
        };
        self.evictions = evictions;
        ended
    }

    /// Keeps the record as the terms have it, and takes the node out of its load balancers once its machine surely goes.
    async fn keep_up(&mut self, terms: &Terms, mut limits: Limits, out: oneshot::Sender<()>) -> Infallible {
        let retirer = self.retirer;
        let node = self.node.uid.clone();
        let clock = &retirer.ports.clock;
        let mut out = Some(out);
        // A view that lags shows for a while what was put right.
        let mut not_before = clock.instant();
        loop {
            let behind = async {
                clock.sleep_until(not_before).await;
                future::select(pin!(terms.stricter_than(limits)), pin!(retirer.loses_its_taint(&node))).await;
            };
            if limits.force == Force::Forced && out.is_some() {
                if let Either::Left(_) = future::select(pin!(retirer.let_go(&self.node, terms)), pin!(behind)).await {
                    out = None;
                    continue;
                }
            } else {
                behind.await;
            }
            let pause = match self.seize_in_time(terms, Seizing::Drain).await {
                Ok(recorded) => {
                    limits = recorded;
                    FIRST_PAUSE
                }
                Err(Halt::Failed(step, cause)) => {
                    retirer.problem(&Failure { node: self.node.reference(), step, cause });
                    limits = terms.limits();
                    LONGEST_PAUSE
                }
                // What ends the rescue is seen by the drain, too.
                Err(_) => {
                    drop(out);
                    return future::pending().await;
                }
            };
            not_before = clock.instant() + pause;
        }
    }

    /// Marks, cordons and records, again and again until it is done or no time is left. Returns the limits that are
    /// recorded.
    pub(in crate::retire) async fn seize_in_time(&mut self, terms: &Terms, seizing: Seizing) -> Result<Limits, Halt> {
        let retirer = self.retirer;
        let clock = &retirer.ports.clock;
        let late = clock.instant() + LATE;
        let mut pause = FIRST_PAUSE;
        loop {
            let limits = terms.limits();
            let seized = self.stage(Step::Claim).ends(self.seize(limits, seizing)).await;
            let cause = match seized {
                Ok(()) => return Ok(limits),
                Err(Halt::Failed(_, cause)) => cause,
                Err(halt) => return Err(halt),
            };
            let passes = match &cause {
                Cause::Port(error) => matches!(error.class, ErrorClass::Transient | ErrorClass::Timeout),
                Cause::Contended(_) => true,
                Cause::Blocked(_) | Cause::Mismatch(_) => false,
            };
            if !passes || clock.instant() + pause >= terms.limits().until.max(late) {
                return Err(Halt::Failed(Step::Claim, cause));
            }
            retirer.problem(&Failure { node: self.node.reference(), step: Step::Claim, cause });
            if let Either::Right(_) =
                future::select(pin!(clock.sleep_until(clock.instant() + pause)), pin!(retirer.stop.wait())).await
            {
                return Err(Halt::Stopped);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn seize(&mut self, limits: Limits, seizing: Seizing) -> Result<(), Halt> {
        let clock = &self.retirer.ports.clock;
        let (now, instant) = (clock.now(), clock.instant());
        let forced = limits.force == Force::Forced;
        if !forced && self.retirer.live.view().paused() {
            return Err(Halt::Paused);
        }
        let until = (seizing == Seizing::Drain).then(|| {
            let until = now.saturating_add(limits.until.since(instant)).unwrap_or(Timestamp::MAX);
            // To the second: it is written anew only where it is another one.
            Timestamp::from_second(until.as_second()).unwrap_or(until)
        });
        let taint = forced && seizing == Seizing::Drain;
        let (machine, judged) = (self.machine.clone(), Arc::clone(&self.node));
        self.write(Step::Claim, |node| {
            let claim = node.claim().of(node.uid.as_str()).filter(|claim| claim.boot_id == node.boot_id);
            if claim.is_some_and(Claim::is_departing) {
                return Err(Halt::Departing(String::new()));
            }
            if claim.is_some_and(|claim| claim.owner == Owner::Interruption) {
                if let Some(halt) = record::taken_back(node, &Owner::Interruption)
                    && !record::lost_its_taint(node, &Owner::Interruption)
                {
                    return Err(halt);
                }
            } else if node.provider_id != judged.provider_id || (!forced && record::is_untouchable(node, &judged)) {
                return Err(Halt::Refused);
            }
            Ok(record::seizing(node, &machine, until, taint, now))
        })
        .await
    }
}
