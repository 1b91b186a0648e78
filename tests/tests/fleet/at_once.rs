//! Two that change a pool at the same time.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use spot_tests::{Workload, wait::until};

use super::{COMMAND, STILL, Scene, assert_fell_by_what_went, on_the_pool, weights};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_scale_is_refused_while_the_first_one_works_and_the_first_one_ends_as_if_alone() {
    let scene = Scene::start(json!({})).await;
    scene.created().await;
    let (fleet, calls) = (scene.only_fleet().await, scene.calls().await.len());
    // The first one waits for its change to be over.
    scene.cloud.aws().pace(STILL).await;
    let first = scene.fleet.start("scale", &["--to", "3"]);
    scene.asked("ModifySpotFleetRequest").await;
    let second = scene.fleet.run("scale", &["--to", "1"], COMMAND).await;
    second.assert_code(4);
    assert_eq!(scene.only_fleet().await.state, "modifying");
    scene.cloud.aws().pace(Duration::from_secs(1)).await;
    first.ended(COMMAND).await.assert_code(0);
    scene.cloud.settled(&scene.world).await;
    assert_eq!((scene.only_fleet().await.target, weights(&scene.machines().await)), (3, 3));
    let all = scene.cloud.instances().await;
    assert_fell_by_what_went(&scene.calls().await[calls..], &all, &BTreeMap::from([(fleet.id, 6)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_somebody_else_is_changing_is_waited_for() {
    let scene = Scene::start(json!({})).await;
    scene.created().await;
    let fleet = scene.only_fleet().await;
    scene.cloud.aws().pace(STILL).await;
    let change = json!({"SpotFleetRequestId": fleet.id, "TargetCapacity": 6});
    scene.cloud.aws().call("ec2", "ModifySpotFleetRequest", change).await;
    let scale = scene.fleet.start("scale", &["--to", "3"]);
    scene.asked("DescribeSpotFleetRequests").await;
    scene.asked("DescribeSpotFleetRequests").await;
    let asked = scene.changes().await.into_iter().filter(|call| call.action == "ModifySpotFleetRequest").count();
    assert_eq!(asked, 0, "it can't be changed now");
    scene.cloud.aws().pace(Duration::from_secs(1)).await;
    scale.ended(COMMAND).await.assert_code(0);
    assert_eq!((scene.only_fleet().await.target, weights(&scene.machines().await)), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_somebody_else_raises_in_the_middle_of_a_scale_is_left_so_and_the_scale_says_whose_it_is() {
    let scene = Scene::start(json!({})).await;
    scene.created().await;
    // A pod on each node, so that whichever goes first, its drain lasts.
    let web = on_the_pool(Workload::deployment("web", 6)).max_unavailable(1).stop_after("20s").spread_over_nodes();
    scene.world.run(std::slice::from_ref(&web)).await;
    let witness = scene.world.witness().await;
    let (fleet, calls) = (scene.only_fleet().await, scene.calls().await.len());
    let scale = scene.fleet.start("scale", &["--to", "2"]);
    until("a node to be cordoned", COMMAND, || async {
        if witness.cordoned().is_empty() { Err(scale.process().output()) } else { Ok(()) }
    })
    .await;
    // As Application Auto Scaling does it.
    let change = json!({"SpotFleetRequestId": fleet.id, "TargetCapacity": 9});
    scene.cloud.aws().call("ec2", "ModifySpotFleetRequest", change).await;
    let ended = scale.ended(COMMAND).await;
    ended.assert_code(1);
    let told = |line: &str| line.contains(&fleet.id) && line.contains("somebody else");
    assert!(ended.output.lines().any(told), "{}", ended.output);

    // What it had begun is done, and counts; nothing else is taken from what the other one wants.
    let (now, all) = (scene.only_fleet().await, scene.cloud.instances().await);
    let went = weights(all.values().filter(|machine| !machine.is_running()));
    assert_eq!(now.target, 9 - went, "{}", ended.output);
    assert!(went <= 3, "at most the node that it was about to retire: {went}");
    assert_fell_by_what_went(&scene.calls().await[calls..], &all, &BTreeMap::from([(fleet.id.clone(), 9)]));
    scene.launched(now.target).await;
    let to = now.target.to_string();
    scene.fleet.run("scale", &["--to", &to], COMMAND).await.assert_code(0);
    assert_eq!(scene.only_fleet().await.target, now.target);
    witness.caught_up().await;
    witness.assert_budget_kept(&web);
}
