//! The autoscaler: machines for pods that fit nowhere, spot if there is any.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::capacity::Class;
use crate::node::Taint;
use crate::placement::{Needs, Shape};
use crate::volume::Reach;

use super::settings::Autoscaler;
use super::spec::NodeSpec;
use super::world::{Event, PodId, WorkloadId, World};

/// A make of machine that can be bought.
pub(super) struct Make {
    spec: NodeSpec,
    shape: Shape,
}

/// What can be bought, of each class the likeliest first.
#[derive(Default)]
pub(super) struct Makes {
    pub(super) spot: Vec<Make>,
    pub(super) on_demand: Vec<Make>,
}

/// The first make of each class that would do for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Want {
    spot: Option<usize>,
    on_demand: Option<usize>,
}

/// A machine that was ordered: for whom, and of which class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Purchase {
    want: Want,
    class: Class,
}

/// The room on machines that were ordered and are not ready yet.
pub(super) type Orders = BTreeMap<Want, u32>;

/// The group that the world's on-demand machines belong to.
pub(super) const ON_DEMAND_GROUP: &str = "on-demand";

impl Make {
    /// Machines like this, whose nodes have these labels and taints.
    pub(super) fn new(class: Class, slots: u32, shape: Shape) -> Self {
        let taints = shape.taints().iter();
        let spec = NodeSpec {
            labels: shape.labels().iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            taints: taints.map(|(key, value, effect)| Taint::new(key, value, *effect)).collect(),
            age: Duration::ZERO,
            group: (class == Class::OnDemand).then(|| ON_DEMAND_GROUP.to_owned()),
            ..NodeSpec::new(class).slots(slots.max(1))
        };
        Self { spec, shape }
    }
}

impl Makes {
    /// One of each class, without labels but those of the class.
    pub(super) fn plain(settings: &Autoscaler) -> Self {
        let make = |class| vec![Make::new(class, settings.slots, Shape::default())];
        Self { spot: make(Class::Spot), on_demand: make(Class::OnDemand) }
    }

    fn of(&self, purchase: Purchase) -> Option<&Make> {
        let Purchase { want, class } = purchase;
        match class {
            Class::Spot => self.spot.get(want.spot?),
            Class::OnDemand | Class::Reserved | Class::Unknown => self.on_demand.get(want.on_demand?),
        }
    }
}

impl World {
    /// Orders what pending pods need beyond what was ordered already.
    pub(super) fn order_machines(&mut self) {
        for (want, pods) in self.wants() {
            while self.orders.get(&want).copied().unwrap_or_default() < pods {
                let Some((purchase, delay)) = self.choose(want) else { break };
                let slots = self.makes.of(purchase).map_or(1, |make| make.spec.slots);
                let ordered = self.orders.entry(want).or_default();
                *ordered = ordered.saturating_add(slots);
                self.after(delay, Event::Join(purchase));
            }
        }
    }

    /// What pending pods want, and how many of them.
    fn wants(&self) -> BTreeMap<Want, u32> {
        let mut known: BTreeMap<WorkloadId, Option<Want>> = BTreeMap::new();
        let mut wants = BTreeMap::new();
        for id in &self.pending {
            let Some(pod) = self.pod(*id) else { continue };
            let want = if pod.snapshot.claims.is_some() {
                // its volumes may be elsewhere than those of others of its kind
                self.want(*id)
            } else {
                *known.entry(pod.workload).or_insert_with(|| self.want(*id))
            };
            if let Some(want) = want {
                *wants.entry(want).or_default() += 1;
            }
        }
        wants
    }

    fn want(&self, id: PodId) -> Option<Want> {
        let pod = self.pod(id)?;
        let workload = self.workloads.get(pod.workload.0)?;
        let spec = &workload.spec;
        let nothing = Needs::default();
        let needs = pod.snapshot.needs.as_deref().unwrap_or(&nothing);
        let would_do = |make: &Make| {
            if workload.was_seen() {
                return needs.met_by_shape(&make.shape)
                    && self.truth.volumes_of(&pod.snapshot).all(|volume| match &volume.reach {
                        Reach::Anywhere => true,
                        Reach::Nodes(terms) => terms.met_by_shape(&make.shape),
                        Reach::Host => false,
                    });
            }
            // no machine that can be bought has other labels than those of its class
            let unbound = spec.volume.as_ref().is_none_or(|volume| volume.reach == Reach::Anywhere);
            spec.node_selector.is_empty() && unbound
        };
        let spot = if spec.needs_on_demand { None } else { self.makes.spot.iter().position(would_do) };
        let on_demand = self.makes.on_demand.iter().position(would_do);
        (spot.is_some() || on_demand.is_some()).then_some(Want { spot, on_demand })
    }

    /// What is bought next, and how long it takes to come.
    fn choose(&mut self, want: Want) -> Option<(Purchase, Duration)> {
        let autoscaler = &mut self.settings.autoscaler;
        let of = |class| Purchase { want, class };
        match want {
            Want { spot: None, on_demand: _ } => Some((of(Class::OnDemand), autoscaler.on_demand_delay)),
            Want { spot: Some(_), on_demand: _ } if autoscaler.spot_left > 0 => {
                autoscaler.spot_left -= 1;
                Some((of(Class::Spot), autoscaler.spot_delay))
            }
            Want { spot: Some(_), on_demand } => {
                autoscaler.fallback.filter(|_| on_demand.is_some()).map(|delay| (of(Class::OnDemand), delay))
            }
        }
    }

    /// A machine that was ordered joins.
    pub(super) fn join(&mut self, purchase: Purchase) {
        let spec = self.makes.of(purchase).map(|make| make.spec.clone());
        let node = spec.and_then(|spec| self.launch(spec, false));
        match node.and_then(|node| self.node_mut(node)) {
            Some(entry) => entry.coming = Some(purchase),
            None => self.fulfil(Some(purchase)),
        }
    }

    /// A machine that was ordered is ready, or will never be.
    pub(super) fn fulfil(&mut self, purchase: Option<Purchase>) {
        if let Some(purchase) = purchase {
            let slots = self.makes.of(purchase).map_or(1, |make| make.spec.slots);
            let ordered = self.orders.entry(purchase.want).or_default();
            *ordered = ordered.saturating_sub(slots);
        }
        self.request_schedule();
    }

    /// So many spot machines can be bought from now on.
    pub fn set_spot_left(&mut self, left: u32) {
        self.settings.autoscaler.spot_left = left;
        self.request_schedule();
    }
}
