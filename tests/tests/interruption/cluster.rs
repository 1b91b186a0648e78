//! A cluster with a queue, and the product's process beside it.

use serde_json::{Value, json};
use spot_tests::{
    Migrator, Running, Sqs, World,
    aws::REGION,
    migrator::merge,
    rights,
    sqs::Queue,
    wait::{PATIENCE, until},
    workload::Workload,
};

use crate::{ANSWER, is_cordoned};

/// The access key of the product.
pub(crate) const PRODUCT: &str = "PRODUCT";

/// A world and a queue.
pub(crate) struct Cluster {
    pub(crate) sqs: Sqs,
    pub(crate) queue: Queue,
    pub(crate) world: World,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let world = World::start().await;
        let sqs = Sqs::start().await;
        let queue = sqs.queue("interruptions");
        Self { sqs, queue, world }
    }

    /// The product, which reads the queue and plans nothing for an hour, with `changes` to its configuration.
    pub(crate) async fn install(&self, changes: Value) -> Migrator {
        let mut configuration = self.configuration();
        merge(&mut configuration, changes);
        let migrator = Migrator::install(&self.world, configuration).await;
        rights::grant_answers(&self.world).await;
        migrator.with_environment(self.sqs.environment(PRODUCT))
    }

    /// The same, running, and reading the queue.
    pub(crate) async fn running(&self, changes: Value) -> Running {
        let running = self.install(changes).await.run(&[]);
        self.reads(&running).await;
        running
    }

    /// Waits until the process waits for messages.
    pub(crate) async fn reads(&self, running: &Running) {
        until("the queue to be read", PATIENCE, || async {
            let reads = self.sqs.waiting() > 0;
            if reads { Ok(()) } else { Err(format!("it printed {}", running.process().output())) }
        })
        .await;
    }

    /// Waits until `node` is unschedulable, and nothing but DaemonSets' pods is on it.
    pub(crate) async fn emptied(&self, node: &str) {
        self.world.node_when(node, "cordoned", ANSWER, is_cordoned).await;
        until(&format!("{node} to be empty"), PATIENCE, || async {
            let pods = self.world.pods_on(node).await;
            if pods.is_empty() {
                Ok(())
            } else {
                Err(format!("{} pods are left, as {:?}", pods.len(), pods[0].metadata))
            }
        })
        .await;
    }

    /// Lets `workloads` run where no cordon is, and waits until they do.
    pub(crate) async fn run(&self, workload: &Workload) {
        self.world.run(std::slice::from_ref(workload)).await;
    }

    /// Lets `workload` run on `node` alone: what else is schedulable is not, meanwhile.
    pub(crate) async fn run_on(&self, node: &str, workload: &Workload) {
        let others: Vec<_> =
            self.world.nodes().await.into_iter().filter(|(name, one)| name != node && !is_cordoned(one)).collect();
        for (name, _) in &others {
            self.world.patch_node(name, &json!({"spec": {"unschedulable": true}})).await;
        }
        self.run(workload).await;
        for (name, _) in &others {
            self.world.patch_node(name, &json!({"spec": {"unschedulable": null}})).await;
        }
    }

    fn configuration(&self) -> Value {
        json!({
            "schedule": "@every 1h",
            "cloudProvider": {"aws": {"region": REGION, "endpointUrl": self.sqs.endpoint()}},
            "interruption": {"queueUrl": self.queue.url()},
        })
    }
}
