//! The API server is away for longer than the lease: nobody leads meanwhile, and afterwards somebody does.

use serde_json::json;
use spot_tests::{
    Migrator, World,
    wait::{PATIENCE, until},
};

use crate::{END, Replica, holders, led_by_another, short_lease};

#[tokio::test(flavor = "multi_thread")]
async fn rb_34_after_an_outage_of_the_api_server_somebody_leads_and_a_run_happens() {
    let mut world = World::start().await;
    let migrator = Migrator::install(&world, json!({"schedule": "@every 5s", "leaderElection": short_lease()})).await;
    let first = Replica::start(&migrator);
    let leader = led_by_another(&world, "").await;
    let second = Replica::start(&migrator);
    until("the other to stand by", PATIENCE, || {
        let printed = second.running.process().output();
        async move { if printed.contains("waits to lead") { Ok(()) } else { Err(printed) } }
    })
    .await;

    world.control_plane_mut().stop_api_server();
    let ended = first.running.ended(END).await;
    ended.assert_code(4);
    assert!(ended.output.contains("lost the leadership: not renewed within 3 s"), "{}", ended.output);
    until("the other to see that nobody answers", PATIENCE, || {
        let ready = second.get("/readyz");
        async move { if ready.starts_with("HTTP/1.1 503 ") { Ok(()) } else { Err(ready) } }
    })
    .await;
    assert!(!second.leads());

    world.control_plane_mut().start_api_server().await;
    let successor = led_by_another(&world, &leader).await;
    // KWOK may need minutes to find the API server again: the run is one of an empty cluster.
    until("a run of the successor", PATIENCE, || {
        let printed = second.running.process().output();
        async move { if printed.contains("outcome=\"all_spot\"") { Ok(()) } else { Err(printed) } }
    })
    .await;
    assert!(second.leads());
    second.running.terminate(END).await.assert_code(0);
    assert_eq!(holders(&world).await, [leader, successor, String::new()]);
}
