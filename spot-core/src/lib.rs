//! Placeholder.
pub mod selector;
