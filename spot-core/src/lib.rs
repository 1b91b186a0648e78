//! Decisions and run loop for moving Kubernetes workloads from on-demand to spot nodes.

pub mod capacity;
pub mod claim;
pub mod cloud;
pub mod error;
pub mod memory;
pub mod node;
pub mod pod;
pub mod ports;
pub mod progress;
pub mod reason;
pub mod retire;
pub mod schedule;
pub mod selector;
pub mod view;

pub use schedule::{Schedule, ScheduleError};
