//! A value that all clones see, and whose changes can be waited for.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use futures::future::{FutureExt, Shared};

/// The value.
pub(crate) struct Watched<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    value: T,
    /// That it is dropped tells of a change.
    _unchanged: oneshot::Sender<()>,
    changed: Shared<oneshot::Receiver<()>>,
}

impl<T: Clone + PartialEq> Watched<T> {
    pub(crate) fn new(value: T) -> Self {
        let (unchanged, receiver) = oneshot::channel();
        Self(Arc::new(Mutex::new(State { value, _unchanged: unchanged, changed: receiver.shared() })))
    }

    pub(crate) fn get(&self) -> T {
        self.state().value.clone()
    }

    /// Makes it another one, and wakes whoever waits for that. Returns whether it is another one.
    pub(crate) fn change(&self, other: impl FnOnce(T) -> T) -> bool {
        let mut state = self.state();
        let value = other(state.value.clone());
        if value == state.value {
            return false;
        }
        let (unchanged, receiver) = oneshot::channel();
        *state = State { value, _unchanged: unchanged, changed: receiver.shared() };
        true
    }

    /// Returns when it is another one than this; at once when it is already.
    pub(crate) async fn other_than(&self, seen: T) {
        loop {
            let changed = {
                let state = self.state();
                if state.value != seen {
                    return;
                }
                state.changed.clone()
            };
            // A value is never sent: that the sender is gone is the signal.
            match changed.await {
                Ok(()) | Err(oneshot::Canceled) => {}
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone + PartialEq + fmt::Debug> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
