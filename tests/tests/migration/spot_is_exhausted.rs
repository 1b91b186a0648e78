//! No spot machine is to be had: what was moved comes back on demand, and the run stops.

use kube::ResourceExt;
use serde_json::json;
use spot_tests::{Machine, Migrator, Workload, World};

use crate::{RUN, assert_nothing_left_on};

#[tokio::test(flavor = "multi_thread")]
async fn the_run_stops_after_the_first_replacement_and_names_the_node_that_caused_it() {
    let world = World::with_karpenter().await;
    let old = ["on-demand-1", "on-demand-2", "on-demand-3"];
    // Full nodes: what leaves one fits on no other.
    world.join(&old.map(|name| Machine::on_demand(name).cpus(2))).await;
    let web = Workload::deployment("web", 6).cpu("900m").max_unavailable(2);
    world.run(std::slice::from_ref(&web)).await;
    world.karpenter().exhaust_spot().await;

    let migrator = Migrator::install(&world, json!({})).await;
    let witness = world.witness().await;
    let ended = migrator.run(&["--once", "--detailed-exit-code"]).ended(RUN).await;
    ended.assert_code(3);
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;

    assert_eq!(witness.gone().len(), 1, "one node was retired: {:?}", witness.gone());
    let nodes = world.nodes().await;
    let bought: Vec<_> = nodes.keys().filter(|name| !old.contains(&name.as_str())).collect();
    assert_eq!(bought.len(), 1, "one was bought for it: {bought:?}");
    assert_eq!(nodes[bought[0]].labels()["karpenter.sh/capacity-type"], "on-demand");
    assert!(ended.output.contains(bought[0].as_str()), "{} is not named in\n{}", bought[0], ended.output);
    nodes.values().for_each(assert_nothing_left_on);
    witness.assert_budget_kept(&web);

    // It is remembered: the next run waits, and moves nobody a second time.
    let again = migrator.run(&["--once", "--detailed-exit-code"]).ended(RUN).await;
    again.assert_code(3);
    witness.caught_up().await;
    assert_eq!(witness.gone().len(), 1);
    assert_eq!(witness.cordoned().len(), 1);
}
