//! How the process ends: the codes that scripts and Kubernetes read.

use std::process::ExitCode;

use spot_core::progress::{Outcome, Report};

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exit {
    /// 0: whatever the outcome, it is an orderly one.
    Orderly,
    /// 1: something failed.
    Failed,
    /// 2: the arguments or the configuration are wrong; trying again changes nothing.
    Usage,
    /// 3: orderly, but there is more to do. Only where it was asked for.
    MoreToDo,
    /// 4: somebody else leads.
    LeadershipLost,
}

impl Exit {
    /// Every way to end.
    pub const ALL: [Self; 5] = [Self::Orderly, Self::Failed, Self::Usage, Self::MoreToDo, Self::LeadershipLost];

    /// The number that the process returns.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Orderly => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::MoreToDo => 3,
            Self::LeadershipLost => 4,
        }
    }

    /// How a single run ends the process; `detailed` tells "more to do" apart.
    #[must_use]
    pub fn of(report: &Report, detailed: bool) -> Self {
        if report.has_failures() {
            return Self::Failed;
        }
        match &report.outcome {
            Outcome::AllSpot => Self::Orderly,
            Outcome::DryRun(nodes) if nodes.is_empty() => Self::Orderly,
            Outcome::DryRun(_)
            | Outcome::NothingEligible(_)
            | Outcome::SpotExhausted(_)
            | Outcome::NotSettled(_)
            | Outcome::Recovered
            | Outcome::Stopped => Self::more_to_do(detailed),
        }
    }

    /// There is more to do: told apart only with `detailed`.
    #[must_use]
    pub const fn more_to_do(detailed: bool) -> Self {
        if detailed { Self::MoreToDo } else { Self::Orderly }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command failed, and how the process ends for it.
#[derive(Debug)]
pub struct Fault {
    /// How the process ends.
    pub exit: Exit,
    /// What to say: the place, the reason, the remedy.
    pub error: anyhow::Error,
}

impl Fault {
    /// Arguments or configuration are wrong.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Usage, error: error.into() }
    }

    /// Something failed.
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self { exit: Exit::Failed, error: error.into() }
    }
}

impl From<anyhow::Error> for Fault {
    fn from(error: anyhow::Error) -> Self {
        Self { exit: Exit::Failed, error }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::*;
    use crate::sample::{node, report};

    #[rstest]
    #[case(Outcome::AllSpot, 0)]
    #[case(Outcome::NothingEligible(BTreeMap::new()), 3)]
    #[case(Outcome::SpotExhausted(node()), 3)]
    #[case(Outcome::NotSettled("pod a/b is not ready".to_owned()), 3)]
    #[case(Outcome::Recovered, 3)]
    #[case(Outcome::DryRun(vec![node()]), 3)]
    #[case(Outcome::DryRun(Vec::new()), 0)]
    #[case(Outcome::Stopped, 3)]
    fn every_orderly_outcome_is_0_and_only_if_asked_3(#[case] outcome: Outcome, #[case] detailed: u8) {
        let report = report(outcome);
        assert_eq!(Exit::of(&report, false).code(), 0);
        assert_eq!(Exit::of(&report, true).code(), detailed);
    }

    #[test]
    fn a_failed_node_fails_the_run_whatever_else_succeeded() {
        let failed = Report { failed: vec![(node(), "drain failed".to_owned())], ..report(Outcome::AllSpot) };
        assert_eq!(Exit::of(&failed, false), Exit::Failed);
        assert_eq!(Exit::of(&failed, true), Exit::Failed);
    }

    #[test]
    fn codes_are_distinct_and_stable() {
        assert_eq!(Exit::ALL.map(Exit::code), [0, 1, 2, 3, 4]);
    }
}
