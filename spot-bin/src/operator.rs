//! `pause`, `resume` and `release`: what a person does by hand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use spot_core::migrator::{Freed, Migrator, Which};
use spot_core::ports::{Alone, Cluster, Ports};
use tokio::runtime;

use crate::cli::{Environment, OperatorArgs, ReleaseArgs};
use crate::config::{Config, Log as LogConfig, LogLevel};
use crate::connection::{self, Connection};
use crate::exit::{Exit, Fault};
use crate::log::Log;
use crate::provider::Provider;
use crate::settings::{self, Own};
use crate::{output, telemetry};

/// Pauses planned work, or lets it go on.
///
/// # Errors
/// When arguments or configuration are wrong, or the cluster can't be reached or written.
pub fn pause(
    args: &OperatorArgs,
    paused: bool,
    overrides: &BTreeMap<String, String>,
    environment: &Environment,
) -> Result<Exit, Fault> {
    let (at, changed) = by_hand(args, overrides, environment, async |migrator, connection, config| {
        let at = format!("{}/{}", connection.namespace()?, config.state.config_map);
        let what = if paused { "pause" } else { "resume" };
        let changed = migrator.pause(paused).await.with_context(|| format!("can't {what} by ConfigMap {at}"))?;
        Ok((at, changed))
    })?;
    output::result(&told(paused, changed, &at))?;
    Ok(Exit::Orderly)
}

/// Takes everything of ours off nodes.
///
/// # Errors
/// When arguments or configuration are wrong, the cluster can't be reached, or a node could not be released.
pub fn release(
    args: &ReleaseArgs,
    overrides: &BTreeMap<String, String>,
    environment: &Environment,
) -> Result<Exit, Fault> {
    let which = if args.all { Which::All } else { Which::Named(args.nodes.clone()) };
    let freed = by_hand(&args.operator, overrides, environment, async |migrator, _, _| {
        Ok(migrator.release(&which).await.context("can't release nodes")?)
    })?;
    output::result(&released(&freed))?;
    match freed.iter().filter(|freed| is_failure(freed)).count() {
        0 => Ok(Exit::Orderly),
        failed => Err(Fault::failed(anyhow!("{failed} of {} nodes could not be released", freed.len()))),
    }
}

/// Does one thing on the cluster, whoever leads.
fn by_hand<T>(
    args: &OperatorArgs,
    overrides: &BTreeMap<String, String>,
    environment: &Environment,
    act: impl AsyncFnOnce(&Migrator, &Connection, &Config) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let (config, _) = connection::configuration_of_any_provider(&args.config, environment, overrides)?;
    telemetry::start(LogConfig { level: config.log.level.min(LogLevel::Warn), ..config.log })?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build().context("can't start the runtime")?;
    runtime.block_on(async {
        let connection = Connection::open(&args.access, environment, &config.state).await?;
        let ports = Ports {
            // No cloud is asked: what is ours is on the nodes.
            cloud: Provider::node_object(&config, &connection.clock).port(),
            cluster: Arc::clone(&connection.cluster) as Arc<dyn Cluster>,
            clock: Arc::clone(&connection.clock),
            observer: Arc::new(Log::default()),
            leadership: Arc::new(Alone),
        };
        let migrator = Migrator::new(ports, settings::settings(&config, &Own::of(environment)));
        act(&migrator, &connection, &config).await
    })
}

/// What became of a pause, or of the end of one, in the ConfigMap at `at`.
fn told(paused: bool, changed: bool, at: &str) -> String {
    match (paused, changed) {
        (true, true) => format!("paused by ConfigMap {at}: no node is begun until `spot-migrator resume`\n"),
        (true, false) => format!("it was paused already by ConfigMap {at}\n"),
        (false, true) => format!("resumed by ConfigMap {at}\n"),
        (false, false) => format!("it was not paused by ConfigMap {at}\n"),
    }
}

/// A line for each node.
fn released(freed: &[Freed]) -> String {
    let mut text = String::new();
    for freed in freed {
        let (node, what) = match freed {
            Freed::Released(node) => (&*node.name, "released"),
            Freed::Untouched(node) => (&*node.name, "nothing of ours was on it"),
            Freed::Departing(node) => (&*node.name, "on its way out: nothing can be taken back"),
            Freed::Failed(node) => (&*node.name, "could not be written"),
            Freed::Unknown(name) => (&**name, "there is no such node"),
        };
        // Writing into a String has no way to fail.
        let _written = writeln!(text, "{node}: {what}");
    }
    text
}

const fn is_failure(freed: &Freed) -> bool {
    match freed {
        Freed::Failed(_) | Freed::Unknown(_) => true,
        Freed::Released(_) | Freed::Untouched(_) | Freed::Departing(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use spot_core::node::{NodeRef, Uid};

    use super::*;

    #[test]
    fn every_answer_to_pause_and_resume_names_the_config_map() {
        for (paused, changed) in [(true, true), (true, false), (false, true), (false, false)] {
            let told = told(paused, changed, "ours/memory");
            assert!(told.contains("ConfigMap ours/memory") && told.ends_with('\n'), "{told}");
        }
    }

    #[test]
    fn each_node_is_told_what_became_of_it_and_only_what_was_not_done_fails() {
        let node = |name: &str| NodeRef { name: name.into(), uid: Uid::new(name), resource_version: None };
        let freed = [
            Freed::Released(node("a")),
            Freed::Untouched(node("b")),
            Freed::Departing(node("c")),
            Freed::Failed(node("d")),
            Freed::Unknown("e".to_owned()),
        ];
        insta::assert_snapshot!(released(&freed), @r"
        a: released
        b: nothing of ours was on it
        c: on its way out: nothing can be taken back
        d: could not be written
        e: there is no such node
        ");
        assert_eq!(freed.iter().map(is_failure).collect::<Vec<_>>(), [false, false, false, true, true]);
    }
}
