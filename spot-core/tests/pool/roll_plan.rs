//! What is next in a roll, as a pure function, held against a pool that does what it likes.

use proptest::prelude::*;
use spot_core::pool::roll::{NewFleet, Next, OldNode, Sides, Terms, TooHeavy, next};

/// A pool of which machines come and go.
#[derive(Clone, Debug)]
struct Pool {
    terms: Terms,
    /// Old machines: their weight, and whether they are ready.
    old: Vec<(u32, bool)>,
    /// How much of them is on its way out.
    leaving: u32,
    new: Vec<(u32, bool)>,
    new_target: u32,
    /// What the new fleet buys, in turn.
    offers: Vec<u32>,
}

fn sum(machines: &[(u32, bool)], counts: impl Fn(bool) -> bool) -> u32 {
    machines.iter().filter(|(_, ready)| counts(*ready)).map(|(weight, _)| weight).sum()
}

impl Pool {
    fn sides(&self) -> Sides {
        Sides {
            old: self.old.iter().map(|&(weight, is_ready)| OldNode { weight, is_ready }).collect(),
            leaving: self.leaving,
            new: NewFleet { target: self.new_target, ready: sum(&self.new, |ready| ready) },
        }
    }

    fn there(&self) -> u32 {
        sum(&self.old, |_| true) + self.leaving + sum(&self.new, |_| true)
    }

    fn ready(&self) -> u32 {
        sum(&self.old, |ready| ready) + sum(&self.new, |ready| ready)
    }

    fn launch_one(&mut self, turn: usize) -> bool {
        let lacks = sum(&self.new, |_| true) < self.new_target;
        if lacks {
            self.new.push((self.offers[turn % self.offers.len()], false));
        }
        lacks
    }

    /// The cloud and the nodes do something.
    fn suffer(&mut self, what: u8, which: usize) {
        let toggle = |machines: &mut Vec<(u32, bool)>| {
            let count = machines.len();
            if let Some(machine) = machines.get_mut(which % count.max(1)) {
                machine.1 = !machine.1;
            }
        };
        match what % 7 {
            0 => drop(self.launch_one(which)),
            1 => toggle(&mut self.new),
            2 => toggle(&mut self.old),
            3 if !self.new.is_empty() => drop(self.new.remove(which % self.new.len())),
            4 if !self.old.is_empty() => drop(self.old.remove(which % self.old.len())),
            5 if !self.old.is_empty() => self.leaving += self.old.remove(which % self.old.len()).0,
            6 => self.leaving = 0,
            _nothing => {}
        }
    }

    /// Everything that was asked for comes, and is ready.
    fn thrive(&mut self) {
        while self.launch_one(self.new.len()) {}
        self.leaving = 0;
        self.old.iter_mut().chain(&mut self.new).for_each(|machine| machine.1 = true);
    }

    /// Does what is next; of the old machines that may go, those at the front of `order` first.
    fn follow(&mut self, next: &Next, order: usize) {
        match next {
            Next::Grow(to) => {
                assert!(*to > self.new_target && *to <= self.terms.capacity, "{to}");
                self.new_target = *to;
            }
            Next::Retire { room } => {
                let mut left = *room;
                let turn = order % self.old.len();
                self.old.rotate_left(turn);
                let before = self.old.clone();
                self.old.retain(|(weight, ready)| {
                    let fits = !ready || *weight <= left;
                    if fits && *ready {
                        left -= weight;
                    }
                    !fits
                });
                assert!(self.old.len() < before.len(), "somebody may go: {before:?}, {room}");
            }
            Next::Wait | Next::Done | Next::Refused(_) => {}
        }
    }
}

fn pool() -> impl Strategy<Value = Pool> {
    let weights = |most: usize| proptest::collection::vec((1_u32..5, proptest::bool::weighted(0.9)), 0..most);
    (1_u32..14, 0_u32..8, 0_u32..8, weights(7), weights(3), proptest::collection::vec(1_u32..5, 1..4)).prop_map(
        |(capacity, surge, unavailable, old, new, offers)| {
            let new_target = sum(&new, |_| true).min(capacity);
            let terms = Terms { capacity, surge, unavailable };
            Pool { terms, old, leaving: 0, new, new_target, offers }
        },
    )
}

