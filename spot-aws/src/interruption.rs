//! What is announced of machines, from the two places that announce it, as the one notice that the core knows.

#[cfg(feature = "queue")]
mod hook;
#[cfg(feature = "queue")]
pub mod message;
#[cfg(feature = "imds")]
pub mod metadata;
#[cfg(feature = "queue")]
pub mod queue;
