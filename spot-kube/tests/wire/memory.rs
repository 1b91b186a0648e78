//! The cluster's memory.

use serde_json::json;
use spot_core::claim::BackOff;
use spot_core::error::ErrorClass;
use spot_core::memory::{Exhaustion, Memory, Retired};
use spot_core::node::Effect;
use spot_core::placement::Shape;
use spot_core::ports::Cluster;

use crate::server::{ApiServer, said, status};

const READ: &str = "GET /api/v1/namespaces/ours/configmaps/memory";
const CREATE: &str = "POST /api/v1/namespaces/ours/configmaps?fieldManager=spot-migrator";
const PATCH: &str = "PATCH /api/v1/namespaces/ours/configmaps/memory?fieldManager=spot-migrator";

fn full(version: Option<&str>) -> Memory {
    let until = "2026-01-01T02:00:00Z".parse().unwrap();
    Memory {
        exhausted: Some(Exhaustion {
            since: "2026-01-01T01:00:00Z".parse().unwrap(),
            back_off: BackOff { until, count: 3 },
        }),
        retired: Some(Retired { day: "2026-01-01".parse().unwrap(), nodes: 4 }),
        paused: true,
        shapes: vec![Shape::new(
            [("zone".to_owned(), "a".to_owned())],
            [("spot".to_owned(), String::new(), Effect::NoSchedule)],
        )],
        version: version.map(str::to_owned),
    }
}

const DATA: &str = concat!(
    r#"{"exhausted":"{\"since\":\"2026-01-01T01:00:00Z\",\"until\":\"2026-01-01T02:00:00Z\",\"count\":3}","#,
    r#""paused":"true","retired":"{\"day\":\"2026-01-01\",\"nodes\":4}","#,
    r#""shapes":"[{\"labels\":{\"zone\":\"a\"},\"taints\":[[\"spot\",\"\",\"NoSchedule\"]]}]"}"#,
);

#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_recalled() {
    let server = ApiServer::new();
    let head = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"memory","namespace":"ours""#;
    let stored = |version: &str| format!(r#"{head},"resourceVersion":"{version}"}},"data":{DATA}}}"#);
    server.on_body(CREATE, "application/json", &format!("{head}}},\"data\":{DATA}}}")).says(201, stored("7"));
    server.on(READ).says(200, stored("7"));
    let conditional = format!(r#"{head},"resourceVersion":"7"}},"data":{DATA}}}"#);
    server.on_body(PATCH, "application/merge-patch+json", &conditional).says(200, stored("8"));

    let write = server.permit(5);
    assert_eq!(server.cluster.remember(&full(None), &write).await.unwrap(), full(Some("7")));
    assert_eq!(server.cluster.recall(server.within(5)).await.unwrap(), full(Some("7")));
    assert_eq!(server.cluster.remember(&full(Some("7")), &write).await.unwrap(), full(Some("8")));
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_taken_off_and_what_others_wrote_stays() {
    let server = ApiServer::new();
    let body = concat!(
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"memory","namespace":"ours","resourceVersion":"7"},"#,
        r#""data":{"exhausted":null,"paused":null,"retired":null,"shapes":null}}"#,
    );
    let after = json!({"metadata": {"resourceVersion": "8"}, "data": {"note": "do not touch"}});
    server.on_body(PATCH, "application/merge-patch+json", body).says(200, after);
    let nothing = Memory { version: Some("7".to_owned()), ..Memory::default() };
    let now = server.cluster.remember(&nothing, &server.permit(5)).await.unwrap();
    assert_eq!(now, Memory { version: Some("8".to_owned()), ..Memory::default() });
}

#[tokio::test(start_paused = true)]
async fn a_missing_or_unreadable_memory_is_an_empty_one() {
    let server = ApiServer::new();
    server.on(READ).says(404, status(404, "NotFound", "configmaps \"memory\" not found"));
    assert_eq!(server.cluster.recall(server.within(5)).await.unwrap(), Memory::default());

    let data = json!({"paused": "perhaps", "exhausted": "{", "retired": "{\"day\":\"tomorrow\",\"nodes\":1}",
        "shapes": "[{\"labels\":{},\"taints\":[[\"spot\",\"\",\"Sometimes\"]]}]"});
    server.on(READ).says(200, json!({"metadata": {"resourceVersion": "7"}, "data": data}));
    let recalled = server.cluster.recall(server.within(5)).await.unwrap();
    assert_eq!(recalled, Memory { version: Some("7".to_owned()), ..Memory::default() });
}

#[tokio::test(start_paused = true)]
async fn a_memory_that_somebody_else_wrote_is_not_overwritten() {
    let server = ApiServer::new();
    let body = |version: &str| {
        let head = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"memory","namespace":"ours""#;
        format!("{head}{version}}},\"data\":{DATA}}}")
    };
    server.on_body(CREATE, "application/json", &body("")).says(409, status(409, "AlreadyExists", "there is one"));
    let patch = body(r#","resourceVersion":"7""#);
    let merge = "application/merge-patch+json";
    server.on_body(PATCH, merge, &patch).says(409, status(409, "Conflict", "modified"));
    server.on_body(PATCH, merge, &patch).says(404, status(404, "NotFound", "gone"));
    for version in [None, Some("7"), Some("7")] {
        let error = server.cluster.remember(&full(version), &server.permit(5)).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Transient);
        assert!(said(&error).contains("somebody else wrote it"), "{}", said(&error));
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_missing_is_named_and_nobody_is_blamed() {
    let server = ApiServer::new();
    let head = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"memory","namespace":"ours""#;
    let missing = status(404, "NotFound", "namespaces \"ours\" not found");
    server.on_body(CREATE, "application/json", &format!("{head}}},\"data\":{DATA}}}")).says(404, missing);
    let error = server.cluster.remember(&full(None), &server.permit(5)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
    let said = said(&error);
    assert!(said.contains("namespaces \"ours\" not found") && !said.contains("somebody else"), "{said}");
}
