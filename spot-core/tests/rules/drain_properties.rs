//! The drain in any sequence of answers and views.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use spot_core::drain::machine::{DrainPolicy, How, Next, Removal};
use spot_core::drain::plan::Force;
use spot_core::interruption::Limits;
use spot_core::node::{Uid, key};
use spot_core::pod::{BudgetSnapshot, PodPhase, PodSnapshot};
use spot_core::ports::{EvictAnswer, Instant};
use spot_core::view::Change;

use crate::support::build::{budget, controller, daemon_pod, noon, pod, secs, uid};
use crate::support::drain::{Bench, forced, limits, planned, scheduled, second};
use crate::support::{config, samples};

/// The kinds of pods that are put on the node; the name of a pod begins with its kind.
const KINDS: [&str; 10] = ["web", "web", "api", "slow", "unready", "foreign", "orphan", "daemon", "mirror", "finished"];

fn of_kind(kind: &str, number: usize) -> PodSnapshot {
    let name = format!("{kind}-{number}");
    let web = pod(&name, "web", "od-1");
    match kind {
        "web" => web,
        "api" => pod(&name, "api", "od-1"),
        "slow" => PodSnapshot { grace: secs(600), ..pod(&name, "api", "od-1") },
        "unready" => PodSnapshot { ready: false, ..web },
        "foreign" => PodSnapshot { controller: Some(controller("x.io", "DaemonSet", "agent")), ..web },
        "orphan" => daemon_pod(&name, "deleted-set", "od-1"),
        "daemon" => daemon_pod(&name, "agent", "od-1"),
        "mirror" => PodSnapshot { mirror: true, controller: None, ..web },
        "finished" => PodSnapshot { phase: PodPhase::Succeeded, ready: false, ..web },
        "bare" => PodSnapshot { controller: None, ..web },
        "opted-out" => PodSnapshot { opted_out: Some(key::DO_NOT_EVICT), ..web },
        other => panic!("no kind {other}"),
    }
}

/// What happens between two looks.
#[derive(Clone, Debug)]
enum Event {
    Answer(Index, EvictAnswer),
    Going(Index),
    Gone(Index),
    Late(&'static str),
    Budget { allowed: i32, current: bool },
    Pass(u64),
    Tighten { until: u64, delete_blocked: Option<u64>, force: Force },
}

fn answers() -> impl Strategy<Value = EvictAnswer> {
    let retry_after = proptest::option::of((0_u64..40).prop_map(secs));
    let words = || "words".to_owned();
    prop_oneof![
        6 => Just(EvictAnswer::Accepted),
        1 => Just(EvictAnswer::Gone),
        3 => retry_after.clone().prop_map(|retry_after| EvictAnswer::Budget { budget: None, retry_after }),
        1 => retry_after.prop_map(|retry_after| EvictAnswer::Overloaded { retry_after }),
        1 => Just(EvictAnswer::MultipleBudgets),
        1 => Just(EvictAnswer::ServerError(words())),
        1 => Just(EvictAnswer::NamespaceTerminating),
        1 => Just(EvictAnswer::Webhook(words())),
        1 => Just(EvictAnswer::Invalid(words())),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let late = prop_oneof![8 => select(KINDS.to_vec()), 1 => select(vec!["bare", "opted-out"])];
    let denied = Just(EvictAnswer::Denied("words".to_owned()));
    let answer = prop_oneof![60 => answers(), 1 => denied];
    let event = prop_oneof![
        8 => (any::<Index>(), answer).prop_map(|(which, answer)| Event::Answer(which, answer)),
        3 => any::<Index>().prop_map(Event::Going),
        6 => any::<Index>().prop_map(Event::Gone),
        1 => late.prop_map(Event::Late),
        2 => (-1_i32..4, prop::bool::weighted(0.9)).prop_map(|(allowed, current)| Event::Budget { allowed, current }),
        3 => select(vec![1, 5, 10, 30, 60, 600]).prop_map(Event::Pass),
        1 => (0_u64..300, proptest::option::weighted(0.3, 0_u64..300), prop::bool::weighted(0.3)).prop_map(
            |(until, delete_blocked, forced)| Event::Tighten {
                until,
                delete_blocked,
                force: if forced { Force::Forced } else { Force::Planned },
            },
        ),
    ];
    prop::collection::vec(event, 0..60)
}

/// A drain with all that has happened to it.
#[derive(Debug)]
struct Story {
    bench: Bench,
    /// What was asked for, and under which limits.
    in_flight: Vec<(Removal, Limits)>,
    accepted: BTreeMap<Uid, (How, Limits)>,
    denied: BTreeMap<Uid, How>,
    limits: Limits,
    /// Since when a forced drain is looked at under these limits.
    looked: Option<Instant>,
    own: bool,
    number: usize,
    deleted: usize,
    hastened: usize,
}

/// How a story ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Empty,
    OwnPodLeft,
    Denied,
    Deadline,
    NotEvictable,
    Open,
}

impl Story {
    fn new(kinds: &[&str], policy: DrainPolicy, own: bool) -> Self {
        let limits = policy.limits;
        let mut bench = Bench::new(DrainPolicy { own_pod: own.then(|| uid("web-0")), ..policy });
        bench.view.apply(Change::DaemonSet(uid("agent")));
        for (number, kind) in kinds.iter().enumerate() {
            bench.put(of_kind(kind, number));
        }
        Self {
            bench,
            in_flight: Vec::new(),
            accepted: BTreeMap::new(),
            denied: BTreeMap::new(),
            limits,
            looked: None,
            own,
            number: kinds.len(),
            deleted: 0,
            hastened: 0,
        }
    }

