//! The product, as its users run it: a process with a configuration file, a kubeconfig and rights of its own.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    pin::pin,
    process::Command,
    time::Duration,
};

use futures::future::{Either, select};
use serde_json::{Value, json};

use crate::{
    control_plane::{User, free_port},
    process::Process,
    proxy::Proxy,
    rights,
    wait::{PATIENCE, until},
    world::World,
};

/// `spot-migrator`, ready to be started against a world, as often as a test wants.
#[derive(Clone, Debug)]
pub struct Migrator {
    binary: PathBuf,
    configuration: PathBuf,
    kubeconfig: PathBuf,
    environment: Vec<(&'static str, String)>,
    folder: PathBuf,
    address: String,
}

/// A started program of the product. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    process: Process,
    address: String,
}

/// How one of them ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code; nothing if a signal ended it.
    pub code: Option<i32>,
    /// What it printed, both streams.
    pub output: String,
}

impl Migrator {
    /// Grants the product's rights, and writes its configuration: the defaults of a test (provider `node-object`, no
    /// wait for load balancers) with `changes` merged in.
    ///
    /// # Panics
    /// If the world refuses the rights, or the binary is missing or older than its sources.
    pub async fn install(world: &World, changes: Value) -> Self {
        rights::grant(world).await;
        let folder = world.control_plane().folder().to_owned();
        let address = format!("127.0.0.1:{}", free_port());
        let mut configuration = json!({
            "apiVersion": "spot-migrator.io/v1alpha1",
            "kind": "SpotMigratorConfiguration",
            "cloudProvider": {"name": "node-object"},
            "loadBalancer": {"drain": "0s"},
            "state": {"namespace": rights::NAMESPACE},
            "server": {"address": address},
            "log": {"format": "text", "level": "debug"},
        });
        merge(&mut configuration, changes);
        let path = folder.join("spot-migrator.yaml");
        // JSON is YAML.
        std::fs::write(&path, format!("{configuration:#}")).expect("the folder is writable");
        Self {
            binary: binary("spot-migrator"),
            configuration: path,
            kubeconfig: world.control_plane().kubeconfig(User::Migrator),
            environment: Vec::new(),
            folder,
            address,
        }
    }

    /// The same behind a proxy.
    #[must_use]
    pub fn through(self, proxy: &Proxy) -> Self {
        Self { kubeconfig: proxy.kubeconfig().to_owned(), ..self }
    }

    /// The same with everything that an administrator may do.
    #[must_use]
    pub fn as_administrator(self, world: &World) -> Self {
        Self { kubeconfig: world.control_plane().kubeconfig(User::Admin), ..self }
    }

    /// The same with these variables in its environment.
    #[must_use]
    pub fn with_environment(mut self, variables: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.environment.extend(variables);
        self
    }

