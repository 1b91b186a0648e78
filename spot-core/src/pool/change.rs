//! Changes of a pool's fleets, each made again as long as that may help.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{self, BoxFuture, FutureExt};

use super::work::{CHANGING, Ended, LOOK_AGAIN, TRIES, Work};
use super::{Fleet, Outcome, Told};
use crate::claim::InstanceId;
use crate::error::{ErrorClass, PortError, RunError, chain};
use crate::ports::{Instant, Lane, Write};
use crate::progress::Progress;
use crate::run::run_error;
use crate::wait::{REQUEST, within};

impl Work<'_> {
    /// Has a fleet want so much, unless it does, or somebody else has it want something else meanwhile.
    pub(super) async fn resize(&mut self, fleet: &Fleet, to: u32) -> Result<(), Ended> {
        let Fleet { id, target: from, .. } = fleet;
        if *from == to {
            return Ok(());
        }
        if to < *from {
            self.unless_paused().await?;
        }
        let pools = self.pools;
        let resize = |write| async move { pools.capacity.resize(id, *from, to, &write).await }.boxed();
        let resized = self.insist("changing what a fleet wants", resize).await;
        self.changed();
        if let Err(error) = resized {
            // It may have been changed before us.
            self.wanted.insert(id.clone(), (*from).min(to)..=(*from).max(to));
            self.look().await?;
            return Err(self.failed(error));
        }
        if to < *from {
            // Of a fleet that lacks something, no node can go.
            self.run.forgive();
        }
        self.wanted.insert(id.clone(), to..=to);
        self.tell(Told::Resized { fleet: id.clone(), from: *from, to });
        Ok(())
    }

    /// Terminates a machine that is no node: has its fleet want less first, unless it would not miss it. That takes a while
    /// in which the machine may become a node, so that nothing else is done before it was looked at again.
    pub(super) async fn terminate(&mut self, fleet: &Fleet, instance: &InstanceId, weight: u32) -> Result<(), Ended> {
        let rest = fleet.there().saturating_sub(weight);
        if fleet.target > rest {
            return self.resize(fleet, rest).await;
        }
        self.unless_paused().await?;
        // Once, and not for long: by the next try it may be a node, or there a pause.
        let ports = &self.pools.ports;
        let by = self.now() + REQUEST;
        let write = Write::new(by, Lane::Planned, Arc::clone(&ports.leadership));
        let terminate = self.pools.capacity.terminate(&fleet.id, instance, &write);
        let terminated = within(ports, by, "terminating a machine", terminate).await;
        self.changed();
        self.wanted.insert(fleet.id.clone(), fleet.target.saturating_sub(weight)..=fleet.target);
        match terminated {
            Ok(()) => {
                self.gone.insert(instance.clone());
                self.tell(Told::Terminated { fleet: fleet.id.clone(), instance: instance.clone() });
                Ok(())
            }
            // It may have become one all the same. Refused again and again, it stays, and the others go.
            Err(error) if error.class == ErrorClass::Permanent || may_pass(&error) => {
                *self.refused.entry(instance.clone()).or_default() += 1;
                self.report(&Progress::Problem { node: None, class: error.class, what: chain(&error) });
                self.pause().await
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Ends a fleet. Returns whether it has ended: it has not where it has or wants something that was not seen.
    pub(super) async fn cancel(&mut self, fleet: &Fleet) -> Result<bool, Ended> {
        self.unless_paused().await?;
        let (pools, id) = (self.pools, fleet.id.as_str());
        let cancel = |write| async move { pools.capacity.cancel(id, &write).await }.boxed();
        let cancelled = self.insist("ending a fleet", cancel).await;
        self.changed();
        match cancelled {
            Ok(()) => {
                self.tell(Told::Cancelled { fleet: fleet.id.clone() });
                Ok(true)
            }
            Err(error) if error.class == ErrorClass::Permanent => {
                self.report(&Progress::Problem { node: None, class: error.class, what: chain(&error) });
                Ok(false)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// A pause holds whatever takes something away.
    async fn unless_paused(&self) -> Result<(), Ended> {
        let by = self.now() + REQUEST;
        let paused = within(&self.pools.ports, by, "reading the pause", self.live.paused(by)).await;
        let paused = paused.map_err(|error| run_error(error, RunError::Cluster))?;
        if paused { Err(Outcome::Paused.into()) } else { Ok(()) }
    }

    /// What is known of fleets and machines may be otherwise now.
    fn changed(&mut self) {
        self.has_changed = true;
        self.asked = None;
        self.run.doubt();
    }

    /// How it ends by a call that failed for good, or was given up.
    fn failed(&self, error: PortError) -> Ended {
        match run_error(error, RunError::Cloud) {
            RunError::Cloud(_) if self.stop.is_set() => Outcome::Stopped.into(),
            error => error.into(),
        }
    }

    /// Makes a call that may be made again, again, as long as that may help.
    async fn insist<'f>(
        &self,
        what: &'static str,
        call: impl Fn(Write) -> BoxFuture<'f, Result<(), PortError>>,
    ) -> Result<(), PortError> {
        let ports = &self.pools.ports;
        let mut tries = 1;
        loop {
            let by = self.now() + CHANGING;
            let write = Write::new(by, Lane::Planned, Arc::clone(&ports.leadership));
            let Err(error) = within(ports, by, what, call(write)).await else { return Ok(()) };
            if !may_pass(&error) || tries == TRIES || self.stop.is_set() {
                return Err(error);
            }
            tries += 1;
            self.report(&Progress::Problem { node: None, class: error.class, what: chain(&error) });
            self.rest(self.now() + LOOK_AGAIN).await;
        }
    }

    /// Waits until then, or until asked to stop.
    async fn rest(&self, until: Instant) {
        future::select(pin!(self.pools.ports.clock.sleep_until(until)), pin!(self.stop.wait())).await;
    }
}

/// Whether a call that failed may do better another time.
pub(super) fn may_pass(error: &PortError) -> bool {
    matches!(error.class, ErrorClass::Transient | ErrorClass::Timeout)
}
