use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

use super::*;

const DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

fn me(identity: &str) -> Settings {
    Settings {
        namespace: "ours".to_owned(),
        name: "spot-migrator".to_owned(),
        identity: identity.to_owned(),
        lease_duration: DURATION,
        renew_deadline: RENEW_DEADLINE,
        retry_period: Duration::from_secs(2),
    }
}

fn at(seconds: u64) -> Instant {
    Instant(Duration::from_secs(seconds))
}

fn wall(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn lease(spec: impl Into<Value>) -> Lease {
    let metadata = json!({"name": "spot-migrator", "namespace": "ours", "resourceVersion": "7", "labels": {"a": "b"}});
    serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec.into(),
    }))
    .unwrap()
}

/// A lease that `holder` renewed at noon.
fn held_by(holder: &str) -> Lease {
    lease(json!({
        "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2026-01-01T11:00:00.000000Z", "renewTime": "2026-01-01T12:00:00.000000Z",
    }))
}

fn seen(lease: Lease, since: Instant) -> Seen {
    Seen::new(None, lease, since)
}

fn spec(claim: &Claim) -> Value {
    match claim {
        Claim::Acquire(lease) | Claim::Renew(lease) => serde_json::to_value(lease).unwrap()["spec"].clone(),
        Claim::WaitUntil(at) => panic!("it waits until {at:?}"),
    }
}

#[test]
fn where_there_is_none_one_is_made_as_client_go_writes_it() {
    let Claim::Acquire(lease) = claim(None, &me("a"), at(0), wall("2026-01-01T12:00:00.1234567Z")) else {
        panic!("nobody has it");
    };
    let text = concat!(
        r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","#,
        r#""metadata":{"name":"spot-migrator","namespace":"ours"},"#,
        r#""spec":{"holderIdentity":"a","leaseDurationSeconds":15,"acquireTime":"2026-01-01T12:00:00.123456Z","#,
        r#""renewTime":"2026-01-01T12:00:00.123456Z","leaseTransitions":0}}"#,
    );
    assert_eq!(serde_json::to_string(&lease).unwrap(), text);
}

#[test]
fn a_held_lease_is_left_alone_until_it_was_seen_unchanged_for_its_whole_duration() {
    let seen = seen(held_by("other"), at(100));
    let noon = wall("2026-01-01T12:00:00Z");
    for now in [100, 101, 114] {
        assert_eq!(claim(Some(&seen), &me("a"), at(now), noon), Claim::WaitUntil(at(115)), "{now}");
    }
    let taken = claim(Some(&seen), &me("a"), at(115), wall("2026-01-01T12:00:15Z"));
    assert!(matches!(taken, Claim::Acquire(_)), "{taken:?}");
    let expected = json!({
        "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 4,
        "acquireTime": "2026-01-01T12:00:15.000000Z", "renewTime": "2026-01-01T12:00:15.000000Z",
    });
    assert_eq!(spec(&taken), expected);
}

#[test]
fn the_duration_is_the_holders_and_ours_only_where_it_has_none() {
    let noon = wall("2026-01-01T12:00:00Z");
    for (seconds, expires) in [(json!(60), 160), (json!(1), 101), (json!(0), 115), (json!(-1), 115), (json!(null), 115)]
    {
        let seen = seen(lease(json!({"holderIdentity": "other", "leaseDurationSeconds": seconds})), at(100));
        assert_eq!(claim(Some(&seen), &me("a"), at(100), noon), Claim::WaitUntil(at(expires)), "{seconds}");
    }
}

#[test]
fn whoever_takes_or_renews_it_writes_its_own_duration() {
    for holder in ["a", ""] {
        let before = lease(json!({"holderIdentity": holder, "leaseDurationSeconds": 60}));
        let claimed = claim(Some(&seen(before, at(0))), &me("a"), at(0), wall("2026-01-01T12:00:00Z"));
        assert_eq!(spec(&claimed)["leaseDurationSeconds"], 15, "{holder:?}");
    }
}

