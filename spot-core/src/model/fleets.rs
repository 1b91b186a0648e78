//! The fleets of a pool: each keeps a capacity of machines of several weights, launches what is missing while there is
//! any to buy, and never ends one by itself.

use std::time::Duration;

use async_trait::async_trait;

use crate::capacity::Class;
use crate::claim::InstanceId;
use crate::cloud::InstanceState;
use crate::error::{ErrorClass, PortError};
use crate::node::{NodeSnapshot, key};
use crate::pool::{Fleet as Told, Member, PoolCapacity};
use crate::ports::{Clock as _, Instant, Write};
use crate::reason::ReasonKind;

use super::cloud::{Group, Instance, InstanceNo, Life};
use super::process::Process;
use super::record::{Answer, Call};
use super::spec::NodeSpec;
use super::world::{Event, World, earlier};

/// How old the first of the machines is that a fleet has at the beginning.
const AGE: Duration = Duration::from_hours(1);

/// The pool of the fleets.
const POOL: &str = "web";

/// A kind of machine that a fleet buys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// How much of the fleet's capacity one is.
    pub weight: u32,
    /// How many pods fit on one.
    pub slots: u32,
    /// How many can still be bought.
    pub left: u32,
    /// Whether it becomes a Node.
    pub joins: bool,
}

impl Offer {
    /// As many as are wanted, each with room for ten pods for each unit.
    #[must_use]
    pub const fn new(weight: u32) -> Self {
        Self { weight, slots: weight.saturating_mul(10), left: u32::MAX, joins: true }
    }

    /// Only so many.
    #[must_use]
    pub const fn left(mut self, left: u32) -> Self {
        self.left = left;
        self
    }

    /// Machines that never become Nodes.
    #[must_use]
    pub const fn never_joining(mut self) -> Self {
        self.joins = false;
        self
    }
}

/// A fleet to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSpec {
    /// Its name.
    pub id: String,
    /// The capacity that it wants.
    pub target: u32,
    /// What it buys, in turn.
    pub offers: Vec<Offer>,
    /// The weights of the machines that it has at the beginning.
    pub members: Vec<u32>,
    /// Whether it is what the pool's file asks for now.
    pub is_current: bool,
    /// From a lack of capacity to a machine.
    pub launch: Duration,
    /// From a machine to its Node.
    pub join: Duration,
    /// How long it can't be changed again after a change.
    pub modifying: Duration,
    /// Labels of its nodes.
    pub labels: Vec<(String, String)>,
}

impl FleetSpec {
    /// The current fleet, that wants so much and has nothing yet.
    #[must_use]
    pub fn new(id: &str, target: u32) -> Self {
        Self {
            id: id.to_owned(),
            target,
            offers: Vec::new(),
            members: Vec::new(),
            is_current: true,
            launch: Duration::from_secs(20),
            join: Duration::from_secs(40),
            modifying: Duration::from_secs(5),
            labels: Vec::new(),
        }
    }

    /// With these machines to buy.
    #[must_use]
    pub fn offer(mut self, offer: Offer) -> Self {
        self.offers.push(offer);
        self
    }

    /// With machines of these weights at the beginning.
    #[must_use]
    pub fn members(mut self, weights: &[u32]) -> Self {
        self.members = weights.to_vec();
        self
    }

    /// One that is to go.
    #[must_use]
    pub const fn old(mut self) -> Self {
        self.is_current = false;
        self
    }
}

/// A change of what a fleet wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetChange {
    /// The fleet.
    pub fleet: String,
    /// What it wanted.
    pub from: u32,
    /// What it wants.
    pub to: u32,
    /// Why.
    pub why: Why,
}

/// Why a fleet wants something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// `PoolCapacity::resize`.
    Resized,
    /// This machine of that weight was to go, by `CloudProvider::delete_instance` or `PoolCapacity::terminate`.
    Left(InstanceId, u32),
    /// Somebody else's doing.
    Others,
}

/// All fleets.
#[derive(Debug, Default)]
pub(super) struct Fleets {
    /// In the order of their creation.
    all: Vec<Fleet>,
    changes: Vec<FleetChange>,
}

#[derive(Debug)]
struct Fleet {
    spec: FleetSpec,
    /// Since when it can be changed again.
    settles: Instant,
    ended: bool,
    /// How many machines it has launched.
    launched: usize,
}

impl Fleets {
    /// Whether a group is a fleet of the pool.
    pub(super) fn has(&self, id: &str) -> bool {
        self.named(id).is_some()
    }

