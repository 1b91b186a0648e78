//! Waits until a pool's machines are nodes that are ready.

use futures::future::FutureExt;

use super::work::{Ended, Work};
use super::{Outcome, Pools, Report};
use crate::error::{ErrorClass, RunError, chain};
use crate::progress::Progress;
use crate::retire::Purpose;
use crate::stop::Stop;

impl Pools {
    /// Waits until `wanted` units of the current fleet are Ready nodes; changes nothing.
    ///
    /// # Errors
    /// When cluster, cloud or memory could not be read, or the leadership is lost.
    pub async fn await_ready(&self, wanted: u32, stop: &Stop) -> Result<Report, RunError> {
        let purpose = Purpose::ScaleDown { pool: self.pool.clone() };
        self.work(purpose, stop, |work| work.await_ready(wanted).boxed()).await
    }
}

impl Work<'_> {
    /// Waits until `wanted` units of the current fleet are Ready nodes. That the cloud does not answer for a while is
    /// reported, and no more.
    pub(super) async fn await_ready(&mut self, wanted: u32) -> Result<Outcome, Ended> {
        let until = self.now() + self.pools.settings.ready_timeout;
        loop {
            let count = match self.look().await {
                Ok(look) => look.count(look.current(), wanted),
                Err(Ended::Failed(RunError::Cloud(error)))
                    if matches!(error.class, ErrorClass::Transient | ErrorClass::Timeout) && self.now() < until =>
                {
                    self.report(&Progress::Problem { node: None, class: error.class, what: chain(&error) });
                    self.pause().await?;
                    continue;
                }
                Err(ended) => return Err(ended),
            };
            self.counted(count);
            if count.ready >= wanted {
                return Ok(Outcome::Done);
            }
            if self.now() >= until {
                return Ok(Outcome::NotReady(count));
            }
            self.pause().await?;
        }
    }
}
