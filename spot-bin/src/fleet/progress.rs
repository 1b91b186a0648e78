//! How far the work on a pool is, for whoever watches: a line for what happens, and on a terminal a bar below them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use spot_core::node::NodeRef;
use spot_core::pool::{Count, Told};
use spot_core::ports::Observer;
use spot_core::progress::{Progress, Step};

use crate::output;

/// Shows it on standard error.
#[derive(Debug)]
pub(super) struct Shown {
    /// None: nobody watches.
    bar: Option<ProgressBar>,
    /// What was said last of something that is waited for; it is said again only when it is another.
    waits: Mutex<Option<String>>,
}

impl Shown {
    /// With a bar if somebody watches.
    #[must_use]
    pub(super) fn new(is_watched: bool) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: is_watched.then(|| ProgressBar::no_length().with_style(style)), waits: Mutex::default() }
    }

    /// Says something, above the bar.
    pub(super) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::line(line)),
            None => output::line(line),
        }
    }

    /// Ends with the last line: what comes is the result.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn count(&self, count: Count) {
        let Some(bar) = &self.bar else { return output::line(&count.to_string()) };
        bar.set_length(u64::from(count.wanted));
        bar.set_position(u64::from(count.ready.min(count.wanted)));
        bar.set_message(count.to_string());
    }

    /// Whether this was not said last.
    fn is_news(&self, wait: &str) -> bool {
        let mut said = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = said.as_deref() != Some(wait);
        *said = Some(wait.to_owned());
        is_news
    }
}

impl Observer for Shown {
    fn observe(&self, _at: Timestamp, event: &Progress) {
        match event {
            Progress::Pool(Told::Counted(count)) => self.count(*count),
            event => {
                let Some(line) = words(event) else { return };
                let waits = matches!(event, Progress::Waiting { .. } | Progress::Pool(Told::Waiting { .. }));
                if !waits || self.is_news(&line) {
                    self.say(&line);
                }
            }
        }
    }
}

/// What a person is told of it; nothing of what only takes a moment, and nothing of what the report tells.
fn words(event: &Progress) -> Option<String> {
    Some(match event {
        Progress::Pool(told) => pool(told)?,
        Progress::StepDone { node, step, took } => format!("{node}: {}", done(*step, *took)?),
        Progress::PodBlocked { node, pod, obstacle, since } => {
            format!("{node}: pod {pod} has been in the way for {}: {obstacle}", brief(*since))
        }
        Progress::Retired { node } => format!("{node}: retired"),
        Progress::Released { node, step, why } => format!("{node}: released, because its {step} failed: {why}"),
        Progress::Postponed { node, why } => format!("{node}: released, to go another time: {why}"),
        Progress::Undone { node, undo } => format!("{node}: taken back by a person: {undo}"),
        Progress::Departing { node, why } => format!("{node}: still on its way out: {why}"),
        Progress::Exposed { exposed } => format!("about to lose all its ready pods: {exposed}"),
        Progress::Waiting { reasons } => waits(reasons.iter().map(|(node, reason)| (node, reason.to_string())))?,
        Progress::Problem { node: Some(node), class: _, what } => format!("{node}: problem: {what}"),
        Progress::Problem { node: None, class: _, what } => format!("problem: {what}"),
        Progress::RunStarted { .. }
        | Progress::Judged { .. }
        | Progress::WouldRetire { .. }
        | Progress::StepStarted { .. }
        | Progress::StepHalted { .. }
        | Progress::Refused { .. }
        | Progress::Evicted { .. }
        | Progress::Created { .. }
        | Progress::RunEnded { .. }
        | Progress::RunFailed { .. }
        | Progress::Interruption(_)
        | Progress::NextRun { .. } => return None,
    })
}

fn pool(told: &Told) -> Option<String> {
    Some(match told {
        Told::Counted(_) => return None,
        Told::Resized { fleet, from, to } => format!("fleet {fleet}: wants {to} instead of {from}"),
        Told::Waiting { what } => format!("waiting until {what}"),
        Told::Terminated { fleet, instance } => format!("fleet {fleet}: {instance}, which has no Node, is terminated"),
        Told::Cancelled { fleet } => format!("fleet {fleet}: cancelled"),
    })
}

fn done(step: Step, took: Duration) -> Option<String> {
    let took = brief(took);
    Some(match step {
        Step::Claim => "marked and cordoned".to_owned(),
        Step::Drain => format!("empty after {took}"),
        Step::Detach => format!("out of the load balancers after {took}"),
        Step::Settle => format!("its pods run elsewhere after {took}"),
        Step::Taint | Step::Delete | Step::AwaitGone | Step::Release => return None,
    })
}

fn waits<'a>(mut reasons: impl ExactSizeIterator<Item = (&'a NodeRef, String)>) -> Option<String> {
    let (node, reason) = reasons.next()?;
    let more = match reasons.len() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("waiting: what is in the way of {node} may pass: {reason}{more}"))
}

fn brief(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests {
    use spot_core::claim::InstanceId;
    use spot_core::error::ErrorClass;
    use spot_core::progress::Undo;

    use super::*;
    use crate::sample::node;

    #[test]
    fn what_matters_to_whoever_watches_has_its_words_and_the_rest_has_none() {
        let step = |step, seconds| Progress::StepDone { node: node(), step, took: Duration::from_secs(seconds) };
        let fleet = || "sfr-1".to_owned();
        let why = || "no answer".to_owned();
        let told = [
            Progress::Pool(Told::Counted(Count { wanted: 6, launched: 3, joined: 2, ready: 1 })),
            Progress::Pool(Told::Resized { fleet: fleet(), from: 6, to: 3 }),
            Progress::Pool(Told::Waiting { what: "its fleets can be changed again".to_owned() }),
            Progress::Pool(Told::Terminated { fleet: fleet(), instance: InstanceId::new("i-1") }),
            Progress::Pool(Told::Cancelled { fleet: fleet() }),
            step(Step::Claim, 0),
            step(Step::Drain, 59),
            step(Step::Taint, 0),
            step(Step::Detach, 61),
            step(Step::Delete, 1),
            step(Step::AwaitGone, 30),
            Progress::Retired { node: node() },
            step(Step::Settle, 2),
            Progress::Released { node: node(), step: Step::Drain, why: why() },
            Progress::Postponed { node: node(), why: why() },
            Progress::Undone { node: node(), undo: Undo::Uncordoned },
            Progress::Departing { node: node(), why: why() },
            Progress::Problem { node: Some(node()), class: ErrorClass::Transient, what: why() },
            Progress::Problem { node: None, class: ErrorClass::Transient, what: why() },
            Progress::Created { node: node() },
        ];
        let lines: Vec<_> = told.iter().filter_map(words).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        fleet sfr-1: wants 3 instead of 6
        waiting until its fleets can be changed again
        fleet sfr-1: i-1, which has no Node, is terminated
        fleet sfr-1: cancelled
        node-1: marked and cordoned
        node-1: empty after 59 s
        node-1: out of the load balancers after 1 min 1 s
        node-1: retired
        node-1: its pods run elsewhere after 2 s
        node-1: released, because its drain failed: no answer
        node-1: released, to go another time: no answer
        node-1: taken back by a person: uncordoned
        node-1: still on its way out: no answer
        node-1: problem: no answer
        problem: no answer
        ");
    }

    #[test]
    fn what_is_waited_for_is_said_once_until_it_is_another() {
        let shown = Shown::new(false);
        let news = ["a", "a", "b", "b", "a"].map(|wait| shown.is_news(wait));
        assert_eq!(news, [true, false, true, false, true]);
    }
}
