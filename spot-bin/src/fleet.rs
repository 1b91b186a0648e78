//! `spot-fleet`: node pools of spot machines, each from one file.
//!
//! ```text
//! pool file ─► PoolFile ─► NodePool (spot-aws): what exists, what is asked for, and the calls that bring it about
//!                             └─► Pools (spot-core), under the pool's lease: waits, retires, rolls, removes
//!                                    └─► report, exit ◄─ progress: a line for each step, a bar on a terminal
//! ```
//!
//! Like everything in this crate it decides nothing.

pub mod cli;
mod consent;
mod create;
mod create_role;
mod delete;
mod listened;
mod plan;
mod progress;
mod report;
mod roll;
mod scale;
mod status;
mod work;

use clap::CommandFactory as _;

use self::cli::{Arguments, Command};
use crate::cli::Environment;
use crate::exit::{Exit, Fault};
use crate::help;

/// Does what the arguments say.
///
/// # Errors
/// When arguments or file are wrong, cloud or cluster can't be reached, something is missing that is needed, or the work
/// fails.
pub fn dispatch(arguments: &Arguments, environment: &Environment) -> Result<Exit, Fault> {
    match &arguments.command {
        Command::Plan(args) => plan::plan(args, arguments, environment),
        Command::Create(args) => create::create(args, arguments, environment),
        Command::Status(args) => status::status(args, arguments, environment),
        Command::Scale(args) => scale::scale(args, arguments, environment),
        Command::Roll(args) => roll::roll(args, arguments, environment),
        Command::Delete(args) => delete::delete(args, arguments, environment),
        Command::CreateRole(args) => create_role::create_role(args, arguments, environment),
        Command::Completion(args) => help::completion(args, Arguments::command()),
        Command::Man(args) => help::man(args, Arguments::command()),
    }
}
