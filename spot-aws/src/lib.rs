//! The AWS adapter of [`spot-core`](https://docs.rs/spot-core): what it takes to retire a node that is an EC2 instance.
//!
//! What it is: the place where AWS' own notations are read and become types that can't be wrong. So far it reads
//! provider IDs, by which a Kubernetes Node names its instance:
//!
//! ```text
//! Node.spec.providerID ─► ProviderId::parse ─┬─► ProviderId: zone (if known) and instance ID
//!                                            └─► ProviderIdError: Fargate, hybrid, another provider, malformed …
//! ```
//!
//! What it is not, yet: it talks to no AWS API and holds no SDK. Classes by EC2's word, the survey of groups and
//! fleets, termination, load balancers and interruptions are not here; until they are, use the provider
//! `node-object`.
//!
//! Nothing in here waits, so there is nothing to cancel.

pub mod provider_id;

pub use provider_id::{ProviderId, ProviderIdError};
