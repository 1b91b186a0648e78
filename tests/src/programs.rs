//! Where the programs of the world are.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// A program of the world, by name: `controlplane`, `kwok` or `karpenter`.
///
/// # Panics
/// If it can't be built.
#[must_use]
pub fn path(program: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(folder).join(program)
}

/// Runs `program` to its end and returns what it printed.
///
/// # Panics
/// If it fails.
#[must_use]
pub fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(path(program))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program} did not start: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("the programs print UTF-8")
}

/// The repository's top level: of the package that cargo runs, which may be another checkout than the one in which this
/// was compiled, where both share a target directory.
///
/// # Panics
/// Never: each package is a folder of it.
#[must_use]
pub fn repository() -> &'static Path {
    static TOP: OnceLock<PathBuf> = OnceLock::new();
    TOP.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "how cargo says which package it runs")]
        let package = std::env::var_os("CARGO_MANIFEST_DIR");
        let package = package.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        package.parent().expect("the package is a folder of the workspace").to_owned()
    })
}

/// `tests/run` says where it built the programs; under a plain `cargo test` they are built here.
fn folder() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "how `tests/run` hands over what it built")]
    let built = std::env::var_os("SPOT_WORLD");
    built.map_or_else(build, PathBuf::from)
}

fn build() -> PathBuf {
    let output = Command::new(repository().join("tests/world/build"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("tests/world/build is executable and bash is installed");
    assert!(output.status.success(), "tests/world/build failed: {}", output.status);
    PathBuf::from(String::from_utf8(output.stdout).expect("the path is UTF-8").trim_end())
}
