//! What goes wrong again and again, told now and then.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spot_core::ports::Observer;
use spot_core::progress::Progress;

/// How long a problem that goes on is not told again: a metadata service that fails is asked every two seconds, on every
/// node.
const PAUSE: Duration = Duration::from_mins(1);

/// Tells another observer everything, but each problem once a minute.
pub(super) struct Calm {
    to: Arc<dyn Observer>,
    told: Mutex<BTreeMap<String, Timestamp>>,
}

impl Calm {
    pub(super) fn new(to: Arc<dyn Observer>) -> Self {
        Self { to, told: Mutex::default() }
    }

    fn is_new(&self, at: Timestamp, what: &str) -> bool {
        // Whatever happened meanwhile, what was told was told.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, last| at.duration_since(*last).unsigned_abs() < PAUSE);
        if told.contains_key(what) {
            return false;
        }
        told.insert(what.to_owned(), at);
        true
    }
}

impl fmt::Debug for Calm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calm").field("told", &self.told).finish_non_exhaustive()
    }
}

impl Observer for Calm {
    fn observe(&self, at: Timestamp, event: &Progress) {
        match event {
            Progress::Problem { what, .. } if !self.is_new(at, what) => {}
            event => self.to.observe(at, event),
        }
    }
}

#[cfg(test)]
mod tests {
    use spot_core::error::ErrorClass;

    use super::*;

    /// What it is told, and in which second.
    #[derive(Default)]
    struct Heard(Mutex<Vec<(i64, String)>>);

    impl Observer for Heard {
        fn observe(&self, at: Timestamp, event: &Progress) {
            let words = match event {
                Progress::Problem { what, .. } => what.clone(),
                _ => "else".to_owned(),
            };
            self.0.lock().unwrap().push((at.as_second(), words));
        }
    }

    #[test]
    fn a_problem_that_goes_on_is_told_once_a_minute_and_everything_else_at_once() {
        let heard = Arc::new(Heard::default());
        let calm = Calm::new(Arc::clone(&heard) as Arc<dyn Observer>);
        let at = |second| Timestamp::from_second(second).unwrap();
        let problem =
            |what: &str| Progress::Problem { node: None, class: ErrorClass::Transient, what: what.to_owned() };
        for second in 0..=61 {
            calm.observe(at(second), &problem("it answers 500"));
        }
        calm.observe(at(62), &problem("it answers 503"));
        for second in [63, 64] {
            calm.observe(at(second), &Progress::NextRun { at: at(second) });
        }
        let told = heard.0.lock().unwrap().clone();
        let expected =
            [(0, "it answers 500"), (60, "it answers 500"), (62, "it answers 503"), (63, "else"), (64, "else")];
        assert_eq!(told, expected.map(|(second, what)| (second, what.to_owned())));
    }
}
