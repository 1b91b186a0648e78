//! What people put on nodes, and from when until when.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use spot_tests::World;

/// A taint and a label of somebody else's, by key.
const OTHERS: &str = "operator.test/hold";

/// The label that keeps the product off.
pub(crate) const OPTED_OUT: &str = "spot-migrator.io/do-not-migrate";

/// Something that a person puts on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    Cordon,
    OptOut,
    Taint,
    Label,
}

/// It was on a node from one version of the store on, and until before another.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) node: String,
    pub(crate) thing: Thing,
    pub(crate) from: u64,
    pub(crate) to: Option<u64>,
}

impl Thing {
    pub(crate) fn is_on(self, node: &Node) -> bool {
        match self {
            Self::Cordon => is_cordoned(node),
            Self::OptOut => node.labels().contains_key(OPTED_OUT),
            Self::Taint => taints(node).any(|taint| taint.key == OTHERS),
            Self::Label => node.labels().contains_key(OTHERS),
        }
    }

    /// The change that puts it on, or takes it off.
    fn change(self, node: &Node, on: bool) -> Value {
        let label = |key: &str| json!({"metadata": {"labels": {key: if on { json!("true") } else { Value::Null }}}});
        match self {
            Self::Cordon => json!({"spec": {"unschedulable": on.then_some(true)}}),
            Self::OptOut => label(OPTED_OUT),
            Self::Label => label(OTHERS),
            Self::Taint => {
                let mut all: Vec<_> =
                    taints(node).filter(|taint| taint.key != OTHERS).map(|taint| json!(taint)).collect();
                if on {
                    all.push(json!({"key": OTHERS, "value": "night", "effect": "PreferNoSchedule"}));
                }
                json!({"spec": {"taints": all}})
            }
        }
    }
}

/// Puts it on or takes it off `node`, and returns the version in which it was done; nothing where there was nothing to
/// do: the node is gone, or has it, or has it not.
pub(crate) async fn set(world: &World, node: &str, thing: Thing, on: bool) -> Option<u64> {
    let nodes = Api::<Node>::all(world.client());
    loop {
        let now = nodes.get_opt(node).await.expect("nodes can be read")?;
        if thing.is_on(&now) == on {
            return None;
        }
        let mut change = thing.change(&now, on);
        // What was seen is what is changed: whoever was faster is seen first.
        change["metadata"]["resourceVersion"] = json!(now.resource_version());
        match nodes.patch(node, &PatchParams::default(), &Patch::Merge(&change)).await {
            Ok(done) => return Some(version(&done)),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return None,
            Err(error) => unreachable!("nodes can be changed: {error}"),
        }
    }
}

pub(crate) fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

pub(crate) fn taints(node: &Node) -> impl Iterator<Item = &k8s_openapi::api::core::v1::Taint> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten())
}

/// The version of the store in which this was so.
pub(crate) fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).expect("the store counts its versions")
}
