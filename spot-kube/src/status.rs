//! The API server's own words about a request.

use serde::Deserialize;
use std::time::Duration;

/// How much of an answer that is no `Status` is kept: a proxy's page of HTML can be long.
const MOST: usize = 512;

/// A Kubernetes `Status`, as far as it is read.
#[derive(Clone, Debug, Default, Deserialize, thiserror::Error)]
#[error("the API server answered {code}{}: {message}", if .reason.is_empty() { String::new() } else { format!(" {}", .reason) })]
pub(crate) struct Status {
    #[serde(default)]
    pub(crate) code: u16,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
    details: Option<Details>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    causes: Option<Vec<Cause>>,
    retry_after_seconds: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Cause {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

impl Status {
    /// What an answer says; a text that is no `Status` becomes the message of one without a reason.
    pub(crate) fn of(code: u16, body: &[u8]) -> Self {
        if let Ok(status) = serde_json::from_slice::<Self>(body) {
            return Self { code, ..status };
        }
        let text = String::from_utf8_lossy(body);
        Self { code, message: text.trim().chars().take(MOST).collect(), ..Self::default() }
    }

    /// The message of the cause with this reason.
    pub(crate) fn cause(&self, reason: &str) -> Option<&str> {
        let causes = self.details.as_ref()?.causes.as_deref()?;
        causes.iter().find(|cause| cause.reason == reason).map(|cause| cause.message.as_str())
    }

    /// When the server wants to be asked again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.details.as_ref()?.retry_after_seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }

    /// Whether the object itself is not there. A 404 of a proxy, or of an unknown path, says nothing of the object.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code == 404 && self.reason == "NotFound"
    }

    /// Whether the object of that name has another UID than the precondition says.
    ///
    /// There is no reason of its own for it: only the words of the registry (`the UID in the precondition (…) does
    /// not match …`) and of the storage (`Precondition failed: UID in precondition: …`).
    pub(crate) fn is_other_uid(&self) -> bool {
        self.code == 409 && self.message.contains("UID in") && self.message.contains("precondition")
    }
}
