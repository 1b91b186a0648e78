//! Replaces a pool's old fleets by its current one: new before old, as far as the terms let both be there.

use std::fmt;

use futures::future::FutureExt;

use super::look::Look;
use super::remove::strangers;
use super::work::{Ended, Going, Step, Work};
use super::{Fleet, Outcome, Pools, Report};
use crate::claim::{InstanceId, Owner};
use crate::error::RunError;
use crate::judge::Others;
use crate::node::{Node, Readiness};
use crate::retire::Purpose;
use crate::stop::Stop;

/// How a pool is replaced, in units of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What the pool is to have.
    pub capacity: u32,
    /// How much more than that may be there at once.
    pub surge: u32,
    /// How much of it may be missing at once.
    pub unavailable: u32,
}

/// A pool in the middle of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// The nodes of the fleets that are to go, which launch nothing any more.
    pub old: Vec<OldNode>,
    /// How much is on its way out beside those, and may still be there.
    pub leaving: u32,
    /// The fleet that is to take their place.
    pub new: NewFleet,
}

/// A node that is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldNode {
    /// How much of the pool it is.
    pub weight: u32,
    /// Whether its pods run: its kubelet is ready. That it is cordoned takes nothing away, since it goes anyway.
    pub is_ready: bool,
}

/// The fleet that is to stay, in units of capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewFleet {
    /// What it wants.
    pub target: u32,
    /// What of it takes pods.
    pub ready: u32,
}

/// What is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The new fleet is to want so much.
    Grow(u32),
    /// Old nodes may go whose ready ones are at most so much together.
    Retire {
        /// How much may stop taking pods.
        room: u32,
    },
    /// Nothing can be done until more of the pool is ready.
    Wait,
    /// The new fleet has taken the place of the old ones.
    Done,
    /// The terms leave no room for a node that has to go.
    Refused(TooHeavy),
}

/// A node that the terms leave no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooHeavy {
    /// How much of the pool it is.
    pub weight: u32,
    /// How much may be there too much, and be missing, together.
    pub room: u32,
}

impl fmt::Display for TooHeavy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { weight, room } = self;
        write!(
            f,
            "a node of {weight} units has to go, and surge and unavailable units together leave room for {room}: \
             allow {weight} of them at least"
        )
    }
}

/// What is next for a pool.
///
/// A node that is ready goes only when the ready rest is at least the capacity without what may be missing, and the new
/// fleet never wants more than fits beside what is there of the old ones.
///
/// # Example
/// ```
/// use spot_core::pool::roll::{NewFleet, Next, OldNode, Sides, Terms, next};
///
/// let terms = Terms { capacity: 4, surge: 2, unavailable: 0 };
/// let node = OldNode { weight: 2, is_ready: true };
/// let mut sides = Sides { old: vec![node; 2], ..Sides::default() };
/// assert_eq!(next(&terms, &sides), Next::Grow(2));
/// sides.new = NewFleet { target: 2, ready: 0 };
/// assert_eq!(next(&terms, &sides), Next::Wait);
/// sides.new.ready = 2;
/// assert_eq!(next(&terms, &sides), Next::Retire { room: 2 });
/// ```
#[must_use]
pub fn next(terms: &Terms, sides: &Sides) -> Next {
    let Terms { capacity, surge, unavailable } = *terms;
    let Sides { old, leaving, new } = sides;
    let most = surge.saturating_add(unavailable);
    let heaviest = old.iter().map(|node| node.weight).max().unwrap_or_default();
    if heaviest > most {
        return Next::Refused(TooHeavy { weight: heaviest, room: most });
    }
    let there = old.iter().map(|node| node.weight).fold(*leaving, u32::saturating_add);
    let beside = capacity.saturating_add(surge).saturating_sub(there).min(capacity);
    if new.target < beside {
        return Next::Grow(beside);
    }
    let ready = old.iter().filter(|node| node.is_ready).map(|node| node.weight).fold(new.ready, u32::saturating_add);
    let room = ready.saturating_sub(capacity.saturating_sub(unavailable));
    if old.iter().any(|node| !node.is_ready || node.weight <= room) {
        return Next::Retire { room };
    }
    if old.is_empty() && new.ready >= capacity { Next::Done } else { Next::Wait }
}

impl Pools {
    /// Replaces every fleet that is not current. The current one exists already; it may want nothing yet.
    ///
    /// # Errors
    /// When cluster, cloud or memory could not be read, a fleet could not be changed, or the leadership is lost.
    pub async fn roll(&self, terms: Terms, stop: &Stop) -> Result<Report, RunError> {
        let purpose = Purpose::Roll { pool: self.pool.clone() };
        self.work(purpose, stop, move |work| work.roll(terms).boxed()).await
    }
}

