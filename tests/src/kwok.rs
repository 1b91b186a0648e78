//! KWOK: the kubelets.

use std::{fmt::Write as _, process::Command};

use serde_json::{Value, json};

use crate::{
    control_plane::{ControlPlane, User},
    process::Process,
    programs,
};

/// Annotation of a pod: how long it takes to become ready once it is bound to a node, as in `1s`.
pub const READY_AFTER: &str = "world.spot.test/ready-after";

/// Annotation of a pod: how long it takes to stop once it is deleted, as in `30s`.
pub const STOP_AFTER: &str = "world.spot.test/stop-after";

/// Annotation of a Node: KWOK says nothing of it any more, so that whoever marks it as not ready is believed.
pub const SILENT: &str = "world.spot.test/silent";

/// KWOK, which brings every Node to Ready, and its pods to Running.
///
/// A pod is ready and stops at once unless its annotations [`READY_AFTER`] and [`STOP_AFTER`] say otherwise.
#[derive(Debug)]
pub struct Kwok {
    process: Process,
}

impl Kwok {
    /// Starts KWOK on `control_plane`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(control_plane: &ControlPlane) -> Self {
        let configuration = control_plane.folder().join("kwok.yaml");
        std::fs::write(&configuration, configuration_file()).expect("the folder is writable");
        let mut command = Command::new(programs::path("kwok"));
        command
            .arg("--kubeconfig")
            .arg(control_plane.kubeconfig(User::Kwok))
            .arg("--config")
            .arg(configuration)
            .args(["--manage-all-nodes", "--node-lease-duration-seconds=40"]);
        Self { process: Process::start("kwok", &mut command, control_plane.folder()) }
    }

    /// Everything that it has printed so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.output()
    }
}

/// Options, and upstream's stages with delays that a pod's annotations set, as YAML.
fn configuration_file() -> String {
    programs::output_of("kwok", &["stages"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("`kwok stages` prints a JSON document a line"))
        .fold(options().to_string(), |mut file, mut stage: Value| {
            match stage.pointer("/metadata/name").and_then(Value::as_str) {
                Some("pod-ready") => delay(&mut stage, READY_AFTER),
                Some("pod-delete") => delay(&mut stage, STOP_AFTER),
                Some("node-initialize") => unless_silent(&mut stage),
                _ => {}
            }
            write!(file, "\n---\n{stage}").expect("writing to a string can't fail");
            file
        })
}

/// More pods at a time than upstream's four, or KWOK is what is measured. Whoever sets one option sets them all: the
/// others are upstream's.
fn options() -> Value {
    json!({
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            "cidr": "10.0.0.0/24",
            "podPlayStageParallelism": 32,
            "nodePlayStageParallelism": 4,
            "nodeLeaseParallelism": 4,
            "podsOnNodeSyncParallelism": 1,
        },
    })
}

fn delay(stage: &mut Value, annotation: &str) {
    let expression = format!(".metadata.annotations[\"{annotation}\"]");
    stage["spec"]["delay"] = json!({"durationMilliseconds": 0, "durationFrom": {"expressionFrom": expression}});
}

fn unless_silent(stage: &mut Value) {
    let key = format!(".metadata.annotations[\"{SILENT}\"]");
    let wanted = stage["spec"]["selector"]["matchExpressions"].as_array_mut().expect("upstream's stage selects");
    wanted.push(json!({"key": key, "operator": "DoesNotExist"}));
}
