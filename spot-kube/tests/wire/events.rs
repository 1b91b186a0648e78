//! Events.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use spot_core::claim::InstanceId;
use spot_core::drain::plan::Loss;
use spot_core::error::Obstacle;
use spot_core::exposure::Exposed;
use spot_core::interruption::{Ignored, NoticeKind, Source, Told};
use spot_core::node::{NodeRef, Uid};
use spot_core::pod::PodRef;
use spot_core::ports::{Clock as _, Observer};
use spot_core::progress::{Answered, Progress, Step};
use spot_core::reason::{Reason, ReasonKind};
use spot_kube::Events;

use crate::server::{ApiServer, status};

const ON_NODES: &str = "POST /apis/events.k8s.io/v1/namespaces/default/events";
const ON_PODS: &str = "POST /apis/events.k8s.io/v1/namespaces/shop/events";
const JSON: &str = "application/json";

fn at() -> Timestamp {
    "2026-01-01T00:00:00.5Z".parse().unwrap()
}

fn a() -> NodeRef {
    NodeRef { name: "a".into(), uid: Uid::new("uid-a"), resource_version: None }
}

fn body(namespace: &str, regarding: &str, name: &str, action: &str, reason: &str, note: &str, kind: &str) -> String {
    format!(
        concat!(
            r#"{{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{{"generateName":"{name}-","namespace":"{namespace}"}},"#,
            r#""eventTime":"2026-01-01T00:00:00.500000Z","reportingController":"spot-migrator.io/spot-migrator","#,
            r#""reportingInstance":"me","action":"{action}","reason":"{reason}","regarding":{regarding},"note":"{note}","type":"{kind}"}}"#,
        ),
        name = name,
        namespace = namespace,
        action = action,
        reason = reason,
        regarding = regarding,
        note = note,
        kind = kind,
    )
}

const NODE_A: &str = r#"{"apiVersion":"v1","kind":"Node","name":"a","uid":"uid-a"}"#;

/// Sends all that was queued.
async fn published(server: &ApiServer, observe: impl FnOnce(&Events)) -> u64 {
    let (events, worker) = Events::new(server.client(), Arc::clone(&server.clock) as _, "me");
    observe(&events);
    let dropped = events.dropped();
    drop(events);
    worker.run().await;
    dropped
}

