//! The leader is frozen in mid-drain for longer than its lease: another finishes its node, and it does nothing more.

use jiff::Timestamp;
use serde_json::json;
use spot_tests::{
    Machine, Migrator, Workload, World,
    control_plane::User,
    wait::{PATIENCE, until},
};

use crate::{END, Replica, holders, led_by_another, left_with, short_lease};

#[tokio::test(flavor = "multi_thread")]
async fn rb_17_a_leader_that_was_frozen_writes_nothing_more_and_ends() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("on-demand-1")]).await;
    // Two pods, of which one may be down, and who goes takes his time: so the other one waits for the budget.
    let db = Workload::stateful_set("db", 2).max_unavailable(1).stop_after("12s");
    world.run(std::slice::from_ref(&db)).await;
    world.join(&[Machine::spot("spot-1")]).await;
    let changes = json!({"schedule": "@every 1h", "leaderElection": short_lease()});
    let migrator = Migrator::install(&world, changes).await;

    let first = migrator.run(&["--once"]);
    until("the drain to wait for the budget", PATIENCE, || async {
        let audit = world.audit().await;
        let waits = audit.evictions_by(User::Migrator).any(|entry| entry.code == 429);
        if waits { Ok(()) } else { Err(format!("it printed {}", first.process().output())) }
    })
    .await;
    let frozen = led_by_another(&world, "").await;
    first.process().freeze();

    let second = Replica::start(&migrator);
    let successor = led_by_another(&world, &frozen).await;
    left_with(&world, &["spot-1"]).await;
    world.settled(std::slice::from_ref(&db)).await;
    until("the successor to be done", PATIENCE, || async {
        let printed = second.running.process().output();
        if printed.contains("next run") { Ok(()) } else { Err(printed) }
    })
    .await;

    let woken = now();
    first.process().thaw();
    let ended = first.ended(END).await;
    ended.assert_code(4);
    assert!(ended.output.contains("lost the leadership: not renewed within 3 s"), "{}", ended.output);

    let audit = world.audit().await;
    let after = audit.writes_by(User::Migrator).filter(|entry| entry.at >= woken && entry.resource != "events");
    let written: Vec<_> = after
        .filter(|entry| entry.resource != "leases" || entry.body["spec"]["holderIdentity"] != successor)
        .map(ToString::to_string)
        .collect();
    assert_eq!(written, Vec::<String>::new(), "only the successor's renewals");
    assert_eq!(holders(&world).await, [frozen, successor]);
    let mut evicted: Vec<_> = audit
        .evictions_by(User::Migrator)
        .filter(|entry| entry.succeeded())
        .map(|entry| entry.uid_precondition().expect("every eviction names its pod's UID").to_owned())
        .collect();
    evicted.sort();
    evicted.dedup();
    assert_eq!(evicted.len(), 2, "each pod moved once");

    second.running.terminate(END).await.assert_code(0);
    assert_eq!(holders(&world).await.pop().as_deref(), Some(""), "it is given back");
}

#[expect(clippy::disallowed_methods, reason = "compared with the API server's clock, which is this machine's")]
fn now() -> Timestamp {
    Timestamp::now()
}