#[test]
fn our_own_lease_is_renewed_at_once_however_old_it_is() {
    let renewed = claim(Some(&seen(held_by("a"), at(0))), &me("a"), at(1_000), wall("2026-01-01T13:00:00Z"));
    assert!(matches!(renewed, Claim::Renew(_)), "{renewed:?}");
    let expected = json!({
        "holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2026-01-01T11:00:00.000000Z", "renewTime": "2026-01-01T13:00:00.000000Z",
    });
    assert_eq!(spec(&renewed), expected);
}

#[test]
fn a_lease_that_was_given_back_is_taken_at_once() {
    let released = held_by("other").released(wall("2026-01-01T12:00:01Z"));
    let expected = json!({
        "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3,
        "acquireTime": "2026-01-01T12:00:01.000000Z", "renewTime": "2026-01-01T12:00:01.000000Z",
    });
    assert_eq!(serde_json::to_value(&released).unwrap()["spec"], expected);
    for free in [released, lease(json!({})), lease(json!({"holderIdentity": ""}))] {
        let taken = claim(Some(&seen(free.clone(), at(0))), &me("a"), at(0), wall("2026-01-01T12:00:02Z"));
        assert!(matches!(taken, Claim::Acquire(_)), "{free:?}: {taken:?}");
        assert_eq!(spec(&taken)["holderIdentity"], "a");
    }
}

#[test]
fn what_is_not_the_elections_is_written_back_as_it_was() {
    let mut held = held_by("a");
    held.spec.rest.insert("strategy".to_owned(), json!("OldestEmulationVersion"));
    let Claim::Renew(renewed) = claim(Some(&seen(held.clone(), at(0))), &me("a"), at(0), wall("2026-01-01T12:00:01Z"))
    else {
        panic!("it is ours");
    };
    assert_eq!((&renewed.metadata, &renewed.spec.rest), (&held.metadata, &held.spec.rest));
}

#[test]
fn only_a_change_of_the_record_is_a_renewal() {
    let before = seen(held_by("other"), at(100));
    let mut labelled = held_by("other");
    labelled.metadata.insert("resourceVersion".to_owned(), json!("8"));
    labelled.metadata.insert("labels".to_owned(), json!({"c": "d"}));
    assert_eq!(Seen::new(Some(&before), labelled, at(110)).since, at(100));

    for (field, value) in [
        ("holderIdentity", json!("third")),
        ("renewTime", json!("2026-01-01T12:00:00.000001Z")),
        ("renewTime", json!("2026-01-01T11:59:00.000000Z")),
        ("acquireTime", json!("2026-01-01T11:00:01.000000Z")),
        ("leaseTransitions", json!(4)),
        ("leaseDurationSeconds", json!(16)),
    ] {
        let mut spec = serde_json::to_value(&held_by("other").spec).unwrap();
        spec[field] = value;
        assert_eq!(Seen::new(Some(&before), lease(spec), at(110)).since, at(110), "{field}");
    }
}

#[test]
fn every_renewal_has_a_later_time_though_the_wall_clock_stands_still_or_goes_back() {
    for (clock, expected) in [
        ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00.000001Z"),
        ("2026-01-01T12:00:00.0000009Z", "2026-01-01T12:00:00.000001Z"),
        ("2025-01-01T00:00:00Z", "2026-01-01T12:00:00.000001Z"),
        ("2026-01-01T12:00:00.000002Z", "2026-01-01T12:00:00.000002Z"),
    ] {
        let renewed = claim(Some(&seen(held_by("a"), at(0))), &me("a"), at(0), wall(clock));
        assert_eq!(spec(&renewed)["renewTime"], expected, "{clock}");
    }
    for unreadable in ["", "yesterday", "9999-12-31T23:59:59.999999Z"] {
        let held = lease(json!({"holderIdentity": "a", "renewTime": unreadable}));
        let renewed = claim(Some(&seen(held, at(0))), &me("a"), at(0), wall("2026-01-01T12:00:00Z"));
        assert!(spec(&renewed)["renewTime"].is_string(), "{unreadable}");
    }
}

/// What one candidate does next, or time does.
#[derive(Clone, Copy, Debug)]
enum Move {
    Pass(u16),
    Look(usize),
    Send(usize),
    /// The oldest write that is under way reaches the store.
    Arrive,
    /// The same, and its answer is lost.
    ArriveUnanswered,
    /// The oldest write that is under way is lost.
    Vanish,
}

