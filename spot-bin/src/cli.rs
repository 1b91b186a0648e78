//! Arguments and environment, read once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;

use crate::config;
use crate::help::{CompletionArgs, ManArgs};

/// Subcommands that take the configuration's keys as flags.
const CONFIGURED: [&str; 4] = ["run", "plan", "check", "simulate"];

/// Subcommands that take only those that tell where a migrator's state is.
const POINTED: [&str; 3] = ["pause", "resume", "release"];

/// The flags of those keys.
const STATE: [&str; 2] = ["state-namespace", "state-config-map"];

/// The command line, with the values of the configuration's flags.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// What to do.
    pub command: Command,
    /// Keys of the configuration that flags override, by their full path.
    pub overrides: BTreeMap<String, String>,
}

/// Moves Kubernetes workloads from on-demand to spot nodes, and retires the on-demand nodes.
#[derive(Debug, Parser)]
#[command(name = "spot-migrator", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Migrate on schedule, or once.
    ///
    /// Finishes what an earlier process began, then retires on-demand nodes one after another at every tick of the
    /// schedule, until none is left or an on-demand node comes back because spot is exhausted. SIGTERM and SIGINT end
    /// it in order, between two steps; a second one ends it at once.
    Run(RunArgs),
    /// Show what a run would do, and why; write nothing.
    ///
    /// For every node: class, rank, verdict, reason and remedy, from the cluster, or from files that
    /// `kubectl get nodes,pods,pdb,daemonsets,pvc,pv -A -o yaml` wrote.
    Plan(PlanArgs),
    /// Ask whether everything is there that a run needs; change nothing.
    ///
    /// Configuration, schedule, cluster, rights and cloud, each with what would help. Exits with 1 if a run would not
    /// begin. Of the cloud only that is asked which has no effect: not every right that is missing shows here.
    Check(CheckArgs),
    /// Run the real migrator against a model of a cluster, under virtual time.
    ///
    /// Needs no cluster and no account: the model is one that is built in, or like the cluster of files that
    /// `kubectl get nodes,pods,pdb,daemonsets,pvc,pv -A -o yaml` wrote. The same arguments give the same output.
    Simulate(SimulateArgs),
    /// Show when a schedule fires.
    Schedule(ScheduleArgs),
    /// Hold planned work back: whoever runs sees it before its next destructive step.
    Pause(OperatorArgs),
    /// Let planned work go on.
    Resume(OperatorArgs),
    /// Take everything of ours off nodes that are not on their way out: mark, cordon, taints, record, back-off.
    Release(ReleaseArgs),
    /// Print the completions of a shell, as in `source <(spot-migrator completion bash)`.
    Completion(CompletionArgs),
    /// Print the manual page, or write one of each command.
    Man(ManArgs),
}

/// Where the configuration is.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// Configuration file; without one every key has its default.
    #[arg(long, value_name = "FILE", env = "SPOT_MIGRATOR_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
}

/// How to reach the cluster.
#[derive(Args, Clone, Debug)]
pub struct AccessArgs {
    /// Kubeconfig file. In a pod, the pod's own account is used unless this, --context or KUBECONFIG is given.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, instead of its current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Arguments of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub config: ConfigArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub access: AccessArgs,
    /// Do a single run now and exit, without a server for metrics and health. If an earlier process left a node
    /// half done, only that is finished.
    #[arg(long)]
    pub once: bool,
    /// With --once: exit with 3 instead of 0 when there is more to do (spot exhausted, nothing eligible, recovered).
    #[arg(long, requires = "once")]
    pub detailed_exit_code: bool,
}

/// Arguments of `plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub config: ConfigArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub access: AccessArgs,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: PlanOutput,
    /// Saved objects to read instead of the cluster, YAML or JSON; `-` is standard input. May be repeated.
    #[arg(short, long = "file", value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"], num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// Exit with 3 instead of 0 when a run would retire a node.
    #[arg(long)]
    pub detailed_exit_code: bool,
}

/// Arguments of `check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub config: ConfigArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub access: AccessArgs,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `pause` and `resume`.
#[derive(Args, Clone, Debug)]
pub struct OperatorArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub config: ConfigArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub access: AccessArgs,
}

/// Arguments of `release`.
#[derive(Args, Clone, Debug)]
pub struct ReleaseArgs {
    /// Names of nodes.
    #[arg(value_name = "NODE", required_unless_present = "all")]
    pub nodes: Vec<String>,
    /// Every node.
    #[arg(long, conflicts_with = "nodes")]
    pub all: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub operator: OperatorArgs,
}

/// Arguments of `simulate`.
#[derive(Args, Clone, Debug)]
pub struct SimulateArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would be shown as help")]
    pub config: ConfigArgs,
    /// Saved objects of a cluster for the model to be like, YAML or JSON; `-` is standard input. May be repeated.
    #[arg(short, long = "file", value_name = "FILE", conflicts_with_all = ["nodes", "pods"], num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// What all chance comes from: the same seed gives the same output.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// On-demand nodes to begin with.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub nodes: u32,
    /// Pods on them.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=200_000))]
    pub pods: u32,
    /// What happens.
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    pub scenario: ScenarioName,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: SimulateOutput,
}

