//! Waits until a pool's machines are nodes that are ready.

use futures::future::FutureExt;

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
        let work = |work: &mut Work<'_>| {
            async move {
                work.release().await?;
                work.await_ready(wanted).await
            }
            .boxed()
        };
        self.work(purpose, stop, work).await
    }
}

impl Work<'_> {
    /// Takes up what earlier work left half done: nobody is to go but who is on its way out.
    async fn release(&mut self) -> Result<(), Ended> {
        let until = self.now() + self.pools.settings.ready_timeout;
        let look = self.look_patiently(until).await?;
        self.recover(&Going { machines: look.weights(), room: 0, others: Others::Stay }).await
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
            self.wait("enough machines are nodes that are ready").await?;
        }
    }

    /// The pool as it is now. That the cloud does not answer for a while is reported, and no more, and so is that somebody
    /// else has a fleet want something else: nothing is changed here that it could disturb.
    async fn look_patiently(&mut self, until: Instant) -> Result<Look, Ended> {
        loop {
            let (class, what) = match self.look().await {
                Err(Ended::Failed(RunError::Cloud(error)))
                    if matches!(error.class, ErrorClass::Transient | ErrorClass::Timeout) && self.now() < until =>
                {
                    (error.class, chain(&error))
                }
                Err(Ended::With(Outcome::Changed(what))) => (ErrorClass::Permanent, what),
                looked => return looked,
            };
            self.report(&Progress::Problem { node: None, class, what });
            self.pause().await?;
        }
    }
}
