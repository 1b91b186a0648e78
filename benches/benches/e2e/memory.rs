//! The memory of a process whose nodes are instances of EC2.

use anyhow::Result;
use serde_json::json;
use spot_tests::aws::cloud::CLUSTER;
use spot_tests::aws::{Aws, Instance, REGION};
use spot_tests::wait::{PATIENCE, until};
use spot_tests::{Machine, Migrator, Workload, World};

use crate::idle::{mebibytes, steady};
use crate::{RUN, verdict};

const NODES: u32 = 1_200;
const PODS: u32 = 1_200;
/// The most instances in one request.
const BATCH: u32 = 100;
/// What must be reached.
const MEBIBYTES: f64 = 64.0;

/// The resident memory of a process that has classified so many nodes by EC2, and waits for its schedule; and the most
/// that it had.
pub(crate) async fn memory() -> Result<()> {
    let world = World::start().await;
    let aws = Aws::start(world.control_plane().folder()).await;
    world.join(&machines(&aws).await).await;
    world.run(&[Workload::deployment("web", PODS)]).await;
    let cloud = json!({
        "name": "aws",
        "aws": {"region": REGION, "clusterName": CLUSTER, "endpointUrl": aws.endpoint()},
    });
    let changes = json!({
        "schedule": "0 0 29 2 *",
        "cloudProvider": cloud,
        "log": {"level": "info"},
    });
    let migrator = Migrator::install(&world, changes).await.with_environment(aws.environment("SPOT-MIGRATOR"));
    let running = migrator.run(&[]);
    until("EC2 to be asked for the nodes", PATIENCE, || async {
        let asked = aws.calls_of("SPOT-MIGRATOR").await;
        let described = asked.iter().filter(|call| call.action == "DescribeInstances").count();
        if described >= 6 { Ok(()) } else { Err(format!("{described} descriptions")) }
    })
    .await;
    let (resident, peak) = (steady(&running).await, running.process().peak());
    let calls = aws.calls_of("SPOT-MIGRATOR").await.len();
    println!(
        "\nprovider aws, {NODES} nodes and {PODS} pods: {resident:.1} MiB resident, {:.1} MiB at most{}; {calls} calls",
        mebibytes(peak),
        verdict(resident, MEBIBYTES)
    );
    running.terminate(RUN).await.assert_code(0);
    Ok(())
}

/// Instances that no group keeps, and the machines of their nodes.
async fn machines(aws: &Aws) -> Vec<Machine> {
    let tag = json!({"Key": format!("kubernetes.io/cluster/{CLUSTER}"), "Value": "owned"});
    let image = aws.image().await;
    let mut machines = Vec::new();
    for _ in 0..NODES / BATCH {
        let request = json!({
            "ImageId": image,
            "InstanceType": "m5.large",
            "MinCount": BATCH,
            "MaxCount": BATCH,
            "TagSpecifications": [{"ResourceType": "instance", "Tags": [tag]}],
        });
        let answer = aws.call("ec2", "RunInstances", request).await;
        let instances = answer["Instances"].as_array().into_iter().flatten().map(Instance::of);
        machines
            .extend(instances.map(|instance| Machine::unlabelled(&instance.private_dns_name).instance(&instance.id)));
    }
    machines
}
