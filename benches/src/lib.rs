//! Benchmarks of spot, and the clusters that they look at.
//!
//! ```text
//! cargo bench -p spot-benches --bench decide     the decisions, by criterion
//! cargo bench -p spot-benches --bench growth     time a node of the decisions at growing sizes: linear?
//! cargo bench -p spot-benches --bench blocked    hours with a blocked pod, in the model: requests, log lines, Events
//! cargo bench -p spot-benches --bench e2e        the product on a real control plane: time, requests, memory
//! ```
//!
//! They print; they assert nothing, since a machine that is busy would make a timed test fail.

pub mod cluster;

pub use cluster::Cluster;