    /// Whether a group is a fleet that keeps nothing any more.
    pub(super) fn has_ended(&self, id: &str) -> bool {
        self.named(id).is_some_and(|fleet| fleet.ended)
    }

    fn named(&self, id: &str) -> Option<&Fleet> {
        self.all.iter().find(|fleet| fleet.spec.id == id)
    }

    fn named_mut(&mut self, id: &str) -> Option<&mut Fleet> {
        self.all.iter_mut().find(|fleet| fleet.spec.id == id)
    }
}

impl World {
    /// A fleet comes, with the machines that it has at the beginning.
    pub fn add_fleet(&mut self, spec: FleetSpec) {
        let (id, weights) = (spec.id.clone(), spec.members.clone());
        self.groups.insert(id.clone(), Group { desired: spec.target, floor: 0, is_fleet: true });
        if spec.is_current {
            self.fleets.all.iter_mut().for_each(|fleet| fleet.spec.is_current = false);
        }
        self.fleets.all.push(Fleet { spec, settles: self.now(), ended: false, launched: 0 });
        for (turn, weight) in (0..).zip(weights) {
            let offers = self.fleets.named(&id).map(|fleet| &fleet.spec.offers);
            let offer = offers.into_iter().flatten().find(|offer| offer.weight == weight).cloned();
            let offer = offer.unwrap_or_else(|| Offer::new(weight));
            // a minute between two, so that their age tells them apart
            let age = AGE.saturating_sub(Duration::from_mins(turn));
            if let Some(no) = self.new_member(&id, &offer) {
                self.register(no, true, age);
                if let Some(instance) = self.instances.get_mut(no.0) {
                    instance.launched = earlier(instance.launched, age);
                }
            }
        }
        self.look_after(&id);
    }

    /// Somebody else has a fleet want something else.
    pub fn set_target(&mut self, fleet: &str, target: u32) {
        self.change_target(fleet, target, Why::Others);
    }

    /// Somebody else ends a fleet, and leaves its machines.
    pub fn end_fleet(&mut self, fleet: &str) {
        if let Some(fleet) = self.fleets.named_mut(fleet) {
            fleet.ended = true;
        }
    }

    /// So many machines of this weight can be bought by a fleet from now on.
    pub fn set_offer(&mut self, fleet: &str, weight: u32, left: u32) {
        let offers = self.fleets.named_mut(fleet).map(|fleet| &mut fleet.spec.offers);
        for offer in offers.into_iter().flatten().filter(|offer| offer.weight == weight) {
            offer.left = left;
        }
        self.look_after(fleet);
    }

    /// The fleets as the cloud tells of them, those that are gone for good included.
    #[must_use]
    pub fn fleets(&self) -> Vec<Told> {
        self.fleets.all.iter().map(|fleet| self.told(fleet)).collect()
    }

    /// Every change of what a fleet wants, in order.
    #[must_use]
    pub fn fleet_changes(&self) -> &[FleetChange] {
        &self.fleets.changes
    }

    /// The machines of the fleets that run, each with its fleet, its weight and its node, if it has one.
    pub fn members(&self) -> impl Iterator<Item = (&InstanceId, &str, u32, Option<&NodeSnapshot>)> {
        let running = self.instances.iter().enumerate().filter(|(_, instance)| instance.life == Life::Running);
        running.filter_map(|(no, instance)| {
            let fleet = instance.spec.group.as_deref().filter(|group| self.fleets.has(group))?;
            let node = self.node_named(&instance.node_name).and_then(|node| self.node_entry(node));
            let node = node.filter(|entry| entry.instance == InstanceNo(no)).map(|entry| &*entry.snapshot);
            Some((&instance.id, fleet, instance.spec.weight, node))
        })
    }

    fn told(&self, fleet: &Fleet) -> Told {
        let id = fleet.spec.id.as_str();
        let members = self.instances.iter().filter(|instance| instance.spec.group.as_deref() == Some(id));
        let members = members.filter(|instance| self.seen_state(instance) == InstanceState::Running);
        let member = |of: &Instance| Member { weight: of.spec.weight, launched: of.launched };
        Told {
            id: id.to_owned(),
            target: self.target(id),
            is_current: fleet.spec.is_current,
            is_settled: fleet.settles <= self.now(),
            has_ended: fleet.ended,
            members: members.map(|instance| (instance.id.clone(), member(instance))).collect(),
        }
    }

    fn target(&self, fleet: &str) -> u32 {
        self.groups.get(fleet).map_or(0, |group| group.desired)
    }