    fn happens(&mut self, event: &Event) {
        match event {
            Event::Answer(which, answer) => {
                if self.in_flight.is_empty() {
                    return;
                }
                let (Removal { pod, how, .. }, under) = self.in_flight.swap_remove(which.index(self.in_flight.len()));
                match answer {
                    EvictAnswer::Accepted | EvictAnswer::Gone => {
                        self.accepted.insert(pod.uid.clone(), (how, under));
                    }
                    EvictAnswer::Denied(_) => drop(self.denied.insert(pod.uid.clone(), how)),
                    EvictAnswer::Budget { .. }
                    | EvictAnswer::Overloaded { .. }
                    | EvictAnswer::MultipleBudgets
                    | EvictAnswer::ServerError(_)
                    | EvictAnswer::NamespaceTerminating
                    | EvictAnswer::Webhook(_)
                    | EvictAnswer::Invalid(_) => {}
                }
                self.bench.machine.answered(&pod, Ok(answer.clone()), self.bench.now);
            }
            Event::Going(which) => {
                if let Some(name) = self.one_of_the_pods(*which) {
                    self.goes(&name);
                }
            }
            Event::Gone(which) => {
                if let Some(name) = self.one_of_the_pods(*which) {
                    self.bench.gone(&name);
                }
            }
            Event::Late(kind) => {
                self.bench.put(of_kind(kind, self.number));
                self.number += 1;
            }
            Event::Budget { allowed, current } => {
                self.number += 1;
                let resource_version = self.number.to_string();
                self.bench.budget(BudgetSnapshot { resource_version, current: *current, ..budget("web", *allowed) });
            }
            Event::Pass(seconds) => self.bench.pass(secs(*seconds)),
            Event::Tighten { until, delete_blocked, force } => self.is_tightened(*until, *delete_blocked, *force),
        }
    }

    fn is_tightened(&mut self, until: u64, delete_blocked: Option<u64>, force: Force) {
        let before = self.limits;
        self.bench.machine.tighten(limits(until, delete_blocked, force));
        self.limits.until = before.until.min(second(until));
        if let Some(at) = delete_blocked.map(second)
            && before.delete_blocked.is_none_or(|before| at < before)
        {
            self.limits.delete_blocked = Some(at);
        }
        if force == Force::Forced {
            self.limits.force = force;
        }
        if self.limits != before {
            self.looked = None;
        }
    }

