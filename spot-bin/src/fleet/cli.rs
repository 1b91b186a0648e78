//! Arguments of `spot-fleet`, read once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::cli::{AccessArgs, Output};
use crate::config::{self, Log, LogFormat, LogLevel};
use crate::help::{CompletionArgs, ManArgs};

/// The command line.
///
/// Node pools of spot machines, backed by EC2 Spot Fleet: each is one file, which says everything.
#[derive(Clone, Debug, Parser)]
#[command(name = "spot-fleet", version, arg_required_else_help = true, max_term_width = 100)]
#[command(about = "Node pools of spot machines, backed by EC2 Spot Fleet: each is one file, which says everything")]
#[command(long_about = None)]
pub struct Arguments {
    /// Log every step, instead of showing how far the work is; twice: also what is waited for.
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 100)]
    pub verbose: u8,
    #[command(subcommand)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show what differs between a pool's file and what exists; change nothing.
    Plan(PlanArgs),
    /// Create the pool, and wait until its nodes are Ready.
    ///
    /// Everything that can be found out without an effect is looked at first. It may be repeated: what exists already is
    /// not made again. A pool that exists with another file is left alone, for that is what `roll` is for.
    Create(CreateArgs),
    /// Show the pool's capacity, machines, nodes and prices, and what disagrees.
    Status(StatusArgs),
    /// Make the pool larger, or smaller by retiring nodes one after another, as a migration does.
    Scale(ScaleArgs),
    /// Replace the pool's machines after a change of its file, new before old.
    ///
    /// It may be interrupted at any time, and goes on from there when it is started again.
    Roll(RollArgs),
    /// Retire all nodes, and end the pool: nothing of it is left.
    Delete(DeleteArgs),
    /// Create the roles that Spot Fleet acts by, as far as they are missing.
    CreateRole(CreateRoleArgs),
    /// Print the completions of a shell, as in `source <(spot-fleet completion bash)`.
    Completion(CompletionArgs),
    /// Print the manual page, or write one of each command.
    Man(ManArgs),
}

/// The pool's file.
#[derive(Args, Clone, Debug)]
pub struct FileArgs {
    /// The pool's file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Arguments of `plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub pool: FileArgs,
    /// Ask nobody, and print what would be sent for a new pool.
    #[arg(long)]
    pub offline: bool,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Exit with 3 instead of 0 when something would change.
    #[arg(long, conflicts_with = "offline")]
    pub detailed_exit_code: bool,
}

/// Arguments of `create`.
#[derive(Args, Clone, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub pool: FileArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub access: AccessArgs,
    /// Look at everything, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait for the nodes.
    #[arg(long, conflicts_with_all = ["dry_run", "timeout"])]
    pub no_wait: bool,
    /// How long to wait for the nodes, as in 20m; without it as long as the file's `ready.timeout` says.
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    pub timeout: Option<Duration>,
}

/// Arguments of `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub pool: FileArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub access: AccessArgs,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// On-demand prices that count before those that are built in, which grow old: a line for each, with region,
    /// instance type and dollars an hour, separated by commas or tabs.
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

/// Arguments of `scale`.
#[derive(Args, Clone, Debug)]
pub struct ScaleArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub pool: FileArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub access: AccessArgs,
    /// The capacity to have, in units; without it the file's `targetCapacity`.
    #[arg(long, value_name = "UNITS")]
    pub to: Option<u32>,
    /// Exit with 3 instead of 0 when there is more to do: no node may go, or none fits into what is too much.
    #[arg(long)]
    pub detailed_exit_code: bool,
}

/// Arguments of `roll`.
#[derive(Args, Clone, Debug)]
pub struct RollArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub pool: FileArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub access: AccessArgs,
    /// The capacity that may be missing on the way, in units.
    #[arg(long, value_name = "UNITS", default_value_t = 0)]
    pub max_unavailable: u32,
    /// The capacity that may be there beyond what is wanted, in units; without it the weight of the heaviest machine.
    #[arg(long, value_name = "UNITS")]
    pub max_surge: Option<u32>,
    /// Exit with 3 instead of 0 when there is more to do: no node may go.
    #[arg(long)]
    pub detailed_exit_code: bool,
}

/// Arguments of `delete`.
#[derive(Args, Clone, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub pool: FileArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub access: AccessArgs,
    /// Delete even pods that may not be evicted, once budgets were obeyed for this long.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "1m")]
    #[arg(value_parser = config::duration)]
    pub force: Option<Duration>,
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
}

