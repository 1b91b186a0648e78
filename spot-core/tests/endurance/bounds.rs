//! What must stay small, what must not stay long, and what must go on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spot_core::capacity::Class;
use spot_core::claim::Owner;
use spot_core::model::{Call, Model, ProcessId, World};
use spot_core::node::{ClaimAnnotation, NodeSnapshot, key};
use spot_core::placement::MOST_SHAPES;
use spot_core::ports::Observer;
use spot_core::progress::Progress;

use super::HOUR;
use super::cluster::Plan;
use super::crew::Shared;
use super::figures::Figures;

/// How old a claim of a node that is not departing may become, and a soft taint: one that could not be taken off is left
/// to the next run, which may fail to read the cluster, and so may a few that follow.
const OLDEST: Duration = Duration::from_hours(3);
/// How long a run may take, all nodes together.
const LONGEST_RUN: Duration = Duration::from_hours(8);
/// The longest text of a claim.
const LONGEST_CLAIM: usize = 1024;
/// The longest text of the memory.
const LONGEST_MEMORY: usize = 16 * 1024;
/// How many timers and watches two migrators and an operator need at most.
const MOST_WAITING: usize = 256;

/// Looks at the world after each call.
pub(crate) fn watch(model: &Model, board: &Shared) {
    let board = board.clone();
    model.with(|world| {
        world.after_each_call(move |world, record| {
            if matches!(record.call, Call::Receive | Call::Extend(_)) || board.is_over() {
                return;
            }
            if let Some(what) = too_much(world, &board) {
                board.report(format!("{:?}, after call {}: {what} ({record:?})", world.wall(), record.number));
            }
        });
    });
}

fn too_much(world: &World, board: &Shared) -> Option<String> {
    for node in world.view().nodes() {
        if let Some(what) = of_node(world, node, board) {
            return Some(format!("{} {what}", node.name));
        }
    }
    let memory = world.memory();
    if memory.shapes.len() > MOST_SHAPES || format!("{memory:?}").len() > LONGEST_MEMORY {
        return Some(format!("the memory grows: {memory:?}"));
    }
    let waiting = world.waiting();
    let mut board = board.lock();
    board.figures.waiting = board.figures.waiting.max(waiting);
    (waiting > MOST_WAITING).then(|| format!("{waiting} timers and watches"))
}

/// What is wrong with what we keep on a node.
fn of_node(world: &World, node: &NodeSnapshot, board: &Shared) -> Option<String> {
    let is_ours = |name: &str| name.starts_with("spot-migrator.io/") && name != key::DO_NOT_MIGRATE;
    let labels = node.labels.keys().filter(|label| is_ours(label)).count();
    let annotations = node.annotations.keys().filter(|annotation| is_ours(annotation)).count();
    let taints = node.taints.iter().filter(|taint| is_ours(&taint.key) || taint.key == key::TO_BE_DELETED).count();
    if labels > 1 || annotations > 0 || taints > 3 {
        return Some(format!("has {:?} {:?} {:?}", node.labels, node.annotations, node.taints));
    }
    let soft = node.taints.iter().find(|taint| taint.key == key::LEAVING);
    let since = soft.and_then(|taint| Timestamp::from_second(taint.value.parse().ok()?).ok());
    if since.is_some_and(|since| age(world, since) > OLDEST) {
        return Some(format!("has had its soft taint since {since:?}"));
    }
    let claim = match &node.claim {
        ClaimAnnotation::Absent => {
            let by_others = !node.unschedulable || board.lock().cordoned.contains(&node.uid);
            return (!by_others).then(|| "is cordoned without a claim".to_owned());
        }
        ClaimAnnotation::Unreadable(why) => return Some(format!("has an unreadable claim: {why}")),
        ClaimAnnotation::Valid(claim) => claim,
    };
    if format!("{claim:?}").len() > LONGEST_CLAIM {
        return Some(format!("has a long claim: {claim:?}"));
    }
    // that of a machine that was taken back is there until it is gone, or back
    if claim.is_departing() || claim.owner == Owner::Interruption {
        return None;
    }
    let age = age(world, claim.since);
    let mut board = board.lock();
    board.figures.oldest = board.figures.oldest.max(age);
    (age > OLDEST).then(|| format!("was claimed {age:?} ago: {claim:?}"))
}

