//! The agent as it is started on a node: what is wrong is said with the remedy, the exit code tells, and nothing is
//! touched.

#![cfg(feature = "agent")]
#![expect(clippy::expect_used, reason = "what fails in a test ends it")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

const INSTANCE: &str = "i-0123456789abcdef0";
const OTHER: &str = "i-0fedcba9876543210";

/// Where nobody listens: the first port is never given out.
const NOBODY: &str = "127.0.0.1:1";

/// How long something may take that takes no time.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server of the test: what was asked of it, and where it is.
struct Server {
    address: SocketAddr,
    asked: Arc<Asked>,
}

/// What a server was asked, and a bell for each request.
#[derive(Default)]
struct Asked {
    requests: Mutex<Vec<String>>,
    bell: Condvar,
}

impl Server {
    /// Answers each request, by its method and path, with a status and a body; without one, never.
    fn start(answer: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let asked = Arc::new(Asked::default());
        let (heard, answer) = (Arc::clone(&asked), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (heard, answer) = (Arc::clone(&heard), Arc::clone(&answer));
                thread::spawn(move || serve(stream, &heard, &*answer));
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.requests.lock().expect("nobody panics with it").clone()
    }

    /// Waits until it was asked for something so often.
    fn until_asked_for(&self, path: &str, times: usize) {
        let requests = self.asked.requests.lock().expect("nobody panics with it");
        let is_missing =
            |requests: &mut Vec<String>| requests.iter().filter(|request| request.ends_with(path)).count() < times;
        let waited = self.asked.bell.wait_timeout_while(requests, PATIENCE, is_missing);
        let (requests, waited) = waited.expect("nobody panics with it");
        assert!(!waited.timed_out(), "{requests:?}");
    }
}

fn serve(stream: TcpStream, asked: &Asked, answer: &dyn Fn(&str) -> Option<(u16, String)>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).unwrap_or_default() == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a head has an end");
            if line.trim().is_empty() {
                break;
            }
            if let Some(told) = line.to_lowercase().strip_prefix("content-length:") {
                length = told.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body is as long as told");
        let request = first.rsplit_once(' ').map_or("", |(request, _)| request).to_owned();
        asked.requests.lock().expect("nobody panics with it").push(request.clone());
        asked.bell.notify_all();
        let Some((status, body)) = answer(&request) else {
            // A watch without events.
            let _until_the_end = reader.read(&mut [0]);
            return;
        };
        let head = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\nx-aws-ec2-metadata-token-ttl-seconds: 21600\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let written = reader.get_mut().write_all(format!("{head}{body}").as_bytes());
        if written.is_err() {
            return;
        }
    }
}

/// An API server with one node, of this provider ID, that grants every right, or none.
fn api_server(provider_id: &'static str, grants: bool) -> Server {
    Server::start(move |request| {
        let list = |kind: &str, items: Value| json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
        let node = json!({
            "metadata": {"name": "spot-1", "uid": "1", "resourceVersion": "1",
                         "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"providerID": provider_id},
        });
        let answer = match request {
            _ if request.contains("watch=true") => return None,
            _ if request.contains("/nodes?") => list("NodeList", json!([node])),
            _ if request.contains("/pods?") => list("PodList", json!([])),
            _ if request.contains("selfsubjectaccessreviews") => {
                json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {},
                       "status": {"allowed": grants}})
            }
            _ => return Some((404, json!({"kind": "Status", "code": 404}).to_string())),
        };
        Some((200, answer.to_string()))
    })
}

/// What the metadata service gives to whoever may ask it.
const METADATA_TOKEN: &str = "token-of-the-metadata-service";

/// The metadata service of an instance, of which nothing is announced.
fn metadata_service(instance: &'static str) -> Server {
    Server::start(move |request| match request {
        "PUT /latest/api/token" => Some((200, METADATA_TOKEN.to_owned())),
        "GET /latest/meta-data/instance-id" => Some((200, instance.to_owned())),
        _ => Some((404, String::new())),
    })
}

fn kubeconfig(address: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "a", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    fs::write(folder.path().join("kubeconfig"), text.to_string()).expect("the folder is writable");
    folder
}

/// The agent with an environment of its own.
fn agent(folder: &TempDir, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spot-agent"));
    command.env_clear().envs(variables.iter().copied()).current_dir(folder.path()).stdin(Stdio::null());
    command.args(["--kubeconfig", "kubeconfig", "--server-address", "127.0.0.1:0"]).args(arguments);
    command
}

