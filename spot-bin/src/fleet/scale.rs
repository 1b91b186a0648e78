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
            finished(work, &report, args.detailed_exit_code)
        };
        work.holding(task, scaled).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{fleet, pool_file};

    #[test]
    fn a_pool_is_never_scaled_below_its_floor() {
        let file = pool_file("");
        let fault = not_below(&file, 0).expect_err("the floor is 1");
        assert!(fault.error.to_string().contains("1 or more"), "{}", fault.error);
        assert_eq!((fault.exit, not_below(&file, 1).is_ok()), (Exit::Usage, true));
    }

    #[test]
    fn what_is_not_as_the_file_says_is_created_or_rolled_first() {
        let file = pool_file("");
        let scaled = |fleets| {
            let existing = Existing { template: None, fleets };
            is_current(&existing, &file, Path::new("pool.yaml")).map_err(|fault| fault.error.to_string())
        };
        assert_eq!(scaled(vec![fleet("sfr-1", &file.pool.hash(), (3, 3))]), Ok(()));
        let other = scaled(vec![fleet("sfr-1", "another", (3, 3))]).expect_err("it is another");
        assert!(other.contains("`spot-fleet roll pool.yaml`"), "{other}");
        let none = scaled(vec![]).expect_err("there is none");
        assert!(none.contains("`spot-fleet create pool.yaml`"), "{none}");
    }
}
