//! `spot-fleet plan`: what a pool's file asks for, and what is other than that; nothing is changed.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use serde_json::Value;
use spot_aws::fleet::{Cause, Change, Launch, difference};

use super::cli::{Arguments, PlanArgs};
use super::work::{Work, until_told};
use crate::cli::{Environment, Output};
use crate::exit::{Exit, Fault};
use crate::output;
use crate::pool::PoolFile;

/// What stands for the name of an AMI's root device where nobody is asked.
const AS_IMAGE_SAYS: &str = "as the AMI says";

/// What is wrong with a fleet whose template is gone, and the one thing that helps: whatever looks at one says the same.
pub(super) const ORPHANED: Cause = Cause::TemplateGone;

/// What a pool's file comes to.
#[derive(Debug, Serialize)]
struct Plan {
    /// What is other; none: nobody was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Change>>,
    /// The command that brings it about, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'static str>,
    /// What is asked for.
    launch: Launch,
    /// Every key in force, with defaults.
    file: Value,
}

/// Shows what differs.
pub(super) fn plan(args: &PlanArgs, arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    let path = &args.pool.file;
    let file = PoolFile::read(path).map_err(Fault::usage)?;
    if args.offline {
        let launch = Launch::of(&file.pool, file.pool.root_volume.device.as_deref().unwrap_or(AS_IMAGE_SAYS));
        return print(&Plan { changes: None, command: None, launch, file: file.to_json() }, &file, args);
    }
    until_told(arguments, environment, async |work| {
        let plan = seen(work, &file).await?;
        print(&plan, &file, args)
    })
}

async fn seen(work: &Work<'_>, file: &PoolFile) -> Result<Plan, Fault> {
    let cloud = work.cloud(file).await?;
    let launch = cloud.pool.launch(work.by()).await.context("can't tell what the pool asks for")?;
    let existing = cloud.pool.existing(work.by()).await.context("can't ask what exists of the pool")?;
    let changes = difference(&file.pool, &launch, &existing);
    Ok(Plan { command: command(&changes), changes: Some(changes), launch, file: file.to_json() })
}

fn print(plan: &Plan, file: &PoolFile, args: &PlanArgs) -> Result<Exit, Fault> {
    let printed = match args.output {
        Output::Json => format!("{}\n", serde_json::to_string(plan).context("can't write JSON")?),
        Output::Text => text(plan, file, &args.pool.file)?,
    };
    output::result(&printed)?;
    let would_change = plan.changes.as_ref().is_some_and(|changes| !changes.is_empty());
    Ok(if would_change { Exit::more_to_do(args.detailed_exit_code) } else { Exit::Orderly })
}

/// The command that brings all of it about: what is replaced is rolled, whatever else is to be done.
fn command(changes: &[Change]) -> Option<&'static str> {
    let of = |change: &Change| match change {
        Change::Foreign { .. } => None,
        Change::Replace { .. } => Some("roll"),
        Change::CreateTemplate { .. } | Change::AddVersion { .. } | Change::RequestFleet { .. } => Some("create"),
        Change::Scale { .. } | Change::Retire { .. } => Some("scale"),
    };
    let commands: Vec<_> = changes.iter().map(of).collect();
    if commands.contains(&None) || is_orphaned(changes) {
        return None;
    }
    ["roll", "create", "scale"].into_iter().find(|command| commands.contains(&Some(*command)))
}

fn text(plan: &Plan, file: &PoolFile, path: &Path) -> Result<String, Fault> {
    let Plan { changes: found, command: _, launch, file: _ } = plan;
    let pool = &file.pool;
    let mut text = format!(
        "Pool {} of cluster {}: {} units, never below {} (hash {}).\n",
        pool.name, pool.cluster, pool.target_capacity, pool.min_capacity, launch.hash
    );
    match found.as_deref() {
        None => {
            let asked = serde_saphyr::to_string(launch).context("can't write YAML")?;
            section(&mut text, "Nobody was asked. For a new pool this would be sent:", asked.lines());
        }
        Some(found) => text = format!("{text}\n{}", changes(found, path)),
    }
    if !launch.notes.is_empty() {
        section(&mut text, "To be noted:", launch.notes.iter());
    }
    section(&mut text, "In force, with defaults:", file.to_yaml().lines());
    Ok(text)
}

/// Whether the fleet that the file asks for is there, and not the template that it launches from. Another one would not
/// help it: it names that one by its ID, and the number of a version.
pub(super) fn is_orphaned(changes: &[Change]) -> bool {
    let of_template = |change: &Change| matches!(change, Change::CreateTemplate { .. } | Change::AddVersion { .. });
    let is_request = |change: &Change| matches!(change, Change::RequestFleet { .. });
    changes.iter().any(of_template) && !changes.iter().any(is_request)
}

/// Refuses to ask more of a fleet that launches nothing any more.
///
/// # Errors
/// With what helps.
pub(super) fn not_orphaned(changes: &[Change]) -> Result<(), Fault> {
    if is_orphaned(changes) { Err(Fault::failed(anyhow!("{ORPHANED}; nothing was touched"))) } else { Ok(()) }
}

/// What would change, and the command for it.
pub(super) fn changes(changes: &[Change], path: &Path) -> String {
    if changes.is_empty() {
        return "Nothing would change.\n".to_owned();
    }
    let next = match command(changes) {
        Some(command) => format!("`spot-fleet {command} {}` brings it about.", path.display()),
        None if is_orphaned(changes) => format!("None of it is done, for it would not help: {ORPHANED}."),
        None => "Nothing is done until that is out of the way.".to_owned(),
    };
    let lines: Vec<_> = changes.iter().map(|change| format!("  {change}\n")).collect();
    format!("What would change:\n{}{next}\n", lines.concat())
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = impl std::fmt::Display>) {
    // Writing into a String has no way to fail.
    let _written = writeln!(text, "\n{title}");
    for line in lines {
        let _written = writeln!(text, "  {line}");
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn replace() -> Change {
        Change::Replace { fleet: "sfr-1".to_owned(), because: Vec::new() }
    }

    fn template() -> Change {
        Change::CreateTemplate { name: "prod-workers".to_owned(), versions: 1 }
    }

    fn scale() -> Change {
        Change::Scale { fleet: "sfr-1".to_owned(), from: 1, to: 2 }
    }

    #[rstest]
    #[case::nothing(vec![], None)]
    #[case::new(vec![template(), Change::RequestFleet { target: 1 }], Some("create"))]
    #[case::of_another_file(vec![Change::RequestFleet { target: 1 }, replace()], Some("roll"))]
    #[case::of_another_size(vec![scale()], Some("scale"))]
    #[case::without_its_template(vec![template(), scale()], None)]
    #[case::somebody_elses(vec![scale(), Change::Foreign { what: "fleet", id: "sfr-2".to_owned() }], None)]
    fn the_command_that_brings_all_of_it_about_is_named(#[case] found: Vec<Change>, #[case] expected: Option<&str>) {
        assert_eq!(command(&found), expected);
        let text = changes(&found, Path::new("pool.yaml"));
        match (expected, found.is_empty()) {
            (Some(command), _) => assert!(text.contains(&format!("`spot-fleet {command} pool.yaml`")), "{text}"),
            (None, true) => assert_eq!(text, "Nothing would change.\n"),
            (None, false) if is_orphaned(&found) => assert!(text.contains("`spot-fleet roll`"), "{text}"),
            (None, false) => assert!(text.contains("until that is out of the way"), "{text}"),
        }
    }
}
