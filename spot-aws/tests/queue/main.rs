//! The notices of a queue, before a strict double of SQS and of Auto Scaling's lifecycle hooks.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what fails in a test ends it")]

mod checking;
mod deploying;
mod double;
mod hooks;
mod ignoring;
mod messages;
mod receiving;
mod settling;
mod support;
