//! Which feature goes without a right that is missing.

use spot_kube::Right;
use spot_kube::preflight::Features;

use crate::config::Config;
use crate::leadership;

/// The rights that are missing, by who needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Those without which nothing goes on.
    pub everything: Vec<Right>,
    /// Those of the migration alone.
    pub migration: Vec<Right>,
    /// Those of the answer to interruptions alone.
    pub interruption: Vec<Right>,
    /// Those of Events.
    pub events: Vec<Right>,
}

impl Missing {
    /// These, sorted.
    #[must_use]
    pub fn of(rights: Vec<Right>) -> Self {
        let mut missing = Self::default();
        for right in rights {
            let of_its_kind = match NeededBy::of(&right) {
                NeededBy::Everything => &mut missing.everything,
                NeededBy::Migration => &mut missing.migration,
                NeededBy::Interruption => &mut missing.interruption,
                NeededBy::Events => &mut missing.events,
            };
            of_its_kind.push(right);
        }
        missing
    }

    /// Those without which a process has nothing left to do that migrates, and `answers` interruptions or does not.
    #[must_use]
    pub fn fatal(&self, answers: bool) -> Vec<Right> {
        let Self { everything, migration, interruption, events: _ } = self;
        let one_goes_on = answers && (migration.is_empty() || interruption.is_empty());
        if everything.is_empty() && one_goes_on {
            return Vec::new();
        }
        [everything, migration, interruption].into_iter().flatten().cloned().collect()
    }
}

/// Who needs a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeededBy {
    /// Whatever is done.
    Everything,
    /// Only the migration: it deletes Node objects, and remembers.
    Migration,
    /// Only the answer to interruptions: it deletes pods of dying nodes.
    Interruption,
    /// Only the Events, without which everything goes on.
    Events,
}

impl NeededBy {
    /// Who needs this one.
    #[must_use]
    pub fn of(right: &Right) -> Self {
        match (right.resource, right.subresource, right.verb) {
            ("events", ..) => Self::Events,
            ("pods", None, "delete") => Self::Interruption,
            ("nodes", None, "delete") | ("configmaps", None, "patch" | "create") => Self::Migration,
            _ => Self::Everything,
        }
    }

    /// What would help those that lack it.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Everything | Self::Migration => "grant what `deploy/rbac.yaml` grants",
            Self::Interruption => "grant what `deploy/rbac-interruption.yaml` grants",
            Self::Events => "grant it, or go without Kubernetes Events",
        }
    }
}

/// What a process does that migrates, and answers interruptions or does not.
#[must_use]
pub fn features(config: &Config, answers: bool) -> Features {
    Features {
        retire: !config.dry_run,
        delete_pods: answers,
        events: true,
        lease: leadership::lease_name(config).map(str::to_owned),
    }
}

/// Whether a process of this configuration answers interruptions: nothing is written in a dry run.
#[must_use]
pub fn answers(config: &Config) -> bool {
    config.interruption.queue.is_some() && !config.dry_run
}

#[cfg(test)]
mod tests {
    use spot_kube::preflight::rights;

    use super::*;

    fn right(resource: &'static str, verb: &'static str) -> Right {
        Right { resource, verb, ..Right::default() }
    }

    /// Whatever a feature asks for beyond the others is its own.
    #[test]
    fn each_right_is_needed_by_the_feature_that_asks_for_it() {
        let all = Features { retire: true, delete_pods: true, events: true, lease: Some("lease".to_owned()) };
        let of = |features: &Features| rights(features, "ns", "memory");
        let needed_by = |needed| {
            let rights = of(&all).into_iter().filter(|right| NeededBy::of(right) == needed);
            rights.map(|right| right.to_string()).collect::<Vec<_>>()
        };
        let without = |features: &Features| {
            let others = of(features);
            let own = of(&all).into_iter().filter(|right| !others.contains(right));
            own.map(|right| right.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(needed_by(NeededBy::Events), without(&Features { events: false, ..all.clone() }));
        assert_eq!(needed_by(NeededBy::Interruption), without(&Features { delete_pods: false, ..all.clone() }));
        let migration = needed_by(NeededBy::Migration);
        assert_eq!(migration.len(), 3, "{migration:?}");
        let of_retiring = without(&Features { retire: false, ..all.clone() });
        assert!(migration.iter().all(|right| of_retiring.contains(right)), "{migration:?} in {of_retiring:?}");
    }

    #[test]
    fn one_feature_goes_on_without_the_rights_of_the_other_and_none_without_those_of_both() {
        let missing = |rights: &[&Right], answers| {
            Missing::of(rights.iter().copied().cloned().collect())
                .fatal(answers)
                .iter()
                .map(|right| right.resource)
                .collect::<Vec<_>>()
        };
        let (node, pod) = (right("nodes", "delete"), right("pods", "delete"));
        let (look, event) = (right("daemonsets", "list"), right("events", "create"));
        assert_eq!(missing(&[&event], false), [""; 0]);
        assert_eq!(missing(&[&node], false), ["nodes"]);
        assert_eq!(missing(&[&node], true), [""; 0]);
        assert_eq!(missing(&[&pod, &event], true), [""; 0]);
        assert_eq!(missing(&[&pod, &node, &event], true), ["nodes", "pods"]);
        assert_eq!(missing(&[&look], true), ["daemonsets"]);
    }
}
