//! Bad input: refused with its place and a remedy, before anybody is asked for anything.

use serde_json::json;

use super::{COMMAND, Scene};

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_is_refused_with_place_and_remedy_before_any_call() {
    let scene = Scene::start(json!({})).await;
    let offer = |changes: serde_json::Value| {
        let mut offer = json!({"instanceType": "m5.large"});
        spot_tests::migrator::merge(&mut offer, changes);
        json!({"launchSpecifications": [offer]})
    };
    let many: serde_json::Map<String, _> = (0..51).map(|number| (format!("tag-{number}"), json!("x"))).collect();
    let subnet = &scene.cloud.subnets()[0];
    let own = format!("${{NODE_LABELS}} ${{NODE_TAINTS}} {}", "x".repeat(16 * 1024));
    let file = scene.world.control_plane().folder().join("user-data");
    std::fs::write(&file, own).expect("the folder is writable");
    for (changes, place) in [
        (offer(json!({"weightedCapacity": 0})), "launchSpecifications[0].weightedCapacity"),
        (offer(json!({"weightedCapacity": 1.5})), "launchSpecifications[0].weightedCapacity"),
        (json!({"minCapacity": 7}), "is below `minCapacity`, 7"),
        (json!({"subnets": [subnet, subnet]}), "subnets"),
        (json!({"tags": many}), "tags"),
        (json!({"userData": {"file": file}}), "userData"),
        (json!({"taints": [{"key": "example.org/batch"}]}), "taints[0]"),
        (json!({"taints": [{"key": "example.org/batch", "effect": "Sometimes"}]}), "taints[0].effect"),
        (json!({"labels": {"kubernetes.io/role": "node"}}), "labels"),
        (json!({"targetCapcity": 3}), "targetCapcity"),
    ] {
        let replaced = changes.as_object().and_then(|changes| changes.keys().next()).expect("one key is changed");
        let fleet = scene.fleet.clone().without(replaced).with_pool(changes.clone());
        for command in ["create", "plan", "scale", "roll", "delete", "status"] {
            let ended = fleet.run(command, &[], COMMAND).await;
            assert_eq!(ended.code, Some(2), "{command} {changes}: {}", ended.output);
            assert!(ended.output.contains(place), "{command} {changes}: {}", ended.output);
        }
    }
    let calls = scene.calls().await;
    assert!(calls.is_empty(), "{calls:?}");
}
