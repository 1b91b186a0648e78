//! The process dies in the middle of a drain: the next one finishes that node, and begins no other.

use serde_json::json;
use spot_tests::{
    Machine, Migrator, Workload, World,
    control_plane::User,
    wait::{PATIENCE, until},
};

use crate::{RUN, assert_nothing_left_on, hosts};

#[tokio::test(flavor = "multi_thread")]
async fn the_node_of_a_killed_process_is_finished_and_no_other_is_begun() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("on-demand-1"), Machine::on_demand("on-demand-2")]).await;
    // Four pods a node, one at a time, each a second: there is a middle of the drain.
    let web = Workload::deployment("web", 8).max_unavailable(1).ready_after("1s");
    world.run(std::slice::from_ref(&web)).await;
    world.join(&[Machine::spot("spot-1")]).await;
    let migrator = Migrator::install(&world, json!({})).await;
    let witness = world.witness().await;

    let running = migrator.run(&["--once"]);
    until("the first eviction", PATIENCE, || async {
        let audit = world.audit().await;
        let evictions = audit.evictions_by(User::Migrator).filter(|entry| entry.succeeded()).count();
        if evictions > 0 { Ok(()) } else { Err(format!("nothing yet; it printed {}", running.process().output())) }
    })
    .await;
    running.kill();
    witness.caught_up().await;
    let begun = witness.cordoned();
    assert_eq!((begun.len(), witness.gone().len()), (1, 0), "{begun:?} was begun, and nothing is finished");

    let ended = migrator.run_once(RUN).await;
    ended.assert_code(0);
    witness.caught_up().await;
    assert_eq!(witness.gone(), begun, "the same node is finished");
    assert_eq!(witness.cordoned(), begun, "no other is begun");

    let ended = migrator.run_once(RUN).await;
    ended.assert_code(0);
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;
    assert_eq!(witness.gone().len(), 2);
    assert_eq!(witness.most_cordoned(), 1, "at no moment more than one");
    assert_eq!(hosts(&world, std::slice::from_ref(&web)).await, ["spot-1".to_owned()].into());
    witness.assert_budget_kept(&web);
    world.nodes().await.values().for_each(assert_nothing_left_on);
}
