//! Somebody else writes taints on the node at the same moments.

use std::{collections::BTreeSet, sync::Mutex};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use spot_tests::{Migrator, World, wait::until};

use crate::{RUN, deployment, lay_out, settings};

/// The key of the other writer's taints.
const OTHERS: &str = "world.spot.test/gpu-";

#[tokio::test(flavor = "multi_thread")]
async fn rb_12_taints_that_another_writer_adds_during_the_drain_are_never_lost() {
    let world = World::start().await;
    let web = deployment("web", 6).max_unavailable(2).ready_after("300ms").stop_after("300ms");
    lay_out(&world, &[("on-demand-1", &web)]).await;
    let migrator = Migrator::install(&world, settings("60s")).await;
    let witness = world.witness().await;

    let running = migrator.run(&["--once"]);
    let written = Mutex::new(0_u32);
    until("the node to be gone", RUN, || async {
        let nodes: Api<Node> = Api::all(world.client());
        let Some(node) = nodes.get_opt("on-demand-1").await.map_err(|error| error.to_string())? else { return Ok(()) };
        let next = written.lock().map_or(0, |written| *written);
        let mut taints = node.spec.and_then(|spec| spec.taints).map_or_else(|| json!([]), |taints| json!(taints));
        let taint = json!({"key": format!("{OTHERS}{next}"), "value": "installing", "effect": "NoSchedule"});
        taints.as_array_mut().into_iter().for_each(|taints| taints.push(taint.clone()));
        let version = node.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
        // A conflict: the product was there first.
        if nodes.patch("on-demand-1", &PatchParams::default(), &Patch::Merge(&patch)).await.is_ok() {
            written.lock().map(|mut written| *written += 1).map_err(|error| error.to_string())?;
        }
        Err(format!("{next} taints were written"))
    })
    .await;
    running.ended(RUN).await.assert_code(0);
    witness.caught_up().await;

    assert_eq!(witness.gone(), ["on-demand-1"]);
    let written = written.into_inner().expect("nobody panicked");
    let mut before = BTreeSet::new();
    let mut both = false;
    for node in witness.states_of("on-demand-1") {
        let taints: Vec<_> = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).collect();
        let others: BTreeSet<_> =
            taints.iter().filter(|taint| taint.key.starts_with(OTHERS)).map(|taint| taint.key.clone()).collect();
        assert!(others.is_superset(&before), "{:?} were lost", before.difference(&others));
        let ours = taints.iter().filter(|taint| taint.key == "ToBeDeletedByClusterAutoscaler").count();
        assert!(ours <= 1, "our own is there {ours} times");
        both |= ours == 1 && !others.is_empty();
        before = others;
    }
    assert_eq!(before.len(), written as usize, "all of them are there at the end");
    assert!(both, "ours was put beside theirs");
}
