//! From what was seen in cloud and cluster to how the pool is.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spot_aws::ProviderId;
use spot_aws::fleet::{Event, Existing, PoolMember, tag};
use spot_aws::prices::Prices;
use spot_core::node::{NodeSnapshot, Readiness};

use super::disagreement::disagreements;
use super::{Capacity, Cost, FleetRow, MachineRow, Said, Status};
use crate::pool::PoolFile;

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) file: &'a PoolFile,
    pub(super) existing: &'a Existing,
    pub(super) members: &'a [PoolMember],
    /// None: the cluster could not be read.
    pub(super) nodes: Option<&'a [Arc<NodeSnapshot>]>,
    pub(super) prices: &'a Prices,
    /// What the fleets said lately.
    pub(super) said: &'a [(String, Event)],
    /// When that was.
    pub(super) now: Timestamp,
}

impl Status {
    pub(super) fn of(seen: &Seen<'_>) -> Self {
        let machines: Vec<_> = seen.members.iter().map(|member| seen.machine(member)).collect();
        let fleets = seen.fleets();
        let units =
            |counts: &dyn Fn(&&MachineRow) -> bool| sum(machines.iter().filter(counts).filter_map(|row| row.weight));
        let pool = &seen.file.pool;
        let capacity = Capacity {
            target: sum(fleets.iter().map(|fleet| fleet.target)),
            fulfilled: sum(fleets.iter().map(|fleet| fleet.fulfilled)),
            joined: seen.nodes.map(|_| units(&|row| row.node.is_some())),
            ready: seen.nodes.map(|_| units(&|row| row.ready == Some(true))),
            file: pool.target_capacity,
            floor: pool.min_capacity,
        };
        Self {
            pool: pool.name.clone(),
            cluster: pool.cluster.clone(),
            disagreements: disagreements(seen, &fleets),
            said: seen.said(),
            cost: Cost::of_all(machines.iter().map(|row| row.cost)),
            capacity,
            fleets,
            machines,
        }
    }
}

impl<'a> Seen<'a> {
    /// The pool's fleets that have or launch machines.
    fn fleets(&self) -> Vec<FleetRow> {
        let current = self.existing.current(&self.file.pool.hash()).map(|fleet| &fleet.id);
        let there = self.existing.fleets.iter().filter(|fleet| fleet.ours && !fleet.is_gone());
        let row = |fleet: &spot_aws::fleet::ExistingFleet| FleetRow {
            id: fleet.id.clone(),
            state: fleet.state.clone(),
            activity: fleet.activity.clone(),
            target: if fleet.has_ended { 0 } else { fleet.target },
            fulfilled: fleet.fulfilled,
            excess: fleet.excess(),
            current: Some(&fleet.id) == current,
        };
        there.map(row).collect()
    }

    /// What is wrong by the fleets' own words, each thing once for each fleet, as it was said last.
    fn said(&self) -> Vec<Said> {
        let mut said: Vec<Said> = Vec::new();
        for (fleet, event) in self.said {
            let Some(explained) = event.explained else { continue };
            said.retain(|other| (&other.fleet, other.explained) != (fleet, explained));
            said.push(Said { fleet: fleet.clone(), at: event.at, explained, words: event.words.clone() });
        }
        said
    }

    /// Whether this machine should be a Ready node by now.
    pub(super) fn is_late(&self, member: &PoolMember) -> bool {
        let waits = SignedDuration::try_from(self.file.ready_timeout).unwrap_or(SignedDuration::MAX);
        member.state == "running" && self.now.duration_since(member.launched) > waits
    }

    fn nodes(&self) -> impl Iterator<Item = &'a NodeSnapshot> + use<'a> {
        self.nodes.unwrap_or_default().iter().map(|node| &**node)
    }

    /// The Node that is this machine.
    pub(super) fn node(&self, member: &PoolMember) -> Option<&'a NodeSnapshot> {
        self.nodes().find(|node| instance(node).as_deref() == Some(&*member.instance))
    }

    /// The Nodes that bear the pool's label.
    pub(super) fn labelled(&self) -> impl Iterator<Item = &'a NodeSnapshot> {
        let pool = self.file.pool.name.clone();
        self.nodes().filter(move |node| node.labels.get(tag::POOL).is_some_and(|of| *of == *pool))
    }

    fn machine(&self, member: &PoolMember) -> MachineRow {
        let node = self.node(member);
        let region = region(&member.zone).or(self.file.region.as_deref());
        let on_demand = region.and_then(|region| self.prices.on_demand(region, &member.instance_type));
        // Nobody pays for one that is going.
        let is_paid = ["pending", "running"].contains(&member.state.as_str());
        MachineRow {
            instance: member.instance.clone(),
            fleet: member.fleet.clone(),
            instance_type: member.instance_type.clone(),
            zone: member.zone.clone(),
            state: member.state.clone(),
            weight: member.weight,
            node: node.map(|node| node.name.to_string()),
            ready: self
                .nodes
                .map(|_| node.is_some_and(|node| node.readiness == Readiness::Ready && !node.unschedulable)),
            cost: if is_paid { Cost::of(member.price, on_demand) } else { Cost::default() },
        }
    }
}

impl Cost {
    fn of(spot: Option<f64>, on_demand: Option<f64>) -> Self {
        let saving = spot.zip(on_demand).map(|(spot, on_demand)| 1.0 - spot / on_demand);
        Self { spot, on_demand, saving }
    }

    /// Of those alone of which both prices are known: otherwise the saving would be of different machines.
    fn of_all(costs: impl Iterator<Item = Self>) -> Self {
        let known: Vec<_> = costs.filter_map(|cost| cost.spot.zip(cost.on_demand)).collect();
        if known.is_empty() {
            return Self::default();
        }
        let (spot, on_demand) = known.iter().fold((0.0, 0.0), |(a, b), (spot, on_demand)| (a + spot, b + on_demand));
        Self::of(Some(spot), Some(on_demand))
    }
}

/// The instance that a Node names.
pub(super) fn instance(node: &NodeSnapshot) -> Option<String> {
    ProviderId::parse(&node.provider_id).ok().map(|id| id.instance_id().to_owned())
}

/// The region of a zone: `eu-west-1` of `eu-west-1a`; none of a local zone, such as `us-west-2-lax-1a`.
fn region(zone: &str) -> Option<&str> {
    let region = zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    let (area, number) = region.rsplit_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    (is_number(number) && !area.split('-').any(is_number)).then_some(region)
}

fn sum(units: impl Iterator<Item = u32>) -> u32 {
    units.fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("eu-west-1a", Some("eu-west-1"))]
    #[case("us-gov-west-1b", Some("us-gov-west-1"))]
    #[case("us-west-2-lax-1a", None)]
    #[case("us-east-1-wl1-bos-wlz-1", None)]
    #[case("", None)]
    fn only_an_availability_zone_names_its_region(#[case] zone: &str, #[case] expected: Option<&str>) {
        assert_eq!(region(zone), expected);
    }
}
