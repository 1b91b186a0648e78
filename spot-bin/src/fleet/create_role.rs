//! `spot-fleet create-role`: the roles that fleets need, as far as the account lacks them.

use anyhow::{Context as _, anyhow};
use spot_aws::fleet::Missing;

use super::cli::{Arguments, CreateRoleArgs};
use super::consent;
use super::work::until_told;
use crate::cli::Environment;
use crate::exit::{Exit, Fault};
use crate::output;

/// Creates them.
pub(super) fn create_role(
    args: &CreateRoleArgs,
    arguments: &Arguments,
    environment: &Environment,
) -> Result<Exit, Fault> {
    until_told(arguments, environment, async |work| {
        let roles = work.roles(args).await?;
        let missing = roles.missing(work.by()).await.context("can't ask which roles there are")?;
        let (missing, unknown): (Vec<_>, Vec<_>) = missing.into_iter().partition(Missing::is_certain);
        for one in &unknown {
            work.shown.say(&one.to_string());
        }
        if missing.is_empty() {
            output::result("every role that fleets need is there\n")?;
            return Ok(Exit::Orderly);
        }
        output::result(&plan(&missing))?;
        if let Some(one) = missing.iter().find(|one| !one.can_be_made()) {
            return Err(Fault::failed(anyhow!("{one}; nothing was created")));
        }
        if args.dry_run {
            return Ok(Exit::Orderly);
        }
        if !consent::asked("Do that?", args.yes, &work.stop).await? {
            return Err(consent::refused("nothing was created"));
        }
        work.begin();
        let made = roles.create(&work.permit()).await.context("can't create the roles")?;
        output::result(&format!("done: every role that fleets need is there; made just now: {}\n", made.len()))?;
        Ok(Exit::Orderly)
    })
}

/// A line for each step, and why it is needed.
fn plan(missing: &[Missing]) -> String {
    let lines: Vec<_> = missing.iter().map(|one| format!("  {}\n    ({})\n", one.step(), one.why())).collect();
    format!("Fleets need what is missing in this account:\n{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use spot_aws::fleet::ServiceLinked;

    use super::*;

    #[test]
    fn every_step_is_shown_with_its_reason() {
        let name = || "fleets".to_owned();
        let missing = [
            Missing::Role { name: name() },
            Missing::Policy { name: name() },
            Missing::ServiceLinked(ServiceLinked::Spot),
        ];
        insta::assert_snapshot!(plan(&missing));
    }
}