impl Work<'_> {
    async fn roll(&mut self, terms: Terms) -> Result<Outcome, Ended> {
        let Terms { capacity, unavailable, .. } = terms;
        let floor = self.pools.settings.floor;
        if capacity.saturating_sub(unavailable) < floor {
            let why = format!("the pool's minimum is {floor}, and {unavailable} of {capacity} units may be missing");
            return Ok(Outcome::Refused(why));
        }
        let look = self.settled().await?;
        let room = match next(&terms, &sides(&look, current(&look)?)) {
            Next::Refused(why) => return Ok(Outcome::Refused(why.to_string())),
            Next::Retire { room } => room,
            Next::Grow(_) | Next::Wait | Next::Done => 0,
        };
        self.recover(&going(&look, terms, room)).await?;
        // Since something was last done, which can't be without end, how long is waited for more to be ready.
        let mut patience = None;
        loop {
            let until = *patience.get_or_insert_with(|| self.now() + self.pools.settings.ready_timeout);
            let look = match self.settled().await {
                Ok(look) => look,
                Err(ended) => {
                    self.bear(ended, until).await?;
                    continue;
                }
            };
            let new = current(&look)?;
            let count = look.count([new], capacity);
            self.counted(count);
            if self.ended_one(&look, &look.old().collect::<Vec<_>>()).await? {
                continue;
            }
            let sides = sides(&look, new);
            let unnamed: Vec<_> = look.unnamed().collect();
            let (outcome, may_pass) = match next(&terms, &sides) {
                // How much of the pool is there is not known.
                _ if !unnamed.is_empty() => (Outcome::Blocked(unnamed), true),
                Next::Refused(why) => return Ok(Outcome::Refused(why.to_string())),
                Next::Done if look.old().all(|fleet| fleet.has_ended) => return Ok(Outcome::Done),
                Next::Done => (Outcome::Failed, true),
                Next::Grow(to) => {
                    self.resize(new, to).await?;
                    patience = None;
                    continue;
                }
                Next::Retire { room } => {
                    let going = going(&look, terms, room);
                    match self.step(&look, &going).await? {
                        Step::Again => {
                            patience = None;
                            continue;
                        }
                        // They are gone by now, or the cloud can't name their machines yet, or they are never retired.
                        Step::NoneLeft => {
                            let blocked: Vec<_> = strangers(&look, &going.machines, &[]).collect();
                            let none = blocked.is_empty();
                            (if none { Outcome::NotReady(count) } else { Outcome::Blocked(blocked) }, true)
                        }
                        // What is still to become ready may leave room for others.
                        Step::Nobody => {
                            let outcome = self.stuck(&look, &going, Outcome::NotReady(count));
                            (outcome, sides.new.ready < sides.new.target)
                        }
                    }
                }
                Next::Wait => (Outcome::NotReady(count), true),
            };
            if !may_pass || self.now() >= until {
                return Ok(outcome);
            }
            self.wait("more of it is ready").await?;
        }
    }
}

/// The fleet that is to stay.
fn current(look: &Look) -> Result<&Fleet, Ended> {
    let none = || Outcome::Refused("the pool has no fleet that its file asks for: create it first".to_owned());
    look.current().ok_or_else(|| none().into())
}

fn sides(look: &Look, new: &Fleet) -> Sides {
    let members = look.old().flat_map(|fleet| &fleet.members).filter(|(instance, _)| look.node(instance).is_some());
    let node =
        |(instance, member): (&_, &super::Member)| OldNode { weight: member.weight, is_ready: runs(look, instance) };
    let ready = look.count([new], 0).ready;
    Sides { old: members.map(node).collect(), leaving: look.leaving, new: NewFleet { target: new.target, ready } }
}

/// Whether the pods of an old machine run, and nobody takes it away: cordoned or not, they are missed when it goes.
fn runs(look: &Look, instance: &InstanceId) -> bool {
    look.node(instance).is_some_and(|node| {
        let claim = node.claim().of(node.uid.as_str());
        let taken = claim.is_some_and(|claim| claim.owner == Owner::Interruption);
        node.readiness == Readiness::Ready && node.deleting_since.is_none() && !taken
    })
}

/// The old machines. Those whose pods do not run need no room.
fn going(look: &Look, terms: Terms, room: u32) -> Going {
    let members = look.old().flat_map(|fleet| &fleet.members);
    let machines = members.map(|(instance, member)| {
        let weight = if runs(look, instance) { member.weight } else { 0 };
        (instance.clone(), weight)
    });
    let grows = look.current().is_some_and(|new| new.target < terms.capacity);
    // Once a new node shows what they are like, it tells who fits.
    let is_known = look.count(look.current(), 0).ready > 0;
    let others = if grows && !is_known { Others::Follow } else { Others::Go };
    Going { machines: machines.collect(), room, others }
}
