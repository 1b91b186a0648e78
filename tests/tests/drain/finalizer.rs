//! A pod has stopped, and a finalizer that nobody takes off keeps its object.

use spot_tests::{Migrator, World};

use crate::{RUN, assert_no_pod_deleted, assert_released, deployment, evicted, lay_out, settings, uids};

#[tokio::test(flavor = "multi_thread")]
async fn rb_40_a_pod_held_by_a_finalizer_ends_the_drain_at_its_deadline_and_the_node_is_given_back() {
    let world = World::start().await;
    let held = deployment("held", 1).max_unavailable(1).finalizer("world.spot.test/held");
    lay_out(&world, &[("on-demand-1", &held)]).await;
    let before = world.pods(&held).await;
    let migrator = Migrator::install(&world, settings("15s")).await;
    let witness = world.witness().await;

    let ended = migrator.run_once(RUN).await;
    ended.assert_code(1);
    let name = before[0].metadata.name.clone().unwrap_or_default();
    for words in ["terminating_stuck", &name] {
        assert!(ended.output.contains(words), "{words} is not named in\n{}", ended.output);
    }
    witness.caught_up().await;
    assert_eq!(witness.gone(), Vec::<String>::new());
    assert_released(&world.nodes().await["on-demand-1"]);
    let audit = world.audit().await;
    assert_eq!(evicted(&audit), uids(&before));
    assert_no_pod_deleted(&audit);
    let left = world.pods(&held).await;
    let stuck = left.iter().find(|pod| pod.metadata.uid == before[0].metadata.uid).expect("its object is there");
    assert_eq!(stuck.metadata.finalizers, Some(vec!["world.spot.test/held".to_owned()]), "nobody took it off");
}
