//! One watch, from the server's side.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::future::select;
use http_body_util::channel::Sender;
use serde_json::{Value, json};
use spot_core::model::Process;
use spot_core::ports::{Clock, Instant};

use crate::fault::{Break, No};
use crate::store::{Event, Kind, LAG, Selector, Store};

/// How often a watch tells how far it has come.
const BOOKMARK: Duration = Duration::from_mins(1);

/// A watch.
pub(crate) struct Feed {
    pub(crate) store: Store,
    pub(crate) clock: Process,
    pub(crate) kind: Kind,
    pub(crate) selector: Option<Selector>,
    /// The version of the last event that was sent.
    pub(crate) after: u64,
    pub(crate) until: Instant,
    /// How it breaks, instead of showing the event of which number.
    pub(crate) breaks: Option<(usize, Break)>,
    pub(crate) to: Sender<Bytes, io::Error>,
}

/// Nobody listens any more.
struct Closed;

impl Feed {
    /// Sends events until the watch ends; `count` learns of each.
    pub(crate) async fn run(mut self, count: impl Fn()) {
        let mut news = self.store.news();
        let mut bookmark = self.clock.instant() + BOOKMARK;
        let mut sent = 0;
        loop {
            news.mark_unchanged();
            let now = self.clock.instant();
            let next = self.store.event_after(self.kind, self.selector.as_ref(), self.after);
            let wait_until = match next {
                Some(event) if event.at + LAG <= now => {
                    if let Some((_, how)) = self.breaks.filter(|(number, _)| *number == sent) {
                        return self.breaks(how, &event).await;
                    }
                    self.after = event.version;
                    sent += 1;
                    count();
                    if self.say(event.what, &event.object).await.is_err() {
                        return;
                    }
                    continue;
                }
                Some(event) => event.at + LAG,
                None if now >= bookmark => {
                    bookmark = now + BOOKMARK;
                    self.after = self.after.max(*news.borrow());
                    if self.say("BOOKMARK", &self.bookmark()).await.is_err() {
                        return;
                    }
                    continue;
                }
                None => bookmark,
            };
            if now >= self.until {
                return;
            }
            let timer = self.clock.sleep_until(wait_until.min(self.until));
            select(pin!(news.changed()), timer).await;
        }
    }

    /// Ends the watch, or leaves it silent, instead of showing this event.
    async fn breaks(mut self, how: Break, event: &Event) {
        let reset = || io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer");
        match how {
            Break::Closed => {}
            Break::Reset => self.to.abort(reset()),
            Break::Torn => {
                let line = line(event.what, &event.object);
                if self.to.send_data(line.slice(..line.len() / 2)).await.is_ok() {
                    self.to.abort(reset());
                }
            }
            Break::Gone => {
                self.store.compact(self.kind, event.version);
                // Who hung up meanwhile has nothing to learn.
                let _told: Result<(), Closed> = self.say("ERROR", &No::Expired.answer().body).await;
            }
            Break::Silence => std::future::pending().await,
        }
    }

    fn bookmark(&self) -> Value {
        let kind = match self.kind {
            Kind::Nodes => ("v1", "Node"),
            Kind::Pods => ("v1", "Pod"),
            Kind::Budgets => ("policy/v1", "PodDisruptionBudget"),
            Kind::DaemonSets => ("meta.k8s.io/v1", "PartialObjectMetadata"),
            Kind::ConfigMaps => ("v1", "ConfigMap"),
            Kind::VolumeClaims => ("v1", "PersistentVolumeClaim"),
            Kind::Volumes => ("v1", "PersistentVolume"),
            Kind::Attachments => ("storage.k8s.io/v1", "VolumeAttachment"),
        };
        json!({
            "kind": kind.1, "apiVersion": kind.0,
            "metadata": {"resourceVersion": self.after.to_string(), "creationTimestamp": null},
        })
    }

    async fn say(&mut self, what: &str, object: &Value) -> Result<(), Closed> {
        self.to.send_data(line(what, object)).await.map_err(|_| Closed)
    }
}

fn line(what: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": what, "object": object})).into()
}
