//! What was asked lately: a run of many steps asks for what it has not asked for yet, and not for all of it each time.

use std::collections::{BTreeMap, BTreeSet};

use spot_core::ports::Instant;

use crate::provider::group::Group;
use crate::provider::instance::{FleetId, Instance, Keeper};
use crate::provider::maintain::Fleet;
use crate::provider::survey::Known;

/// Answers by key, each with the time at which it was asked for.
#[derive(Debug)]
pub(crate) struct Shelf<K, V>(BTreeMap<K, (Instant, V)>);

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, V: Clone> Shelf<K, V> {
    /// Which of `wanted` have no answer since then.
    pub(crate) fn missing(&self, wanted: &BTreeSet<K>, since: Instant) -> BTreeSet<K> {
        let known = |key: &&K| self.0.get(*key).is_none_or(|(at, _)| *at < since);
        wanted.iter().filter(known).cloned().collect()
    }

    /// Takes answers in: what was asked for and not answered is not there.
    pub(crate) fn take_in(&mut self, asked: &BTreeSet<K>, at: Instant, answers: BTreeMap<K, V>) {
        self.0.retain(|key, _| !asked.contains(key));
        self.0.extend(answers.into_iter().map(|(key, answer)| (key, (at, answer))));
    }

    /// The answers for `wanted`, however old.
    pub(crate) fn give(&self, wanted: &BTreeSet<K>) -> BTreeMap<K, V> {
        let answers = wanted.iter().filter_map(|key| Some((key, self.0.get(key)?)));
        answers.map(|(key, (_, answer))| (key.clone(), answer.clone())).collect()
    }

    /// Forgets what is not in `wanted`, so that what is gone takes no room.
    pub(crate) fn keep_only<T>(&mut self, wanted: &BTreeMap<K, T>) {
        self.0.retain(|key, _| wanted.contains_key(key));
    }

    /// Has it asked for again.
    pub(crate) fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }
}

/// All answers.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) instances: Shelf<String, Instance>,
    pub(crate) groups: Shelf<String, Group>,
    /// None where there is none, or one that keeps nothing.
    pub(crate) fleets: Shelf<FleetId, Option<Fleet>>,
    /// How much spot capacity the cluster's own fleets still launch, and when that was asked for.
    pub(crate) pending_spot: Option<(Instant, u32)>,
}

impl Cache {
    /// Forgets what a survey of all nodes has no use for.
    pub(crate) fn keep_only(&mut self, known: &Known) {
        self.instances.keep_only(&known.instances);
        self.groups.keep_only(&known.groups);
        let fleets = known.instances.values().filter_map(|instance| match &instance.keeper {
            Keeper::Fleet(fleet) => Some((fleet.clone(), instance)),
            Keeper::Group(_) | Keeper::Nobody => None,
        });
        self.fleets.keep_only(&fleets.collect::<BTreeMap<_, _>>());
    }
}
