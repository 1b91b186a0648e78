//! A process that works on the world: what it calls, it calls under its own number, and it can be killed.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::error::{ErrorClass, PortError};
use crate::pool::PoolCapacity;
use crate::ports::{Alone, Clock, Instant, Leadership, NoticeSource, Observer, Ports};

use super::Model;
use super::record::{Answer, Call};
use super::world::World;

/// How long an adapter waits for one answer: what a lost answer costs.
const ATTEMPT: Duration = Duration::from_secs(10);

/// Which process is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// One process. A process that starts again is another one.
#[derive(Clone, Debug)]
pub struct Process {
    pub(super) model: Model,
    id: ProcessId,
}

/// What is to become of a call.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "test-util"), expect(dead_code, reason = "only faults make others than the normal one"))]
pub(super) enum Fate {
    /// It takes its course.
    #[default]
    Normal,
    /// It fails without effect.
    Fail(ErrorClass),
    /// It never ends, and has no effect.
    Hang,
    /// It has its effect, but the answer is lost.
    LoseAnswer,
    /// The process dies before the effect.
    KillBefore,
    /// The process dies after the effect.
    KillAfter,
    /// An eviction is answered with this, without effect.
    Evict(crate::ports::EvictAnswer),
}

impl Process {
    pub(super) const fn new(model: Model, id: ProcessId) -> Self {
        Self { model, id }
    }

    /// Which it is.
    #[must_use]
    pub const fn id(&self) -> ProcessId {
        self.id
    }

    /// The world as this process reaches it.
    #[must_use]
    pub fn ports(&self, observer: Arc<dyn Observer>, leadership: Arc<dyn Leadership>) -> Ports {
        let process = Arc::new(self.clone());
        Ports {
            cluster: Arc::clone(&process) as Arc<dyn crate::ports::Cluster>,
            cloud: Arc::clone(&process) as Arc<dyn crate::ports::CloudProvider>,
            clock: process,
            observer,
            leadership,
        }
    }

    /// The same for a process that is known to be alone.
    #[must_use]
    pub fn ports_alone(&self, observer: Arc<dyn Observer>) -> Ports {
        self.ports(observer, Arc::new(Alone))
    }

    /// Whoever announces what happens to machines, as this process reaches it.
    #[must_use]
    pub fn notices(&self) -> Arc<dyn NoticeSource> {
        Arc::new(self.clone())
    }

    /// What keeps the capacity of the world's pool, as this process reaches it.
    #[must_use]
    pub fn pool(&self) -> Arc<dyn PoolCapacity> {
        Arc::new(self.clone())
    }

    /// Kills it: none of its calls has an effect from now on, and the executor drops its future.
    pub fn kill(&self) {
        self.model.with(|world| world.kill(self.id));
    }

    /// One call: there, the effect, and back.
    pub(super) async fn call<R: Send>(
        &self,
        call: Call,
        by: Instant,
        effect: impl FnOnce(&mut World) -> Result<(R, Answer), PortError> + Send,
    ) -> Result<R, PortError> {
        let number = self.send(call, by).await?;
        let result = self.model.with(|world| {
            if world.is_killed(self.id) {
                return None;
            }
            Some(world.effect(number, effect))
        });
        let Some((result, fate)) = result else { return pending().await };
        match fate {
            Fate::KillAfter => pending().await,
            Fate::LoseAnswer => {
                self.sleep_until(by.min(self.instant() + ATTEMPT)).await;
                Err(late("the answer was lost"))
            }
            Fate::Normal | Fate::Fail(_) | Fate::Hang | Fate::KillBefore | Fate::Evict(_) => {
                self.travel_back(by).await?;
                result
            }
        }
    }

    /// A call's way there. Returns its number when it has arrived.
    pub(super) async fn send(&self, call: Call, by: Instant) -> Result<u64, PortError> {
        let began = self.model.with(|world| (!world.is_killed(self.id)).then(|| world.begin(self.id, call)));
        let Some((number, latency, fate)) = began else { return pending().await };
        let arrival = self.instant() + latency / 2;
        self.sleep_until(arrival.min(by)).await;
        if arrival > by {
            self.fail(number, ErrorClass::Timeout);
            return Err(late("it did not arrive within its deadline"));
        }
        match fate {
            Fate::Hang => {
                self.model.with(|world| world.answer(number, Answer::Hung));
                pending().await
            }
            Fate::KillBefore => {
                self.model.with(|world| {
                    world.answer(number, Answer::Killed);
                    world.kill(self.id);
                });
                pending().await
            }
            Fate::Fail(class) => {
                self.fail(number, class);
                self.travel_back(by).await?;
                Err(PortError::new(class, format!("call {number} was made to fail")))
            }
            Fate::Normal | Fate::LoseAnswer | Fate::KillAfter | Fate::Evict(_) => Ok(number),
        }
    }

    /// An answer's way back.
    pub(super) async fn travel_back(&self, by: Instant) -> Result<(), PortError> {
        let arrival = self.instant() + self.model.with(|world| world.settings().latency / 2);
        self.sleep_until(arrival.min(by)).await;
        if arrival > by { Err(late("its answer did not come within its deadline")) } else { Ok(()) }
    }

    fn fail(&self, number: u64, class: ErrorClass) {
        self.model.with(|world| world.answer(number, Answer::Failed(class, "made to fail".to_owned())));
    }
}

fn late(what: &str) -> PortError {
    PortError::new(ErrorClass::Timeout, what)
}

#[async_trait]
impl Clock for Process {
    fn now(&self) -> Timestamp {
        self.model.with(|world| world.wall())
    }
    fn instant(&self) -> Instant {
        self.model.with(|world| world.now())
    }
    async fn sleep_until(&self, at: Instant) {
        Sleep { model: &self.model, at, timer: None }.await;
    }
}

/// Waits for a moment of virtual time.
struct Sleep<'m> {
    model: &'m Model,
    at: Instant,
    timer: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (at, timer) = (self.at, self.timer);
        let (ready, timer) = self.model.with(|world| world.poll_timer(at, timer, context.waker()));
        self.timer = timer;
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.model.with(|world| world.drop_timer(self.at, timer));
        }
    }
}
