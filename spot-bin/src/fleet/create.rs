//! `spot-fleet create`: looks at everything, asks for what is missing of the pool, and waits until its nodes are Ready.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use spot_aws::fleet::{Change, Existing, Finding, Launch, Trouble, difference};
use spot_core::error::chain;

use super::cli::{Arguments, CreateArgs};
use super::plan;
use super::report::exit_of_whole;
use super::work::{Cloud, Held, Task, Work, settings, told, until_told};
use crate::cli::Environment;
use crate::exit::{Exit, Fault};
use crate::output;
use crate::pool::PoolFile;
use crate::run::fault;
use crate::settings::Own;

/// What is short of the pool's creation. The fleet is asked for by then, and goes on.
const NOT_READY: &str = "the fleet is there, and not all of its nodes were seen to be Ready";

/// Creates the pool.
pub(super) fn create(args: &CreateArgs, arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    let path = &args.pool.file;
    let file = PoolFile::read(path).map_err(Fault::usage)?;
    until_told(arguments, environment, async |work| {
        let cloud = work.cloud(&file).await?;
        let existing = existing(work, &cloud, &file).await?;
        let looked_at = looked_at(work, &cloud, &existing).await;
        if args.dry_run {
            return dry_run(work, args, &file, &existing, looked_at).await;
        }
        let launch = looked_at?;
        not_replaced(&difference(&file.pool, &launch, &existing), path)?;
        let mut settings = settings(&file, &Own::of(environment));
        settings.ready_timeout = args.timeout.unwrap_or(settings.ready_timeout);
        let task =
            Task { file: &file, access: &args.access, cloud: &cloud, settings, deletes_pods: false, grows: true };
        work.holding(task, async |held| created(work, held, &cloud, &file, &launch, args).await).await
    })
}

/// Looks at the cluster, too, whatever AWS says, and says what was looked at.
async fn dry_run(
    work: &Work<'_>,
    args: &CreateArgs,
    file: &PoolFile,
    existing: &Existing,
    looked_at: Result<Launch, Fault>,
) -> Result<Exit, Fault> {
    let cluster = work.may_work(file, &args.access).await;
    let launch = match (looked_at, &cluster) {
        (Err(fault), Err(other)) => {
            work.shown.say(&format!("the cluster: {:#}", other.error));
            return Err(fault);
        }
        (looked_at, _) => looked_at?,
    };
    let changes = difference(&file.pool, &launch, existing);
    not_replaced(&changes, &args.pool.file)?;
    cluster?;
    let at_aws = match existing.current(&launch.hash) {
        None => "at all that the fleet needs on AWS, and ",
        Some(_) => "not at what the fleet needs on AWS, for it is there; but ",
    };
    let changes = plan::changes(&changes, &args.pool.file);
    output::result(&format!(
        "Nothing stands in the pool's way. It was looked {at_aws}at your rights in the cluster.\n{changes}"
    ))?;
    Ok(Exit::Orderly)
}

async fn created(
    work: &Work<'_>,
    held: &Held,
    cloud: &Cloud,
    file: &PoolFile,
    launch: &Launch,
    args: &CreateArgs,
) -> Result<Exit, Fault> {
    // Again, now that nobody else changes it.
    let existing = existing(work, cloud, file).await?;
    not_replaced(&difference(&file.pool, launch, &existing), &args.pool.file)?;
    let target = file.pool.target_capacity;
    let ensured = cloud.pool.ensure(launch, target, target, &held.permit()).await.context("can't create the pool")?;
    let wanted = existing.current(&launch.hash).map_or(target, |fleet| fleet.target);
    if ensured.created {
        work.shown.say(&format!("fleet {} was requested, and wants {wanted} units", ensured.fleet));
    } else if wanted != target {
        work.shown.say(&format!(
            "fleet {} is there and wants {wanted} units; the file says {target}: `spot-fleet scale` brings that about",
            ensured.fleet
        ));
    }
    if args.no_wait {
        output::result(&format!("fleet {} wants {wanted} units; nobody waits for its nodes\n", ensured.fleet))?;
        return Ok(Exit::Orderly);
    }
    let report = held.pools.await_ready(wanted, &work.stop).await.map_err(fault)?;
    told(work, &report)?;
    exit_of_whole(&report, NOT_READY)
}

