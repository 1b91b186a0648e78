//! Anything that can go wrong at any request of a migration of two nodes: the real run loop on the real adapter, in
//! front of a strict API server that is backed by the model's world.
//!
//! ```text
//!  Migrator ──► KubeCluster ──► kube::Client ──► Connection ──► Process ──► World: scheduler, controllers, autoscaler
//!          └──► NodeObject                           │  ▲                     │
//!                                            faults ─┘  └── Store, Feed ◄─────┘ every change, in one order
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy's allowance for tests does not reach their helpers: a test that can't go on is to fail"
)]

mod annotation;
mod cluster;
mod fault;
#[cfg(test)]
mod faults;
mod feed;
mod object;
mod patch;
mod process;
mod request;
mod server;
mod status;
mod store;
#[cfg(test)]
mod strictness;
mod trial;
