//! The wish that the process end: seen between two steps and in the middle of one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::channel::oneshot;
use futures::future::{FutureExt, Shared};

/// Set once, seen by all clones.
#[derive(Clone)]
pub struct Stop {
    sender: Arc<Mutex<Option<oneshot::Sender<()>>>>,
    receiver: Shared<oneshot::Receiver<()>>,
}

impl Default for Stop {
    fn default() -> Self {
        let (sender, receiver) = oneshot::channel();
        Self { sender: Arc::new(Mutex::new(Some(sender))), receiver: receiver.shared() }
    }
}

impl Stop {
    /// Asks everything to come to an end. Asking twice is asking once.
    pub fn set(&self) {
        // Dropping the sender is the signal.
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Whether it was asked.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Returns when it is asked.
    pub async fn wait(&self) {
        // A value is never sent: that the sender is gone is the signal.
        match self.receiver.clone().await {
            Ok(()) | Err(oneshot::Canceled) => {}
        }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("is_set", &self.is_set()).finish_non_exhaustive()
    }
}
