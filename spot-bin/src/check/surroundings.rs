//! What a migrator finds around it: the API server's version and clock, who leads, what is remembered, and the
//! autoscaler that buys its nodes. Asking changes nothing; what is found is told by functions without I/O.

use std::time::Duration;

use http::header::DATE;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client, ResourceExt as _};
use spot_core::error::chain;
use spot_core::memory::Memory;
use spot_core::ports::{Clock, Cluster as _};
use tokio::time::timeout;

use super::{Finding, Subject};
use crate::config::LeaderElection;
use crate::connection::Connection;

/// How long each question may take.
const ASKING: Duration = Duration::from_secs(10);

/// The oldest Kubernetes that is tested against.
const OLDEST: u32 = 33;

/// More than this, and what is logged in one place is hard to compare with another.
const NOTICEABLE: SignedDuration = SignedDuration::from_secs(5);

/// By which labels cluster-autoscaler's Deployments are found: the charts' own, and those of its examples.
const AUTOSCALERS: [&str; 3] = [
    "app.kubernetes.io/name in (aws-cluster-autoscaler,cluster-autoscaler,clusterapi-cluster-autoscaler)",
    "app=cluster-autoscaler",
    "k8s-app=cluster-autoscaler",
];

/// Everything, as far as it may be looked at.
pub(super) async fn findings(connection: &Connection, election: &LeaderElection) -> Vec<Finding> {
    let client = &connection.client;
    let namespace = connection.namespace().ok();
    let by = connection.clock.instant() + ASKING;
    let (version, clock, lease, memory, autoscalers) = tokio::join!(
        answered(client.apiserver_version()),
        answered(the_times(client, connection.clock.as_ref())),
        async {
            let namespace = namespace.filter(|_| election.enabled)?;
            let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
            Some(answered(leases.get_opt(&election.lease_name)).await)
        },
        connection.cluster.recall(by),
        autoscalers(client),
    );
    let now = connection.clock.now();
    let mut findings = vec![match version {
        Ok(info) => self::version(&info.git_version, &info.minor),
        Err(error) => Finding::advice(Subject::Cluster, format!("its version is not known: {error}"), "try again"),
    }];
    match clock {
        Ok(Some((ours, theirs))) => findings.push(skew(ours, theirs, election)),
        Ok(None) => {}
        Err(error) => {
            let detail = format!("the API server's clock is not known: {error}");
            findings.push(Finding::advice(Subject::Clock, detail, "try again"));
        }
    }
    // That the right is missing is told with the others.
    if let Some(Ok(found)) = lease {
        findings.push(self::lease(found.as_ref(), election, now));
    }
    if namespace.is_some() {
        match memory {
            Ok(memory) => findings.extend(remembered(&memory, now)),
            Err(error) => {
                let detail = format!("what is remembered could not be read: {}", chain(&error));
                findings.push(Finding::advice(Subject::State, detail, "try again"));
            }
        }
    }
    findings.extend(autoscalers.iter().map(autoscaler));
    findings
}

/// An answer in time.
async fn answered<T>(asked: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match timeout(ASKING, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_elapsed) => Err(format!("no answer within {} s", ASKING.as_secs())),
    }
}

/// What time it is here and by the API server, if that says so, as its answer comes.
async fn the_times(client: &Client, clock: &dyn Clock) -> Result<Option<(Timestamp, Timestamp)>, kube::Error> {
    let request = http::Request::get("/version").body(Body::empty()).map_err(kube::Error::HttpError)?;
    let response = client.send(request).await?;
    let ours = clock.now();
    let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
    Ok(date.and_then(|date| rfc2822::parse(date).ok()).map(|date| (ours, date.timestamp())))
}

/// The cluster-autoscalers that may be seen; none where that is not allowed.
async fn autoscalers(client: &Client) -> Vec<Deployment> {
    let deployments: Api<Deployment> = Api::all(client.clone());
    for labels in AUTOSCALERS {
        let wanted = ListParams::default().labels(labels).limit(10);
        match answered(deployments.list(&wanted)).await {
            Ok(found) if !found.items.is_empty() => return found.items,
            Ok(_none) => {}
            Err(_unseen) => return Vec::new(),
        }
    }
    Vec::new()
}