    /// The kubelet has told a pod to stop. What time it has is never made longer.
    fn goes(&mut self, name: &str) {
        let seen = self.bench.view.pods_on("od-1").find(|pod| &*pod.name == name).cloned();
        self.bench.going(name);
        let now = self.bench.view.pods_on("od-1").find(|pod| &*pod.name == name).cloned();
        let (Some(seen), Some(now)) = (seen, now) else { return };
        let grace = match self.accepted.get(&now.uid) {
            Some((How::Evict(Some(grace)) | How::Delete(grace), _)) => *grace,
            Some((How::Evict(None), _)) | None => now.grace,
        };
        let ends = noon() + self.bench.now.0 + grace;
        let deletion = Some(seen.deletion.map_or(ends, |before| before.min(ends)));
        self.bench.put(PodSnapshot { deletion, ..PodSnapshot::clone(&now) });
    }

    fn one_of_the_pods(&self, which: Index) -> Option<String> {
        let names: Vec<_> = self.bench.view.pods_on("od-1").map(|pod| pod.name.to_string()).collect();
        (!names.is_empty()).then(|| names[which.index(names.len())].clone())
    }

    /// The names of the pods that are still there and ought to go, told by their names.
    fn to_go(&self) -> Vec<String> {
        let stays = ["daemon", "mirror", "finished"];
        let names = self.bench.view.pods_on("od-1").map(|pod| pod.name.to_string());
        names.filter(|name| !stays.iter().any(|kind| name.starts_with(kind))).collect()
    }

    /// Looks, and checks what it is told; how it ended, if it did.
    fn looks(&mut self) -> Result<Option<End>, TestCaseError> {
        let to_go = self.to_go();
        let now = self.bench.now;
        let forced = self.limits.force == Force::Forced;
        if forced {
            self.looked.get_or_insert(now);
        }
        // Whatever little time is left, some is.
        let until = self.looked.map_or(self.limits.until, |looked| self.limits.until.max(looked + secs(10)));
        let denied: Vec<How> = to_go.iter().filter_map(|name| self.denied.get(&uid(name))).copied().collect();
        let for_good = |how: &How| matches!(how, How::Delete(_)) || self.limits.delete_blocked.is_none();
        let hopeless = if forced {
            denied.len() == to_go.len() && denied.iter().all(for_good)
        } else {
            denied.iter().any(for_good)
        };
        self.bench.overdue();
        match self.bench.observe() {
            Next::Work { removals, wake } => {
                prop_assert!(!to_go.is_empty(), "work without pods");
                prop_assert!(now < until && !hopeless, "work past the end");
                prop_assert!(now < wake && wake <= until, "{:?} is no time to look again at {:?}", wake, now);
                for removal in removals {
                    self.is_asked(&removal, &to_go, until)?;
                }
                prop_assert!(self.in_flight.len() <= 32);
                Ok(None)
            }
            Next::Empty { own_pod_left: false } => {
                prop_assert_eq!(to_go, [] as [&str; 0]);
                Ok(Some(End::Empty))
            }
            Next::Empty { own_pod_left: true } => {
                prop_assert_eq!(to_go, ["web-0"]);
                prop_assert_eq!(self.limits.delete_blocked, None, "it can be deleted");
                Ok(Some(End::OwnPodLeft))
            }
            Next::Failed(blocked) => {
                prop_assert!(!blocked.is_empty(), "a failure without a pod");
                let there = |name: &str| to_go.iter().any(|other| other == name);
                prop_assert!(blocked.iter().all(|blocked| there(&blocked.pod.name)));
                let refused = |name: &String| name.starts_with("bare") || name.starts_with("opted-out");
                if !forced && to_go.iter().any(refused) {
                    Ok(Some(End::NotEvictable))
                } else if hopeless {
                    Ok(Some(End::Denied))
                } else {
                    prop_assert!(now >= until, "failed at {:?}: {:?}", now, blocked);
                    prop_assert_eq!(blocked.len(), to_go.len());
                    Ok(Some(End::Deadline))
                }
            }
        }
    }

