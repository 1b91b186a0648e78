//! Questions to the outside that tell, before anything is touched, whether a feature can work, and waiting for answers.

use std::time::Duration;

use anyhow::anyhow;
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::ports::{Clock, Instant};
use tracing::warn;

use crate::exit::Fault;

/// How long one round of questions may take: a single run has no other, and where one is throttled, fails or hangs, it is
/// asked again.
const ROUND: Duration = Duration::from_mins(1);
/// How long the only round may take of what is begun all the same.
const BRIEF: Duration = Duration::from_secs(10);
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(5);

/// What became of one question.
#[derive(Debug)]
pub struct Answer {
    /// What was asked, by the name of the right that it needs.
    pub question: String,
    /// Whether it was answered as a run needs it.
    pub outcome: Result<(), PortError>,
    /// Whether a run can do without: not every cluster needs it.
    pub dispensable: bool,
}

impl Answer {
    /// Why a run can't begin, and asking again would not help, if so.
    #[must_use]
    pub fn refusal(&self) -> Option<&PortError> {
        self.definite().filter(|_| !self.dispensable)
    }

    /// Why a run has to do without something, if so.
    #[must_use]
    pub fn advice(&self) -> Option<&PortError> {
        self.definite().filter(|_| self.dispensable)
    }

    fn definite(&self) -> Option<&PortError> {
        let error = self.outcome.as_ref().err()?;
        match error.class {
            ErrorClass::Denied | ErrorClass::Permanent => Some(error),
            ErrorClass::Transient | ErrorClass::Timeout | ErrorClass::NotLeader => None,
        }
    }
}

#[cfg(feature = "aws")]
impl From<spot_aws::Checked> for Answer {
    fn from(checked: spot_aws::Checked) -> Self {
        let spot_aws::Checked { action, outcome, dispensable } = checked;
        Self { question: action.to_string(), outcome, dispensable }
    }
}

/// Asks again and again for `patience`, once at least, until everything that is needed is answered; `who` is asked.
///
/// # Errors
/// When something is refused, or not answered for so long.
pub async fn answered(
    who: &str,
    clock: &dyn Clock,
    patience: Duration,
    ask: impl AsyncFn(Instant) -> Vec<Answer>,
) -> Result<(), Fault> {
    let until = clock.instant() + patience;
    loop {
        let answers = ask(clock.instant() + ROUND).await;
        let next = clock.instant() + PAUSE;
        let refused = answers.iter().find_map(Answer::refusal);
        let mut needed = answers.iter().filter(|answer| answer.advice().is_none());
        let Some(error) = refused.or_else(|| needed.find_map(|answer| answer.outcome.as_ref().err())) else {
            advise(&answers);
            return Ok(());
        };
        if refused.is_some() || next > until {
            return Err(fault(who, error));
        }
        warn!(error = chain(error), "{who} does not answer yet; trying again");
        clock.sleep_until(next).await;
    }
}

/// Asks once, and not for long, whether anything that is needed is refused; `who` is asked. What is not answered is not
/// refused.
///
/// # Errors
/// When something is refused.
pub async fn unrefused(who: &str, clock: &dyn Clock, ask: impl AsyncFn(Instant) -> Vec<Answer>) -> Result<(), Fault> {
    let answers = ask(clock.instant() + BRIEF).await;
    if let Some(error) = answers.iter().find_map(Answer::refusal) {
        return Err(fault(who, error));
    }
    for error in
        answers.iter().filter(|answer| answer.advice().is_none()).filter_map(|answer| answer.outcome.as_ref().err())
    {
        warn!(error = chain(error), "{who} does not answer yet; it is begun all the same");
    }
    advise(&answers);
    Ok(())
}

fn fault(who: &str, error: &PortError) -> Fault {
    Fault::failed(anyhow!("{who} does not answer as it has to, and nothing was touched: {}", chain(error)))
}

