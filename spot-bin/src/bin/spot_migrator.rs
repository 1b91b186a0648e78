//! `spot-migrator`: moves Kubernetes workloads from on-demand to spot nodes.

use std::process::ExitCode;

use spot_bin::cli::{self, Arguments, Command, Environment};
use spot_bin::exit::{Exit, Fault};
use spot_bin::{check, help, operator, plan, program, run, schedule, simulate};

fn main() -> ExitCode {
    program::main(Arguments::parse, dispatch)
}

fn dispatch(arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    match &arguments.command {
        Command::Run(args) => run::run(args, &arguments.overrides, environment),
        Command::Plan(args) => plan::plan(args, &arguments.overrides, environment),
        Command::Check(args) => check::check(args, &arguments.overrides, environment),
        Command::Simulate(args) => simulate::simulate(args, &arguments.overrides, environment),
        Command::Schedule(args) => schedule::schedule(args),
        Command::Pause(args) => operator::pause(args, true, &arguments.overrides, environment),
        Command::Resume(args) => operator::pause(args, false, &arguments.overrides, environment),
        Command::Completion(args) => help::completion(args, cli::command()),
        Command::Man(args) => help::man(args, cli::command()),
        Command::Release(args) => operator::release(args, &arguments.overrides, environment),
    }
}
