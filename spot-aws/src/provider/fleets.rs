//! What is known of fleets: which keep the cluster's instances, where they register them, and what they still launch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spot_core::ports::Instant;

use crate::error::CallError;
use crate::provider::Aws;
use crate::provider::instance::{FleetId, Instance, Keeper};
use crate::provider::maintain::Fleet;
use crate::provider::survey::Known;

/// How long the fleets may take to be listed for what is pending: it makes a migration faster, and no more.
const LOOK: Duration = Duration::from_secs(20);

impl Aws {
    /// Learns of the fleets that keep `ours`; nodes of other provisioners have them too, one each.
    pub(super) async fn learn_fleets(
        &self,
        ours: &BTreeSet<String>,
        chosen: &BTreeSet<String>,
        since: Instant,
        by: Instant,
        known: &mut Known,
    ) {
        let fleet = |id: &String| fleet_of(known.instances.get(id)?).cloned();
        let wanted: BTreeSet<_> = ours.iter().filter_map(fleet).collect();
        let at = self.api.clock.instant();
        let mut missing = self.cache().fleets.missing(&wanted, since);
        missing.extend(chosen.iter().filter_map(fleet));
        let (ec2, spot): (BTreeSet<_>, _) = missing.into_iter().partition(|id| matches!(id, FleetId::Ec2(_)));
        if !ec2.is_empty() {
            let answer = self.api.ec2_fleets(&ec2, by).await;
            self.take_in_fleets(ec2, at, answer, known);
        }
        if !spot.is_empty() {
            let answer = self.spot_fleets(&spot, by).await;
            self.take_in_fleets(spot, at, answer, known);
        }
        let fleets = self.cache().fleets.give(&wanted).into_iter();
        known.fleets = fleets.filter_map(|(id, fleet)| Some((id, fleet?))).collect();
    }

    /// Takes in what was answered of fleets: that one is not there is an answer too.
    fn take_in_fleets(
        &self,
        asked: BTreeSet<FleetId>,
        at: Instant,
        answer: Result<BTreeMap<FleetId, Fleet>, CallError>,
        known: &mut Known,
    ) {
        match answer {
            Ok(mut found) => {
                let answers = asked.iter().map(|id| (id.clone(), found.remove(id))).collect();
                self.cache().fleets.take_in(&asked, at, answers);
            }
            Err(error) => {
                for id in asked {
                    known.doubt_keeper(id.as_str(), &error);
                }
            }
        }
    }

    /// Those Spot Fleets that are wanted. All are listed, which tells what the cluster's own still launch too.
    pub(super) async fn spot_fleets(
        &self,
        wanted: &BTreeSet<FleetId>,
        by: Instant,
    ) -> Result<BTreeMap<FleetId, Fleet>, CallError> {
        let at = self.api.clock.instant();
        let listed = self.api.spot_fleet_requests(by).await?;
        let fleets: Vec<_> = listed.iter().filter_map(Fleet::of_spot).collect();
        let ours =
            fleets.iter().filter(|fleet| fleet.is_keeping() && fleet.clusters.contains(&self.rules.cluster_name));
        let pending = ours.fold(0_u32, |sum, fleet| sum.saturating_add(fleet.pending_spot));
        self.cache().pending_spot = Some((at, pending));
        let fleets = fleets.into_iter().filter(|fleet| wanted.contains(&fleet.id));
        Ok(fleets.map(|fleet| (fleet.id.clone(), fleet)).collect())
    }

    /// Has what the cluster's own fleets still launch known, no older than `since`.
    pub(super) async fn look_for_pending(&self, since: Instant, by: Instant) {
        if self.cache().pending_spot.is_some_and(|(at, _)| at >= since) {
            return;
        }
        let at = self.api.clock.instant();
        if let Err(error) = self.spot_fleets(&BTreeSet::new(), by.min(at + LOOK)).await {
            // A migration does without, and without asking again each time.
            self.cache().pending_spot = Some((at, 0));
            tracing::debug!(%error, "what Spot Fleets still launch is not known");
        }
    }

    /// How much spot capacity the cluster's own fleets still launch, as it was looked for last.
    pub(super) fn pending_spot(&self) -> u32 {
        self.cache().pending_spot.map_or(0, |(_, units)| units)
    }

    /// The Spot Fleets of these instances; those that have ended too, as what they registered is registered still.
    /// Neither an instance's fleet nor a fleet's balancers ever change: any answer will do.
    pub(super) async fn spot_fleets_of(
        &self,
        ids: &BTreeSet<String>,
        by: Instant,
    ) -> Result<BTreeMap<String, Fleet>, CallError> {
        let at = self.api.clock.instant();
        let missing = self.cache().instances.missing(ids, Instant::default());
        let asked: Vec<_> = missing.iter().map(String::as_str).collect();
        let answers = self.api.all_instances(&asked, by).await?;
        self.cache().instances.take_in(&missing, at, answers);
        let instances = self.cache().instances.give(ids);
        let spot = |instance| fleet_of(instance).filter(|fleet| matches!(fleet, FleetId::Spot(_)));
        let members: BTreeMap<_, _> = instances.iter().filter_map(|(id, one)| Some((id, spot(one)?.clone()))).collect();
        let wanted: BTreeSet<_> = members.values().cloned().collect();
        let unknown: BTreeSet<_> = {
            let known = self.cache().fleets.give(&wanted);
            wanted.iter().filter(|id| !matches!(known.get(id), Some(Some(_)))).cloned().collect()
        };
        if !unknown.is_empty() {
            let found = self.spot_fleets(&unknown, by).await?;
            let answers = found.into_iter().map(|(id, fleet)| (id, Some(fleet))).collect();
            self.cache().fleets.take_in(&unknown, at, answers);
        }
        let fleets = self.cache().fleets.give(&wanted);
        let fleet = |(id, fleet)| Some((String::clone(id), fleets.get(&fleet)?.clone()?));
        Ok(members.into_iter().filter_map(fleet).collect())
    }
}

fn fleet_of(instance: &Instance) -> Option<&FleetId> {
    match &instance.keeper {
        Keeper::Fleet(fleet) => Some(fleet),
        Keeper::Group(_) | Keeper::Nobody => None,
    }
}
