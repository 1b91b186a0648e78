//! Simulation against reality: the model, made like a real cluster, and that cluster itself see the same decisions.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};
use spot_tests::{Machine, Migrator, Workload, World};

/// How long a run may take.
const RUN: Duration = Duration::from_mins(3);

/// What a run decided, whoever tells it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decisions {
    /// Node and step, in the order in which they were done.
    steps: Vec<(String, String)>,
    /// Why the nodes that stay stay.
    kept: BTreeMap<String, BTreeSet<String>>,
    outcome: String,
}

impl Decisions {
    /// What a simulation tells.
    fn simulated(told: &Value) -> Self {
        let of = |event: &Value| {
            let done = event["event"] == "step_done";
            done.then(|| (text(&event["node"]), text(&event["step"])))
        };
        let kept = list(&told["kept"]).map(|kept| {
            let reasons = list(&kept["reasons"]).map(|reason| text(&reason["kind"]));
            (text(&kept["node"]), reasons.collect())
        });
        Self {
            steps: list(&told["timeline"]).filter_map(of).collect(),
            kept: kept.collect(),
            outcome: text(&told["outcome"]),
        }
    }

    /// What the log of a run tells, of the nodes that are still there.
    fn real(log: &str, there: &BTreeSet<String>) -> Self {
        let mut told = Self::default();
        for line in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let node = line["node"].as_str().unwrap_or_default().to_owned();
            match line["message"].as_str().unwrap_or_default() {
                "step" if line["outcome"] == "done" => told.steps.push((node, text(&line["step"]))),
                "node refused" if there.contains(&node) => {
                    let why = text(&line["why"]);
                    let kinds = why.split("; ").map(|why| why.split([':', ' ']).next().unwrap_or_default().to_owned());
                    told.kept.insert(node, kinds.collect());
                }
                "run ended" => told.outcome = text(&line["outcome"]),
                _other => {}
            }
        }
        told
    }

    /// The nodes for which this was done, in order.
    fn nodes_at(&self, step: &str) -> Vec<&str> {
        self.steps.iter().filter(|(_, done)| done == step).map(|(node, _)| node.as_str()).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("it is a word").to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("it is a list").iter()
}

/// Saves the cluster, simulates it, and then does it.
async fn both(world: &World, configuration: Value) -> (Decisions, Decisions) {
    let objects = ["get", "nodes,pods,pdb,daemonsets,pvc,pv", "-A", "-o", "yaml"];
    let saved = world.control_plane().folder().join("cluster.yaml");
    std::fs::write(&saved, world.control_plane().kubectl(&objects)).expect("the folder is writable");
    let migrator = Migrator::install(world, configuration).await;
    let migrator = migrator.with_configuration(json!({"log": {"format": "json", "level": "info"}}));
    let told = migrator.simulate(&["-f", saved.to_str().expect("it is text"), "-o", "json"]);
    let simulated = Decisions::simulated(&serde_json::from_str(&told).expect("it is JSON"));

    let ended = migrator.run_once(RUN).await;
    ended.assert_code(0);
    let there = world.nodes().await.into_keys().collect();
    (simulated, Decisions::real(&ended.output, &there))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_by_one_they_go_in_the_same_order_through_the_same_steps_and_the_same_ones_stay() {
    let world = World::start().await;
    world.join(&[Machine::control_plane("control-plane-1")]).await;
    let candidate = "DeletionCandidateOfClusterAutoscaler";
    world
        .join(&[
            Machine::on_demand("on-demand-1"),
            Machine::on_demand("on-demand-2").taint(candidate, "1", "PreferNoSchedule"),
            Machine::on_demand("on-demand-3"),
            Machine::on_demand("on-demand-4").label("spot-migrator.io/do-not-migrate", "true"),
            Machine::on_demand("on-demand-5").label("pool", "held"),
            Machine::unlabelled("unknown-1"),
        ])
        .await;
    let held = Workload::deployment("held", 1).max_unavailable(0).spec("nodeSelector", json!({"pool": "held"}));
    world.run(&[Workload::deployment("web", 12).max_unavailable(3), Workload::daemon_set("agent"), held]).await;
    world.patch_node("on-demand-3", &json!({"spec": {"unschedulable": true}})).await;
    world.join(&[Machine::spot("spot-1"), Machine::spot("spot-2")]).await;

    let (simulated, real) = both(&world, json!({})).await;
    assert_eq!(simulated, real);
    assert_eq!(real.nodes_at("claim"), ["on-demand-3", "on-demand-2", "on-demand-1"], "{real:#?}");
    let kept = ["on-demand-4", "on-demand-5", "unknown-1"].map(str::to_owned);
    assert_eq!(real.kept.keys().cloned().collect::<Vec<_>>(), kept, "{real:#?}");
    assert_eq!(real.outcome, "nothing_eligible");
}

#[tokio::test(flavor = "multi_thread")]
async fn side_by_side_they_begin_in_the_same_batches_and_end_alike() {
    let world = World::start().await;
    let names = ["on-demand-1", "on-demand-2", "on-demand-3", "on-demand-4", "on-demand-5"];
    world.join(&names.map(Machine::on_demand)).await;
    world.run(&[Workload::deployment("web", 10).max_unavailable(4)]).await;
    world.join(&[Machine::spot("spot-1"), Machine::spot("spot-2")]).await;

    let (simulated, real) = both(&world, json!({"selection": {"nodesAtOnce": 2, "maxNodesPerRun": 4}})).await;
    assert_eq!((&simulated.kept, &simulated.outcome), (&real.kept, &real.outcome));
    // What is begun together is told in no order.
    let batches = |decisions: &Decisions| -> Vec<BTreeSet<String>> {
        let claimed = decisions.nodes_at("claim");
        claimed.chunks(2).map(|batch| batch.iter().map(|node| (*node).to_owned()).collect()).collect()
    };
    assert_eq!(batches(&simulated), batches(&real));
    assert_eq!(batches(&real).len(), 2, "{real:#?}");
    for node in simulated.nodes_at("claim") {
        let of = |decisions: &Decisions| -> Vec<String> {
            decisions.steps.iter().filter(|(of, _)| of == node).map(|(_, step)| step.clone()).collect()
        };
        assert_eq!(of(&simulated), of(&real), "{node}");
    }
}
