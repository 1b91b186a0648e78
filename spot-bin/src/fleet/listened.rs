//! What a pool's fleet says of itself while its machines are waited for: EC2 tells nobody else why capacity is missing.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use jiff::Timestamp;
use spot_aws::fleet::NodePool;
use spot_core::error::{PortError, chain};
use spot_core::pool::{Fleet, PoolCapacity as _};
use tracing::debug;

use super::work::Work;
use crate::exit::Fault;

/// How often a fleet is asked: EC2 tells of it some seconds late anyway.
const LISTEN: Duration = Duration::from_secs(5);
/// How old may be what a fleet said that lacks something when the work begins.
const LOOK_BACK: Duration = Duration::from_mins(10);

/// What the fleet says that is what the file asks for.
pub(super) struct Listened<'a> {
    work: &'a Work<'a>,
    pool: &'a NodePool,
    /// What it means, in the order in which it was said.
    heard: Mutex<Vec<&'static str>>,
}

impl<'a> Listened<'a> {
    /// Nothing is asked yet.
    pub(super) fn new(work: &'a Work<'a>, pool: &'a NodePool) -> Self {
        Self { work, pool, heard: Mutex::default() }
    }

    /// Says what is wrong, each thing once.
    pub(super) async fn listen(&self) -> Infallible {
        let clock = &self.work.clock;
        let began = clock.now();
        let mut since = None;
        loop {
            // What is wrong shows in the count, too.
            if let Err(error) = self.hear(began, &mut since).await {
                debug!(error = chain(&error), "the fleet's history can't be read");
            }
            clock.sleep_until(clock.instant() + LISTEN).await;
        }
    }

    async fn hear(&self, began: Timestamp, since: &mut Option<Timestamp>) -> Result<(), PortError> {
        let fleets = self.pool.fleets(self.work.by()).await?;
        let fleet = fleets.iter().find(|fleet| fleet.is_current);
        let since = *since.get_or_insert_with(|| heard_from(began, fleet));
        let Some(fleet) = fleet else { return Ok(()) };
        for event in self.pool.history(&fleet.id, since, self.work.by()).await? {
            let Some(explained) = event.explained else { continue };
            if is_news(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner), explained) {
                self.work.shown.say(&format!("fleet {}: {explained} ({})", fleet.id, event.words));
            }
        }
        Ok(())
    }

    /// The fault, with what the fleet said.
    pub(super) fn because(&self, fault: Fault) -> Fault {
        because(fault, &self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Since when it counts what a fleet says, which was this when the work began: of what lacks now, it told the reason
/// before. What it told before it had everything is of the past.
fn heard_from(began: Timestamp, fleet: Option<&Fleet>) -> Timestamp {
    if fleet.is_some_and(|fleet| fleet.there() < fleet.target) { began - LOOK_BACK } else { began }
}

fn is_news(heard: &mut Vec<&'static str>, explained: &'static str) -> bool {
    let is_news = !heard.contains(&explained);
    if is_news {
        heard.push(explained);
    }
    is_news
}

fn because(fault: Fault, heard: &[&str]) -> Fault {
    if heard.is_empty() {
        return fault;
    }
    Fault { error: anyhow!("{:#}; the fleet says: {}", fault.error, heard.join("; and: ")), ..fault }
}

#[cfg(test)]
mod tests {
    use spot_core::claim::InstanceId;
    use spot_core::pool::Member;

    use super::*;
    use crate::sample::at;

    #[test]
    fn only_of_a_fleet_that_lacks_something_it_is_heard_what_it_said_before() {
        let fleet = |target| Fleet {
            id: "sfr-1".to_owned(),
            target,
            is_current: true,
            is_settled: true,
            has_ended: false,
            members: [(InstanceId::new("i-1"), Member { weight: 2, launched: at() })].into(),
        };
        assert_eq!(heard_from(at(), Some(&fleet(3))), at() - LOOK_BACK);
        assert_eq!(heard_from(at(), Some(&fleet(2))), at());
        assert_eq!(heard_from(at(), None), at());
    }

    #[test]
    fn what_a_fleet_says_is_said_once_and_again_as_the_reason() {
        let mut heard = Vec::new();
        assert_eq!(["a", "b", "a"].map(|said| is_news(&mut heard, said)), [true, true, false]);
        let fault = || Fault::usage(anyhow!("units lack"));
        let told = because(fault(), &heard);
        assert_eq!(
            (told.error.to_string().as_str(), told.exit),
            ("units lack; the fleet says: a; and: b", fault().exit)
        );
        assert_eq!(because(fault(), &[]).error.to_string(), "units lack");
    }
}
