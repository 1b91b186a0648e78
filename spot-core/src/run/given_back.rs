//! Nodes that the answers to notices left cordoned, though their machines stay: perhaps nobody reads notices any more.

use std::sync::Arc;

use super::{Run, run_error};
use crate::claim::{Claim, Machine, Owner};
use crate::cloud::InstanceState;
use crate::error::{ErrorClass, RunError, chain};
use crate::interruption::Told;
use crate::interruption::returning::{Returning, hardening, returning};
use crate::node::NodeSnapshot;
use crate::ports::{Lane, NodeChange};
use crate::progress::{Halted, Progress, Step};
use crate::retire::record;
use crate::wait::{self, REQUEST};

impl Run<'_> {
    /// Takes everything of ours off nodes whose machines are back or were never taken, and soft taints whose time is
    /// over. Harmless beside whoever reads notices: what was written since is left alone.
    pub(super) async fn give_back(&self) -> Result<(), RunError> {
        let nodes = self.live.view().nodes().iter().map(Arc::clone).collect::<Vec<_>>();
        for node in nodes {
            if self.stop.is_set() {
                return Ok(());
            }
            let now = self.ports.clock.now();
            let claim = record::ours(&node, &Owner::Interruption);
            let back = match claim.map(|claim| (claim, returning(&node, claim, now))) {
                Some((claim, Returning::Yes(why))) => Some((claim, why)),
                Some((claim, Returning::AskCloud)) if self.runs(&node, &claim.machine).await? => {
                    Some((claim, "its machine was not taken"))
                }
                Some((_, Returning::No | Returning::AskCloud)) | None => None,
            };
            match back {
                Some((claim, why)) => self.free(&node, claim, why).await?,
                None if hardening(&node, now) == NodeChange::default() => {}
                None => {
                    if self.rewrite(&node, |node| hardening(node, now)).await?.is_some() {
                        self.tell(&Progress::Interruption(Told::Hardened { node: node.reference() }));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the cloud says that a machine which ought to be gone runs.
    async fn runs(&self, node: &NodeSnapshot, machine: &Machine) -> Result<bool, RunError> {
        let Machine::Instance(instance) = machine else { return Ok(false) };
        match wait::instance_state(self.ports, instance, REQUEST).await {
            Ok(state) => Ok(state == InstanceState::Running),
            Err(error) if error.class == ErrorClass::NotLeader => Err(run_error(error, RunError::Cloud)),
            Err(error) => {
                let node = Some(node.reference());
                self.tell(&Progress::Problem { node, class: error.class, what: chain(&error) });
                Ok(false)
            }
        }
    }

    async fn free(&self, node: &Arc<NodeSnapshot>, claim: &Claim, why: &'static str) -> Result<(), RunError> {
        let release = self.rewrite(node, |node| match record::ours(node, &Owner::Interruption) {
            Some(found) if found == claim => record::releasing(node, Some(claim), None),
            Some(_) | None => NodeChange::default(),
        });
        let (retirer, reference) = (self.retirer(), node.reference());
        let halted = |written: &Result<_, _>| written.as_ref().err().map(|_| Halted::NotLeader);
        let Some(now) = retirer.timed(&reference, Step::Release, release, halted).await? else { return Ok(()) };
        if record::ours(&now, &Owner::Interruption).is_none() {
            self.tell(&Progress::Interruption(Told::Returned { node: reference, why }));
            // As the claim recorded it, which is off by now.
            retirer.attach(node, Lane::Planned).await;
        }
        Ok(())
    }

    /// Writes a node. Returns it as it is then; nothing if it is gone, or could not be written, which was reported.
    async fn rewrite(
        &self,
        node: &NodeSnapshot,
        change: impl Fn(&NodeSnapshot) -> NodeChange,
    ) -> Result<Option<Arc<NodeSnapshot>>, RunError> {
        let until = self.ports.clock.instant() + self.task.retire.grace_period;
        match self.retirer().rewrite(&node.reference(), Lane::Planned, until, change).await {
            Err(Halted::NotLeader) => Err(RunError::LostLeadership),
            written => Ok(written.unwrap_or_default()),
        }
    }
}
