//! Two that change a pool at the same time.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;

use super::{COMMAND, Scene, assert_fell_by_what_went, weights};

/// Long enough that nothing moves on while a test looks.
const STILL: Duration = Duration::from_hours(1);

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
