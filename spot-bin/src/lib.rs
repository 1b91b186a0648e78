//! Wiring.

pub mod config;
