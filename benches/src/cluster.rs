//! Clusters of any size, with nodes like those that a cloud's kubelets register.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, ToSpan};
use spot_core::capacity::Class;
use spot_core::claim::{BackOff, Machine};
use spot_core::cloud::{CloudFact, CloudFacts};
use spot_core::judge::{Facts, Policy, RunFacts};
use spot_core::memory::Memory;
use spot_core::node::{ClaimAnnotation, Effect, Node, NodeSnapshot, Readiness, Taint, Uid, key};
use spot_core::pod::{Controller, PodPhase, PodSnapshot};
use spot_core::view::{Change, View};

/// A moment; nodes were created before it.
pub const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// What every second node has: on-demand and spot take turns.
const CLASSES: [(Class, &str); 2] = [(Class::OnDemand, "ON_DEMAND"), (Class::Spot, "SPOT")];

/// Whether nodes may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Every on-demand node may go: a judgement ends with the first.
    Eligible,
    /// Every on-demand node backs off after a failure: a judgement has to look at all of them.
    BackingOff,
}

/// A cluster as a run sees it: half of the nodes are on-demand, half are spot, and each runs a pod.
#[derive(Debug)]
pub struct Cluster {
    view: View,
    cloud: CloudFacts,
    memory: Memory,
    run: RunFacts,
    policy: Policy,
}

impl Cluster {
    /// A cluster of so many nodes.
    #[must_use]
    pub fn new(size: u32, nodes: Nodes) -> Self {
        // Objects are made in the order of their numbers and kept in that of their UIDs, so that, as in a process that
        // watches a cluster, neighbours are not neighbours in memory.
        let mut snapshots: Vec<_> = (0..size).map(|number| Arc::new(node(number, nodes))).collect();
        let cloud = (0..).zip(&snapshots).map(|(number, node)| (node.uid.clone(), fact(number))).collect();
        snapshots.sort_by(|a, b| a.uid.cmp(&b.uid));
        let mut view = View::default();
        for node in snapshots {
            view.apply(Change::Node(node));
        }
        for number in 0..size {
            view.apply(Change::Pod(Arc::new(pod(number))));
        }
        let policy = Policy { own_node: Some(name(0)), ..Policy::default() };
        Self { view, cloud, memory: Memory::default(), run: RunFacts::default(), policy }
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Arc<NodeSnapshot>] {
        self.view.nodes()
    }

    /// All nodes in one piece of memory, in the same order.
    #[must_use]
    pub fn plain(&self) -> Vec<NodeSnapshot> {
        self.nodes().iter().map(|node| NodeSnapshot::clone(node)).collect()
    }

    /// What a judgement is made of.
    #[must_use]
    pub fn facts(&self) -> Facts<'_> {
        Facts { view: &self.view, cloud: &self.cloud, memory: &self.memory, run: &self.run }
    }

    /// The rules of a judgement: the defaults.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The class of a node.
    #[must_use]
    pub fn class(&self, node: &impl Node) -> Class {
        self.cloud.class(node.uid())
    }
}

fn node(number: u32, nodes: Nodes) -> NodeSnapshot {
    let zone = ["eu-west-1a", "eu-west-1b", "eu-west-1c"][number as usize % 3];
    let instance = format!("i-{:017x}", u128::from(scatter(number)));
    let (_, capacity) = CLASSES[number as usize % 2];
    let backs_off = nodes == Nodes::BackingOff;
    NodeSnapshot {
        name: name(number).into(),
        uid: uid(number, 0x4000),
        resource_version: (1_000_000 + number).to_string(),
        // A group of nodes is created within the same second, as by an autoscaler.
        created_at: NOW - (3600 + i64::from(number / 10)).seconds(),
        provider_id: format!("aws:///{zone}/{instance}"),
        labels: labels(number, zone, capacity),
        annotations: annotations(&instance),
        taints: taints(number),
        unschedulable: false,
        readiness: Readiness::Ready,
        ready_since: None,
        boot_id: uid(number, 0x5000).to_string(),
        internal_addresses: vec![address(number)],
        deleting_since: None,
        finalizers: Vec::new(),
        claim: ClaimAnnotation::Absent,
        back_off: backs_off.then(|| BackOff { until: NOW + 1.hour(), count: 1 }),
    }
}