fn version(version: &str, minor: &str) -> Finding {
    let number: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let detail = format!("the API server is {version}");
    match number.parse::<u32>() {
        Ok(number) if number < OLDEST => {
            Finding::advice(Subject::Cluster, detail, "upgrade it: nothing older than 1.33 is tested with")
        }
        Ok(_) | Err(_) => Finding::ok(Subject::Cluster, detail),
    }
}

/// How far the clocks are apart. A date has whole seconds, and an answer takes a while.
fn skew(ours: Timestamp, theirs: Timestamp, election: &LeaderElection) -> Finding {
    let apart = ours.duration_since(theirs).abs();
    let detail = format!("this clock and the API server's are {} s apart", apart.as_secs());
    let lease = SignedDuration::try_from(election.lease_duration).unwrap_or(SignedDuration::MAX);
    let remedy = "set the clocks by NTP: schedule, windows and taints go by them";
    if apart > lease {
        Finding::failure(Subject::Clock, detail, Some(remedy))
    } else if apart > NOTICEABLE {
        Finding::advice(Subject::Clock, detail, remedy)
    } else {
        Finding::ok(Subject::Clock, "this clock and the API server's agree")
    }
}

fn lease(found: Option<&Lease>, election: &LeaderElection, now: Timestamp) -> Finding {
    let name = &election.lease_name;
    let spec = found.and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let Some(holder) = holder else {
        let why = if found.is_some() { "nobody holds it" } else { "it is not there yet" };
        return Finding::ok(Subject::Lease, format!("lease {name} is free: {why}"));
    };
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
    let age = renewed.map(|renewed| now.duration_since(renewed));
    let lasts = spec.and_then(|spec| spec.lease_duration_seconds).map_or(0, i64::from);
    let Some(age) = age else {
        return Finding::ok(Subject::Lease, format!("lease {name} is held by {holder}"));
    };
    let seconds = age.as_secs().max(0);
    if seconds > lasts {
        return Finding::ok(Subject::Lease, format!("lease {name} is free: {holder} renewed it last {seconds} s ago"));
    }
    Finding::ok(Subject::Lease, format!("{holder} leads: it renewed lease {name} {seconds} s ago"))
}

fn remembered(memory: &Memory, now: Timestamp) -> Vec<Finding> {
    let advice = |detail: String, remedy| Finding::advice(Subject::State, detail, remedy);
    let paused = memory.paused.then(|| advice("planned work is paused".to_owned(), "`spot-migrator resume` goes on"));
    let exhausted = memory.exhausted_until(now).map(|until| {
        let remedy = "wait: a new spot node ends it at once; diversify the spot pool's instance types";
        advice(format!("spot ran out, and no run begins before {until}"), remedy)
    });
    paused.into_iter().chain(exhausted).collect()
}

fn autoscaler(deployment: &Deployment) -> Finding {
    let name = format!("{}/{}", deployment.namespace().unwrap_or_default(), deployment.name_any());
    let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let words = containers.iter().flat_map(|container| container.command.iter().chain(&container.args).flatten());
    match expander(words.map(String::as_str)) {
        // The others only choose among what the first one leaves.
        Some(expander) if expander.split(',').take(1).any(|one| ["priority", "price", "grpc"].contains(&one)) => {
            Finding::ok(Subject::Autoscaler, format!("{name} chooses groups by `--expander={expander}`"))
        }
        found => Finding::advice(
            Subject::Autoscaler,
            format!("{name} chooses groups by `--expander={}`, spot or not", found.unwrap_or("least-waste")),
            "give it `--expander=priority`, with the spot groups first: it buys on-demand nodes again otherwise",
        ),
    }
}

