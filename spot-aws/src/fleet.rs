//! Node pools backed by EC2 Spot Fleet.
//!
//! What is asked for is told apart from how it comes about: a [`Pool`], as its file describes it, becomes a request by
//! pure functions; what exists is compared with it by pure functions; and few calls bring it about.

mod check;
mod pool;
mod prices;

pub use check::{Finding, Trouble};
pub use pool::{
    Allocation, Bottlerocket, Fault, Kubelet, Nodeadm, Offer, Pool, Rebalance, RebalanceStrategy, RootVolume, UserData,
    VolumeKind, VolumeSize,
};
pub use prices::{Prices, PricesError};
