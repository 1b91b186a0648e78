//! The workflows of continuous integration and of a release are in order.

use std::process::{Command, Stdio};

use spot_tests::programs;

use crate::{file, read};

#[test]
fn actionlint_finds_nothing_to_complain_of() {
    let folder = std::fs::read_dir(file(".github/workflows")).expect("the folder is there");
    let workflows: Vec<_> = folder.map(|entry| entry.expect("it can be listed").path()).collect();
    assert!(workflows.len() >= 2, "{workflows:?}");
    // Without what it would run besides, if it were installed: everywhere the same.
    let output = Command::new(programs::path("actionlint"))
        .args(["-no-color", "-shellcheck=", "-pyflakes="])
        .args(&workflows)
        .stdin(Stdio::null())
        .output()
        .expect("actionlint starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

/// The lines of the workflows that say this.
fn lines_with(words: &str) -> Vec<String> {
    let folder = std::fs::read_dir(file(".github/workflows")).expect("the folder is there");
    let texts = folder.map(|entry| std::fs::read_to_string(entry.expect("it can be listed").path()));
    let lines = texts.flat_map(|text| text.expect("it is text").lines().map(str::to_owned).collect::<Vec<_>>());
    lines.filter(|line| line.contains(words)).collect()
}

#[test]
fn every_action_of_others_is_pinned_by_the_digest_of_a_commit_beside_its_version() {
    let used = lines_with("uses: ");
    let others: Vec<_> = used.iter().filter(|line| !line.contains("uses: ./")).collect();
    assert!(others.len() > 10, "{others:?}");
    for line in others {
        let (commit, version) =
            line.split_once('@').and_then(|(_, rest)| rest.split_once(" # v")).unwrap_or_else(|| panic!("{line}"));
        assert!(commit.len() == 40 && commit.chars().all(|digit| digit.is_ascii_hexdigit()), "{line}");
        assert_eq!(version.split('.').count(), 3, "{line}");
    }
}

#[test]
fn dependencies_are_checked_and_nothing_is_built_from_others_than_those_that_are_locked() {
    assert!(lines_with("cargo deny").iter().any(|line| line.ends_with("run: cargo deny --locked check")));
    assert!(!read("Cargo.lock").is_empty());
    let files = ["Dockerfile", "tests/run", "tests/matrix", ".ci/run"].map(read);
    let commands = files.iter().flat_map(|text| text.lines()).map(str::to_owned).chain(lines_with("cargo "));
    let builds = ["build", "test", "clippy", "doc", "install", "run", "bench"].map(|what| format!("cargo {what} "));
    let commands: Vec<_> = commands
        .filter(|line| !line.trim_start().starts_with(['#', 'e']) && builds.iter().any(|what| line.contains(what)))
        .collect();
    assert!(commands.len() > 8, "{commands:?}");
    for command in commands {
        assert!(command.contains("--locked"), "{command}");
    }
}

#[test]
fn the_image_is_built_with_the_rust_of_the_workspace() {
    let toolchain = read("rust-toolchain.toml");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"'));
    let channel = channel.expect("the workspace names its Rust");
    let dockerfile = read("Dockerfile");
    for line in [format!("FROM rust:{channel}-slim-bookworm AS build"), format!("ENV RUSTUP_TOOLCHAIN={channel}")] {
        assert!(dockerfile.lines().any(|other| other == line), "{line}");
    }
}
