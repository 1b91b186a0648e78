//! Decisions and run loop for moving Kubernetes workloads from on-demand to spot nodes.
//!
//! A run looks at all nodes, judges which of them may go and why the others may not, and retires the best one: claims
//! it, drains it by its disruption budgets, takes it out of its load balancers, has its machine deleted, waits until it
//! is gone and its pods run elsewhere, and begins again. It stops when no on-demand node is left, or when one comes
//! back, for then spot is exhausted. Beside the runs, what the cloud announces of machines is answered
//! ([`Interruptions`](interruption::Interruptions)): a node is empty before its machine is taken. Pools of spot nodes grow,
//! shrink, are replaced and removed by the same retirement ([`Pools`](pool::Pools)).
//!
//! ```text
//! Schedule → view → survey → judge → rank → claim → drain → taint → detach → delete → gone → settled → created? ─┐
//!             ▲                                                                                      │ no        │ yes
//!             └──────────────────────────────────────────────────────────────────────────────────────┘          stop
//! ```
//!
//! It is not an adapter: it knows no API server and no cloud. Those are behind the traits in [`ports`], whose comments
//! are contracts. Neither does it know a runtime, a clock or an environment: time comes in as a value, and its futures
//! run on any executor.
//!
//! The decisions are usable alone, on any type that implements [`Node`]: [`select_node_for_deletion`], [`KnownNodes`],
//! [`judge()`], [`Schedule`]. The whole is [`Migrator`].
//!
//! # Cancel safety
//!
//! Dropping a future of a [`Migrator`] or of [`Pools`](pool::Pools) is a kill: nothing is cleaned up, and nothing has to be. What was begun is
//! recorded on its node before it has an effect elsewhere, and the next process finishes or releases it
//! ([`Migrator::recover`]; of a pool, the same call again). To end in order, set a [`Stop`](stop::Stop).
//!
//! # Features
//!
//! - `model`: a world of nodes, pods, budgets and an autoscaler under virtual time, behind the same ports.
//! - `test-util`: the model with faults and kills at any call, a checker of the promises, and constructors for tests of
//!   adapters.

pub mod budget;
pub mod capacity;
pub mod claim;
pub mod cloud;
pub mod decision;
pub mod drain;
pub mod error;
pub mod exposure;
pub mod interruption;
pub mod judge;
pub mod labels;
pub mod memory;
pub mod migrator;
#[cfg(feature = "model")]
pub mod model;
pub mod node;
pub mod placement;
pub mod pod;
pub mod pool;
pub mod ports;
pub mod progress;
pub mod reason;
pub mod retire;
mod run;
pub mod schedule;
pub mod selector;
pub mod settle;
pub mod stop;
pub mod view;
pub mod volume;
mod wait;
mod watched;

pub use decision::{KnownNodes, Preference, is_control_plane, select_node_for_deletion};
pub use judge::judge;
pub use migrator::Migrator;
pub use node::{Node, NodeSnapshot};
pub use schedule::{Schedule, ScheduleError};
