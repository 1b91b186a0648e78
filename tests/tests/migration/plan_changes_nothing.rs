//! `plan` tells what `run` will do, and does none of it.

use serde_json::{Value, json};
use spot_tests::{Machine, Migrator, Workload, World, control_plane::User};

use crate::RUN;

#[tokio::test(flavor = "multi_thread")]
async fn plan_writes_nothing_and_names_the_node_that_run_then_takes() {
    let world = World::start().await;
    // The oldest, and first by name, is not the one: an unschedulable node goes before it.
    world
        .join(&[
            Machine::on_demand("on-demand-1"),
            Machine::on_demand("on-demand-2").cordoned(),
            Machine::on_demand("on-demand-3"),
            Machine::spot("spot-1"),
        ])
        .await;
    world.run(&[Workload::deployment("web", 8).max_unavailable(2)]).await;
    let migrator = Migrator::install(&world, json!({"selection": {"maxNodesPerRun": 1}})).await;
    let before = world.nodes().await;

    let plan: Value = serde_json::from_str(&migrator.plan(&["-o", "json"])).expect("it prints one JSON document");
    let next = next(&plan).unwrap_or_default();
    assert_eq!(next, "on-demand-2", "{plan:#}");
    let audit = world.audit().await;
    let asks = |resource: &str| resource.ends_with("accessreviews") || resource.ends_with("rulesreviews");
    let writes: Vec<_> =
        audit.writes_by(User::Migrator).filter(|entry| !asks(&entry.resource)).map(ToString::to_string).collect();
    assert_eq!(writes, Vec::<String>::new(), "plan writes nothing");
    assert_eq!(world.nodes().await.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());

    let witness = world.witness().await;
    let ended = migrator.run_once(RUN).await;
    ended.assert_code(0);
    witness.caught_up().await;
    assert_eq!(witness.gone(), [next]);
}

/// The node with the best rank of those that may go.
fn next(plan: &Value) -> Option<String> {
    plan["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|node| node["verdict"] == "eligible")
        .min_by_key(|node| node["rank"].as_u64())
        .and_then(|node| node["name"].as_str())
        .map(str::to_owned)
}
