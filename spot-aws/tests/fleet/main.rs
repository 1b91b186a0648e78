//! Node pools before a strict double of AWS: what is made, changed and ended, and what is left alone.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what fails in a test ends it")]

mod capacity;
mod check;
mod creating;
#[expect(dead_code, unused_imports, reason = "the provider has tests of its own")]
#[path = "../ec2/double/mod.rs"]
mod double;
mod interrupted;
mod refusals;
mod rights;
mod roles;
#[expect(dead_code, reason = "the provider has tests of its own")]
#[path = "../ec2/support.rs"]
mod support;
mod telling;
mod world;
