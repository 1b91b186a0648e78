//! The labels, or the annotations, of a node.

use std::collections::BTreeMap;
use std::ops::Deref;

/// Values by key. It reads as the map that it holds.
///
/// The decisions ask each of many nodes for a few keys that hardly any node has. A filter beside the map answers that
/// without a look into the map, whose keys lie all over the memory: with 100,000 nodes that is eight times faster.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    filter: Filter,
    map: BTreeMap<String, String>,
}

/// Which keys may be there: a Bloom filter with two bits a key. With 20 keys it is wrong about one absent key in 13. The
/// bits of a key that was removed stay.
#[derive(Clone, Copy, Debug, Default)]
struct Filter(u128);

impl Labels {
    /// The value of a key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        if self.filter.excludes(key) { None } else { self.map.get(key).map(String::as_str) }
    }

    /// Sets a key, and returns the value that it had.
    pub fn insert(&mut self, key: String, value: String) -> Option<String> {
        self.filter.add(&key);
        self.map.insert(key, value)
    }

    /// Takes a key away, and returns the value that it had.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        self.map.remove(key)
    }
}

impl Deref for Labels {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

/// By what they hold; what they held before makes no difference.
impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl Eq for Labels {}

impl From<BTreeMap<String, String>> for Labels {
    fn from(map: BTreeMap<String, String>) -> Self {
        let mut filter = Filter::default();
        for key in map.keys() {
            filter.add(key);
        }
        Self { filter, map }
    }
}

impl FromIterator<(String, String)> for Labels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(labels: I) -> Self {
        labels.into_iter().collect::<BTreeMap<_, _>>().into()
    }
}

impl Extend<(String, String)> for Labels {
    fn extend<I: IntoIterator<Item = (String, String)>>(&mut self, labels: I) {
        for (key, value) in labels {
            self.insert(key, value);
        }
    }
}

impl Filter {
    fn add(&mut self, key: &str) {
        self.0 |= Self::bits(key);
    }

    fn excludes(self, key: &str) -> bool {
        let bits = Self::bits(key);
        self.0 & bits != bits
    }

    /// Keys often share their beginning, seldom both their length and their end.
    fn bits(key: &str) -> u128 {
        let end = key.bytes().rev().take(8).fold(key.len() as u64, |end, byte| end.rotate_left(7) ^ u64::from(byte));
        // Fibonacci hashing: the product's top bits depend on all bits of the factor.
        let mixed = end.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        1 << (mixed >> 57) | 1 << (mixed >> 50 & 127)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Filter, Labels};

    #[derive(Clone, Debug)]
    enum Step {
        Insert(String, String),
        Remove(String),
        Extend(Vec<(String, String)>),
    }

    /// Few keys, so that steps meet; of all lengths, so that every path of the filter is taken.
    fn keys() -> impl Strategy<Value = String> {
        "(|a|b|node-role.kubernetes.io/(master|control-plane)|é{1,5}|[a-c]{1,12})"
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (keys(), "[a-z]{0,3}").prop_map(|(key, value)| Step::Insert(key, value)),
            keys().prop_map(Step::Remove),
            prop::collection::vec((keys(), "[a-z]{0,3}"), 0..4).prop_map(Step::Extend),
        ];
        prop::collection::vec(step, 0..30)
    }

    proptest! {
        #[test]
        fn they_hold_what_a_map_would(
            first in prop::collection::btree_map(keys(), "[a-z]{0,3}", 0..10),
            steps in steps(),
            asked in prop::collection::vec(keys(), 0..10),
        ) {
            let mut map: BTreeMap<String, String> = first.clone();
            let mut labels = Labels::from(first);
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        prop_assert_eq!(labels.insert(key.clone(), value.clone()), map.insert(key, value));
                    }
                    Step::Remove(key) => prop_assert_eq!(labels.remove(&key), map.remove(&key)),
                    Step::Extend(more) => {
                        labels.extend(more.clone());
                        map.extend(more);
                    }
                }
            }
            for key in asked.iter().chain(map.keys()) {
                prop_assert_eq!(labels.value(key), map.get(key).map(String::as_str));
            }
            prop_assert_eq!(&*labels, &map);
            prop_assert_eq!(&labels, &map.into_iter().collect::<Labels>(), "whatever it held before");
        }
    }

    #[test]
    fn the_filter_excludes_most_of_what_is_not_there() {
        let mut filter = Filter::default();
        for number in 0..20 {
            filter.add(&format!("example.com/label-{number}"));
        }
        let passed = (0..1000).filter(|number| !filter.excludes(&format!("example.org/other-{number}"))).count();
        assert!(passed < 150, "{passed} of 1000 passed");
    }
}