    fn is_asked(&mut self, removal: &Removal, to_go: &[String], until: Instant) -> Result<(), TestCaseError> {
        let Removal { pod, how, loses: _ } = removal;
        let (limits, now) = (self.limits, self.bench.now);
        let seen = self.bench.view.pods_on("od-1").find(|seen| seen.uid == pod.uid);
        let Some(seen) = seen else { return Err(TestCaseError::fail(format!("{pod} is not there"))) };
        prop_assert!(to_go.contains(&pod.name.to_string()), "{} ought to stay", pod);
        if matches!(how, How::Delete(_)) {
            // an eviction that is not answered counts no more
            self.in_flight.retain(|(removal, _)| removal.pod != *pod || matches!(removal.how, How::Delete(_)));
        }
        let in_flight = self.in_flight.iter().any(|(removal, _)| removal.pod == *pod);
        prop_assert!(!in_flight, "{} is asked for twice at the same time", pod);
        let forced = limits.force == Force::Forced;
        let accepted = self.accepted.get(&pod.uid);
        if let Some(ends) = seen.deletion {
            prop_assert!(forced && ends > noon() + limits.until.0.max(now.0), "{} is going already", pod);
            prop_assert!(accepted.is_none_or(|(_, under)| *under != limits), "{} was told so already", pod);
            prop_assert!(matches!(how, How::Evict(_)), "{} is going, and deleted", pod);
            self.hastened += 1;
        } else {
            prop_assert!(accepted.is_none(), "{} was accepted already", pod);
        }
        let own_turn = to_go.len() == 1 || (forced && now + secs(20) >= until);
        prop_assert!(!self.own || &*pod.name != "web-0" || own_turn, "the own pod goes before the others");
        let grace = match how {
            How::Evict(None) => seen.grace,
            How::Evict(Some(grace)) => *grace,
            How::Delete(grace) => {
                let due = limits.delete_blocked.is_some_and(|at| now >= at);
                prop_assert!(due, "{} is deleted too early", pod);
                self.deleted += 1;
                *grace
            }
        };
        if forced {
            let left = limits.until.since(now).max(secs(1));
            prop_assert!(grace <= left, "{} has more time than there is", pod);
            let cut = grace < seen.grace;
            prop_assert!(!cut || grace + secs(2) > left, "{} has less time than there is", pod);
            prop_assert!(!grace.is_zero(), "{} has none", pod);
        } else {
            prop_assert!(grace == seen.grace, "{} is hurried", pod);
        }
        self.in_flight.push((removal.clone(), limits));
        Ok(())
    }

    /// Tells the whole story.
    fn goes_on(&mut self, events: &[Event]) -> Result<End, TestCaseError> {
        for event in events {
            if let Some(end) = self.looks()? {
                return Ok(end);
            }
            self.happens(event);
        }
        Ok(self.looks()?.unwrap_or(End::Open))
    }
}

fn policies() -> impl Strategy<Value = DrainPolicy> {
    prop_oneof![2 => Just(planned()), 2 => Just(forced()), 1 => Just(scheduled())]
}

fn stories() -> impl Strategy<Value = (Vec<&'static str>, DrainPolicy, bool, Vec<Event>)> {
    (prop::collection::vec(select(KINDS.to_vec()), 0..9), policies(), any::<bool>(), events())
}

#[test]
fn the_generated_stories_reach_every_end() {
    let mut ends: BTreeMap<End, usize> = BTreeMap::new();
    let (mut deleted, mut hastened) = (0, 0);
    for (kinds, policy, own, events) in samples(stories(), 3_000) {
        let mut story = Story::new(&kinds, policy, own);
        *ends.entry(story.goes_on(&events).unwrap()).or_default() += 1;
        deleted += story.deleted;
        hastened += story.hastened;
    }
    for end in [End::Empty, End::OwnPodLeft, End::Denied, End::Deadline, End::NotEvictable] {
        assert!(ends.get(&end).is_some_and(|often| *often >= 10), "{end:?} in {ends:?}");
    }
    assert!(deleted >= 100 && hastened >= 100, "{deleted} pods deleted, {hastened} told twice");
}

/// What happens to a budget's pods while no time passes.
#[derive(Clone, Debug)]
enum Move {
    Status(i32),
    Accepted,
    Refused,
    Late,
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn whatever_happens_each_pod_is_asked_for_as_it_ought_to_be((kinds, policy, own, events) in stories()) {
        Story::new(&kinds, policy, own).goes_on(&events)?;
    }

