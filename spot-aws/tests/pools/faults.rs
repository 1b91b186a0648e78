//! Every fault is told with its key, its reason and its remedy.

use std::time::Duration;

use proptest::prelude::*;
use spot_aws::fleet::{Pool, Rebalance, RebalanceStrategy, UserData, VolumeKind};
use spot_core::node::{Effect, Taint};

use crate::support::{TARGET_GROUP, bottlerocket, full, nodeadm, offer, pool, texts};

type Case = (fn(&mut Pool), &'static str);

fn nodeadm_of(pool: &mut Pool) -> &mut spot_aws::fleet::Nodeadm {
    pool.user_data = nodeadm();
    let UserData::Nodeadm(nodeadm) = &mut pool.user_data else { panic!() };
    nodeadm
}

fn bottlerocket_of(pool: &mut Pool) -> &mut spot_aws::fleet::Bottlerocket {
    pool.user_data = bottlerocket();
    let UserData::Bottlerocket(bottlerocket) = &mut pool.user_data else { panic!() };
    bottlerocket
}

fn arguments(pool: &mut Pool) -> &mut Vec<String> {
    let UserData::Kubelet(kubelet) = &mut pool.user_data else { panic!() };
    &mut kubelet.arguments
}

fn label(pool: &mut Pool, key: &str, value: &str) {
    pool.labels.insert(key.to_owned(), value.to_owned());
}

fn tag(pool: &mut Pool, key: &str, value: &str) {
    pool.tags.insert(key.to_owned(), value.to_owned());
}

fn rebalance(pool: &mut Pool, strategy: RebalanceStrategy, seconds: Option<u64>) {
    pool.rebalance = Some(Rebalance { strategy, termination_delay: seconds.map(Duration::from_secs) });
}

const CASES: &[Case] = &[
    (|p| p.cluster.clear(), "cluster"),
    (|p| "a b".clone_into(&mut p.cluster), "cluster"),
    (|p| p.cluster = "x".repeat(101), "cluster"),
    (|p| p.name.clear(), "name"),
    (|p| "Spot".clone_into(&mut p.name), "name"),
    (|p| "spot-".clone_into(&mut p.name), "name"),
    (|p| p.name = "x".repeat(41), "name"),
    (|p| (p.cluster, p.name) = ("x".repeat(90), "x".repeat(40)), "name"),
    (|p| p.target_capacity = 2, "targetCapacity"),
    (|p| p.target_capacity = 10_001, "targetCapacity"),
    (|p| rebalance(p, RebalanceStrategy::Launch, Some(120)), "capacityRebalance.terminationDelay"),
    (|p| rebalance(p, RebalanceStrategy::LaunchBeforeTerminate, None), "capacityRebalance.terminationDelay"),
    (|p| rebalance(p, RebalanceStrategy::LaunchBeforeTerminate, Some(119)), "capacityRebalance.terminationDelay"),
    (|p| rebalance(p, RebalanceStrategy::LaunchBeforeTerminate, Some(7_201)), "capacityRebalance.terminationDelay"),
    (|p| p.fleet_role.clear(), "fleetRole"),
    (|p| p.subnets.clear(), "subnets"),
    (|p| "subnet".clone_into(&mut p.subnets[1]), "subnets[1]"),
    (|p| p.subnets[1] = p.subnets[0].clone(), "subnets[1]"),
    (|p| p.security_groups.clear(), "securityGroups"),
    (|p| "nodes".clone_into(&mut p.security_groups[0]), "securityGroups[0]"),
    (|p| p.security_groups = (0..17).map(|at| format!("sg-{at}")).collect(), "securityGroups"),
    (|p| p.security_groups.push("sg-0a".to_owned()), "securityGroups[1]"),
    (|p| p.instance_profile.clear(), "instanceProfile"),
    (|p| "ubuntu".clone_into(&mut p.image), "image"),
    (|p| p.ssh_key = Some(String::new()), "sshKey"),
    (|p| p.root_volume.device = Some("a\nb".to_owned()), "rootVolume.device"),
    (|p| (p.root_volume.encrypted, p.root_volume.kms_key) = (false, Some("k".to_owned())), "rootVolume.kmsKey"),
    (|p| p.user_data = UserData::Own("${NODE_TAINTS}".to_owned()), "userData.file"),
    (|p| p.user_data = UserData::Own("${NODE_LABELS} $${NODE_TAINTS}".to_owned()), "userData.file"),
    (|p| *arguments(p) = vec!["--x=".to_owned() + &"x".repeat(16_384)], "userData.kubelet"),
    (|p| *arguments(p) = texts(&["--v=2", "--node-labels=a=b"]), "userData.kubelet.arguments[1]"),
    (|p| *arguments(p) = texts(&["--register-with-taints a=b:NoSchedule"]), "userData.kubelet.arguments[0]"),
    (|p| *arguments(p) = texts(&["--register_with_taints=a=b:NoSchedule"]), "userData.kubelet.arguments[0]"),
    (|p| *arguments(p) = texts(&["--node_labels a=b"]), "userData.kubelet.arguments[0]"),
    (|p| *arguments(p) = texts(&["v=2"]), "userData.kubelet.arguments[0]"),
    (|p| *arguments(p) = texts(&["--v=2\n"]), "userData.kubelet.arguments[0]"),
    (|p| nodeadm_of(p).api_server.clear(), "userData.nodeadm.apiServer"),
    (|p| "http://api".clone_into(&mut nodeadm_of(p).api_server), "userData.nodeadm.apiServer"),
    (|p| "-----BEGIN".clone_into(&mut nodeadm_of(p).certificate_authority), "userData.nodeadm.certificateAuthority"),
    (|p| "10.100.0.0".clone_into(&mut nodeadm_of(p).service_cidr), "userData.nodeadm.serviceCidr"),
    (|p| "10.100.0.0/33".clone_into(&mut nodeadm_of(p).service_cidr), "userData.nodeadm.serviceCidr"),
    (|p| nodeadm_of(p).kubelet_arguments = texts(&["--node-labels=a=b"]), "userData.nodeadm.kubeletArguments[0]"),
    (
        |p| nodeadm_of(p).kubelet_arguments = texts(&["--node-labels_=a", "--node_labels=a=b"]),
        "userData.nodeadm.kubeletArguments[1]",
    ),
    (|p| bottlerocket_of(p).certificate_authority.clear(), "userData.bottlerocket.certificateAuthority"),
    (|p| "dns".clone_into(&mut bottlerocket_of(p).cluster_dns), "userData.bottlerocket.clusterDns"),
    (|p| p.root_volume.unit_iops = Some(0), "unitRootVolumeIops"),
    (|p| (p.root_volume.kind, p.root_volume.unit_iops) = (VolumeKind::Gp2, Some(100)), "unitRootVolumeIops"),
    (|p| p.root_volume.unit_size = 0, "unitRootVolumeSize"),
    (|p| p.offers.clear(), "launchSpecifications"),
    (|p| p.offers = (0..151).map(|at| offer(&format!("m{at}.large"), 1)).collect(), "launchSpecifications"),
    (|p| "m5".clone_into(&mut p.offers[0].instance_type), "launchSpecifications[0].instanceType"),
    (|p| "m5.Large".clone_into(&mut p.offers[0].instance_type), "launchSpecifications[0].instanceType"),
    (|p| "m5.large".clone_into(&mut p.offers[1].instance_type), "launchSpecifications[1].instanceType"),
    (|p| p.offers[1].weight = 0, "launchSpecifications[1].weightedCapacity"),
    (|p| p.offers[1].weight = 10_001, "launchSpecifications[1].weightedCapacity"),
    (|p| p.offers[0].max_price = Some("0".to_owned()), "launchSpecifications[0].maxPrice"),
    (|p| p.offers[0].max_price = Some("-1".to_owned()), "launchSpecifications[0].maxPrice"),
    (|p| p.offers[0].max_price = Some("1e-2".to_owned()), "launchSpecifications[0].maxPrice"),
    (|p| p.offers[0].root_volume.size = Some(0), "launchSpecifications[0].rootVolume.size"),
    (|p| p.offers[0].root_volume.size = Some(65_537), "launchSpecifications[0].rootVolume.size"),
    (|p| p.offers[0].root_volume.iops = Some(2_999), "launchSpecifications[0].rootVolume.iops"),
    (|p| p.offers[0].root_volume.iops = Some(10_001), "launchSpecifications[0].rootVolume.iops"),
    (
        |p| (p.root_volume.kind, p.offers[0].root_volume.iops) = (VolumeKind::Gp2, Some(100)),
        "launchSpecifications[0].rootVolume.iops",
    ),
    (
        |p| {
            p.root_volume.kind = VolumeKind::Io1;
            p.offers.truncate(1);
        },
        "launchSpecifications[0].rootVolume.iops",
    ),
    (|p| p.offers[0].root_volume.throughput = Some(751), "launchSpecifications[0].rootVolume.throughput"),
    (|p| p.offers[0].root_volume.throughput = Some(124), "launchSpecifications[0].rootVolume.throughput"),
    (
        |p| (p.root_volume.kind, p.offers[0].root_volume.throughput) = (VolumeKind::Gp2, Some(125)),
        "launchSpecifications[0].rootVolume.throughput",
    ),
    (|p| label(p, "", ""), "labels."),
    (|p| label(p, "a/b/c", ""), r#"labels["a/b/c"]"#),
    (|p| label(p, "A.com/b", ""), r#"labels["A.com/b"]"#),
    (|p| label(p, &"x".repeat(64), ""), "labels.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    (|p| label(p, "team", "a b"), "labels.team"),
    (|p| label(p, "team", "-a"), "labels.team"),
    (|p| label(p, "team", &"x".repeat(64)), "labels.team"),
    (|p| label(p, "kubernetes.io/role", "spot"), r#"labels["kubernetes.io/role"]"#),
    (|p| label(p, "node-role.kubernetes.io/spot", ""), r#"labels["node-role.kubernetes.io/spot"]"#),
    (|p| label(p, "topology.k8s.io/x", ""), r#"labels["topology.k8s.io/x"]"#),
    (|p| label(p, "node-restriction.kubernetes.io/a", ""), r#"labels["node-restriction.kubernetes.io/a"]"#),
    (|p| label(p, "x.node-restriction.kubernetes.io/a", ""), r#"labels["x.node-restriction.kubernetes.io/a"]"#),
    (|p| label(p, "node.kubernetes.io/instance-type", "m5.large"), r#"labels["node.kubernetes.io/instance-type"]"#),
    (|p| label(p, "topology.kubernetes.io/zone", "a"), r#"labels["topology.kubernetes.io/zone"]"#),
    (|p| label(p, "node.kubernetes.io/lifecycle", "normal"), r#"labels["node.kubernetes.io/lifecycle"]"#),
    (|p| label(p, "eks.amazonaws.com/capacityType", "ON_DEMAND"), r#"labels["eks.amazonaws.com/capacityType"]"#),
    (|p| label(p, "eks.amazonaws.com/capacityType", "CAPACITY_BLOCK"), r#"labels["eks.amazonaws.com/capacityType"]"#),
    (|p| label(p, "node-lifecycle", "on-demand"), "labels.node-lifecycle"),
    (|p| label(p, "spotinst.io/node-lifecycle", "od"), r#"labels["spotinst.io/node-lifecycle"]"#),
    (|p| label(p, "spot-migrator.io/pool", "other"), r#"labels["spot-migrator.io/pool"]"#),
    (|p| label(p, "karpenter.sh/nodepool", "a"), r#"labels["karpenter.sh/nodepool"]"#),
    (|p| p.taints.push(Taint::new("", "", Effect::NoSchedule)), "taints[1].key"),
    (|p| p.taints.push(Taint::new("a", "b:c", Effect::NoSchedule)), "taints[1].value"),
    (|p| p.taints.push(Taint::new("example.com/spot", "", Effect::NoSchedule)), "taints[1]"),
    (|p| p.taints.push(Taint::new("ToBeDeletedByClusterAutoscaler", "", Effect::NoSchedule)), "taints[1].key"),
    (|p| p.taints.push(Taint::new("spot-migrator.io/leaving", "", Effect::NoSchedule)), "taints[1].key"),
    (|p| p.taints.push(Taint::new("node.kubernetes.io/not-ready", "", Effect::NoSchedule)), "taints[1].key"),
    (|p| p.taints.push(Taint::new("node-role.kubernetes.io/control-plane", "", Effect::NoSchedule)), "taints[1].key"),
    (|p| p.taints.push(Taint::new("node-role.kubernetes.io/master", "x", Effect::NoExecute)), "taints[1].key"),
    (|p| p.taints.push(Taint::new("karpenter.sh/unregistered", "", Effect::NoExecute)), "taints[1].key"),
    (|p| tag(p, "", ""), "tags."),
    (
        |p| tag(p, &"x".repeat(129), ""),
        "tags.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ),
    (|p| tag(p, "team", &"x".repeat(257)), "tags.team"),
    (|p| tag(p, "aws:team", ""), r#"tags["aws:team"]"#),
    (|p| tag(p, "Name", "mine"), "tags.Name"),
    (|p| tag(p, "kubernetes.io/cluster/prod", "shared"), r#"tags["kubernetes.io/cluster/prod"]"#),
    (|p| tag(p, "kubernetes.io/cluster/test", "owned"), r#"tags["kubernetes.io/cluster/test"]"#),
    (|p| tag(p, "spot-migrator.io/other", ""), r#"tags["spot-migrator.io/other"]"#),
    (|p| tag(p, "team", "a\nb"), "tags.team"),
    (|p| p.load_balancers = texts(&["a", "b", "c", "d", "e", "f"]), "loadBalancers"),
    (|p| p.load_balancers = texts(&["a", "a"]), "loadBalancers[1]"),
    (|p| p.load_balancers = texts(&["a b"]), "loadBalancers[0]"),
    (|p| p.target_groups = texts(&["web"]), "targetGroups[0]"),
    (
        |p| p.target_groups = texts(&["arn:aws:elasticloadbalancing:eu-west-1:1:loadbalancer/app/a/b"]),
        "targetGroups[0]",
    ),
    (|p| p.target_groups = (0..6).map(|at| format!("{TARGET_GROUP}{at}")).collect(), "targetGroups"),
];

#[test]
fn each_fault_is_told_with_its_key_its_reason_and_its_remedy() {
    let told = CASES.iter().map(|(change, key)| {
        let mut pool = pool();
        change(&mut pool);
        let faults = pool.faults();
        let [fault] = &faults[..] else { panic!("{key}: {faults:?}") };
        assert_eq!(fault.key, *key, "{fault}");
        assert!(fault.message.contains(": "), "neither reason nor remedy: {fault}");
        fault.to_string()
    });
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_sound_pool_has_none() {
    assert_eq!(pool().faults(), []);
    assert_eq!(full().faults(), []);
    assert_eq!(Pool { user_data: nodeadm(), ..pool() }.faults(), []);
    assert_eq!(Pool { user_data: bottlerocket(), ..pool() }.faults(), []);
    let mut labelled = pool();
    for key in
        ["node.kubernetes.io/team", "x.node.kubernetes.io/team", "kubelet.kubernetes.io/team", "team", "kubernetes"]
    {
        label(&mut labelled, key, "a");
    }
    label(&mut labelled, "eks.amazonaws.com/capacityType", "SPOT");
    label(&mut labelled, "node-lifecycle", "spot");
    assert_eq!(labelled.faults(), []);
    assert_eq!(Pool { target_capacity: 0, min_capacity: 0, ..full() }.faults(), []);
}

#[test]
fn several_are_told_at_once_in_the_order_of_the_file() {
    let mut pool = pool();
    pool.name.clear();
    pool.subnets.clear();
    pool.offers[1].weight = 0;
    pool.taints[0].key.clear();
    let faults = pool.faults();
    let keys: Vec<_> = faults.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(keys, ["name", "subnets", "launchSpecifications[1].weightedCapacity", "taints[0].key"]);
}

#[test]
fn user_data_may_have_as_many_bytes_as_ec2_takes() {
    let head = "${NODE_LABELS}${NODE_TAINTS}";
    let mut pool = Pool { user_data: UserData::Own(head.to_owned()), ..pool() };
    let with = |pool: &Pool| {
        let launch = spot_aws::fleet::Launch::of(pool, "/dev/xvda");
        launch.template.versions[0].machine.user_data.len()
    };
    let room = 16_384 - with(&pool);
    pool.user_data = UserData::Own(head.to_owned() + &"x".repeat(room));
    assert_eq!((with(&pool), pool.faults()), (16_384, vec![]));
    pool.user_data = UserData::Own(head.to_owned() + &"x".repeat(room + 1));
    let [fault] = &pool.faults()[..] else { panic!() };
    assert!(
        fault.to_string().starts_with("userData.file: 16385 bytes with labels and taints, over the 16384"),
        "{fault}"
    );
}

proptest! {
    /// The same as an offer's own value and as unit times weight.
    #[test]
    fn what_an_offer_asks_for_itself_is_refused_where_a_unit_would_be_cut(
        kind in crate::support::kinds(),
        size in prop_oneof![0..10_u32, 16_000..17_000_u32, 65_000..66_000_u32],
        iops in prop::option::of(prop_oneof![0..200_u32, 2_000..90_000_u32, 250_000..260_000_u32]),
    ) {
        let mut own = Pool { offers: vec![offer("m5.large", 1)], ..pool() };
        own.root_volume.kind = kind;
        let mut unit = own.clone();
        (own.offers[0].root_volume.size, own.offers[0].root_volume.iops) = (Some(size), iops);
        (unit.root_volume.unit_size, unit.root_volume.unit_iops) = (size, iops);
        let needs = matches!(kind, VolumeKind::Io1 | VolumeKind::Io2) && iops.is_none();
        let has_none = kind == VolumeKind::Gp2 && iops.is_some();
        let cut = !spot_aws::fleet::Launch::of(&unit, "/dev/xvda").notes.is_empty();
        prop_assert_eq!(!own.faults().is_empty(), cut || needs || has_none, "{:?}", own.faults());
    }
}
