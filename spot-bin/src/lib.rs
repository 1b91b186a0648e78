//! The wiring of `spot-migrator`: arguments and environment become one configuration, ports become a migrator, what it
//! reports becomes log lines, metrics and Events, and how it ends becomes an exit code. It decides nothing.
//!
//! ```text
//!  arguments, environment ──► cli ──► config ──► settings ──► Migrator ◄── ports: spot-kube, spot-aws, or the model
//!                                                               │
//!                                exit ◄── outcome ◄─────────────┴──► observers: log · metrics · http · Events
//! ```

#[cfg(feature = "agent")]
pub mod agent;
pub mod answer;
pub mod check;
pub mod cli;
pub mod config;
pub mod connection;
pub mod cost;
pub mod exit;
pub mod feature;
#[cfg(feature = "aws")]
pub mod fleet;
pub mod help;
pub mod http;
pub mod leadership;
pub mod log;
pub mod metrics;
pub mod notices;
pub mod notify;
pub mod observers;
pub mod operator;
pub mod output;
pub mod plan;
#[cfg(feature = "aws")]
pub mod pool;
pub mod program;
pub mod provider;
pub(crate) mod reload;
pub mod rights;
pub mod run;
#[cfg(test)]
mod sample;
mod saved;
pub mod schedule;
pub mod settings;
pub mod signals;
pub mod simulate;
pub mod telemetry;
mod text;
mod windows;
