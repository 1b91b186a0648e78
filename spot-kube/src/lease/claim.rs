//! Who may take a lease, and what is written for it: pure.
//!
//! A record is expired when it was seen unchanged for its whole duration on our own monotonic clock. The times in it
//! are another machine's, and only tell one renewal from the next.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spot_core::ports::Instant;

use super::Settings;

/// A `Lease` of `coordination.k8s.io/v1`. What is not read of it is written back as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lease {
    #[serde(default = "api_version")]
    api_version: String,
    #[serde(default = "kind")]
    kind: String,
    metadata: Map<String, Value>,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_duration_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acquire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_transitions: Option<i64>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// A lease as it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) lease: Lease,
    /// When its record was first seen as it is now.
    since: Instant,
}

/// What to do about a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nobody holds it: write this, if it is still as it was seen.
    Acquire(Lease),
    /// It is ours: write this, if it is still as it was seen.
    Renew(Lease),
    /// Another process holds it, at least until then.
    WaitUntil(Instant),
}

/// What to do about a lease that was seen like this; `now` is of our monotonic clock, `wall` only goes into the record.
pub(crate) fn claim(seen: Option<&Seen>, me: &Settings, now: Instant, wall: Timestamp) -> Claim {
    let Some(Seen { lease, since }) = seen else { return Claim::Acquire(Lease::first(me, wall)) };
    match lease.holder() {
        Some(holder) if holder == me.identity => Claim::Renew(lease.renewed(me, wall)),
        Some(_) => {
            let expires = *since + lease.duration().unwrap_or(me.lease_duration);
            if now < expires { Claim::WaitUntil(expires) } else { Claim::Acquire(lease.taken(me, wall)) }
        }
        None => Claim::Acquire(lease.taken(me, wall)),
    }
}

impl Seen {
    /// A lease that was read, `now` after the answer had come. `before` is how it was seen the last time.
    pub(crate) fn new(before: Option<&Self>, lease: Lease, now: Instant) -> Self {
        let since = match before {
            Some(before) if before.lease.record() == lease.record() => before.since,
            Some(_) | None => now,
        };
        Self { lease, since }
    }
}

impl Lease {
    /// The lease where there is none yet.
    fn first(me: &Settings, wall: Timestamp) -> Self {
        let metadata = [("name", &me.name), ("namespace", &me.namespace)];
        Self {
            api_version: api_version(),
            kind: kind(),
            metadata: metadata.into_iter().map(|(key, value)| (key.to_owned(), value.clone().into())).collect(),
            spec: Spec {
                holder_identity: Some(me.identity.clone()),
                lease_duration_seconds: Some(seconds(me.lease_duration)),
                acquire_time: Some(written(wall)),
                renew_time: Some(written(wall)),
                lease_transitions: Some(0),
                rest: Map::new(),
            },
        }
    }

    /// The lease taken over from whoever had it.
    fn taken(&self, me: &Settings, wall: Timestamp) -> Self {
        let mut taken = self.renewed(me, wall);
        taken.spec.acquire_time.clone_from(&taken.spec.renew_time);
        taken.spec.lease_transitions = Some(self.spec.lease_transitions.unwrap_or(0).saturating_add(1));
        taken
    }

    fn renewed(&self, me: &Settings, wall: Timestamp) -> Self {
        let spec = Spec {
            holder_identity: Some(me.identity.clone()),
            lease_duration_seconds: Some(seconds(me.lease_duration)),
            renew_time: Some(self.next_renewal(wall)),
            ..self.spec.clone()
        };
        Self { spec, ..self.clone() }
    }

    /// The lease given back, so that anybody may take it at once.
    pub(crate) fn released(&self, wall: Timestamp) -> Self {
        let now = self.next_renewal(wall);
        let spec = Spec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..self.spec.clone()
        };
        Self { spec, ..self.clone() }
    }

    /// Who holds it; none: nobody, it was released.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// The text by which a renewal is told from the one before.
    pub(crate) fn renewal(&self) -> Option<&str> {
        self.spec.renew_time.as_deref()
    }

    fn duration(&self) -> Option<Duration> {
        let seconds = u64::try_from(self.spec.lease_duration_seconds?).ok()?;
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// A later time than the last renewal's, whatever the wall clock says: a renewal that changes nothing would not be
    /// seen as one.
    fn next_renewal(&self, wall: Timestamp) -> String {
        let last: Option<Timestamp> = self.renewal().and_then(|last| last.parse().ok());
        let after = last.and_then(|last| Timestamp::from_microsecond(last.as_microsecond().checked_add(1)?).ok());
        written(after.map_or(wall, |after| wall.max(after)))
    }

    /// What a holder changes. Labels, or who wrote which field, are none of it.
    fn record(&self) -> impl PartialEq + '_ {
        let Spec { holder_identity, lease_duration_seconds, acquire_time, renew_time, lease_transitions, rest: _ } =
            &self.spec;
        (holder_identity, lease_duration_seconds, acquire_time, renew_time, lease_transitions)
    }
}

/// A time as Kubernetes' `MicroTime` is written.
fn written(time: Timestamp) -> String {
    format!("{time:.6}")
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn api_version() -> String {
    "coordination.k8s.io/v1".to_owned()
}

fn kind() -> String {
    "Lease".to_owned()
}

#[cfg(test)]
mod tests;
