//! Somebody's webhook refuses evictions while it moves its data: the drain asks again, and goes on when it may.

use spot_tests::{Migrator, Webhook, World, control_plane::User};

use crate::{RUN, assert_no_pod_deleted, deployment, lay_out, settings};

#[tokio::test(flavor = "multi_thread")]
async fn rb_27_a_webhook_that_refuses_evictions_for_a_while_holds_the_drain_up_and_no_longer() {
    let world = World::start().await;
    let data = deployment("data", 1).max_unavailable(1);
    lay_out(&world, &[("on-demand-1", &data)]).await;
    let pods = world.pods(&data).await;
    let pod = pods[0].metadata.name.as_deref().unwrap_or_default();
    let _webhook = Webhook::refuse(&world, pod, &[403, 422, 429]).await;
    let migrator = Migrator::install(&world, settings("60s")).await;
    let witness = world.witness().await;

    migrator.run_once(RUN).await.assert_code(0);
    witness.caught_up().await;
    let audit = world.audit().await;
    let answers: Vec<_> = audit.evictions_by(User::Migrator).map(|entry| entry.code).collect();
    assert_eq!(answers, [403, 422, 429, 201]);
    assert_eq!(witness.gone(), ["on-demand-1"]);
    let states = witness.states_of("on-demand-1");
    let cordoned: Vec<_> =
        states.iter().map(|node| node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)).collect();
    assert!(cordoned.is_sorted(), "cordoned once, and for good: {cordoned:?}");
    assert_no_pod_deleted(&audit);
}
