//! Evictions: the body, and what each answer means.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::Uid;
use spot_core::pod::{BudgetRef, PodRef};
use spot_core::ports::{Cluster, EvictAnswer, Lane, Leadership, Write};

use crate::server::{ApiServer, Text, said, status, status_because};

const EVICT: &str = "POST /api/v1/namespaces/shop/pods/db-0/eviction";
const JSON: &str = "application/json";
const BODY: &str = concat!(
    r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"db-0","namespace":"shop"},"#,
    r#""deleteOptions":{"preconditions":{"uid":"u1"}}}"#,
);
const REVIEW: &str = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const REVIEW_BODY: &str = concat!(
    r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":"#,
    r#"{"namespace":"shop","group":"","resource":"pods","subresource":"eviction","verb":"create"}}}"#,
);

fn db_0() -> PodRef {
    PodRef { namespace: "shop".into(), name: "db-0".into(), uid: Uid::new("u1") }
}

async fn answered(server: &ApiServer) -> EvictAnswer {
    server.cluster.evict(&db_0(), None, &server.permit(60)).await.unwrap()
}

async fn answer_to(code: u16, body: impl Into<Text>) -> EvictAnswer {
    let server = ApiServer::new();
    server.on_body(EVICT, JSON, BODY).says(code, body);
    answered(&server).await
}

