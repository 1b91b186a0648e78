//! Reading and writing the one lease; every call has a deadline.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use spot_core::error::PortError;
use spot_core::ports::{Clock, Instant};

use super::Settings;
use super::claim::{Claim, Lease, Seen, claim};
use crate::patch::MANAGER;
use crate::requests::{ATTEMPT, Call, Needs, Requests, escaped};

/// Reads and writes the one lease.
#[derive(Debug)]
pub(super) struct Desk {
    requests: Requests,
    pub(super) settings: Settings,
    seen: Option<Seen>,
    /// Whether the lease is still as it was seen, for all we know: our last write succeeded.
    certain: bool,
    /// The renewals that we sent since the last one that succeeded, and that one. Another one under our name is not
    /// ours.
    sent: Vec<String>,
}

/// What became of a try to acquire the lease.
pub(super) enum Tried {
    Written { sent: Instant },
    Held { until: Instant },
    Raced,
}

/// What became of a try to keep it.
pub(super) enum Kept {
    Renewed { sent: Instant },
    Lost(String),
    Raced,
}

impl Desk {
    pub(super) fn new(client: kube::Client, settings: Settings, clock: Arc<dyn Clock>) -> Self {
        let requests = Requests::new(client, clock);
        Self { requests, settings, seen: None, certain: false, sent: Vec::new() }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        self.requests.clock()
    }

    pub(super) fn pause(&self, failures: u32, first: Duration, longest: Duration) -> Duration {
        self.requests.pause(failures, first, longest)
    }

    pub(super) fn now(&self) -> Instant {
        self.requests.clock().instant()
    }

    pub(super) fn holder(&self) -> Option<&str> {
        self.seen.as_ref()?.lease.holder()
    }

    /// When a call that begins now must have ended: one that hangs leaves time for another.
    fn patience(&self) -> Instant {
        self.now() + (self.settings.renew_deadline / 2).min(ATTEMPT)
    }

    pub(super) async fn acquire(&mut self) -> Result<Tried, PortError> {
        self.sent.clear();
        self.look(self.patience()).await?;
        let (now, wall) = (self.now(), self.requests.clock().now());
        match claim(self.seen.as_ref(), &self.settings, now, wall) {
            Claim::WaitUntil(until) => Ok(Tried::Held { until }),
            Claim::Acquire(lease) | Claim::Renew(lease) => {
                let sent = self.write(&lease, self.patience()).await?;
                Ok(sent.map_or(Tried::Raced, |sent| Tried::Written { sent }))
            }
        }
    }

    pub(super) async fn renew(&mut self, until: Instant) -> Result<Kept, PortError> {
        if let Some(why) = self.no_longer_ours(until).await? {
            return Ok(Kept::Lost(why));
        }
        let (now, wall) = (self.now(), self.requests.clock().now());
        match claim(self.seen.as_ref(), &self.settings, now, wall) {
            Claim::Renew(lease) => self.keep(&lease, until).await,
            Claim::Acquire(_) | Claim::WaitUntil(_) => Ok(Kept::Lost("the lease is not ours".to_owned())),
        }
    }

    pub(super) async fn release(&mut self, by: Instant) -> Result<Kept, PortError> {
        if let Some(why) = self.no_longer_ours(by).await? {
            return Ok(Kept::Lost(why));
        }
        let Some(Seen { lease, .. }) = &self.seen else { return Ok(Kept::Lost("the lease is gone".to_owned())) };
        let released = lease.released(self.requests.clock().now());
        self.keep(&released, by).await
    }

    async fn keep(&mut self, lease: &Lease, by: Instant) -> Result<Kept, PortError> {
        let sent = self.write(lease, self.patience().min(by)).await?;
        Ok(sent.map_or(Kept::Raced, |sent| Kept::Renewed { sent }))
    }

    /// Why the lease is not the one that we last wrote, if so. Reads it, unless our last write succeeded.
    async fn no_longer_ours(&mut self, by: Instant) -> Result<Option<String>, PortError> {
        if !self.certain {
            self.look(self.patience().min(by)).await?;
        }
        let Some(Seen { lease, .. }) = &self.seen else { return Ok(Some("the lease was deleted".to_owned())) };
        Ok(match lease.holder() {
            None => Some("the lease was given to nobody".to_owned()),
            Some(holder) if holder != self.settings.identity => Some(format!("{holder} holds the lease now")),
            Some(_) if self.sent.iter().any(|sent| Some(sent.as_str()) == lease.renewal()) => None,
            Some(holder) => Some(format!("another process holds the lease under the same identity, {holder}")),
        })
    }

    async fn look(&mut self, by: Instant) -> Result<(), PortError> {
        let call = Call::get(needs("get"), self.settings.to_string(), self.uri());
        let reply = self.requests.once(&call, by, None).await?;
        if reply.status().is_not_found() {
            self.seen = None;
            return Ok(());
        }
        if !reply.is_success() {
            return Err(reply.error(&call));
        }
        self.seen = Some(Seen::new(self.seen.as_ref(), reply.object(&call)?, self.now()));
        Ok(())
    }

    /// Writes the lease if it is still as it was seen. Returns when that was sent; none: somebody else wrote it.
    async fn write(&mut self, lease: &Lease, by: Instant) -> Result<Option<Instant>, PortError> {
        // Of plain texts and numbers: writing them to JSON can't fail.
        let body = serde_json::to_vec(lease).unwrap_or_default();
        let (method, uri, needs) = match self.seen {
            Some(_) => (Method::PUT, self.uri(), needs("update")),
            None => (Method::POST, self.collection(), needs("create")),
        };
        let uri = format!("{uri}?fieldManager={MANAGER}");
        let call = Call::new(method, needs, self.settings.to_string(), uri, body);
        self.certain = false;
        self.sent.extend(lease.renewal().map(str::to_owned));
        let sent = self.now();
        let reply = self.requests.once(&call, by, None).await?;
        if reply.code == 409 {
            return Ok(None);
        }
        if !reply.is_success() {
            return Err(reply.error(&call));
        }
        self.seen = Some(Seen::new(self.seen.as_ref(), reply.object(&call)?, self.now()));
        self.certain = true;
        self.sent.drain(..self.sent.len().saturating_sub(1));
        Ok(Some(sent))
    }

    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", escaped(&self.settings.namespace))
    }

    fn uri(&self) -> String {
        format!("{}/{}", self.collection(), escaped(&self.settings.name))
    }
}

const fn needs(verb: &'static str) -> Needs {
    Needs { verb, resource: "leases" }
}
