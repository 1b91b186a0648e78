//! A pod that waits for its budget is replaced under the same name: its successor is another pod, and is left alone.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::DeleteParams};
use serde_json::json;
use spot_tests::{
    Machine, Migrator, Workload, World,
    control_plane::User,
    wait::{PATIENCE, until},
};

use crate::{RUN, evicted, host};

#[tokio::test(flavor = "multi_thread")]
async fn the_successor_of_a_blocked_pod_is_not_evicted_from_its_new_node() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("on-demand-1")]).await;
    // Two pods, of which one may be down, and who goes takes his time: so the other one waits.
    let db = Workload::stateful_set("db", 2).max_unavailable(1).stop_after("10s");
    world.run(std::slice::from_ref(&db)).await;
    world.join(&[Machine::spot("spot-1")]).await;
    let migrator = Migrator::install(&world, json!({})).await;
    let witness = world.witness().await;
    let running = migrator.run(&["--once"]);

    let blocked = until("one pod to go and the other to be refused", PATIENCE, || async {
        let audit = world.audit().await;
        let gone = evicted(&audit);
        let refused = audit
            .evictions_by(User::Migrator)
            .find(|entry| entry.code == 429 && entry.uid_precondition().is_some_and(|uid| !gone.contains(uid)));
        let refused = refused.and_then(|entry| Some((entry.name.clone(), entry.uid_precondition()?.to_owned())));
        match refused {
            Some(refused) if gone.len() == 1 => Ok(refused),
            _ => Err(format!("evicted {gone:?}, refused {refused:?}; it printed {}", running.process().output())),
        }
    })
    .await;
    let (name, old) = blocked;
    // Somebody else deletes it; its controller brings it back at once, under its name, where it may be placed.
    let pods: Api<Pod> = Api::namespaced(world.client(), "default");
    pods.delete(&name, &DeleteParams::default().grace_period(0)).await.expect("the pod can be deleted");

    let ended = running.ended(RUN).await;
    ended.assert_code(0);
    world.settled(std::slice::from_ref(&db)).await;
    witness.caught_up().await;
    assert_eq!(witness.gone(), ["on-demand-1"]);
    for pod in world.pods(&db).await {
        assert_eq!(host(&pod), "spot-1");
        assert_ne!(pod.uid().as_ref(), Some(&old), "the blocked one is gone");
    }
    // Each name went once: the successor of the blocked pod stayed where it came up.
    let mut gone: Vec<_> = witness.pods_gone().iter().map(ResourceExt::name_any).collect();
    gone.sort();
    assert_eq!(gone, ["db-0", "db-1"]);
    assert!(!evicted(&world.audit().await).contains(&old), "the blocked pod went by another's hand");
}
