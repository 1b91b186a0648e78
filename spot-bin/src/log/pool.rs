//! What happens to a node pool.

use spot_core::pool::Told;
use tracing::{debug, info};

pub(super) fn tell(told: &Told) {
    match told {
        Told::Counted(count) => info!(
            wanted = count.wanted,
            launched = count.launched,
            joined = count.joined,
            ready = count.ready,
            "the pool's capacity"
        ),
        Told::Resized { fleet, from, to } => info!(fleet, from, to, "the fleet's target capacity is set"),
        Told::Waiting { what } => debug!(until = what, "waiting"),
        Told::Terminated { fleet, instance } => info!(fleet, %instance, "a machine without a Node is terminated"),
        Told::Cancelled { fleet } => info!(fleet, "the fleet is cancelled"),
    }
}