    /// The capacity that runs.
    fn running(&self, fleet: &str) -> u32 {
        self.members().filter(|(_, of, ..)| *of == fleet).map(|(_, _, weight, _)| weight).sum()
    }

    fn change_target(&mut self, id: &str, to: u32, why: Why) {
        let (from, now) = (self.target(id), self.now());
        let Some(fleet) = self.fleets.named_mut(id).filter(|fleet| !fleet.ended) else { return };
        fleet.settles = now + fleet.spec.modifying;
        self.fleets.changes.push(FleetChange { fleet: id.to_owned(), from, to, why });
        if let Some(group) = self.groups.get_mut(id) {
            group.desired = to;
        }
        self.look_after(id);
    }

    /// Has a fleet look at what it has, as soon as it takes to launch something.
    pub(super) fn look_after(&mut self, id: &str) {
        if let Some(fleet) = self.fleets.named(id) {
            self.after(fleet.spec.launch, Event::Launch(id.to_owned()));
        }
    }

    /// A fleet launches what is missing, as far as it can buy any.
    pub(super) fn launch_members(&mut self, id: &str) {
        while let Some(offer) = self.next_offer(id) {
            let Some(no) = self.new_member(id, &offer) else { return };
            let join = self.fleets.named(id).filter(|_| offer.joins).map(|fleet| fleet.spec.join);
            if let Some(join) = join {
                self.after(join, Event::Joined(no));
            }
        }
    }

    /// What it buys next, if it lacks anything. The offers take turns.
    fn next_offer(&mut self, id: &str) -> Option<Offer> {
        let lacks = self.running(id) < self.target(id);
        let fleet = self.fleets.named_mut(id).filter(|fleet| lacks && !fleet.ended)?;
        let (turn, offers) = (fleet.launched, fleet.spec.offers.len());
        let at = (0..offers)
            .map(|step| (turn + step) % offers)
            .find(|at| fleet.spec.offers.get(*at).is_some_and(|offer| offer.left > 0))?;
        let offer = fleet.spec.offers.get_mut(at)?;
        offer.left -= 1;
        Some(offer.clone())
    }

    fn new_member(&mut self, id: &str, offer: &Offer) -> Option<InstanceNo> {
        let fleet = self.fleets.named_mut(id)?;
        fleet.launched += 1;
        let name = format!("{id}-{}", fleet.launched);
        let mut spec = NodeSpec::new(Class::Spot).named(&name).slots(offer.slots).group(id);
        spec.labels.clone_from(&fleet.spec.labels);
        spec.labels.push((key::POOL.to_owned(), POOL.to_owned()));
        spec.weight = offer.weight;
        Some(self.new_instance(spec, name.into()))
    }

    /// A machine's kubelet registers, if the machine still runs.
    pub(super) fn member_joins(&mut self, no: InstanceNo) {
        if self.instances.get(no.0).is_some_and(|instance| instance.life == Life::Running) {
            self.register(no, false, Duration::ZERO);
        }
    }

    /// Why a fleet lets no member go now.
    pub(super) fn fleet_refuses(&self, id: &str, chosen: bool) -> Option<(ReasonKind, String)> {
        let fleet = self.fleets.named(id).filter(|fleet| !fleet.ended)?;
        let (there, target) = (self.running(id), self.target(id));
        if fleet.settles > self.now() {
            return Some((ReasonKind::GroupRefreshing, format!("fleet {id} is modifying")));
        }
        // Its members are asked for with one call for each fleet.
        (chosen && there < target).then(|| {
            let words = format!("fleet {id} has {there} of {target}, and is launching the rest");
            (ReasonKind::InstanceInTransition, words)
        })
    }

    /// When the fleet of this machine can be changed.
    pub(super) fn settles(&self, instance: Option<&InstanceId>) -> Instant {
        let no = instance.and_then(|instance| self.instance_no(instance));
        let group = no.and_then(|no| self.instances.get(no.0)?.spec.group.as_deref());
        group.and_then(|group| self.fleets.named(group)).map_or_else(|| self.now(), |fleet| fleet.settles)
    }

    /// The fleet of a machine that is to go wants less by its weight, unless it has so much that it would not miss it.
    /// Returns whether it wants less now.
    pub(super) fn lower_fleet(&mut self, no: InstanceNo) -> bool {
        let Some(instance) = self.instances.get(no.0) else { return false };
        let (member, weight) = (instance.id.clone(), instance.spec.weight);
        let Some(id) = instance.spec.group.clone().filter(|group| self.fleets.has(group)) else { return false };
        let target = self.target(&id);
        let misses = !self.fleets.has_ended(&id) && self.running(&id).saturating_sub(weight) < target;
        if misses {
            self.change_target(&id, target.saturating_sub(weight), Why::Left(member, weight));
        }
        misses
    }

