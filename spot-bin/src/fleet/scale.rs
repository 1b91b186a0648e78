//! `spot-fleet scale`: a larger pool, or a smaller one whose nodes were retired.

use std::path::Path;

use anyhow::anyhow;
use spot_aws::fleet::Existing;

use super::cli::{Arguments, ScaleArgs};
use super::create::existing;
use super::work::{Held, Task, finished, settings, until_told};
use crate::cli::Environment;
use crate::exit::{Exit, Fault};
use crate::pool::PoolFile;
use crate::run::fault;
use crate::settings::Own;

/// Scales the pool.
pub(super) fn scale(args: &ScaleArgs, arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    let path = &args.pool.file;
    let file = PoolFile::read(path).map_err(Fault::usage)?;
    let to = args.to.unwrap_or(file.pool.target_capacity);
    not_below(&file, to)?;
    until_told(arguments, environment, async |work| {
        let cloud = work.cloud(&file).await?;
        is_current(&existing(work, &cloud, &file).await?, &file, path)?;
        let settings = settings(&file, &Own::of(environment));
        let task = Task { file: &file, access: &args.access, cloud: &cloud, settings, deletes_pods: false };
        let scaled = async |held: &Held| {
            let report = held.pools.scale(to, &work.stop).await.map_err(fault)?;
            finished(work, held, &report, args.detailed_exit_code).await
        };
        Ok(work.holding(task, scaled).await?.unwrap_or(Exit::Orderly))
    })
}

fn not_below(file: &PoolFile, to: u32) -> Result<(), Fault> {
    let least = file.pool.min_capacity;
    if to >= least {
        return Ok(());
    }
    Err(Fault::usage(anyhow!(
        "{to} units are below the pool's floor: ask for {least} or more with --to, or lower `minCapacity` in its file; \
         nothing was touched"
    )))
}

/// Refuses to scale a pool that is not what its file asks for.
fn is_current(existing: &Existing, file: &PoolFile, path: &Path) -> Result<(), Fault> {
    if existing.current(&file.pool.hash()).is_some() {
        return Ok(());
    }
    let there_is_another = existing.fleets.iter().any(|fleet| fleet.ours && !fleet.has_ended);
    let (why, command) = if there_is_another {
        ("the pool is there with another file", "roll")
    } else {
        ("there is no such pool", "create")
    };
    let path = path.display();
    Err(Fault::failed(anyhow!("{why}: `spot-fleet {command} {path}` comes first; nothing was touched")))
}
