//! The Kubernetes adapter of `spot-core`: it watches, patches, evicts and decodes. It decides nothing.
//!
//! ```text
//!  API server ──list, watch──► snapshot ──► one View ──► KubeLive     (spot-core's `Live`)
//!      ▲                                       ▲
//!      └──patch, evict, delete── KubeCluster ──┘ own writes at once   (spot-core's `Cluster`)
//! ```
//!
//! - [`connect`] makes a client; [`KubeCluster`] is the port to the cluster; [`TokioClock`] the clock.
//! - [`NodeObject`] is the provider for clusters whose machines follow their Node objects.
//! - [`preflight`] tells which rights are missing; [`saved`] reads files instead of a cluster.
//! - [`lease`] elects one leader of several processes.
//! - [`Events`] publishes progress as Kubernetes Events.
//!
//! A library or program that builds this crate alone chooses the version of the Kubernetes API:
//! `K8S_OPENAPI_ENABLED_VERSION=1.33` in the environment, or a feature of `k8s-openapi`.
//!
//! # Cancel safety
//! Every future may be dropped. A request that was sent may take effect or not; every write is conditional on the
//! object's UID, so that it never hits another object of the same name. Dropping the last view of its watches ends them.

mod access_review;
mod board;
mod claim;
mod client;
mod clock;
mod cluster;
mod events;
mod evict;
pub mod lease;
mod list;
mod live;
mod memory;
mod node_object;
mod patch;
pub mod preflight;
mod requests;
pub mod saved;
mod snapshot;
mod status;
mod watch;

pub use access_review::Right;
pub use client::{Access, AccessError, connect};
pub use clock::TokioClock;
pub use cluster::{KubeCluster, Settings};
pub use events::{EventReason, Events, EventsWorker};
pub use node_object::NodeObject;
