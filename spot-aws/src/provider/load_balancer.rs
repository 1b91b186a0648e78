//! Takes instances out of their load balancers, waits until those have let go of them, and puts back what stays.

mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_elasticloadbalancingv2::types::TargetDescription;
use futures::future;
use jiff::Timestamp;
#[cfg(feature = "fleet")]
pub(crate) use place::is_of;
use place::{Place, Serving};
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::{NodeSnapshot, Uid};
use spot_core::ports::{Instant, Lane, Write};

use crate::ProviderId;
use crate::provider::together::{Failed, Lanes, Together, Turn};
use crate::provider::{Aws, lock};

/// How often a balancer that drains is looked at.
const DRAINING: Duration = Duration::from_secs(5);
/// The most targets in one call, as the AWS Load Balancer Controller has it.
const TARGETS: usize = 200;

/// What is known of load balancers.
#[derive(Debug, Default)]
pub(crate) struct Balancing {
    /// Where instances may be registered. Asked for anew each time: a balancer may come at any time.
    places: Lanes<Together<BTreeSet<Place>>>,
    /// What each place does with instances: those that come to one at the same time leave it together.
    serving: Mutex<BTreeMap<Place, Arc<Lanes<Together<Serving>>>>>,
    /// Where instances were deregistered from, and as what.
    taken_out: Mutex<BTreeMap<String, BTreeMap<Place, Vec<TargetDescription>>>>,
    /// Taints that did not tell since when they are on, and when they were first met.
    met: Mutex<BTreeMap<Uid, (Option<Timestamp>, Instant)>>,
}

impl Balancing {
    /// Forgets instances that no node names, and nodes that are not tainted.
    pub(crate) fn keep_only<T>(&self, instances: &BTreeMap<String, T>, tainted: &BTreeSet<&Uid>) {
        lock(&self.taken_out).retain(|id, _| instances.contains_key(id));
        lock(&self.met).retain(|uid, _| tainted.contains(uid));
    }

    fn at(&self, place: &Place) -> Arc<Lanes<Together<Serving>>> {
        let mut serving = lock(&self.serving);
        serving.retain(|_, waited_for| Arc::strong_count(waited_for) > 1);
        Arc::clone(serving.entry(place.clone()).or_default())
    }

    /// Notes that instances, each with its targets, are deregistered from a place.
    fn note(&self, place: &Place, leaving: &[(&str, &[TargetDescription])]) {
        let mut taken_out = lock(&self.taken_out);
        for (id, targets) in leaving {
            let noted = taken_out.entry((*id).to_owned()).or_default().entry(place.clone()).or_default();
            noted.retain(|target| !targets.contains(target));
            noted.extend_from_slice(targets);
        }
    }

    /// Notes that they were not.
    fn strike(&self, place: &Place, leaving: &[(&str, &[TargetDescription])]) {
        let mut taken_out = lock(&self.taken_out);
        for (id, targets) in leaving {
            let Some(places) = taken_out.get_mut(*id) else { continue };
            let Some(noted) = places.get_mut(place) else { continue };
            noted.retain(|target| !targets.contains(target));
            if noted.is_empty() {
                places.remove(place);
            }
        }
    }

    /// Those of these instances that were deregistered from a place.
    fn missing_at(&self, place: &Place, ids: &BTreeSet<String>) -> BTreeSet<String> {
        let taken_out = lock(&self.taken_out);
        let is_missing = |id: &&String| taken_out.get(*id).is_some_and(|places| places.contains_key(place));
        ids.iter().filter(is_missing).cloned().collect()
    }
}

