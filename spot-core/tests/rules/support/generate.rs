//! Strategies for nodes. Few names, times and values, so that they often meet.

use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use spot_core::NodeSnapshot;
use spot_core::node::{Effect, Taint, Uid, key};

use super::build::{labelled, node, secs};

/// The node on which the migrator runs, in the properties.
pub(crate) const OWN_NODE: &str = "n-1";

/// The taints that autoscalers put on nodes, and others that look like them.
fn taints() -> impl Strategy<Value = Vec<Taint>> {
    let mut all = Vec::new();
    for key in [key::TO_BE_DELETED, key::DELETION_CANDIDATE, "dedicated"] {
        all.extend(Effect::ALL.map(|effect| Taint::new(key, "1770000000", effect)));
    }
    prop_oneof![3 => Just(Vec::new()), 2 => subsequence(all, 1..=2)]
}

/// Any of the nodes among which the decisions choose; not its identity.
fn anonymous() -> impl Strategy<Value = NodeSnapshot> {
    let mark = weighted(0.3, select(vec!["true", "false", "True", "", "1"]));
    let mark_key = select(vec![key::SELECTED, key::COST_MANAGER_SELECTED]);
    (mark, mark_key, taints(), prop::bool::weighted(0.2), 0_u64..4).prop_map(
        |(mark, mark_key, taints, unschedulable, age)| {
            let bare = node("");
            let created_at = bare.created_at - secs(age);
            let node = NodeSnapshot { taints, unschedulable, created_at, ..bare };
            match mark {
                Some(value) => labelled(node, mark_key, value),
                None => node,
            }
        },
    )
}

/// Nodes named `n-0`, `n-1` and so on, whose UIDs are in another order than their names.
pub(crate) fn nodes(count: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<NodeSnapshot>> {
    prop::collection::vec((anonymous(), "[0-9a-f]{2}"), count).prop_map(|nodes| {
        let named = |(at, (node, salt)): (usize, (NodeSnapshot, String))| NodeSnapshot {
            name: format!("n-{at}").into(),
            uid: Uid::new(format!("{salt}-{at}")),
            provider_id: format!("aws:///eu-west-1a/i-{at}"),
            ..node
        };
        nodes.into_iter().enumerate().map(named).collect()
    })
}

/// A list, and the same in another order.
pub(crate) fn in_two_orders<T: Clone + std::fmt::Debug>(
    list: impl Strategy<Value = Vec<T>>,
) -> impl Strategy<Value = (Vec<T>, Vec<T>)> {
    list.prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle()))
}
