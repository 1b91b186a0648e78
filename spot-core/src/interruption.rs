//! What the cloud announces of a machine, and the answer to it: its node is empty before the machine is gone.

pub mod hold;
pub mod notice;
pub mod terms;
mod watched;

pub use hold::Hold;
pub use notice::{
    Announcement, Delivery, Handled, Ignored, MachineState, Notice, NoticeKind, Reclaim, Source, Ticket, Told,
};
pub use terms::{Limits, Terms};
