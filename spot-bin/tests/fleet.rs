//! `spot-fleet` as people start it: what is wrong is said with its place and the remedy before anybody is asked, and the
//! exit code tells.

#![cfg(feature = "aws")]
#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

const POOL: &str = "apiVersion: spot-migrator.io/v1alpha1
kind: SpotFleetNodePool
cluster: prod
name: workers
targetCapacity: 6
minCapacity: 2
region: eu-west-1
subnets: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]
securityGroups: [sg-0123456789abcdef0]
instanceProfile: node
image: ami-0123456789abcdef0
userData: {kubelet: {}}
unitRootVolumeIops: 20000
launchSpecifications:
- {instanceType: m5.large}
- {instanceType: m5.xlarge, weightedCapacity: 2}
- {instanceType: m5.4xlarge, weightedCapacity: 6}
";

/// A cluster and an AWS behind a port on which nobody listens: the first one is never given out.
const UNREACHABLE: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
                           clusters: [{name: a, cluster: {server: \"https://127.0.0.1:1\"}}]\n\
                           users: [{name: a, user: {token: secret-token}}]\n\
                           contexts: [{name: a, context: {cluster: a, user: a}}]\n";
const NOBODY: &str = "endpointUrl: \"http://127.0.0.1:1\"\n";

/// The program with an environment of its own, in a folder with a pool's file.
fn run(pool: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder can be made");
    write(&folder, "pool.yaml", pool);
    write(&folder, "kubeconfig", UNREACHABLE);
    program(folder.path()).args(arguments).output().expect("the program starts")
}

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spot-fleet"));
    command.env_clear().current_dir(folder).stdin(Stdio::null());
    // Credentials of nobody: without them the SDK would look for some.
    command.envs([("AWS_ACCESS_KEY_ID", "nobody"), ("AWS_SECRET_ACCESS_KEY", "nothing"), ("KUBECONFIG", "kubeconfig")]);
    command
}

fn write(folder: &TempDir, name: &str, text: &str) {
    fs::write(folder.path().join(name), text).expect("the folder is writable");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const COMMANDS: [&str; 6] = ["plan", "create", "status", "scale", "roll", "delete"];

#[test]
fn every_command_refuses_a_wrong_file_with_place_and_remedy_before_anything_else() {
    let wrong = POOL.replace("minCapacity: 2", "minCapcity: 2");
    for command in COMMANDS {
        let output = run(&wrong, &[command, "pool.yaml"]);
        let said = said(&output);
        assert_eq!((output.status.code(), printed(&output).as_str()), (Some(2), ""), "{command}: {said}");
        for word in ["error: ", "pool.yaml:6:", "minCapcity", "minCapacity"] {
            assert!(said.contains(word), "{word} is not named by {command} in\n{said}");
        }
    }
}

#[test]
fn every_command_names_a_file_that_is_not_there() {
    for command in COMMANDS {
        let output = run(POOL, &[command, "gone.yaml"]);
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(said(&output).contains("gone.yaml"), "{}", said(&output));
    }
}

#[rstest]
#[case::no_command(&[], "Usage")]
#[case::unknown_command(&["rol", "pool.yaml"], "roll")]
#[case::no_file(&["create"], "<FILE>")]
#[case::below_the_floor(&["scale", "pool.yaml", "--to", "1"], "`minCapacity`")]
#[case::nobody_to_ask(&["delete", "pool.yaml"], "--yes")]
#[case::prices_that_are_not_there(&["status", "pool.yaml", "--prices", "gone.tsv"], "gone.tsv")]
#[case::prices_that_are_none(&["status", "pool.yaml", "--prices", "pool.yaml"], "line 1")]
#[case::kubeconfig_that_is_not_there(&["status", "pool.yaml", "--kubeconfig", "gone"], "gone")]
fn wrong_arguments_end_with_2_and_name_what_would_be_right(#[case] arguments: &[&str], #[case] named: &str) {
    let output = run(&format!("{POOL}{NOBODY}"), arguments);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(named), "{named} is not named in\n{said}");
}

#[test]
fn a_pool_in_no_region_is_refused() {
    let output = run(&POOL.replace("region: eu-west-1\n", ""), &["plan", "pool.yaml"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("`region`"), "{}", said(&output));
    assert!(!said(&output).contains("cloudProvider"), "it is a key of another file: {}", said(&output));
    let output = run(POOL, &["create-role", "--yes"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("--region"), "{}", said(&output));
    assert!(!said(&output).contains("cloudProvider"), "it is no argument: {}", said(&output));
}

#[test]
fn a_plan_asks_nobody_if_told_so_and_shows_what_would_be_sent_and_what_is_in_force() {
    let output = run(POOL, &["plan", "pool.yaml", "--offline"]);
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
    let text = printed(&output);
    for shown in [
        "Pool workers of cluster prod: 6 units, never below 2",
        // What is sent,
        "instanceType: m5.4xlarge",
        "noTermination",
        // what is clamped,
        "To be noted:",
        "m5.4xlarge: ",
        // and a default.
        "allocationStrategy: price-capacity-optimized",
    ] {
        assert!(text.contains(shown), "{shown} is not shown in\n{text}");
    }
}

#[test]
fn a_plan_is_one_json_document_with_what_would_be_sent_and_every_key() {
    let output = run(POOL, &["plan", "pool.yaml", "--offline", "-o", "json"]);
    let plan: Value = serde_json::from_slice(&output.stdout).expect("it is one document");
    assert_eq!(plan["launch"]["request"]["kind"], "maintain");
    assert_eq!((&plan["file"]["targetCapacity"], &plan["file"]["unitRootVolumeSize"]), (&6.into(), &20.into()));
    assert!(plan.get("changes").is_none(), "nobody was asked: {plan}");
    let again = run(POOL, &["plan", "pool.yaml", "--offline", "-o", "json"]);
    assert_eq!(printed(&output), printed(&again));
}

/// An AWS that allows nothing.
fn denying() -> String {
    let refusal = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors>\
                   <RequestID>1</RequestID></Response>";
    answering(move |_action| ("403 Forbidden", refusal.to_owned()))
}

/// An AWS in which there is nothing.
fn empty() -> String {
    answering(|action| ("200 OK", format!("<{action}Response><requestId>1</requestId></{action}Response>")))
}

fn answering(answer: impl Fn(&str) -> (&'static str, String) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || {
                // Head and body may come apart.
                let (mut request, mut buffer) = (String::new(), vec![0; 65_536]);
                while !request.contains("Action=") {
                    let Ok(read @ 1..) = stream.read(&mut buffer) else { return };
                    request.push_str(&String::from_utf8_lossy(&buffer[..read]));
                }
                let action = request.split("Action=").nth(1).and_then(|rest| rest.split('&').next());
                let (status, body) = answer(action.unwrap_or_default());
                let head = format!("HTTP/1.1 {status}\r\ncontent-type: text/xml\r\nconnection: close\r\n");
                // Whoever does not read the answer does not want it.
                let _answered = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
            });
        }
    });
    format!("http://{address}")
}