    /// Starts `spot-migrator run --config FILE` with further arguments.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Running {
        let mut command = self.command();
        command.arg("run").arg("--config").arg(&self.configuration).args(arguments);
        let process = Process::start("spot-migrator", &mut command, &self.folder).shown_whole();
        Running::new(process, self.address.clone())
    }

    /// Runs `spot-migrator run --once` to its end.
    pub async fn run_once(&self, patience: Duration) -> Ended {
        self.run(&["--once"]).ended(patience).await
    }

    /// Another one on the same machine: the same but for where its metrics are.
    #[must_use]
    pub fn another(&self) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let other = self.with_configuration(json!({"server": {"address": address}}));
        Self { address, ..other }
    }

    /// One of [`REPLICAS`](crate::control_plane::REPLICAS): the same with an identity, metrics and a log of its own.
    ///
    /// # Panics
    /// If its folder can't be made.
    #[must_use]
    pub fn replica(&self, world: &World, name: &'static str) -> Self {
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder).expect("the folder is writable");
        let kubeconfig = world.control_plane().kubeconfig_of_replica(name);
        let another = self.another().with_environment([("POD_UID", name.to_owned())]);
        Self { kubeconfig, folder, ..another }
    }

    /// The same with other values in its configuration.
    ///
    /// # Panics
    /// If the configuration can't be copied.
    #[must_use]
    pub fn with_configuration(&self, changes: Value) -> Self {
        let text = std::fs::read(&self.configuration).expect("it was written");
        let mut configuration = serde_json::from_slice(&text).expect("ours are JSON");
        merge(&mut configuration, changes);
        let file = tempfile::Builder::new().suffix(".yaml").tempfile_in(&self.folder).expect("the folder is writable");
        let (_, path) = file.keep().expect("it goes with the folder");
        std::fs::write(&path, format!("{configuration:#}")).expect("the folder is writable");
        Self { configuration: path, ..self.clone() }
    }

    /// Merges other values into its configuration file, which a running one goes by too.
    ///
    /// # Panics
    /// If the file can't be replaced.
    pub fn rewrite(&self, changes: Value) {
        let text = std::fs::read(&self.configuration).expect("it was written");
        let mut configuration = serde_json::from_slice(&text).expect("ours are JSON");
        merge(&mut configuration, changes);
        std::fs::write(&self.configuration, format!("{configuration:#}")).expect("the folder is writable");
    }

    /// Runs `spot-migrator check` to its end.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn check(&self) -> Ended {
        self.operate("check")
    }

    /// Runs `spot-migrator pause` or `resume` to its end.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn operate(&self, name: &str) -> Ended {
        let mut command = self.command();
        let output = command.arg(name).arg("--config").arg(&self.configuration).output().expect("the binary starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), output: text(&output.stdout) + &text(&output.stderr) }
    }

    /// Runs `spot-migrator plan` to its end and returns what it printed on standard output.
    ///
    /// # Panics
    /// If it does not start, or fails.
    #[must_use]
    pub fn plan(&self, arguments: &[&str]) -> String {
        self.printed("plan", arguments)
    }

    /// The same of `spot-migrator simulate`.
    ///
    /// # Panics
    /// If it does not start, or fails.
    #[must_use]
    pub fn simulate(&self, arguments: &[&str]) -> String {
        self.printed("simulate", arguments)
    }

    fn printed(&self, name: &str, arguments: &[&str]) -> String {
        let mut command = self.command();
        command.arg(name).arg("--config").arg(&self.configuration).args(arguments);
        let output = command.output().expect("the binary starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} ended with {}: {errors}", output.status);
        String::from_utf8(output.stdout).expect("it prints UTF-8")
    }

    /// The binary with an environment of its own: nothing of the tester's leaks into it.
    fn command(&self) -> Command {
        let mut command = product(&self.binary, &self.kubeconfig, &self.folder);
        command
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Running {
    pub(crate) fn new(process: Process, address: String) -> Self {
        Self { process, address }
    }

    /// Waits until it ends.
    ///
    /// # Panics
    /// If it still runs after `patience`.
    pub async fn ended(mut self, patience: Duration) -> Ended {
        let status = self.process.wait(patience).await;
        Ended { code: status.code(), output: self.process.output() }
    }

    /// Ends it on the spot (SIGKILL) at a moment that may come; returns its exit code if it ended before.
    ///
    /// # Panics
    /// If it still runs after `patience`, and the moment has not come.
    pub async fn killed_at(mut self, moment: impl Future<Output = ()>, patience: Duration) -> Option<i32> {
        if let Either::Right((status, _)) = select(pin!(moment), pin!(self.process.wait(patience))).await {
            return status.code();
        }
        self.process.kill();
        None
    }

    /// How it ended; nothing while it runs.
    ///
    /// # Panics
    /// If the system can't tell.
    #[must_use]
    pub fn exit(&mut self) -> Option<std::process::ExitStatus> {
        self.process.ended()
    }

    /// Ends it on the spot (SIGKILL), as a crash would.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub async fn terminate(self, patience: Duration) -> Ended {
        self.process.terminate();
        self.ended(patience).await
    }

    /// The sum of a metric's series whose labels have all of these, in whole numbers, as in
    /// `("spot_migrator_leader", &[])`.
    ///
    /// # Panics
    /// If it does not answer, or has no such series.
    #[must_use]
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let metrics = get(&self.address, "/metrics").expect("it answers");
        let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let series = metrics.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (family, of) = series.split_once('{').unwrap_or((series, ""));
            (family == name && labels.iter().all(|label| of.contains(label.as_str())))
                .then(|| value.split('.').next().unwrap_or(value).parse::<u64>())
        });
        let values: Vec<_> = series.map(|value| value.expect("a value is a number")).collect();
        assert!(!values.is_empty(), "there is no series {name} with {labels:?} in\n{metrics}");
        values.iter().sum()
    }

    /// Waits until it serves its metrics.
    ///
    /// # Panics
    /// If it does not.
    pub async fn serves(&self) {
        until("the metrics to be served", PATIENCE, || async {
            TcpStream::connect(&self.address).map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    /// Where it serves its metrics.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The process, for its memory and its output.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}

impl Ended {
    /// Fails the test unless it ended with `code`.
    ///
    /// # Panics
    /// If so, with what it printed.
    pub fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "it ended otherwise than expected; it printed\n{}", self.output);
    }
}

/// What is in the answer to a GET.
pub(crate) fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    // Of HTTP 1.0: in one piece.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    let _read = stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
}

/// Merges `changes` into `object`, maps key by key.
pub fn merge(object: &mut Value, changes: Value) {
    match (object, changes) {
        (Value::Object(object), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, changes) => *object = changes,
    }
}

/// A program of ours in a folder of its own, which finds the cluster by `kubeconfig` and nothing of the tester's.
pub(crate) fn product(binary: &Path, kubeconfig: &Path, folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command
        .env_clear()
        .env("KUBECONFIG", kubeconfig)
        .env("RUST_BACKTRACE", "1")
        .current_dir(folder)
        .stdin(std::process::Stdio::null());
    command
}

/// A binary beside the running tests: cargo puts both into one target folder, and `tests/run` builds it first.
///
/// # Panics
/// If it is not there, or older than its sources.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("the system tells the path");
    let folder = tests.ancestors().nth(2).expect("tests run from <target>/<profile>/deps");
    let binary = folder.join(name);
    let remedy = "`tests/run` builds it, as does `cargo build -p spot-bin --features aws`";
    let built = modified(&binary).unwrap_or_else(|error| panic!("{}: {error}; {remedy}", binary.display()));
    // Cargo lists the sources: the target, a colon, and paths with escaped blanks.
    let list = std::fs::read_to_string(folder.join(format!("{name}.d"))).expect("cargo lists a binary's sources");
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources).replace("\\ ", "\0");
    for source in sources.split_whitespace().map(|source| source.replace('\0', " ")) {
        let fresh = modified(Path::new(&source)).is_ok_and(|changed| changed <= built);
        assert!(fresh, "{} is older than {source}; {remedy}", binary.display());
    }
    binary
}

fn modified(path: &Path) -> std::io::Result<std::time::SystemTime> {
    path.metadata()?.modified()
}
