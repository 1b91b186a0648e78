//! Runs the drain's machine against a cluster: asks for what it says, tells it the answers, and waits for changes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use futures::future::{self, Either};
use futures::stream::{FuturesUnordered, StreamExt};

use super::machine::{DrainPolicy, How, Machine, Next, Removal};
use super::plan::{DrainRules, Force, Loss};
use crate::error::{BlockedPod, Cause, ErrorClass, PortError};
use crate::interruption::{Hold, Limits, Terms};
use crate::node::{NodeRef, NodeSnapshot, Uid};
use crate::pod::PodRef;
use crate::ports::{EvictAnswer, Instant, Lane, Live, Ports, Write};
use crate::progress::{Answered, Progress};
use crate::retire::DoomedPod;
use crate::stop::Stop;
use crate::view::{Revision, View};
use crate::wait::{self, REQUEST, within};

/// How a drain ended.
#[derive(Debug)]
pub(crate) enum Drained<I> {
    /// No pod is left that ought to go.
    Empty { own_pod_left: bool },
    /// The process is to end; what was begun goes on in the next one.
    Stopped,
    /// The caller's look at the view said to stop.
    Interrupted(I),
    /// It failed.
    Failed(Cause),
}

/// What a drain's evictions came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evictions {
    /// How many were accepted.
    pub(crate) accepted: usize,
    /// Whether any took effect, or may have: an answer can be lost.
    pub(crate) possible: bool,
}

/// Why the driver looks again.
enum Woken {
    Answer(Asked),
    /// The view changed, or it is time; an error when the view can't be followed any more.
    Changed(Result<(), PortError>),
}

/// What was asked for, and what came of it.
struct Asked {
    pod: PodRef,
    how: How,
    loses: Option<Loss>,
    answer: Result<EvictAnswer, PortError>,
}

/// One drain.
pub(crate) struct Drain<'a> {
    pub(crate) ports: &'a Ports,
    pub(crate) live: &'a dyn Live,
    pub(crate) node: NodeRef,
    pub(crate) rules: &'a DrainRules,
    pub(crate) own_pod: Option<&'a Uid>,
    /// The limits, which may become stricter in mid-work.
    pub(crate) terms: Terms,
    /// What to wake at, where it is planned: `look` then sees it.
    pub(crate) hold: Option<&'a Hold>,
    pub(crate) stop: &'a Stop,
}

