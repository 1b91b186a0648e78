//! `spot-agent`: empties the node on which it runs before its machine is taken back.

use std::process::ExitCode;

use spot_bin::agent;
use spot_bin::agent::arguments::Arguments;
use spot_bin::cli::Environment;
use spot_bin::exit::{Exit, Fault};
use spot_bin::output;

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
    match agent::agent(&arguments, &Environment::read()) {
        Ok(exit) => exit.into(),
        Err(Fault { exit, error }) => {
            output::failure(&error);
            exit.into()
        }
    }
}