impl Aws {
    /// Waits until the taint has been on for long enough, and the balancers have let go of the node's instance. What is
    /// interrupted is taken out at once: it goes when it goes, and its taint came with the cordon.
    ///
    /// Nothing registers an instance again by itself: a group does that once, when it launches one. So what would refuse
    /// the deletion by now fails this, before anything is deregistered; after what refuses it later, [`Self::put_back`]
    /// registers it.
    pub(crate) async fn take_out(
        &self,
        node: &NodeSnapshot,
        tainted_at: Option<Timestamp>,
        write: &Write,
    ) -> Result<(), PortError> {
        let clock = &self.api.clock;
        let (drain, longest) = self.load_balancer;
        if write.lane == Lane::Planned {
            let seen = clock.instant() + drain.saturating_sub(self.tainted_for(node, tainted_at));
            clock.sleep_until(seen.min(write.by)).await;
            if seen > write.by {
                let what = format!("load balancers had no time to let go of node {}", node.name);
                return Err(PortError::new(ErrorClass::Timeout, what));
            }
        }
        let Ok(id) = ProviderId::parse(&node.provider_id) else { return Ok(()) };
        let until = (clock.instant() + longest).min(write.by);
        let places = loop {
            match self.allowed_out_of(node, id.instance_id(), write).await {
                Err(error) if !error.class.had_no_effect() && self.api.pause(DRAINING, write.by).await => {
                    tracing::debug!(instance = id.instance_id(), %error, "to be asked for again");
                }
                answer => break answer?,
            }
        };
        let leaving = places.iter().map(|place| self.leave(place, id.instance_id(), until, write));
        future::join_all(leaving).await.into_iter().collect()
    }

    /// How long the taint has been on. A time in the future, or none, tells nothing: such a taint counts from when it was
    /// first met, so that it is waited for once, however often this is come to.
    fn tainted_for(&self, node: &NodeSnapshot, tainted_at: Option<Timestamp>) -> Duration {
        let clock = &self.api.clock;
        let now = clock.instant();
        let told = tainted_at.and_then(|at| Duration::try_from(clock.now().duration_since(at)).ok());
        let mut met = lock(&self.balancing.met);
        let since = match met.get(&node.uid) {
            Some((at, since)) if *at == tainted_at => *since,
            Some(_) | None => now,
        };
        if told.is_none() {
            met.insert(node.uid.clone(), (tainted_at, since));
        }
        told.unwrap_or_default().max(now.since(since))
    }

    /// Where the instance may be registered, provided that nothing is known that would refuse its deletion.
    async fn allowed_out_of(&self, node: &NodeSnapshot, id: &str, write: &Write) -> Result<BTreeSet<Place>, PortError> {
        let places = match self.balancing.places.of(write.lane).ask(id).await {
            Turn::Answered(places) => places,
            Turn::Ours(asking) => {
                let places = self.places_of(&asking.ids, write.by).await;
                asking.told(places)
            }
        };
        let places = places?;
        // What is interrupted goes whether or not we may delete it.
        if write.lane == Lane::Planned {
            self.verify(node, id, write.by).await?;
        }
        Ok(places.unwrap_or_default())
    }

    /// The balancers at which the instances' groups and Spot Fleets register them, and those that are tagged for the
    /// cluster.
    async fn places_of(
        &self,
        ids: &BTreeSet<String>,
        by: Instant,
    ) -> Result<BTreeMap<String, BTreeSet<Place>>, Failed> {
        let everywhere = self.api.places_of_cluster(&self.rules.cluster_name, by).await?;
        let asked: Vec<_> = ids.iter().map(String::as_str).collect();
        let memberships = self.api.memberships(&asked, by).await?;
        let names = memberships.values().map(|membership| membership.group.clone()).collect();
        let groups = self.api.groups(&names, by).await?;
        let fleets = self.spot_fleets_of(ids, by).await?;
        let places = |id: &String| {
            let group = memberships.get(id).and_then(|membership| groups.get(&membership.group));
            let group = group.map(|group| (&group.target_groups, &group.classic));
            let fleet = fleets.get(id).map(|fleet| (&fleet.target_groups, &fleet.classic));
            let mut places = everywhere.clone();
            for (target_groups, classic) in group.into_iter().chain(fleet) {
                places.extend(target_groups.iter().cloned().map(Place::TargetGroup));
                places.extend(classic.iter().cloned().map(Place::Classic));
            }
            (id.clone(), places)
        };
        Ok(ids.iter().map(places).collect())
    }

