//! The class of a node, told from its labels.

use proptest::prelude::*;
use proptest::sample::subsequence;
use spot_core::NodeSnapshot;
use spot_core::capacity::{CapacityLabels, Class, Said};

use crate::support::build::{labelled, node};
use crate::support::config;

/// What each label says, written down a second time.
const TABLE: [(&str, &str, Class); 20] = [
    ("eks.amazonaws.com/capacityType", "SPOT", Class::Spot),
    ("eks.amazonaws.com/capacityType", "ON_DEMAND", Class::OnDemand),
    ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK", Class::Reserved),
    ("karpenter.sh/capacity-type", "spot", Class::Spot),
    ("karpenter.sh/capacity-type", "on-demand", Class::OnDemand),
    ("karpenter.sh/capacity-type", "reserved", Class::Reserved),
    ("node.kubernetes.io/lifecycle", "spot", Class::Spot),
    ("node.kubernetes.io/lifecycle", "on-demand", Class::OnDemand),
    ("node.kubernetes.io/lifecycle", "normal", Class::OnDemand),
    ("node-lifecycle", "spot", Class::Spot),
    ("node-lifecycle", "on-demand", Class::OnDemand),
    ("node-role.kubernetes.io/spot-worker", "", Class::Spot),
    ("node-role.kubernetes.io/spot-worker", "true", Class::Spot),
    ("cloud.google.com/gke-spot", "true", Class::Spot),
    ("cloud.google.com/gke-preemptible", "true", Class::Spot),
    ("kubernetes.azure.com/scalesetpriority", "spot", Class::Spot),
    ("kubernetes.azure.com/scalesetpriority", "regular", Class::OnDemand),
    ("spotinst.io/node-lifecycle", "spot", Class::Spot),
    ("spotinst.io/node-lifecycle", "od", Class::OnDemand),
    ("scheduling.cast.ai/spot", "true", Class::Spot),
];

fn with(labels: &[(&str, &str)]) -> NodeSnapshot {
    labels.iter().fold(node("od-1"), |node, (key, value)| labelled(node, key, value))
}

#[test]
fn each_well_known_label_tells_its_class() {
    let labels = CapacityLabels::default();
    for (key, value, class) in TABLE {
        let node = with(&[(key, value), ("kubernetes.io/os", "linux")]);
        assert_eq!(labels.said(&node), Said::Class(class), "{key}={value}");
        assert_eq!(labels.classify(&node), class, "{key}={value}");
    }
}

#[test]
fn labels_of_other_values_or_keys_say_nothing() {
    let labels = CapacityLabels::default();
    for (key, value) in [
        ("eks.amazonaws.com/capacityType", "spot"),
        ("eks.amazonaws.com/capacityType", ""),
        ("karpenter.sh/capacity-type", "SPOT"),
        ("karpenter.sh/capacity-type", "OnDemand"),
        ("node.kubernetes.io/lifecycle", "true"),
        ("cloud.google.com/gke-spot", "false"),
        ("cloud.google.com/gke-preemptible", "false"),
        ("scheduling.cast.ai/spot", ""),
        ("spot", "true"),
    ] {
        assert_eq!(labels.said(&with(&[(key, value)])), Said::Nothing, "{key}={value}");
        assert_eq!(labels.classify(&with(&[(key, value)])), Class::Unknown, "{key}={value}");
    }
}

#[test]
fn rb_07_labels_that_contradict_each_other_give_an_unknown_class() {
    let spot_and_on_demand =
        with(&[("eks.amazonaws.com/capacityType", "ON_DEMAND"), ("karpenter.sh/capacity-type", "spot")]);
    let reserved_and_on_demand =
        with(&[("karpenter.sh/capacity-type", "reserved"), ("node.kubernetes.io/lifecycle", "normal")]);
    let kops = with(&[("node-role.kubernetes.io/spot-worker", ""), ("node-lifecycle", "on-demand")]);
    let told_on_demand = CapacityLabels::new([], Class::OnDemand);
    for node in [spot_and_on_demand, reserved_and_on_demand, kops] {
        for labels in [&CapacityLabels::default(), &told_on_demand] {
            assert_eq!(labels.said(&node), Said::Contradiction, "{:?}", node.labels);
            assert_eq!(labels.classify(&node), Class::Unknown, "{:?}", node.labels);
        }
    }
}

#[test]
fn the_class_of_an_unlabelled_node_is_the_configured_one() {
    for class in [Class::Unknown, Class::OnDemand] {
        let labels = CapacityLabels::new([], class);
        assert_eq!(labels.classify(&node("od-1")), class);
        assert_eq!(labels.classify(&with(&[("node-lifecycle", "spot")])), Class::Spot, "a label counts all the same");
    }
}

#[test]
fn labels_of_the_users_own_are_added_to_the_known_ones_and_win_over_them() {
    let own = |key: &str, value: &str, class| ((key.to_owned(), value.to_owned()), class);
    let additions = [
        own("pool", "cheap", Class::Spot),
        own("pool", "paid", Class::Reserved),
        own("node-lifecycle", "steady", Class::OnDemand),
        own("node.kubernetes.io/lifecycle", "normal", Class::Reserved),
    ];
    let labels = CapacityLabels::new(additions, Class::Unknown);
    for (key, value, class) in [
        ("pool", "cheap", Class::Spot),
        ("pool", "paid", Class::Reserved),
        ("pool", "other", Class::Unknown),
        ("node-lifecycle", "steady", Class::OnDemand),
        ("node-lifecycle", "spot", Class::Spot),
        ("node.kubernetes.io/lifecycle", "normal", Class::Reserved),
    ] {
        assert_eq!(labels.classify(&with(&[(key, value)])), class, "{key}={value}");
    }
    assert_eq!(labels.said(&with(&[("pool", "cheap"), ("node-lifecycle", "on-demand")])), Said::Contradiction);
}

#[test]
fn classes_are_read_back_as_they_are_written() {
    assert_eq!(Class::ALL.map(Class::as_str), ["on-demand", "spot", "reserved", "unknown"]);
    for class in Class::ALL {
        assert_eq!(Class::parse(&class.to_string()), Some(class));
    }
    assert_eq!(Class::parse("Spot"), None);
    assert_eq!(Class::parse(""), None);
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn a_node_has_the_class_on_which_all_of_its_labels_agree(rows in subsequence(TABLE.to_vec(), 0..4)) {
        let node = with(&rows.iter().map(|(key, value, _)| (*key, *value)).collect::<Vec<_>>());
        // The last of two values of one key is the node's.
        let told: Vec<Class> = TABLE
            .into_iter()
            .filter(|(key, value, _)| node.labels.get(*key).is_some_and(|label| label == value))
            .map(|(_, _, class)| class)
            .collect();
        let expected = match told.as_slice() {
            [first, rest @ ..] if rest.iter().all(|class| class == first) => *first,
            _ => Class::Unknown,
        };
        prop_assert_eq!(CapacityLabels::default().classify(&node), expected);
    }
}
