//! `spot-agent`: empties the node on which it runs before its machine is taken back.

use std::process::ExitCode;

use spot_bin::agent::{self, arguments::Arguments};
use spot_bin::program;

fn main() -> ExitCode {
    program::main(Arguments::parse, agent::agent)
}