fn moves(candidates: usize) -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => (0_u16..4_000).prop_map(Move::Pass),
        1 => (0_u16..20_000).prop_map(Move::Pass),
        4 => (0..candidates).prop_map(Move::Look),
        4 => (0..candidates).prop_map(Move::Send),
        6 => Just(Move::Arrive),
        1 => Just(Move::ArriveUnanswered),
        1 => Just(Move::Vanish),
    ]
}

struct Candidate {
    me: Settings,
    seen: Option<Seen>,
    /// Until when it relies on its lease.
    until: Instant,
    /// By how much its clocks are off.
    monotonic: Duration,
    wall: i64,
}

struct UnderWay {
    candidate: usize,
    lease: Lease,
    /// The version that it may replace; none: there is to be no lease.
    replaces: Option<u64>,
    sent: Instant,
}

/// A store that compares and swaps, and candidates whose clocks have nothing in common.
struct Race {
    now: Duration,
    stored: Option<(u64, Lease)>,
    version: u64,
    under_way: VecDeque<UnderWay>,
    candidates: Vec<Candidate>,
    /// When somebody began to lead.
    terms: Vec<(usize, Duration)>,
}

impl Race {
    fn new(clocks: &[(u32, i32)]) -> Self {
        let candidate = |(index, (monotonic, wall)): (usize, &(u32, i32))| Candidate {
            me: me(&format!("candidate-{index}")),
            seen: None,
            until: Instant(Duration::ZERO),
            monotonic: Duration::from_millis(u64::from(*monotonic)),
            wall: i64::from(*wall),
        };
        let candidates = clocks.iter().enumerate().map(candidate).collect();
        let (now, under_way) = (Duration::ZERO, VecDeque::new());
        Self { now, stored: None, version: 0, under_way, candidates, terms: Vec::new() }
    }

    fn clock(&self, candidate: usize) -> Instant {
        Instant(self.now + self.candidates[candidate].monotonic)
    }

