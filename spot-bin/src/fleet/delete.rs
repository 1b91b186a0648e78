//! `spot-fleet delete`: every node retired, every fleet ended, nothing left.

use std::collections::BTreeSet;

use anyhow::{Context as _, anyhow};
use spot_aws::fleet::Existing;
use spot_core::pool::Outcome;

use super::cli::{Arguments, DeleteArgs};
use super::consent;
use super::create::existing;
use super::work::{Held, Task, finished, settings, until_told};
use crate::cli::Environment;
use crate::exit::{Exit, Fault};
use crate::output;
use crate::pool::PoolFile;
use crate::run::fault;
use crate::settings::Own;

/// Deletes the pool.
pub(super) fn delete(args: &DeleteArgs, arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    let file = PoolFile::read(&args.pool.file).map_err(Fault::usage)?;
    until_told(arguments, environment, async |work| {
        consent::can_be_had(args.yes)?;
        let cloud = work.cloud(&file).await?;
        let existing = existing(work, &cloud, &file).await?;
        let Some(question) = question(&existing, &file) else {
            output::result("there is nothing of this pool\n")?;
            return Ok(Exit::Orderly);
        };
        if !consent::asked(&question, args.yes, &work.stop).await? {
            output::result("nothing was touched\n")?;
            return Ok(Exit::Orderly);
        }
        let deleted = async |held: &Held| {
            let report = held.pools.remove(args.force, &work.stop).await.map_err(fault)?;
            if report.outcome == Outcome::Done {
                let nothing = BTreeSet::new();
                cloud.pool.clean_up(&nothing, &held.permit()).await.context("can't delete the launch template")?;
            }
            let exit = finished(work, &report, false)?;
            match report.outcome {
                // Whoever goes on as if the pool were gone would lose what is on it.
                Outcome::Blocked(_) => {
                    let or = if args.force.is_none() { ", or delete their pods with --force" } else { "" };
                    Err(Fault::failed(anyhow!(
                        "the pool was not deleted, for nodes may not go; nothing was touched: see to what is above{or}"
                    )))
                }
                _ => Ok(exit),
            }
        };
        let mut settings = settings(&file, &Own::of(environment));
        settings.floor = 0;
        let deletes_pods = args.force.is_some();
        let task = Task { file: &file, access: &args.access, cloud: &cloud, settings, deletes_pods };
        work.holding(task, deleted).await
    })
}

/// What is asked before anything goes; none: nothing is there.
fn question(existing: &Existing, file: &PoolFile) -> Option<String> {
    let fleets: Vec<_> = existing.fleets.iter().filter(|fleet| fleet.ours && !fleet.is_gone()).collect();
    if fleets.is_empty() && existing.template.is_none() {
        return None;
    }
    let units = fleets.iter().map(|fleet| fleet.fulfilled).fold(0, u32::saturating_add);
    let (pool, cluster) = (&file.pool.name, &file.pool.cluster);
    let fleets = if fleets.len() == 1 { "1 fleet".to_owned() } else { format!("{} fleets", fleets.len()) };
    Some(format!("Delete pool {pool} of cluster {cluster}: {fleets} with {units} units, whose nodes are retired?"))
}

#[cfg(test)]
mod tests {
    use spot_aws::fleet::{ExistingFleet, ExistingTemplate};

    use super::*;
    use crate::sample::{fleet, pool_file};

    #[test]
    fn it_is_asked_about_everything_that_would_go_and_only_if_something_would() {
        let file = pool_file("");
        let template = ExistingTemplate { id: "lt-1".to_owned(), ours: true, versions: Vec::new() };
        let gone = ExistingFleet { has_ended: true, ..fleet("sfr-1", "a", (0, 0)) };
        let fleets = vec![gone.clone(), fleet("sfr-2", "b", (3, 4)), fleet("sfr-3", "c", (1, 2))];
        let asked = question(&Existing { template: None, fleets }, &file).expect("there are fleets");
        assert!(asked.contains("pool workers of cluster prod: 2 fleets with 6 units"), "{asked}");
        assert!(question(&Existing { template: Some(template), fleets: vec![] }, &file).is_some());
        assert_eq!(question(&Existing { template: None, fleets: vec![gone] }, &file), None);
    }
}
