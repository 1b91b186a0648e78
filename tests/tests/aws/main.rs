//! AWS under the product: the double keeps AWS's promises, and what happens in it happens to the cluster.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

mod check;
mod cluster;
mod double;
mod migration;
mod refusals;