fn advise(answers: &[Answer]) {
    for error in answers.iter().filter_map(Answer::advice) {
        warn!(error = chain(error), "a right is missing: the run goes without what needs it");
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rstest::rstest;
    use spot_core::model::{self, WorldBuilder};

    use super::*;

    /// An answer of this class; none: as it should be.
    fn answer(class: Option<ErrorClass>, dispensable: bool) -> Answer {
        let outcome = class.map_or(Ok(()), |class| Err(PortError::new(class, class.as_str())));
        Answer { question: "a".to_owned(), outcome, dispensable }
    }

    #[rstest]
    #[case::answered(None, false, (false, false))]
    #[case::denied(Some(ErrorClass::Denied), false, (true, false))]
    #[case::refused(Some(ErrorClass::Permanent), false, (true, false))]
    #[case::denied_what_can_be_missed(Some(ErrorClass::Denied), true, (false, true))]
    #[case::refused_what_can_be_missed(Some(ErrorClass::Permanent), true, (false, true))]
    #[case::unreachable(Some(ErrorClass::Transient), false, (false, false))]
    #[case::too_late(Some(ErrorClass::Timeout), false, (false, false))]
    #[case::too_late_for_what_can_be_missed(Some(ErrorClass::Timeout), true, (false, false))]
    fn only_a_definite_answer_is_a_refusal_or_advice(
        #[case] class: Option<ErrorClass>,
        #[case] dispensable: bool,
        #[case] expected: (bool, bool),
    ) {
        let answer = answer(class, dispensable);
        assert_eq!((answer.refusal().is_some(), answer.advice().is_some()), expected);
    }

    /// What becomes of a start that is this patient, under virtual time.
    fn start(patience: Duration, ask: impl AsyncFn(Instant) -> Vec<Answer>) -> Result<(), String> {
        let model = WorldBuilder::default().build();
        let ended =
            model::block_on(&model, answered("it", &model.process(), patience, ask)).expect("it comes to an end");
        ended.map_err(|fault| fault.error.to_string())
    }

    #[rstest]
    #[case::what_may_pass_passes(ErrorClass::Transient, false, 2, 3, true)]
    #[case::what_takes_too_long_is_in_time_later(ErrorClass::Timeout, false, 1, 2, true)]
    #[case::patience_ends(ErrorClass::Transient, false, u32::MAX, 3, false)]
    #[case::a_denial_ends_it_at_once(ErrorClass::Denied, false, u32::MAX, 1, false)]
    #[case::a_refusal_ends_it_at_once(ErrorClass::Permanent, false, u32::MAX, 1, false)]
    #[case::it_goes_without_what_can_be_missed(ErrorClass::Denied, true, u32::MAX, 1, true)]
    #[case::what_can_be_missed_is_waited_for_too(ErrorClass::Transient, true, 1, 2, true)]
    fn a_run_begins_once_what_it_needs_is_answered(
        #[case] class: ErrorClass,
        #[case] dispensable: bool,
        #[case] failures: u32,
        #[case] rounds: u32,
        #[case] begins: bool,
    ) {
        let asked = Cell::new(0);
        let ended = start(2 * PAUSE, async |_by| {
            asked.set(asked.get() + 1);
            vec![answer(None, false), answer((asked.get() <= failures).then_some(class), dispensable)]
        });
        assert_eq!((asked.get(), ended.is_ok()), (rounds, begins), "{ended:?}");
        if let Err(said) = ended {
            assert!(said.contains("nothing was touched") && said.ends_with(class.as_str()), "{said}");
        }
    }

    #[rstest]
    #[case::what_may_pass_stops_nothing(ErrorClass::Transient, false, true)]
    #[case::what_takes_too_long_stops_nothing(ErrorClass::Timeout, false, true)]
    #[case::a_denial_is_final(ErrorClass::Denied, false, false)]
    #[case::a_refusal_is_final(ErrorClass::Permanent, false, false)]
    #[case::it_goes_without_what_can_be_missed(ErrorClass::Denied, true, true)]
    fn who_repeats_its_questions_anyway_begins_unless_it_is_refused(
        #[case] class: ErrorClass,
        #[case] dispensable: bool,
        #[case] begins: bool,
    ) {
        let model = WorldBuilder::default().build();
        let (process, asked) = (model.process(), Cell::new(0));
        let ask = async |_by| {
            asked.set(asked.get() + 1);
            vec![answer(Some(ErrorClass::Transient), false), answer(Some(class), dispensable)]
        };
        let ended = model::block_on(&model, unrefused("it", &process, ask)).expect("it comes to an end");
        assert_eq!((asked.get(), ended.is_ok()), (1, begins), "{ended:?}");
    }

    #[test]
    fn a_refusal_is_told_before_what_may_pass() {
        let both = || vec![answer(Some(ErrorClass::Timeout), false), answer(Some(ErrorClass::Denied), false)];
        let ended = start(PAUSE, async |_by| both());
        assert!(ended.expect_err("a right is missing").ends_with("denied"));
    }
}
