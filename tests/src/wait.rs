//! Waiting for a condition, never for a time.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};

/// How often a condition is looked at again. Short, because a test waits for it; the API server bears it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long a condition may take unless the test says otherwise. Generous: two cores may be shared by two worlds and a
/// compiler.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// Waits until `look` finds something, and returns it.
///
/// # Panics
/// If `patience` is over first, with `what` and the last thing that `look` said.
pub async fn until<T, F>(what: &str, patience: Duration, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let deadline = Instant::now() + patience;
    let mut last = "nothing was seen yet".to_owned();
    loop {
        match timeout_at(deadline, look()).await {
            Ok(Ok(found)) => return found,
            Ok(Err(seen)) => last = seen,
            Err(elapsed) => panic!("waited {patience:?} for {what} ({elapsed}); last: {last}"),
        }
        assert!(Instant::now() < deadline, "waited {patience:?} for {what}; last: {last}");
        sleep(LOOK_AGAIN).await;
    }
}
