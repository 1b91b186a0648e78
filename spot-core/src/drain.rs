//! The only drain there is: which pods go and why, what to do next, and the driver that does it.

pub mod driver;
pub(crate) mod lost;
pub mod machine;
pub mod plan;
