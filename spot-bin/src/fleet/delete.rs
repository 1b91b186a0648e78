//! `spot-fleet delete`: every node retired, every fleet ended, nothing left.

use std::collections::BTreeSet;

use anyhow::{Context as _, anyhow};
use spot_aws::fleet::Existing;
use spot_core::pool::{Outcome, Report};

use super::cli::{Arguments, DeleteArgs};
use super::consent;
use super::create::existing;
use super::report::exit_of_whole;
use super::work::{Held, Task, settings, told, until_told};
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
            return Err(consent::refused("the pool was not deleted, and nothing was touched"));
        }
        let deleted = async |held: &Held| {
            let report = held.pools.remove(args.force, &work.stop).await.map_err(fault)?;
            told(work, &report)?;
            if report.outcome == Outcome::Done {
                let nothing = BTreeSet::new();
                cloud.pool.clean_up(&nothing, &held.permit()).await.context("can't delete the launch template")?;
            }
            exit(&report, args.force.is_some())
        };
        let mut settings = settings(&file, &Own::of(environment));
        settings.floor = 0;
        let deletes_pods = args.force.is_some();
        let task = Task { file: &file, access: &args.access, cloud: &cloud, settings, deletes_pods, grows: false };
        work.holding(task, deleted).await
    })
}

/// How it ends: whoever goes on as if the pool were gone would lose what is on it.
fn exit(report: &Report, forced: bool) -> Result<Exit, Fault> {
    match report.outcome {
        Outcome::Blocked(_) if report.failed.is_empty() => {
            let untouched = if report.retired.is_empty() { "; nothing was touched" } else { "" };
            let or = if forced { "" } else { ", or delete their pods with --force" };
            Err(Fault::failed(anyhow!(
                "the pool was not deleted, for nodes may not go{untouched}: see to what is above{or}"
            )))
        }
        _ => exit_of_whole(report, "the pool was not deleted"),
    }
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
    use rstest::rstest;
    use spot_aws::fleet::{ExistingFleet, ExistingTemplate};
    use spot_core::pool::Count;

    use super::*;
    use crate::sample::{fleet, node, pool_file, pool_report};

    #[rstest]
    #[case::done(Outcome::Done, 0, "")]
    #[case::blocked(Outcome::Blocked(vec![]), 1, "--force")]
    #[case::paused(Outcome::Paused, 1, "spot-migrator resume")]
    #[case::stopped(Outcome::Stopped, 1, "told to stop")]
    #[case::not_settled(Outcome::NotSettled("pod a/b".to_owned()), 1, "the pool was not deleted")]
    #[case::a_remainder(Outcome::Remainder(1), 1, "the pool was not deleted")]
    #[case::not_ready(Outcome::NotReady(Count::default()), 1, "again")]
    #[case::changed(Outcome::Changed("it wants 5".to_owned()), 1, "it wants 5")]
    #[case::failed(Outcome::Failed, 1, "again")]
    #[case::refused(Outcome::Refused("no".to_owned()), 1, "nothing was touched")]
    fn only_a_pool_that_is_gone_ends_orderly(#[case] outcome: Outcome, #[case] code: u8, #[case] said: &str) {
        match exit(&pool_report(outcome), false) {
            Ok(exit) => assert_eq!(exit.code(), code),
            Err(fault) => {
                assert_eq!(fault.exit.code(), code);
                assert!(fault.error.to_string().contains(said), "{}", fault.error);
            }
        }
    }

    #[test]
    fn what_was_retired_before_something_was_in_the_way_is_not_said_to_be_untouched() {
        let blocked = pool_report(Outcome::Blocked(vec![]));
        let said = |report: &Report| exit(report, true).expect_err("it was not deleted").error.to_string();
        assert!(said(&blocked).contains("nothing was touched"), "{}", said(&blocked));
        let halfway = Report { retired: vec![node()], ..blocked };
        assert!(!said(&halfway).contains("nothing was touched"), "{}", said(&halfway));
    }

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