/// How it ends on a node of this provider ID, on a machine that is this instance.
fn ended(api: &Server, metadata: &Server) -> Output {
    let endpoint = format!("http://{}", metadata.address);
    let folder = kubeconfig(&api.address.to_string());
    let variables = [("NODE_NAME", "spot-1"), ("SPOT_AGENT_IMDS_ENDPOINT", &*endpoint)];
    agent(&folder, &[], &variables).output().expect("it starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The last line, which says why it failed.
fn failure(output: &Output) -> String {
    let said = errors(output);
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: ") && !said.contains("secret-token"), "{said}");
    last.to_owned()
}

fn only_reads(api: &Server) {
    for request in api.asked() {
        assert!(request.starts_with("GET ") || request.contains("selfsubjectaccessreviews"), "{request}");
    }
}

#[rstest]
#[case::no_node(&[], "NODE_NAME")]
#[case::empty_node(&[("NODE_NAME", "")], "spec.nodeName")]
#[case::disabled(&[("NODE_NAME", "spot-1"), ("AWS_EC2_METADATA_DISABLED", "true")], "AWS_EC2_METADATA_DISABLED")]
#[case::no_address(&[("NODE_NAME", "spot-1"), ("SPOT_AGENT_IMDS_ENDPOINT", "here")], "http://169.254.169.254")]
#[case::no_duration(&[("NODE_NAME", "spot-1"), ("SPOT_AGENT_DELETE_BLOCKED_PODS_AFTER", "60")], "60s")]
#[case::drain(&[("NODE_NAME", "spot-1"), ("SPOT_AGENT_REBALANCE_RECOMMENDATION", "drain")], "ignore, taint")]
fn a_wrong_environment_is_refused_before_anybody_is_asked(#[case] variables: &[(&str, &str)], #[case] named: &str) {
    let api = api_server("aws:///eu-west-1a/i-0123456789abcdef0", true);
    let output = agent(&kubeconfig(&api.address.to_string()), &[], variables).output().expect("it starts");
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(named), "{named} is not named in\n{said}");
    assert!(api.asked().is_empty(), "{:?}", api.asked());
}

#[test]
fn without_a_kubeconfig_outside_a_pod_there_is_no_cluster_to_reach() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let output = agent(&folder, &[], &[("NODE_NAME", "spot-1")]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(failure(&output).contains("--kubeconfig"));
}

#[test]
fn a_port_that_is_taken_is_named_with_the_agents_own_argument() {
    let api = api_server("aws:///eu-west-1a/i-0123456789abcdef0", true);
    let address = api.address.to_string();
    let folder = kubeconfig(&address);
    let mut command = Command::new(env!("CARGO_BIN_EXE_spot-agent"));
    command.env_clear().env("NODE_NAME", "spot-1").current_dir(folder.path()).stdin(Stdio::null());
    let output = command.args(["--kubeconfig", "kubeconfig", "--server-address", &address]).output();
    let output = output.expect("it starts");
    let failure = failure(&output);
    assert_eq!(output.status.code(), Some(1), "{failure}");
    assert!(failure.contains(&address) && failure.contains("`--server-address`"), "{failure}");
}

#[test]
fn the_metadata_service_of_another_machine_is_refused() {
    let (api, metadata) = (api_server("aws:///eu-west-1a/i-0123456789abcdef0", true), metadata_service(OTHER));
    let output = ended(&api, &metadata);
    let failure = failure(&output);
    assert_eq!(output.status.code(), Some(2), "{failure}");
    assert!(failure.contains(INSTANCE) && failure.contains(OTHER), "{failure}");
    only_reads(&api);
    let asked = metadata.asked();
    assert!(!asked.iter().any(|request| request.contains("spot") || request.contains("events")), "{asked:?}");
}

#[test]
fn no_token_is_in_any_line_whichever_library_writes_it() {
    let (api, metadata) = (api_server("aws:///eu-west-1a/i-0123456789abcdef0", true), metadata_service(OTHER));
    let endpoint = format!("http://{}", metadata.address);
    let folder = kubeconfig(&api.address.to_string());
    let variables = [("NODE_NAME", "spot-1"), ("SPOT_AGENT_IMDS_ENDPOINT", &*endpoint)];
    let said = errors(&agent(&folder, &["--log-level", "trace"], &variables).output().expect("it starts"));
    assert!(said.contains("TRACE") && said.contains(OTHER), "{said}");
    for secret in ["secret-token", METADATA_TOKEN] {
        let line = said.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
}

#[test]
fn a_node_that_is_no_instance_is_refused() {
    let (api, metadata) = (api_server("kind://docker/kind/spot-1", true), metadata_service(INSTANCE));
    let output = ended(&api, &metadata);
    let failure = failure(&output);
    assert_eq!(output.status.code(), Some(2), "{failure}");
    assert!(failure.contains("spot-1") && failure.contains("EC2"), "{failure}");
    assert!(metadata.asked().is_empty(), "{:?}", metadata.asked());
}

#[test]
fn a_right_that_is_missing_is_named_at_the_start() {
    let (api, metadata) = (api_server("aws:///a/i-0123456789abcdef0", false), metadata_service(INSTANCE));
    let output = ended(&api, &metadata);
    let failure = failure(&output);
    assert_eq!(output.status.code(), Some(1), "{failure}");
    assert!(failure.contains("create pods/eviction") && failure.contains("deploy/agent/rbac.yaml"), "{failure}");
    only_reads(&api);
}

/// A process that runs, and what it logs.
struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStderr>,
    log: String,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stderr.take().expect("it was piped"));
        Self { child, lines, log: String::new() }
    }

    /// The next line that says this.
    fn line(&mut self, words: &str) -> Value {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).expect("it logs");
            assert_ne!(read, 0, "{words:?} is not in\n{}", self.log);
            self.log.push_str(&line);
            if line.contains(words) {
                return serde_json::from_str(&line).expect("it logs JSON");
            }
        }
    }

    /// Tells it to end, and returns its exit code.
    fn terminated(mut self) -> Option<i32> {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("there is kill");
        assert!(told.success());
        self.lines.read_to_string(&mut self.log).expect("it logs until its end");
        let code = self.child.wait().expect("it ends").code();
        let failed = self.log.lines().any(|line| line.starts_with("error: "));
        assert!(self.log.contains("SIGTERM") && !failed, "{}", self.log);
        code
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
fn an_agent_that_waits_for_its_api_server_is_alive_and_ends_in_order_when_told_to() {
    let folder = kubeconfig(NOBODY);
    let mut running = Running::start(&mut agent(&folder, &["--node-name", "spot-1"], &[]));
    let address = running.line("metrics and health")["address"].as_str().expect("it says where").to_owned();
    assert!(got(&address, "/livez").starts_with("HTTP/1.1 200 "));
    assert!(got(&address, "/readyz").starts_with("HTTP/1.1 503 "));
    assert_eq!(running.terminated(), Some(0));
}

#[test]
fn an_agent_that_waits_for_its_metadata_service_says_what_may_help_and_ends_in_order_when_told_to() {
    let api = api_server("aws:///eu-west-1a/i-0123456789abcdef0", true);
    let folder = kubeconfig(&api.address.to_string());
    let endpoint = format!("http://{NOBODY}");
    let arguments = ["--node-name", "spot-1", "--imds-endpoint", &endpoint];
    let mut running = Running::start(&mut agent(&folder, &arguments, &[]));
    running.line("does not say yet which machine this is");
    assert_eq!(running.terminated(), Some(0));
    only_reads(&api);
}

#[test]
fn an_agent_on_its_own_machine_asks_for_what_it_answers_and_is_ready() {
    let (api, metadata) = (api_server("aws:///eu-west-1a/i-0123456789abcdef0", true), metadata_service(INSTANCE));
    let folder = kubeconfig(&api.address.to_string());
    let endpoint = format!("http://{}", metadata.address);
    let arguments = ["--node-name", "spot-1", "--imds-endpoint", &endpoint, "--rebalance-recommendation", "ignore"];
    let mut running = Running::start(&mut agent(&folder, &arguments, &[]));
    let address = running.line("metrics and health")["address"].as_str().expect("it says where").to_owned();
    assert_eq!(running.line("answering")["instance"], INSTANCE);
    // It has asked once when it asks for a second time.
    metadata.until_asked_for("spot/instance-action", 2);
    assert!(got(&address, "/readyz").starts_with("HTTP/1.1 200 "), "{}", running.log);
    assert!(!metadata.asked().iter().any(|request| request.ends_with("rebalance")));
    assert_eq!(running.terminated(), Some(0));
    only_reads(&api);
}
