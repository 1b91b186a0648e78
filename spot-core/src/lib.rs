//! Decisions and run loop for moving Kubernetes workloads from on-demand to spot nodes.

pub mod budget;
pub mod capacity;
pub mod claim;
pub mod cloud;
pub mod decision;
pub mod drain;
pub mod error;
pub mod judge;
pub mod labels;
pub mod memory;
pub mod migrator;
#[cfg(feature = "model")]
pub mod model;
pub mod node;
pub mod placement;
pub mod pod;
pub mod ports;
pub mod progress;
pub mod reason;
pub mod retire;
pub mod schedule;
pub mod selector;
pub mod settle;
pub mod stop;
pub mod view;
pub mod volume;
mod wait;

pub use decision::{KnownNodes, Preference, is_control_plane, select_node_for_deletion};
pub use judge::judge;
pub use migrator::Migrator;
pub use node::{Node, NodeSnapshot};
pub use schedule::{Schedule, ScheduleError};
