//! What goes wrong and is tried again, as log lines: one that goes on has a line now and then.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spot_core::error::ErrorClass;
use spot_core::node::{NodeRef, Uid};
use tracing::warn;

/// How long a problem that goes on is not told again: a metadata service that fails is asked every two seconds, on every
/// node, and a queue by several receivers.
const PAUSE: Duration = Duration::from_mins(1);

/// When what was told, of which node.
#[derive(Debug, Default)]
pub(super) struct Problems(Mutex<BTreeMap<(Option<Uid>, String), Timestamp>>);

impl Problems {
    pub(super) fn tell(&self, at: Timestamp, node: Option<&NodeRef>, class: ErrorClass, what: &str) {
        if self.is_new(at, node, what) {
            let node = node.map(|node| tracing::field::display(&node.name));
            warn!(node, class = class.as_str(), what, "problem");
        }
    }

    fn is_new(&self, at: Timestamp, node: Option<&NodeRef>, what: &str) -> bool {
        // Whatever happened meanwhile, what was told was told.
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, last| at.duration_since(*last).unsigned_abs() < PAUSE);
        let problem = (node.map(|node| node.uid.clone()), what.to_owned());
        if told.contains_key(&problem) {
            return false;
        }
        told.insert(problem, at);
        true
    }
}
