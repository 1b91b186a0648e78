//! Work on a pool, on the model: what it does when all goes well, when others interfere, and when anything at all goes
//! wrong.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy's allowance for tests does not reach their helpers: a test that can't go on is to fail"
)]

mod leftovers;
mod remove;
mod roll;
mod roll_others;
mod roll_plan;
mod roll_troubles;
mod scale;
mod support;
mod unnamed;
