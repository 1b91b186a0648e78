//! Pools in few words, and any pool at all.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spot_aws::fleet::{
    Allocation, Bottlerocket, Kubelet, Nodeadm, Offer, Pool, Rebalance, RebalanceStrategy, RootVolume, UserData,
    VolumeKind, VolumeSize,
};
use spot_core::node::{Effect, Taint};

/// Of weights 1, 2 and 3, over two subnets.
pub(crate) fn pool() -> Pool {
    Pool {
        cluster: "prod".to_owned(),
        name: "spot".to_owned(),
        target_capacity: 6,
        min_capacity: 3,
        allocation: Allocation::default(),
        rebalance: None,
        fleet_role: "aws-ec2-spot-fleet-tagging-role".to_owned(),
        subnets: texts(&["subnet-0a", "subnet-0b"]),
        security_groups: texts(&["sg-0a"]),
        instance_profile: "nodes".to_owned(),
        image: "ami-0123456789abcdef0".to_owned(),
        ssh_key: None,
        user_data: UserData::Kubelet(Kubelet::default()),
        offers: vec![offer("m5.large", 1), offer("m5.xlarge", 2), offer("r5.2xlarge", 3)],
        root_volume: RootVolume {
            kind: VolumeKind::Gp3,
            unit_size: 20,
            unit_iops: None,
            device: None,
            encrypted: true,
            kms_key: None,
        },
        labels: map(&[("example.com/team", "a")]),
        taints: vec![Taint::new("example.com/spot", "true", Effect::NoSchedule)],
        tags: map(&[("team", "a")]),
        load_balancers: Vec::new(),
        target_groups: Vec::new(),
    }
}

/// With everything that a pool can have.
pub(crate) fn full() -> Pool {
    let mut pool = pool();
    pool.rebalance = Some(Rebalance {
        strategy: RebalanceStrategy::LaunchBeforeTerminate,
        termination_delay: Some(std::time::Duration::from_mins(5)),
    });
    pool.ssh_key = Some("admin".to_owned());
    pool.offers[0].max_price = Some("0.05".to_owned());
    pool.offers[1].root_volume = VolumeSize { size: Some(40), iops: Some(4_000), throughput: Some(250) };
    pool.root_volume.unit_iops = Some(1_000);
    pool.root_volume.device = Some("/dev/sda1".to_owned());
    pool.root_volume.kms_key = Some("alias/nodes".to_owned());
    pool.load_balancers = texts(&["classic"]);
    pool.target_groups = texts(&[TARGET_GROUP]);
    pool
}

pub(crate) const TARGET_GROUP: &str =
    "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/web/0123456789abcdef";

pub(crate) fn nodeadm() -> UserData {
    UserData::Nodeadm(Nodeadm {
        api_server: "https://api.example.com".to_owned(),
        certificate_authority: "Y2VydGlmaWNhdGU=".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        kubelet_arguments: texts(&["--max-pods=58"]),
    })
}

pub(crate) fn bottlerocket() -> UserData {
    UserData::Bottlerocket(Bottlerocket {
        api_server: "https://api.example.com".to_owned(),
        certificate_authority: "Y2VydGlmaWNhdGU=".to_owned(),
        cluster_dns: "10.100.0.10".to_owned(),
    })
}

pub(crate) fn offer(instance_type: &str, weight: u32) -> Offer {
    let instance_type = instance_type.to_owned();
    Offer { instance_type, weight, max_price: None, root_volume: VolumeSize::default() }
}

pub(crate) fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

pub(crate) fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

pub(crate) fn kinds() -> impl Strategy<Value = VolumeKind> {
    prop::sample::select(VolumeKind::ALL.to_vec())
}

/// Labels that a kubelet may register with.
pub(crate) fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = "([a-z]{1,8}\\.example\\.com/)?[a-z]([a-z_.-]{0,8}[a-z0-9])?";
    prop::collection::btree_map(key, value(), 0..5)
}

/// Taints that a kubelet may register with, none of them twice.
pub(crate) fn taints() -> impl Strategy<Value = Vec<Taint>> {
    let key = "(example\\.com/)?[a-c]";
    let keys = (key, prop::sample::select(Effect::ALL.to_vec()));
    prop::collection::btree_map(keys, value(), 0..5)
        .prop_map(|taints| taints.into_iter().map(|((key, effect), value)| Taint::new(key, value, effect)).collect())
}

fn value() -> impl Strategy<Value = String> {
    "([A-Za-z0-9]([A-Za-z0-9_.-]{0,8}[A-Za-z0-9])?)?"
}
