//! A real Kubernetes cluster on one machine, to test `spot` in.
//!
//! Mocks agree with their author. So the end-to-end tests run against the real etcd, API server, scheduler and
//! controllers, with KWOK for the kubelets and, where a test needs machines to be bought, Karpenter for the autoscaler.
//!
//! ```text
//! World ─┬─ ControlPlane   etcd, kube-apiserver, kube-scheduler, kube-controller-manager
//!        ├─ Kwok           Nodes become Ready, pods run and stop
//!        ├─ Karpenter      buys Nodes for pending pods (only where asked for)
//!        ├─ Cloud          AWS, and what makes Nodes of its instances (only where asked for)
//!        ├─ Sqs            queues with what AWS has to say (only where asked for)
//!        ├─ Metadata       what an instance can ask about itself (only where asked for)
//!        ├─ AuditLog       who asked the API server for what
//!        ├─ Witness        what was true at every moment, from watch events
//!        ├─ Webhook        refuses evictions, as an operator does that moves its data first
//!        ├─ Proxy          breaks one of the product's requests
//!        ├─ Migrator       the product: a process of its own, with an API user of its own
//!        ├─ SpotFleet      the product's pools of nodes: a file, and commands on it
//!        ├─ Agent          the product on one node, with a token of that node
//!        └─ Helm           the product's chart, and its containers as processes
//!
//! Browser                 looks at a page that the product wrote
//! ```
//!
//! What it is not: a place for rules of the product. It knows Kubernetes, and of the product only its command line.
//!
//! A world belongs to one test. At most two are alive on a machine at any time; the next one waits for its turn.
//! Everything that a world started ends when it is dropped, after a panic too; when the test process itself is killed,
//! the closing of their standard input ends the programs.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "clippy's allowance for tests does not reach the functions of a test package, and what fails here fails a test"
)]

pub mod agent;
pub mod audit;
pub mod aws;
pub mod browser;
pub mod control_plane;
pub mod fleet;
pub mod helm;
pub mod karpenter;
pub mod kwok;
pub mod machine;
pub mod metadata;
pub mod migrator;
pub mod notice;
pub mod process;
pub mod programs;
pub mod prometheus;
pub mod proxy;
pub mod rights;
pub mod sqs;
pub mod wait;
pub mod webhook;
pub mod witness;
pub mod workload;
pub mod world;

pub use agent::Agent;
pub use audit::{AuditLog, Entry, Verb};
pub use browser::Browser;
pub use control_plane::ControlPlane;
pub use fleet::SpotFleet;
pub use helm::Helm;
pub use karpenter::Karpenter;
pub use kwok::Kwok;
pub use machine::Machine;
pub use metadata::Metadata;
pub use migrator::{Ended, Migrator, Running};
pub use process::Process;
pub use prometheus::Prometheus;
pub use proxy::Proxy;
pub use sqs::Sqs;
pub use webhook::Webhook;
pub use witness::Witness;
pub use workload::Workload;
pub use world::World;
