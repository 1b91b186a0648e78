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
