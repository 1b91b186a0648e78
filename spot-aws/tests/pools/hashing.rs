//! The hash of a pool, and the tokens of its requests.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use spot_aws::fleet::{
    Allocation, Kubelet, Launch, Pool, Rebalance, RebalanceStrategy, UserData, VolumeKind, VolumeSize,
};
use spot_core::node::{Effect, Taint};

use crate::support::{TARGET_GROUP, bottlerocket, full, nodeadm, offer, pool};

type Change = (&'static str, fn(&mut Pool));

/// Each changes one thing that shapes a machine or the fleet.
const CHANGES: [Change; 46] = [
    ("cluster", |pool| pool.cluster.push('x')),
    ("name", |pool| pool.name.push('x')),
    ("allocation", |pool| pool.allocation = Allocation::CapacityOptimized),
    ("allocation, diversified", |pool| pool.allocation = Allocation::Diversified),
    ("allocation, cheapest", |pool| pool.allocation = Allocation::LowestPrice),
    ("no rebalance", |pool| pool.rebalance = None),
    ("rebalance strategy", |pool| {
        pool.rebalance = Some(Rebalance { strategy: RebalanceStrategy::Launch, termination_delay: None });
    }),
    ("rebalance delay", |pool| pool.rebalance.as_mut().unwrap().termination_delay = Some(Duration::from_mins(6))),
    ("role", |pool| pool.fleet_role.push('x')),
    ("a subnet more", |pool| pool.subnets.push("subnet-0c".to_owned())),
    ("a subnet less", |pool| drop(pool.subnets.pop())),
    ("a group more", |pool| pool.security_groups.push("sg-0b".to_owned())),
    ("another group", |pool| pool.security_groups[0].push('x')),
    ("profile", |pool| pool.instance_profile.push('x')),
    ("image", |pool| pool.image.push('1')),
    ("no key", |pool| pool.ssh_key = None),
    ("key", |pool| pool.ssh_key.as_mut().unwrap().push('x')),
    ("own user data", |pool| pool.user_data = UserData::Own("${NODE_LABELS}${NODE_TAINTS}".to_owned())),
    ("nodeadm", |pool| pool.user_data = nodeadm()),
    ("bottlerocket", |pool| pool.user_data = bottlerocket()),
    ("argument", |pool| kubelet(pool).arguments.push("--v=2".to_owned())),
    ("before", |pool| kubelet(pool).before.push('x')),
    ("an offer more", |pool| pool.offers.push(offer("c5.large", 1))),
    ("an offer less", |pool| drop(pool.offers.pop())),
    ("type", |pool| pool.offers[0].instance_type.push('x')),
    ("weight", |pool| pool.offers[0].weight += 1),
    ("no price", |pool| pool.offers[0].max_price = None),
    ("price", |pool| pool.offers[0].max_price.as_mut().unwrap().push('1')),
    ("size of an offer", |pool| pool.offers[1].root_volume.size = Some(41)),
    ("iops of an offer", |pool| pool.offers[1].root_volume.iops = Some(4_001)),
    ("throughput of an offer", |pool| pool.offers[1].root_volume.throughput = Some(251)),
    ("volume of an offer", |pool| pool.offers[1].root_volume = VolumeSize::default()),
    ("kind", |pool| pool.root_volume.kind = VolumeKind::Io2),
    ("unit size", |pool| pool.root_volume.unit_size += 1),
    ("unit iops", |pool| pool.root_volume.unit_iops = Some(1_100)),
    ("no unit iops", |pool| pool.root_volume.unit_iops = None),
    ("device", |pool| pool.root_volume.device.as_mut().unwrap().push('x')),
    ("no encryption", |pool| pool.root_volume.encrypted = false),
    ("KMS key", |pool| pool.root_volume.kms_key.as_mut().unwrap().push('x')),
    ("a label more", |pool| drop(pool.labels.insert("x".to_owned(), String::new()))),
    ("label", |pool| pool.labels.get_mut("example.com/team").unwrap().push('x')),
    ("a taint less", |pool| pool.taints.clear()),
    ("effect", |pool| pool.taints[0].effect = Effect::NoExecute),
    ("tag", |pool| pool.tags.get_mut("team").unwrap().push('x')),
    ("balancer", |pool| pool.load_balancers[0].push('x')),
    ("target group", |pool| pool.target_groups[0].push('1')),
];

fn kubelet(pool: &mut Pool) -> &mut Kubelet {
    let UserData::Kubelet(kubelet) = &mut pool.user_data else { panic!() };
    kubelet
}

fn token(pool: &Pool, ended: Option<&str>) -> String {
    Launch::of(pool, "/dev/xvda").token(ended)
}

#[test]
fn whatever_shapes_a_machine_or_the_fleet_changes_the_hash_and_the_token() {
    let mut hashes = BTreeSet::from([full().hash()]);
    let mut tokens = BTreeSet::from([token(&full(), None)]);
    for (what, change) in CHANGES {
        let mut pool = full();
        change(&mut pool);
        assert!(hashes.insert(pool.hash()), "the hash does not change with: {what}");
        assert!(tokens.insert(token(&pool, None)), "the token does not change with: {what}");
    }
}

#[test]
fn capacities_and_the_order_of_lists_do_not_change_it() {
    let mut same = full();
    (same.target_capacity, same.min_capacity) = (9, 0);
    same.subnets.reverse();
    same.offers.reverse();
    same.taints.push(Taint::new("a", "b", Effect::NoSchedule));
    same.target_groups.push(format!("{TARGET_GROUP}0"));
    let mut other = same.clone();
    assert_ne!(same.hash(), full().hash(), "for the taint and the target group");
    other.taints.reverse();
    other.target_groups.reverse();
    other.offers.reverse();
    assert_eq!(same.hash(), other.hash());
    same.taints.pop();
    same.target_groups.pop();
    assert_eq!(same.hash(), full().hash());
}

#[test]
fn the_images_own_name_of_its_root_device_does_not_change_it() {
    assert_eq!(Launch::of(&pool(), "/dev/xvda").hash, Launch::of(&pool(), "/dev/sda1").hash);
    assert_eq!(Launch::of(&pool(), "/dev/xvda").hash, pool().hash());
}

#[test]
fn what_means_the_same_in_other_words_does_not_change_it() {
    let with = |role: &str, price: &str| {
        let mut pool = full();
        pool.fleet_role = role.to_owned();
        pool.offers[0].max_price = Some(price.to_owned());
        pool.hash()
    };
    let name = full().fleet_role;
    let arn = format!("arn:aws:iam::123456789012:role/fleets/{name}");
    assert_eq!(with(&arn, "0.05"), full().hash(), "a role by its ARN");
    let mut profile = full();
    profile.instance_profile = format!("arn:aws:iam::123456789012:instance-profile/{}", profile.instance_profile);
    assert_eq!(profile.hash(), full().hash(), "a profile by its ARN");
    for price in ["0.050", "00.05", "0.0500"] {
        assert_eq!(with(&name, price), full().hash(), "{price}");
    }
    for (one, other) in [("1", "1.0"), ("1.", "1"), ("10", "10.00"), (".5", "0.5")] {
        assert_eq!(with(&name, one), with(&name, other), "{one} {other}");
    }
    for (one, other) in [("1", "10"), ("0.5", "5"), ("0.05", "0.5"), ("1.05", "10.5")] {
        assert_ne!(with(&name, one), with(&name, other), "{one} {other}");
    }
}

/// Another program, or another version of this one, has to come to the same: else every pool would be rolled.
#[test]
fn the_hash_is_what_it_was() {
    assert_eq!(full().hash(), "790198e32da70c4b");
}

#[test]
fn a_token_is_of_its_request_alone() {
    let launch = Launch::of(&full(), "/dev/sda1");
    let version = &launch.template.versions;
    let tokens = [
        launch.token(None),
        launch.token(Some("sfr-1")),
        launch.token(Some("sfr-2")),
        launch.version_token(&version[0], None),
        launch.version_token(&version[1], None),
        launch.version_token(&version[1], Some("sfr-1")),
    ];
    assert!(tokens.iter().all(|token| token.len() == 64), "as many characters as EC2 takes");
    assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), tokens.len(), "{tokens:?}");
    assert_eq!(launch.token(Some("sfr-1")), Launch::of(&full(), "/dev/sda1").token(Some("sfr-1")));
}

proptest! {
    #[test]
    fn what_one_name_ends_with_is_not_what_the_next_begins_with(text in "[a-z]{2,10}", one in 0..10_usize, other in 0..10_usize) {
        let split = |at: usize| {
            let (cluster, name) = text.split_at(at % text.len());
            Pool { cluster: cluster.to_owned(), name: name.to_owned(), ..pool() }
        };
        let is_same = one % text.len() == other % text.len();
        prop_assert_eq!(token(&split(one), None) == token(&split(other), None), is_same);
    }

    #[test]
    fn only_what_is_other_changes_the_hash(target in any::<u32>(), min in any::<u32>(), changes in prop::collection::btree_set(0..CHANGES.len(), 0..4)) {
        let mut pool = full();
        for at in &changes {
            // What needs a thing that another change took away stays as it is.
            if matches!(CHANGES[*at].0, "no rebalance" | "rebalance delay" | "key" | "price" | "argument" | "before" | "effect") {
                continue;
            }
            CHANGES[*at].1(&mut pool);
        }
        let same = Pool { target_capacity: target, min_capacity: min, ..pool.clone() };
        prop_assert_eq!(same.hash(), pool.hash());
        prop_assert_eq!(pool.hash() == full().hash(), pool == full());
    }
}
