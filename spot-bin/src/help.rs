//! What is made of a program's command line: completions for shells, and pages for `man`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use clap_complete::Shell;

use crate::exit::{Exit, Fault};
use crate::output;

/// Arguments of `completion`.
#[derive(Args, Clone, Debug)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// A folder, for a page of each command; without one, the page of the whole is printed.
    #[arg(value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
}

/// Prints the completions of this command line.
///
/// # Errors
/// When nothing can be printed.
pub fn completion(args: &CompletionArgs, mut command: clap::Command) -> Result<Exit, Fault> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    output::result(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Orderly)
}

/// Writes the pages of this command line.
///
/// # Errors
/// When there is no such folder, or it can't be written into.
pub fn man(args: &ManArgs, command: clap::Command) -> Result<Exit, Fault> {
    if let Some(folder) = &args.folder {
        pages(folder, command)?;
    } else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).context("can't make the page")?;
        output::result(&String::from_utf8_lossy(&page))?;
    }
    Ok(Exit::Orderly)
}

fn pages(folder: &Path, command: clap::Command) -> Result<(), Fault> {
    let name = folder.display();
    if !folder.is_dir() {
        return Err(Fault::usage(anyhow!("{name} is no folder: name one that exists; `mkdir -p {name}` makes it")));
    }
    clap_mangen::generate_to(command, folder).with_context(|| format!("can't write pages into {name}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli;

    #[test]
    fn there_is_a_page_for_each_command() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let args = ManArgs { folder: Some(folder.path().to_owned()) };
        assert!(matches!(man(&args, cli::command()), Ok(Exit::Orderly)));
        let files = std::fs::read_dir(folder.path()).expect("it is there").map(|file| file.expect("it is listed"));
        let files: BTreeSet<_> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        for command in cli::command().get_subcommands().map(|command| command.get_name().to_owned()) {
            assert!(files.contains(&format!("spot-migrator-{command}.1")), "{command}: {files:?}");
        }
        let plan = std::fs::read_to_string(folder.path().join("spot-migrator-plan.1")).expect("it is there");
        assert!(plan.contains("\\-\\-detailed\\-exit\\-code"), "{plan}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_wrong_usage() {
        let args = ManArgs { folder: Some(PathBuf::from("/nonexistent/pages")) };
        let fault = man(&args, cli::command()).expect_err("there is none");
        assert_eq!(fault.exit, Exit::Usage);
        assert!(fault.error.to_string().contains("mkdir -p /nonexistent/pages"), "{}", fault.error);
    }
}
