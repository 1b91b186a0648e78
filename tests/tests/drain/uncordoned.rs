//! A person takes the node back in mid-drain.

use serde_json::json;
use spot_tests::{Migrator, World, control_plane::User};

use crate::{RUN, asked, assert_no_pod_deleted, assert_released, evicted, lay_out, settings, taking_turns, uid};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_uncordoned_in_mid_drain_is_released_and_left_alone() {
    let world = World::start().await;
    let web = taking_turns("web");
    lay_out(&world, &[("on-demand-1", &web)]).await;
    let migrator = Migrator::install(&world, settings("60s")).await;
    let witness = world.witness().await;
    let running = migrator.run(&["--once"]);
    let first = asked(&world, &running, "the first eviction", |audit| {
        audit.evictions_by(User::Migrator).find(|entry| entry.succeeded()).and_then(uid)
    })
    .await;

    world.patch_node("on-demand-1", &json!({"spec": {"unschedulable": false}})).await;
    running.ended(RUN).await.assert_code(0);
    witness.caught_up().await;
    assert_eq!(witness.gone(), Vec::<String>::new());
    assert_released(&world.nodes().await["on-demand-1"]);
    let audit = world.audit().await;
    assert_eq!(evicted(&audit), [first].into(), "no other pod was moved");
    assert_no_pod_deleted(&audit);
    let writes = audit.writes_by(User::Migrator).filter(|entry| entry.resource == "nodes").count();

    // The next run leaves it alone.
    world.settled(std::slice::from_ref(&web)).await;
    migrator.run_once(RUN).await.assert_code(0);
    let audit = world.audit().await;
    assert_eq!(audit.writes_by(User::Migrator).filter(|entry| entry.resource == "nodes").count(), writes);
    assert_eq!(evicted(&audit).len(), 1);
}
