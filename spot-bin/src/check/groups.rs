//! Groups that can never let a machine go.

use std::collections::BTreeMap;
use std::sync::Arc;

use spot_core::capacity::Class;
use spot_core::cloud::{CloudFacts, Group};
use spot_core::node::NodeSnapshot;

use super::{Finding, Subject};

/// Of each group with on-demand nodes whether its minimum lets any of them go; nothing where no node has a group.
pub(super) fn findings(nodes: &[Arc<NodeSnapshot>], facts: &CloudFacts) -> Vec<Finding> {
    // By the group's name: itself, its on-demand nodes, and the least of it that one of them is.
    let mut groups: BTreeMap<&str, (&Group, usize, u32)> = BTreeMap::new();
    for node in nodes {
        let Some(fact) = facts.of(node.uid.as_str()).filter(|fact| fact.class == Class::OnDemand) else { continue };
        if let Some(group) = &fact.group {
            let (_, nodes, least) = groups.entry(&group.id).or_insert((group, 0, group.weight));
            (*nodes, *least) = (*nodes + 1, group.weight.min(*least));
        }
    }
    let stuck = groups.iter().filter(|(_, (group, _, least))| group.desired.saturating_sub(group.floor) < *least);
    stuck
        .map(|(name, (Group { desired, floor, .. }, nodes, _))| {
            let detail = format!(
                "group {name} has {desired} and may not have less than {floor}: none of its {nodes} on-demand nodes \
                 can go"
            );
            Finding::advice(Subject::Cloud, detail, "lower the group's minimum size")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use spot_core::cloud::{CloudFact, GroupKind};

    use super::*;
    use crate::sample::snapshot;

    #[test]
    fn a_group_at_its_minimum_is_told_once_and_only_if_it_has_on_demand_nodes() {
        let weighing = |weight, class, id: &str, desired, floor| CloudFact {
            class,
            machine: None,
            group: Some(Group { id: id.to_owned(), desired, floor, weight, kind: GroupKind::Group }),
            refusals: Vec::new(),
        };
        let fact = |class, id: &str, desired, floor| weighing(1, class, id, desired, floor);
        let facts = [
            ("a", fact(Class::OnDemand, "full", 2, 2)),
            ("b", fact(Class::OnDemand, "full", 2, 2)),
            ("c", fact(Class::OnDemand, "roomy", 3, 2)),
            ("d", fact(Class::Spot, "spot", 1, 1)),
            ("f", weighing(4, Class::OnDemand, "heavy", 9, 6)),
            ("g", weighing(4, Class::OnDemand, "mixed", 9, 6)),
            ("h", weighing(3, Class::OnDemand, "mixed", 9, 6)),
            ("e", CloudFact { group: None, ..fact(Class::OnDemand, "", 0, 0) }),
        ];
        let nodes: Vec<_> = facts.iter().map(|(name, _)| Arc::new(snapshot(name))).collect();
        let facts = nodes.iter().zip(&facts).map(|(node, (_, fact))| (node.uid.clone(), fact.clone())).collect();
        let found = findings(&nodes, &facts);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].detail.starts_with("group heavy has 9"), "{found:?}");
        assert!(
            found[0].detail.starts_with("group full has 2") && found[0].detail.contains("2 on-demand"),
            "{found:?}"
        );
    }
}
