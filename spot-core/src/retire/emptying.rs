//! Empties a node, as long as nothing says to leave it alone.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{self, Either};

use super::{Halt, Purpose, Retirer, record};
use crate::claim::Owner;
use crate::drain::driver::{Drain, Drained, Evictions};
use crate::error::Cause;
use crate::interruption::{Hold, Terms};
use crate::node::{NodeRef, NodeSnapshot};
use crate::ports::Lane;
use crate::progress::Step;
use crate::view::View;

impl<'a> Retirer<'a> {
    /// Drains a node. Returns whether the migrator's own pod is all that is left.
    pub(super) async fn empty(
        &self,
        node: NodeRef,
        purpose: &Purpose,
        terms: &Terms,
        evictions: &mut Evictions,
        look: impl Fn(&View, Option<&Arc<NodeSnapshot>>) -> Option<Halt>,
    ) -> Result<bool, Halt> {
        let Retirer { ports, live, rules, own_pod, stop, .. } = *self;
        let (terms, hold) = (terms.clone(), self.holding(purpose));
        let drain = Drain { ports, live, node, rules, own_pod, terms, hold, stop };
        match drain.run(evictions, look).await {
            Drained::Empty { own_pod_left } => Ok(own_pod_left),
            Drained::Stopped => Err(Halt::Stopped),
            Drained::Interrupted(halt) => Err(halt),
            Drained::Failed(Cause::Port(error)) => Err(Halt::call(Step::Drain, error)),
            Drained::Failed(cause) => Err(Halt::Failed(Step::Drain, cause)),
        }
    }

    /// What in the view says to leave a node of this purpose alone.
    pub(super) fn look(
        &self,
        purpose: &'a Purpose,
    ) -> impl Fn(&View, Option<&Arc<NodeSnapshot>>) -> Option<Halt> + use<'a> {
        let (owner, hold, ports) = (purpose.owner(), self.holding(purpose), self.ports);
        move |view, node| match node {
            None => Some(Halt::Vanished),
            Some(_) if view.paused() && purpose.lane() == Lane::Planned => Some(Halt::Paused),
            Some(_) if hold.is_some_and(|hold| hold.until(ports.clock.instant()).is_some()) => Some(Halt::Held),
            Some(node) if record::lost_its_taint(node, &owner) => None,
            Some(node) => record::taken_back(node, &owner),
        }
    }

    /// A wait of this purpose, which may be dropped at any time, unless planned work is held back before its end.
    pub(super) async fn unless_held<T>(
        &self,
        purpose: &Purpose,
        wait: impl Future<Output = Result<T, Halt>>,
    ) -> Result<T, Halt> {
        let Some(hold) = self.holding(purpose) else { return wait.await };
        match future::select(pin!(wait), pin!(hold.begins(self.ports.clock.instant()))).await {
            Either::Left((waited, _)) => waited,
            Either::Right(_) => Err(Halt::Held),
        }
    }

    /// What holds work of this purpose back: that which answers notices is what sets it.
    pub(super) fn holding(&self, purpose: &Purpose) -> Option<&'a Hold> {
        (purpose.owner() != Owner::Interruption).then_some(self.hold)
    }
}
