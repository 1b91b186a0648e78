//! What a request of the product is for, by what it says.

use std::fmt;

use serde_json::Value;
use spot_tests::{Verb, proxy::Request};

/// The record on a node that is to go.
pub(crate) const CLAIM: &str = "spot-migrator.io/claim";

/// The mark of a node that is to go.
const MARK: &str = "spot-migrator.io/selected-for-deletion";

/// What keeps evicted pods off the nodes that go next.
const LEAVING: &str = "spot-migrator.io/leaving";

/// What fails the health checks of load balancers.
pub(crate) const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// A step of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    /// It asks what it may do.
    Rights,
    /// It looks who leads.
    Lead,
    /// It makes the lease, takes or renews it.
    Hold,
    /// It gives the lease back.
    GiveBack,
    /// It reads what earlier runs have left to it.
    Recall,
    /// It writes down what later runs have to know.
    Remember,
    /// It looks at the whole cluster.
    List,
    /// It follows the cluster.
    Watch,
    /// It keeps evicted pods off a node that goes later.
    Soften,
    /// It lets them on again.
    Harden,
    /// It marks, cordons and claims a node.
    Claim,
    /// It evicts a pod.
    Evict,
    /// It taints an empty node.
    Taint,
    /// It looks whether the node is empty.
    LastLook,
    /// It writes down that it is about to delete the node.
    Announce,
    /// It deletes the node.
    Delete,
    /// It looks at a node whose write was refused.
    LookAgain,
    /// It takes everything of its own off a node.
    Release,
    /// It tells people of it, in an Event.
    Tell,
}

/// A kind of request: all that differs is which object it is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) step: Step,
}

impl Call {
    /// # Panics
    /// If the product asks for something that no step is known to need.
    pub(crate) fn of(request: &Request) -> Self {
        let Request { verb, resource, subresource, name: _, query: _, body: _ } = request;
        Self { verb: *verb, resource: resource.clone(), subresource: subresource.clone(), step: step(request) }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, resource, subresource, step } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(formatter, "{verb:?} {resource}{slash}{subresource} ({step:?})")
    }
}

fn step(request: &Request) -> Step {
    let Request { verb, resource, subresource, name: _, query, body } = request;
    match (verb, resource.as_str(), subresource.as_str()) {
        (Verb::Create, "selfsubjectaccessreviews", "") => Step::Rights,
        (Verb::Get, "leases", "") => Step::Lead,
        (Verb::Update, "leases", "") if body["spec"]["holderIdentity"].as_str().is_none_or(str::is_empty) => {
            Step::GiveBack
        }
        (Verb::Create | Verb::Update, "leases", "") => Step::Hold,
        (Verb::Get, "configmaps", "") => Step::Recall,
        (Verb::Create | Verb::Patch, "configmaps", "") => Step::Remember,
        (Verb::List, "pods", "") if query.contains("fieldSelector=") => Step::LastLook,
        (Verb::List, _, "") => Step::List,
        (Verb::Watch, _, "") => Step::Watch,
        (Verb::Create, "pods", "eviction") => Step::Evict,
        (Verb::Get, "nodes", "") => Step::LookAgain,
        (Verb::Patch, "nodes", "") => of_node_patch(body),
        (Verb::Delete, "nodes", "") => Step::Delete,
        (Verb::Create, "events", "") => Step::Tell,
        _ => panic!("what is this for? {request:?}"),
    }
}

/// The list of taints is written as a whole: what a patch puts on is told by the record that goes with it.
fn of_node_patch(patch: &Value) -> Step {
    let claim = patch["metadata"]["annotations"].get(CLAIM);
    let reached = claim.and_then(Value::as_str).unwrap_or_default();
    if claim.is_some_and(Value::is_null) || patch["metadata"]["labels"].get(MARK).is_some_and(Value::is_null) {
        Step::Release
    } else if !reached.is_empty() && puts(patch, TO_BE_DELETED) {
        Step::Taint
    } else if reached.contains(r#""step":"deleting""#) {
        Step::Announce
    } else if !reached.is_empty() || patch["spec"]["unschedulable"] == true {
        Step::Claim
    } else if puts(patch, LEAVING) {
        Step::Soften
    } else {
        Step::Harden
    }
}

fn puts(patch: &Value, taint: &str) -> bool {
    patch["spec"]["taints"].as_array().is_some_and(|taints| taints.iter().any(|one| one["key"] == taint))
}
