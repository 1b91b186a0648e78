//! Two try an expired lease at once: one wins. When that one dies, the other takes over.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use serde_json::json;
use spot_tests::{
    Machine, Migrator, Workload, World,
    control_plane::User,
    wait::{PATIENCE, until},
};

use crate::{END, Replica, holders, leases, led_by_another, left_with, short_lease};

/// As many renewals as make several times the lease's duration.
const RENEWALS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn rb_17_of_two_that_try_an_expired_lease_at_once_one_wins_and_the_other_stands_by() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("on-demand-1"), Machine::spot("spot-1")]).await;
    world.run(&[Workload::deployment("web", 4).max_unavailable(2)]).await;
    let migrator = Migrator::install(&world, json!({"schedule": "@every 5s", "leaderElection": short_lease()})).await;
    let expired: Lease = serde_json::from_value(json!({
        "metadata": {"name": "spot-migrator"},
        "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 4, "leaseTransitions": 7,
                 "acquireTime": "2026-01-01T12:00:00.000000Z", "renewTime": "2026-01-01T12:00:00.000000Z"},
    }))
    .expect("it is a Lease");
    leases(&world).create(&PostParams::default(), &expired).await.expect("the lease is accepted");

    let (one, other) = (Replica::start(&migrator), Replica::start(&migrator));
    let winner = led_by_another(&world, "gone").await;
    left_with(&world, &["spot-1"]).await;
    until("the winner to renew its lease again and again", PATIENCE, || async {
        let audit = world.audit().await;
        let writes = audit.writes_by(User::Migrator).filter(|entry| entry.resource == "leases" && entry.succeeded());
        let renewals = writes.count();
        if renewals > RENEWALS { Ok(()) } else { Err(format!("{renewals} renewals")) }
    })
    .await;
    assert_eq!(holders(&world).await, std::slice::from_ref(&winner), "nobody else had it");
    let lease = leases(&world).get("spot-migrator").await.expect("it is there");
    assert_eq!(lease.spec.and_then(|spec| spec.lease_transitions), Some(8), "it changed hands once");

    let (leader, other) = if one.leads() { (one, other) } else { (other, one) };
    assert!(leader.leads() && !other.leads());
    leader.assert_ready();
    other.assert_ready();
    // Alerts sum over all processes: a follower's counters are there, and stay at 0.
    let metrics = other.get("/metrics");
    for name in ["spot_migrator_operation", "cost_manager_spot_migrator_operation"] {
        for series in [format!("\n{name}_success_total 0\n"), format!("\n{name}_failure_total 0\n")] {
            assert!(metrics.contains(&series), "{series} is missing in\n{metrics}");
        }
    }
    leader.running.kill();
    let next = led_by_another(&world, &winner).await;
    until("the other to lead", PATIENCE, || {
        let leads = other.leads().then_some(()).ok_or_else(|| "it stands by".to_owned());
        async move { leads }
    })
    .await;
    other.running.terminate(END).await.assert_code(0);
    assert_eq!(holders(&world).await, [winner, next, String::new()]);
}
