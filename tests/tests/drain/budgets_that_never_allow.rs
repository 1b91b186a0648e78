//! Nodes that cannot be emptied are told before they are touched, and do not stand in the way of the others.

use serde_json::{Value, json};
use spot_tests::{Migrator, World, control_plane::User};

use crate::{RUN, assert_untouched_but_for, deployment, lay_out, settings};

#[tokio::test(flavor = "multi_thread")]
async fn rb_04_nodes_that_cannot_be_emptied_are_refused_untouched_and_the_free_one_goes() {
    let world = World::start().await;
    let blocked = deployment("blocked", 1).max_unavailable(0);
    let twice = deployment("twice", 1).max_unavailable(1);
    let lost = deployment("lost", 1).max_unavailable(1);
    let web = deployment("web", 2).max_unavailable(1);
    // The oldest would go first.
    lay_out(
        &world,
        &[("on-demand-1", &blocked), ("on-demand-2", &twice), ("on-demand-3", &lost), ("on-demand-4", &web)],
    )
    .await;
    world.apply(&[json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "also-twice", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "twice"}}},
    })]);
    world.silence("on-demand-3").await;
    let migrator = Migrator::install(&world, settings("20s")).await;

    let plan: Value = serde_json::from_str(&migrator.plan(&["-o", "json"])).expect("it prints one JSON document");
    for (name, kind, detail) in [
        ("on-demand-1", "budget_allows_none", "default/blocked"),
        ("on-demand-2", "multiple_budgets", "default/also-twice"),
        ("on-demand-3", "not_ready", ""),
    ] {
        let rows = plan["nodes"].as_array().into_iter().flatten();
        let row = rows.into_iter().find(|row| row["name"] == name).expect("every node is in the plan");
        assert_eq!(row["verdict"], "refused", "{row:#}");
        assert_eq!(row["reasons"][0]["kind"], kind, "{row:#}");
        assert!(row["reasons"][0]["detail"].as_str().is_some_and(|words| words.contains(detail)), "{row:#}");
    }

    let witness = world.witness().await;
    migrator.run_once(RUN).await.assert_code(0);
    witness.caught_up().await;
    assert_eq!(witness.gone(), ["on-demand-4"]);
    assert_eq!(witness.cordoned(), ["on-demand-4"]);
    let audit = world.audit().await;
    let nodes = audit.writes_by(User::Migrator).filter(|entry| entry.resource == "nodes");
    let others: Vec<_> = nodes.filter(|entry| entry.name != "on-demand-4").map(ToString::to_string).collect();
    assert!(others.is_empty(), "{others:#?}");
    world.nodes().await.values().for_each(|node| assert_untouched_but_for(node, &[]));
}
