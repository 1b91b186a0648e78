//! The source `metadata` before a strict metadata service on the loopback: what it announces, and every odd answer.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what fails in a test ends it")]

mod faults;
mod fuzz;
mod machine;
#[path = "../../../spot-core/tests/fuzz/mutator.rs"]
mod mutator;
mod notices;
mod stub;
mod support;
