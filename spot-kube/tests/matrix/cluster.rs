//! The cluster that is migrated, and what is left of it.

use std::collections::BTreeMap;
use std::time::Duration;

use spot_core::model::{Fact, MachineKind, WorkloadSpec, World, WorldBuilder};
use spot_core::node::{ClaimAnnotation, NodeSnapshot};
use spot_core::volume::Reach;

use crate::server::ApiServer;

/// Two on-demand nodes with pods whose budget lets go of one at a time, and pods with volumes.
pub(crate) fn two_nodes() -> ApiServer {
    let database = WorkloadSpec::stateful_set("db", 2).volume(Reach::Anywhere, Duration::from_secs(2));
    let world = WorldBuilder::default()
        .settings(|settings| {
            settings.machines = MachineKind::WithNode;
            // Requests take their time in the server.
            settings.latency = Duration::ZERO;
        })
        .control_plane(1)
        .on_demand(2)
        .spot(1)
        .guarded("web", 4, 1)
        .workload(database)
        .daemon_set("agent");
    ApiServer::of(world)
}

/// What there is when the work is done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EndState {
    /// What is written on each node that bears on where pods go, or is ours.
    nodes: BTreeMap<String, Vec<String>>,
    /// How many pods of each application run on each node.
    running: BTreeMap<(String, String), usize>,
    /// Pods that do not run.
    waiting: Vec<String>,
    /// The node of each machine that was deleted, once for each time.
    deleted: Vec<String>,
}

impl EndState {
    /// As the world is.
    pub(crate) fn of(world: &World) -> Self {
        let view = world.view();
        let mut running = BTreeMap::new();
        let mut waiting = Vec::new();
        for pod in view.pods() {
            let app = pod.labels.get("app").cloned().unwrap_or_default();
            match &pod.node {
                Some(node) if pod.ready => *running.entry((app, node.to_string())).or_default() += 1,
                Some(_) | None => waiting.push(pod.reference().to_string()),
            }
        }
        let deleted = world.facts().iter().filter_map(|record| match &record.fact {
            Fact::MachineDeleted { node, .. } => Some(node.name.to_string()),
            _ => None,
        });
        let mut deleted: Vec<String> = deleted.collect();
        deleted.sort();
        let nodes = view.nodes().iter().map(|node| (node.name.to_string(), written_on(node))).collect();
        Self { nodes, running, waiting, deleted }
    }

    /// What is to be left of [`two_nodes`].
    pub(crate) fn expected() -> Self {
        let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let nodes = [("cp-1", text(&["taint node-role.kubernetes.io/control-plane"])), ("spot-1", text(&[]))];
        let running = [
            ("agent", "cp-1", 1),
            ("agent", "spot-1", 1),
            ("db", "spot-1", 2),
            ("kube-apiserver", "cp-1", 1),
            ("web", "spot-1", 4),
        ];
        Self {
            nodes: nodes.into_iter().map(|(name, written)| (name.to_owned(), written)).collect(),
            running: running.into_iter().map(|(app, node, pods)| ((app.to_owned(), node.to_owned()), pods)).collect(),
            waiting: Vec::new(),
            deleted: text(&["od-2", "od-3"]),
        }
    }
}

fn written_on(node: &NodeSnapshot) -> Vec<String> {
    let mut written: Vec<String> = node.taints.iter().map(|taint| format!("taint {}", taint.key)).collect();
    let ours = |key: &&String| key.contains("spot-migrator.io/");
    written.extend(node.labels.keys().filter(ours).map(|key| format!("label {key}")));
    written.extend((node.claim != ClaimAnnotation::Absent).then(|| "claim".to_owned()));
    written.extend(node.back_off.map(|_| "back-off".to_owned()));
    written.extend(node.unschedulable.then(|| "cordon".to_owned()));
    written
}
