//! `spot-fleet scale`: a larger pool, or a smaller one whose nodes were retired.

use std::path::Path;

use anyhow::anyhow;
use spot_aws::fleet::{Existing, Launch, Pool, difference};

use super::cli::{Arguments, ScaleArgs};
use super::create::existing;
use super::plan;
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
    allowed(&file, to)?;
    until_told(arguments, environment, async |work| {
        let cloud = work.cloud(&file).await?;
        let existing = existing(work, &cloud, &file).await?;
        let grows = to >= wanted(&existing, &file, path)?;
        if grows {
            plan::not_orphaned(&difference(&file.pool, &Launch::of(&file.pool, ""), &existing))?;
        }
        let settings = settings(&file, &Own::of(environment));
        let task = Task { file: &file, access: &args.access, cloud: &cloud, settings, deletes_pods: false, grows };
        let scaled = async |held: &Held| {
            let report = held.pools.scale(to, &work.stop).await.map_err(fault)?;
            finished(work, &report, args.detailed_exit_code)
        };
        work.holding(task, scaled).await
    })
}

fn allowed(file: &PoolFile, to: u32) -> Result<(), Fault> {
    let (least, most) = (file.pool.min_capacity, Pool::MAX_CAPACITY);
    if to < least {
        Err(Fault::usage(anyhow!(
            "{to} units are below the pool's floor: ask for {least} or more with --to, or lower `minCapacity` in its \
             file; nothing was touched"
        )))
    } else if to > most {
        Err(Fault::usage(anyhow!(
            "{to} units are over {most}, the most that a fleet may want: ask for {most} or less with --to, or make it \
             two pools; nothing was touched"
        )))
    } else {
        Ok(())
    }
}

/// What the pool's fleet wants now; a pool that is not what its file asks for is not scaled.
fn wanted(existing: &Existing, file: &PoolFile, path: &Path) -> Result<u32, Fault> {
    if let Some(fleet) = existing.current(&file.pool.hash()) {
        return Ok(fleet.target);
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
    use rstest::rstest;

    use super::*;
    use crate::sample::{fleet, pool_file};

    #[rstest]
    #[case::below_the_floor(0, Some("1 or more with --to"))]
    #[case::at_the_floor(1, None)]
    #[case::as_much_as_a_fleet_may_want(10_000, None)]
    #[case::more_than_that(10_001, Some("10000 or less with --to"))]
    fn a_pool_is_scaled_between_its_floor_and_what_a_fleet_may_want(#[case] to: u32, #[case] remedy: Option<&str>) {
        match (allowed(&pool_file(""), to), remedy) {
            (allowed, None) => assert!(allowed.is_ok(), "{allowed:?}"),
            (allowed, Some(remedy)) => {
                let fault = allowed.expect_err("it is refused");
                assert!(fault.error.to_string().contains(remedy), "{}", fault.error);
                assert_eq!(fault.exit, Exit::Usage);
            }
        }
    }

    #[test]
    fn what_is_not_as_the_file_says_is_created_or_rolled_first() {
        let file = pool_file("");
        let scaled = |fleets| {
            let existing = Existing { template: None, fleets };
            wanted(&existing, &file, Path::new("pool.yaml")).map_err(|fault| fault.error.to_string())
        };
        assert_eq!(scaled(vec![fleet("sfr-1", &file.pool.hash(), (3, 3))]), Ok(3));
        let other = scaled(vec![fleet("sfr-1", "another", (3, 3))]).expect_err("it is another");
        assert!(other.contains("`spot-fleet roll pool.yaml`"), "{other}");
        let none = scaled(vec![]).expect_err("there is none");
        assert!(none.contains("`spot-fleet create pool.yaml`"), "{none}");
    }
}
