//! An AWS to test against.
//!
//! ```text
//!                      faults
//! the product ─► Proxy ──────► Double  EC2, Auto Scaling, load balancers, EKS: moto, made strict
//!                                ▲  ▲
//!       cloud controller manager ┘  └ the test itself, by `Aws::call`
//! ```
//!
//! [`Aws`] is the service alone; [`Cloud`] makes it the cloud of a [`World`](crate::World): instances join the cluster as
//! Nodes, and the Nodes of those that end fall silent, which the real cloud controller manager then removes.
//!
//! Everything listens on the loopback only. A client is told from the others by its access key, which signs nothing here.

pub mod cloud;
pub mod faults;
pub mod fleet;
pub mod group;
mod kubelets;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use kube::{Client, Config};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

pub use cloud::Cloud;
pub use faults::{Fault, Faults, Fired};
pub use fleet::FleetRequest;
pub use group::{Group, Instance, Member};

use crate::{
    process::Process,
    programs,
    wait::{PATIENCE, until},
};

/// Where everything is.
pub const REGION: &str = "eu-west-1";

/// EC2, Auto Scaling, load balancers and EKS, with a fault proxy in front.
#[derive(Debug)]
pub struct Aws {
    // The proxy first: it is a client of the double.
    faults: Faults,
    _double: Process,
    door: Door,
}

/// A request that reached the double.
#[derive(Clone, Debug, Deserialize)]
pub struct Call {
    /// The access key of whoever asked.
    pub client: String,
    /// The service by the name under which requests are signed: `ec2`, `autoscaling`.
    pub service: String,
    /// The name of the API call; for a service with paths, method and path.
    pub action: String,
    /// Its parameters, flat, as a query has them.
    pub parameters: Map<String, Value>,
    /// The status of the answer.
    pub status: u16,
}

/// A request that the double refused, as AWS would.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Refusal {
    /// The error's code.
    pub code: String,
    /// What it says to people.
    pub message: String,
}

