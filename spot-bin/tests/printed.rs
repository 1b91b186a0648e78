//! What is printed, and where: colours only for those who see and want them, results on standard output alone, and no
//! complaint when whoever reads stops reading.

#![expect(clippy::expect_used, reason = "what fails in a test ends it")]

use std::io::Read as _;
use std::process::{Command, Output, Stdio};

use rstest::rstest;
use serde_json::json;

/// Two on-demand nodes, of which one has a pod that nothing would make again.
fn cluster() -> String {
    let node = |name: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": name,
                "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"node.kubernetes.io/lifecycle": "on-demand"},
            },
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z"}
            ]},
        })
    };
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "bare",
            "namespace": "default",
            "uid": "bare",
            "creationTimestamp": "2026-01-01T02:00:00Z",
        },
        "spec": {"nodeName": "held", "containers": [{"name": "a", "image": "a"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [node("free"), node("held"), pod]}).to_string()
}

fn plan(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(folder.path().join("cluster.json"), cluster()).expect("it is writable");
    Command::new(env!("CARGO_BIN_EXE_spot-migrator"))
        .args(["plan", "-f", "cluster.json"])
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

fn is_coloured(output: &Output) -> bool {
    output.stdout.contains(&0x1b)
}

#[rstest]
#[case::piped(&[], false)]
#[case::forced(&[("CLICOLOR_FORCE", "1")], true)]
#[case::unwanted(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "0")], false)]
#[case::on_a_dumb_terminal(&[("TERM", "dumb")], false)]
fn a_table_has_colours_only_where_they_are_seen_and_wanted(
    #[case] environment: &[(&str, &str)],
    #[case] coloured: bool,
) {
    let output = plan(&[], environment);
    assert!(output.status.success());
    assert_eq!(is_coloured(&output), coloured);
    let plain = anstream::adapter::strip_bytes(&output.stdout).into_vec();
    assert_eq!(plain, plan(&[], &[]).stdout, "they are all that differs");
}

#[rstest]
#[case("json")]
#[case("yaml")]
fn what_machines_read_has_no_colours_though_they_are_forced(#[case] format: &str) {
    let output = plan(&["-o", format], &[("CLICOLOR_FORCE", "1")]);
    assert!(output.status.success() && !is_coloured(&output));
}

#[test]
fn notes_are_beside_the_result_and_not_in_it() {
    let output = plan(&["-o", "json"], &[]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is one document");
    assert_eq!(document["next"], json!(["free"]));
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.lines().all(|line| line.starts_with("note: ")) && !notes.is_empty(), "{notes}");
}

#[rstest]
#[case("bash", "complete ")]
#[case("zsh", "#compdef spot-migrator")]
#[case("fish", "complete -c spot-migrator")]
fn completions_are_printed_for_each_shell(#[case] shell: &str, #[case] part: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spot-migrator"));
    let output = command.args(["completion", shell]).env_clear().output().expect("the program starts");
    let script = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && script.contains(part) && script.contains("drain-timeout"), "{script}");
}

#[test]
fn who_stops_reading_is_no_failure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spot-migrator"));
    let arguments = ["simulate", "--nodes", "500", "--pods", "2000", "-o", "json"];
    let mut process = command
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut first = [0; 1];
    process.stdout.take().expect("it is piped").read_exact(&mut first).expect("it prints something");
    let ended = process.wait_with_output().expect("it ends");
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}
