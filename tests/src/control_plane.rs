//! etcd, API server, scheduler and controller manager.

use std::{
    fmt,
    fs::{File, TryLockError},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use kube::{Client, Config};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    audit::AuditLog,
    process::Process,
    programs,
    wait::{PATIENCE, until},
};

/// How many control planes may be alive on a machine: each takes 0.9 GB, and two cores are soon the bottleneck.
const ALIVE_AT_ONCE: usize = 2;

/// How long a test waits for its turn: as long as a few others may take.
const TURN: Duration = Duration::from_mins(20);

/// How often a start is tried again on other ports when another process took one between our look and our use.
const ATTEMPTS: usize = 3;

/// Processes of the product that a test tells apart: one user with one set of rights, each with a UID of its own.
pub const REPLICAS: [&str; 2] = ["one", "two"];

/// The users of the API server, each with a token and rights of its own. The audit log tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum User {
    /// The test itself; may do everything.
    Admin,
    /// kube-scheduler; may do everything.
    Scheduler,
    /// kube-controller-manager; may do everything.
    Controllers,
    /// KWOK; may do everything.
    Kwok,
    /// Karpenter; may do everything.
    Karpenter,
    /// The cloud controller manager; may do everything.
    CloudController,
    /// The product; may do what `deploy/` grants it, and nothing else.
    Migrator,
    /// A person's `spot-fleet`; may do what `deploy/rbac-fleet.yaml` grants it, and nothing else.
    Fleet,
    /// The product on a node, by its service account; may do what `deploy/agent/` grants it, and nothing else.
    Agent,
}

impl User {
    /// Every user.
    pub const ALL: [Self; 9] = [
        Self::Admin,
        Self::Scheduler,
        Self::Controllers,
        Self::Kwok,
        Self::Karpenter,
        Self::CloudController,
        Self::Migrator,
        Self::Fleet,
        Self::Agent,
    ];

    /// The name by which the API server knows the user.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Scheduler => "scheduler",
            Self::Controllers => "controllers",
            Self::Kwok => "kwok",
            Self::Karpenter => "karpenter",
            Self::CloudController => "cloud-controller",
            Self::Migrator => "migrator",
            Self::Fleet => "fleet",
            Self::Agent => "system:serviceaccount:spot-agent:spot-agent",
        }
    }

    fn token(self) -> String {
        format!("token-of-{}", self.name())
    }

    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Migrator => "spot-migrators",
            Self::Fleet => "spot-fleets",
            Self::Agent => "system:serviceaccounts:spot-agent",
            Self::Admin
            | Self::Scheduler
            | Self::Controllers
            | Self::Kwok
            | Self::Karpenter
            | Self::CloudController => "system:masters",
        }
    }
}

/// A Kubernetes control plane of a test's own.
pub struct ControlPlane {
    // Fields are dropped in this order: clients of the API server first, etcd last, then the folder, then the turn.
    _controllers: Process,
    _scheduler: Process,
    api_server: Process,
    etcd: Process,
    server: String,
    client: Client,
    folder: TempDir,
    _turn: File,
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ControlPlane").field("server", &self.server).finish_non_exhaustive()
    }
}

