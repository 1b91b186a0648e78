//! The world's nodes, pods, budgets and volumes as Kubernetes objects. Times are whole seconds, as the API has them.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use spot_core::node::{ClaimAnnotation, NodeSnapshot, Readiness, key};
use spot_core::pod::{BudgetSnapshot, PodPhase, PodSnapshot, UnhealthyPods};
use spot_core::selector::{Operator, Requirement};
use spot_core::volume::{AttachmentSnapshot, Reach, VolumeClaimSnapshot, VolumeSnapshot};

use crate::annotation;

/// A Node.
pub(crate) fn node(node: &NodeSnapshot) -> Value {
    let mut annotations: Map<String, Value> =
        node.annotations.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    match &node.claim {
        ClaimAnnotation::Absent => {}
        ClaimAnnotation::Valid(claim) => {
            annotations.insert(key::CLAIM.to_owned(), json!(annotation::claim_text(claim)));
        }
        ClaimAnnotation::Unreadable(text) => {
            annotations.insert(key::CLAIM.to_owned(), json!(text));
        }
    }
    if let Some(back_off) = node.back_off {
        annotations.insert(key::BACK_OFF.to_owned(), json!(annotation::back_off_text(back_off)));
    }
    let (ready, since) = match node.readiness {
        Readiness::Ready => ("True", node.ready_since.unwrap_or(node.created_at)),
        Readiness::NotReady { since } => ("False", since),
        Readiness::Unreachable { since } => ("Unknown", since),
    };
    let internal = |address: &String| json!({"type": "InternalIP", "address": address});
    let mut object = json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {
            "name": &*node.name, "uid": node.uid.as_str(), "resourceVersion": node.resource_version,
            "creationTimestamp": seconds(node.created_at), "labels": &*node.labels, "annotations": annotations,
            "finalizers": node.finalizers,
        },
        "spec": {"providerID": node.provider_id},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": seconds(since)}],
            "nodeInfo": {"bootID": node.boot_id},
            "addresses": node.internal_addresses.iter().map(internal).collect::<Vec<_>>(),
        },
    });
    if let Some(since) = node.deleting_since {
        object["metadata"]["deletionTimestamp"] = json!(seconds(since));
    }
    if node.unschedulable {
        object["spec"]["unschedulable"] = json!(true);
    }
    if !node.taints.is_empty() {
        let taints = node.taints.iter().map(|taint| {
            let mut text = json!({"key": taint.key, "effect": taint.effect.as_str()});
            if !taint.value.is_empty() {
                text["value"] = json!(taint.value);
            }
            if let Some(time) = taint.time_added {
                text["timeAdded"] = json!(seconds(time));
            }
            text
        });
        object["spec"]["taints"] = taints.collect();
    }
    object
}

