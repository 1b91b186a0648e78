//! The workflows of continuous integration and of a release are in order.

use std::process::{Command, Stdio};

use spot_tests::programs;

use crate::file;

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