impl ControlPlane {
    /// Starts one, when it is this test's turn, and waits until it serves and its controllers work.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start() -> Self {
        let turn = turn().await;
        let folder = tempfile::Builder::new().prefix("spot-world-").tempdir().expect("temporary folders can be made");
        let (etcd, api_server, server) = serve(folder.path()).await;
        let client = client(&server, &User::Admin.token());
        let scheduler = start_client(User::Scheduler, "kube-scheduler", &[], &server, folder.path());
        let controllers = start_client(
            User::Controllers,
            "kube-controller-manager",
            &[
                "--node-monitor-grace-period=50s",
                "--concurrent-deployment-syncs=20",
                "--concurrent-replicaset-syncs=20",
            ],
            &server,
            folder.path(),
        );
        let started = Self {
            _controllers: controllers,
            _scheduler: scheduler,
            api_server,
            etcd,
            server,
            client,
            folder,
            _turn: turn,
        };
        started.settle().await;
        started
    }

    /// A client of the test itself, which may do everything.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client with the rights of `user`.
    #[must_use]
    pub fn client_of(&self, user: User) -> Client {
        client(&self.server, &user.token())
    }

    /// A client with the rights of whoever this token is of.
    #[must_use]
    pub fn client_with(&self, token: &str) -> Client {
        client(&self.server, token)
    }

    /// A client with the rights of the kubelet of `node`, whether that node exists or not.
    ///
    /// # Panics
    /// If this process can't make clients.
    #[must_use]
    pub fn client_of_kubelet(&self, node: &str) -> Client {
        client_by(
            &self.server,
            &json!({
                "token": User::Admin.token(),
                "as": format!("system:node:{node}"),
                "as-groups": ["system:nodes", "system:authenticated"],
            }),
        )
    }

    /// Where the API server listens.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// A kubeconfig file of `user`.
    ///
    /// # Panics
    /// If it can't be written.
    #[must_use]
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        kubeconfig(&self.server, user, self.folder())
    }

    /// The folder of this world: configuration and logs, gone with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What the API server was asked for so far.
    pub async fn audit(&self) -> AuditLog {
        AuditLog::read(&self.folder().join("audit.log"), &self.client).await
    }

    /// Runs `kubectl` as the test itself and returns what it printed.
    ///
    /// # Panics
    /// If it fails.
    #[must_use]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.kubeconfig(User::Admin);
        let mut all = vec!["kubectl", "--kubeconfig", kubeconfig.to_str().expect("the path is UTF-8")];
        all.extend(arguments);
        programs::output_of("controlplane", &all)
    }

    /// Ends the API server on the spot and starts it again on the same port, with everything that it knew.
    ///
    /// # Panics
    /// If it does not come back.
    pub async fn restart_api_server(&mut self) {
        self.stop_api_server();
        self.start_api_server().await;
    }

    /// Ends the API server on the spot.
    ///
    /// # Panics
    /// If it can't be killed.
    pub fn stop_api_server(&mut self) {
        self.api_server.kill();
    }

    /// Starts it again on the same port, with everything that it knew.
    ///
    /// # Panics
    /// If it does not come back.
    pub async fn start_api_server(&mut self) {
        let etcd = std::fs::read_to_string(self.folder().join("etcd.address")).expect("written at the start");
        let port = self.server.rsplit(':').next().and_then(|port| port.parse().ok()).expect("the server has a port");
        self.api_server = start_api_server(&etcd, port, self.folder());
        until("the API server to be ready again", PATIENCE, || is_ready(&self.client)).await;
    }

    /// Stops etcd where it is: whatever the API server asks it waits.
    ///
    /// # Panics
    /// If it is no longer there.
    pub fn freeze_etcd(&self) {
        self.etcd.freeze();
    }

    /// Lets etcd go on after [`freeze_etcd`](Self::freeze_etcd).
    ///
    /// # Panics
    /// If it is no longer there.
    pub fn thaw_etcd(&self) {
        self.etcd.thaw();
    }

    /// A kubeconfig file of the product's user for one of its [`REPLICAS`], which the audit log tells apart by
    /// [`Entry::uid`](crate::Entry::uid).
    ///
    /// # Panics
    /// If it can't be written.
    #[must_use]
    pub fn kubeconfig_of_replica(&self, replica: &str) -> PathBuf {
        kubeconfig_with(&self.server, User::Migrator, replica, &token_of_replica(replica), self.folder())
    }

    /// A control plane is of use once a namespace has its service account: then the controllers have run.
    async fn settle(&self) {
        let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
            kube::Api::namespaced(self.client(), "default");
        until("the controllers to work", PATIENCE, || async {
            accounts.get("default").await.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}

/// A port that nobody listened on a moment ago.
///
/// # Panics
/// If the machine has none.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

/// Waits for one of the places, and holds it as long as the file lives. Locks are the system's: a killed test frees its
/// place. The folder is shared by everyone on the machine, whoever runs the tests.
async fn turn() -> File {
    let places: Vec<File> = (0..ALIVE_AT_ONCE)
        .map(|place| {
            let path = std::env::temp_dir().join(format!("spot-world-{place}.lock"));
            File::options()
                .create(true)
                .append(true)
                .open(&path)
                .unwrap_or_else(|error| panic!("{}: {error}; remove it if it is another user's", path.display()))
        })
        .collect();
    let mine = until("this world's turn (two may be alive)", TURN, || {
        let free = places.iter().position(|place| match place.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => panic!("locks do not work here: {error}"),
        });
        async move { free.ok_or_else(|| "two others are alive".to_owned()) }
    })
    .await;
    places.into_iter().nth(mine).expect("it is one of them")
}

/// Starts etcd and an API server on free ports, and waits until they serve.
async fn serve(folder: &Path) -> (Process, Process, String) {
    std::fs::write(folder.join("service-account.key"), programs::output_of("controlplane", &["service-account-key"]))
        .expect("the folder is writable");
    std::fs::write(folder.join("audit-policy.json"), crate::audit::policy().to_string()).expect("it is writable");
    let token = |user: User| format!("{},{},{},\"{}\"", user.token(), user.name(), user.name(), user.group());
    // An account of the cluster has tokens made by it.
    let users = User::ALL.into_iter().filter(|user| *user != User::Agent).map(token);
    let replica = |uid: &str| {
        let user = User::Migrator;
        format!("{},{},{uid},\"{}\"", token_of_replica(uid), user.name(), user.group())
    };
    let tokens = users.chain(REPLICAS.map(replica)).collect::<Vec<_>>().join("\n");
    std::fs::write(folder.join("tokens.csv"), tokens).expect("the folder is writable");

    for _ in 0..ATTEMPTS {
        let data = tempfile::Builder::new().prefix("etcd-").tempdir_in(folder).expect("the folder is writable").keep();
        let (clients, peers, secure) = (free_port(), free_port(), free_port());
        let address = format!("http://127.0.0.1:{clients}");
        std::fs::write(folder.join("etcd.address"), &address).expect("the folder is writable");
        let mut etcd = start_etcd(&address, &format!("http://127.0.0.1:{peers}"), &data, folder);
        let mut api_server = start_api_server(&address, secure, folder);
        let server = format!("https://127.0.0.1:{secure}");
        let client = client(&server, &User::Admin.token());
        let ready = until("the API server to be ready", PATIENCE, || {
            let gone = etcd.ended().is_some() || api_server.ended().is_some();
            let client = client.clone();
            async move { if gone { Ok(false) } else { is_ready(&client).await.map(|()| true) } }
        })
        .await;
        if ready {
            return (etcd, api_server, server);
        }
    }
    let log = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| error.to_string());
    panic!("the API server does not start\n{}\n{}", log("etcd.log"), log("kube-apiserver.log"));
}