/// A Pod in this version.
pub(crate) fn pod(pod: &PodSnapshot, version: u64) -> Value {
    assert!(pod.needs.is_none() && pod.opted_out.is_none(), "{}: this server can't show that", pod.reference());
    let phase = match pod.phase {
        PodPhase::Pending => "Pending",
        PodPhase::Running => "Running",
        PodPhase::Succeeded => "Succeeded",
        PodPhase::Failed => "Failed",
        PodPhase::Unknown => "Unknown",
    };
    let empty_dir = pod.empty_dir.then(|| json!({"name": "scratch", "emptyDir": {}}));
    let claims = pod.claims.iter().flat_map(|claims| claims.iter()).enumerate().map(|(at, claim)| {
        assert!(!claim.ephemeral, "{}: this server can't show that", pod.reference());
        json!({"name": format!("data-{at}"), "persistentVolumeClaim": {"claimName": &*claim.name}})
    });
    let mut object = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": &*pod.name, "namespace": &*pod.namespace, "uid": pod.uid.as_str(),
            "resourceVersion": version.to_string(), "creationTimestamp": seconds(pod.created_at),
            "labels": &*pod.labels,
        },
        "spec": {
            "terminationGracePeriodSeconds": pod.grace.as_secs(),
            "volumes": empty_dir.into_iter().chain(claims).collect::<Vec<_>>(),
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": if pod.ready { "True" } else { "False" }}],
        },
    });
    if let Some(node) = &pod.node {
        object["spec"]["nodeName"] = json!(&**node);
    }
    if let Some(controller) = &pod.controller {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": format!("{}/v1", controller.group), "kind": &*controller.kind, "name": "its-owner",
            "uid": controller.uid.as_str(), "controller": true, "blockOwnerDeletion": true,
        }]);
    }
    if pod.mirror {
        object["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    }
    if let Some(until) = pod.deletion {
        object["metadata"]["deletionTimestamp"] = json!(seconds(until));
    }
    object
}

/// A PodDisruptionBudget.
pub(crate) fn budget(budget: &BudgetSnapshot) -> Value {
    let policy = match budget.unhealthy_pods {
        UnhealthyPods::IfHealthyBudget => "IfHealthyBudget",
        UnhealthyPods::AlwaysAllow => "AlwaysAllow",
    };
    let expressions: Value = budget.selector.requirements().iter().map(requirement).collect();
    let disrupted: Map<String, Value> =
        budget.disrupted_pods.iter().map(|pod| (pod.clone(), json!("2026-01-01T00:00:00Z"))).collect();
    json!({
        "kind": "PodDisruptionBudget", "apiVersion": "policy/v1",
        "metadata": {
            "name": &*budget.name, "namespace": &*budget.namespace, "uid": format!("uid-{}", budget.reference()),
            "resourceVersion": budget.resource_version, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 2,
        },
        "spec": {"selector": {"matchExpressions": expressions}, "unhealthyPodEvictionPolicy": policy},
        "status": {
            "observedGeneration": if budget.current { 2 } else { 1 },
            "disruptionsAllowed": budget.disruptions_allowed, "currentHealthy": budget.current_healthy,
            "desiredHealthy": budget.desired_healthy, "expectedPods": budget.expected_pods,
            "disruptedPods": disrupted,
        },
    })
}

fn requirement(requirement: &Requirement) -> Value {
    let operator = match requirement.operator() {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
    };
    json!({"key": requirement.key(), "operator": operator, "values": requirement.values().collect::<Vec<_>>()})
}

/// A DaemonSet, as the API shows objects of which only the metadata were asked for.
pub(crate) fn daemon_set(uid: &str, version: u64) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {
            "name": format!("daemons-{uid}"), "namespace": "kube-system", "uid": uid,
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
        },
    })
}

/// A PersistentVolumeClaim.
pub(crate) fn volume_claim(claim: &VolumeClaimSnapshot, version: u64) -> Value {
    json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1",
        "metadata": {
            "name": &*claim.claim.name, "namespace": &*claim.claim.namespace,
            "uid": format!("uid-{}", claim.claim), "resourceVersion": version.to_string(),
        },
        "spec": {"volumeName": claim.volume.as_deref()},
    })
}

/// A PersistentVolume.
pub(crate) fn volume(volume: &VolumeSnapshot, version: u64) -> Value {
    assert_eq!(volume.reach, Reach::Anywhere, "{}: this server can't show that", volume.name);
    json!({
        "kind": "PersistentVolume", "apiVersion": "v1",
        "metadata": {
            "name": &*volume.name, "uid": format!("uid-{}", volume.name), "resourceVersion": version.to_string(),
        },
        "spec": {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": &*volume.name}},
    })
}

/// A VolumeAttachment.
pub(crate) fn attachment(attachment: &AttachmentSnapshot, version: u64) -> Value {
    json!({
        "kind": "VolumeAttachment", "apiVersion": "storage.k8s.io/v1",
        "metadata": {
            "name": &*attachment.name, "uid": format!("uid-{}", attachment.name),
            "resourceVersion": version.to_string(),
        },
        "spec": {
            "attacher": "ebs.csi.aws.com", "nodeName": &*attachment.node,
            "source": {"persistentVolumeName": attachment.volume.as_deref()},
        },
    })
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
