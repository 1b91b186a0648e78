//! Patches and deletions of nodes.

use std::time::Duration;

use serde_json::{Value, json};
use spot_core::claim::{BackOff, Claim, ClaimStep, InstanceId, Machine, Owner};
use spot_core::error::ErrorClass;
use spot_core::node::{ClaimAnnotation, Effect, NodeRef, Taint, Uid, key};
use spot_core::pod::PodRef;
use spot_core::ports::{Cluster, Edit, Erased, Lane, NodeChange, Written};
use spot_core::retire::{DeletableNode, DoomedPod};

use crate::server::{ApiServer, node, said, status};

const MERGE: &str = "application/merge-patch+json";
const PATCH: &str = "PATCH /api/v1/nodes/od-1?fieldManager=spot-migrator";

fn od_1(version: Option<&str>) -> NodeRef {
    NodeRef { name: "od-1".into(), uid: Uid::new("uid-od-1"), resource_version: version.map(str::to_owned) }
}

fn claim() -> Claim {
    Claim {
        owner: Owner::Migrator,
        node: Uid::new("uid-od-1"),
        machine: Machine::Instance(InstanceId::new("i-1")),
        boot_id: "boot".to_owned(),
        step: ClaimStep::Draining,
        cordoned: true,
        taint: None,
        since: "2026-01-01T00:00:00Z".parse().unwrap(),
        own_pod_left: false,
        restored: false,
        until: None,
        fleet_before: None,
    }
}

fn cordon() -> NodeChange {
    NodeChange { unschedulable: Some(true), ..NodeChange::default() }
}

const CORDON: &str = r#"{"metadata":{"uid":"uid-od-1","resourceVersion":"5"},"spec":{"unschedulable":true}}"#;

#[tokio::test(start_paused = true)]
async fn a_claim_is_one_conditional_patch() {
    let server = ApiServer::new();
    let body = concat!(
        r#"{"metadata":{"uid":"uid-od-1","resourceVersion":"5","#,
        r#""labels":{"spot-migrator.io/selected-for-deletion":"true"},"#,
        r#""annotations":{"spot-migrator.io/claim":"{\"owner\":\"migrator\",\"node\":\"uid-od-1\",\"#,
        r#""machine\":{\"instance\":\"i-1\"},\"bootId\":\"boot\",\"step\":\"draining\",\"cordoned\":true,\"#,
        r#""since\":\"2026-01-01T00:00:00Z\",\"ownPodLeft\":false}"}},"spec":{"unschedulable":true}}"#,
    );
    let text = serde_json::from_str::<Value>(body).unwrap()["metadata"]["annotations"][key::CLAIM].clone();
    let mut after = node("od-1", "6");
    after["metadata"]["annotations"] = json!({key::CLAIM: text});
    after["spec"]["unschedulable"] = json!(true);
    server.on_body(PATCH, MERGE, body).says(200, after);

    let change = NodeChange { mark: Edit::Set(()), claim: Edit::Set(claim()), ..cordon() };
    let written = server.cluster.write_node(&od_1(Some("5")), &change, &server.permit(5)).await.unwrap();

    let Written::Applied(now) = written else { panic!("{written:?}") };
    assert_eq!(now.claim, ClaimAnnotation::Valid(Box::new(claim())));
    assert_eq!((now.unschedulable, now.resource_version.as_str()), (true, "6"));
}

