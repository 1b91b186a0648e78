//! A pod with a volume: its machine goes when the volume is detached, or when nobody would wait any longer.

use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use spot_tests::{Migrator, Verb, Witness, Workload, World, control_plane::User, wait::PATIENCE, wait::until};

use crate::{RUN, assert_no_pod_deleted, lay_out, settings};

/// A database with one pod, whose volume is attached to `on-demand-1`, as the controller of attachments records it.
/// KWOK's nodes are none that this controller cares for: so nobody but the test takes the record off.
async fn database(world: &World) -> Workload {
    world.apply(&[
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk-1"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "claimRef": {"namespace": "default", "name": "data"},
                "csi": {"driver": "world.spot.test", "volumeHandle": "disk-1"},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "", "volumeName": "disk-1",
            },
        }),
    ]);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let db = Workload::stateful_set("db", 1).spec("volumes", volumes).spec("terminationGracePeriodSeconds", json!(5));
    lay_out(world, &[("on-demand-1", &db)]).await;
    // The other one's volume is none of a drained pod.
    for (name, node, volume) in [("attached", "on-demand-1", "disk-1"), ("elsewhere", "spot-1", "disk-2")] {
        let attachment: VolumeAttachment = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"attacher": "world.spot.test", "nodeName": node, "source": {"persistentVolumeName": volume}},
        }))
        .expect("the fields are those of a VolumeAttachment");
        attachments(world).create(&PostParams::default(), &attachment).await.expect("it is accepted");
    }
    db
}

fn attachments(world: &World) -> Api<VolumeAttachment> {
    Api::all(world.client())
}

/// Whether the node was ever tainted for deletion.
fn tainted(witness: &Witness, node: &str) -> bool {
    let states = witness.states_of(node);
    let mut taints = states.iter().flat_map(|node| node.spec.iter()).flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == "ToBeDeletedByClusterAutoscaler")
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_42_the_machine_goes_once_the_volume_of_its_drained_pod_is_detached() {
    let world = World::start().await;
    let db = database(&world).await;
    let migrator = Migrator::install(&world, settings("60s")).await;
    let witness = world.witness().await;

    let running = migrator.run(&["--once"]);
    until("the pod to be gone", PATIENCE, || async {
        witness.caught_up().await;
        let gone = !witness.pods_gone().is_empty();
        if gone { Ok(()) } else { Err(format!("it printed {}", running.process().output())) }
    })
    .await;
    // Its successor comes up elsewhere meanwhile, which takes far longer than the next step would.
    world.settled(std::slice::from_ref(&db)).await;
    witness.caught_up().await;
    assert!(!tainted(&witness, "on-demand-1"), "its volume is still attached");
    assert_eq!(witness.gone(), Vec::<String>::new());
    attachments(&world).delete("attached", &DeleteParams::default()).await.expect("it can be deleted");

    let ended = running.ended(RUN).await;
    ended.assert_code(0);
    witness.caught_up().await;
    assert_eq!(witness.gone(), ["on-demand-1"]);
    assert!(!ended.output.contains("still attached"), "{}", ended.output);
    let audit = world.audit().await;
    let detached =
        audit.by(User::Admin).find(|entry| entry.resource == "volumeattachments" && entry.verb == Verb::Delete);
    let detached = detached.expect("the test did it").at;
    let deleted: Vec<_> = audit.deletes_by(User::Migrator, "nodes").collect();
    assert_eq!(deleted.len(), 1, "{deleted:?}");
    assert!(deleted[0].at >= detached, "{} before the volume was free", deleted[0]);
    assert_no_pod_deleted(&audit);
    let left = attachments(&world).get_opt("elsewhere").await.expect("it can be read");
    assert_eq!(left.map(|left| left.name_any()).as_deref(), Some("elsewhere"), "it is none of ours to take off");
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_42_a_volume_that_stays_attached_holds_its_machine_up_to_the_drains_deadline_and_is_named() {
    let world = World::start().await;
    let _db = database(&world).await;
    let migrator = Migrator::install(&world, settings("15s")).await;
    let witness = world.witness().await;

    let ended = migrator.run_once(RUN).await;
    ended.assert_code(0);
    assert!(ended.output.contains("still attached: disk-1"), "{}", ended.output);
    witness.caught_up().await;
    assert_eq!(witness.gone(), ["on-demand-1"]);
    let audit = world.audit().await;
    let deleted = audit.deletes_by(User::Migrator, "nodes").map(|entry| entry.at).min().expect("there was one");
    let evicted = audit.evictions_by(User::Migrator).map(|entry| entry.at).min().expect("there was one");
    assert!(deleted.duration_since(evicted).as_secs() >= 14, "deleted at {deleted}, evicted at {evicted}");
    let taken: Vec<_> = audit
        .writes_by(User::Migrator)
        .filter(|entry| entry.resource == "volumeattachments")
        .map(ToString::to_string)
        .collect();
    assert!(taken.is_empty(), "{taken:?}");
}
