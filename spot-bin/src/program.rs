//! What every program begins and ends with.

use std::env::{self, ArgsOs};
use std::process::ExitCode;

use crate::cli::Environment;
use crate::exit::{Exit, Fault};
use crate::output;

/// Reads the arguments, does the work, and says what went wrong. It is the first thing that a process calls.
pub fn main<A>(
    parse: impl FnOnce(ArgsOs) -> Result<A, clap::Error>,
    work: impl FnOnce(&A, &Environment) -> Result<Exit, Fault>,
) -> ExitCode {
    // With two providers in the graph a client would not know which to take.
    let installed = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(installed.is_ok(), "it is the first thing that the process does");

    let arguments = match parse(env::args_os()) {
        Ok(arguments) => arguments,
        // Help and version are such errors too, with code 0 and for standard output.
        Err(told) => {
            return match told.print() {
                Ok(()) => ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(Exit::Usage.code())),
                Err(_unheard) => Exit::Failed.into(),
            };
        }
    };
    match work(&arguments, &Environment::read()) {
        Ok(exit) => exit.into(),
        Err(Fault { exit, error }) => {
            output::failure(&error);
            exit.into()
        }
    }
}
