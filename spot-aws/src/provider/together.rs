//! Questions that come while others are being answered: all of them are answered together by the next round of calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use futures::lock::MutexGuard;
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::Lane;

use crate::error::CallError;
use crate::provider::lock;

/// Why a round has no answers. Everybody in it is told.
#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// A call failed.
    Call(CallError),
    /// We do not lead.
    NotLeader(String),
}

impl Failed {
    /// Whether to ask again may help.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Call(error) => error.may_pass(),
            Self::NotLeader(_) => false,
        }
    }
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// A write is refused before it is sent for this reason only.
impl From<PortError> for Failed {
    fn from(error: PortError) -> Self {
        Self::NotLeader(error.to_string())
    }
}

impl From<Failed> for PortError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Call(error) => error.into(),
            Failed::NotLeader(words) => Self::new(ErrorClass::NotLeader, words),
        }
    }
}

/// Where questions about instances meet, which are answered by `T`.
#[derive(Debug)]
pub(crate) struct Together<T> {
    waiting: Mutex<Waiting>,
    round: futures::lock::Mutex<Option<Round<T>>>,
}

impl<T> Default for Together<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), round: futures::lock::Mutex::default() }
    }
}

/// The questions that nobody has the answer to yet.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    questions: BTreeMap<u64, String>,
}

/// The latest round: it answered every question that came before this one.
#[derive(Debug)]
struct Round<T> {
    before: u64,
    answers: Result<BTreeMap<String, T>, Failed>,
}

/// A question, until it is dropped.
struct Question<'a> {
    waiting: &'a Mutex<Waiting>,
    id: String,
    number: u64,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        lock(self.waiting).questions.remove(&self.number);
    }
}

/// One for each kind of work: neither waits for the other's.
#[derive(Debug, Default)]
pub(crate) struct Lanes<T> {
    forced: T,
    planned: T,
}

impl<T> Lanes<T> {
    pub(crate) const fn of(&self, lane: Lane) -> &T {
        match lane {
            Lane::Forced => &self.forced,
            Lane::Planned => &self.planned,
        }
    }
}

/// Whose turn it is to ask.
pub(crate) enum Turn<'a, T> {
    /// Somebody else asked.
    Answered(Result<Option<T>, Failed>),
    /// Ours, for everybody who waits by now.
    Ours(Asking<'a, T>),
}

/// A round that is under way.
pub(crate) struct Asking<'a, T> {
    /// About which instances.
    pub(crate) ids: BTreeSet<String>,
    question: Question<'a>,
    before: u64,
    round: MutexGuard<'a, Option<Round<T>>>,
}

impl<T: Clone> Asking<'_, T> {
    /// Tells everybody, and what there is to say of our own instance.
    pub(crate) fn told(mut self, answers: Result<BTreeMap<String, T>, Failed>) -> Result<Option<T>, Failed> {
        let own = answers.as_ref().map(|answers| answers.get(&self.question.id).cloned());
        let own = own.map_err(Clone::clone);
        *self.round = Some(Round { before: self.before, answers });
        own
    }
}

impl<T: Clone> Together<T> {
    /// Asks about an instance: whoever comes first, for all who have come by the time that the round before has ended. A
    /// question that is dropped is withdrawn, unless its round has begun.
    pub(crate) async fn ask(&self, id: &str) -> Turn<'_, T> {
        let question = self.put(id);
        let round = self.round.lock().await;
        if let Some(Round { before, answers }) = &*round
            && *before > question.number
        {
            return Turn::Answered(answers.as_ref().map(|answers| answers.get(id).cloned()).map_err(Clone::clone));
        }
        let (before, ids) = {
            let waiting = lock(&self.waiting);
            (waiting.next, waiting.questions.values().cloned().collect())
        };
        Turn::Ours(Asking { ids, question, before, round })
    }

    fn put(&self, id: &str) -> Question<'_> {
        let mut waiting = lock(&self.waiting);
        let number = waiting.next;
        waiting.next += 1;
        waiting.questions.insert(number, id.to_owned());
        drop(waiting);
        Question { waiting: &self.waiting, id: id.to_owned(), number }
    }
}
