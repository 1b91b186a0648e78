//! Waits until a pool's machines are nodes that are ready.

use futures::future::FutureExt;

use super::change::may_pass;
use super::look::Look;
use super::work::{Ended, Going, Work};
use super::{Outcome, Pools, Report};
use crate::error::{ErrorClass, RunError, chain};
use crate::judge::Others;
use crate::ports::Instant;
use crate::progress::Progress;
use crate::retire::Purpose;
use crate::stop::Stop;

impl Pools {
    /// Releases what earlier work on the pool left half done, and waits until `wanted` units of the current fleet are
    /// Ready nodes; no fleet is changed.
    ///
    /// # Errors
    /// When cluster, cloud or memory could not be read, or the leadership is lost.
    pub async fn await_ready(&self, wanted: u32, stop: &Stop) -> Result<Report, RunError> {
        let purpose = Purpose::ScaleDown { pool: self.pool.clone() };
        self.work(purpose, stop, |work| work.take_up_and_await(wanted).boxed()).await
    }
}

impl Work<'_> {
    /// Takes up what earlier work left half done, where nobody is to go but who is on its way out, and waits.
    async fn take_up_and_await(&mut self, wanted: u32) -> Result<Outcome, Ended> {
        let look = self.look_patiently(self.now() + self.pools.settings.ready_timeout).await?;
        self.recover(&Going { machines: look.weights(), room: 0, others: Others::Stay }).await?;
        self.await_ready(wanted).await
    }

    /// Waits until `wanted` units of the current fleet are Ready nodes.
    pub(super) async fn await_ready(&mut self, wanted: u32) -> Result<Outcome, Ended> {
        let until = self.now() + self.pools.settings.ready_timeout;
        loop {
            let look = self.look_patiently(until).await?;
            let count = look.count(look.current(), wanted);
            self.counted(count);
            if count.ready >= wanted {
                return Ok(Outcome::Done);
            }
            if self.now() >= until {
                return Ok(Outcome::NotReady(count));
            }
            self.wait("enough of its nodes are ready").await?;
        }
    }

    /// The pool as it is now. That somebody else has a fleet want something else is reported, and no more: nothing is
    /// changed here that it could disturb.
    async fn look_patiently(&mut self, until: Instant) -> Result<Look, Ended> {
        loop {
            match self.look().await {
                Ok(look) => return Ok(look),
                Err(Ended::With(Outcome::Changed(what))) => {
                    self.report(&Progress::Problem { node: None, class: ErrorClass::Permanent, what });
                }
                Err(ended) => self.bear(ended, until).await?,
            }
        }
    }

    /// Bears that the cloud does not answer for a while: it is reported, and waited for.
    pub(super) async fn bear(&mut self, ended: Ended, until: Instant) -> Result<(), Ended> {
        match ended {
            Ended::Failed(RunError::Cloud(error)) if may_pass(&error) && self.now() < until => {
                self.report(&Progress::Problem { node: None, class: error.class, what: chain(&error) });
                self.pause().await
            }
            ended => Err(ended),
        }
    }
}