/// Arguments of `schedule`.
#[derive(Args, Clone, Debug)]
pub struct ScheduleArgs {
    /// Five cron fields, as in "0 3 * * mon-fri"; a shortcut, as in @hourly; or an interval, as in "@every 90m".
    #[arg(value_name = "EXPR")]
    pub expression: String,
    /// Time zone, an IANA name.
    #[arg(long, value_name = "TZ", default_value = "UTC")]
    pub time_zone: String,
    /// The moment after which to look, as in 2026-03-29T00:00:00Z. Now, if it is not given.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Timestamp>,
    /// How many times to show.
    #[arg(short = 'n', long, value_name = "N", default_value = "5")]
    pub count: NonZeroUsize,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// How a simulation is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SimulateOutput {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// For people with a browser: one page that needs no network.
    Html,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// How a plan is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PlanOutput {
    /// A table.
    #[default]
    Text,
    /// A table with more columns: pool, instance type, zone, pods and price.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// What happens in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ScenarioName {
    /// Spot has room for everything: all on-demand nodes go.
    #[default]
    SpotAvailable,
    /// Spot runs out on the way: an on-demand node comes, and the run stops.
    SpotExhausted,
    /// A budget allows no disruption of one application: nodes with its pods stay.
    BlockedByBudget,
    /// The process is killed in the middle of a drain and starts again.
    KilledHalfway,
}

/// What the process is told by its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The process's own. Variables that are not UTF-8 are none of ours, and are left out.
    #[must_use]
    pub fn read() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// The value of a variable; empty is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> impl IntoIterator<Item = (String, String)> + use<> {
        self.variables.clone()
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        Self { variables: variables.into_iter().collect() }
    }
}

impl Arguments {
    /// Reads the command line, the name of the program first.
    ///
    /// # Errors
    /// When it is none, or asks for help or the version: the error says what to print.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = command();
        let matches = command.try_get_matches_from_mut(arguments)?;
        let overrides = matches.subcommand().map(|(_, matches)| config::flag_values(matches)).unwrap_or_default();
        let Cli { command } = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        Ok(Self { command, overrides })
    }
}

/// The command line as clap knows it, the configuration's keys among its flags.
#[must_use]
pub fn command() -> clap::Command {
    let state = || config::flags().into_iter().filter(|flag| flag.get_long().is_some_and(|flag| STATE.contains(&flag)));
    let command = CONFIGURED
        .iter()
        .fold(Cli::command(), |command, name| command.mut_subcommand(name, |sub| sub.args(config::flags())));
    POINTED.iter().fold(command, |command, name| command.mut_subcommand(name, |sub| sub.args(state())))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::parse(["spot-migrator"].iter().chain(arguments).map(OsString::from))
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[rstest]
    #[case::whole("whole", &["--help"])]
    #[case::run("run", &["run", "--help"])]
    #[case::plan("plan", &["plan", "-h"])]
    #[case::check("check", &["check", "-h"])]
    #[case::simulate("simulate", &["simulate", "--help"])]
    #[case::pause("pause", &["pause", "--help"])]
    #[case::resume("resume", &["resume", "--help"])]
    #[case::release("release", &["release", "--help"])]
    #[case::completion("completion", &["completion", "--help"])]
    #[case::man("man", &["man", "--help"])]
    #[case::schedule("schedule", &["schedule", "--help"])]
    fn help_is_as_reviewed(#[case] name: &str, #[case] arguments: &[&str]) {
        let help = parse(arguments).expect_err("help is no command").to_string();
        insta::assert_snapshot!(format!("help-{name}"), help);
    }

    #[test]
    fn keys_of_the_configuration_are_flags() {
        let arguments = parse(&["run", "--dry-run", "--drain-timeout", "5m"]).expect("both are flags");
        let expected = [("dryRun", "true"), ("drain.timeout", "5m")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(arguments.overrides, BTreeMap::from(expected));
    }

    #[rstest]
    #[case(&["pause"])]
    #[case(&["resume"])]
    #[case(&["release", "--all"])]
    fn what_a_person_does_by_hand_can_be_pointed_at_the_migrators_state(#[case] command: &[&str]) {
        let flags = ["--state-namespace", "ours", "--state-config-map", "memory"];
        let arguments = parse(&[command, &flags].concat()).expect("both are flags");
        let expected = [("state.namespace", "ours"), ("state.configMap", "memory")];
        assert_eq!(arguments.overrides, BTreeMap::from(expected.map(|(key, value)| (key.into(), value.into()))));
    }

    #[rstest]
    #[case(&["run", "--detailed-exit-code"], "--once")]
    #[case(&["plan", "-f", "nodes.yaml", "--context", "kind"], "--context")]
    #[case(&["simulate", "--scenario", "spot-availible"], "spot-available")]
    #[case(&["simulate", "--nodes", "0"], "1..=5000")]
    #[case(&["schedule", "@hourly", "--from", "tomorrow"], "--from")]
    #[case(&["schedule", "@hourly", "-n", "0"], "0")]
    #[case(&["release"], "<NODE>")]
    #[case(&["release", "node-1", "--all"], "--all")]
    fn a_wrong_argument_is_named_with_what_would_be_right(#[case] arguments: &[&str], #[case] named: &str) {
        let error = parse(arguments).expect_err("it is wrong");
        assert!(error.to_string().contains(named), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}