fn too_heavy(pool: &Pool) -> Option<TooHeavy> {
    let room = pool.terms.surge + pool.terms.unavailable;
    let weight = pool.old.iter().map(|(weight, _)| *weight).max()?;
    (weight > room).then_some(TooHeavy { weight, room })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_takes_no_more_away_and_adds_no_more_than_allowed(
        mut pool in pool(),
        events in proptest::collection::vec((any::<u8>(), 0_usize..20), 0..60),
    ) {
        let Terms { capacity, surge, unavailable } = pool.terms;
        // An earlier roll may have left more than these terms allow.
        let most = (capacity + surge).max(sum(&pool.old, |_| true) + pool.new_target);
        let most = pool.there().max(most + pool.offers.iter().max().unwrap() - 1);
        for (what, which) in events {
            pool.suffer(what, which);
            prop_assert!(pool.there() <= most, "{pool:?}");
            let step = next(&pool.terms, &pool.sides());
            let before = pool.ready();
            pool.follow(&step, which);
            let after = pool.ready();
            prop_assert!(after == before || after >= capacity.saturating_sub(unavailable), "{step:?}: {pool:?}");
        }
    }

    #[test]
    fn it_ends_and_waits_for_nothing_once_all_that_it_asked_for_is_there(mut pool in pool()) {
        let refused = too_heavy(&pool);
        let nodes = pool.old.len();
        for round in 0.. {
            pool.thrive();
            let step = next(&pool.terms, &pool.sides());
            match step {
                Next::Done => {
                    prop_assert!(pool.old.is_empty() && pool.ready() >= pool.terms.capacity, "{pool:?}");
                    prop_assert_eq!(refused, None);
                    break;
                }
                Next::Refused(why) => {
                    prop_assert_eq!(Some(why), refused);
                    prop_assert_eq!(pool.old.len(), nodes, "nothing was touched");
                    break;
                }
                Next::Grow(_) | Next::Retire { .. } => {}
                Next::Wait => prop_assert!(false, "it waits: {pool:?}"),
            }
            pool.follow(&step, round);
            prop_assert!(round < 3 * nodes + 3, "it goes on and on: {pool:?}");
        }
    }

    #[test]
    fn it_waits_only_while_something_is_still_to_come_or_to_become_ready(
        mut pool in pool(),
        events in proptest::collection::vec((any::<u8>(), 0_usize..20), 0..30),
    ) {
        for (what, which) in events {
            pool.suffer(what, which);
            let step = next(&pool.terms, &pool.sides());
            if step == Next::Wait {
                let sides = pool.sides();
                prop_assert!(sides.new.ready < sides.new.target || sides.leaving > 0, "for nothing: {pool:?}");
            }
            pool.follow(&step, which);
        }
    }
}

#[test]
fn a_node_that_is_not_ready_goes_though_nothing_ready_may() {
    let terms = Terms { capacity: 3, surge: 0, unavailable: 2 };
    let node = |is_ready| OldNode { weight: 2, is_ready };
    let sides = Sides { old: vec![node(true), node(false)], ..Sides::default() };
    assert_eq!(next(&terms, &sides), Next::Retire { room: 1 });
    let ready = Sides { old: vec![node(true)], leaving: 0, new: NewFleet { target: 1, ready: 0 } };
    assert_eq!(next(&terms, &ready), Next::Wait);
}

#[test]
fn the_refusal_says_what_would_help() {
    let terms = Terms { capacity: 6, surge: 1, unavailable: 1 };
    let sides = Sides { old: vec![OldNode { weight: 3, is_ready: true }], ..Sides::default() };
    let Next::Refused(why) = next(&terms, &sides) else { unreachable!("two units are no room for three") };
    assert!(why.to_string().ends_with("leave room for 2: allow 3 of them at least"), "{why}");
}

#[test]
fn what_is_on_its_way_out_keeps_its_place_until_it_is_gone() {
    let terms = Terms { capacity: 4, surge: 0, unavailable: 1 };
    let sides = Sides { leaving: 1, new: NewFleet { target: 3, ready: 3 }, ..Sides::default() };
    assert_eq!(next(&terms, &sides), Next::Wait);
    assert_eq!(next(&terms, &Sides { leaving: 0, ..sides }), Next::Grow(4));
}
