//! The roles lack a verb: the process says which, before it touches anything.

use serde_json::json;
use spot_tests::{Machine, Migrator, Workload, World, control_plane::User, rights};

use crate::RUN;

#[tokio::test(flavor = "multi_thread")]
async fn rb_49_a_missing_right_is_named_before_anything_is_cordoned() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("on-demand-1"), Machine::spot("spot-1")]).await;
    world.run(&[Workload::deployment("web", 4).max_unavailable(1)]).await;
    let migrator = Migrator::install(&world, json!({})).await;
    let witness = world.witness().await;

    // One more each time.
    for (group, resource, verb, named) in [
        ("", "pods/eviction", "create", "create pods/eviction"),
        ("", "nodes", "patch", "patch nodes"),
        ("apps", "daemonsets", "list", "list daemonsets.apps"),
        ("", "pods", "list", "list pods"),
    ] {
        rights::revoke(&world, group, resource, verb).await;
        let ended = migrator.run_once(RUN).await;
        assert!(matches!(ended.code, Some(1 | 2)), "ended with {:?}\n{}", ended.code, ended.output);
        assert!(ended.output.contains(named), "{named} is not named in\n{}", ended.output);
    }
    witness.caught_up().await;
    assert_eq!(witness.cordoned(), Vec::<String>::new());
    let audit = world.audit().await;
    let touched: Vec<_> = audit
        .writes_by(User::Migrator)
        .filter(|entry| ["nodes", "pods", "leases", "configmaps"].contains(&entry.resource.as_str()))
        .map(ToString::to_string)
        .collect();
    assert_eq!(touched, Vec::<String>::new(), "nothing is touched");
}
