//! A drain's machine on a bench: a view that the test changes, and a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use spot_core::NodeSnapshot;
use spot_core::drain::machine::{DrainPolicy, How, Machine, Next, Overdue, Removal};
use spot_core::drain::plan::{DrainRules, Force};
use spot_core::error::{BlockedPod, ErrorClass, PortError};
use spot_core::interruption::Limits;
use spot_core::pod::{BudgetSnapshot, PodSnapshot};
use spot_core::ports::{EvictAnswer, Instant};
use spot_core::view::{Change, View};

use super::build::{node, noon, pod_ref, secs, uid};

/// The drain of `od-1`.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) view: View,
    pub(crate) node: NodeSnapshot,
    pub(crate) machine: Machine,
    pub(crate) now: Instant,
}

/// At this many seconds after the beginning.
pub(crate) fn second(second: u64) -> Instant {
    Instant(secs(second))
}

/// A planned drain that has an hour, as by default.
pub(crate) fn planned() -> DrainPolicy {
    DrainPolicy { rules: DrainRules::default(), limits: limits(3_600, None, Force::Planned), own_pod: None }
}

/// A forced drain that has 110 seconds and obeys budgets for 60.
pub(crate) fn forced() -> DrainPolicy {
    DrainPolicy { limits: limits(110, Some(60), Force::Forced), ..planned() }
}

/// A forced drain that has half an hour, and never deletes.
pub(crate) fn scheduled() -> DrainPolicy {
    DrainPolicy { limits: limits(1_800, None, Force::Forced), ..planned() }
}

/// Limits at these seconds after the beginning.
pub(crate) fn limits(until: u64, delete_blocked: Option<u64>, force: Force) -> Limits {
    Limits { until: second(until), delete_blocked: delete_blocked.map(second), force }
}

pub(crate) fn budget_answer() -> EvictAnswer {
    EvictAnswer::Budget { budget: None, retry_after: None }
}

impl Bench {
    pub(crate) fn new(policy: DrainPolicy) -> Self {
        Self { view: View::default(), node: node("od-1"), machine: Machine::new(policy), now: second(0) }
    }

    pub(crate) fn put(&mut self, pod: PodSnapshot) {
        self.view.apply(Change::Pod(Arc::new(pod)));
    }

    pub(crate) fn budget(&mut self, budget: BudgetSnapshot) {
        self.view.apply(Change::Budget(Arc::new(budget)));
    }

    fn pod(&self, name: &str) -> PodSnapshot {
        let found = self.view.pods().find(|pod| &*pod.name == name);
        PodSnapshot::clone(found.unwrap_or_else(|| panic!("no pod {name}")))
    }

    /// The pod was told to stop; its object is still there.
    pub(crate) fn going(&mut self, name: &str) {
        let pod = self.pod(name);
        let ends = noon() + self.now.0 + pod.grace;
        self.put(PodSnapshot { deletion: Some(ends), ..pod });
    }

    /// The pod's object is gone.
    pub(crate) fn gone(&mut self, name: &str) {
        let pod = self.pod(name);
        self.view.apply(Change::PodGone(Arc::new(pod)));
    }

    pub(crate) fn pass(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }

    pub(crate) fn observe(&mut self) -> Next {
        self.machine.observe(&self.view, &self.node, self.now, noon() + self.now.0)
    }

    /// What it asks for now, and when it wants to look again; fails if the drain has ended.
    pub(crate) fn work(&mut self) -> (Vec<Removal>, Instant) {
        match self.observe() {
            Next::Work { removals, wake } => (removals, wake),
            ended @ (Next::Empty { .. } | Next::Failed(_)) => panic!("the drain has ended: {ended:?}"),
        }
    }

    /// The names of the pods whose eviction it asks for now; fails on a deletion.
    pub(crate) fn evicts(&mut self) -> Vec<String> {
        let (removals, _) = self.work();
        let name = |removal: Removal| {
            assert!(matches!(removal.how, How::Evict(_)), "{} is deleted", removal.pod);
            removal.pod.name.to_string()
        };
        removals.into_iter().map(name).collect()
    }

    /// When it wants to look again, which is later than now once what is overdue was reported.
    pub(crate) fn wake(&mut self) -> Instant {
        let (_, wake) = self.work();
        assert!(wake > self.now, "{wake:?} is no time to look again at {:?}", self.now);
        wake
    }

    pub(crate) fn answer(&mut self, name: &str, answer: EvictAnswer) {
        self.machine.answered(&pod_ref(name), Ok(answer), self.now);
    }

    pub(crate) fn fails(&mut self, name: &str, class: ErrorClass) {
        self.machine.answered(&pod_ref(name), Err(PortError::new(class, "evicting a pod")), self.now);
    }

    /// Each pod that it asks for goes at once, until it asks for no more. Their names.
    pub(crate) fn let_go(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Next::Work { removals, .. } = self.observe() {
            if removals.is_empty() {
                break;
            }
            for Removal { pod, .. } in removals {
                assert_eq!(pod.uid, uid(&pod.name));
                self.answer(&pod.name, EvictAnswer::Accepted);
                self.gone(&pod.name);
                all.push(pod.name.to_string());
            }
        }
        all
    }

    pub(crate) fn overdue(&mut self) -> Vec<Overdue> {
        self.machine.overdue(&self.view, "od-1", self.now)
    }

    /// The pods in the way of a drain that has failed, in words.
    pub(crate) fn failure(&mut self) -> Vec<String> {
        match self.observe() {
            Next::Failed(blocked) => blocked.iter().map(BlockedPod::to_string).collect(),
            other @ (Next::Work { .. } | Next::Empty { .. }) => panic!("the drain has not failed: {other:?}"),
        }
    }
}