/// `db-0` is evicted twice in vain; meanwhile it is made again elsewhere under the same name.
#[tokio::test(start_paused = true)]
async fn rb_05_every_eviction_carries_the_uid_so_that_a_namesake_is_never_hit() {
    let server = ApiServer::new();
    let budget =
        status_because(429, "TooManyRequests", "DisruptionBudget", "The disruption budget db needs 2 healthy pods");
    server.on_body(EVICT, JSON, BODY).says(429, &budget);
    server.on_body(EVICT, JSON, BODY).says(429, &budget);
    let other = "Operation cannot be fulfilled on pods \"db-0\": Precondition failed: UID in precondition: u1, UID in \
                 object meta: u2";
    server.on_body(EVICT, JSON, BODY).says(409, status(409, "Conflict", other));

    for _ in 0..2 {
        let answer = answered(&server).await;
        assert!(matches!(answer, EvictAnswer::Budget { .. }), "{answer:?}");
    }
    assert_eq!(answered(&server).await, EvictAnswer::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_is_in_whole_seconds() {
    let server = ApiServer::new();
    let body = BODY.replace(r#""deleteOptions":{"#, r#""deleteOptions":{"gracePeriodSeconds":8,"#);
    server.on_body(EVICT, JSON, &body).says(201, json!({"kind": "Status", "status": "Success"}));
    let answer = server.cluster.evict(&db_0(), Some(Duration::from_millis(7_001)), &server.permit(60)).await.unwrap();
    assert_eq!(answer, EvictAnswer::Accepted);
}

#[tokio::test(start_paused = true)]
async fn gone_is_only_what_the_api_server_says_is_gone() {
    assert_eq!(answer_to(404, status(404, "NotFound", "pods \"db-0\" not found")).await, EvictAnswer::Gone);
    for (code, body) in [
        (404, json!("<html>no such page</html>")),
        (404, status(404, "", "page not found")),
        (409, status(409, "Conflict", "the object has been modified")),
    ] {
        let answer = answer_to(code, body).await;
        assert!(matches!(answer, EvictAnswer::ServerError(_)), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_named_and_says_when_to_ask_again() {
    let budget = |name: &str| Some(BudgetRef { namespace: "shop".into(), name: name.into() });
    let with_details = |message: &str| status_because(429, "TooManyRequests", "DisruptionBudget", message);
    let answer =
        answer_to(429, with_details("The disruption budget db needs 2 healthy pods and has 2 currently")).await;
    assert_eq!(answer, EvictAnswer::Budget { budget: budget("db"), retry_after: None });

    let server = ApiServer::new();
    let processed = with_details("The disruption budget \"web\" is still being processed by the server.");
    server.on_body(EVICT, JSON, BODY).says_later(429, 10, processed);
    let retry_after = Some(Duration::from_secs(10));
    assert_eq!(answered(&server).await, EvictAnswer::Budget { budget: budget("web"), retry_after });

    let mut in_details = with_details("Cannot evict pod as it would violate it");
    in_details["details"]["retryAfterSeconds"] = json!(3);
    let retry_after = Some(Duration::from_secs(3));
    assert_eq!(answer_to(429, in_details).await, EvictAnswer::Budget { budget: None, retry_after });
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_is_no_budget() {
    let server = ApiServer::new();
    server.on_body(EVICT, JSON, BODY).says_later(429, 1, "too many requests");
    assert_eq!(answered(&server).await, EvictAnswer::Overloaded { retry_after: Some(Duration::from_secs(1)) });
}

/// Two budgets on one pod are told apart from a server that fails for a while.
#[tokio::test(start_paused = true)]
async fn rb_25_two_budgets_are_told_apart_from_other_500s() {
    let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!(answer_to(500, status(500, "InternalError", two)).await, EvictAnswer::MultipleBudgets);
    let answer = answer_to(500, status(500, "InternalError", "failed calling webhook: EOF")).await;
    let words = "the API server answered 500 InternalError: failed calling webhook: EOF".to_owned();
    assert_eq!(answer, EvictAnswer::ServerError(words));
    assert_eq!(answer_to(201, "{}").await, EvictAnswer::Accepted);
}

/// A webhook denies with 403, then 422, then 429: each is an answer to try again after, never a denied right.
#[tokio::test(start_paused = true)]
async fn rb_27_a_webhook_that_denies_is_told_apart_from_a_missing_right() {
    let denies = "admission webhook \"kafka\" denied the request: moving partitions";
    for (allowed, expected) in
        [(true, EvictAnswer::Webhook(denies.to_owned())), (false, EvictAnswer::Denied(denies.to_owned()))]
    {
        let server = ApiServer::new();
        server.on_body(EVICT, JSON, BODY).says(403, status(403, "Forbidden", denies));
        server.on_body(REVIEW, JSON, REVIEW_BODY).says(201, json!({"status": {"allowed": allowed}}));
        assert_eq!(answered(&server).await, expected);
    }
    assert_eq!(answer_to(422, status(422, "Invalid", denies)).await, EvictAnswer::Invalid(denies.to_owned()));
    let answer = answer_to(429, status(429, "TooManyRequests", denies)).await;
    assert_eq!(answer, EvictAnswer::Overloaded { retry_after: None });
}

#[tokio::test(start_paused = true)]
async fn a_403_that_nobody_can_explain_is_not_final() {
    let server = ApiServer::new();
    server.on_body(EVICT, JSON, BODY).says(403, status(403, "Forbidden", "no"));
    server.on_body(REVIEW, JSON, REVIEW_BODY).says(403, status(403, "Forbidden", "no reviews"));
    let answer = answered(&server).await;
    assert!(matches!(answer, EvictAnswer::Webhook(_)), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_on_its_way_out_is_waited_for() {
    let body = status_because(403, "Forbidden", "NamespaceTerminating", "namespace shop is being terminated");
    assert_eq!(answer_to(403, body).await, EvictAnswer::NamespaceTerminating);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_answer_to_an_eviction_is_an_error() {
    for code in [400, 302] {
        let server = ApiServer::new();
        server.on_body(EVICT, JSON, BODY).says(code, status(code, "", "no"));
        let error = server.cluster.evict(&db_0(), None, &server.permit(60)).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Permanent, "{}", said(&error));
    }
}

/// The token's file changed a moment ago, and is read again within a minute: the drain goes on.
#[tokio::test(start_paused = true)]
async fn rb_48_an_eviction_that_a_replaced_token_held_up_is_to_be_tried_again() {
    let answer = answer_to(401, status(401, "Unauthorized", "the token has expired")).await;
    assert!(matches!(&answer, EvictAnswer::ServerError(said) if said.contains("the token has expired")), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_never_sent_twice() {
    for code in [401, 429, 500, 503, 504] {
        // The server would fail the test at a second request.
        let answer = answer_to(code, "").await;
        assert!(matches!(answer, EvictAnswer::Overloaded { .. } | EvictAnswer::ServerError(_)), "{answer:?}");
    }
    let server = ApiServer::new();
    server.on_body(EVICT, JSON, BODY).hangs();
    let error = server.cluster.evict(&db_0(), None, &server.permit(20)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Timeout);
}

/// Leads as long as it has permits.
struct Follower;

#[async_trait]
impl Leadership for Follower {
    fn check(&self) -> Result<(), PortError> {
        Err(PortError::new(ErrorClass::NotLeader, "the lease may change hands"))
    }
    async fn lost(&self) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_nothing_is_sent() {
    let server = ApiServer::new();
    let write = Write::assume(server.within(60), Arc::new(Follower));
    let error = server.cluster.evict(&db_0(), None, &write).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::NotLeader);
}

/// No more than 64 requests are under way at once, and none is sent when its time is up.
#[tokio::test(start_paused = true)]
async fn hung_evictions_beyond_the_bound_wait_for_a_slot_and_end_at_their_deadline() {
    let server = ApiServer::new();
    for _ in 0..64 {
        server.on_body(EVICT, JSON, BODY).hangs();
    }
    let write = server.permit(20);
    let pod = db_0();
    let all = futures::future::join_all((0..65).map(|_| server.cluster.evict(&pod, None, &write))).await;
    assert_eq!(all.len(), 65);
    assert!(all.iter().all(|answer| answer.as_ref().is_err_and(|error| error.class == ErrorClass::Timeout)));
}

#[tokio::test(start_paused = true)]
async fn a_forced_eviction_that_is_not_answered_is_given_up_after_ten_seconds() {
    let server = ApiServer::new();
    server.on_body(EVICT, JSON, BODY).hangs();
    let mut write = server.permit(60);
    write.lane = Lane::Forced;
    let began = tokio::time::Instant::now();
    let error = server.cluster.evict(&db_0(), None, &write).await.unwrap_err();
    assert_eq!((error.class, began.elapsed().as_secs()), (ErrorClass::Timeout, 10));
}
