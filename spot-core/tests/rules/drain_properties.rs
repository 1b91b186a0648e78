//! The drain in any sequence of answers and views.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use spot_core::drain::machine::{DrainPolicy, Next, Removal};
use spot_core::node::{Uid, key};
use spot_core::pod::{BudgetSnapshot, PodPhase, PodRef, PodSnapshot};
use spot_core::ports::{EvictAnswer, Instant};
use spot_core::view::Change;

use crate::support::build::{budget, controller, daemon_pod, pod, secs, uid};
use crate::support::drain::{Bench, forced, planned, second};
use crate::support::{config, samples};

/// The kinds of pods that are put on the node; the name of a pod begins with its kind.
const KINDS: [&str; 9] = ["web", "web", "api", "unready", "foreign", "orphan", "daemon", "mirror", "finished"];

fn of_kind(kind: &str, number: usize) -> PodSnapshot {
    let name = format!("{kind}-{number}");
    let web = pod(&name, "web", "od-1");
    match kind {
        "web" => web,
        "api" => pod(&name, "api", "od-1"),
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
    ];
    prop::collection::vec(event, 0..60)
}

/// A drain with all that has happened to it.
#[derive(Debug)]
struct Story {
    bench: Bench,
    in_flight: Vec<PodRef>,
    accepted: BTreeSet<Uid>,
    denied: bool,
    forced: bool,
    own: bool,
    number: usize,
    deleted: usize,
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
    fn new(kinds: &[&str], is_forced: bool, own: bool) -> Self {
        let policy = if is_forced { forced() } else { planned() };
        let mut bench = Bench::new(DrainPolicy { own_pod: own.then(|| uid("web-0")), ..policy });
        bench.view.apply(Change::DaemonSet(uid("agent")));
        for (number, kind) in kinds.iter().enumerate() {
            bench.put(of_kind(kind, number));
        }
        let number = kinds.len();
        let (in_flight, accepted) = (Vec::new(), BTreeSet::new());
        Self { bench, in_flight, accepted, denied: false, forced: is_forced, own, number, deleted: 0 }
    }

    fn happens(&mut self, event: &Event) {
        match event {
            Event::Answer(which, answer) => {
                if self.in_flight.is_empty() {
                    return;
                }
                let pod = self.in_flight.swap_remove(which.index(self.in_flight.len()));
                let there = self.bench.view.pods_on("od-1").any(|other| other.uid == pod.uid);
                match answer {
                    EvictAnswer::Accepted | EvictAnswer::Gone => drop(self.accepted.insert(pod.uid.clone())),
                    EvictAnswer::Denied(_) => self.denied |= there,
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
                    self.bench.going(&name);
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
        }
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
        let until = if self.forced { second(110) } else { second(3_600) };
        self.bench.overdue();
        match self.bench.observe() {
            Next::Work { removals, wake } => {
                prop_assert!(!to_go.is_empty(), "work without pods");
                prop_assert!(now < until && !self.denied, "work past the end");
                prop_assert!(now < wake && wake <= until, "{:?} is no time to look again at {:?}", wake, now);
                for removal in removals {
                    self.is_asked(&removal, &to_go)?;
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
                Ok(Some(End::OwnPodLeft))
            }
            Next::Failed(blocked) => {
                prop_assert!(!blocked.is_empty(), "a failure without a pod");
                let there = |name: &str| to_go.iter().any(|other| other == name);
                prop_assert!(blocked.iter().all(|blocked| there(&blocked.pod.name)));
                let refused = |name: &String| name.starts_with("bare") || name.starts_with("opted-out");
                if !self.forced && to_go.iter().any(refused) {
                    Ok(Some(End::NotEvictable))
                } else if self.denied {
                    Ok(Some(End::Denied))
                } else {
                    prop_assert!(now >= until, "failed at {:?}: {:?}", now, blocked);
                    prop_assert_eq!(blocked.len(), to_go.len());
                    Ok(Some(End::Deadline))
                }
            }
        }
    }

    fn is_asked(&mut self, removal: &Removal, to_go: &[String]) -> Result<(), TestCaseError> {
        let Removal { pod, grace, delete, loses: _ } = removal;
        let seen = self.bench.view.pods_on("od-1").find(|seen| seen.uid == pod.uid);
        let Some(seen) = seen else { return Err(TestCaseError::fail(format!("{pod} is not there"))) };
        prop_assert!(to_go.contains(&pod.name.to_string()), "{} ought to stay", pod);
        prop_assert!(seen.deletion.is_none(), "{} is going already", pod);
        prop_assert!(!self.in_flight.contains(pod), "{} is asked for twice at the same time", pod);
        prop_assert!(!self.accepted.contains(&pod.uid), "{} was accepted already", pod);
        let own_last = !self.own || &*pod.name != "web-0" || to_go.len() == 1;
        prop_assert!(own_last, "the own pod goes before the others");
        if self.forced {
            prop_assert!(!delete || self.bench.now >= second(60), "{} is deleted too early", pod);
            let left = second(110).since(self.bench.now);
            prop_assert!(grace.unwrap_or(seen.grace) <= left, "{} has more time than there is", pod);
        } else {
            prop_assert!(!delete && grace.is_none(), "{} is not simply evicted", pod);
        }
        self.deleted += usize::from(*delete);
        self.in_flight.push(pod.clone());
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

fn stories() -> impl Strategy<Value = (Vec<&'static str>, bool, bool, Vec<Event>)> {
    (prop::collection::vec(select(KINDS.to_vec()), 0..9), any::<bool>(), any::<bool>(), events())
}

#[test]
fn the_generated_stories_reach_every_end() {
    let mut ends: BTreeMap<End, usize> = BTreeMap::new();
    let mut deleted = 0;
    for (kinds, is_forced, own, events) in samples(stories(), 1_500) {
        let mut story = Story::new(&kinds, is_forced, own);
        *ends.entry(story.goes_on(&events).unwrap()).or_default() += 1;
        deleted += story.deleted;
    }
    for end in [End::Empty, End::OwnPodLeft, End::Denied, End::Deadline, End::NotEvictable] {
        assert!(ends.get(&end).is_some_and(|often| *often >= 10), "{end:?} in {ends:?}");
    }
    assert!(deleted >= 100, "{deleted} pods deleted");
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
    fn whatever_happens_each_pod_is_asked_for_as_it_ought_to_be((kinds, is_forced, own, events) in stories()) {
        Story::new(&kinds, is_forced, own).goes_on(&events)?;
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
        is_forced in any::<bool>(),
    ) {
        let mut story = Story::new(&kinds, is_forced, false);
        let expected: BTreeSet<String> = story.to_go().into_iter().collect();
        let evicted = story.bench.let_go();
        prop_assert_eq!(evicted.len(), expected.len(), "none is asked for twice");
        prop_assert_eq!(evicted.into_iter().collect::<BTreeSet<_>>(), expected);
        prop_assert_eq!(story.bench.observe(), Next::Empty { own_pod_left: false });
        prop_assert_eq!(story.bench.now, Instant::default(), "no time passed");
        prop_assert_eq!(story.bench.machine.in_the_way(&story.bench.view, "od-1"), []);
    }
}
