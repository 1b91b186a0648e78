//! Paged lists that are complete or an error.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::Instant;

use crate::requests::{ATTEMPT, Call, Needs, PAGE, Requests, escaped};

/// Objects on a page: client-go's size.
const LIMIT: u32 = 500;

/// How often a list begins anew because its pages expired; the API server keeps them for five minutes.
const RESTARTS: u32 = 5;

/// Where objects are listed and watched.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) resource: &'static str,
    pub(crate) path: String,
    pub(crate) field_selector: Option<String>,
    /// Only metadata are asked for.
    pub(crate) metadata_only: bool,
    /// How long a page may take.
    pub(crate) attempt: Duration,
}

/// A list that was read to its end, in one version.
#[derive(Debug)]
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<T>,
    pub(crate) version: String,
}

#[derive(Deserialize)]
struct Page<T> {
    metadata: PageMetadata,
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    r#continue: String,
}

impl Source {
    /// All objects of a kind.
    pub(crate) fn new(resource: &'static str, path: impl Into<String>) -> Self {
        Self { resource, path: path.into(), field_selector: None, metadata_only: false, attempt: PAGE }
    }

    /// Only those whose field has this value.
    pub(crate) fn with_field(mut self, field: &str, value: &str) -> Self {
        self.field_selector = Some(escaped(&format!("{field}={value}")));
        self
    }

    /// Only few of them, which take no longer than any other answer.
    pub(crate) const fn few(mut self) -> Self {
        self.attempt = ATTEMPT;
        self
    }

    /// The request of one page. Without a resourceVersion: the answer is no older than the request.
    fn page(&self, after: &str) -> Call {
        let mut uri = format!("{}?limit={LIMIT}", self.path);
        self.select(&mut uri);
        if !after.is_empty() {
            uri.push_str("&continue=");
            uri.push_str(&escaped(after));
        }
        let mut call = Call::get(Needs { verb: "list", resource: self.resource }, "", uri);
        call.attempt = self.attempt;
        if self.metadata_only {
            call.accept = Some("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
        }
        call
    }

    /// The request that watches from a version on, for `lasting` at most.
    pub(crate) fn watch(&self, version: &str, lasting: Duration) -> Call {
        let (path, seconds) = (&self.path, lasting.as_secs());
        let mut uri = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        self.select(&mut uri);
        uri.push_str("&resourceVersion=");
        uri.push_str(&escaped(version));
        let mut call = Call::get(Needs { verb: "watch", resource: self.resource }, "", uri);
        if self.metadata_only {
            call.accept = Some("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        }
        call
    }

    /// All objects. Begun anew when its pages expire, so that it never mixes two versions.
    pub(crate) async fn list<T>(&self, requests: &Requests, by: Instant) -> Result<Listed<T>, PortError>
    where
        T: DeserializeOwned,
    {
        for _ in 0..=RESTARTS {
            if let Some(listed) = self.pages(requests, by).await? {
                return Ok(listed);
            }
        }
        let call = self.page("");
        Err(PortError::new(ErrorClass::Transient, format!("could not {call}: its pages expired {RESTARTS} times")))
    }

    /// All pages; none when they expired on the way.
    async fn pages<T>(&self, requests: &Requests, by: Instant) -> Result<Option<Listed<T>>, PortError>
    where
        T: DeserializeOwned,
    {
        let mut items = Vec::new();
        let mut after = String::new();
        loop {
            let call = self.page(&after);
            let reply = requests.read(&call, by).await?;
            if reply.code == 410 {
                return Ok(None);
            }
            if !reply.is_success() {
                return Err(reply.error(&call));
            }
            let page: Page<T> = reply.object(&call)?;
            items.append(&mut page.items.unwrap_or_default());
            if page.metadata.r#continue.is_empty() {
                return Ok(Some(Listed { items, version: page.metadata.resource_version }));
            }
            after = page.metadata.r#continue;
        }
    }

    fn select(&self, uri: &mut String) {
        if let Some(selector) = &self.field_selector {
            uri.push_str("&fieldSelector=");
            uri.push_str(selector);
        }
    }
}
