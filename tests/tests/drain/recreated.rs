//! The node is deleted in mid-drain, and another machine joins under its name.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::json;
use spot_tests::{Machine, Migrator, Verb, World, control_plane::User};

use crate::{
    RUN, asked, assert_no_pod_deleted, assert_untouched_but_for, evicted, lay_out, settings, taking_turns, uid,
};

#[tokio::test(flavor = "multi_thread")]
async fn rb_08_another_machine_that_joins_under_the_name_of_a_drained_node_is_left_alone() {
    let world = World::start().await;
    let web = taking_turns("web");
    lay_out(&world, &[("worker-1", &web)]).await;
    let old = world.nodes().await["worker-1"].uid();
    let migrator = Migrator::install(&world, settings("60s")).await;
    let running = migrator.run(&["--once"]);
    let first = asked(&world, &running, "the first eviction", |audit| {
        audit.evictions_by(User::Migrator).find(|entry| entry.succeeded()).and_then(uid)
    })
    .await;

    world.delete_node("worker-1").await;
    world.join(&[Machine::spot("worker-1")]).await;
    let new = world.nodes().await["worker-1"].clone();
    assert_ne!(new.uid(), old);
    running.ended(RUN).await.assert_code(0);

    let node = &world.nodes().await["worker-1"];
    assert_eq!(node.uid(), new.uid());
    assert_untouched_but_for(node, &[]);
    let audit = world.audit().await;
    assert_eq!(evicted(&audit), [first].into(), "the pod that is on the new one stays");
    assert_no_pod_deleted(&audit);
    let joins = audit.by(User::Admin).filter(|entry| entry.resource == "nodes" && entry.verb == Verb::Create);
    let joined = joins.map(|entry| entry.at).max().expect("the test let it join");
    let later: Vec<_> = audit
        .writes_by(User::Migrator)
        .filter(|entry| entry.resource == "nodes" && entry.name == "worker-1" && entry.at > joined)
        .filter(|entry| entry.succeeded())
        .map(ToString::to_string)
        .collect();
    assert!(later.is_empty(), "{later:#?}");
    let deleted: Vec<_> = audit.deletes_by(User::Migrator, "nodes").map(ToString::to_string).collect();
    assert!(deleted.is_empty(), "{deleted:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_on_demand_machine_that_joins_under_the_name_of_a_drained_node_ends_the_run_as_exhausted() {
    let world = World::start().await;
    let web = taking_turns("web");
    lay_out(&world, &[("worker-1", &web)]).await;
    let mut settings = settings("60s");
    settings["settle"]["timeout"] = json!("2m");
    let migrator = Migrator::install(&world, settings).await;
    let running = migrator.run(&["--once", "--detailed-exit-code"]);
    asked(&world, &running, "the first eviction", |audit| {
        audit.evictions_by(User::Migrator).find(|entry| entry.succeeded()).and_then(uid)
    })
    .await;

    world.delete_node("worker-1").await;
    let mut heir = Machine::on_demand("worker-1").node();
    heir.spec.as_mut().expect("a Node has a spec").provider_id = Some("kwok://another".to_owned());
    let nodes: Api<Node> = Api::all(world.client());
    nodes.create(&PostParams::default(), &heir).await.expect("the Node is accepted");
    world.join(&[]).await;
    let ended = running.ended(RUN).await;
    ended.assert_code(3);
    for words in ["outcome=\"spot_exhausted\"", "node worker-1 came"] {
        assert!(ended.output.contains(words), "{words} is not in\n{}", ended.output);
    }
    assert_untouched_but_for(&world.nodes().await["worker-1"], &[]);
    let deleted: Vec<_> = world.audit().await.deletes_by(User::Migrator, "nodes").map(ToString::to_string).collect();
    assert!(deleted.is_empty(), "{deleted:#?}");
}