    /// Deregisters an instance at a place where it is registered, and waits until it is drained, at most until `until`.
    /// As long as it could not be deregistered, or asked for, it may serve: that is tried until the very deadline, and is
    /// an error then.
    async fn leave(&self, place: &Place, id: &str, until: Instant, write: &Write) -> Result<(), PortError> {
        let together = self.balancing.at(place);
        loop {
            let serving = match together.of(write.lane).ask(id).await {
                Turn::Answered(serving) => serving,
                Turn::Ours(asking) => {
                    let serving = self.deregister(place, &asking.ids, write).await;
                    asking.told(serving)
                }
            };
            match serving {
                Ok(None | Some(Serving::No)) => return Ok(()),
                Ok(Some(Serving::Draining | Serving::Yes)) => {
                    if !self.api.pause(DRAINING, until).await {
                        tracing::warn!(instance = id, %place, "still draining; it is deleted all the same");
                        return Ok(());
                    }
                }
                Err(failed) if failed.may_pass() && self.api.pause(DRAINING, write.by).await => {
                    tracing::debug!(instance = id, %place, error = ?failed, "to be tried again");
                }
                Err(failed) => return Err(failed.into()),
            }
        }
    }

    /// Deregisters those of these instances that a place serves, and tells what it did with each that it knows.
    async fn deregister(
        &self,
        place: &Place,
        ids: &BTreeSet<String>,
        write: &Write,
    ) -> Result<BTreeMap<String, Serving>, Failed> {
        let missing = self.balancing.missing_at(place, ids);
        let registered = match self.api.registered(place, &missing, write.by).await {
            Ok(registered) => registered,
            // The place is gone.
            Err(error) if error.is_not_found() => return Ok(BTreeMap::new()),
            Err(error) => return Err(error.into()),
        };
        let ours = || registered.iter().filter(|(id, _)| ids.contains(*id));
        let serving: Vec<_> = ours().filter(|(_, one)| one.serving == Serving::Yes).collect();
        for some in serving.chunks(TARGETS) {
            let leaving: Vec<_> = some.iter().map(|(id, one)| (id.as_str(), one.targets.as_slice())).collect();
            // Before they are: this future may be dropped, and the answer may be lost.
            self.balancing.note(place, &leaving);
            match self.api.take_out_of(place, &leaving, write).await? {
                Ok(()) => {
                    let instances = leaving.iter().map(|(id, _)| *id).collect::<Vec<_>>().join(", ");
                    tracing::info!(instances, %place, "deregistered");
                }
                Err(error) => {
                    if error.had_no_effect() {
                        self.balancing.strike(place, &leaving);
                    }
                    // Of what is not there, the next look tells that it is gone.
                    if !error.is_not_found() {
                        return Err(error.into());
                    }
                }
            }
        }
        Ok(ours().map(|(id, one)| (id.clone(), one.serving)).collect())
    }

    /// Registers an instance that stays wherever this process deregistered it, and nowhere else. Where that can't be, it
    /// is an error that says so. What another process deregistered is not known.
    pub(crate) async fn put_back(&self, id: &str, write: &Write) -> Result<(), PortError> {
        let places = lock(&self.balancing.taken_out).get(id).cloned().unwrap_or_default();
        let mut failed = Vec::new();
        for (place, targets) in places {
            let answer = loop {
                match self.api.register(&place, id, &targets, write).await? {
                    Err(error) if error.may_pass() && self.api.pause(DRAINING, write.by).await => {
                        tracing::debug!(instance = id, %place, %error, "to be tried again");
                    }
                    answer => break answer,
                }
            };
            match answer {
                Ok(()) => {
                    tracing::info!(instance = id, %place, "registered again");
                    if let Some(places) = lock(&self.balancing.taken_out).get_mut(id) {
                        places.remove(&place);
                    }
                }
                // Nobody is registered there any more.
                Err(error) if error.is_not_found() => {}
                Err(error) => failed.push((place, error)),
            }
        }
        let names = failed.iter().map(|(place, _)| place.to_string()).collect::<Vec<_>>().join(", ");
        let Some((_, error)) = failed.pop() else { return Ok(()) };
        let what = format!("{id} stays, but was deregistered from {names}, and could not be registered there again");
        let error = PortError::from(error);
        Err(PortError::new(error.class, what).caused_by(error))
    }
}
