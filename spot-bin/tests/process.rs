//! The program as people start it: what goes wrong is said with its place and the remedy, and the exit code tells.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rstest::rstest;
use tempfile::TempDir;

const HEADER: &str = "apiVersion: spot-migrator.io/v1alpha1\nkind: SpotMigratorConfiguration\n\
                      cloudProvider: {name: node-object}\n";

/// A cluster behind a port on which nobody listens: the first one is never given out.
const UNREACHABLE: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
                           clusters: [{name: a, cluster: {server: \"https://127.0.0.1:1\"}}]\n\
                           users: [{name: a, user: {token: secret-token}}]\n\
                           contexts: [{name: a, context: {cluster: a, user: a}}]\n";

/// The program with an environment of its own.
fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spot-migrator"));
    command.env_clear().current_dir(folder).stdin(Stdio::null());
    command
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder can be made");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("the folder is writable");
    }
    folder
}

fn run(files: &[(&str, &str)], arguments: &[&str]) -> Output {
    let folder = folder(files);
    program(folder.path()).args(arguments).output().expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[rstest]
#[case::unknown_key("shedule: \"@daily\"\n", &["spot.yaml:4:", "shedule", "schedule"])]
#[case::duplicate_key("dryRun: true\ndryRun: false\n", &["spot.yaml:5:", "dryRun"])]
#[case::bad_duration("drain: {timeout: 1 hour}\n", &["spot.yaml:4:", "drain.timeout"])]
#[case::six_fields("schedule: 0 0 3 * * *\n", &["spot.yaml:4:", "`0 3 * * *`"])]
#[case::sunday_as_seven("schedule: 0 3 * * 7\n", &["spot.yaml:4:", "Sunday is 0"])]
#[case::reversed_range("schedule: 0 9-5 * * *\n", &["spot.yaml:4:", "9-5"])]
#[case::unknown_zone("timeZone: Europe/Lodnon\n", &["spot.yaml:4:", "Europe/London"])]
#[case::late_deletion("interruption: {deleteBlockedPodsAfter: 3m}\n", &["spot.yaml:4:", "deleteBlockedPodsAfter", "2m"])]
fn a_wrong_configuration_is_refused_with_place_and_remedy(#[case] body: &str, #[case] named: &[&str]) {
    let file = format!("{HEADER}{body}");
    let output = run(&[("spot.yaml", &file)], &["run", "--config", "spot.yaml"]);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for word in named {
        assert!(said.contains(word), "{word} is not named in\n{said}");
    }
    assert!(said.starts_with("error: "), "{said}");
}

#[test]
fn rb_13_a_schedule_that_never_matches_is_refused_at_the_start_by_its_field() {
    let file = format!("{HEADER}schedule: 0 0 30 2 *\n");
    let output = run(&[("spot.yaml", &file)], &["run", "--config", "spot.yaml"]);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for word in ["spot.yaml:4:", "schedule", "`0 0 30 2 *`", "never fires"] {
        assert!(said.contains(word), "{word} is not named in\n{said}");
    }
}

/// The node that runs the migrator can't be kept for last when nobody tells which one that is.
#[test]
fn rb_32_an_unset_node_name_is_told_at_the_start() {
    let starts = |node: Option<&str>| {
        let folder = folder(&[("kubeconfig", UNREACHABLE)]);
        let mut program = program(folder.path());
        program.args(["run", "--once", "--cloud-provider-name", "node-object", "--state-namespace", "ours"]);
        program.args(["--kubeconfig", "kubeconfig"]).envs(node.map(|node| ("NODE_NAME", node)));
        errors(&program.output().expect("the program starts"))
    };
    for nothing in [None, Some("")] {
        let said = starts(nothing);
        assert!(said.contains("NODE_NAME is not set") && said.contains("spec.nodeName"), "{nothing:?}: {said}");
    }
    assert!(!starts(Some("od-1")).contains("NODE_NAME"));
}

#[rstest]
#[case::not_yaml("a: [", "objects.yaml")]
#[case::no_list("just words", "kubectl get nodes")]
#[case::no_nodes("kind: List\nitems: []\n", "kubectl get nodes")]
#[case::node_without_uid("kind: Node\nmetadata: {name: a, creationTimestamp: \"2026-01-01T00:00:00Z\"}\n", "uid")]
#[case::node_without_creation_time("kind: Node\nmetadata: {name: a, uid: b}\n", "creationTimestamp")]
fn a_saved_file_that_is_no_list_of_nodes_is_named_with_the_remedy(#[case] text: &str, #[case] named: &str) {
    let output = run(&[("objects.yaml", text)], &["plan", "-f", "objects.yaml"]);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("objects.yaml") && said.contains(named), "{named} is not named in\n{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_budget_in_a_saved_file_whose_selector_can_not_be_read_is_told_of_beside_the_plan() {
    let objects = "kind: Node\nmetadata: {name: a, uid: a, creationTimestamp: \"2026-01-01T00:00:00Z\"}\n---\n\
                   kind: PodDisruptionBudget\nmetadata: {name: odd, namespace: shop}\n\
                   spec: {selector: {matchLabels: {app: \"x y!\"}}}\n";
    let output = run(&[("objects.yaml", objects)], &["plan", "-f", "objects.yaml"]);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let told = said.lines().find(|line| line.contains("shop/odd")).expect("it is named");
    assert!(told.starts_with("note: ") && told.contains("`spec.selector`"), "{said}");
}

#[rstest]
#[case::file_that_is_not_there(&["plan", "-f", "gone.yaml"], "kubectl get nodes,pods,pdb")]
#[case::configuration_that_is_not_there(&["run", "--config", "gone.yaml"], "gone.yaml")]
#[case::kubeconfig_that_is_not_there(&["plan", "--kubeconfig", "gone.yaml"], "gone.yaml")]
#[case::no_cluster_is_named(&["plan"], "--kubeconfig")]
#[case::bad_schedule(&["schedule", "0 0 3 * * *"], "`0 3 * * *`")]
#[case::bad_zone(&["schedule", "@daily", "--time-zone", "Europe/Lodnon"], "Europe/London")]
#[case::unknown_flag(&["run", "--drain-timeot", "1m"], "--drain-timeout")]
#[case::no_command(&[], "Usage")]
fn wrong_arguments_end_with_2_and_name_what_would_be_right(#[case] arguments: &[&str], #[case] named: &str) {
    let output = run(&[], arguments);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(named), "{named} is not named in\n{said}");
}

#[test]
fn a_single_run_without_a_cluster_to_reach_fails_and_says_so() {
    let arguments = [
        "run",
        "--once",
        "--cloud-provider-name",
        "node-object",
        "--state-namespace",
        "ours",
        "--kubeconfig",
        "kubeconfig",
    ];
    let output = run(&[("kubeconfig", UNREACHABLE)], &arguments);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: ") && last.contains("look at the address"), "{said}");
    assert!(!said.contains("secret-token") && !said.contains("no queue is read"), "{said}");
}

/// The namespace of the kubeconfig's context is hardly that of the migrator.
#[rstest]
#[case(&["pause"])]
#[case(&["resume"])]
#[case(&["run", "--once", "--cloud-provider-name", "node-object"])]
fn outside_a_pod_the_namespace_has_to_be_named(#[case] command: &[&str]) {
    let kubeconfig = UNREACHABLE.replace("user: a}}]", "user: a, namespace: elsewhere}}]");
    let output = run(&[("kubeconfig", &kubeconfig)], &[command, &["--kubeconfig", "kubeconfig"]].concat());
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for name in ["`state.namespace`", "--state-namespace", "SPOT_MIGRATOR_STATE_NAMESPACE"] {
        assert!(said.contains(name), "{name} is not named in\n{said}");
    }
}

/// What the server at this address says to a GET.
fn got(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_process_that_waits_for_its_cluster_is_alive_and_ends_in_order_when_told_to() {
    let folder = folder(&[("kubeconfig", UNREACHABLE)]);
    let mut child = program(folder.path())
        .args([
            "run",
            "--cloud-provider-name",
            "node-object",
            "--state-namespace",
            "ours",
            "--server-address",
            "127.0.0.1:0",
            "--kubeconfig",
            "kubeconfig",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it was piped"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("it logs");
    assert!(first.contains("starting") && first.contains("apiVersion"), "{first}");

    let mut served = String::new();
    while !served.contains("metrics and health") {
        served.clear();
        assert_ne!(lines.read_line(&mut served).expect("it logs"), 0, "it does not serve");
    }
    let served: serde_json::Value = serde_json::from_str(&served).expect("it logs JSON");
    let address = served["address"].as_str().expect("it says where");
    assert!(got(address, "/livez").starts_with("HTTP/1.1 200 "));
    assert!(got(address, "/readyz").starts_with("HTTP/1.1 503 "));
    // An alert on a counter must not have to wait for the first failure.
    let metrics = got(address, "/metrics");
    for counter in ["success", "failure"] {
        for name in ["spot_migrator", "cost_manager_spot_migrator"] {
            let series = format!("\n{name}_operation_{counter}_total 0\n");
            assert!(metrics.contains(&series), "{series} is missing in\n{metrics}");
        }
    }

    let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("there is kill");
    assert!(told.success());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("it logs until its end");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{first}{rest}");
    assert!(rest.contains("SIGTERM") && !rest.contains("error: "), "{rest}");
}

#[test]
fn a_single_run_whose_terminal_is_closed_ends_in_order() {
    // It takes what it is asked, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("http://{}", silent.local_addr().expect("it is bound"));
    let kubeconfig = UNREACHABLE.replace("https://127.0.0.1:1", &address);
    assert!(kubeconfig.contains(&address), "{kubeconfig}");
    let folder = folder(&[("kubeconfig", &kubeconfig)]);
    let child = program(folder.path())
        .args(["run", "--once", "--cloud-provider-name", "node-object", "--state-namespace", "ours"])
        .args(["--kubeconfig", "kubeconfig"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let _asked = silent.accept().expect("it asks");
    let told = Command::new("kill").args(["-HUP", &child.id().to_string()]).status().expect("there is kill");
    assert!(told.success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(errors(&output).contains("SIGHUP"), "{}", errors(&output));
}

#[test]
fn a_simulation_prints_the_same_bytes_for_the_same_seed_and_nothing_beside_them() {
    let simulate = |seed| run(&[], &["simulate", "--seed", seed, "--scenario", "killed-halfway", "-o", "json"]);
    let (one, again, other) = (simulate("5"), simulate("5"), simulate("6"));
    assert_eq!(one.status.code(), Some(0), "{}", errors(&one));
    assert_eq!((&one.stdout, errors(&one)), (&again.stdout, String::new()));
    assert_ne!(one.stdout, other.stdout);
    serde_json::from_slice::<serde_json::Value>(&one.stdout).expect("it is one JSON document");
}

#[test]
fn a_schedule_is_printed_as_text_and_as_json() {
    let arguments =
        ["schedule", "30 1 * * *", "--time-zone", "Europe/London", "--from", "2026-03-28T12:00:00Z", "-n", "2"];
    let text = run(&[], &arguments);
    let expected = "Sun 2026-03-29T02:00:00+01:00 Europe/London\nMon 2026-03-30T01:30:00+01:00 Europe/London\n";
    assert_eq!(String::from_utf8_lossy(&text.stdout), expected);
    let json = run(&[], &[&arguments[..], &["-o", "json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("it is JSON");
    assert_eq!(json["times"][0]["utc"], "2026-03-29T01:00:00Z");
}

#[test]
fn a_plan_tells_by_its_exit_code_whether_a_run_would_change_something_if_asked() {
    let node = "kind: Node\nmetadata: {name: NAME, uid: NAME, resourceVersion: \"1\", \
                creationTimestamp: \"2026-01-01T00:00:00Z\", labels: {node.kubernetes.io/lifecycle: CLASS}}\n\
                status: {conditions: [{type: Ready, status: \"True\", lastTransitionTime: \"2026-01-01T00:00:00Z\"}]}\n";
    let node = |name, class| node.replace("NAME", name).replace("CLASS", class);
    let both = format!("{}---\n{}", node("a", "on-demand"), node("b", "spot"));
    let (spot, detailed) = (node("b", "spot"), "--detailed-exit-code");
    let code = |text: &str, more: &[&str]| {
        run(&[("nodes.yaml", text)], &[&["plan", "-f", "nodes.yaml"], more].concat()).status.code()
    };
    assert_eq!((code(&both, &[]), code(&both, &[detailed])), (Some(0), Some(3)));
    assert_eq!((code(&spot, &[]), code(&spot, &[detailed])), (Some(0), Some(0)));
}

/// How `check` ends on a cluster that can't be reached, and its findings, each with all its words.
fn check(arguments: &[&str]) -> (Option<i32>, Vec<serde_json::Value>) {
    let output = run(&[("kubeconfig", UNREACHABLE)], &[&["check", "-o", "json"], arguments].concat());
    let findings = serde_json::from_slice(&output.stdout).expect("it prints a list");
    (output.status.code(), findings)
}

/// What failed, and why.
fn failures<'a>(findings: &'a [serde_json::Value]) -> Vec<(&'a str, &'a str)> {
    let failed = findings.iter().filter(|finding| finding["verdict"] == "failure");
    let words = |finding: &'a serde_json::Value| {
        (finding["subject"].as_str().unwrap_or_default(), finding["detail"].as_str().unwrap_or_default())
    };
    failed.map(words).collect()
}

const NODE_OBJECT: [&str; 2] = ["--cloud-provider-name", "node-object"];

#[test]
fn a_check_finds_a_cluster_that_can_t_be_reached_and_fails() {
    let (code, findings) =
        check(&[&NODE_OBJECT[..], &["--kubeconfig", "kubeconfig", "--state-namespace", "ours"]].concat());
    let [(subject, detail)] = failures(&findings)[..] else { panic!("{findings:?}") };
    assert_eq!((code, subject), (Some(1), "cluster"));
    assert!(detail.contains("look at the address") && !detail.contains("secret-token"), "{detail}");
    let verdict = |subject| findings.iter().find(|finding| finding["subject"] == subject).map(|one| &one["verdict"]);
    assert_eq!((verdict("configuration"), verdict("schedule")), (Some(&"ok".into()), Some(&"ok".into())));
}

#[test]
fn a_check_goes_on_without_a_namespace() {
    let (code, findings) = check(&[&NODE_OBJECT[..], &["--kubeconfig", "kubeconfig"]].concat());
    let [(first, detail), (second, _)] = failures(&findings)[..] else { panic!("{findings:?}") };
    assert_eq!((code, first, second), (Some(1), "configuration", "cluster"));
    assert!(detail.contains("`state.namespace`"), "{detail}");
}

#[cfg(feature = "aws")]
#[test]
fn a_check_asks_the_cloud_though_there_is_no_cluster_to_reach() {
    let aws = ["--cloud-provider-name", "aws", "--cloud-provider-aws-cluster-name", "prod"];
    let (code, findings) = check(&[&aws[..], &["--kubeconfig", "gone.yaml"]].concat());
    let [(first, cluster), (second, cloud)] = failures(&findings)[..] else { panic!("{findings:?}") };
    assert_eq!((code, first, second), (Some(1), "cluster", "cloud"));
    assert!(cluster.contains("gone.yaml") && cluster.contains("--kubeconfig"), "{cluster}");
    assert!(cloud.contains("`cloudProvider.aws.region`"), "{cloud}");
    assert!(findings.iter().all(|finding| finding["remedy"].is_null()), "the details hold them: {findings:?}");
}

#[test]
fn a_check_of_a_wrong_configuration_ends_with_2_and_finds_nothing() {
    let file = format!("{HEADER}shedule: daily\n");
    let output = run(&[("spot.yaml", &file)], &["check", "--config", "spot.yaml"]);
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
}

/// A queue of a stand-in for AWS, at a port on which nobody listens.
#[cfg(feature = "aws")]
const QUEUE: [&str; 6] = [
    "--cloud-provider-aws-endpoint-url",
    "http://127.0.0.1:1",
    "--cloud-provider-aws-region",
    "eu-west-1",
    "--interruption-queue-url",
    "http://127.0.0.1:1/123456789012/spot",
];

/// The queue needs no right on EC2, and so not its provider either.
#[cfg(feature = "aws")]
#[test]
fn a_check_asks_the_queue_whatever_the_provider_is() {
    let (code, findings) = check(&[&NODE_OBJECT[..], &QUEUE, &["--kubeconfig", "gone.yaml"]].concat());
    let [(first, _), (second, detail)] = failures(&findings)[..] else { panic!("{findings:?}") };
    assert_eq!((code, first, second), (Some(1), "cluster", "queue"));
    assert!(detail.starts_with("sqs:"), "{detail}");
}

#[cfg(feature = "aws")]
#[test]
fn a_check_finds_a_queue_of_another_region_before_it_asks_it() {
    let elsewhere = ["--interruption-queue-url", "https://sqs.us-east-1.amazonaws.com/123456789012/spot"];
    let arguments = [&NODE_OBJECT[..], &QUEUE[2..4], &elsewhere, &["--kubeconfig", "gone.yaml"]].concat();
    let (_, findings) = check(&arguments);
    let [_, (subject, detail)] = failures(&findings)[..] else { panic!("{findings:?}") };
    assert_eq!(subject, "queue");
    for word in ["us-east-1", "eu-west-1", "`interruption.queueUrl`"] {
        assert!(detail.contains(word), "{word} is not named in {detail}");
    }
}

#[cfg(feature = "aws")]
#[test]
fn a_queue_that_a_single_run_does_not_read_is_told_at_the_start() {
    let state = ["--once", "--state-namespace", "ours", "--kubeconfig", "kubeconfig"];
    let said = errors(&run(&[("kubeconfig", UNREACHABLE)], &[&["run"][..], &NODE_OBJECT, &state, &QUEUE].concat()));
    assert!(said.contains("`interruption.queueUrl` is set, but no queue is read in a single run"), "{said}");
}

#[cfg(not(feature = "aws"))]
#[test]
fn a_queue_is_refused_by_a_build_that_reads_none() {
    let file = format!("{HEADER}interruption: {{queueUrl: \"https://sqs.eu-west-1.amazonaws.com/1/spot\"}}\n");
    let output = run(&[("spot.yaml", &file)], &["run", "--config", "spot.yaml"]);
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("interruption.queueUrl") && said.contains("build with the feature `aws`"), "{said}");
}