/// What the pool asks for. Where a fleet is to be requested, everything was looked at that can be without effect.
///
/// # Errors
/// Says what is certainly not as the pool needs it, a line for each, with the remedy. What is only unwise, or can't be
/// told, is said as well.
pub(super) async fn looked_at(work: &Work<'_>, cloud: &Cloud, existing: &Existing) -> Result<Launch, Fault> {
    let pool = &cloud.pool;
    // Of a fleet that is there, nothing is asked anew.
    let is_there = existing.current(&pool.pool().hash()).is_some();
    let findings = if is_there { Vec::new() } else { pool.check(work.by()).await };
    for finding in &findings {
        if let Err(trouble) = &finding.outcome {
            work.shown.say(&format!("{}: {}", finding.what, chain(trouble)));
        }
    }
    match findings.iter().filter(|finding| is_in_the_way(finding)).count() {
        0 => Ok(pool.launch(work.by()).await.context("can't tell what the pool asks for")?),
        1 => Err(Fault::failed(anyhow!("one thing is not as the pool needs it, see above; nothing was touched"))),
        several => Err(Fault::failed(anyhow!(
            "{several} things are not as the pool needs them, see above; nothing was touched"
        ))),
    }
}

fn is_in_the_way(finding: &Finding) -> bool {
    finding.outcome.as_ref().is_err_and(Trouble::is_certain)
}

/// What there is of the pool.
///
/// # Errors
/// When that can't be asked, or something bears the pool's name that is not its own.
pub(super) async fn existing(work: &Work<'_>, cloud: &Cloud, file: &PoolFile) -> Result<Existing, Fault> {
    let existing = cloud.pool.existing(work.by()).await.context("can't ask what exists of the pool")?;
    // What is somebody else's is told whatever the AMI says.
    let changes = difference(&file.pool, &Launch::of(&file.pool, ""), &existing);
    match changes.iter().find(|change| matches!(change, Change::Foreign { .. })) {
        Some(foreign) => Err(Fault::failed(anyhow!("{foreign}; nothing was touched"))),
        None => Ok(existing),
    }
}

/// Refuses to create beside a fleet of another file, or what a fleet could not use.
fn not_replaced(changes: &[Change], path: &Path) -> Result<(), Fault> {
    plan::not_orphaned(changes)?;
    match changes.iter().find(|change| matches!(change, Change::Replace { .. })) {
        Some(replace) => Err(Fault::failed(anyhow!(
            "the pool is there with another file: `spot-fleet roll {}` would {replace}; nothing was touched",
            path.display()
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use spot_aws::fleet::{ExistingTemplate, ExistingVersion, Version};
    use spot_core::pool::{Count, Outcome};

    use super::*;
    use crate::sample::{fleet, pool_file, pool_report};

    #[rstest]
    #[case::done(Outcome::Done, 0, "")]
    #[case::stopped(Outcome::Stopped, 1, "told to stop")]
    #[case::paused(Outcome::Paused, 1, "spot-migrator resume")]
    #[case::not_settled(Outcome::NotSettled("pod a/b".to_owned()), 1, NOT_READY)]
    #[case::blocked(Outcome::Blocked(vec![]), 1, NOT_READY)]
    #[case::a_remainder(Outcome::Remainder(1), 1, NOT_READY)]
    #[case::not_ready(Outcome::NotReady(Count::default()), 1, "again")]
    #[case::changed(Outcome::Changed("it wants 5".to_owned()), 1, "it wants 5")]
    #[case::failed(Outcome::Failed, 1, "again")]
    #[case::refused(Outcome::Refused("no".to_owned()), 1, "no")]
    fn only_a_pool_whose_nodes_are_ready_ends_orderly(#[case] outcome: Outcome, #[case] code: u8, #[case] said: &str) {
        match exit_of_whole(&pool_report(outcome), NOT_READY) {
            Ok(exit) => assert_eq!(exit.code(), code),
            Err(fault) => {
                assert_eq!(fault.exit.code(), code);
                assert!(fault.error.to_string().contains(said), "{}", fault.error);
            }
        }
    }

    fn template(launch: &Launch) -> ExistingTemplate {
        let version = |version: &Version| ExistingVersion {
            number: 1,
            description: version.description.clone(),
            machine: Some(version.machine.clone()),
        };
        let versions = launch.template.versions.iter().map(version).collect();
        ExistingTemplate { id: "lt-1".to_owned(), ours: true, versions }
    }

    #[test]
    fn nothing_is_created_beside_a_fleet_of_another_file() {
        let file = pool_file("");
        let launch = Launch::of(&file.pool, "/dev/xvda");
        let refused = |hash: &str, with_template: bool| {
            let template = with_template.then(|| template(&launch));
            let existing = Existing { template, fleets: vec![fleet("sfr-1", hash, (3, 3))] };
            let changes = difference(&file.pool, &launch, &existing);
            not_replaced(&changes, Path::new("pool.yaml")).map_err(|fault| fault.error.to_string())
        };
        assert_eq!(refused(&launch.hash, true), Ok(()));
        let other = refused("another", true).expect_err("it is another");
        assert!(other.contains("`spot-fleet roll pool.yaml` would replace fleet sfr-1"), "{other}");
        let orphan = refused(&launch.hash, false).expect_err("its template is gone");
        assert!(orphan.contains("`tags`") && orphan.contains("`spot-fleet roll`"), "{orphan}");
    }
}
