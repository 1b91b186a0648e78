//! Who leads, and since when. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;

use super::{Finding, Subject};
use crate::config::LeaderElection;

/// One that ends in order gives its lease back.
const STALE: &str = "see why that process ended or hangs; the next one that runs takes the lease";

/// Who holds the lease, since when, and whether it has run out.
pub(super) fn finding(found: Option<&Lease>, election: &LeaderElection, now: Timestamp) -> Finding {
    let name = &election.lease_name;
    let spec = found.and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let (Some(spec), Some(holder)) = (spec, holder) else {
        let why = if found.is_some() { "nobody holds it" } else { "it is not there yet" };
        return Finding::ok(Subject::Lease, format!("lease {name} is free: {why}"));
    };
    let since = spec.acquire_time.as_ref().map(|time| format!(" since {:.0}", time.0)).unwrap_or_default();
    let Some(renewed) = spec.renew_time.as_ref().map(|time| time.0) else {
        let detail = format!("lease {name} is held by {holder}{since}, who never renewed it");
        return Finding::advice(Subject::Lease, detail, STALE);
    };
    let ago = now.duration_since(renewed).max(SignedDuration::ZERO).as_secs();
    let lasts = spec.lease_duration_seconds.map_or(0, i64::from);
    if ago > lasts {
        let detail = format!(
            "lease {name} has run out: {holder}, who held it{since}, renewed it last {ago} s ago, for {lasts} s"
        );
        return Finding::advice(Subject::Lease, detail, STALE);
    }
    Finding::ok(Subject::Lease, format!("{holder} leads{since}: it renewed lease {name} {ago} s ago"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::Verdict;
    use super::*;

    #[rstest]
    #[case::none(json!(null), Verdict::Ok, "it is not there yet")]
    #[case::given_back(json!({"holderIdentity": ""}), Verdict::Ok, "nobody holds it")]
    #[case::led(
        json!({
            "holderIdentity": "a", "leaseDurationSeconds": 15,
            "acquireTime": "2026-03-01T09:30:00.250000Z", "renewTime": "2026-03-01T11:59:50.000000Z",
        }),
        Verdict::Ok,
        "a leads since 2026-03-01T09:30:00Z: it renewed lease spot-migrator 10 s ago"
    )]
    #[case::run_out(
        json!({
            "holderIdentity": "a", "leaseDurationSeconds": 15,
            "acquireTime": "2026-03-01T09:30:00.000000Z", "renewTime": "2026-03-01T11:59:00.000000Z",
        }),
        Verdict::Advice,
        "has run out: a, who held it since 2026-03-01T09:30:00Z, renewed it last 60 s ago, for 15 s"
    )]
    #[case::at_its_last_second(
        json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T11:59:45.000000Z"}),
        Verdict::Ok,
        "a leads: it renewed"
    )]
    #[case::of_a_clock_ahead(
        json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T12:00:30.000000Z"}),
        Verdict::Ok,
        "a leads: it renewed lease spot-migrator 0 s ago"
    )]
    #[case::without_a_time(json!({"holderIdentity": "a"}), Verdict::Advice, "is held by a, who never renewed it")]
    fn it_is_told_who_leads_since_when_and_whether_that_has_run_out(
        #[case] spec: Value,
        #[case] verdict: Verdict,
        #[case] said: &str,
    ) {
        let keys = [("cloudProvider.name".to_owned(), "node-object".to_owned())].into();
        let election = crate::config::Config::load(None, [], &keys).expect("the defaults are right").leader_election;
        let found = (!spec.is_null()).then(|| serde_json::from_value(json!({"spec": spec})).expect("it is a Lease"));
        let now = "2026-03-01T12:00:00Z".parse().expect("it is a time");
        let found = finding(found.as_ref(), &election, now);
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.detail.contains(said), "{found:?}");
    }
}
