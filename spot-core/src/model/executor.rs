//! Runs futures under virtual time, without a runtime: when all of them wait, the world jumps to what is due next.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::ports::Instant;

use super::Model;
use super::process::{Process, ProcessId};

/// How often futures may be polled without any time passing: far more than any honest work needs.
const POLLS_AT_ONE_INSTANT: u32 = 1_000_000;

/// Why futures could not be run to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// Everything waits, and nothing is due that could end it: a wait without a deadline.
    #[error("everything waits for something that never comes")]
    Deadlocked,
    /// The world's horizon was reached.
    #[error("it has not ended within the world's horizon")]
    OutOfTime,
    /// It goes on without waiting for anything.
    #[error("it works on and on without any time passing")]
    Spinning,
    /// The process was killed.
    #[error("the process was killed")]
    Killed,
}

/// How a root future ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended<T> {
    /// It returned this.
    Done(T),
    /// Its process was killed: it was dropped.
    Killed,
}

/// What a process does.
pub type Work<'f, T> = Pin<Box<dyn Future<Output = T> + 'f>>;

/// Which of an executor's futures is meant: the first spawned is 0.
pub type RootId = usize;

/// Runs several futures side by side, on one thread, always in the same order.
pub struct Executor<'f, T> {
    model: Model,
    roots: Vec<Root<'f, T>>,
    polls: u32,
}

struct Root<'f, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + 'f>>>,
    mortality: Mortality,
    woken: Arc<Flag>,
    waker: Waker,
}

/// What kills a root.
enum Mortality {
    /// The death of this process.
    Process(ProcessId),
    /// The death of any process after so many others.
    Any(usize),
    /// Time.
    At(Instant),
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<T> fmt::Debug for Executor<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("roots", &self.roots.len()).finish_non_exhaustive()
    }
}

impl<'f, T> Executor<'f, T> {
    /// One for this world.
    #[must_use]
    pub fn new(model: &Model) -> Self {
        Self { model: model.clone(), roots: Vec::new(), polls: 0 }
    }

    /// Takes in what this process does; when the process is killed, the future is dropped.
    pub fn spawn(&mut self, process: &Process, future: impl Future<Output = T> + 'f) -> RootId {
        self.add(Mortality::Process(process.id()), future)
    }

    fn add(&mut self, mortality: Mortality, future: impl Future<Output = T> + 'f) -> RootId {
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        self.roots.push(Root { future: Some(Box::pin(future)), mortality, woken, waker });
        self.roots.len() - 1
    }

    /// Goes on until one of the futures has ended, and says which; none when all have.
    ///
    /// # Errors
    /// When none of them can ever end.
    pub fn run(&mut self) -> Result<Option<(RootId, Ended<T>)>, Halt> {
        loop {
            if self.roots.iter().all(|root| root.future.is_none()) {
                return Ok(None);
            }
            if let Some(ended) = self.reap() {
                return Ok(Some(ended));
            }
            let (mut ended, mut polled) = (None, false);
            for (id, root) in self.roots.iter_mut().enumerate() {
                let Some(future) = &mut root.future else { continue };
                if !root.woken.0.swap(false, Ordering::Relaxed) {
                    continue;
                }
                polled = true;
                self.polls += 1;
                if self.polls > POLLS_AT_ONE_INSTANT {
                    return Err(Halt::Spinning);
                }
                if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&root.waker)) {
                    root.future = None;
                    // the dead have no results
                    let dead = is_dead(&root.mortality, &self.model);
                    ended = Some((id, if dead { Ended::Killed } else { Ended::Done(value) }));
                    break;
                }
            }
            if ended.is_some() {
                return Ok(ended);
            }
            if !polled {
                self.advance()?;
            }
        }
    }

    /// Drops the first future whose process was killed.
    fn reap(&mut self) -> Option<(RootId, Ended<T>)> {
        let model = &self.model;
        let (id, root) = self
            .roots
            .iter_mut()
            .enumerate()
            .find(|(_, root)| root.future.is_some() && is_dead(&root.mortality, model))?;
        root.future = None;
        Some((id, Ended::Killed))
    }

    fn advance(&mut self) -> Result<(), Halt> {
        self.polls = 0;
        let limit = self.roots.iter().filter(|root| root.future.is_some()).filter_map(|root| match root.mortality {
            Mortality::At(at) => Some(at),
            Mortality::Process(_) | Mortality::Any(_) => None,
        });
        self.model.advance(limit.min())
    }
}

fn is_dead(mortality: &Mortality, model: &Model) -> bool {
    match mortality {
        Mortality::Process(id) => model.with(|world| world.is_killed(*id)),
        Mortality::Any(before) => model.with(|world| world.deaths() > *before),
        Mortality::At(at) => model.with(|world| world.now() >= *at),
    }
}

/// Runs one future to its end.
///
/// # Errors
/// When it can never end, or a process of the world is killed meanwhile: the future is dropped then.
pub fn block_on<T>(model: &Model, future: impl Future<Output = T>) -> Result<T, Halt> {
    let deaths = model.with(|world| world.deaths());
    let mut executor = Executor::new(model);
    executor.add(Mortality::Any(deaths), future);
    finish(executor)
}

/// Runs one future until then, and drops it if it has not ended: what a kill at that moment does.
///
/// # Errors
/// [`Halt::Killed`] when it had not ended; otherwise when it can never end.
pub fn block_on_until<T>(model: &Model, at: Instant, future: impl Future<Output = T>) -> Result<T, Halt> {
    let mut executor = Executor::new(model);
    executor.add(Mortality::At(at), future);
    finish(executor)
}

/// Runs what several processes do, side by side; the results are in the order of `roots`.
///
/// # Errors
/// When one of them can never end.
pub fn block_on_all<T>(model: &Model, roots: Vec<(Process, Work<'_, T>)>) -> Result<Vec<Ended<T>>, Halt> {
    let mut executor = Executor::new(model);
    for (process, future) in roots {
        executor.spawn(&process, future);
    }
    let mut results: Vec<Option<Ended<T>>> = executor.roots.iter().map(|_| None).collect();
    while let Some((id, ended)) = executor.run()? {
        if let Some(place) = results.get_mut(id) {
            *place = Some(ended);
        }
    }
    Ok(results.into_iter().flatten().collect())
}

fn finish<T>(mut executor: Executor<'_, T>) -> Result<T, Halt> {
    match executor.run()? {
        Some((_, Ended::Done(value))) => Ok(value),
        Some((_, Ended::Killed)) | None => Err(Halt::Killed),
    }
}