/// Those of an EKS managed node group, and some of a team's own.
fn labels(number: u32, zone: &str, capacity: &str) -> spot_core::labels::Labels {
    let name = name(number);
    [
        ("alpha.eksctl.io/cluster-name", "production"),
        ("alpha.eksctl.io/nodegroup-name", "general-purpose"),
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/instance-type", "m6i.2xlarge"),
        ("beta.kubernetes.io/os", "linux"),
        ("eks.amazonaws.com/capacityType", capacity),
        ("eks.amazonaws.com/nodegroup", "general-purpose"),
        ("eks.amazonaws.com/nodegroup-image", "ami-0123456789abcdef0"),
        ("eks.amazonaws.com/sourceLaunchTemplateId", "lt-0123456789abcdef0"),
        ("eks.amazonaws.com/sourceLaunchTemplateVersion", "3"),
        ("failure-domain.beta.kubernetes.io/region", "eu-west-1"),
        ("failure-domain.beta.kubernetes.io/zone", zone),
        ("k8s.io/cloud-provider-aws", "0123456789abcdef0123456789abcdef"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", &name),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", "m6i.2xlarge"),
        ("team.example.com/cost-centre", "platform"),
        ("topology.ebs.csi.aws.com/zone", zone),
        ("topology.k8s.aws/zone-id", "euw1-az1"),
        ("topology.kubernetes.io/region", "eu-west-1"),
        ("topology.kubernetes.io/zone", zone),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

fn address(number: u32) -> String {
    format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255)
}

fn annotations(instance: &str) -> spot_core::labels::Labels {
    let driver = format!(r#"{{"ebs.csi.aws.com":"{instance}"}}"#);
    [
        ("csi.volume.kubernetes.io/nodeid", driver.as_str()),
        ("node.alpha.kubernetes.io/ttl", "300"),
        ("volumes.kubernetes.io/controller-managed-attach-detach", "true"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// Most nodes have none; a tenth is kept for a team, and a hundredth is about to be scaled down.
fn taints(number: u32) -> Vec<Taint> {
    let mut taints = Vec::new();
    if number % 10 == 3 {
        taints.push(Taint::new("team.example.com/dedicated", "batch", Effect::NoSchedule));
    }
    if number % 100 == 7 {
        taints.push(Taint::new(key::DELETION_CANDIDATE, "1799990000", Effect::PreferNoSchedule));
    }
    taints
}

fn fact(number: u32) -> CloudFact {
    let (class, _) = CLASSES[number as usize % 2];
    CloudFact { class, machine: Some(Machine::WithNode), group: None, refusals: Vec::new() }
}

fn pod(number: u32) -> PodSnapshot {
    let replica_set = Controller { group: "apps".into(), kind: "ReplicaSet".into(), uid: uid(number / 20, 0x6000) };
    PodSnapshot {
        namespace: "shop".into(),
        name: format!("web-{number}").into(),
        uid: uid(number, 0x7000),
        node: Some(name(number).into()),
        created_at: NOW - 30.minutes(),
        controller: Some(replica_set),
        labels: Arc::new(BTreeMap::from([("app".to_owned(), "web".to_owned())])),
        phase: PodPhase::Running,
        ready: true,
        deletion: None,
        mirror: false,
        opted_out: None,
        empty_dir: false,
        grace: Duration::from_secs(30),
        needs: None,
        claims: None,
    }
}

fn name(number: u32) -> String {
    format!("ip-10-{}-{}-{}.eu-west-1.compute.internal", number >> 16 & 255, number >> 8 & 255, number & 255)
}

/// A UUID that tells nothing of the number: `kind` keeps those of different objects apart.
fn uid(number: u32, kind: u16) -> Uid {
    let (high, low) = (scatter(number), scatter(!number));
    Uid::new(format!(
        "{:08x}-{:04x}-{kind:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 16
    ))
}

/// Spreads neighbours over all numbers, always in the same way: the finalizer of splitmix64, which is a bijection.
fn scatter(number: u32) -> u64 {
    let mut mixed = u64::from(number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
