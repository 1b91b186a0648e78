//! The node falls silent in mid-drain: its pods never say that they have stopped.

use kube::ResourceExt;
use spot_tests::{Migrator, World, control_plane::User};

use crate::{RUN, asked, assert_no_pod_deleted, deployment, evicted, lay_out, settings, uids};

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_node_that_fell_silent_count_as_gone_a_minute_after_their_grace_period() {
    let world = World::start().await;
    let lost = deployment("lost", 2).max_unavailable(2).stop_after("1h");
    lay_out(&world, &[("on-demand-1", &lost)]).await;
    let before = uids(&world.pods(&lost).await);
    let migrator = Migrator::install(&world, settings("3m")).await;
    let witness = world.witness().await;

    let running = migrator.run(&["--once"]);
    asked(&world, &running, "both evictions", |audit| (evicted(audit) == before).then_some(())).await;
    world.silence("on-demand-1").await;
    running.ended(RUN).await.assert_code(0);
    witness.caught_up().await;

    assert_eq!(witness.nodes_gone().iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["on-demand-1"]);
    let audit = world.audit().await;
    assert_no_pod_deleted(&audit);
    let evicted_at = audit.evictions_by(User::Migrator).map(|entry| entry.at).max().expect("there were some");
    let deleted = audit.deletes_by(User::Migrator, "nodes").map(|entry| entry.at).min().expect("there was one");
    // Five seconds of grace and a minute; the API server rounds the grace period's end down to a second.
    let waited = deleted.duration_since(evicted_at).as_secs();
    assert!((63..120).contains(&waited), "deleted at {deleted}, evicted at {evicted_at}");
}
