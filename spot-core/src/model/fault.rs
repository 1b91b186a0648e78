//! Faults: what is to go wrong, at which call.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::ErrorClass;
use crate::ports::EvictAnswer;

use super::process::Fate;
use super::record::Call;
use super::world::{Script, World};

/// What goes wrong at a call.
pub enum Fault {
    /// It fails with an error of this class, without effect.
    Fail(ErrorClass),
    /// It never ends, and has no effect.
    Hang,
    /// It has its effect, but its answer is lost: a time-out, as far as the caller knows.
    LoseAnswer,
    /// The process dies before the call has its effect.
    KillBefore,
    /// The process dies when the call has had its effect.
    KillAfter,
    /// An eviction is answered with this, without effect; other calls take their course.
    Evict(EvictAnswer),
    /// Something happens in the world right before the call has its effect.
    Before(Box<dyn FnOnce(&mut World) + Send>),
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(class) => f.debug_tuple("Fail").field(class).finish(),
            Self::Hang => f.write_str("Hang"),
            Self::LoseAnswer => f.write_str("LoseAnswer"),
            Self::KillBefore => f.write_str("KillBefore"),
            Self::KillAfter => f.write_str("KillAfter"),
            Self::Evict(answer) => f.debug_tuple("Evict").field(answer).finish(),
            Self::Before(_) => f.write_str("Before"),
        }
    }
}

/// A fault that strikes whenever a call is of a kind.
struct Rule {
    matches: Box<dyn FnMut(&Call) -> bool + Send>,
    fate: Fate,
    left: u32,
}

/// What is to go wrong.
#[derive(Default)]
pub(super) struct Plan {
    fates: BTreeMap<u64, Fate>,
    scripts: BTreeMap<u64, Vec<Script>>,
    rules: Vec<Rule>,
}

impl Plan {
    /// What is to become of this call.
    pub(super) fn fate(&mut self, number: u64, call: &Call) -> Fate {
        if let Some(fate) = self.fates.remove(&number) {
            return fate;
        }
        for rule in self.rules.iter_mut().filter(|rule| rule.left > 0) {
            if (rule.matches)(call) {
                rule.left -= 1;
                return rule.fate.clone();
            }
        }
        Fate::Normal
    }

    /// What is to happen right before this call has its effect.
    pub(super) fn before(&mut self, number: u64) -> Vec<Script> {
        self.scripts.remove(&number).unwrap_or_default()
    }
}

impl World {
    /// Has this go wrong at the call of this number. Several scripts may precede one call; of other faults one counts.
    pub fn fault_at(&mut self, number: u64, fault: Fault) {
        match fate(fault) {
            Ok(fate) => {
                self.plan.fates.insert(number, fate);
            }
            Err(script) => self.plan.scripts.entry(number).or_default().push(script),
        }
    }

    /// Has this go wrong at the next `times` calls of which `matches` says so.
    ///
    /// [`Fault::Before`] has a number of its own, and does nothing here.
    pub fn fault_when(&mut self, times: u32, fault: Fault, matches: impl FnMut(&Call) -> bool + Send + 'static) {
        if let Ok(fate) = fate(fault) {
            self.plan.rules.push(Rule { matches: Box::new(matches), fate, left: times });
        }
    }
}

fn fate(fault: Fault) -> Result<Fate, Script> {
    Ok(match fault {
        Fault::Fail(class) => Fate::Fail(class),
        Fault::Hang => Fate::Hang,
        Fault::LoseAnswer => Fate::LoseAnswer,
        Fault::KillBefore => Fate::KillBefore,
        Fault::KillAfter => Fate::KillAfter,
        Fault::Evict(answer) => Fate::Evict(answer),
        Fault::Before(script) => return Err(script),
    })
}
