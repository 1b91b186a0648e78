//! Who leads, where several processes work on one world.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;

use crate::error::{ErrorClass, PortError};
use crate::ports::{Instant, Leadership};

use super::Model;
use super::process::{Process, ProcessId};
use super::world::World;

/// Who led, and since when.
#[derive(Debug, Default)]
pub struct Lease {
    holders: Vec<(Instant, ProcessId)>,
    wakers: Vec<Waker>,
}

impl Lease {
    /// Who leads.
    #[must_use]
    pub fn holder(&self) -> Option<ProcessId> {
        self.holders.last().map(|(_, process)| *process)
    }

    /// Whether this process led at that moment, or lost the lease in it.
    #[must_use]
    pub fn led_at(&self, process: ProcessId, at: Instant) -> bool {
        let ends = self.holders.iter().skip(1).map(|(end, _)| Some(*end)).chain([None]);
        let terms = self.holders.iter().zip(ends);
        terms
            .into_iter()
            .any(|((since, holder), end)| *holder == process && *since <= at && end.is_none_or(|end| at <= end))
    }
}

impl World {
    /// The lease, once it was given to anybody.
    #[must_use]
    pub fn leader(&self) -> Option<&Lease> {
        self.lease.holder().map(|_| &self.lease)
    }

    /// Gives the lease to this process; whoever had it has lost it.
    pub fn give_lease(&mut self, process: ProcessId) {
        let now = self.now();
        self.lease.holders.push((now, process));
        self.to_wake.append(&mut self.lease.wakers);
    }

    fn poll_lease(&mut self, process: ProcessId, leads: bool, context: &Context<'_>) -> Poll<()> {
        if (self.lease.holder() == Some(process)) == leads {
            return Poll::Ready(());
        }
        if !self.lease.wakers.iter().any(|known| known.will_wake(context.waker())) {
            self.lease.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// The leadership of one process.
#[derive(Clone, Debug)]
pub struct Candidate {
    model: Model,
    process: ProcessId,
}

impl Process {
    /// This process as one that may lead.
    #[must_use]
    pub fn candidate(&self) -> Arc<Candidate> {
        Arc::new(Candidate { model: self.model.clone(), process: self.id() })
    }
}

impl Candidate {
    /// Returns when it leads.
    pub async fn gained(&self) {
        self.until(true).await;
    }

    async fn until(&self, leads: bool) {
        let poll = |context: &mut Context<'_>| self.model.with(|world| world.poll_lease(self.process, leads, context));
        std::future::poll_fn(poll).await;
    }
}

#[async_trait]
impl Leadership for Candidate {
    fn check(&self) -> Result<(), PortError> {
        if self.model.with(|world| world.lease.holder()) == Some(self.process) {
            Ok(())
        } else {
            Err(PortError::new(ErrorClass::NotLeader, "another process leads"))
        }
    }

    async fn lost(&self) {
        self.until(false).await;
    }
}