    fn resize(&mut self, id: &str, from: u32, to: u32) -> Result<Instant, PortError> {
        let (now, target) = (self.now(), self.target(id));
        let Some(fleet) = self.fleets.named(id).filter(|fleet| !fleet.ended) else {
            return refused(format!("fleet {id} has ended"));
        };
        if target == to {
            return Ok(fleet.settles);
        }
        if target != from {
            return refused(format!("fleet {id} wants {target} by somebody else's doing, not {from}"));
        }
        if fleet.settles > now {
            return busy(id);
        }
        self.change_target(id, to, Why::Resized);
        Ok(self.fleets.named(id).map_or(now, |fleet| fleet.settles))
    }

    fn terminate(&mut self, id: &str, instance: &InstanceId) -> Result<(), PortError> {
        let Some(no) = self.instance_no(instance) else { return Ok(()) };
        let Some(member) = self.members().find(|(member, ..)| *member == instance) else { return Ok(()) };
        let (_, fleet, _, node) = member;
        if fleet != id {
            return refused(format!("{instance} is not of fleet {id}"));
        }
        if let Some(node) = node {
            return refused(format!("{instance} is the machine of node {}", node.name));
        }
        if let Some((kind, words)) = self.fleet_refuses(id, true) {
            return if kind == ReasonKind::GroupRefreshing { busy(id) } else { refused(words) };
        }
        self.lower_fleet(no);
        self.end_machine(no);
        Ok(())
    }

    fn cancel(&mut self, id: &str) -> Result<(), PortError> {
        let (target, there) = (self.target(id), self.running(id));
        let Some(fleet) = self.fleets.named_mut(id).filter(|fleet| !fleet.ended) else { return Ok(()) };
        if target > 0 || there > 0 {
            return refused(format!("fleet {id} wants {target} and has {there}"));
        }
        fleet.ended = true;
        Ok(())
    }
}

fn refused<T>(why: String) -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Permanent, why))
}

fn busy<T>(id: &str) -> Result<T, PortError> {
    Err(PortError::new(ErrorClass::Transient, format!("fleet {id} is being modified")))
}

impl Process {
    /// Waits until the fleet of a machine can be changed.
    pub(super) async fn until_settled(&self, settles: Instant, by: Instant) -> Result<(), PortError> {
        self.sleep_until(settles.min(by)).await;
        if settles > by {
            Err(PortError::new(ErrorClass::Timeout, "the fleet is still being modified"))
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl PoolCapacity for Process {
    async fn fleets(&self, by: Instant) -> Result<Vec<Told>, PortError> {
        let effect = |world: &mut World| {
            let gone = |fleet: &Told| {
                fleet.has_ended
                    && world
                        .instances
                        .iter()
                        .all(|instance| instance.life == Life::Gone || instance.spec.group.as_ref() != Some(&fleet.id))
            };
            let mut fleets = world.fleets();
            fleets.retain(|fleet| !gone(fleet));
            Ok((fleets, Answer::Done))
        };
        self.call(Call::Fleets, by, effect).await
    }

    async fn resize(&self, fleet: &str, from: u32, to: u32, write: &Write) -> Result<(), PortError> {
        write.permit()?;
        let call = Call::Resize { fleet: fleet.to_owned(), from, to };
        let resize = |world: &mut World| Ok((world.resize(fleet, from, to)?, Answer::Done));
        let settles = self.call(call, write.by, resize).await?;
        self.until_settled(settles, write.by).await
    }

    async fn terminate(&self, fleet: &str, instance: &InstanceId, write: &Write) -> Result<(), PortError> {
        write.permit()?;
        let call = Call::Terminate { fleet: fleet.to_owned(), instance: instance.clone() };
        self.call(call, write.by, |world: &mut World| Ok((world.terminate(fleet, instance)?, Answer::Done))).await
    }

    async fn cancel(&self, fleet: &str, write: &Write) -> Result<(), PortError> {
        write.permit()?;
        let cancel = |world: &mut World| Ok((world.cancel(fleet)?, Answer::Done));
        self.call(Call::Cancel(fleet.to_owned()), write.by, cancel).await
    }
}
