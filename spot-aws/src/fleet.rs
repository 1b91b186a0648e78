//! Node pools backed by EC2 Spot Fleet.
//!
//! What is asked for is told apart from how it comes about: a [`Pool`], as its file describes it, becomes a request by
//! pure functions; what exists is compared with it by pure functions; and few calls bring it about.

mod capacity;
mod cause;
mod check;
mod clean_up;
mod create;
mod difference;
mod existing;
mod faults;
mod hash;
mod history;
mod image;
mod members;
mod node_pool;
mod pool;
mod request;
mod role;
mod sdk;
mod tags;
mod user_data;
mod volume;

pub use cause::Cause;
pub use check::{Finding, Trouble};
pub use create::Ensured;
pub use difference::{Change, Existing, ExistingFleet, ExistingTemplate, ExistingVersion, FieldChange, difference};
pub use history::Event;
pub use members::PoolMember;
pub use node_pool::NodePool;
pub use pool::{
    Allocation, Bottlerocket, Fault, Kubelet, Nodeadm, Offer, Pool, Rebalance, RebalanceStrategy, RootVolume, UserData,
    VolumeKind, VolumeSize,
};
pub use request::{Launch, Launches, Machine, Metadata, Override, Replacement, Request, Root, Template, Version};
pub use role::{Missing, Roles, ServiceLinked};
pub use tags::tag;
