//! What can be said of nodes without asking anybody: their classes by labels, and how they go by their provider IDs.

use std::sync::Arc;

use spot_aws::ProviderId;
use spot_core::capacity::CapacityLabels;
use spot_core::claim::{InstanceId, Machine};
use spot_core::cloud::{CloudFact, CloudFacts};
use spot_core::node::{Node as _, NodeSnapshot, key};
use spot_core::reason::{Reason, ReasonKind};
use spot_kube::NodeObject;

use crate::config::{self, Config};

/// The facts of these nodes under the provider that the configuration names, whether this build can ask it or not.
#[must_use]
pub fn unasked(config: &Config, nodes: &[Arc<NodeSnapshot>]) -> CloudFacts {
    let labels = &config.selection.capacity_labels;
    let fact = |node: &NodeSnapshot| match &config.cloud_provider {
        config::CloudProvider::Aws(_) => of_ec2(labels, node),
        config::CloudProvider::NodeObject => NodeObject::fact(labels, node),
    };
    nodes.iter().map(|node| (node.uid.clone(), fact(node))).collect()
}

fn of_ec2(labels: &CapacityLabels, node: &NodeSnapshot) -> CloudFact {
    let (machine, refusals) = match ProviderId::parse(&node.provider_id) {
        // The machine of another provisioner goes with its Node, or not at all.
        Ok(_) if node.label(key::NODE_POOL).is_some() => return NodeObject::fact(labels, node),
        Ok(id) => (Some(Machine::Instance(InstanceId::new(id.instance_id()))), Vec::new()),
        Err(error) => (None, vec![Reason::Cloud(ReasonKind::UnsupportedProviderId, error.to_string())]),
    };
    CloudFact { class: labels.classify(node), machine, group: None, refusals }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::sample::snapshot;

    const AWS: [(&str, &str); 2] = [("cloudProvider.name", "aws"), ("cloudProvider.aws.clusterName", "prod")];
    const NODE_OBJECT: [(&str, &str); 1] = [("cloudProvider.name", "node-object")];

    #[rstest]
    #[case::a_machine_of_ec2(&AWS, "aws:///eu-west-1a/i-0123456789abcdef0", false, None)]
    #[case::one_of_another_cloud(&AWS, "gce://project/zone/node", false, Some(ReasonKind::UnsupportedProviderId))]
    #[case::one_of_another_provisioner(
        &AWS, "aws:///eu-west-1a/i-0123456789abcdef0", true, Some(ReasonKind::NoMachineOwner)
    )]
    #[case::a_machine_that_nobody_would_delete(
        &NODE_OBJECT, "aws:///eu-west-1a/i-0123456789abcdef0", false, Some(ReasonKind::NoMachineOwner)
    )]
    fn a_node_is_judged_by_the_provider_that_is_named_whatever_this_build_can_ask(
        #[case] keys: &[(&str, &str)],
        #[case] provider_id: &str,
        #[case] provisioned: bool,
        #[case] refused: Option<ReasonKind>,
    ) {
        let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let config = Config::load(None, [], &keys).unwrap_or_else(|error| panic!("{error}"));
        let mut node = snapshot("a");
        node.provider_id = provider_id.to_owned();
        if provisioned {
            node.labels.insert(key::NODE_POOL.to_owned(), "general".to_owned());
        }
        let node = Arc::new(node);
        let facts = unasked(&config, &[Arc::clone(&node)]);
        let fact = facts.of(node.uid.as_str()).expect("every node has its fact");
        assert_eq!(fact.refusals.iter().map(Reason::kind).collect::<Vec<_>>(), Vec::from_iter(refused));
        assert_eq!(fact.machine.is_some(), refused.is_none(), "{fact:?}");
    }
}
