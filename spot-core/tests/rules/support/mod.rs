//! Objects to build tests from, and strategies that generate them.

pub(crate) mod build;
pub(crate) mod drain;
pub(crate) mod generate;
pub(crate) mod scene;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FileFailurePersistence, TestRunner};

/// How properties are run: failures are kept beside the source.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..ProptestConfig::default()
    }
}

/// The same samples in every run, to show what a generator reaches.
pub(crate) fn samples<S: Strategy>(strategy: S, count: usize) -> impl Iterator<Item = S::Value> {
    let mut runner = TestRunner::deterministic();
    std::iter::repeat_with(move || strategy.new_tree(&mut runner).unwrap().current()).take(count)
}
