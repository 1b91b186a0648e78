//! The notices that are not settled yet, and those that were answered lately.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::notice::{Delivery, Notice};
use crate::claim::InstanceId;
use crate::node::Uid;
use crate::ports::Instant;

/// How long an answered notice is remembered: one that comes again later is answered again, which is harmless.
const REMEMBERED: Duration = Duration::from_mins(10);

/// What a notice that is not settled waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// That the cluster can be seen.
    View,
    /// That this node is empty.
    Node(Uid),
    /// An answer of its own.
    Answer,
}

/// A notice that is not settled.
#[derive(Debug)]
struct Open {
    delivery: Delivery,
    waits: Waits,
}

/// What came of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nobody has seen this notice.
    New,
    /// It is being answered.
    Open,
    /// It was answered.
    Answered,
}

/// The notices at hand.
#[derive(Debug, Default)]
pub(super) struct Desk {
    open: BTreeMap<Arc<str>, Open>,
    answered: BTreeMap<InstanceId, Vec<(Notice, Instant)>>,
}

impl Desk {
    /// Whether a delivery is of a notice that is known. Of one that is open, this delivery counts from now on.
    pub(super) fn take(&mut self, delivery: &Delivery) -> Taken {
        if let Some(open) = self.open.get_mut(&delivery.ticket.message) {
            open.delivery = delivery.clone();
            return Taken::Open;
        }
        let answered = self.answered.get(&delivery.notice.instance);
        let known = answered.is_some_and(|known| known.iter().any(|(notice, _)| *notice == delivery.notice));
        if known { Taken::Answered } else { Taken::New }
    }

    /// Keeps a notice until what it waits for.
    pub(super) fn keep(&mut self, delivery: Delivery, waits: Waits) {
        self.open.insert(Arc::clone(&delivery.ticket.message), Open { delivery, waits });
    }

    /// The delivery of this message that counts, while it is open.
    pub(super) fn delivery(&self, message: &str) -> Option<&Delivery> {
        self.open.get(message).map(|open| &open.delivery)
    }

    /// Takes a notice off.
    pub(super) fn close(&mut self, message: &str) -> Option<Delivery> {
        self.open.remove(message).map(|open| open.delivery)
    }

    /// Takes all off that wait for this.
    pub(super) fn close_all(&mut self, waits: &Waits) -> Vec<Delivery> {
        let messages: Vec<_> =
            self.open.iter().filter(|(_, open)| open.waits == *waits).map(|(message, _)| Arc::clone(message)).collect();
        messages.iter().filter_map(|message| self.close(message)).collect()
    }

    /// Takes every notice off.
    pub(super) fn clear(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.open).into_values().map(|open| open.delivery).collect()
    }

    /// Remembers that a notice was answered, and forgets what was long ago.
    pub(super) fn answered(&mut self, notice: Notice, now: Instant) {
        self.answered.retain(|_, notices| {
            notices.retain(|(_, at)| now.since(*at) < REMEMBERED);
            !notices.is_empty()
        });
        self.answered.entry(notice.instance.clone()).or_default().push((notice, now));
    }
}