fn age(world: &World, since: Timestamp) -> Duration {
    Duration::try_from(world.wall().duration_since(since)).unwrap_or_default()
}

/// After the good weather no node is on-demand, and none has anything of ours but what it is told to have.
pub(crate) fn all_is_spot(world: &World, board: &Shared) {
    for node in world.view().nodes() {
        let name = &node.name;
        if name.starts_with("cp-") {
            continue;
        }
        if world.class_of(name) != Some(Class::Spot) {
            board.report(format!("{name} is not spot: {node:?}"));
        }
        let keys = node.labels.keys().chain(node.annotations.keys()).chain(node.taints.iter().map(|taint| &taint.key));
        let ours: Vec<_> =
            keys.filter(|key| key.starts_with("spot-migrator.io/") || *key == key::TO_BE_DELETED).collect();
        let clean = ours.is_empty() && node.claim == ClaimAnnotation::Absent && node.back_off.is_none();
        if !clean || node.unschedulable {
            board.report(format!("something is left on {name}: {node:?}"));
        }
    }
    let pending = world.view().pods().filter(|pod| pod.is_active() && !pod.ready).count();
    if pending > 0 {
        board.report(format!("{pending} pods do not run"));
    }
    if !world.unsettled().is_empty() {
        board.report(format!("messages are left: {:?}", world.unsettled()));
    }
}

/// What all processes told of their runs.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    figures: Figures,
    /// When a process began the run that it is in.
    began: BTreeMap<ProcessId, Timestamp>,
    /// When a run was begun or ended last.
    latest: Option<Timestamp>,
    /// The longest time in which none was begun or ended, and when that ended.
    quiet: (Duration, Option<Timestamp>),
}

/// One process's hand in it.
struct Writer {
    diary: Diary,
    process: ProcessId,
}

impl Diary {
    pub(crate) fn of(&self, process: ProcessId) -> impl Observer + use<> {
        Writer { diary: self.clone(), process }
    }

    pub(crate) fn figures(&self) -> Figures {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).figures
    }

    /// A process was killed, and its run with it.
    pub(crate) fn killed(&self, process: ProcessId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).began.remove(&process);
    }

    /// Runs were made as the schedule says, and each of them ended.
    pub(crate) fn schedule_went_on(&self, plan: Plan, board: &Shared) {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hours = usize::try_from(plan.end().as_secs() / 3600).unwrap();
        let (figures, processes) = (entries.figures, board.lock().figures.processes);
        if figures.runs * 4 < hours * 3 || figures.runs > hours + 8 * processes {
            board.report(format!("{} runs in {hours} hours, by {processes} processes", figures.runs));
        }
        if figures.longest > LONGEST_RUN {
            board.report(format!("a run took {:?}", figures.longest));
        }
        let (quiet, until) = entries.quiet;
        if quiet > HOUR + LONGEST_RUN {
            board.report(format!("no run for {quiet:?} until {until:?}"));
        }
        if !entries.began.is_empty() {
            board.report(format!("runs that did not end: {:?}", entries.began));
        }
    }
}

impl Observer for Writer {
    fn observe(&self, at: Timestamp, event: &Progress) {
        let mut entries = self.diary.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = match event {
            Progress::RunStarted { .. } => {
                entries.began.insert(self.process, at);
                false
            }
            Progress::RunEnded { .. } => true,
            Progress::RunFailed { .. } => {
                entries.figures.failed += 1;
                true
            }
            Progress::Retired { .. } => {
                entries.figures.retired += 1;
                return;
            }
            Progress::Released { .. } => {
                entries.figures.released += 1;
                return;
            }
            _other => return,
        };
        if ended {
            entries.figures.runs += 1;
            if let Some(began) = entries.began.remove(&self.process) {
                let took = Duration::try_from(at.duration_since(began)).unwrap_or_default();
                entries.figures.longest = entries.figures.longest.max(took);
            }
        }
        let quiet = entries.latest.map(|latest| Duration::try_from(at.duration_since(latest)).unwrap_or_default());
        entries.latest = Some(at);
        if let Some(quiet) = quiet.filter(|quiet| *quiet > entries.quiet.0) {
            entries.quiet = (quiet, Some(at));
        }
    }
}