#[rstest]
#[case(&["plan", "pool.yaml"])]
#[case(&["create", "pool.yaml"])]
#[case(&["create", "pool.yaml", "--dry-run"])]
#[case(&["status", "pool.yaml"])]
#[case(&["scale", "pool.yaml"])]
#[case(&["roll", "pool.yaml"])]
#[case(&["delete", "pool.yaml", "--yes"])]
fn a_right_that_is_missing_on_aws_fails_the_command_with_1_and_is_named(#[case] arguments: &[&str]) {
    let output = run(&format!("{POOL}endpointUrl: \"{}\"\n", denying()), arguments);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: ") && said.contains("ec2:Describe"), "{said}");
}

const NO_SUCH_ROLE: &str =
    "<ErrorResponse><Error><Code>NoSuchEntity</Code><Message>no</Message></Error></ErrorResponse>";

#[rstest]
#[case::with_nobody_to_ask(&[], 2, "--yes")]
#[case::in_a_dry_run(&["--dry-run"], 0, "")]
fn roles_that_are_missing_are_shown_and_made_only_with_consent(
    #[case] more: &[&str],
    #[case] code: i32,
    #[case] named: &str,
) {
    let aws = answering(|action| {
        assert!(!action.starts_with("Create") && !action.starts_with("Attach"), "nobody agreed to {action}");
        ("404 Not Found", NO_SUCH_ROLE.to_owned())
    });
    let arguments = ["create-role", "--region", "eu-west-1", "--endpoint-url", &aws];
    let output = run(POOL, &[&arguments[..], more].concat());
    let said = said(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(printed(&output).contains("aws-ec2-spot-fleet-tagging-role"), "{}\n{said}", printed(&output));
    assert!(said.contains(named), "{named} is not named in\n{said}");
}

#[test]
fn a_dry_run_looks_at_the_cluster_whatever_aws_says() {
    let output = run(&format!("{POOL}endpointUrl: \"{}\"\n", empty()), &["create", "pool.yaml", "--dry-run"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for word in ["the cluster: ", "the API server can't be asked what we may do", "error: ", "see above"] {
        assert!(said.contains(word), "{word} is not said in\n{said}");
    }
}

#[test]
fn the_status_shows_what_aws_says_though_the_cluster_does_not_answer() {
    let output = run(&format!("{POOL}endpointUrl: \"{}\"\n", empty()), &["status", "pool.yaml"]);
    let (said, printed) = (said(&output), printed(&output));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(printed.contains("There is no fleet."), "{printed}\n{said}");
    for word in ["error: the cluster could not be read", "look at the address, the network and the credentials"] {
        assert!(said.contains(word), "{word} is not said in\n{said}");
    }
}

/// Nothing was changed yet: a person who does not want to wait any more need not.
#[test]
fn a_question_that_nobody_answers_ends_at_once_when_told_to_and_never_as_if_it_were_answered() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = silent.local_addr().expect("it listens");
    let folder = tempfile::tempdir().expect("a folder can be made");
    write(&folder, "pool.yaml", &format!("{POOL}endpointUrl: \"http://{address}\"\n"));
    let mut plan = program(folder.path());
    let plan = plan.args(["plan", "pool.yaml", "--detailed-exit-code"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let plan = plan.spawn().expect("the program starts");
    // It asks, and catches signals by then.
    let _asked = silent.accept().expect("it asks");
    tell_to_stop(&plan);
    let output = plan.wait_with_output().expect("it ends");
    let said = said(&output);
    assert_eq!((output.status.code(), printed(&output).as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("told to stop before anything was touched"), "{said}");
}

fn tell_to_stop(program: &Child) {
    let told = Command::new("kill").args(["-TERM", &program.id().to_string()]).status().expect("there is kill");
    assert!(told.success());
}

#[test]
fn whoever_stops_a_command_in_the_middle_of_a_step_is_told_what_is_waited_for_and_how_not_to() {
    let (at_work, begins) = mpsc::channel();
    let aws = answering(move |action| {
        if action == "CreateRole" {
            loop {
                // Whoever waits for the first one is gone at another.
                let _told = at_work.send(());
                thread::park();
            }
        }
        ("404 Not Found", NO_SUCH_ROLE.to_owned())
    });
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut create = program(folder.path());
    create.args(["create-role", "--yes", "--region", "eu-west-1", "--endpoint-url", &aws]);
    let mut create = create.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
    begins.recv().expect("it creates the role");
    tell_to_stop(&create);
    let mut lines = BufReader::new(create.stderr.take().expect("it is piped")).lines();
    let said = lines.next().and_then(Result::ok).unwrap_or_default();
    assert!(said.contains("told to stop") && said.contains("told once more, at once"), "{said}");
    tell_to_stop(&create);
    let said = lines.next().and_then(Result::ok).unwrap_or_default();
    assert!(said.starts_with("error: SIGTERM came again"), "{said}");
    assert_eq!(create.wait().expect("it ends").code(), Some(1));
}
