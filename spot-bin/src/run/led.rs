//! What goes on under the lead: the migration, and beside it the answer to interruptions. Either goes on without the
//! other, which may lack a right or be refused; neither goes on without the lead.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use futures::{future, try_join};
use spot_core::error::RunError;
use spot_core::interruption::{Hold, Interruptions};
use spot_core::migrator::Migrator;
use spot_core::ports::Ports;
use spot_core::progress::Report;
use spot_core::stop::Stop;
use tokio::sync::watch;
use tracing::{error, warn};

use super::{Work, fault};
use crate::config::Config;
use crate::connection;
use crate::exit::{Exit, Fault};
use crate::feature::Feature;
use crate::metrics::Metrics;
use crate::notices::Notices;
use crate::notify::Notifier;
use crate::provider::Provider;
use crate::rights::Missing;
use crate::settings::{self, Own};

/// Who does not answer may do so at any later time: the other feature goes on meanwhile.
const FOR_EVER: Duration = Duration::MAX;

/// The work of a process that leads.
pub(super) struct Led<'a> {
    pub(super) work: &'a Work<'a>,
    pub(super) in_force: watch::Receiver<Arc<Config>>,
    pub(super) own: &'a Own,
    pub(super) metrics: &'a Metrics,
    pub(super) notifier: &'a Notifier,
    pub(super) ports: Ports,
    pub(super) provider: &'a Provider,
    pub(super) missing: &'a Missing,
    pub(super) stop: &'a Stop,
}

/// How one feature ended.
#[derive(Debug)]
enum Ended {
    /// There is no more to do.
    Over(Exit),
    /// It never began: something was refused.
    Refused(Fault),
    /// Nobody asked for it.
    Unasked,
}

impl Led<'_> {
    /// Everything, to its end; with a queue of notices, if one is to be read.
    pub(super) async fn everything(&self, notices: Result<Option<Notices>, Fault>) -> Result<Exit, Fault> {
        let hold = Hold::default();
        let migration = self.migration(&hold);
        let answers = async {
            match notices {
                Ok(Some(notices)) => self.answers(&notices, &hold).await,
                Ok(None) => Ok(Ended::Unasked),
                Err(fault) => Ok(self.without(Feature::Interruption, fault)),
            }
        };
        // The first that fails ends the other: the lead is lost, or the process is broken.
        let (migration, answers) = tokio::select! {
            biased;
            ended = async { try_join!(migration, answers) } => ended?,
            // While both wait for somebody to answer, neither would know.
            () = self.ports.leadership.lost() => return Err(fault(RunError::LostLeadership)),
        };
        whole(migration, answers)
    }

    async fn migration(&self, hold: &Hold) -> Result<Ended, Fault> {
        if self.work.answers() {
            if let Err(fault) = connection::need(&self.missing.migration) {
                return Ok(self.without(Feature::Migration, fault));
            }
            let answered = tokio::select! {
                answered = self.provider.must_answer(self.ports.clock.as_ref(), FOR_EVER) => answered,
                () = self.stop.wait() => return Ok(Ended::Over(Exit::Orderly)),
            };
            if let Err(fault) = answered {
                return Ok(self.without(Feature::Migration, fault));
            }
        }
        let mut in_force = self.in_force.clone();
        let settings = settings::settings(&in_force.borrow_and_update(), self.own);
        let migrator = Migrator::new(self.ports.clone(), settings).with_hold(hold.clone());
        if self.work.args.once {
            let report = migrator.once(self.stop).await.map_err(fault)?;
            return match failures(&report) {
                None => Ok(Ended::Over(Exit::of(&report, self.work.args.detailed_exit_code))),
                Some(error) => Err(Fault::failed(error)),
            };
        }
        tokio::select! {
            ended = migrator.run(self.stop) => ended.map_err(fault)?,
            never = self.renewed(&migrator, in_force) => match never {},
        }
        if !self.stop.is_set() {
            warn!("the schedule does not fire any more");
        }
        Ok(Ended::Over(Exit::Orderly))
    }

    /// Has the migrator go by each configuration that comes into force.
    async fn renewed(&self, migrator: &Migrator, mut in_force: watch::Receiver<Arc<Config>>) -> Infallible {
        while in_force.changed().await.is_ok() {
            migrator.renew(settings::settings(&in_force.borrow_and_update(), self.own));
        }
        future::pending().await
    }

    async fn answers(&self, notices: &Notices, hold: &Hold) -> Result<Ended, Fault> {
        if let Err(fault) = connection::need(&self.missing.interruption) {
            return Ok(self.without(Feature::Interruption, fault));
        }
        let answered = tokio::select! {
            answered = notices.must_not_refuse(self.ports.clock.as_ref()) => answered,
            () = self.stop.wait() => return Ok(Ended::Over(Exit::Orderly)),
        };
        if let Err(fault) = answered {
            return Ok(self.without(Feature::Interruption, fault));
        }
        let settings = settings::interruption(&self.in_force.borrow(), self.own);
        let interruptions = Interruptions::new(self.ports.clone(), notices.source(), settings, hold.clone());
        interruptions.run(self.stop).await.map_err(fault)?;
        if !self.stop.is_set() {
            return Err(Fault::failed(anyhow!("the reader of notices ended by itself")));
        }
        Ok(Ended::Over(Exit::Orderly))
    }

    /// Says that the process goes on without something that it was asked for.
    fn without(&self, feature: Feature, fault: Fault) -> Ended {
        error!(
            feature = feature.as_str(),
            error = format_args!("{:#}", fault.error),
            "disabled: it is refused what it needs"
        );
        self.metrics.goes_without(feature);
        self.notifier.without(self.ports.clock.now(), feature, format!("{:#}", fault.error));
        Ended::Refused(fault)
    }
}

/// How the process ends when both have.
fn whole(migration: Ended, answers: Ended) -> Result<Exit, Fault> {
    match (migration, answers) {
        (Ended::Over(exit), _) | (Ended::Refused(_) | Ended::Unasked, Ended::Over(exit)) => Ok(exit),
        (Ended::Refused(fault), Ended::Refused(_) | Ended::Unasked) | (Ended::Unasked, Ended::Refused(fault)) => {
            Err(fault)
        }
        (Ended::Unasked, Ended::Unasked) => Ok(Exit::Orderly),
    }
}

/// What failed in a run that went to its end.
fn failures(report: &Report) -> Option<anyhow::Error> {
    let (node, why) = report.failed.first()?;
    Some(match report.failed.len() {
        1 => anyhow!("node {node} was not retired, and was released: {why}"),
        failed => anyhow!("{failed} nodes were not retired, and were released; the first, {node}: {why}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_fails_once_nothing_is_left_of_what_it_was_asked_for() {
        let refused = || Ended::Refused(Fault::failed(anyhow!("refused")));
        let over = || Ended::Over(Exit::Orderly);
        let code = |ended: Result<Exit, Fault>| ended.unwrap_or_else(|fault| fault.exit);
        assert_eq!(code(whole(over(), over())), Exit::Orderly);
        assert_eq!(code(whole(over(), refused())), Exit::Orderly);
        assert_eq!(code(whole(refused(), over())), Exit::Orderly);
        assert_eq!(code(whole(refused(), refused())), Exit::Failed);
        assert_eq!(code(whole(Ended::Over(Exit::MoreToDo), Ended::Unasked)), Exit::MoreToDo);
    }
}
