//! Cordons go before evictions: a pod that is evicted must not land on the next node to go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::watched::Watched;

/// The cordons of known notices that are outstanding. All clones are one.
#[derive(Clone, Debug)]
pub(super) struct Cordons {
    outstanding: Arc<AtomicUsize>,
    none: Watched<bool>,
}

impl Default for Cordons {
    fn default() -> Self {
        Self { outstanding: Arc::default(), none: Watched::new(true) }
    }
}

impl Cordons {
    /// Another is outstanding from now on, until this is dropped.
    pub(super) fn expect(&self) -> Outstanding {
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        self.none.change(|_| false);
        Outstanding(self.clone())
    }

    /// Returns when none is outstanding.
    pub(super) async fn none(&self) {
        self.none.other_than(false).await;
    }
}

/// A cordon that is outstanding.
#[derive(Debug)]
pub(super) struct Outstanding(Cordons);

impl Drop for Outstanding {
    fn drop(&mut self) {
        if self.0.outstanding.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.none.change(|_| true);
        }
    }
}