impl Drain<'_> {
    /// Drains the node. Before each step, `look` may end it: it is given the view and the node, if that is still there.
    ///
    /// Requests that are on their way when it ends are waited for, so that nothing happens afterwards. Counts
    /// accepted evictions in `evicted`.
    pub(crate) async fn run<I>(
        self,
        evicted: &mut Evictions,
        mut look: impl FnMut(&View, Option<&Arc<NodeSnapshot>>) -> Option<I>,
    ) -> Drained<I> {
        let limits = self.terms.limits();
        let (rules, own_pod) = (self.rules.clone(), self.own_pod.cloned());
        let mut machine = Machine::new(DrainPolicy { rules, limits, own_pod });
        let mut asked = FuturesUnordered::new();
        let mut ended = loop {
            if self.stop.is_set() {
                break Drained::Stopped;
            }
            let view = self.live.view();
            let revision = view.revision();
            let node = view.node(self.node.uid.as_str());
            if let Some(interrupt) = look(&view, node) {
                break Drained::Interrupted(interrupt);
            }
            let Some(node) = node else { break Drained::Empty { own_pod_left: false } };
            let limits = self.terms.limits();
            machine.tighten(limits);
            let now = self.ports.clock.instant();
            let next = machine.observe(&view, node, now, self.ports.clock.now());
            for overdue in machine.overdue(&view, &node.name, now) {
                let BlockedPod { pod, obstacle } = overdue.blocked;
                self.report(&Progress::PodBlocked { node: self.node.clone(), pod, obstacle, since: overdue.since });
            }
            drop(view);
            let wake = match next {
                Next::Empty { own_pod_left } => break Drained::Empty { own_pod_left },
                Next::Failed(blocked) => break Drained::Failed(Cause::Blocked(blocked)),
                Next::Work { removals, wake } => {
                    let end = machine.end();
                    asked.extend(removals.into_iter().map(|removal| self.ask(removal, limits.force, end)));
                    wake
                }
            };
            let taken = match self.wait(&mut asked, revision, limits, wake).await {
                Woken::Answer(answer) => self.take(&mut machine, answer, evicted),
                Woken::Changed(changed) => changed,
            };
            if let Err(error) = taken {
                break Drained::Failed(Cause::Port(error));
            }
        };
        while let Some(answer) = asked.next().await {
            // The drain has ended: what it answers only adds to the count and to the obstacles,
            // unless it says that somebody else leads.
            if let Err(error) = self.take(&mut machine, answer, evicted) {
                ended = Drained::Failed(Cause::Port(error));
            }
        }
        self.with_all_obstacles(ended, &machine)
    }

    /// The next answer, or the view changed, the terms or the hold did, the time came, or the process is to end.
    async fn wait<F>(&self, asked: &mut FuturesUnordered<F>, revision: Revision, limits: Limits, wake: Instant) -> Woken
    where
        F: Future<Output = Asked>,
    {
        let answer = async {
            match asked.next().await {
                Some(answer) => answer,
                None => future::pending().await,
            }
        };
        let change = wait::change(self.ports, self.live, self.stop, revision, wake);
        let held = async {
            match self.hold {
                Some(hold) => hold.begins(self.ports.clock.instant()).await,
                None => future::pending().await,
            }
        };
        let (stricter, held) = (pin!(self.terms.stricter_than(limits)), pin!(held));
        match future::select(pin!(answer), future::select(pin!(change), future::select(stricter, held))).await {
            Either::Left((answer, _)) => Woken::Answer(answer),
            Either::Right((Either::Left((changed, _)), _)) => Woken::Changed(changed),
            Either::Right((Either::Right(_), _)) => Woken::Changed(Ok(())),
        }
    }

    fn take(&self, machine: &mut Machine, asked: Asked, evicted: &mut Evictions) -> Result<(), PortError> {
        let Asked { pod, how, loses, answer } = asked;
        let late = matches!(how, How::Evict(_)) && machine.is_deleting(&pod);
        let answered = match &answer {
            Ok(EvictAnswer::Accepted) => Answered::Accepted,
            Ok(EvictAnswer::Gone) => Answered::Gone,
            Ok(
                EvictAnswer::Budget { .. }
                | EvictAnswer::Overloaded { .. }
                | EvictAnswer::MultipleBudgets
                | EvictAnswer::ServerError(_)
                | EvictAnswer::NamespaceTerminating
                | EvictAnswer::Denied(_)
                | EvictAnswer::Webhook(_)
                | EvictAnswer::Invalid(_),
            ) => Answered::Blocked,
            Err(_) => Answered::Failed,
        };
        evicted.accepted += usize::from(answered == Answered::Accepted);
        evicted.possible |= match &answer {
            Ok(_) => matches!(answered, Answered::Accepted | Answered::Gone),
            Err(error) => !error.class.had_no_effect(),
        };
        self.report(&Progress::Evicted { node: self.node.clone(), pod: pod.clone(), loses, answered });
        match answer {
            Err(error) if error.class == ErrorClass::NotLeader => Err(error),
            Ok(_) | Err(_) if late && answered != Answered::Accepted => Ok(()),
            Ok(_) | Err(_) => {
                machine.answered(&pod, answer, self.ports.clock.instant());
                Ok(())
            }
        }
    }

    fn with_all_obstacles<I>(&self, ended: Drained<I>, machine: &Machine) -> Drained<I> {
        match ended {
            Drained::Failed(Cause::Blocked(mut blocked)) => {
                let all = machine.in_the_way(&self.live.view(), &self.node.name);
                blocked.extend(
                    all.into_iter()
                        .filter(|more| blocked.iter().all(|known| known.pod != more.pod))
                        .collect::<Vec<_>>(),
                );
                blocked.sort_by(|a, b| a.pod.cmp(&b.pod));
                Drained::Failed(Cause::Blocked(blocked))
            }
            Drained::Failed(_) | Drained::Empty { .. } | Drained::Stopped | Drained::Interrupted(_) => ended,
        }
    }

    /// One request, with its own deadline inside the drain's.
    async fn ask(&self, removal: Removal, force: Force, end: Instant) -> Asked {
        let by = (self.ports.clock.instant() + REQUEST).min(end);
        let lane = match force {
            Force::Planned => Lane::Planned,
            Force::Forced => Lane::Forced,
        };
        let write = Write::new(by, lane, Arc::clone(&self.ports.leadership));
        let Removal { pod, how, loses } = removal;
        let answer = match how {
            How::Evict(grace) => {
                within(self.ports, by, "evicting a pod", self.ports.cluster.evict(&pod, grace, &write)).await
            }
            How::Delete(grace) => {
                let doomed = DoomedPod::new(pod.clone());
                let request = self.ports.cluster.delete_pod(&doomed, grace, &write);
                within(self.ports, by, "deleting a pod", request).await.map(|()| EvictAnswer::Accepted)
            }
        };
        Asked { pod, how, loses, answer }
    }

    fn report(&self, event: &Progress) {
        self.ports.observer.observe(self.ports.clock.now(), event);
    }
}
