//! What the product leaves alone on AWS and says why, while everything else moves.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::TcpStream,
};

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    events::v1::Event,
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use spot_tests::{
    Machine, Migrator, Workload, World,
    aws::{Call, Cloud, Group, Instance, cloud::CLUSTER},
    control_plane::{User, free_port},
    wait::{PATIENCE, until},
};

use crate::migration::{PRODUCT, RUN, configuration};

/// Nodes by name, each with the reason why it may not go.
type Refused = BTreeMap<String, &'static str>;

#[tokio::test(flavor = "multi_thread")]
async fn every_refused_node_is_told_of_and_left_alone_and_the_other_ones_still_move() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    let groups = [
        Group::on_demand("held", 1).minimum(1),
        Group::on_demand("uneven", 3),
        Group::on_demand("guarded", 1),
        Group::on_demand("mixed", 2).mixed(1),
        Group::on_demand("standby", 1),
        Group::on_demand("refreshed", 1),
        Group::on_demand("claimed", 1),
        Group::on_demand("free", 2),
        Group::spot("spot", 2),
    ];
    cloud.create(&world, &groups).await;
    let free = nodes_of(&cloud, "free").await;
    let spot = nodes_of(&cloud, "spot").await;
    let mut refused = members_that_may_not_go(&cloud).await;
    refused.extend(machines_in_doubt(&world, &cloud).await);
    let web = Workload::deployment("web", 60).max_unavailable(6);
    run_beside(&world, &spot, &web).await;
    let hosts: BTreeSet<_> = world.pods(&web).await.iter().filter_map(host).collect();
    assert!(refused.keys().chain(&free).all(|node| hosts.contains(node)), "each has pods: {hosts:?}");

    let address = format!("127.0.0.1:{}", free_port());
    let migrator = install(&world, &cloud, json!({"server": {"address": address}})).await;
    let planned = planned(&migrator);
    assert_eq!(planned.keys().collect::<Vec<_>>(), refused.keys().collect::<Vec<_>>(), "{planned:?}");
    for (node, kind) in &refused {
        assert!(planned[node].iter().any(|planned| planned == kind), "{node}: {kind}: {:?}", planned[node]);
    }

    let witness = world.witness().await;
    let ended = migrator.run_once(RUN).await;
    ended.assert_code(0);
    world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;

    let left: BTreeSet<_> = world.nodes().await.into_keys().collect();
    assert!(left.is_disjoint(&free), "{left:?}");
    assert!(refused.keys().all(|node| left.contains(node)), "{left:?}");
    empty(&cloud, "free").await;
    witness.assert_budget_kept(&web);

    // Nothing was done to the others.
    assert_eq!(witness.cordoned().into_iter().collect::<BTreeSet<_>>(), free);
    let audit = world.audit().await;
    let written = audit.writes_by(User::Migrator).filter(|entry| entry.resource == "nodes");
    assert_eq!(written.map(|entry| entry.name.clone()).collect::<BTreeSet<_>>(), free, "nodes that were written to");
    assert_eq!(witness.pods_gone().iter().filter_map(host).collect::<BTreeSet<_>>(), free, "nodes that lost pods");
    assert_only_changed(&cloud, "free").await;

    // And it was told why.
    let lines = lines_about(&ended.output, "node refused");
    assert_eq!(lines.len(), refused.len(), "one line a node: {lines:?}");
    let told = events(&world, "Refused").await;
    assert_eq!(told.keys().collect::<Vec<_>>(), refused.keys().collect::<Vec<_>>(), "{told:?}");
    for (node, kind) in &refused {
        let line = lines.iter().find(|line| line["node"] == json!(node)).expect("it was told of");
        assert!(line["why"].as_str().is_some_and(|why| why.contains(kind)), "{kind}: {line}");
        assert!(line["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{line}");
        assert!(told[node].contains(kind), "{node}: {kind}: {}", told[node]);
    }
    assert_counted(&migrator, &address, &planned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_nodes_in_a_group_with_room_for_two_exactly_two_go() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    cloud.create(&world, &[Group::on_demand("od", 3).minimum(1), Group::spot("spot", 2)]).await;
    let spot = nodes_of(&cloud, "spot").await;
    let web = Workload::deployment("web", 12).max_unavailable(4);
    run_beside(&world, &spot, &web).await;

    let migrator = install(&world, &cloud, json!({"selection": {"nodesAtOnce": 3}})).await;
    let witness = world.witness().await;
    let ended = migrator.run_once(RUN).await;
    ended.assert_code(0);
    cloud.settled(&world).await;
    witness.caught_up().await;

    let (desired, members) = cloud.aws().group("od").await;
    assert_eq!((desired, members.len()), (1, 1));
    assert_eq!(witness.cordoned().len(), 2, "the third was not touched");
    let calls = cloud.aws().calls_of(PRODUCT).await;
    let failed: Vec<_> = calls.iter().filter(|call| !call.succeeded()).collect();
    assert!(failed.is_empty(), "nothing was asked for in vain: {failed:?}");
    let left = nodes_of(&cloud, "od").await;
    let lines = lines_about(&ended.output, "node refused");
    let told: BTreeSet<_> = lines.iter().filter_map(|line| line["node"].as_str().map(str::to_owned)).collect();
    assert_eq!(told, left, "{lines:?}");
    assert_eq!(events(&world, "Refused").await.into_keys().collect::<BTreeSet<_>>(), left);
    let planned = planned(&migrator);
    assert_eq!(planned.keys().cloned().collect::<BTreeSet<_>>(), left);
    assert!(planned.values().all(|kinds| kinds.contains(&"group_at_minimum".to_owned())), "{planned:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_a_hook_holds_departs_and_the_hook_is_named() {
    let world = World::start().await;
    let cloud = Cloud::start(&world).await;
    cloud.create(&world, &[Group::on_demand("od", 1), Group::spot("spot", 1)]).await;
    let held = nodes_of(&cloud, "od").await;
    let id = cloud.aws().group("od").await.1.remove(0).instance_id;
    let hook = json!({"AutoScalingGroupName": "od", "LifecycleHookName": "save-the-logs"});
    let mut put = hook.clone();
    put["LifecycleTransition"] = json!("autoscaling:EC2_INSTANCE_TERMINATING");
    cloud.aws().call("autoscaling", "PutLifecycleHook", put).await;

    let short = json!({"nodeGone": {"timeout": "10s"}});
    let ended = install(&world, &cloud, short).await.run_once(RUN).await;
    ended.assert_code(0);
    let (_, members) = cloud.aws().group("od").await;
    assert!(matches!(&members[..], [one] if one.lifecycle_state == "Terminating:Wait"), "{members:?}");
    let departing = events(&world, "Departing").await;
    assert_eq!(departing.keys().cloned().collect::<BTreeSet<_>>(), held);
    assert!(departing.values().all(|why| why.contains("save-the-logs")), "{departing:?}");
    let lines = lines_about(&ended.output, "deletion accepted, or its answer unknown; the node is still there");
    let named = |line: &Value| line["why"].as_str().is_some_and(|why| why.contains("save-the-logs"));
    assert!(!lines.is_empty() && lines.iter().all(named), "{lines:?}");
    let nodes = world.nodes().await;
    let cordoned = |node: &String| nodes[node].spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    assert!(held.iter().all(cordoned), "a node that departs gets no pods");

    let mut complete = hook;
    complete["InstanceId"] = json!(id);
    complete["LifecycleActionResult"] = json!("CONTINUE");
    cloud.aws().call("autoscaling", "CompleteLifecycleAction", complete).await;
    cloud.settled(&world).await;
    empty(&cloud, "od").await;
}

/// Makes members of the groups such that they may not go.
async fn members_that_may_not_go(cloud: &Cloud) -> Refused {
    let aws = cloud.aws();
    let mut refused = Refused::new();
    let mut of_group: BTreeMap<String, Vec<Instance>> = BTreeMap::new();
    for instance in cloud.instances().await.into_values() {
        of_group.entry(instance.group().unwrap_or_default().to_owned()).or_default().push(instance);
    }
    let mut refuse = |instance: &Instance, kind| refused.insert(instance.private_dns_name.clone(), kind);
    let only = |group: &str| of_group[group].iter().find(|instance| !instance.spot).expect("it has one on demand");

    refuse(only("held"), "group_at_minimum");
    refuse(only("mixed"), "mixed_on_demand_base");

    // Those in the fuller zone may not go, and the one in the other zone would leave them two apart.
    let uneven = &of_group["uneven"];
    let peers = |one: &Instance| uneven.iter().filter(|other| other.zone == one.zone).count();
    let (fuller, other): (Vec<_>, Vec<_>) = uneven.iter().partition(|instance| peers(instance) == 2);
    for instance in &fuller {
        refuse(instance, "scale_in_protected");
    }
    for instance in &other {
        refuse(instance, "zone_rebalance");
    }
    let ids: Vec<_> = fuller.iter().map(|instance| &instance.id).collect();
    let protect = json!({"AutoScalingGroupName": "uneven", "InstanceIds": ids, "ProtectedFromScaleIn": true});
    aws.call("autoscaling", "SetInstanceProtection", protect).await;

    let guarded = only("guarded");
    refuse(guarded, "termination_protected");
    let protect = json!({"InstanceId": guarded.id, "DisableApiTermination": {"Value": true}});
    aws.call("ec2", "ModifyInstanceAttribute", protect).await;

    let standby = only("standby");
    refuse(standby, "instance_in_transition");
    let no_substitute = json!({"AutoScalingGroupName": "standby", "ScalingProcesses": ["Launch"]});
    aws.call("autoscaling", "SuspendProcesses", no_substitute).await;
    let enter = json!({
        "AutoScalingGroupName": "standby",
        "InstanceIds": [standby.id],
        "ShouldDecrementDesiredCapacity": false,
    });
    aws.call("autoscaling", "EnterStandby", enter).await;

    refuse(only("refreshed"), "group_refreshing");
    aws.call("autoscaling", "StartInstanceRefresh", json!({"AutoScalingGroupName": "refreshed"})).await;
    refused
}

/// Nodes whose machine is not theirs, is in doubt, or is none of EC2.
async fn machines_in_doubt(world: &World, cloud: &Cloud) -> Refused {
    let claimed = nodes_of(cloud, "claimed").await.pop_first().expect("the group has one member");
    let nodes = world.nodes().await;
    let its_id = nodes[&claimed].spec.as_ref().and_then(|spec| spec.provider_id.clone()).expect("it has one");
    let stranger = run_instance(cloud, "another-cluster").await;
    // Its own Node goes, and another one says that it is its machine.
    let robbed = run_instance(cloud, CLUSTER).await;
    world.node_when(&robbed.private_dns_name, "there", PATIENCE, |_| true).await;
    world.delete_node(&robbed.private_dns_name).await;

    let lone = [
        (stranger.private_dns_name.as_str(), stranger.provider_id(), "wrong_cluster"),
        ("robber", robbed.provider_id(), "identity_mismatch"),
        ("claimant", its_id, "claimed_twice"),
        ("fargate", "aws:///eu-west-1a/4d2c/fargate-10-1-0-7".to_owned(), "unsupported_provider_id"),
        ("hybrid", "eks-hybrid:///eu-west-1/test/mi-0123456789abcdef0".to_owned(), "unsupported_provider_id"),
        ("malformed", "aws:///eu-west-1a/i-0123".to_owned(), "unsupported_provider_id"),
    ];
    let mut refused = Refused::from([(claimed, "claimed_twice")]);
    for (name, provider_id, kind) in lone {
        let mut node = Machine::on_demand(name).node();
        node.spec.get_or_insert_default().provider_id = Some(provider_id);
        Api::<Node>::all(world.client()).create(&PostParams::default(), &node).await.expect("the Node is accepted");
        refused.insert(name.to_owned(), kind);
    }
    refused
}

/// An instance that no group keeps, tagged for a cluster.
pub(super) async fn run_instance(cloud: &Cloud, cluster: &str) -> Instance {
    let tag = json!({"Key": format!("kubernetes.io/cluster/{cluster}"), "Value": "owned"});
    let request = json!({
        "ImageId": cloud.aws().image().await,
        "InstanceType": "m5.large",
        "MinCount": 1,
        "MaxCount": 1,
        "SubnetId": cloud.subnets()[0],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [tag]}],
    });
    let answer = cloud.aws().call("ec2", "RunInstances", request).await;
    Instance::of(&answer["Instances"][0])
}

