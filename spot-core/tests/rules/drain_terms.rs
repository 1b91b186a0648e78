//! Terms that get stricter in mid-drain, pods that have more time than there is, and drains that begin too late.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};

use futures::future::FutureExt;
use proptest::prelude::*;
use proptest::sample::select;
use spot_core::drain::machine::{How, Next};
use spot_core::drain::plan::Force;
use spot_core::interruption::{Hold, Limits, Terms};
use spot_core::pod::PodSnapshot;
use spot_core::ports::{EvictAnswer, Instant};

use crate::support::build::{budget, noon, pod, secs};
use crate::support::config;
use crate::support::drain::{Bench, budget_answer, forced, limits, planned, second};

fn with_grace(name: &str, grace: u64) -> PodSnapshot {
    PodSnapshot { grace: secs(grace), ..pod(name, name, "od-1") }
}

/// What is asked for now: pods and how.
fn asked(bench: &mut Bench) -> Vec<(String, How)> {
    bench.work().0.into_iter().map(|removal| (removal.pod.name.to_string(), removal.how)).collect()
}

fn evict(name: &str, grace: u64) -> (String, How) {
    (name.to_owned(), How::Evict(Some(secs(grace))))
}

/// Whether somebody who waits was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Woken {
    fn polls(self: &Arc<Self>, waits: Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        waits.poll(&mut Context::from_waker(&Arc::clone(self).into()))
    }

    fn was(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A pod that was told to stop, and has until then.
fn going_until(name: &str, ends: u64) -> PodSnapshot {
    PodSnapshot { deletion: Some(noon() + secs(ends)), ..with_grace(name, 600) }
}

#[test]
fn a_planned_drain_that_is_tightened_becomes_a_forced_one() {
    let mut bench = Bench::new(planned());
    bench.put(with_grace("c", 600));
    bench.put(PodSnapshot { controller: None, deletion: None, ..with_grace("z", 5) });
    assert_eq!(bench.failure(), ["shop/z (unmanaged_pod: pod shop/z)"]);
    bench.machine.tighten(limits(100, Some(50), Force::Forced));
    bench.budget(budget("c", 0));
    assert_eq!(bench.evicts(), ["z"]);
    bench.answer("z", EvictAnswer::Accepted);
    bench.now = second(50);
    assert_eq!(asked(&mut bench), [("c".to_owned(), How::Delete(secs(49)))]);
}

#[test]
fn tightening_never_puts_a_deadline_off() {
    let mut bench = Bench::new(forced());
    bench.machine.tighten(limits(500, Some(400), Force::Planned));
    bench.put(with_grace("c", 5));
    bench.budget(budget("c", 0));
    bench.now = second(50);
    assert_eq!(bench.wake(), second(60));
    bench.now = second(110);
    assert_eq!(bench.failure(), ["shop/c (budget_allows_none: budget shop/c)"]);
}

#[test]
fn a_pod_that_is_going_with_more_time_than_there_is_is_told_again_once() {
    let mut bench = Bench::new(forced());
    bench.now = second(10);
    bench.put(going_until("long", 600));
    bench.put(going_until("short", 110));
    assert_eq!(asked(&mut bench), [evict("long", 99)], "the other one is gone in time");
    bench.answer("long", EvictAnswer::ServerError("boom".to_owned()));
    assert_eq!(asked(&mut bench), [], "not at once");
    bench.now = bench.wake();
    assert!(bench.now < second(13), "{:?}", bench.now);
    assert_eq!(asked(&mut bench).len(), 1, "what failed is tried again");
    bench.answer("long", EvictAnswer::Accepted);
    bench.pass(secs(50));
    assert_eq!(asked(&mut bench), [], "the server may take its time to say so, or have its own idea of the time");

    bench.put(going_until("long", 109));
    bench.now = second(70);
    bench.machine.tighten(limits(90, None, Force::Planned));
    assert_eq!(asked(&mut bench), [evict("long", 19), evict("short", 19)]);
}

#[test]
fn a_planned_drain_leaves_pods_that_are_going_all_the_time_they_have() {
    let mut bench = Bench::new(planned());
    bench.put(going_until("long", 86_400));
    assert_eq!(asked(&mut bench), []);
    bench.machine.tighten(limits(110, None, Force::Forced));
    assert_eq!(asked(&mut bench), [evict("long", 109)]);
}

#[test]
fn a_drain_that_begins_too_late_asks_for_every_pod_once_all_the_same() {
    for until in [0, 95, 100, 103] {
        let mut bench = Bench::new(planned());
        bench.machine.tighten(limits(until, None, Force::Forced));
        bench.now = second(100);
        bench.put(with_grace("a", 30));
        bench.put(PodSnapshot { grace: secs(0), ..with_grace("none", 0) });
        bench.put(going_until("long", 600));
        let grace = if until == 103 { 2 } else { 1 };
        let none = ("none".to_owned(), How::Evict(None));
        assert_eq!(asked(&mut bench), [evict("a", grace), evict("long", grace), none], "until {until}");
        bench.now = second(109);
        assert_eq!(asked(&mut bench), []);
        bench.gone("none");
        bench.now = second(110);
        assert_eq!(bench.failure().len(), 2);
    }
}

#[test]
fn a_drain_whose_time_is_cut_to_none_has_some_seconds_from_then_on() {
    let mut bench = Bench::new(forced());
    bench.put(with_grace("a", 30));
    bench.put(with_grace("c", 30));
    bench.budget(budget("c", 0));
    assert_eq!(bench.evicts(), ["a"]);
    bench.answer("a", EvictAnswer::Accepted);
    bench.going("a");
    bench.now = second(40);
    bench.machine.tighten(limits(20, Some(20), Force::Forced));
    assert_eq!(asked(&mut bench), [("c".to_owned(), How::Delete(secs(1)))], "the other one is over by now");
    bench.now = second(49);
    bench.machine.tighten(limits(20, Some(20), Force::Forced));
    assert!(matches!(bench.observe(), Next::Work { .. }));
    bench.now = second(50);
    assert_eq!(bench.failure().len(), 2, "the same limits again give no more time");
}

#[test]
fn a_budget_is_obeyed_until_the_time_at_which_it_stops_to_count_is_moved_up() {
    let mut bench = Bench::new(forced());
    bench.put(with_grace("c", 30));
    bench.work();
    bench.answer("c", budget_answer());
    bench.pass(secs(5));
    assert_eq!(asked(&mut bench), []);
    bench.machine.tighten(limits(110, Some(5), Force::Forced));
    assert_eq!(asked(&mut bench), [("c".to_owned(), How::Delete(secs(30)))]);
}

#[test]
fn whoever_waits_for_stricter_terms_wakes_when_they_are_and_at_no_other_time() {
    let woken = Arc::new(Woken::default());
    let terms = Terms::new(second(110), None, Force::Planned);
    let seen = terms.limits();
    let waiting = terms.clone();
    let mut stricter = Box::pin(waiting.stricter_than(seen));
    assert_eq!(woken.polls(stricter.as_mut()), Poll::Pending);
    assert!(!terms.tighten(second(110), None, Force::Planned), "the same again");
    assert!(!terms.tighten(second(500), None, Force::Planned), "more time");
    assert_eq!(woken.polls(stricter.as_mut()), Poll::Pending);
    assert!(!woken.was());
    assert!(terms.tighten(second(500), Some(second(90)), Force::Forced));
    assert_eq!(terms.limits(), limits(110, Some(90), Force::Forced));
    assert!(woken.was());
    assert_eq!(woken.polls(stricter.as_mut()), Poll::Ready(()));
    assert_eq!(terms.stricter_than(seen).now_or_never(), Some(()));
    assert_eq!(terms.stricter_than(terms.limits()).now_or_never(), None);
}

#[test]
fn a_hold_lasts_until_the_latest_time_that_it_was_set_to() {
    let woken = Arc::new(Woken::default());
    let hold = Hold::default();
    assert_eq!(hold.until(second(0)), None);
    let waiting = hold.clone();
    let mut begins = Box::pin(waiting.begins(second(10)));
    hold.hold(second(5));
    assert_eq!(woken.polls(begins.as_mut()), Poll::Pending, "it is over by then");
    hold.hold(second(30));
    assert!(woken.was());
    hold.hold(second(20));
    assert_eq!(woken.polls(begins.as_mut()), Poll::Ready(()));
    assert_eq!(hold.until(second(29)), Some(second(30)));
    assert_eq!(hold.until(second(30)), None);
    assert_eq!(hold.begins(second(29)).now_or_never(), Some(()));
    assert_eq!(hold.begins(second(30)).now_or_never(), None);
}

fn any_limits() -> impl Strategy<Value = (u64, Option<u64>, Force)> {
    (0_u64..200, proptest::option::of(0_u64..200), select(vec![Force::Planned, Force::Forced]))
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn terms_only_ever_get_stricter(all in prop::collection::vec(any_limits(), 1..8)) {
        let (until, delete_blocked, force) = all[0];
        let terms = Terms::new(second(until), delete_blocked.map(second), force);
        for (number, (until, delete_blocked, force)) in all.iter().enumerate() {
            let before = terms.limits();
            let tightened = terms.tighten(second(*until), delete_blocked.map(second), *force);
            let Limits { until, delete_blocked, force } = terms.limits();
            prop_assert_eq!(tightened, terms.limits() != before);
            // Each is the strictest of all that were ever asked for.
            let asked = &all[..=number];
            prop_assert_eq!(until, asked.iter().map(|limits| second(limits.0)).min().unwrap_or_default());
            let earliest: Vec<Instant> = asked.iter().filter_map(|limits| limits.1).map(second).collect();
            prop_assert_eq!(delete_blocked, earliest.iter().min().copied());
            prop_assert_eq!(force == Force::Forced, asked.iter().any(|limits| limits.2 == Force::Forced));
        }
    }
}