/// The value of that flag, in one word or in two, the last one if it is there several times.
fn expander<'w>(words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let mut found = None;
    let mut is_next = false;
    for word in words {
        let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or_default();
        if is_next {
            found = Some(word);
        } else if let Some(value) = flag.strip_prefix("expander=") {
            found = Some(value);
        }
        is_next = flag == "expander";
    }
    found
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use spot_core::claim::BackOff;
    use spot_core::memory::Exhaustion;

    use super::super::Verdict;
    use super::*;

    fn election() -> LeaderElection {
        let keys = [("cloudProvider.name".to_owned(), "node-object".to_owned())].into();
        crate::config::Config::load(None, [], &keys).expect("the defaults are right").leader_election
    }

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().expect("it is a time")
    }

    #[rstest]
    #[case::current("36", Verdict::Ok)]
    #[case::oldest("33", Verdict::Ok)]
    #[case::of_a_provider("33+", Verdict::Ok)]
    #[case::too_old("32", Verdict::Advice)]
    #[case::unreadable("", Verdict::Ok)]
    fn what_is_older_than_what_is_tested_is_told(#[case] minor: &str, #[case] verdict: Verdict) {
        let found = version("v1.36.0", minor);
        assert_eq!((found.verdict, found.detail.as_str()), (verdict, "the API server is v1.36.0"));
    }

    #[rstest]
    #[case::together(2, Verdict::Ok)]
    #[case::behind(-3, Verdict::Ok)]
    #[case::apart(6, Verdict::Advice)]
    #[case::apart_the_other_way(-15, Verdict::Advice)]
    #[case::further_than_a_lease_lasts(16, Verdict::Failure)]
    fn clocks_that_are_apart_are_told(#[case] seconds: i64, #[case] verdict: Verdict) {
        let found = skew(now() + SignedDuration::from_secs(seconds), now(), &election());
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert_eq!(found.remedy.is_some(), verdict != Verdict::Ok, "{found:?}");
    }

    #[rstest]
    #[case::none(json!(null), "it is not there yet")]
    #[case::given_back(json!({"holderIdentity": ""}), "nobody holds it")]
    #[case::led(
        json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T11:59:50.000000Z"}),
        "a leads: it renewed lease spot-migrator 10 s ago"
    )]
    #[case::run_out(
        json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T11:59:00.000000Z"}),
        "is free: a renewed it last 60 s ago"
    )]
    #[case::of_a_clock_ahead(
        json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T12:00:30.000000Z"}),
        "a leads: it renewed lease spot-migrator 0 s ago"
    )]
    #[case::without_a_time(json!({"holderIdentity": "a"}), "is held by a")]
    fn it_is_told_who_leads(#[case] spec: Value, #[case] said: &str) {
        let found = (!spec.is_null()).then(|| serde_json::from_value(json!({"spec": spec})).expect("it is a Lease"));
        let found = lease(found.as_ref(), &election(), now());
        assert!(found.verdict == Verdict::Ok && found.detail.contains(said), "{found:?}");
    }

    #[test]
    fn a_pause_and_a_shortage_are_told() {
        assert_eq!(remembered(&Memory::default(), now()), []);
        let back_off = BackOff { until: now() + SignedDuration::from_secs(60), count: 1 };
        let exhausted = Some(Exhaustion { since: now(), back_off });
        let found = remembered(&Memory { paused: true, exhausted, ..Memory::default() }, now());
        assert!(found.iter().all(|finding| finding.verdict == Verdict::Advice), "{found:?}");
        assert!(found[0].detail.contains("paused") && found[1].detail.contains("12:01:00Z"), "{found:?}");
        let later = now() + SignedDuration::from_secs(61);
        assert_eq!(remembered(&Memory { exhausted, ..Memory::default() }, later), []);
    }

    #[rstest]
    #[case::by_priority(&["./cluster-autoscaler", "--expander=priority"], Verdict::Ok)]
    #[case::in_two_words(&["--expander", "priority"], Verdict::Ok)]
    #[case::first_of_several(&["--expander=priority,least-waste"], Verdict::Ok)]
    #[case::last_of_several(&["--expander=least-waste,priority"], Verdict::Advice)]
    #[case::the_last_counts(&["--expander=priority", "--expander=random"], Verdict::Advice)]
    #[case::by_waste(&["--expander=least-waste"], Verdict::Advice)]
    #[case::by_default(&["./cluster-autoscaler"], Verdict::Advice)]
    fn an_autoscaler_that_does_not_prefer_spot_is_told(#[case] words: &[&str], #[case] verdict: Verdict) {
        let deployment = json!({
            "metadata": {"name": "ca", "namespace": "kube-system"},
            "spec": {
                "selector": {},
                "template": {"spec": {"containers": [{"name": "ca", "command": &words[..1], "args": &words[1..]}]}},
            },
        });
        let found = autoscaler(&serde_json::from_value(deployment).expect("it is a Deployment"));
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.detail.starts_with("kube-system/ca "), "{found:?}");
    }
}