/// A workload on all nodes but those of spot, which are open to it afterwards.
async fn run_beside(world: &World, spot: &BTreeSet<String>, workload: &Workload) {
    for node in spot {
        world.patch_node(node, &json!({"spec": {"unschedulable": true}})).await;
    }
    world.join(&[]).await;
    world.run(std::slice::from_ref(workload)).await;
    for node in spot {
        world.patch_node(node, &json!({"spec": {"unschedulable": false}})).await;
        let open = |node: &Node| node.spec.as_ref().is_some_and(|spec| spec.taints.iter().flatten().next().is_none());
        world.node_when(node, "open to pods", PATIENCE, open).await;
    }
}

async fn install(world: &World, cloud: &Cloud, changes: Value) -> Migrator {
    let mut configuration = configuration(cloud);
    configuration["log"] = json!({"format": "json", "level": "info"});
    // What may pass by itself is waited for this long.
    configuration["settle"] = json!({"timeout": "40s"});
    for (name, value) in changes.as_object().into_iter().flatten() {
        configuration[name] = value.clone();
    }
    Migrator::install(world, configuration).await.with_environment(cloud.aws().environment(PRODUCT))
}

/// The Nodes of the members of a group.
async fn nodes_of(cloud: &Cloud, group: &str) -> BTreeSet<String> {
    let instances = cloud.instances().await.into_values();
    let members = instances.filter(|instance| instance.is_running() && instance.group() == Some(group));
    members.map(|instance| instance.private_dns_name).collect()
}

