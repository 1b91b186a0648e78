//! `spot-fleet roll`: a fleet that is what the file asks for now takes the place of the others.

use std::collections::BTreeSet;

use anyhow::{Context as _, anyhow};
use spot_aws::fleet::{Existing, ExistingFleet, PoolMember};
use spot_core::pool::Outcome;
use spot_core::pool::roll::Terms;

use super::cli::{Arguments, RollArgs};
use super::create::{existing, looked_at};
use super::work::{Held, Task, finished, settings, until_told};
use crate::cli::Environment;
use crate::exit::{Exit, Fault};
use crate::output;
use crate::pool::PoolFile;
use crate::run::fault;
use crate::settings::Own;

/// Rolls the pool.
pub(super) fn roll(args: &RollArgs, arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    let path = &args.pool.file;
    let file = PoolFile::read(path).map_err(Fault::usage)?;
    until_told(arguments, environment, async |work| {
        let cloud = work.cloud(&file).await?;
        if existing(work, &cloud, &file).await?.fleets.iter().all(|fleet| !fleet.ours || fleet.is_gone()) {
            let path = path.display();
            return Err(Fault::failed(anyhow!(
                "there is no such pool: `spot-fleet create {path}` comes first; nothing was touched"
            )));
        }
        let launch = looked_at(work, &cloud).await?;
        let rolled = async |held: &Held| {
            // Now that nobody else changes it.
            let existing = existing(work, &cloud, &file).await?;
            let keep = BTreeSet::from([launch.hash.clone()]);
            let old = old(&existing, &launch.hash);
            if old.is_empty() {
                cloud.pool.clean_up(&keep, &held.permit()).await.context("can't remove old versions")?;
                output::result("nothing to replace: every machine is what the file asks for\n")?;
                return Ok(Exit::Orderly);
            }
            let capacity = capacity(&existing, &launch.hash);
            let members = cloud.pool.members(work.by()).await.context("can't ask for the pool's machines")?;
            let surge = args.max_surge.unwrap_or_else(|| heaviest(&file, &members));
            let ensured = cloud.pool.ensure(&launch, 0, capacity, &held.permit()).await;
            let fleet = ensured.context("can't request the new fleet")?.fleet;
            let from: Vec<_> = old.iter().map(|fleet| fleet.id.as_str()).collect();
            work.shown.say(&format!("fleet {fleet} takes the place of {}, with {capacity} units", from.join(", ")));
            let terms = Terms { capacity, surge, unavailable: args.max_unavailable };
            let report = held.pools.roll(terms, &work.stop).await.map_err(fault)?;
            if report.outcome == Outcome::Done {
                cloud.pool.clean_up(&keep, &held.permit()).await.context("can't remove old versions")?;
            }
            finished(work, held, &report, args.detailed_exit_code).await
        };
        let settings = settings(&file, &Own::of(environment));
        let task = Task { file: &file, access: &args.access, cloud: &cloud, settings, deletes_pods: false };
        Ok(work.holding(task, rolled).await?.unwrap_or(Exit::Orderly))
    })
}

/// The fleets whose place is taken.
fn old<'a>(existing: &'a Existing, hash: &str) -> Vec<&'a ExistingFleet> {
    let current = existing.current(hash).map(|fleet| &fleet.id);
    existing.fleets.iter().filter(|fleet| fleet.ours && !fleet.is_gone() && Some(&fleet.id) != current).collect()
}

/// What the pool as a whole wants: what its fleets want now, or what they wanted when an earlier process began to take
/// their place.
fn capacity(existing: &Existing, hash: &str) -> u32 {
    let wanted = || {
        let keep = existing.fleets.iter().filter(|fleet| fleet.ours && !fleet.has_ended);
        keep.map(|fleet| fleet.target).fold(0, u32::saturating_add)
    };
    existing.current(hash).and_then(|fleet| fleet.capacity).unwrap_or_else(wanted)
}

/// The weight of the heaviest machine that may come or go.
fn heaviest(file: &PoolFile, members: &[PoolMember]) -> u32 {
    let come = file.pool.offers.iter().map(|offer| offer.weight);
    let go = members.iter().filter_map(|member| member.weight);
    come.chain(go).max().unwrap_or(1)
}
