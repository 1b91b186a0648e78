//! The API server's audit log: who asked for what, and what the answer was.

use std::{
    fmt,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    control_plane::User,
    wait::{PATIENCE, until},
};

/// The requests that were answered, in the order of their answers.
#[derive(Clone, Debug)]
pub struct AuditLog {
    entries: Vec<Entry>,
}

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who asked, by name; see [`User::name`].
    pub user: String,
    /// The UID of who asked: the name again, but for [`REPLICAS`](crate::control_plane::REPLICAS).
    pub uid: String,
    /// The client's `User-Agent`.
    pub agent: String,
    /// What was asked for.
    pub verb: Verb,
    /// The plural name of the resource, `pods`; empty for paths that are none, `/readyz`.
    pub resource: String,
    /// `eviction`, `status` and the like; else empty.
    pub subresource: String,
    /// The object's namespace, or empty.
    pub namespace: String,
    /// The object's name, or empty.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// What was sent, for requests that write.
    pub body: Value,
    /// The path and the query.
    pub uri: String,
    /// When the request arrived.
    pub at: Timestamp,
}

/// The verb of a request, as the authorizer reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// One object was read.
    Get,
    /// A collection was read.
    List,
    /// A collection was followed.
    Watch,
    /// An object was made, or a subresource such as `eviction` was posted.
    Create,
    /// An object was replaced.
    Update,
    /// An object was changed.
    Patch,
    /// An object was deleted.
    Delete,
    /// A collection was deleted.
    DeleteCollection,
    /// Any other verb: of paths that are no resource, or CONNECT.
    #[serde(other)]
    Other,
}

impl Verb {
    /// Whether it changes something.
    #[must_use]
    pub fn writes(self) -> bool {
        match self {
            Self::Create | Self::Update | Self::Patch | Self::Delete | Self::DeleteCollection => true,
            Self::Get | Self::List | Self::Watch | Self::Other => false,
        }
    }
}

impl AuditLog {
    /// Reads everything that was answered before the call.
    ///
    /// # Panics
    /// If the log can't be read.
    pub(crate) async fn read(path: &Path, client: &Client) -> Self {
        // The log is written behind the answer: a request of our own that is found in it tells that it has caught up.
        static MARKS: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{MARK}{}", MARKS.fetch_add(1, Ordering::Relaxed));
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let none = namespaces.get_opt(&mark).await.expect("the API server answers");
        assert!(none.is_none(), "a namespace has the name of a mark");
        let text = until("the audit log to catch up", PATIENCE, || async {
            let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
            if text.contains(&mark) { Ok(text) } else { Err(format!("{} bytes without the mark", text.len())) }
        })
        .await;
        let entries = text
            .lines()
            .map(|line| serde_json::from_str::<Line>(line).unwrap_or_else(|error| panic!("{error} in {line}")))
            .filter(|line| line.stage == "ResponseComplete" || line.stage == "ResponseStarted")
            .map(Entry::from)
            .filter(|entry| !entry.name.starts_with(MARK))
            .collect();
        Self { entries }
    }

    /// Every request, in the order of the answers.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// What `user` asked for.
    pub fn by(&self, user: User) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.user == user.name())
    }

    /// What `user` asked for that changes something, whatever the answer was.
    pub fn writes_by(&self, user: User) -> impl Iterator<Item = &Entry> {
        self.by(user).filter(|entry| entry.verb.writes())
    }

    /// What clients asked for whose `User-Agent` contains `part`.
    pub fn by_agent<'a>(&'a self, part: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| entry.agent.contains(part))
    }

    /// The evictions that `user` posted, whatever the answer was.
    pub fn evictions_by(&self, user: User) -> impl Iterator<Item = &Entry> {
        self.by(user).filter(|entry| entry.is_eviction())
    }

    /// The deletions of `resource` that `user` asked for, collections included.
    pub fn deletes_by<'a>(&'a self, user: User, resource: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.by(user).filter(move |entry| {
            entry.resource == resource && matches!(entry.verb, Verb::Delete | Verb::DeleteCollection)
        })
    }
}

impl Entry {
    /// Whether it posts an eviction.
    #[must_use]
    pub fn is_eviction(&self) -> bool {
        self.verb == Verb::Create && self.resource == "pods" && self.subresource == "eviction"
    }

    /// Whether the answer was a success.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The UID that an eviction or a deletion names as its precondition.
    #[must_use]
    pub fn uid_precondition(&self) -> Option<&str> {
        let options = if self.is_eviction() { self.body.get("deleteOptions")? } else { &self.body };
        options.pointer("/preconditions/uid")?.as_str()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {:?} {} -> {} {}", self.at, self.user, self.verb, self.uri, self.code, self.body)
    }
}

/// Names of namespaces that nobody makes; reading one marks a place in the log.
const MARK: &str = "audit-mark-";

/// What is logged: the product's requests all, with what it wrote; what others wrote, with its content where a test
/// may ask for it. The rest of the world's reads would be most of the log.
pub(crate) fn policy() -> Value {
    let product = [User::Migrator.name(), User::Agent.name()];
    let writes = json!(["create", "update", "patch", "delete", "deletecollection"]);
    let noise = json!([
        {"group": "coordination.k8s.io", "resources": ["leases"]},
        {"group": "", "resources": ["events"]},
        {"group": "events.k8s.io", "resources": ["events"]},
    ]);
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [
            {"level": "Request", "users": product, "verbs": writes},
            {"level": "Metadata", "users": product},
            {"level": "Metadata", "users": [User::Admin.name()], "verbs": ["get"],
             "resources": [{"group": "", "resources": ["namespaces"]}]},
            {"level": "None", "resources": noise},
            {"level": "Request", "verbs": writes, "resources": [
                {"group": "", "resources": ["pods/eviction", "pods/binding", "nodes"]},
            ]},
            {"level": "Request", "verbs": ["delete", "deletecollection"]},
            {"level": "Metadata", "verbs": writes},
            {"level": "None"},
        ],
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    #[serde(rename = "requestURI")]
    uri: String,
    verb: Verb,
    user: LineUser,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: LineObject,
    #[serde(default)]
    response_status: LineStatus,
    #[serde(default)]
    request_object: Value,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct LineUser {
    username: String,
    #[serde(default)]
    uid: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LineObject {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LineStatus {
    code: u16,
}

impl From<Line> for Entry {
    fn from(line: Line) -> Self {
        Self {
            user: line.user.username,
            uid: line.user.uid,
            agent: line.user_agent,
            verb: line.verb,
            resource: line.object_ref.resource,
            subresource: line.object_ref.subresource,
            namespace: line.object_ref.namespace,
            name: line.object_ref.name,
            code: line.response_status.code,
            body: line.request_object,
            uri: line.uri,
            at: line.request_received_timestamp,
        }
    }
}
