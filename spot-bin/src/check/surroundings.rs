//! What a migrator finds around it: the API server's version and clock, who leads, what is remembered, and the
//! autoscaler that buys its nodes. Asking changes nothing; what is found is told by functions without I/O.

use std::time::Duration;

use http::header::DATE;
use http_body_util::BodyExt as _;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::client::Body;
use kube::{Api, Client};
use spot_core::error::chain;
use spot_core::memory::Memory;
use spot_core::ports::{Clock, Cluster as _};
use tokio::time::timeout;

use super::{Finding, Subject, autoscaler, lease};
use crate::config::LeaderElection;
use crate::connection::Connection;

/// How long each question may take.
const ASKING: Duration = Duration::from_secs(10);

/// The oldest Kubernetes that is tested against.
const OLDEST: u32 = 33;

/// More than this, and what is logged in one place is hard to compare with another.
const NOTICEABLE: SignedDuration = SignedDuration::from_secs(5);

/// What one answer of the API server tells.
struct Met {
    /// Or why it does not tell.
    version: Result<Info, String>,
    /// Ours, and its own.
    times: Option<(Timestamp, Timestamp)>,
}

/// Everything, as far as it may be looked at.
pub(super) async fn findings(connection: &Connection, election: &LeaderElection) -> Vec<Finding> {
    let client = &connection.client;
    let namespace = connection.namespace().ok();
    let by = connection.clock.instant() + ASKING;
    let (met, lease, memory, autoscalers) = tokio::join!(
        answered(met(client, connection.clock.as_ref())),
        async {
            let namespace = namespace.filter(|_| election.enabled)?;
            let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
            Some(answered(leases.get_opt(&election.lease_name)).await)
        },
        connection.cluster.recall(by),
        autoscaler::findings(client),
    );
    let now = connection.clock.now();
    let mut findings = match met {
        Ok(met) => of_server(&met, election),
        Err(error) => vec![no_version(&error)],
    };
    // That the right is missing is told with the others.
    if let Some(Ok(found)) = lease {
        findings.push(lease::finding(found.as_ref(), election, now));
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
    findings.extend(autoscalers);
    findings
}

/// An answer in time.
pub(super) async fn answered<T>(asked: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match timeout(ASKING, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(status.message),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_elapsed) => Err(format!("no answer within {} s", ASKING.as_secs())),
    }
}

/// The API server's version, and what time it is here and there, if it says so, as its answer comes.
async fn met(client: &Client, clock: &dyn Clock) -> Result<Met, kube::Error> {
    let request = http::Request::get("/version").body(Body::empty()).map_err(kube::Error::HttpError)?;
    let response = client.send(request).await?;
    let ours = clock.now();
    let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
    let times = date.and_then(|date| rfc2822::parse(date).ok()).map(|date| (ours, date.timestamp()));
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    let version = if status.is_success() {
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    } else {
        Err(format!("it answers {status}"))
    };
    Ok(Met { version, times })
}

fn of_server(met: &Met, election: &LeaderElection) -> Vec<Finding> {
    let version = match &met.version {
        Ok(info) => version(&info.git_version, &info.minor),
        Err(error) => no_version(error),
    };
    let clock = met.times.map(|(ours, theirs)| skew(ours, theirs, election));
    std::iter::once(version).chain(clock).collect()
}

fn no_version(why: &str) -> Finding {
    let detail = format!("the API server's version is not known: {why}");
    Finding::advice(
        Subject::Cluster,
        detail,
        "try again; role `system:public-info-viewer` lets every account read `/version`",
    )
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

fn remembered(memory: &Memory, now: Timestamp) -> Vec<Finding> {
    let advice = |detail: String, remedy| Finding::advice(Subject::State, detail, remedy);
    let paused = memory.paused.then(|| advice("planned work is paused".to_owned(), "`spot-migrator resume` goes on"));
    let exhausted = memory.exhausted_until(now).map(|until| {
        let remedy = "wait: a new spot node ends it at once; diversify the spot pool's instance types";
        advice(format!("spot ran out, and no run begins before {until}"), remedy)
    });
    paused.into_iter().chain(exhausted).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
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
}
