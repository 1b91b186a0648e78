//! `spot-migrator`: moves Kubernetes workloads from on-demand to spot nodes.

use std::process::ExitCode;

use spot_bin::cli::{Arguments, Command, Environment};
use spot_bin::exit::{Exit, Fault};
use spot_bin::{check, operator, output, plan, run, schedule, simulate};

fn main() -> ExitCode {
    // With two providers in the graph a client would not know which to take.
    let installed = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(installed.is_ok(), "it is the first thing that the process does");

    let arguments = match Arguments::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        // Help and version are such errors too, with code 0 and for standard output.
        Err(told) => {
            return match told.print() {
                Ok(()) => ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(Exit::Usage.code())),
                Err(_unheard) => Exit::Failed.into(),
            };
        }
    };
    match dispatch(&arguments, &Environment::read()) {
        Ok(exit) => exit.into(),
        Err(Fault { exit, error }) => {
            output::failure(&error);
            exit.into()
        }
    }
}

fn dispatch(arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    match &arguments.command {
        Command::Run(args) => run::run(args, &arguments.overrides, environment),
        Command::Plan(args) => plan::plan(args, &arguments.overrides, environment),
        Command::Check(args) => check::check(args, &arguments.overrides, environment),
        Command::Simulate(args) => simulate::simulate(args),
        Command::Schedule(args) => schedule::schedule(args),
        Command::Pause(args) => operator::pause(args, true, &arguments.overrides, environment),
        Command::Resume(args) => operator::pause(args, false, &arguments.overrides, environment),
        Command::Release(args) => operator::release(args, &arguments.overrides, environment),
    }
}
