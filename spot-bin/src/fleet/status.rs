//! `spot-fleet status`: a pool's fleets, machines and nodes side by side, what they cost, and what disagrees.

mod disagreement;
mod seen;
mod table;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use spot_aws::fleet::{Event, Existing, ExistingFleet};
use spot_core::ports::{Cluster as _, Live, Scope};
use spot_kube::preflight::Features;

use self::seen::Seen;
use super::cli::{Arguments, StatusArgs};
use super::work::{Cloud, Work, until_told};
use crate::cli::{Environment, Output};
use crate::connection::Connection;
use crate::cost;
use crate::exit::{Exit, Fault};
use crate::output;
use crate::pool::PoolFile;

/// How old may be what a fleet said of itself.
const LOOK_BACK: SignedDuration = SignedDuration::from_hours(1);

/// A pool as it is.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    pool: String,
    cluster: String,
    capacity: Capacity,
    fleets: Vec<FleetRow>,
    machines: Vec<MachineRow>,
    /// What all machines cost, as far as that is known of each.
    cost: Cost,
    /// What is not as it should be, and the remedy.
    disagreements: Vec<String>,
    /// What the fleets said lately of what is wrong.
    said: Vec<Said>,
}

/// What a fleet says is wrong.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Said {
    fleet: String,
    at: Timestamp,
    /// What it means, and what helps.
    explained: &'static str,
    /// In EC2's words.
    words: String,
}

/// In units.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Capacity {
    /// What the fleets want.
    target: u32,
    /// What they have, by EC2's word.
    fulfilled: u32,
    /// What of it is a Node; none: not known.
    joined: Option<u32>,
    /// What of that takes pods; none: not known.
    ready: Option<u32>,
    /// What the file wants.
    file: u32,
    /// Below this it is never scaled.
    floor: u32,
}

/// A fleet.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FleetRow {
    id: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    activity: Option<String>,
    target: u32,
    fulfilled: u32,
    /// What it could do without.
    excess: u32,
    /// Whether it is what the file asks for.
    current: bool,
}

/// A machine, and the Node that it is.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct MachineRow {
    instance: String,
    fleet: String,
    instance_type: String,
    zone: String,
    state: String,
    weight: Option<u32>,
    node: Option<String>,
    /// None: not known.
    ready: Option<bool>,
    #[serde(flatten)]
    cost: Cost,
}

/// In dollars an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cost {
    spot: Option<f64>,
    on_demand: Option<f64>,
    /// The part of the on-demand price that is not paid.
    saving: Option<f64>,
}

/// Shows how the pool is.
pub(super) fn status(args: &StatusArgs, arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    let file = PoolFile::read(&args.pool.file).map_err(Fault::usage)?;
    let prices = cost::table(args.prices.as_deref()).map_err(Fault::usage)?;
    until_told(arguments, environment, async |work| {
        let cloud = work.cloud(&file).await?;
        let connection = work.connection(&file, &args.access).await?;
        let existing = cloud.pool.existing(work.by()).await.context("can't ask what exists of the pool")?;
        let members = cloud.pool.members(work.by()).await.context("can't ask for the pool's machines")?;
        let said = said(work, &cloud, &existing).await?;
        let cluster = cluster(work, &connection).await;
        let view = cluster.as_ref().ok().map(|live| live.view());
        let seen = Seen {
            file: &file,
            existing: &existing,
            members: &members,
            nodes: view.as_ref().map(|view| view.nodes()),
            prices: &prices,
            said: &said,
            now: work.clock.now(),
        };
        let status = Status::of(&seen);
        output::result(&match args.output {
            Output::Text => table::text(&status),
            Output::Json => format!("{}\n", serde_json::to_string(&status).context("can't write JSON")?),
        })?;
        match cluster {
            Ok(_seen) => Ok(Exit::Orderly),
            Err(Fault { exit, error }) => {
                let error = error.context("the cluster could not be read, so nothing is said of nodes");
                Err(Fault { exit, error })
            }
        }
    })
}

/// The cluster as it is now. Whether it answers at all shows soon.
async fn cluster(work: &Work<'_>, connection: &Connection) -> Result<Box<dyn Live>, Fault> {
    work.preflight(connection, &Features::default()).await?;
    Ok(connection.cluster.open(Scope::Cluster, work.by()).await.context("can't read the cluster")?)
}

/// What the fleets said lately that have not ended, the oldest first.
async fn said(work: &Work<'_>, cloud: &Cloud, existing: &Existing) -> Result<Vec<(String, Event)>, Fault> {
    let since = work.clock.now() - LOOK_BACK;
    let mut said = Vec::new();
    for ExistingFleet { id, .. } in existing.fleets.iter().filter(|fleet| fleet.ours && !fleet.has_ended) {
        let events = cloud.pool.history(id, since, work.by()).await;
        let events = events.with_context(|| format!("can't ask what fleet {id} says of itself"))?;
        said.extend(events.into_iter().map(|event| (id.clone(), event)));
    }
    Ok(said)
}

#[cfg(test)]
mod tests;