fn start_etcd(clients: &str, peers: &str, data: &Path, folder: &Path) -> Process {
    let configuration = json!({
        "name": "default",
        "data-dir": data,
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": format!("default={peers}"),
        // Nobody needs the data after a crash of the machine.
        "unsafe-no-fsync": true,
        "log-level": "error",
    });
    let path = data.with_extension("json");
    std::fs::write(&path, configuration.to_string()).expect("the folder is writable");
    Process::start("etcd", Command::new(programs::path("controlplane")).arg("etcd").arg(path), folder)
}

fn start_api_server(etcd: &str, port: u16, folder: &Path) -> Process {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut command = Command::new(programs::path("controlplane"));
    command.arg("kube-apiserver").args([
        format!("--etcd-servers={etcd}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        // Nobody's: it wants one that is no loopback, and would look for a route to the world.
        "--advertise-address=192.0.2.1".to_owned(),
        format!("--cert-dir={}", file("certificates")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("service-account.key")),
        format!("--service-account-signing-key-file={}", file("service-account.key")),
        // As in every cluster: a kubelet may do what concerns its own node.
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        // It would refuse pods until the controllers have made each namespace's service account, and mount its tokens.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--audit-policy-file={}", file("audit-policy.json")),
        format!("--audit-log-path={}", file("audit.log")),
        // In one piece, however long the test: megabytes.
        "--audit-log-maxsize=100000".to_owned(),
    ]);
    Process::start("kube-apiserver", &mut command, folder)
}

/// Starts a program that works through the API server. The clients' default limits would be what is measured.
fn start_client(user: User, program: &str, arguments: &[&str], server: &str, folder: &Path) -> Process {
    let mut command = Command::new(programs::path("controlplane"));
    command.arg(program).args([
        format!("--kubeconfig={}", kubeconfig(server, user, folder).display()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]);
    Process::start(program, command.args(arguments), folder)
}

fn token_of_replica(replica: &str) -> String {
    format!("{}-{replica}", User::Migrator.token())
}

fn kubeconfig(server: &str, user: User, folder: &Path) -> PathBuf {
    kubeconfig_with(server, user, user.name(), &user.token(), folder)
}

fn kubeconfig_with(server: &str, user: User, name: &str, token: &str, folder: &Path) -> PathBuf {
    let path = folder.join(format!("{name}.kubeconfig"));
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "world", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
        "users": [{"name": user.name(), "user": {"token": token}}],
        "contexts": [{"name": "world", "context": {"cluster": "world", "user": user.name()}}],
        "current-context": "world",
    });
    std::fs::write(&path, text.to_string()).expect("the folder is writable");
    path
}

fn client(server: &str, token: &str) -> Client {
    client_by(server, &json!({"token": token}))
}

/// A client of whoever a kubeconfig's `user` is.
fn client_by(server: &str, user: &serde_json::Value) -> Client {
    // Several features of the workspace bring a provider; a client takes the process's default. A second installation
    // fails, and that is fine: the first is the same.
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut config = Config::new(server.parse().expect("it is a URI"));
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.auth_info = serde_json::from_value(user.clone()).expect("it is what a kubeconfig holds");
    Client::try_from(config).expect("the configuration is complete")
}

async fn is_ready(client: &Client) -> Result<(), String> {
    let request = http::Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
    let answer = client.request_text(request).await.map_err(|error| error.to_string())?;
    if answer == "ok" { Ok(()) } else { Err(answer) }
}
