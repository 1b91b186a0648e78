//! `spot-fleet`: node pools of spot machines, each from one file.

use std::process::ExitCode;

use spot_bin::fleet::{self, cli::Arguments};
use spot_bin::program;

fn main() -> ExitCode {
    program::main(Arguments::parse, fleet::dispatch)
}
