//! What is printed, and where: colours only for those who see and want them, results on standard output alone, and no
//! complaint when whoever reads stops reading.

#![expect(clippy::expect_used, reason = "what fails in a test ends it")]

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rstest::rstest;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
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

fn command(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    std::fs::write(folder.join("cluster.json"), cluster()).expect("it is writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_spot-migrator"));
    command
        .args(["plan", "-f", "cluster.json"])
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

fn plan(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().expect("a folder can be made");
    command(folder.path(), arguments, environment).output().expect("the program starts")
}

/// What a terminal of this width shows.
fn on_a_terminal(width: u16, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let screen = openpt(flags).expect("there are terminals");
    unlockpt(&screen).expect("it is ours");
    let terminal = ioctl_tiocgptpeer(&screen, flags).expect("it has another side");
    let size = Winsize { ws_col: width, ws_row: 24, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).expect("it takes any size");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let started = command(folder.path(), arguments, &[("TERM", "xterm")])
        .envs(environment.iter().copied())
        .stdout(terminal)
        .stderr(Stdio::null())
        .spawn();
    let (mut shown, mut bytes) = (Vec::new(), [0; 4096]);
    let mut screen = File::from(screen);
    // When nobody has the terminal open any more, to read is an error.
    while let Ok(count @ 1..) = screen.read(&mut bytes) {
        shown.extend_from_slice(&bytes[..count]);
    }
    assert!(started.expect("the program starts").wait().expect("it ends").success());
    String::from_utf8(shown).expect("it is UTF-8").replace("\r\n", "\n")
}

fn is_coloured(text: &[u8]) -> bool {
    text.contains(&0x1b)
}

#[rstest]
#[case::piped(&[("TERM", "xterm")], false)]
#[case::forced(&[("CLICOLOR_FORCE", "1")], true)]
#[case::unwanted(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false)]
fn in_a_pipe_a_table_has_colours_only_where_they_are_forced(
    #[case] environment: &[(&str, &str)],
    #[case] coloured: bool,
) {
    let output = plan(&[], environment);
    assert!(output.status.success());
    assert_eq!(is_coloured(&output.stdout), coloured);
    let plain = anstream::adapter::strip_bytes(&output.stdout).into_vec();
    assert_eq!(plain, plan(&[], &[]).stdout, "they are all that differs");
}

#[rstest]
#[case::seen(&[], true)]
#[case::unwanted(&[("NO_COLOR", "1")], false)]
#[case::unwanted_though_forced(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false)]
#[case::of_no_opinion(&[("NO_COLOR", "")], true)]
#[case::switched_off(&[("CLICOLOR", "0")], false)]
#[case::dumb(&[("TERM", "dumb")], false)]
fn a_terminal_shows_colours_where_it_can_and_they_are_wanted(
    #[case] environment: &[(&str, &str)],
    #[case] coloured: bool,
) {
    let shown = on_a_terminal(250, &[], environment);
    assert_eq!(is_coloured(shown.as_bytes()), coloured, "{shown}");
    let plain = anstream::adapter::strip_str(&shown).to_string();
    assert_eq!(plain.as_bytes(), plan(&[], &[]).stdout, "they are all that differs");
}

#[rstest]
#[case::few("text")]
#[case::all("wide")]
fn lines_are_as_wide_as_the_terminal_or_as_columns_says(#[case] format: &str) {
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    let arguments = ["-o", format];
    let on_a_terminal =
        |width, columns: &[(&str, &str)]| on_a_terminal(width, &arguments, &[&[("NO_COLOR", "1")], columns].concat());
    let piped =
        |environment: &[(&str, &str)]| String::from_utf8(plan(&arguments, environment).stdout).expect("it is UTF-8");
    let narrow = on_a_terminal(60, &[]);
    assert!(widest(&narrow) <= 60 && widest(&narrow) > 40, "{narrow}");
    assert!(widest(&piped(&[])) > 60, "a pipe has no width");
    let narrower = piped(&[("COLUMNS", "50")]);
    assert!(widest(&narrower) <= 50, "{narrower}");
    assert_eq!(on_a_terminal(60, &[("COLUMNS", "50")]), narrower, "what is said counts before what is seen");
    for senseless in ["0", "-1", "wide", ""] {
        assert_eq!(on_a_terminal(60, &[("COLUMNS", senseless)]), narrow, "{senseless:?}");
    }
}

#[rstest]
#[case("json")]
#[case("yaml")]
fn what_machines_read_has_no_colours_though_they_are_forced(#[case] format: &str) {
    let output = plan(&["-o", format], &[("CLICOLOR_FORCE", "1")]);
    assert!(output.status.success() && !is_coloured(&output.stdout));
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

#[test]
fn who_is_gone_before_anything_is_printed_is_no_failure() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut command = command(folder.path(), &[], &[]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    drop(process.stdout.take());
    let ended = process.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.lines().all(|line| line.starts_with("note: ")), "{said}");
}
