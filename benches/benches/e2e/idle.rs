//! The memory of a process that waits for its schedule, and for notices.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use spot_tests::aws::REGION;
use spot_tests::control_plane::free_port;
use spot_tests::migrator::merge;
use spot_tests::wait::{PATIENCE, until};
use spot_tests::{Machine, Migrator, Running, Sqs, Workload, World, rights};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::{NODES, PODS_PER_NODE, SPOT_NODES};
use crate::{RUN, verdict};

/// What must be reached.
const IDLE_MEBIBYTES: f64 = 20.0;

/// The resident memory of a process that waits for its schedule, in the cluster as it is before a migration; and for
/// notices in a queue, if it is to read one.
pub(crate) async fn idle(reads: bool) -> Result<()> {
    let world = World::start().await;
    let machines: Vec<_> = (0..NODES + SPOT_NODES).map(|number| Machine::spot(&format!("spot-{number}"))).collect();
    world.join(&machines).await;
    world.run(&[Workload::deployment("web", NODES * PODS_PER_NODE)]).await;
    let address = format!("127.0.0.1:{}", free_port());
    let mut configuration = json!({"schedule": "0 0 29 2 *", "server": {"address": address}, "log": {"level": "info"}});
    let sqs = Sqs::start().await;
    let queue = sqs.queue("notices");
    if reads {
        merge(
            &mut configuration,
            json!({
                "cloudProvider": {"aws": {"region": REGION, "endpointUrl": sqs.endpoint()}},
                "interruption": {"queueUrl": queue.url()},
            }),
        );
        rights::grant_answers(&world).await;
    }
    let migrator = Migrator::install(&world, configuration).await.with_environment(sqs.environment("BENCH"));
    let running = migrator.run(&[]);
    until("the migrator to be ready", PATIENCE, || is_ready(&address)).await;
    let resident = steady(&running).await;
    // Of a process that reads a queue, most of it is the larger program's pages.
    let (reading, verdict) =
        if reads { (", reading a queue", String::new()) } else { ("", verdict(resident, IDLE_MEBIBYTES)) };
    let (nodes, pods) = (machines.len(), NODES * PODS_PER_NODE);
    println!("\nidle, {nodes} nodes and {pods} pods{reading}: {resident:.1} MiB resident{verdict}");
    running.terminate(RUN).await.assert_code(0);
    Ok(())
}

async fn is_ready(address: &str) -> Result<(), String> {
    let answer = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = answer.await.map_err(|error| error.to_string())?;
    if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
}

/// Its memory once it no longer changes, in MiB.
pub(crate) async fn steady(running: &Running) -> f64 {
    let mut before = 0;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = running.process().resident();
        if now == before {
            break;
        }
        before = now;
    }
    mebibytes(before)
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes / 1024).unwrap_or(u32::MAX)) / 1024.0
}
