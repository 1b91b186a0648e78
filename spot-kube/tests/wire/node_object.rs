//! The provider that deletes Node objects.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spot_core::capacity::{CapacityLabels, Class};
use spot_core::claim::{Claim, ClaimStep, InstanceId, Machine, Owner};
use spot_core::cloud::{Deletion, Freshness};
use spot_core::error::ErrorClass;
use spot_core::node::NodeSnapshot;
use spot_core::ports::{Clock, CloudProvider};
use spot_core::reason::ReasonKind;
use spot_core::retire::RetiredNode;
use spot_kube::NodeObject;
use spot_kube::saved::{self, SavedFile};

use crate::server::{ApiServer, node};

const MINUTE: Duration = Duration::from_mins(1);

fn snapshot(provider_id: &str, finalizers: &[&str], labels: Value) -> Arc<NodeSnapshot> {
    let mut node = node("a", "1");
    node["spec"]["providerID"] = json!(provider_id);
    node["metadata"]["finalizers"] = json!(finalizers);
    node["metadata"]["labels"] = labels;
    let text = node.to_string();
    Arc::clone(&saved::read(&[SavedFile { name: "node", text: &text }]).unwrap().view.nodes()[0])
}

fn provider(server: &ApiServer, drain: Duration) -> NodeObject {
    NodeObject::new(CapacityLabels::default(), drain, Arc::clone(&server.clock) as _)
}

fn retired(node: Arc<NodeSnapshot>, machine: Machine) -> RetiredNode {
    let claim = Claim {
        owner: Owner::Migrator,
        node: node.uid.clone(),
        machine,
        boot_id: String::new(),
        step: ClaimStep::Deleting,
        cordoned: true,
        taint: None,
        since: Timestamp::UNIX_EPOCH,
        own_pod_left: false,
        restored: false,
        until: None,
        fleet_before: None,
    };
    RetiredNode::assume(node, claim)
}

#[tokio::test(start_paused = true)]
async fn a_node_of_a_cloud_is_refused_unless_karpenter_owns_it() {
    let server = ApiServer::new();
    let provider = provider(&server, MINUTE);
    let karpenter: &[&str] = &["karpenter.sh/termination"];
    for (id, finalizers, accepted) in [
        ("", &[][..], true),
        ("kwok://a", &[], true),
        ("kind://docker/kind/a", &[], true),
        ("k3s://a", &[], true),
        ("aws:///eu-west-1a/i-1", &[], false),
        ("gce://project/zone/a", &[], false),
        ("azure:///subscriptions/a", &[], false),
        ("openstack:///a", &[], false),
        ("somebody://a", &[], false),
        ("a", &[], false),
        ("kwok", &[], false),
        ("aws:///eu-west-1a/i-1", karpenter, true),
        ("aws:///eu-west-1a/i-1", &["somebody.io/else"], false),
    ] {
        let node = snapshot(id, finalizers, json!({"karpenter.sh/capacity-type": "on-demand"}));
        let facts = provider.survey(&[Arc::clone(&node)], &[], Freshness::Now, server.within(1)).await.unwrap();
        let fact = facts.of(&node.uid.to_string()).unwrap();
        assert_eq!(fact.class, Class::OnDemand);
        assert_eq!(fact.machine, accepted.then_some(Machine::WithNode), "{id}");
        let kinds: Vec<_> = fact.refusals.iter().map(spot_core::reason::Reason::kind).collect();
        assert_eq!(kinds, if accepted { vec![] } else { vec![ReasonKind::NoMachineOwner] }, "{id}");

        let deleted = provider.delete_instance(&retired(node, Machine::WithNode), &server.permit(1)).await;
        match deleted {
            Ok(deletion) => assert!(accepted && deletion == Deletion::WithNode, "{id}"),
            Err(error) => assert!(!accepted && error.class == ErrorClass::Permanent, "{id}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_names_an_instance_is_not_this_providers() {
    let server = ApiServer::new();
    let machine = Machine::Instance(InstanceId::new("i-1"));
    let node = retired(snapshot("", &[], json!({})), machine);
    let error = provider(&server, MINUTE).delete_instance(&node, &server.permit(1)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
    let error = provider(&server, MINUTE).instance_state(&InstanceId::new("i-1"), server.within(1)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
}

/// How many seconds of virtual time load balancers get after a taint of this age, which may be negative.
async fn waited(age: Option<i64>, drain: Duration) -> u64 {
    let server = ApiServer::new();
    let tainted_at = age.map(|age| server.clock.now() - SignedDuration::from_secs(age));
    let began = tokio::time::Instant::now();
    let node = snapshot("", &[], json!({}));
    provider(&server, drain).detach(&node, tainted_at, &server.permit(300)).await.unwrap();
    // The wall clock is real, so the taint has aged by some milliseconds more.
    (began.elapsed() + Duration::from_millis(999)).as_secs()
}

#[tokio::test(start_paused = true)]
async fn load_balancers_get_their_time_from_the_taint_on() {
    assert_eq!(waited(Some(0), MINUTE).await, 60);
    assert_eq!(waited(Some(45), MINUTE).await, 15);
    assert_eq!(waited(Some(61), MINUTE).await, 0);
    assert_eq!(waited(Some(-3600), MINUTE).await, 60, "a taint from the future");
    assert_eq!(waited(None, MINUTE).await, 60, "a taint without a time");
    assert_eq!(waited(Some(-3600), Duration::ZERO).await, 0);
}

#[tokio::test(start_paused = true)]
async fn load_balancers_that_get_no_time_within_the_deadline_are_an_error() {
    let server = ApiServer::new();
    let node = snapshot("", &[], json!({}));
    let error = provider(&server, MINUTE).detach(&node, None, &server.permit(30)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Timeout);
}
