//! The agent of a node: what the machine's own metadata service says, on its worst days too.

use std::time::Duration;

use serde_json::json;
use spot_tests::{
    Agent, Machine, Metadata, Workload, World,
    control_plane::User,
    metadata::{INSTANCE_ACTION, Odd, SCHEDULED, TOKEN},
    notice,
    wait::{PATIENCE, until},
};

use crate::{DRAINED, END, is_cordoned, now, ours, spot};

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_metadata_service_answered_before_a_notice_empties_the_agents_node_and_touches_no_other() {
    let world = World::start().await;
    world.join(&[spot("mine", 1), spot("other", 2), Machine::spot("stays")]).await;
    let web = Workload::deployment("web", 9).spec("terminationGracePeriodSeconds", json!(600)).stop_after("1s");
    world.run(std::slice::from_ref(&web)).await;
    let here = world.pods_on("mine").await.len();
    let metadata = Metadata::start(&notice::instance(1)).await;
    let agent = Agent::install(&world, "mine").run(&metadata, &[]);
    metadata.asked_again(INSTANCE_ACTION, 1).await;

    for odd in Odd::ALL {
        for path in [INSTANCE_ACTION, SCHEDULED] {
            metadata.odd(path, odd);
        }
        metadata.asked_again(INSTANCE_ACTION, 2).await;
    }
    metadata.odd(INSTANCE_ACTION, Odd::Unauthorized);
    metadata.odd(TOKEN, Odd::Unavailable);
    metadata.asked_again(INSTANCE_ACTION, 3).await;
    let nodes = world.nodes().await;
    assert!(nodes.values().all(|node| ours(node).is_empty()), "nothing was announced");

    metadata.interrupts("terminate", now() + Duration::from_mins(2));
    until("the node to be empty", PATIENCE, || async {
        let (node, pods) = (&world.nodes().await["mine"], world.pods_on("mine").await.len());
        if is_cordoned(node) && pods == 0 { Ok(()) } else { Err(format!("{pods} pods; {}", agent.process().output())) }
    })
    .await;
    until("the agent to tell", PATIENCE, || async {
        let emptied = agent.metric(DRAINED, &[("kind", "spot_interruption"), ("result", "emptied")]);
        if emptied == 1 { Ok(()) } else { Err(agent.process().output()) }
    })
    .await;

    let audit = world.audit().await;
    let refused: Vec<_> =
        audit.writes_by(User::Agent).filter(|entry| !entry.succeeded()).map(ToString::to_string).collect();
    assert_eq!(refused, Vec::<String>::new(), "its rights are enough");
    let evicted: Vec<_> = audit.evictions_by(User::Agent).collect();
    assert_eq!(evicted.len(), here, "each of its pods once");
    assert!(
        evicted.iter().all(|entry| crate::grace(entry).is_some_and(|grace| (1..=120).contains(&grace))),
        "{evicted:?}"
    );
    let nodes = world.nodes().await;
    assert!(ours(&nodes["other"]).is_empty() && ours(&nodes["stays"]).is_empty());
    agent.terminate(END).await.assert_code(0);
}
