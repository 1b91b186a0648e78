//! The process is killed after each step of answering a message: the message comes back, and ends well.

use std::{collections::BTreeSet, time::Duration};

use kube::ResourceExt;
use serde_json::json;
use spot_tests::{
    Entry, Machine, Migrator, Proxy, Verb, Workload,
    control_plane::User,
    notice,
    proxy::{Fault, Request},
    sqs::Hold,
};

use crate::{Cluster, END, interruption, is_cordoned};

/// A killed process's lease and its messages' visibility have to pass.
const TAKEN_UP: Duration = Duration::from_mins(2);

const PODS: usize = 3;

/// Which request is meant.
type Meant = fn(&Request) -> bool;

/// A lease that is soon expired, so that tests are short.
fn short_lease() -> serde_json::Value {
    let lease = json!({"enabled": true, "leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"});
    json!({"leaderElection": lease})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_ends_well_whatever_request_to_the_api_server_the_process_was_killed_at() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[Machine::spot("stays")]).await;
    let proxy = Proxy::start(&cluster.world).await;
    let migrator = cluster.install(short_lease()).await;
    let cordon = |request: &Request| request.verb == Verb::Patch && request.resource == "nodes";
    let eviction = |request: &Request| request.subresource == "eviction";
    let steps: [(Fault, usize, Meant); 4] = [
        (Fault::KilledBefore, 1, cordon),
        (Fault::KilledAfter, 1, cordon),
        (Fault::KilledAfter, 1, eviction),
        (Fault::KilledAfter, PODS, eviction),
    ];
    for (number, (fault, nth, meant)) in (1..).zip(steps) {
        let step = Step::lay_out(&cluster, number).await;
        let running = migrator.clone().through(&proxy).run(&[]);
        cluster.reads(&running).await;
        let armed = proxy.arm(fault, nth, meant);
        let message = cluster.queue.send(interruption(number));
        assert_eq!(running.killed_at(armed.fired(), TAKEN_UP).await, None, "{fault:?} {nth}");
        step.ends_well(&cluster, &migrator, &message).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_22_a_message_ends_well_whatever_request_to_the_queue_the_process_was_killed_at() {
    let cluster = Cluster::start().await;
    cluster.world.join(&[Machine::spot("stays")]).await;
    let migrator = cluster.install(short_lease()).await;
    let steps = [("ReceiveMessage", Hold::After), ("DeleteMessage", Hold::Before)];
    for (number, (action, when)) in (1..).zip(steps) {
        let step = Step::lay_out(&cluster, number).await;
        let running = migrator.run(&[]);
        cluster.reads(&running).await;
        let held = cluster.sqs.hold(action, when);
        let message = cluster.queue.send(interruption(number));
        assert_eq!(running.killed_at(held.fired(), TAKEN_UP).await, None, "{action} {when:?}");
        step.ends_well(&cluster, &migrator, &message).await;
    }
}

/// A node of its own for each step, with pods that no other has.
struct Step {
    node: String,
    pods: BTreeSet<String>,
}

impl Step {
    async fn lay_out(cluster: &Cluster, number: u32) -> Self {
        let node = format!("leaves-{number}");
        let machine = Machine::spot(&node).instance(&notice::instance(number));
        cluster.world.join(&[machine]).await;
        let replicas = u32::try_from(PODS).expect("a few");
        let web = Workload::deployment(&format!("web-{number}"), replicas).stop_after("1s");
        cluster.run_on(&node, &web).await;
        let pods = cluster.world.pods(&web).await.iter().filter_map(ResourceExt::uid).collect();
        Self { node, pods }
    }

    /// Another process takes the message up, empties the node, and the message is no more.
    async fn ends_well(self, cluster: &Cluster, migrator: &Migrator, message: &str) {
        let next = migrator.run(&[]);
        cluster.queue.deleted(&[message.to_owned()], TAKEN_UP).await;
        cluster.emptied(&self.node).await;
        let audit = cluster.world.audit().await;
        // An answer that the killed process did not live to see is not among those that succeeded.
        let asked: BTreeSet<_> = audit.evictions_by(User::Migrator).filter_map(Entry::uid_precondition).collect();
        assert!(self.pods.iter().all(|uid| asked.contains(uid.as_str())), "{:?}, {asked:?}", self.pods);
        assert_eq!(audit.deletes_by(User::Migrator, "pods").count(), 0);
        let nodes = cluster.world.nodes().await;
        assert!(is_cordoned(&nodes[&self.node]) && !is_cordoned(&nodes["stays"]));
        next.terminate(END).await.assert_code(0);
        cluster.world.delete_node(&self.node).await;
    }
}
