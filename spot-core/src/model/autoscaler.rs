//! The autoscaler: machines for pods that fit nowhere, spot if there is any.

use std::time::Duration;

use crate::capacity::Class;
use crate::volume::Reach;

use super::spec::NodeSpec;
use super::world::{Event, World};

/// A machine that was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purchase {
    /// A spot machine, for any pods.
    Spot,
    /// An on-demand machine, because there was no spot machine.
    Fallback,
    /// An on-demand machine, for pods that need one.
    OnDemand,
}

/// Machines that were ordered and are not ready yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Orders {
    any: u32,
    on_demand: u32,
}

/// The group that the world's on-demand machines belong to.
pub(super) const ON_DEMAND_GROUP: &str = "on-demand";

impl World {
    /// Orders what pending pods need beyond what was ordered already.
    pub(super) fn order_machines(&mut self) {
        let (mut any, mut on_demand) = (0_u32, 0_u32);
        for pod in &self.pending {
            let Some(workload) = self.pod(*pod).and_then(|pod| self.workloads.get(pod.workload.0)) else { continue };
            // no machine that can be bought has other labels than those of its class
            let unbound = workload.spec.volume.as_ref().is_none_or(|volume| volume.reach == Reach::Anywhere);
            if workload.spec.node_selector.is_empty() && unbound {
                *(if workload.spec.needs_on_demand { &mut on_demand } else { &mut any }) += 1;
            }
        }
        let slots = self.settings.autoscaler.slots.max(1);
        while self.orders.on_demand.saturating_mul(slots) < on_demand {
            self.orders.on_demand += 1;
            self.after(self.settings.autoscaler.on_demand_delay, Event::Join(Purchase::OnDemand));
        }
        while self.orders.any.saturating_mul(slots) < any {
            let (purchase, delay) = if self.settings.autoscaler.spot_left > 0 {
                self.settings.autoscaler.spot_left -= 1;
                (Purchase::Spot, self.settings.autoscaler.spot_delay)
            } else if let Some(delay) = self.settings.autoscaler.fallback {
                (Purchase::Fallback, delay)
            } else {
                break;
            };
            self.orders.any += 1;
            self.after(delay, Event::Join(purchase));
        }
    }

    /// A machine that was ordered joins.
    pub(super) fn join(&mut self, purchase: Purchase) {
        let class = match purchase {
            Purchase::Spot => Class::Spot,
            Purchase::Fallback | Purchase::OnDemand => Class::OnDemand,
        };
        let mut spec = NodeSpec::new(class).slots(self.settings.autoscaler.slots);
        spec.age = Duration::ZERO;
        if class == Class::OnDemand {
            spec = spec.group(ON_DEMAND_GROUP);
        }
        let node = self.launch(spec, false);
        match node.and_then(|node| self.node_mut(node)) {
            Some(entry) => entry.coming = Some(purchase),
            None => self.fulfil(Some(purchase)),
        }
    }

    /// A machine that was ordered is ready, or will never be.
    pub(super) fn fulfil(&mut self, purchase: Option<Purchase>) {
        match purchase {
            None => {}
            Some(Purchase::OnDemand) => self.orders.on_demand = self.orders.on_demand.saturating_sub(1),
            Some(Purchase::Spot | Purchase::Fallback) => self.orders.any = self.orders.any.saturating_sub(1),
        }
        self.request_schedule();
    }

    /// So many spot machines can be bought from now on.
    pub fn set_spot_left(&mut self, left: u32) {
        self.settings.autoscaler.spot_left = left;
        self.request_schedule();
    }
}
