//! Removes a pool with all that belongs to it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::FutureExt;

use super::look::Look;
use super::work::{Ended, Going, Step, Work};
use super::{Fleet, Outcome, Pools, Report};
use crate::claim::InstanceId;
use crate::decision::is_control_plane;
use crate::error::{ErrorClass, RunError};
use crate::judge::{Others, Verdict};
use crate::node::NodeRef;
use crate::progress::Progress;
use crate::reason::{Reason, ReasonKind, Span};
use crate::retire::Purpose;
use crate::stop::Stop;

impl Pools {
    /// Retires every node, terminates machines without one, ends every fleet, and waits until all of it is gone.
    ///
    /// `force`: for how long budgets are obeyed, and then every pod goes whatever holds it, opted out or managed by
    /// nobody; who opted a *node* out is obeyed even so. Without it, one node that can't go for good means that nothing
    /// is touched.
    ///
    /// # Errors
    /// When cluster, cloud or memory could not be read, a fleet could not be changed, or the leadership is lost.
    pub async fn remove(&self, force: Option<Duration>, stop: &Stop) -> Result<Report, RunError> {
        let force = force.map(|obeyed| self.ports.clock.instant() + obeyed);
        let purpose = Purpose::PoolRemoval { pool: self.pool.clone(), force };
        self.work(purpose, stop, |work| work.remove().boxed()).await
    }
}

impl Work<'_> {
    async fn remove(&mut self) -> Result<Outcome, Ended> {
        let look = self.look().await?;
        let going = everything(&look);
        let judged = self.judged(&going);
        if let Some(held) = held(&look, &judged) {
            return Ok(held);
        }
        let look = self.settled().await?;
        self.recover(&everything(&look)).await?;
        let mut machines = BTreeSet::new();
        // Since something was last done, how long is waited for the rest.
        let mut patience = None;
        loop {
            let look = self.settled().await?;
            machines.extend(look.weights().into_keys());
            self.counted(look.count(&look.fleets, 0));
            if look.fleets.is_empty() && machines.iter().all(|instance| look.node(instance).is_none()) {
                return Ok(Outcome::Done);
            }
            if self.ended_one(&look, &look.fleets.iter().collect::<Vec<_>>()).await? {
                patience = None;
                continue;
            }
            let going = everything(&look);
            match self.step(&look, &going).await? {
                Step::Again => {
                    patience = None;
                    continue;
                }
                Step::NoneLeft => {}
                Step::Nobody => return Ok(self.stuck(&look, &going, Outcome::Failed)),
            }
            let until = *patience.get_or_insert_with(|| self.now() + self.pools.settings.retire.node_gone_timeout);
            if self.now() >= until {
                self.report(&left(&look, &machines));
                let blocked: Vec<_> = look.unnamed().collect();
                return Ok(if blocked.is_empty() { Outcome::Failed } else { Outcome::Blocked(blocked) });
            }
            self.wait("its machines, Nodes and fleets are gone").await?;
        }
    }

    /// Does the next thing that needs no node of these fleets to be retired: nothing more is launched, what is no node
    /// goes, and what has nothing any more is ended. Returns whether there was one.
    pub(super) async fn ended_one(&mut self, look: &Look, fleets: &[&Fleet]) -> Result<bool, Ended> {
        for fleet in fleets.iter().filter(|fleet| !fleet.has_ended) {
            if fleet.target > fleet.there() {
                self.resize(fleet, fleet.there()).await?;
                return Ok(true);
            }
            if fleet.members.is_empty() && self.cancel(fleet).await? {
                return Ok(true);
            }
        }
        // Whoever is about to become a node is to go too: it is easier before pods are on it.
        let Some((fleet, instance, member)) = self.stray(look, fleets, u32::MAX, false) else { return Ok(false) };
        self.terminate(fleet, instance, member.weight).await?;
        Ok(true)
    }
}

fn everything(look: &Look) -> Going {
    Going { machines: look.weights(), room: u32::MAX, others: Others::Go }
}

/// Why nothing is to be touched.
fn held(look: &Look, judged: &[(NodeRef, Verdict)]) -> Option<Outcome> {
    let mut blocked: Vec<_> = strangers(look, &look.weights(), judged).collect();
    for (node, verdict) in judged {
        let Verdict::Refused(reasons) = verdict else { continue };
        if reasons.iter().any(|reason| reason.kind() == ReasonKind::Paused) {
            return Some(Outcome::Paused);
        }
        if let Some(reason) = reasons.iter().find(|reason| reason.span() == Span::Lasting) {
            blocked.push((node.clone(), reason.clone()));
        }
    }
    (!blocked.is_empty()).then_some(Outcome::Blocked(blocked))
}

/// Nodes of these machines that are never retired, since nobody judged them, and those whose machine nobody can name.
pub(super) fn strangers<'l>(
    look: &'l Look,
    machines: &'l BTreeMap<InstanceId, u32>,
    judged: &[(NodeRef, Verdict)],
) -> impl Iterator<Item = (NodeRef, Reason)> + use<'l> {
    let judged: BTreeSet<_> = judged.iter().map(|(node, _)| node.uid.clone()).collect();
    let nodes = look.machines().filter(move |(uid, _)| !judged.contains(uid)).map(|(_, instance)| instance);
    let known = nodes
        .filter(move |instance| machines.contains_key(instance))
        .filter_map(|instance| look.node(&instance))
        .map(|node| {
            let why = if is_control_plane(node) {
                Reason::Plain(ReasonKind::ControlPlane)
            } else {
                let words = "the cloud does not take its machine for the node's own";
                Reason::Cloud(ReasonKind::IdentityMismatch, words.to_owned())
            };
            (node.reference(), why)
        });
    known.chain(look.unnamed())
}

/// What is still there after all was waited for.
fn left(look: &Look, machines: &BTreeSet<InstanceId>) -> Progress {
    let fleets = look.fleets.iter().map(|fleet: &Fleet| format!("fleet {}", fleet.id));
    let nodes = machines.iter().filter_map(|instance| look.node(instance)).map(|node| format!("node {}", node.name));
    let what = format!("still there: {}", fleets.chain(nodes).collect::<Vec<_>>().join(", "));
    Progress::Problem { node: None, class: ErrorClass::Timeout, what }
}