impl Aws {
    /// Starts it, with its logs in `folder`.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(folder: &Path) -> Self {
        let mut double = Process::start("aws-double", python().args(["-m", "double", "--region", REGION]), folder);
        let address = address(&mut double).await;
        let mut proxy = Process::start("aws-proxy", python().arg("proxy.py").arg(&address), folder);
        let front = self::address(&mut proxy).await;
        Self { faults: Faults::new(proxy, &front), _double: double, door: Door::new(&address) }
    }

    /// Asks as the test itself, past the proxy, by the names of the API reference: `call("ec2", "CreateVpc", …)`.
    ///
    /// # Panics
    /// If the request is refused.
    pub async fn call(&self, service: &str, operation: &str, parameters: Value) -> Value {
        let answer = self.try_call(service, operation, parameters).await;
        answer.unwrap_or_else(|refusal| panic!("{service} {operation}: {}: {}", refusal.code, refusal.message))
    }

    /// The same where the answer may be a refusal.
    ///
    /// # Errors
    /// With what AWS would say.
    ///
    /// # Panics
    /// If there is no answer.
    pub async fn try_call(&self, service: &str, operation: &str, parameters: Value) -> Result<Value, Refusal> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Reply {
            Answer(Value),
            Error(Refusal),
        }
        let request = json!({"service": service, "operation": operation, "parameters": parameters});
        match self.door.ask("POST", "/double/call", &request).await {
            Reply::Answer(answer) => Ok(answer),
            Reply::Error(refusal) => Err(refusal),
        }
    }

    /// What `client` asked for so far and what reached the double, in order. Dry runs have no effect, and are left out.
    ///
    /// # Panics
    /// If the double does not answer.
    pub async fn calls_of(&self, client: &str) -> Vec<Call> {
        let mut calls: Vec<Call> = self.door.ask("GET", "/double/calls", &Value::Null).await;
        calls.retain(|call| call.client == client && call.parameters.get("DryRun") != Some(&json!("true")));
        calls
    }

    /// Sets how long every transition takes from now on: an end, a change of a fleet, a step of a group's member. A
    /// second, unless a test holds the world still for an hour to look at it, and lets it go on.
    ///
    /// # Panics
    /// If the double does not answer.
    pub async fn pace(&self, pace: Duration) {
        let _empty: Value = self.door.ask("PUT", "/double/pace", &json!({"seconds": pace.as_secs_f64()})).await;
    }

    /// What goes wrong on the way, for whoever asks at [`endpoint`](Self::endpoint).
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Where the product finds AWS: at the proxy.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        self.faults.address()
    }

    /// Where an instance's metadata service would answer: at the double itself, which writes down who asks.
    #[must_use]
    pub fn metadata_endpoint(&self) -> &str {
        &self.door.address
    }

    /// The environment of a client that finds AWS at the proxy, and nothing of the tester's.
    #[must_use]
    pub fn environment(&self, client: &str) -> [(&'static str, String); 7] {
        environment(self.endpoint(), client)
    }

    /// The same past the proxy: what belongs to the world meets no faults.
    pub(crate) fn environment_of_the_world(&self, client: &str) -> [(&'static str, String); 7] {
        environment(&self.door.address, client)
    }
}

impl Call {
    /// Whether it was accepted.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether it asked for a change.
    #[must_use]
    pub fn changes(&self) -> bool {
        !["Describe", "List", "Get", "GET "].iter().any(|reading| self.action.starts_with(reading))
    }
}

/// The JSON doors of the double and the proxy.
struct Door {
    address: String,
    client: Client,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Door").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Door {
    /// kube's client is the HTTP client at hand; it asks nothing by itself.
    fn new(address: &str) -> Self {
        // Several features of the workspace bring a provider; a client takes the process's default. A second
        // installation fails, and that is fine: the first is the same.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut config = Config::new(address.parse().expect("it is a URI"));
        config.default_retry = false;
        let client = Client::try_from(config).expect("the configuration is complete");
        Self { address: address.to_owned(), client }
    }

    async fn ask<T: DeserializeOwned>(&self, method: &str, path: &str, body: &Value) -> T {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", "application/json")
            .body(body.to_string().into_bytes())
            .expect("it is a request");
        self.client.request(request).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }
}

pub(crate) fn environment(endpoint: &str, client: &str) -> [(&'static str, String); 7] {
    [
        ("AWS_ENDPOINT_URL", endpoint.to_owned()),
        ("AWS_REGION", REGION.to_owned()),
        ("AWS_ACCESS_KEY_ID", client.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "none".to_owned()),
        ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ("AWS_CONFIG_FILE", "/dev/null".to_owned()),
        ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null".to_owned()),
    ]
}

/// The address at which `process` says that it listens: a port that it chose itself.
async fn address(process: &mut Process) -> String {
    until("the AWS double to listen", PATIENCE, || {
        let output = process.output();
        let ended = process.ended();
        async move {
            assert!(ended.is_none(), "it ended with {ended:?}: {output}");
            let line = output.lines().find_map(|line| line.strip_prefix("listening on "));
            line.map(str::to_owned).ok_or(output)
        }
    })
    .await
}

/// The interpreter with the double's packages, in the folder of its sources.
fn python() -> Command {
    static INTERPRETER: OnceLock<PathBuf> = OnceLock::new();
    let folder = programs::repository().join("tests/aws");
    let mut command = Command::new(INTERPRETER.get_or_init(|| interpreter(&folder)));
    // No byte code in the checkout, no packages of the tester's, and no way out through the tester's proxy.
    command.args(["-B", "-s"]).env("PYTHONUNBUFFERED", "1").env("NO_PROXY", "127.0.0.1").current_dir(folder);
    command
}

/// `tests/run` says where it is; under a plain `cargo test` it is made here.
fn interpreter(folder: &Path) -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "how `tests/run` hands over what it made")]
    let made = std::env::var_os("SPOT_AWS");
    made.map_or_else(|| make_interpreter(folder), PathBuf::from)
}

fn make_interpreter(folder: &Path) -> PathBuf {
    let output = Command::new(folder.join("build"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("tests/aws/build is executable and bash is installed");
    assert!(output.status.success(), "tests/aws/build failed: {}", output.status);
    PathBuf::from(String::from_utf8(output.stdout).expect("the path is UTF-8").trim_end())
}
