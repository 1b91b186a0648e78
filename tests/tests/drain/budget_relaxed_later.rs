//! Many pods, of which a few wait for their budget: those hold up nobody.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use spot_tests::{Machine, Migrator, World};

use crate::{RUN, asked, assert_no_pod_deleted, deployment, evicted, settings, uids};

#[tokio::test(flavor = "multi_thread")]
async fn rb_55_thirty_pods_go_while_ten_wait_for_their_budget_and_those_go_when_it_lets_them() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("on-demand-1")]).await;
    // It allows one to go, and then none until that one's successor is ready.
    let blocked = deployment("blocked", 10).max_unavailable(1).ready_after("6s");
    let free = deployment("free", 30);
    let both = [blocked, free];
    world.run(&both).await;
    let [blocked, free] = &both;
    let (waiting, going) = (uids(&world.pods(blocked).await), uids(&world.pods(free).await));
    world.join(&[Machine::spot("spot-1")]).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(world.client(), "default");
    let migrator = Migrator::install(&world, settings("60s")).await;
    let witness = world.witness().await;

    let running = migrator.run(&["--once"]);
    let audit = asked(&world, &running, "all free pods to be evicted", |audit| {
        evicted(audit).is_superset(&going).then(|| audit.clone())
    })
    .await;
    let early = evicted(&audit).intersection(&waiting).count();
    assert!(early < 10, "the budget held {} of ten back", 10 - early);
    assert_eq!(witness.gone(), Vec::<String>::new());
    budgets
        .patch("blocked", &PatchParams::default(), &Patch::Merge(json!({"spec": {"maxUnavailable": 10}})))
        .await
        .expect("the budget can be changed");

    running.ended(RUN).await.assert_code(0);
    witness.caught_up().await;
    assert_eq!(witness.gone(), ["on-demand-1"]);
    let audit = world.audit().await;
    assert_eq!(evicted(&audit), going.union(&waiting).cloned().collect());
    assert_no_pod_deleted(&audit);
}
