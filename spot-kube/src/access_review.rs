//! Asking the API server what we may do.

use http::Method;
use serde::{Deserialize, Serialize};
use spot_core::error::PortError;
use spot_core::ports::{Instant, Write};

use crate::requests::{Call, Needs, Requests};

/// One right, in RBAC's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Right {
    /// The namespace; none: the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The API group, empty for the core's.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The part of the resource, such as `eviction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<&'static str>,
    /// The verb.
    pub verb: &'static str,
    /// The only object; none: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(subresource) = self.subresource {
            write!(f, "/{subresource}")?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'r> {
    api_version: &'static str,
    kind: &'static str,
    spec: Spec<'r>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'r> {
    resource_attributes: &'r Right,
}

#[derive(Deserialize)]
struct Reviewed {
    status: Option<Verdict>,
}

#[derive(Deserialize)]
struct Verdict {
    #[serde(default)]
    allowed: bool,
}

/// Whether we have this right, for the sake of a write where there is one. Asking changes nothing.
pub(crate) async fn is_allowed(
    requests: &Requests,
    right: &Right,
    by: Instant,
    write: Option<&Write>,
) -> Result<bool, PortError> {
    let review = Review {
        api_version: "authorization.k8s.io/v1",
        kind: "SelfSubjectAccessReview",
        spec: Spec { resource_attributes: right },
    };
    let uri = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let needs = Needs { verb: "create", resource: "selfsubjectaccessreviews" };
    // Writing plain structs of strings to JSON can't fail.
    let call = Call::new(Method::POST, needs, "", uri, serde_json::to_vec(&review).unwrap_or_default());
    let reply = requests.again(&call, by, write).await?;
    if !reply.is_success() {
        return Err(reply.error(&call));
    }
    let reviewed: Reviewed = reply.object(&call)?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}
