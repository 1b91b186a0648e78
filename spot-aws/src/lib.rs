//! The AWS adapter of [`spot-core`](https://docs.rs/spot-core): what it takes to retire a node that is an EC2 instance.
//!
//! What it is: the place where AWS' own notations are read and become types that can't be wrong, and, with feature
//! `ec2`, the provider `aws`:
//!
//! ```text
//! Node.spec.providerID ─► ProviderId ─► describe (batched, cached) ─► survey: class, group, refusals
//!                                                                       │ judged, claimed, drained, tainted by the core
//!                       load balancers: deregister, wait ◄─ detach ◄────┤
//!   gone · through its group · fleet lowered · plainly ◄─ terminate ◄───┘ verified again before every request
//! ```
//!
//! Notices of machines, which the core answers, come with feature `queue` from an SQS queue of the cluster, with feature
//! `imds` from the metadata service of the machine itself.
//!
//! Node pools backed by Spot Fleet come with feature `fleet`.
//!
//! A future of the provider may be dropped at any time. A request that was under way may still take effect; what it did
//! is found out by the next call, from the real state of instance, group and fleet.

#[cfg(any(feature = "ec2", feature = "queue"))]
mod action;
#[cfg(any(feature = "ec2", feature = "queue"))]
mod check;
#[cfg(any(feature = "ec2", feature = "queue"))]
mod client;
#[cfg(any(feature = "ec2", feature = "queue"))]
mod error;
#[cfg(feature = "fleet")]
pub mod fleet;
#[cfg(any(feature = "queue", feature = "imds"))]
pub mod interruption;
pub mod prices;
#[cfg(feature = "ec2")]
mod provider;
pub mod provider_id;

#[cfg(any(feature = "ec2", feature = "queue"))]
pub use action::Action;
#[cfg(any(feature = "ec2", feature = "queue"))]
pub use check::Checked;
#[cfg(any(feature = "ec2", feature = "queue"))]
pub use client::{CallObserver, CallResult};
#[cfg(feature = "ec2")]
pub use provider::{Aws, AwsSettings, Identity};
pub use provider_id::{ProviderId, ProviderIdError};

/// A panic elsewhere leaves whole values in all of these.
#[cfg(any(feature = "ec2", feature = "queue"))]
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
