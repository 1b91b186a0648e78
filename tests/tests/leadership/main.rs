//! Several `spot-migrator`s on one real cluster: one of them leads, and only that one writes.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

mod api_server_away;
mod expired_lease;
mod frozen_leader;

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use spot_tests::{
    Migrator, World,
    control_plane::{User, free_port},
    migrator::Running,
    rights::NAMESPACE,
    wait::{PATIENCE, until},
};

/// How long a process may take to end.
const END: Duration = Duration::from_mins(1);

/// A lease that is soon expired, so that tests are short.
fn short_lease() -> Value {
    json!({"enabled": true, "leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"})
}

/// One of several processes of the same configuration.
struct Replica {
    running: Running,
    address: String,
}

impl Replica {
    fn start(migrator: &Migrator) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        Self { running: migrator.run(&["--server-address", &address]), address }
    }

    /// Whether it leads, as its metrics tell.
    fn leads(&self) -> bool {
        self.get("/metrics").contains("\nspot_migrator_leader 1\n")
    }

    /// Fails the test unless it calls itself ready.
    fn assert_ready(&self) {
        let answer = self.get("/readyz");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)
            .expect("it takes requests");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }
}

fn leases(world: &World) -> Api<Lease> {
    Api::namespaced(world.client(), NAMESPACE)
}

/// Waits until somebody else than `former` holds the lease, and returns who.
async fn led_by_another(world: &World, former: &str) -> String {
    until("another leader", PATIENCE, || async {
        let lease = leases(world).get("spot-migrator").await.map_err(|error| error.to_string())?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        if holder.is_empty() || holder == former { Err(format!("held by {holder:?}")) } else { Ok(holder) }
    })
    .await
}

/// Who held the lease, in order, by what the API server accepted.
async fn holders(world: &World) -> Vec<String> {
    let audit = world.audit().await;
    let accepted = audit.writes_by(User::Migrator).filter(|entry| entry.resource == "leases" && entry.succeeded());
    let mut holders: Vec<_> =
        accepted.filter_map(|entry| entry.body["spec"]["holderIdentity"].as_str().map(str::to_owned)).collect();
    holders.dedup();
    holders
}

/// Waits until only these nodes are left.
async fn left_with(world: &World, nodes: &[&str]) {
    until("the nodes to be retired", PATIENCE, || async {
        let left: Vec<_> = world.nodes().await.values().map(ResourceExt::name_any).collect();
        if left == nodes { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}
