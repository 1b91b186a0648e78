//! Makes a pool larger or smaller.

use std::collections::BTreeMap;

use futures::future::FutureExt;

use super::look::Look;
use super::work::{Ended, Going, Step, Work};
use super::{Fleet, Outcome, Pools, Report};
use crate::error::RunError;
use crate::judge::Others;
use crate::retire::Purpose;
use crate::stop::Stop;

impl Pools {
    /// Makes the current fleet want `to`: grows and waits until that is ready, or retires nodes one batch after another
    /// while there is one whose weight fits.
    ///
    /// # Errors
    /// When cluster, cloud or memory could not be read, a fleet could not be changed, or the leadership is lost.
    pub async fn scale(&self, to: u32, stop: &Stop) -> Result<Report, RunError> {
        let purpose = Purpose::ScaleDown { pool: self.pool.clone() };
        self.work(purpose, stop, |work| work.scale(to).boxed()).await
    }
}

impl Work<'_> {
    async fn scale(&mut self, to: u32) -> Result<Outcome, Ended> {
        let floor = self.pools.settings.floor;
        if to < floor {
            return Ok(Outcome::Refused(format!("the pool's minimum is {floor}, and {to} is less")));
        }
        let look = self.settled().await?;
        let fleet = scaled(&look)?;
        let grows = fleet.there() < to || fleet.target < to;
        let going = self.shrinking(fleet, to);
        self.recover(&going).await?;
        let outcome = loop {
            let look = self.settled().await?;
            let fleet = scaled(&look)?;
            self.counted(look.count([fleet], to));
            // What is missing is not launched any more, and nothing else is lowered but by what goes.
            let wanted = fleet.target.min(fleet.there()).max(to);
            if fleet.target != wanted {
                self.resize(fleet, wanted).await?;
                continue;
            }
            let going = self.shrinking(fleet, to);
            if going.room == 0 {
                break if fleet.members.keys().any(|instance| self.stays(instance)) {
                    Outcome::Failed
                } else {
                    Outcome::Done
                };
            }
            // It disturbs nobody. One that is about to become a node goes only where no node may.
            let mut stray = self.stray(&look, &[fleet], going.room, true);
            if stray.is_none() {
                if self.step(&look, &going).await? == Step::Again {
                    continue;
                }
                stray = self.stray(&look, &[fleet], going.room, false);
            }
            let Some((fleet, instance, member)) = stray else {
                break self.stuck(&look, &going, Outcome::Remainder(fleet.there()));
            };
            self.terminate(fleet, instance, member.weight).await?;
        };
        if !matches!(outcome, Outcome::Done | Outcome::Remainder(_)) {
            return Ok(outcome);
        }
        let look = self.settled().await?;
        self.resize(scaled(&look)?, to).await?;
        if grows { self.await_ready(to).await } else { Ok(outcome) }
    }

    /// What may go. For a machine that is no node, and stays, no node goes.
    fn shrinking(&self, fleet: &Fleet, to: u32) -> Going {
        let machines = fleet.members.iter().map(|(instance, member)| (instance.clone(), member.weight));
        let machines: BTreeMap<_, _> = machines.filter(|(instance, _)| !self.stays(instance)).collect();
        let there = machines.values().copied().fold(0, u32::saturating_add);
        Going { machines, room: there.saturating_sub(to), others: Others::Stay }
    }
}

/// The fleet that is scaled: the one that the file asks for, if it is alone.
fn scaled(look: &Look) -> Result<&Fleet, Ended> {
    if let Some(old) = look.old().find(|fleet| !fleet.has_ended || !fleet.members.is_empty()) {
        let why = format!("fleet {} is not what the pool's file asks for now: roll the pool first", old.id);
        return Err(Outcome::Refused(why).into());
    }
    let none = || Outcome::Refused("the pool has no fleet: create it first".to_owned());
    look.current().ok_or_else(|| none().into())
}
