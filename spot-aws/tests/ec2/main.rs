//! The provider `aws` before a strict double of AWS: what it says of nodes, what it refuses, and how instances go.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what fails in a test ends it")]

mod balancers;
mod balancers_of_fleets;
mod classes;
mod connecting;
#[expect(dead_code, reason = "node pools have tests of their own")]
mod double;
mod faults;
mod fleets;
mod judgement;
mod pending;
mod rebalancing;
mod refusals;
mod rights;
mod spot_prices;
mod strictness;
mod support;
mod telling;
mod termination;
