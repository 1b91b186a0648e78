//! The eviction of one pod: the request's body, and what the answer means.

use std::time::Duration;

use http::Method;
use serde::Serialize;
use spot_core::error::{ErrorClass, PortError};
use spot_core::pod::{BudgetRef, PodRef};
use spot_core::ports::EvictAnswer;

use crate::requests::{Call, Needs, Reply, escaped};

/// What an answer means, as far as it tells by itself.
#[derive(Debug)]
pub(crate) enum Meaning {
    /// It tells all.
    Answer(EvictAnswer),
    /// A 403 that RBAC or a webhook may have given: an access review tells.
    Forbidden(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Eviction<'p> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'p>,
    delete_options: DeleteOptions<'p>,
}

#[derive(Serialize)]
struct Metadata<'p> {
    name: &'p str,
    namespace: &'p str,
}

/// How an object is to be deleted; only with its UID.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeleteOptions<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period_seconds: Option<u64>,
    preconditions: Preconditions<'p>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions<'p> {
    uid: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'p str>,
}

impl<'p> DeleteOptions<'p> {
    /// The deletion of the object with this UID; a grace period is rounded up to whole seconds.
    pub(crate) fn new(uid: &'p str, grace: Option<Duration>) -> Self {
        let whole = |grace: Duration| grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
        Self { grace_period_seconds: grace.map(whole), preconditions: Preconditions { uid, resource_version: None } }
    }

    /// Only in this version, where one is given.
    pub(crate) const fn at(mut self, resource_version: Option<&'p str>) -> Self {
        self.preconditions.resource_version = resource_version;
        self
    }
}

/// The request that evicts a pod.
///
/// `kube::Api::evict` is of no use: it writes `delete_options`, which the API server ignores, the UID with it.
pub(crate) fn call(pod: &PodRef, grace: Option<Duration>) -> Call {
    let eviction = Eviction {
        api_version: "policy/v1",
        kind: "Eviction",
        metadata: Metadata { name: &pod.name, namespace: &pod.namespace },
        delete_options: DeleteOptions::new(pod.uid.as_str(), grace),
    };
    let uri = format!("{}/eviction", uri(pod));
    let needs = Needs { verb: "create", resource: "pods/eviction" };
    // Writing plain structs of strings to JSON can't fail.
    let body = serde_json::to_vec(&eviction).unwrap_or_default();
    Call::new(Method::POST, needs, pod.to_string(), uri, body)
}

/// The address of a pod.
pub(crate) fn uri(pod: &PodRef) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", escaped(&pod.namespace), escaped(&pod.name))
}

/// What an answer to an eviction means.
pub(crate) fn meaning(pod: &PodRef, call: &Call, reply: &Reply) -> Result<Meaning, PortError> {
    let status = reply.status();
    let retry_after = reply.retry_after.or_else(|| status.retry_after());
    let answer = match reply.code {
        200..=299 => EvictAnswer::Accepted,
        404 if status.is_not_found() => EvictAnswer::Gone,
        409 if status.is_other_uid() => EvictAnswer::Gone,
        429 => match status.cause("DisruptionBudget") {
            Some(words) => EvictAnswer::Budget { budget: budget(pod, words), retry_after },
            None => EvictAnswer::Overloaded { retry_after },
        },
        403 if status.cause("NamespaceTerminating").is_some() => EvictAnswer::NamespaceTerminating,
        403 => return Ok(Meaning::Forbidden(status.message)),
        422 => EvictAnswer::Invalid(status.message),
        500 if status.message.contains("more than one PodDisruptionBudget") => EvictAnswer::MultipleBudgets,
        // Also a lost race inside the API server, a 404 that is none of its own, or a token that was replaced: the file
        // that holds it is read again within a minute.
        401 | 404 | 409 | 500..=599 => EvictAnswer::ServerError(status.to_string()),
        _ => return Err(call.error(ErrorClass::Permanent).caused_by(status)),
    };
    Ok(Meaning::Answer(answer))
}

/// The budget that `The disruption budget NAME needs …` or `The disruption budget NAME is still …` speaks of. It is of
/// the pod's own namespace.
fn budget(pod: &PodRef, words: &str) -> Option<BudgetRef> {
    let (_, rest) = words.split_once("disruption budget ")?;
    let name = rest.split_whitespace().next()?.trim_matches(['"', '\'', '`']);
    (!name.is_empty()).then(|| BudgetRef { namespace: pod.namespace.clone(), name: name.into() })
}
