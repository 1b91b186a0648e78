//! Waits until the volumes of drained pods are detached: a machine that goes before holds them back from the pods'
//! successors.

use std::sync::Arc;
use std::time::Duration;

use super::{Halt, Retirer};
use crate::error::ErrorClass;
use crate::node::{NodeRef, NodeSnapshot};
use crate::ports::Instant;
use crate::progress::{Progress, Step};
use crate::view::View;
use crate::wait;

/// How long volumes are waited for: then the controller of attachments detaches them by force, machine or not
/// (`maxWaitForUnmountDuration` of kube-controller-manager).
pub(super) const LONGEST: Duration = Duration::from_mins(6);

/// The most volumes that a message names.
const NAMED: usize = 5;

impl Retirer<'_> {
    /// Waits until no volume is attached to the node but those of pods that stay, or until a deadline: past it the work
    /// goes on, and the problem is reported. Before each wait, `look` may end it.
    pub(super) async fn await_detached(
        &self,
        node: &NodeRef,
        until: Instant,
        look: impl Fn(&View, Option<&Arc<NodeSnapshot>>) -> Option<Halt>,
    ) -> Result<(), Halt> {
        let clock = &self.ports.clock;
        loop {
            let view = self.live.view();
            let Some(what) = still_attached(&view, node) else { return Ok(()) };
            if self.stop.is_set() {
                return Err(Halt::Stopped);
            }
            if let Some(halt) = look(&view, view.node(node.uid.as_str())) {
                return Err(halt);
            }
            if clock.instant() >= until {
                self.report(&Progress::Problem { node: Some(node.clone()), class: ErrorClass::Timeout, what });
                return Ok(());
            }
            let revision = view.revision();
            drop(view);
            let changed = wait::change(self.ports, self.live, self.stop, revision, until).await;
            changed.map_err(|error| Halt::call(Step::Drain, error))?;
        }
    }
}

/// What volumes are still attached, in words; none if none is.
fn still_attached(view: &View, node: &NodeRef) -> Option<String> {
    let volumes: Vec<_> = view.detaching_from(&node.name).filter_map(|one| one.volume.as_deref()).collect();
    if volumes.is_empty() {
        return None;
    }
    let named = volumes.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = if volumes.len() > NAMED { ", …" } else { "" };
    Some(format!(
        "volumes of its pods are still attached: {named}{more}; going on, though their successors may have to wait"
    ))
}