    fn wall(&self, candidate: usize) -> Timestamp {
        let millis = i64::try_from(self.now.as_millis()).unwrap() + self.candidates[candidate].wall;
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn look(&mut self, candidate: usize) {
        let now = self.clock(candidate);
        let before = self.candidates[candidate].seen.take();
        let stored = self.stored.as_ref().map(|(_, lease)| lease.clone());
        self.candidates[candidate].seen = stored.map(|lease| Seen::new(before.as_ref(), lease, now));
    }

    fn claim(&self, candidate: usize) -> Claim {
        let Candidate { seen, me, .. } = &self.candidates[candidate];
        claim(seen.as_ref(), me, self.clock(candidate), self.wall(candidate))
    }

    fn send(&mut self, candidate: usize) {
        let (Claim::Acquire(lease) | Claim::Renew(lease)) = self.claim(candidate) else { return };
        let version = |seen: &Seen| seen.lease.metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
        let replaces = self.candidates[candidate].seen.as_ref().map(version);
        self.under_way.push_back(UnderWay { candidate, lease, replaces, sent: self.clock(candidate) });
    }

    /// Returns whether it was written.
    fn arrive(&mut self, answered: bool) -> bool {
        let Some(UnderWay { candidate, mut lease, replaces, sent }) = self.under_way.pop_front() else { return false };
        if self.stored.as_ref().map(|(version, _)| *version) != replaces {
            return false;
        }
        self.version += 1;
        lease.metadata.insert("resourceVersion".to_owned(), json!(self.version.to_string()));
        self.stored = Some((self.version, lease.clone()));
        if answered {
            let now = self.clock(candidate);
            if self.candidates[candidate].until <= now {
                self.terms.push((candidate, self.now));
            }
            let candidate = &mut self.candidates[candidate];
            candidate.seen = Some(Seen::new(candidate.seen.as_ref(), lease, now));
            candidate.until = sent + RENEW_DEADLINE;
        }
        true
    }

    fn leaders(&self) -> Vec<usize> {
        (0..self.candidates.len()).filter(|index| self.clock(*index) < self.candidates[*index].until).collect()
    }

    fn play(&mut self, next: Move) {
        match next {
            Move::Pass(millis) => self.now += Duration::from_millis(u64::from(millis)),
            Move::Look(candidate) => self.look(candidate),
            Move::Send(candidate) => self.send(candidate),
            Move::Arrive => drop(self.arrive(true)),
            Move::ArriveUnanswered => drop(self.arrive(false)),
            Move::Vanish => drop(self.under_way.pop_front()),
        }
    }
}

fn clocks(candidates: usize) -> impl Strategy<Value = Vec<(u32, i32)>> {
    vec((any::<u32>(), any::<i32>()), candidates)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn two_never_lead_at_the_same_time(clocks in clocks(3), moves in vec(moves(3), 1..120)) {
        let mut race = Race::new(&clocks);
        for next in moves {
            race.play(next);
            prop_assert!(race.leaders().len() < 2, "{:?} lead", race.leaders());
        }
    }

    #[test]
    fn of_those_that_try_a_free_lease_at_once_exactly_one_takes_it(
        clocks in clocks(4),
        kind in 0..3,
        order in vec(any::<Index>(), 8),
    ) {
        let mut race = Race::new(&clocks);
        let mut others = held_by("other");
        if kind == 1 {
            others = others.released(wall("2026-01-01T12:00:01Z"));
        }
        others.metadata.insert("resourceVersion".to_owned(), json!("7"));
        race.version = 7;
        race.stored = (kind > 0).then_some((7, others));
        (0..4).for_each(|candidate| race.look(candidate));
        race.now += DURATION;
        for who in order {
            race.send(who.index(4));
        }
        let written = (0..8).filter(|_| race.arrive(true)).count();
        prop_assert!(race.leaders().len() == 1 && written == 1, "{written} wrote, {:?} lead", race.leaders());
    }

    #[test]
    fn a_lease_that_is_renewed_is_never_taken_however_seldom_one_looks(
        clocks in clocks(2),
        renewals in vec(1_u64..15_000, 1..20),
        looks in vec(0_u64..40_000, 1..20),
    ) {
        let mut race = Race::new(&clocks);
        race.look(0);
        race.send(0);
        race.arrive(true);
        let mut moments: Vec<(u64, bool)> = Vec::new();
        for (steps, renews) in [(&renewals, true), (&looks, false)] {
            let mut moment = 0;
            for step in steps {
                moment += step;
                moments.push((moment, renews));
            }
        }
        moments.sort_unstable();
        let last = moments.iter().rposition(|(_, renews)| *renews).unwrap();
        for (moment, renews) in moments.into_iter().take(last + 1) {
            race.now = Duration::from_millis(moment);
            if renews {
                race.look(0);
                race.send(0);
                prop_assert!(race.arrive(true));
            } else {
                race.look(1);
                let claimed = race.claim(1);
                prop_assert!(matches!(claimed, Claim::WaitUntil(_)), "at {moment}: {claimed:?}");
            }
        }
    }

    #[test]
    fn wall_clocks_decide_nothing(
        monotonic in clocks(3),
        skewed in vec(any::<i32>(), 3),
        moves in vec(moves(3), 1..80),
    ) {
        let same: Vec<_> = monotonic.iter().map(|(monotonic, _)| (*monotonic, 0)).collect();
        let skewed: Vec<_> = same.iter().zip(skewed).map(|((monotonic, _), wall)| (*monotonic, wall)).collect();
        let (mut one, mut other) = (Race::new(&same), Race::new(&skewed));
        for next in moves {
            one.play(next);
            other.play(next);
            prop_assert_eq!(one.leaders(), other.leaders());
        }
        prop_assert_eq!(one.terms, other.terms);
    }

    #[test]
    fn a_lease_whose_holder_is_gone_is_taken_after_its_duration_and_no_sooner(
        clocks in clocks(2),
        first in 0_u64..60_000,
        waited in 0_u64..30_000,
    ) {
        let mut race = Race::new(&clocks);
        race.look(0);
        race.send(0);
        race.arrive(true);
        race.now += Duration::from_millis(first);
        race.look(1);
        race.now += Duration::from_millis(waited);
        race.look(1);
        let expired = Duration::from_millis(waited) >= DURATION;
        prop_assert_eq!(matches!(race.claim(1), Claim::Acquire(_)), expired);
    }
}
