//! A second budget appears while a pod waits for its first: the API server evicts no pod that two protect.

use serde_json::json;
use spot_tests::{Migrator, World, control_plane::User};

use crate::{RUN, asked, assert_no_pod_deleted, assert_released, evicted, lay_out, settings, taking_turns, uid};

#[tokio::test(flavor = "multi_thread")]
async fn rb_25_a_pod_that_two_budgets_protect_ends_the_drain_at_its_deadline_and_both_are_named() {
    let world = World::start().await;
    let web = taking_turns("web");
    lay_out(&world, &[("on-demand-1", &web)]).await;
    let migrator = Migrator::install(&world, settings("15s")).await;
    let running = migrator.run(&["--once"]);
    let first = asked(&world, &running, "the first eviction", |audit| {
        audit.evictions_by(User::Migrator).find(|entry| entry.succeeded()).and_then(uid)
    })
    .await;
    world.apply(&[json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "second", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    })]);

    let ended = running.ended(RUN).await;
    ended.assert_code(1);
    for words in ["multiple_budgets", "default/web", "default/second"] {
        assert!(ended.output.contains(words), "{words} is not named in\n{}", ended.output);
    }
    let audit = world.audit().await;
    let refused = audit.evictions_by(User::Migrator).filter(|entry| entry.code == 500).count();
    // At most once a second at first, and twice as seldom each time.
    assert!((1..=6).contains(&refused), "asked {refused} times");
    assert_eq!(evicted(&audit), [first].into(), "only the pod that one budget protected");
    assert_no_pod_deleted(&audit);
    assert_released(&world.nodes().await["on-demand-1"]);
}
