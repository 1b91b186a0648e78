//! What an earlier process left: finished or released, oldest first, one at a time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, FutureExt};

use super::{Run, run_error};
use crate::claim::{Claim, ClaimStep, Machine};
use crate::cloud::InstanceState;
use crate::decision::{self, KnownNodes};
use crate::error::{Cause, ErrorClass, Failure, RunError, chain};
use crate::node::{ClaimAnnotation, Node, NodeSnapshot};
use crate::ports::Lane;
use crate::progress::{Halted, Outcome, Progress, Step};
use crate::reason::Span;
use crate::retire::release::{BackingOff, Freed};
use crate::retire::{End, Retirement, Target, record};
use crate::wait::{self, REQUEST};

/// How late a cloud may tell that an instance is on its way out: EC2 was seen to be half a minute behind.
const TELLING: Duration = Duration::from_mins(1);
/// How often it is asked meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What is to become of a leftover.
enum Leftover {
    /// Its retirement goes on.
    Resume(Target),
    /// Everything of ours is taken off, and the node is left alone for a while, since its retirement failed.
    Release(&'static str),
    /// The same, but nothing failed.
    Postpone(&'static str),
    /// It is on its way out.
    Await(Target),
}

impl Run<'_> {
    /// Finishes or releases every leftover of this work, and takes soft taints off. One that fails does not stop the others; an
    /// outcome if what it disturbed does not settle, or an on-demand node came since it was claimed.
    pub(crate) async fn recover(&mut self) -> Result<Option<Outcome>, RunError> {
        let view = self.live.view();
        let mut leftovers: Vec<Arc<NodeSnapshot>> =
            view.nodes().iter().filter(|node| self.is_leftover(node)).map(Arc::clone).collect();
        // Who is on its way out goes whatever is decided, and leaves that much less room for the others.
        leftovers.sort_by_key(|node| (!is_departing(node), claimed_at(node), node.created_at, node.uid.clone()));
        if self.task.dry_run {
            return Ok(None);
        }
        if let Some(since) = leftovers.iter().filter_map(|node| claimed_at(node)).min() {
            // What came since an earlier process began is as new to this one as it would have been to that one.
            let before: Vec<_> = view.nodes().iter().filter(|node| node.created_at <= since).collect();
            self.known = KnownNodes::of(&before);
        }
        drop(view);
        self.harden().await;
        if self.task.is_migration() {
            self.give_back().await?;
        }
        for node in leftovers {
            if self.stop.is_set() {
                return Ok(Some(Outcome::Stopped));
            }
            let view = self.live.view();
            self.follows(&view)?;
            self.leftovers += 1;
            // It may refuse by now, which is better known before more pods are moved.
            self.ask_cloud(&view, &[node.reference()]).await?;
            drop(view);
            let retirement = self.take_up(&node).boxed().await?;
            if matches!(retirement.end, End::NotLeader) {
                return Err(RunError::LostLeadership);
            }
            if matches!(retirement.end, End::Retired | End::Departing) {
                let fact = self.cloud.of(node.uid.as_str());
                self.task.policy.candidates.lose(fact);
            }
            let disturbed = self.record(retirement);
            if !disturbed.nodes.is_empty()
                && let Some(outcome) = self.settle(&disturbed).await?
            {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    /// Whether anything of this work is left on a node that is not on its way out: it could not be given back.
    pub(crate) fn has_unreleased(&self) -> bool {
        let view = self.live.view();
        !self.task.dry_run && view.nodes().iter().any(|node| self.is_leftover(node) && !is_departing(node))
    }

    /// Whether an earlier process of ours, or the tool that the migration replaces, was at this node. Another owner's is
    /// not.
    fn is_leftover(&self, node: &NodeSnapshot) -> bool {
        match &node.claim {
            ClaimAnnotation::Valid(claim) => claim.owner == self.task.purpose.owner(),
            ClaimAnnotation::Unreadable(_) => self.task.is_migration(),
            ClaimAnnotation::Absent => self.task.is_migration() && decision::is_marked(node),
        }
    }

    async fn take_up(&self, node: &Arc<NodeSnapshot>) -> Result<Retirement, RunError> {
        let retirer = self.retirer();
        let (owner, force) = (self.task.purpose.owner(), self.task.purpose.force());
        let reference = node.reference();
        let (why, backing_off) = match self.assess(node).await? {
            Leftover::Resume(target) => return Ok(retirer.retire(target, &self.task.purpose).await),
            Leftover::Await(target) => return Ok(retirer.follow(target, &self.task.purpose).await),
            Leftover::Release(why) => (why, BackingOff::Yes),
            Leftover::Postpone(why) => (why, BackingOff::No),
        };
        if backing_off == BackingOff::Yes {
            // To claim it again is what failed.
            retirer.timed(&reference, Step::Claim, async {}, |()| Some(Halted::Failed)).await;
        }
        // An earlier process may have moved its pods.
        let claim = record::ours(node, &owner);
        let awaited = claim.is_some().then(|| retirer.awaited(node, claim, force));
        let released = retirer.release(&reference, &owner, None, backing_off).await;
        if claim.is_some() && released == Freed::Done {
            retirer.attach(node, Lane::Planned).await;
        }
        let (node, said) = (reference.clone(), why.to_owned());
        let (told, end) = match backing_off {
            BackingOff::Yes => {
                let failure = Failure { node: reference.clone(), step: Step::Claim, cause: Cause::Mismatch(why) };
                (Progress::Released { node, step: Step::Claim, why: said }, End::Released(failure))
            }
            BackingOff::No => (Progress::Postponed { node, why: said }, End::Postponed),
        };
        if released == Freed::Done {
            self.tell(&told);
        }
        Ok(Retirement { node: reference, end, deleted: false, evictions: 0, awaited })
    }

    async fn assess(&self, node: &Arc<NodeSnapshot>) -> Result<Leftover, RunError> {
        if let ClaimAnnotation::Unreadable(_) = &node.claim {
            return Ok(Leftover::Postpone("its claim can't be read"));
        }
        let claim = record::ours(node, &self.task.purpose.owner());
        if claim.is_none() && node.claim != ClaimAnnotation::Absent {
            return Ok(Leftover::Postpone("its claim was written for another node"));
        }
        if let Some(claim) = claim.filter(|claim| claim.is_departing() && claim.boot_id == node.boot_id) {
            // Whatever the cloud names now, or does not name any more: what was deleted is followed to its end.
            let target = Target { node: Arc::clone(node), machine: claim.machine.clone(), group: None };
            if self.is_going(node, &target.machine).await? {
                return Ok(Leftover::Await(target));
            }
        }
        let Some(target) = self.target(node) else {
            return Ok(Leftover::Release("the cloud knows no machine of this node"));
        };
        if let Some(claim) = claim
            && let Some(why) = record::mismatch(node, claim, &target.machine)
        {
            return Ok(Leftover::Release(why));
        }
        if decision::is_control_plane(node) {
            return Ok(Leftover::Postpone("it is a control-plane node"));
        }
        if let Some(why) = self.task.policy.candidates.keeps(self.cloud.of(node.uid.as_str())) {
            return Ok(Leftover::Postpone(why));
        }
        if decision::opt_out(node).is_some() {
            return Ok(Leftover::Release("it was opted out"));
        }
        let refusals = self.cloud.of(node.uid.as_str()).map_or(&[][..], |fact| &fact.refusals);
        if refusals.iter().any(|refusal| refusal.span() == Span::Lasting) {
            return Ok(Leftover::Release("the cloud would not delete it"));
        }
        if !refusals.is_empty() {
            return Ok(Leftover::Postpone("the cloud would not delete it now"));
        }
        let drained = claim.is_some_and(|claim| claim.step >= ClaimStep::Tainted);
        if !drained && !self.task.policy.budgets.is_open(self.ports.clock.now()) {
            return Ok(Leftover::Postpone("no window is open"));
        }
        Ok(Leftover::Resume(target))
    }

    /// Whether the deletion that a claim announces was accepted. That the machine runs on is believed only when the cloud
    /// would have told otherwise by now: to ask once more has a group want less once more.
    async fn is_going(&self, node: &NodeSnapshot, machine: &Machine) -> Result<bool, RunError> {
        let Machine::Instance(instance) = machine else { return Ok(node.deleting_since.is_some()) };
        let Self { ports, .. } = self;
        let told = ports.clock.instant() + TELLING;
        loop {
            let now = ports.clock.instant();
            match wait::instance_state(ports, instance, REQUEST).await {
                Ok(InstanceState::Running) if now >= told => return Ok(false),
                // It is followed, then, as far as that goes.
                Ok(InstanceState::Running) if self.stop.is_set() => return Ok(true),
                Ok(InstanceState::Running) => {
                    let timer = ports.clock.sleep_until(told.min(now + LOOK_AGAIN));
                    future::select(pin!(timer), pin!(self.stop.wait())).await;
                }
                Ok(InstanceState::ShuttingDown | InstanceState::Held(_) | InstanceState::Gone) => return Ok(true),
                // Unknown is departing: nothing is taken back.
                Err(error) if error.class == ErrorClass::NotLeader => return Err(run_error(error, RunError::Cloud)),
                Err(error) => {
                    let node = Some(node.reference());
                    self.tell(&Progress::Problem { node, class: error.class, what: chain(&error) });
                    return Ok(true);
                }
            }
        }
    }
}

fn is_departing(node: &NodeSnapshot) -> bool {
    node.claim().of(node.uid.as_str()).is_some_and(Claim::is_departing)
}

fn claimed_at(node: &NodeSnapshot) -> Option<jiff::Timestamp> {
    node.claim().of(node.uid.as_str()).map(|claim| claim.since)
}
