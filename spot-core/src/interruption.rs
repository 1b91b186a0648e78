//! What the cloud announces of a machine, and the answer to it: its node is empty before the machine is gone.

pub mod answer;
mod cordons;
mod desk;
pub mod driver;
pub mod hold;
mod index;
pub mod notice;
pub mod returning;
pub mod settings;
mod tasks;
pub mod terms;

pub use driver::Interruptions;
pub use hold::Hold;
pub use notice::{
    Announcement, Delivery, Handled, Ignored, MachineState, Notice, NoticeKind, Reclaim, Source, Ticket, Told,
};
pub use settings::{InterruptionSettings, Rebalance};
pub use terms::{Limits, Terms};