/// The refused nodes of the plan, each with the kinds of its reasons.
fn planned(migrator: &Migrator) -> BTreeMap<String, Vec<String>> {
    let plan: Value = serde_json::from_str(&migrator.plan(&["-o", "json"])).expect("it is JSON");
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    let rows = plan["nodes"].as_array().into_iter().flatten().filter(|row| row["verdict"] == "refused");
    rows.map(|row| {
        let kinds = row["reasons"].as_array().into_iter().flatten().map(|reason| text(&reason["kind"]));
        (text(&row["name"]), kinds.collect())
    })
    .collect()
}

/// Waits until a group wants no members and has none.
async fn empty(cloud: &Cloud, group: &str) {
    until("the group to be empty", PATIENCE, || async {
        let (desired, members) = cloud.aws().group(group).await;
        if desired == 0 && members.is_empty() { Ok(()) } else { Err(format!("{desired}, {members:?}")) }
    })
    .await;
}

/// Fails the test unless each member that `group` had was ended through it, and AWS was asked for no other change.
async fn assert_only_changed(cloud: &Cloud, group: &str) {
    let members = cloud.instances().await.into_values().filter(|instance| instance.group() == Some(group));
    let members: BTreeSet<_> = members.map(|instance| instance.id).collect();
    let calls = cloud.aws().calls_of(PRODUCT).await;
    let changes: Vec<&Call> = calls.iter().filter(|call| call.changes()).collect();
    let ended = |call: &&&Call| call.action == "TerminateInstanceInAutoScalingGroup";
    let ids = changes.iter().filter(ended).filter_map(|call| call.parameters["InstanceId"].as_str());
    assert_eq!(ids.map(str::to_owned).collect::<BTreeSet<_>>(), members);
    assert_eq!(changes.len(), members.len(), "{changes:?}");
}

