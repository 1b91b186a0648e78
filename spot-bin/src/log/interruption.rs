//! What is told of notices and of their answers, as log lines: one for each that matters.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spot_core::interruption::{Ignored, NoticeKind, Source, Told};
use tracing::{debug, info, warn};

/// How long after a line about ignored notices the next one about such ones comes: whoever can write to a queue must
/// not be able to fill the log.
const PAUSE: Duration = Duration::from_mins(1);

/// What was said of ignored notices.
#[derive(Debug, Default)]
pub(super) struct Interruptions(Mutex<BTreeMap<(Source, Ignored), Said>>);

/// The last line about notices that are ignored for one reason.
#[derive(Debug)]
struct Said {
    at: Timestamp,
    /// Those that came since, and were not told of.
    more: u64,
}

impl Interruptions {
    pub(super) fn tell(&self, at: Timestamp, told: &Told) {
        match told {
            Told::Polled { source, oldest } => {
                debug!(source = source.as_str(), oldest = oldest.map(|age| age.as_secs_f64()), "notices asked for");
            }
            Told::Received { source, kind, instance } => match kind {
                NoticeKind::Interruption
                | NoticeKind::Rebalance
                | NoticeKind::ScheduledChange
                | NoticeKind::TerminateAction => {
                    info!(source = source.as_str(), %kind, %instance, "notice received");
                }
                NoticeKind::LaunchAction | NoticeKind::StateChange => {
                    debug!(source = source.as_str(), %kind, %instance, "notice received");
                }
            },
            Told::Ignored { source, why, what } => match why {
                Ignored::Unreadable | Ignored::Foreign | Ignored::UnknownKind | Ignored::UnknownInstance => {
                    self.ignored(at, *source, *why, what);
                }
                Ignored::OurOwn | Ignored::Duplicate | Ignored::NoAction => {
                    debug!(source = source.as_str(), %why, what, "notice ignored");
                }
            },
            Told::Cordoned { node, kind, after } => {
                info!(%node, %kind, seconds = after.as_secs_f64(), "node cordoned: its machine is about to go");
            }
            Told::Emptied { node, kind, after } => {
                info!(%node, %kind, seconds = after.as_secs_f64(), "node emptied before its machine goes");
            }
            Told::NotEmptied { node, kind, why } => warn!(%node, %kind, why, "node not emptied in time"),
            Told::Softened { node } => {
                info!(%node, "new pods are kept off the node: its machine may be taken back soon");
            }
            Told::Hardened { node } => info!(%node, "new pods are not kept off the node any longer: nothing followed"),
            Told::Returned { node, why } => info!(%node, why, "node released: its machine is there"),
            Told::Held { until } => info!(%until, "planned work waits: spot capacity is being taken back"),
        }
    }

    /// Says it once in a while, with the number of those that were not told of.
    fn ignored(&self, at: Timestamp, source: Source, why: Ignored, what: &str) {
        // A line is whole whatever happened to another.
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let more = match said.get_mut(&(source, why)) {
            Some(last) if at.duration_since(last.at).unsigned_abs() < PAUSE => {
                last.more += 1;
                return;
            }
            Some(last) => last.more,
            None => 0,
        };
        said.insert((source, why), Said { at, more: 0 });
        let source = source.as_str();
        if why == Ignored::Unreadable {
            warn!(source, %why, what, more, "notice ignored");
        } else {
            info!(source, %why, what, more, "notice ignored");
        }
    }
}
