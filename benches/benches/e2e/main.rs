//! The product on a real control plane: how long a node takes, what it asks the API server for, how often pods move,
//! how much memory it needs, and how soon it answers when machines are taken back.
//!
//! Machines are instant (KWOK), the wait for load balancers is zero and the clients' limits are raised, so that what is
//! measured is the migration and the API server. It needs the release build of the binary:
//! `cargo build --release -p spot-bin`. Arguments choose the parts: `cargo bench -p spot-benches --bench e2e -- drain`.
//! The parts `queue`, `interruption` and `memory` need a build with `--features spot-bin/aws`, and run only if they are
//! asked for.

#![expect(clippy::print_stdout, reason = "what a bench is for")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

mod cluster;
mod drain;
mod idle;
mod interruption;
mod memory;
mod migration;
mod preference;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use spot_tests::Entry;

/// How long a run may take: far longer than it should.
const RUN: Duration = Duration::from_mins(3);

#[tokio::main]
async fn main() -> Result<()> {
    // Cargo's own argument; a filter that names another bench asks for nothing here.
    let filter: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let wanted = |part: &str| filter.is_empty() || filter.iter().any(|word| part == word || word == "e2e");
    if wanted("migration") {
        migration::migration(None).await?;
        migration::migration(Some(migration::DOWN)).await?;
    }
    if wanted("preference") {
        preference::preference().await?;
    }
    if wanted("drain") {
        drain::drain().await?;
    }
    if wanted("idle") {
        idle::idle(false).await?;
    }
    // Not every build reads a queue.
    if filter.iter().any(|word| word == "queue") {
        idle::idle(true).await?;
    }
    if filter.iter().any(|word| word == "interruption") {
        interruption::interruption().await?;
    }
    if filter.iter().any(|word| word == "memory") {
        memory::memory().await?;
    }
    Ok(())
}

/// How many of each kind.
fn table(entries: &[&Entry]) {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for entry in entries {
        let slash = if entry.subresource.is_empty() { "" } else { "/" };
        let kind = format!("{:?} {}{slash}{} -> {}", entry.verb, entry.resource, entry.subresource, entry.code);
        *kinds.entry(kind).or_default() += 1;
    }
    for (kind, count) in kinds {
        println!("    {count:>6}  {kind}");
    }
}

fn verdict(figure: f64, limit: f64) -> String {
    let word = if figure <= limit { "reached" } else { "MISSED" };
    format!(" (at most {limit}: {word})")
}

fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