#[tokio::test(start_paused = true)]
async fn steps_are_published_on_the_node() {
    let server = ApiServer::new();
    let note = "cordoned: its pods are moved off it";
    server.on_body(ON_NODES, JSON, &body("default", NODE_A, "a", "Claim", "Claimed", note, "Normal")).says(201, "{}");
    let note = "released, because its drain failed: 1 pod could not be evicted";
    server
        .on_body(ON_NODES, JSON, &body("default", NODE_A, "a", "Release", "Released", note, "Warning"))
        .says(201, "{}");
    let why = "1 pod could not be evicted".to_owned();
    let dropped = published(&server, |events| {
        events.observe(at(), &Progress::StepStarted { node: a(), step: Step::Claim });
        events.observe(at(), &Progress::StepDone { node: a(), step: Step::Claim, took: Duration::ZERO });
        events.observe(at(), &Progress::Released { node: a(), step: Step::Drain, why });
    })
    .await;
    assert_eq!(dropped, 0);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_pod_is_told_of_on_node_and_pod_and_not_again_for_a_while() {
    let server = ApiServer::new();
    let pod = PodRef { namespace: "shop".into(), name: "db-0".into(), uid: Uid::new("u1") };
    let note = "pod shop/db-0 has been in the way for 60 s: multiple_budgets";
    server
        .on_body(ON_NODES, JSON, &body("default", NODE_A, "a", "Drain", "PodBlocked", note, "Warning"))
        .says(201, "{}");
    let note = "can't be moved off node a for 60 s: multiple_budgets";
    let regarding = r#"{"apiVersion":"v1","kind":"Pod","namespace":"shop","name":"db-0","uid":"u1"}"#;
    server
        .on_body(ON_PODS, JSON, &body("shop", regarding, "db-0", "Drain", "PodBlocked", note, "Warning"))
        .says(201, "{}");
    published(&server, |events| {
        let blocked = Progress::PodBlocked {
            node: a(),
            pod,
            obstacle: Obstacle::MultipleBudgets(Vec::new()),
            since: Duration::from_mins(1),
        };
        events.observe(at(), &blocked);
        events.observe(at() + Duration::from_secs(299), &blocked);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_told_why_it_goes_unless_a_crowd_would_crowd_out_what_is_told_of_nodes() {
    let server = ApiServer::new();
    let pod = PodRef { namespace: "shop".into(), name: "db-0".into(), uid: Uid::new("u1") };
    let note = "moved off node a, which is being retired";
    let regarding = r#"{"apiVersion":"v1","kind":"Pod","namespace":"shop","name":"db-0","uid":"u1"}"#;
    for _ in 0..128 {
        server
            .on_body(ON_PODS, JSON, &body("shop", regarding, "db-0", "Drain", "Evicted", note, "Normal"))
            .says(201, "{}");
    }
    let note = "the node and its machine are gone";
    server.on_body(ON_NODES, JSON, &body("default", NODE_A, "a", "Retire", "Retired", note, "Normal")).says(201, "{}");
    let dropped = published(&server, |events| {
        let answered = |answered| Progress::Evicted { node: a(), pod: pod.clone(), loses: None, answered };
        events.observe(at(), &answered(Answered::Blocked));
        for _ in 0..200 {
            events.observe(at(), &answered(Answered::Accepted));
        }
        events.observe(at(), &Progress::Retired { node: a() });
    })
    .await;
    assert_eq!(dropped, 200 - 128);
}

#[tokio::test(start_paused = true)]
async fn rb_35_what_is_lost_with_a_pod_is_a_warning_on_it() {
    let server = ApiServer::new();
    let pod = PodRef { namespace: "shop".into(), name: "db-0".into(), uid: Uid::new("u1") };
    let regarding = r#"{"apiVersion":"v1","kind":"Pod","namespace":"shop","name":"db-0","uid":"u1"}"#;
    for lost in ["no controller brings it back", "what is in its emptyDir volumes is lost"] {
        let note = format!("moved off node a, which is being retired: {lost}");
        server
            .on_body(ON_PODS, JSON, &body("shop", regarding, "db-0", "Drain", "Evicted", &note, "Warning"))
            .says(201, "{}");
    }
    published(&server, |events| {
        for loses in [Loss::Pod, Loss::LocalData] {
            let (pod, loses) = (pod.clone(), Some(loses));
            let answered = Answered::Accepted;
            events.observe(at(), &Progress::Evicted { node: a(), pod, loses, answered });
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_left_alone_says_why() {
    let server = ApiServer::new();
    let note = "may not be retired now: group_at_minimum: group od keeps 3; termination_protected";
    let refused = body("default", NODE_A, "a", "Judge", "Refused", note, "Normal");
    server.on_body(ON_NODES, JSON, &refused).says(201, "{}");
    let at_minimum = Reason::Cloud(ReasonKind::GroupAtMinimum, "group od keeps 3".to_owned());
    let reasons = vec![at_minimum, Reason::Plain(ReasonKind::TerminationProtected)];
    published(&server, |events| events.observe(at(), &Progress::Refused { node: a(), reasons })).await;
}

#[tokio::test(start_paused = true)]
async fn a_leftover_that_did_not_fail_is_released_without_a_warning() {
    let server = ApiServer::new();
    let note = "released, to go another time: no window is open";
    let postponed = body("default", NODE_A, "a", "Release", "Postponed", note, "Normal");
    server.on_body(ON_NODES, JSON, &postponed).says(201, "{}");
    let why = "no window is open".to_owned();
    published(&server, |events| events.observe(at(), &Progress::Postponed { node: a(), why })).await;
}

#[tokio::test(start_paused = true)]
async fn rb_41_a_workload_that_loses_all_its_ready_pods_is_warned_of_on_one_of_them() {
    let server = ApiServer::new();
    let pod = |name: &str| PodRef { namespace: "shop".into(), name: name.into(), uid: Uid::new("u1") };
    let note = "all 2 ready pods of a workload move at once, and no budget keeps any of them: shop/db-0, shop/db-1";
    let regarding = r#"{"apiVersion":"v1","kind":"Pod","namespace":"shop","name":"db-0","uid":"u1"}"#;
    server
        .on_body(ON_PODS, JSON, &body("shop", regarding, "db-0", "Drain", "Exposed", note, "Warning"))
        .says(201, "{}");
    published(&server, |events| {
        let exposed = Exposed { controller: Uid::new("set"), pods: vec![pod("db-0"), pod("db-1")] };
        events.observe(at(), &Progress::Exposed { exposed });
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_note_is_cut_between_characters_to_what_the_server_takes() {
    let server = ApiServer::new();
    let start = "still on its way out: ";
    let note = format!("{start}{}", "ä".repeat((1024 - start.len()) / 2));
    server
        .on_body(ON_NODES, JSON, &body("default", NODE_A, "a", "Delete", "Departing", &note, "Warning"))
        .says(201, "{}");
    published(&server, |events| {
        events.observe(at(), &Progress::Departing { node: a(), why: "ä".repeat(2000) });
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_go_at_once_and_fifty_a_second_after_that() {
    let note = "the node and its machine are gone";
    let retired = body("default", NODE_A, "a", "Retire", "Retired", note, "Normal");
    let publishing = async |count: usize| {
        let server = ApiServer::new();
        for _ in 0..count {
            server.on_body(ON_NODES, JSON, &retired).says(201, "{}");
        }
        let began = server.clock.instant();
        let all = |events: &Events| (0..count).for_each(|_| events.observe(at(), &Progress::Retired { node: a() }));
        assert_eq!(published(&server, all).await, 0);
        server.clock.instant().since(began)
    };
    assert_eq!(publishing(100).await, Duration::ZERO);
    assert_eq!(publishing(200).await, Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_published_is_dropped_and_counted_and_holds_nothing_up() {
    let server = ApiServer::new();
    let note = "the node and its machine are gone";
    let retired = body("default", NODE_A, "a", "Retire", "Retired", note, "Normal");
    server.on_body(ON_NODES, JSON, &retired).says(403, status(403, "Forbidden", "no"));
    server.on_body(ON_NODES, JSON, &retired).hangs();
    for _ in 2..1024 {
        server.on_body(ON_NODES, JSON, &retired).says(201, "{}");
    }
    let (events, worker) = Events::new(server.client(), Arc::clone(&server.clock) as _, "me");
    for _ in 0..1100 {
        events.observe(at(), &Progress::Retired { node: a() });
    }
    assert_eq!(events.dropped(), 1100 - 1024);
    drop(events);
    worker.run().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_done_about_a_notice_is_published_on_the_node() {
    let (after, kind) = (Duration::from_millis(240), NoticeKind::Interruption);
    let lead = "its spot machine is being taken back";
    let soon = "its spot machine may be taken back soon";
    for (told, action, reason, note, severity) in [
        (
            Told::Cordoned { node: a(), kind, after },
            "Cordon",
            "SpotInterruption",
            format!("{lead}: cordoned 0.2 s after the notice"),
            "Warning",
        ),
        (
            Told::Cordoned { node: a(), kind: NoticeKind::ScheduledChange, after },
            "Cordon",
            "ScheduledChange",
            "its machine is scheduled to be retired, rebooted or worked on: cordoned 0.2 s after the notice".to_owned(),
            "Warning",
        ),
        (
            Told::Emptied { node: a(), kind, after: Duration::from_secs(31) },
            "Drain",
            "Emptied",
            format!("{lead}: its pods are gone, 31.0 s after the notice"),
            "Normal",
        ),
        (
            Told::NotEmptied { node: a(), kind, why: "1 pod has a finalizer".to_owned() },
            "Drain",
            "NotEmptied",
            format!("{lead}: not all of its pods could be moved in time: 1 pod has a finalizer"),
            "Warning",
        ),
        (
            Told::Softened { node: a() },
            "Taint",
            "RebalanceRecommendation",
            format!("{soon}: new pods are kept off it where there is other room"),
            "Normal",
        ),
        (
            Told::Hardened { node: a() },
            "Untaint",
            "RebalanceOver",
            "nothing followed the recommendation: new pods are not kept off it any longer".to_owned(),
            "Normal",
        ),
        (
            Told::Returned { node: a(), why: "it was started again" },
            "Release",
            "Returned",
            "takes pods again: it was started again".to_owned(),
            "Normal",
        ),
    ] {
        let server = ApiServer::new();
        let event = body("default", NODE_A, "a", action, reason, &note, severity);
        server.on_body(ON_NODES, JSON, &event).says(201, "{}");
        published(&server, |events| events.observe(at(), &Progress::Interruption(told))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_ones_node_is_not_published() {
    let server = ApiServer::new();
    let source = Source::Queue;
    published(&server, |events| {
        for told in [
            Told::Polled { source, oldest: None },
            Told::Received { source, kind: NoticeKind::Rebalance, instance: InstanceId::new("i-1") },
            Told::Ignored { source, why: Ignored::Foreign, what: "i-2".to_owned() },
            Told::Held { until: at() },
        ] {
            events.observe(at(), &Progress::Interruption(told));
        }
    })
    .await;
}

/// Two hundred machines are taken back at once, and the evictions of their pods are told of in between.
#[tokio::test(start_paused = true)]
async fn nothing_that_happens_to_two_hundred_nodes_at_once_is_dropped_for_their_pods() {
    let server = ApiServer::new();
    let kind = NoticeKind::Interruption;
    let pod = PodRef { namespace: "shop".into(), name: "db-0".into(), uid: Uid::new("u1") };
    let regarding = r#"{"apiVersion":"v1","kind":"Pod","namespace":"shop","name":"db-0","uid":"u1"}"#;
    let lead = "its spot machine is being taken back";
    let cordoned = format!("{lead}: cordoned 0.0 s after the notice");
    let emptied = format!("{lead}: its pods are gone, 0.0 s after the notice");
    let evicted = "moved off node a, which is being retired";
    for _ in 0..200 {
        let cordoned = body("default", NODE_A, "a", "Cordon", "SpotInterruption", &cordoned, "Warning");
        server.on_body(ON_NODES, JSON, &cordoned).says(201, "{}");
        let emptied = body("default", NODE_A, "a", "Drain", "Emptied", &emptied, "Normal");
        server.on_body(ON_NODES, JSON, &emptied).says(201, "{}");
        let evicted = body("shop", regarding, "db-0", "Drain", "Evicted", evicted, "Normal");
        server.on_body(ON_PODS, JSON, &evicted).or_not().says(201, "{}");
    }
    let dropped = published(&server, |events| {
        let after = Duration::ZERO;
        let tell = |told| events.observe(at(), &Progress::Interruption(told));
        for _ in 0..200 {
            tell(Told::Cordoned { node: a(), kind, after });
        }
        for _ in 0..2000 {
            let answered = Answered::Accepted;
            events.observe(at(), &Progress::Evicted { node: a(), pod: pod.clone(), loses: None, answered });
        }
        for _ in 0..200 {
            tell(Told::Emptied { node: a(), kind, after });
        }
    })
    .await;
    assert_eq!(dropped, 2000);
}
