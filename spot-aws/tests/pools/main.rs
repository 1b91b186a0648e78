//! The pure parts of node pools: what a pool asks for, what is wrong with it, and what exists other than it says.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what fails in a test ends it")]

mod asking;
mod differing;
mod faults;
mod hashing;
mod reading;
mod registering;
mod support;
mod tagging;
mod volumes;