/// Arguments of `create-role`.
#[derive(Args, Clone, Debug)]
pub struct CreateRoleArgs {
    /// The name of the role that Spot Fleet launches, tags and terminates machines by.
    #[arg(long, value_name = "NAME", default_value = "aws-ec2-spot-fleet-tagging-role")]
    pub name: String,
    /// Show what would be created, and create nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
    /// The region; without it as environment or profile say.
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,
    /// Where all AWS APIs are, if not where AWS has them.
    #[arg(long, value_name = "URL")]
    pub endpoint_url: Option<String>,
}

impl Arguments {
    /// Reads the command line, the name of the program first.
    ///
    /// # Errors
    /// When it is none, or asks for help or the version: the error says what to print.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(arguments)
    }

    /// What is logged beside the lines that show how far the work is: only what may be wrong, unless somebody asks for
    /// more, and less where a bar would be torn by it.
    #[must_use]
    pub fn log(&self, is_watched: bool) -> Log {
        match self.verbose {
            0 if is_watched => Log { format: LogFormat::Text, level: LogLevel::Error },
            0 => Log { format: LogFormat::Text, level: LogLevel::Warn },
            1 => Log { format: LogFormat::Auto, level: LogLevel::Info },
            2.. => Log { format: LogFormat::Auto, level: LogLevel::Debug },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use rstest::rstest;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::parse(["spot-fleet"].iter().chain(arguments).map(OsString::from))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[rstest]
    #[case::whole("whole", &["--help"])]
    #[case::plan("plan", &["plan", "--help"])]
    #[case::create("create", &["create", "--help"])]
    #[case::status("status", &["status", "--help"])]
    #[case::scale("scale", &["scale", "--help"])]
    #[case::roll("roll", &["roll", "--help"])]
    #[case::delete("delete", &["delete", "--help"])]
    #[case::create_role("create-role", &["create-role", "--help"])]
    fn help_is_as_reviewed(#[case] name: &str, #[case] arguments: &[&str]) {
        let help = parse(arguments).expect_err("help is no command").to_string();
        insta::assert_snapshot!(format!("help-{name}"), help);
    }

    #[rstest]
    #[case(&["plan"], "<FILE>")]
    #[case(&["pln", "pool.yaml"], "plan")]
    #[case(&["plan", "pool.yaml", "--offline", "--detailed-exit-code"], "--offline")]
    #[case(&["create", "pool.yaml", "--no-wait", "--timeout", "5m"], "--timeout")]
    #[case(&["create", "pool.yaml", "--timeout", "5 minutes"], "5m")]
    #[case(&["scale", "pool.yaml", "--to", "-1"], "-- -1")]
    #[case(&["scale", "pool.yaml", "--to", "1.5"], "--to")]
    #[case(&["roll", "pool.yaml", "--max-serge", "2"], "--max-surge")]
    #[case(&["delete", "pool.yaml", "--force=soon"], "--force")]
    fn a_wrong_argument_is_named_with_what_would_be_right(#[case] arguments: &[&str], #[case] named: &str) {
        let error = parse(arguments).expect_err("it is wrong");
        assert!(error.to_string().contains(named), "{error}");
        assert_eq!(error.exit_code(), 2);
    }

    #[rstest]
    #[case(&[], None)]
    #[case(&["--force"], Some(60))]
    #[case(&["--force=5m"], Some(300))]
    fn force_says_how_long_budgets_are_obeyed(#[case] force: &[&str], #[case] seconds: Option<u64>) {
        let arguments = parse(&[&["delete", "pool.yaml"], force].concat()).expect("it is right");
        let Command::Delete(delete) = arguments.command else { panic!("{arguments:?}") };
        assert_eq!(delete.force.map(|force| force.as_secs()), seconds);
    }

    #[rstest]
    #[case(&[], true, LogLevel::Error)]
    #[case(&[], false, LogLevel::Warn)]
    #[case(&["-v"], true, LogLevel::Info)]
    #[case(&["-vv"], true, LogLevel::Debug)]
    fn a_person_sees_how_far_it_is_and_asks_for_more(
        #[case] verbose: &[&str],
        #[case] is_watched: bool,
        #[case] level: LogLevel,
    ) {
        let arguments = parse(&[&["plan", "pool.yaml"], verbose].concat()).expect("it is right");
        assert_eq!(arguments.log(is_watched).level, level);
    }
}
