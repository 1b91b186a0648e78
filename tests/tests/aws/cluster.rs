//! AWS as the cloud of a cluster: Nodes come with instances, and go with them.

use std::collections::BTreeSet;

use kube::ResourceExt;
use spot_tests::{
    World,
    aws::{Call, Cloud, Group, Instance, cloud::CONTROLLER},
};

#[tokio::test(flavor = "multi_thread")]
async fn each_instance_of_the_groups_is_a_ready_node_with_its_provider_id_and_addresses() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    cloud.create(&world, &[Group::on_demand("od", 2), Group::spot("spot", 2)]).await;

    let instances = running(&cloud).await;
    assert_eq!(instances.len(), 4);
    assert_eq!(instances.iter().filter(|instance| instance.spot).count(), 2);
    let nodes = world.nodes().await;
    for instance in &instances {
        let node = &nodes[&instance.private_dns_name];
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        assert_eq!(provider_id, Some(instance.provider_id().as_str()));
        // What the cloud controller manager tells of the instance.
        assert_eq!(node.labels()["topology.kubernetes.io/zone"], instance.zone);
        assert_eq!(node.labels()["node.kubernetes.io/instance-type"], "m5.large");
    }
    assert_eq!(nodes.len(), 4);
    let asked = cloud.aws().calls_of(CONTROLLER).await;
    assert!(!asked.is_empty());
    assert!(asked.iter().all(Call::succeeded), "the double has what it asks for: {asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_with_decrement_takes_its_node_along_and_one_without_brings_another() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    cloud.create(&world, &[Group::on_demand("od", 2), Group::spot("spot", 2)]).await;
    let before = running(&cloud).await;
    let on_demand = before.iter().filter(|instance| !instance.spot).collect::<Vec<_>>();

    cloud.aws().terminate_in_group(&on_demand[0].id, true).await.expect("it is accepted");
    cloud.settled(&world).await;
    let after = running(&cloud).await;
    assert_eq!(names(&after), names(before.iter().filter(|instance| instance.id != on_demand[0].id)));
    assert_eq!(world.nodes().await.into_keys().collect::<BTreeSet<_>>(), names(&after));
    assert_eq!(cloud.instances().await.len(), 4, "nothing was bought");

    cloud.aws().terminate_in_group(&on_demand[1].id, false).await.expect("it is accepted");
    cloud.settled(&world).await;
    let instances = cloud.instances().await;
    assert_eq!(instances.len(), 5, "a replacement was bought");
    assert_eq!(instances[&on_demand[1].id].state, "terminated");
    assert_eq!(world.nodes().await.into_keys().collect::<BTreeSet<_>>(), names(&running(&cloud).await));
}

async fn running(cloud: &Cloud) -> Vec<Instance> {
    cloud.instances().await.into_values().filter(Instance::is_running).collect()
}

fn names<'i>(instances: impl IntoIterator<Item = &'i Instance>) -> BTreeSet<String> {
    instances.into_iter().map(|instance| instance.private_dns_name.clone()).collect()
}
