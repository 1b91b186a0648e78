//! What `spot-fleet status` tells of a pool.

use serde_json::{Value, json};
use spot_tests::SpotFleet;

use super::{COMMAND, Scene, weight};

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_capacity_and_machines_and_what_disagrees() {
    let scene = Scene::start(json!({"minCapacity": 1})).await;
    scene.created().await;
    let fleet = scene.only_fleet().await;
    // What spot is cheaper than: twice as much at least.
    let prices = "eu-west-1,m5.large,0.1\neu-west-1,m5.xlarge,0.2\neu-west-1,m5.2xlarge,0.4\n";
    std::fs::write(scene.prices(), prices).expect("the folder is writable");

    let status = json(&scene).await;
    assert_capacity(&status, (6, 6, 6, 6));
    assert_eq!((&status["capacity"]["file"], &status["capacity"]["floor"]), (&json!(6), &json!(1)));
    assert_eq!(status["disagreements"], json!([]));
    assert_eq!(status["fleets"][0]["id"], fleet.id);
    assert_eq!(status["fleets"][0]["current"], true);
    assert_rows(&scene, &status).await;
    let text = text(&scene).await;
    assert!(!text.contains("disagrees"), "{text}");

    // Somebody else wants two more units, and a machine loses its Node, which its kubelet does not make again.
    let change = json!({"SpotFleetRequestId": fleet.id, "TargetCapacity": 8});
    scene.cloud.aws().call("ec2", "ModifySpotFleetRequest", change).await;
    scene.launched(8).await;
    let lost = scene.machines().await.into_iter().find(|machine| weight(machine) == 3).expect("it has one of each");
    scene.world.delete_node(&lost.private_dns_name).await;

    let status = json(&scene).await;
    let there = scene.only_fleet().await.fulfilled;
    assert_capacity(&status, (8, there, there - 3, there - 3));
    assert_rows(&scene, &status).await;
    let row = status["machines"].as_array().into_iter().flatten().find(|row| row["instance"] == *lost.id);
    assert_eq!(row.map(|row| (&row["node"], &row["ready"])), Some((&Value::Null, &json!(false))), "{status}");
    let told: Vec<_> = status["disagreements"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let wants = format!("{} wants 8 units, and the file 6", fleet.id);
    let nodeless = format!("{} (running", lost.id);
    for words in [wants.as_str(), nodeless.as_str()] {
        assert_eq!(told.iter().filter(|told| told.contains(words)).count(), 1, "{words}: {told:?}");
    }
    let text = self::text(&scene).await;
    for words in [wants.as_str(), nodeless.as_str(), "What disagrees:", &format!("{there} of 8 units launched")] {
        assert!(text.contains(words), "{words}: {text}");
    }
    for machine in scene.machines().await {
        let row = text.lines().find(|line| line.starts_with(&machine.id)).unwrap_or_else(|| panic!("{text}"));
        let node = if machine.id == lost.id { " no " } else { machine.private_dns_name.as_str() };
        assert!(row.contains(&machine.instance_type) && row.contains(node), "{row}");
    }
    let changes = scene.changes().await.len();
    let _read_only = json(&scene).await;
    assert_eq!(scene.changes().await.len(), changes, "it only looks");
}

/// What it prints for people.
async fn text(scene: &Scene) -> String {
    let ended = scene.impatient().run("status", &["--prices", &scene.prices()], COMMAND).await;
    ended.assert_code(0);
    ended.output
}

/// What it prints for programs.
async fn json(scene: &Scene) -> Value {
    let ended = scene.impatient().run("status", &["-o", "json", "--prices", &scene.prices()], COMMAND).await;
    ended.assert_code(0);
    let line = ended.output.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{}", ended.output));
    serde_json::from_str(line).expect("it is JSON")
}

impl Scene {
    /// By whose file a machine has a second to become a node.
    fn impatient(&self) -> SpotFleet {
        self.fleet.clone().with_pool(json!({"ready": {"timeout": "1s"}}))
    }

    /// The file of what instances cost on demand.
    fn prices(&self) -> String {
        self.world.control_plane().folder().join("prices.csv").to_str().expect("the path is UTF-8").to_owned()
    }
}

fn assert_capacity(status: &Value, (target, fulfilled, joined, ready): (u64, u64, u64, u64)) {
    let capacity = &status["capacity"];
    let told = ["target", "fulfilled", "joined", "ready"].map(|key| capacity[key].as_u64());
    assert_eq!(told, [target, fulfilled, joined, ready].map(Some), "{status}");
}

/// Fails the test unless there is a row for each machine, with its type, its weight and what it costs.
async fn assert_rows(scene: &Scene, status: &Value) {
    let rows = status["machines"].as_array().expect("it is a list");
    let machines = scene.machines().await;
    assert_eq!(rows.len(), machines.len(), "{status}");
    for machine in machines {
        let row = rows.iter().find(|row| row["instance"] == *machine.id).unwrap_or_else(|| panic!("{machine:?}"));
        assert_eq!((&row["instanceType"], &row["zone"]), (&json!(machine.instance_type), &json!(machine.zone)));
        assert_eq!(row["weight"], weight(&machine));
        let of_a_kind = [("m5.large", 0.1), ("m5.xlarge", 0.2), ("m5.2xlarge", 0.4)];
        let price = of_a_kind.iter().find(|(kind, _)| *kind == machine.instance_type).map(|(_, price)| *price);
        assert_eq!(row["onDemand"].as_f64(), price, "{row}");
        assert!(row["spot"].is_number() && row["saving"].as_f64().is_some_and(|saving| saving >= 0.5), "{row}");
    }
}
