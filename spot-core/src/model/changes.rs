//! Every change as it is made, in the order of the versions of one store, and time that passes when nobody has anything
//! left to do: for whoever draws what happens, and for an API server that is backed by a world.

use super::Model;
use super::executor::Halt;
use super::world::World;
use crate::view::Change;

/// Looks at each change when it is made, and at the version that the store has by then.
pub(super) type ChangeHook = Box<dyn FnMut(&World, &Change, u64) + Send>;

impl World {
    /// Has the hook look at each change when it is made, beside earlier hooks. The versions rise, and are those of nodes
    /// and budgets themselves; pods, volumes and what is gone take a version of their own from then on.
    pub fn on_each_change(&mut self, hook: impl FnMut(&Self, &Change, u64) + Send + 'static) {
        self.change_hooks.push(Box::new(hook));
    }

    pub(super) fn show_to_hooks(&mut self, change: &Change) {
        let mut hooks = std::mem::take(&mut self.change_hooks);
        if !hooks.is_empty() {
            // the world's own versions are all numbers
            let version = match change {
                Change::Node(node) => node.resource_version.parse().unwrap_or(0),
                Change::Budget(budget) => budget.resource_version.parse().unwrap_or(0),
                Change::NodeGone(_)
                | Change::Pod(_)
                | Change::PodGone(_)
                | Change::BudgetGone(_)
                | Change::DaemonSet(_)
                | Change::DaemonSetGone(_)
                | Change::Volume(_)
                | Change::Paused(_) => {
                    self.next_version();
                    self.version()
                }
            };
            for hook in &mut hooks {
                hook(self, change, version);
            }
        }
        self.change_hooks = hooks;
    }
}

impl Model {
    /// Jumps to what is due next: for a runtime of one's own, when everything in it waits.
    ///
    /// # Errors
    /// When nothing is due, or only what is past the world's horizon.
    pub fn jump(&self) -> Result<(), Halt> {
        self.advance(None)
    }
}