#[tokio::test(start_paused = true)]
async fn a_release_takes_off_what_is_ours_and_keeps_the_taints_of_others() {
    let server = ApiServer::new();
    let body = concat!(
        r#"{"metadata":{"uid":"uid-od-1","resourceVersion":"5","labels":{"#,
        r#""cost-manager.io/selected-for-deletion":null,"spot-migrator.io/selected-for-deletion":null},"#,
        r#""annotations":{"spot-migrator.io/back-off":"{\"until\":\"2026-01-01T01:00:00Z\",\"count\":2}","#,
        r#""spot-migrator.io/claim":null}},"spec":{"unschedulable":null,"taints":[{"key":"gpu","value":"yes","#,
        r#""effect":"NoExecute","timeAdded":"2026-01-01T00:00:00Z"},{"key":"bare","effect":"NoSchedule"}]}}"#,
    );
    server.on_body(PATCH, MERGE, body).says(200, node("od-1", "6"));

    let gpu = Taint { time_added: "2026-01-01T00:00:00Z".parse().ok(), ..Taint::new("gpu", "yes", Effect::NoExecute) };
    let change = NodeChange {
        mark: Edit::Remove,
        remove_old_mark: true,
        claim: Edit::Remove,
        back_off: Edit::Set(BackOff { until: "2026-01-01T01:00:00Z".parse().unwrap(), count: 2 }),
        unschedulable: Some(false),
        taints: Some(vec![gpu, Taint::new("bare", "", Effect::NoSchedule)]),
    };
    let written = server.cluster.write_node(&od_1(Some("5")), &change, &server.permit(5)).await.unwrap();
    assert!(matches!(written, Written::Applied(_)), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn the_last_taint_is_taken_off_and_any_version_will_do() {
    let server = ApiServer::new();
    let body =
        r#"{"metadata":{"uid":"uid-od-1","annotations":{"spot-migrator.io/back-off":null}},"spec":{"taints":null}}"#;
    server.on_body(PATCH, MERGE, body).says(200, node("od-1", "6"));
    let change = NodeChange { back_off: Edit::Remove, taints: Some(Vec::new()), ..NodeChange::default() };
    let written = server.cluster.write_node(&od_1(None), &change, &server.permit(5)).await.unwrap();
    assert!(matches!(written, Written::Applied(_)), "{written:?}");
}

/// Between our read and our write another writer puts a taint on: the write changes nothing, and shows it.
#[tokio::test(start_paused = true)]
async fn rb_12_a_taint_that_was_added_meanwhile_is_a_conflict_and_not_lost() {
    let server = ApiServer::new();
    let ours = Taint::new(key::TO_BE_DELETED, "1767225600", Effect::NoSchedule);
    let first = concat!(
        r#"{"metadata":{"uid":"uid-od-1","resourceVersion":"5"},"spec":{"taints":["#,
        r#"{"key":"ToBeDeletedByClusterAutoscaler","value":"1767225600","effect":"NoSchedule"}]}}"#,
    );
    let conflict =
        status(409, "Conflict", "the object has been modified; please apply your changes to the latest version");
    server.on_body(PATCH, MERGE, first).says(409, conflict);
    let mut now = node("od-1", "6");
    now["spec"]["taints"] = json!([{"key": "gpu", "value": "installing", "effect": "NoSchedule"}]);
    server.on("GET /api/v1/nodes/od-1").says(200, &now);
    let second = concat!(
        r#"{"metadata":{"uid":"uid-od-1","resourceVersion":"6"},"spec":{"taints":["#,
        r#"{"key":"gpu","value":"installing","effect":"NoSchedule"},"#,
        r#"{"key":"ToBeDeletedByClusterAutoscaler","value":"1767225600","effect":"NoSchedule"}]}}"#,
    );
    server.on_body(PATCH, MERGE, second).says(200, node("od-1", "7"));

    let change = |taints: Vec<Taint>| NodeChange { taints: Some(taints), ..NodeChange::default() };
    let write = server.permit(5);
    let written = server.cluster.write_node(&od_1(Some("5")), &change(vec![ours.clone()]), &write).await.unwrap();
    let Written::Conflict(now) = written else { panic!("{written:?}") };
    let taints: Vec<Taint> = now.taints.iter().cloned().chain([ours]).collect();
    let written = server.cluster.write_node(&now.at_version(), &change(taints), &write).await.unwrap();
    assert!(matches!(written, Written::Applied(_)), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_or_replaced_is_gone() {
    let server = ApiServer::new();
    let mut other = node("od-1", "9");
    other["metadata"]["uid"] = json!("another");
    let not_found = || status(404, "NotFound", r#"nodes "od-1" not found"#);
    let cases: [(Value, Option<(u16, Value)>); 4] = [
        (not_found(), None),
        (status(409, "Conflict", "modified"), Some((404, not_found()))),
        (status(409, "Conflict", "modified"), Some((200, other.clone()))),
        (status(422, "Invalid", "metadata.uid: field is immutable"), Some((200, other))),
    ];
    for (first, then) in cases {
        server.on_body(PATCH, MERGE, CORDON).says(u16::try_from(first["code"].as_u64().unwrap()).unwrap(), first);
        if let Some((code, then)) = then {
            server.on("GET /api/v1/nodes/od-1").says(code, then);
        }
        let written = server.cluster.write_node(&od_1(Some("5")), &cordon(), &server.permit(5)).await.unwrap();
        assert!(matches!(written, Written::Gone), "{written:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_the_server_does_not_understand_is_a_lasting_error() {
    let server = ApiServer::new();
    server.on_body(PATCH, MERGE, CORDON).says(422, status(422, "Invalid", "spec.taints: too many"));
    server.on("GET /api/v1/nodes/od-1").says(200, node("od-1", "6"));
    let error = server.cluster.write_node(&od_1(Some("5")), &cordon(), &server.permit(5)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
    assert_eq!(said(&error), "could not patch nodes od-1: the API server answered 422 Invalid: spec.taints: too many");
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_and_not_asked_for_again() {
    let server = ApiServer::new();
    server.on_body(PATCH, MERGE, CORDON).says(403, status(403, "Forbidden", "nodes is forbidden"));
    let error = server.cluster.write_node(&od_1(Some("5")), &cordon(), &server.permit(5)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Denied);
    assert!(said(&error).contains("the right `patch nodes` is missing"), "{}", said(&error));
}

#[tokio::test(start_paused = true)]
async fn a_conditional_write_is_tried_again_on_passing_errors() {
    let server = ApiServer::new();
    server.on_body(PATCH, MERGE, CORDON).says(503, "upstream connect error");
    server.on_body(PATCH, MERGE, CORDON).says_later(429, 2, status(429, "TooManyRequests", "later"));
    server.on_body(PATCH, MERGE, CORDON).says(401, status(401, "Unauthorized", "expired"));
    server.on_body(PATCH, MERGE, CORDON).says(200, node("od-1", "6"));
    let began = tokio::time::Instant::now();
    let written = server.cluster.write_node(&od_1(Some("5")), &cordon(), &server.permit(30)).await.unwrap();
    assert!(matches!(written, Written::Applied(_)), "{written:?}");
    assert!(began.elapsed() >= Duration::from_secs(2), "Retry-After was not respected");
}

#[tokio::test(start_paused = true)]
async fn rb_48_a_write_waits_for_the_new_token_and_is_denied_only_at_its_deadline() {
    let server = ApiServer::new();
    for _ in 0..5 {
        server.on_body(PATCH, MERGE, CORDON).says(401, status(401, "Unauthorized", "expired"));
    }
    server.on_body(PATCH, MERGE, CORDON).says(200, node("od-1", "6"));
    let written = server.cluster.write_node(&od_1(Some("5")), &cordon(), &server.permit(60)).await.unwrap();
    assert!(matches!(written, Written::Applied(_)), "{written:?}");

    for _ in 0..3 {
        server.on_body(PATCH, MERGE, CORDON).says_later(401, 1, status(401, "Unauthorized", "expired"));
    }
    let error = server.cluster.write_node(&od_1(Some("5")), &cordon(), &server.permit(3)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Denied);
    assert!(said(&error).contains("not authenticated"), "{}", said(&error));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_on_failing_ends_at_the_deadline() {
    let server = ApiServer::new();
    for _ in 0..3 {
        server.on_body(PATCH, MERGE, CORDON).says_later(503, 1, "down");
    }
    let began = tokio::time::Instant::now();
    let error = server.cluster.write_node(&od_1(Some("5")), &cordon(), &server.permit(3)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient);
    assert!(began.elapsed() <= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_hung_call_ends_at_the_deadline() {
    let server = ApiServer::new();
    server.on_body(PATCH, MERGE, CORDON).hangs();
    let began = tokio::time::Instant::now();
    let error = server.cluster.write_node(&od_1(Some("5")), &cordon(), &server.permit(3)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Timeout);
    assert_eq!(began.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_carries_uid_and_version_and_gone_already_is_done() {
    let server = ApiServer::new();
    let request = "DELETE /api/v1/nodes/od-1";
    let body = r#"{"preconditions":{"uid":"uid-od-1","resourceVersion":"5"}}"#;
    let node = DeletableNode::assume(od_1(Some("5")));
    let other_uid = "Operation cannot be fulfilled on nodes \"od-1\": the UID in the precondition (uid-od-1) does not \
                     match the UID in record (another). The object might have been deleted and then recreated";
    for (code, answer) in [
        (200, json!({"kind": "Status", "status": "Success"})),
        (404, status(404, "NotFound", "nodes \"od-1\" not found")),
        (409, status(409, "Conflict", other_uid)),
    ] {
        server.on_body(request, "application/json", body).says(code, answer);
        let erased = server.cluster.delete_node(&node, &server.permit(5)).await.unwrap();
        assert!(matches!(erased, Erased::Gone), "{code}: {erased:?}");
    }
    server.on_body(request, "application/json", body).says(409, status(409, "Conflict", "somebody changed it"));
    server.on("GET /api/v1/nodes/od-1").says(200, self::node("od-1", "6"));
    let erased = server.cluster.delete_node(&node, &server.permit(5)).await.unwrap();
    let Erased::Changed(now) = erased else { panic!("{erased:?}") };
    assert_eq!(now.resource_version, "6");
}

#[tokio::test(start_paused = true)]
async fn a_doomed_pod_is_deleted_by_its_uid_with_the_grace_that_is_left() {
    let server = ApiServer::new();
    let body = r#"{"gracePeriodSeconds":21,"preconditions":{"uid":"u1"}}"#;
    server.on_body("DELETE /api/v1/namespaces/shop/pods/db-0", "application/json", body).says(200, "{}");
    let pod = PodRef { namespace: "shop".into(), name: "db-0".into(), uid: Uid::new("u1") };
    let grace = Duration::from_millis(20_500);
    server.cluster.delete_pod(&DoomedPod::assume(pod), grace, &server.permit(5)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_doomed_pod_gets_no_grace_only_when_none_is_left() {
    let server = ApiServer::new();
    let doomed = DoomedPod::assume(PodRef { namespace: "shop".into(), name: "db-0".into(), uid: Uid::new("u1") });
    for (left, seconds) in [(Duration::from_millis(1), 1), (Duration::ZERO, 0)] {
        let body = format!(r#"{{"gracePeriodSeconds":{seconds},"preconditions":{{"uid":"u1"}}}}"#);
        server.on_body("DELETE /api/v1/namespaces/shop/pods/db-0", "application/json", &body).says(200, "{}");
        server.cluster.delete_pod(&doomed, left, &server.permit(5)).await.unwrap();
    }
}

/// The pod of a StatefulSet comes back under its name.
#[tokio::test(start_paused = true)]
async fn a_doomed_pod_that_is_gone_or_replaced_is_gone_and_a_missing_right_is_named() {
    let server = ApiServer::new();
    let doomed = DoomedPod::assume(PodRef { namespace: "shop".into(), name: "db-0".into(), uid: Uid::new("u1") });
    let body = r#"{"gracePeriodSeconds":9,"preconditions":{"uid":"u1"}}"#;
    let replaced = "Operation cannot be fulfilled on pods \"db-0\": the UID in the precondition (u1) does not match \
                    the UID in record (u2). The object might have been deleted and then recreated";
    let delete = async |code, answer: Value| {
        server.on_body("DELETE /api/v1/namespaces/shop/pods/db-0", "application/json", body).says(code, answer);
        server.cluster.delete_pod(&doomed, Duration::from_secs(9), &server.permit(5)).await
    };
    delete(404, status(404, "NotFound", "pods \"db-0\" not found")).await.unwrap();
    delete(409, status(409, "Conflict", replaced)).await.unwrap();
    let error = delete(403, status(403, "Forbidden", "no")).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Denied);
    assert!(said(&error).contains("`delete pods`"), "{}", said(&error));
}

/// Over a connection that died in silence, say: a machine that is about to go leaves no time to wait for it.
#[tokio::test(start_paused = true)]
async fn a_forced_cordon_that_is_not_answered_is_sent_again_after_two_seconds_and_a_planned_one_after_ten() {
    for (lane, seconds) in [(Lane::Forced, 2), (Lane::Planned, 10)] {
        let server = ApiServer::new();
        server.on_body(PATCH, MERGE, CORDON).hangs();
        server.on_body(PATCH, MERGE, CORDON).says(200, node("od-1", "6"));
        let mut write = server.permit(60);
        write.lane = lane;
        let began = tokio::time::Instant::now();
        let written = server.cluster.write_node(&od_1(Some("5")), &cordon(), &write).await.unwrap();
        assert!(matches!(written, Written::Applied(_)), "{written:?}");
        assert_eq!(began.elapsed().as_secs(), seconds);
    }
}

/// The core tries again with the version that comes back.
#[tokio::test(start_paused = true)]
async fn a_forced_cordon_of_an_older_version_is_answered_with_the_node_as_it_is_and_without_a_pause() {
    let server = ApiServer::new();
    server.on_body(PATCH, MERGE, CORDON).says(409, status(409, "Conflict", "the object has been modified"));
    server.on("GET /api/v1/nodes/od-1").says(200, node("od-1", "6"));
    let mut write = server.permit(60);
    write.lane = Lane::Forced;
    let began = tokio::time::Instant::now();
    let written = server.cluster.write_node(&od_1(Some("5")), &cordon(), &write).await.unwrap();
    let Written::Conflict(now) = written else { panic!("{written:?}") };
    assert_eq!((now.resource_version.as_str(), began.elapsed()), ("6", Duration::ZERO));
}