/// Starts the service and fails the test unless it counts the refusals as they were planned, by their first reasons.
async fn assert_counted(migrator: &Migrator, address: &str, planned: &BTreeMap<String, Vec<String>>) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in planned.values().filter_map(|kinds| kinds.first()) {
        *kinds.entry(kind).or_default() += 1;
    }
    let series = |(kind, count)| format!("spot_migrator_nodes_refused{{reason=\"{kind}\"}} {count}");
    let expected: BTreeSet<String> = kinds.into_iter().map(series).collect();
    let service = migrator.run(&["--schedule", "@every 1s"]);
    until("the refusals to be counted", PATIENCE, || async {
        let metrics = metrics(address).unwrap_or_default();
        let counted = metrics.lines().filter(|line| line.starts_with("spot_migrator_nodes_refused{"));
        let counted: BTreeSet<_> = counted.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect();
        if counted == expected { Ok(()) } else { Err(format!("{counted:?} and not {expected:?}")) }
    })
    .await;
    service.terminate(PATIENCE).await.assert_code(0);
}

fn metrics(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The notes of the Events with this reason, by the node that they are about.
async fn events(world: &World, reason: &str) -> BTreeMap<String, String> {
    let events = Api::<Event>::namespaced(world.client(), "default").list(&ListParams::default()).await;
    let events =
        events.expect("events can be listed").into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    let about = |event: Event| Some((event.regarding?.name?, event.note.unwrap_or_default()));
    events.filter_map(about).collect()
}

/// The lines of the log with this message.
fn lines_about(output: &str, message: &str) -> Vec<Value> {
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == message).collect()
}

fn host(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}