    #[test]
    fn a_status_is_used_up_and_never_overdrawn(
        allowed in 0_i32..4,
        moves in prop::collection::vec(
            prop_oneof![
                (0_i32..4).prop_map(Move::Status),
                Just(Move::Accepted),
                Just(Move::Refused),
                Just(Move::Late),
            ],
            0..25,
        ),
    ) {
        let mut bench = Bench::new(planned());
        for number in 0..4 {
            bench.put(of_kind("web", number));
        }
        let (mut number, mut allowed, mut asked) = (4, allowed, 0);
        let mut in_flight = Vec::new();
        // Who was refused since the status last moved, and who will never be asked again.
        let (mut refused, mut done) = (Vec::new(), Vec::new());
        bench.budget(BudgetSnapshot { resource_version: "0".to_owned(), ..budget("web", allowed) });
        for happens in moves {
            for name in bench.evicts() {
                asked += 1;
                in_flight.push(name);
            }
            prop_assert!(asked <= allowed, "{} asked, {} allowed", asked, allowed);
            let is_idle = |pod: &&std::sync::Arc<PodSnapshot>| {
                ![&in_flight, &refused, &done].into_iter().flatten().any(|name: &String| *name == *pod.name)
            };
            let idle = bench.view.pods_on("od-1").filter(is_idle).count();
            prop_assert!(asked == allowed || idle == 0, "{} of {} allowed are asked", asked, allowed);
            number += 1;
            match happens {
                Move::Status(now) => {
                    (allowed, asked) = (now, 0);
                    refused.clear();
                    bench.budget(BudgetSnapshot { resource_version: number.to_string(), ..budget("web", now) });
                }
                Move::Accepted => if let Some(name) = in_flight.pop() {
                    bench.answer(&name, EvictAnswer::Accepted);
                    done.push(name);
                },
                Move::Refused => if let Some(name) = in_flight.pop() {
                    bench.answer(&name, EvictAnswer::Budget { budget: None, retry_after: None });
                    refused.push(name);
                },
                Move::Late => bench.put(of_kind("web", number)),
            }
        }
    }

    #[test]
    fn a_drain_in_which_every_pod_goes_when_asked_ends_empty(
        kinds in prop::collection::vec(select(KINDS.to_vec()), 0..50),
        policy in policies(),
    ) {
        let mut story = Story::new(&kinds, policy, false);
        let expected: BTreeSet<String> = story.to_go().into_iter().collect();
        let evicted = story.bench.let_go();
        prop_assert_eq!(evicted.len(), expected.len(), "none is asked for twice");
        prop_assert_eq!(evicted.into_iter().collect::<BTreeSet<_>>(), expected);
        prop_assert_eq!(story.bench.observe(), Next::Empty { own_pod_left: false });
        prop_assert_eq!(story.bench.now, Instant::default(), "no time passed");
        prop_assert_eq!(story.bench.machine.in_the_way(&story.bench.view, "od-1"), []);
    }
}
