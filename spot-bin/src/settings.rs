//! From the configuration to the core's settings, and what this build can't do of it.

use anyhow::anyhow;
use spot_core::budget::{self, Budgets};
use spot_core::drain::plan::DrainRules;
use spot_core::interruption::{InterruptionSettings, Rebalance};
use spot_core::judge::{self, Policy};
use spot_core::migrator::Settings;
use spot_core::node::Uid;
use spot_core::ports::Scope;
use spot_core::retire::RetireSettings;

use crate::cli::Environment;
use crate::config::{BackOff, CloudProvider, Config, ProvisionedNodes, RebalanceRecommendation, Window};

/// Who the process is, as its pod's manifest tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The node it runs on, which is retired last.
    pub node: Option<String>,
    /// Its pod's UID, which is the last to leave a node.
    pub pod: Option<Uid>,
}

impl Own {
    /// As the environment tells it.
    #[must_use]
    pub fn of(environment: &Environment) -> Self {
        Self { node: environment.get("NODE_NAME").map(str::to_owned), pod: environment.get("POD_UID").map(Uid::new) }
    }
}

/// The core's settings for this configuration.
#[must_use]
pub fn settings(config: &Config, own: &Own) -> Settings {
    Settings {
        schedule: config.schedule.clone(),
        policy: policy(config, own),
        retire: RetireSettings {
            drain_timeout: config.drain.timeout,
            load_balancer: (config.load_balancer.drain, config.load_balancer.drain_max),
            node_gone_timeout: config.node_gone.timeout,
            delete_node_object: config.node_gone.delete_node_object,
            back_off: pair(config.back_off),
            grace_period: config.shutdown_grace_period,
        },
        settle_timeout: config.settle_timeout,
        exhaustion: pair(config.exhaustion_back_off),
        dry_run: config.dry_run,
    }
}

/// The core's settings of the answers to interruptions of any node.
#[must_use]
pub fn interruption(config: &Config, own: &Own) -> InterruptionSettings {
    let Settings { policy, retire, settle_timeout, .. } = settings(config, own);
    InterruptionSettings {
        scope: Scope::Cluster,
        rebalance: match config.interruption.rebalance_recommendation {
            RebalanceRecommendation::Ignore => Rebalance::Ignore,
            RebalanceRecommendation::Taint => Rebalance::Taint,
            RebalanceRecommendation::Drain => Rebalance::Drain,
        },
        scheduled_change_lead: config.interruption.scheduled_change_lead,
        delete_blocked_after: config.interruption.delete_blocked_pods_after,
        pause_migration_for: config.interruption.pause_migration_for,
        settle_timeout,
        drain: policy.drain,
        retire,
        own_pod: policy.own_pod,
    }
}

fn policy(config: &Config, own: &Own) -> Policy {
    let selection = &config.selection;
    Policy {
        candidates: judge::Candidates::OnDemand,
        node_selector: selection.node_selector.clone(),
        provisioned_nodes: match selection.provisioned_nodes {
            ProvisionedNodes::Skip => judge::ProvisionedNodes::Skip,
            ProvisionedNodes::Migrate => judge::ProvisionedNodes::Migrate,
        },
        budgets: Budgets {
            at_once: size(selection.nodes_at_once.get()),
            per_run: selection.max_nodes_per_run.map(|most| size(most.get())),
            per_day: selection.max_nodes_per_day.map(std::num::NonZeroU32::get),
            min_remaining: size(selection.min_remaining_nodes),
            windows: config.windows.iter().map(window).collect(),
            time_zone: config.time_zone.clone(),
        },
        drain: DrainRules {
            force: config.drain.force,
            delete_empty_dir_data: config.drain.delete_empty_dir_data,
            pod_grace: config.drain.pod_grace_period,
        },
        drain_timeout: Some(config.drain.timeout),
        own_node: own.node.clone(),
        own_pod: own.pod.clone(),
    }
}

fn window(window: &Window) -> budget::Window {
    budget::Window {
        days: window.days.iter().map(|day| day.weekday()).collect(),
        start: window.start,
        duration: window.duration,
        time_zone: window.time_zone.clone(),
    }
}

const fn pair(back_off: BackOff) -> (std::time::Duration, std::time::Duration) {
    (back_off.initial, back_off.max)
}

/// A count of the configuration has 32 bits, and fits.
fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Refuses what the configuration asks for and this build can't do: it must not look as if it were done.
///
/// # Errors
/// Names the first key of that kind, and the remedy.
pub fn supported(config: &Config) -> anyhow::Result<()> {
    if matches!(config.cloud_provider, CloudProvider::Aws(_)) && cfg!(not(feature = "aws")) {
        return Err(without_aws());
    }
    if config.interruption.queue.is_some() && cfg!(not(feature = "aws")) {
        return Err(anyhow!(
            "the configuration is refused: interruption.queueUrl: this build reads no queue: build with the feature \
             `aws`, or remove the key"
        ));
    }
    Ok(())
}

/// Why EC2 is not asked by a build without it.
pub(crate) fn without_aws() -> anyhow::Error {
    anyhow!(
        "the configuration is refused: cloudProvider.name: `aws` is not part of this build, which knows it from files \
         only (`plan -f`, `simulate -f`): build with the feature `aws`, or write `node-object`"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use jiff::civil::{Time, Weekday};
    use rstest::rstest;

    use super::*;

    fn load(body: &str) -> Config {
        let header = "apiVersion: spot-migrator.io/v1alpha1\nkind: SpotMigratorConfiguration\n";
        let provider = "cloudProvider: {name: node-object}\n";
        Config::load(Some(("spot.yaml", &format!("{header}{provider}{body}"))), [], &BTreeMap::new())
            .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_defaults_are_those_of_the_core() {
        let settings = settings(&load(""), &Own::default());
        let mut core = Settings::new(settings.schedule.clone());
        // A judgement alone knows no drain whose time it could hold a pod to.
        core.policy.drain_timeout = Some(core.retire.drain_timeout);
        assert_eq!(format!("{settings:?}"), format!("{core:?}"));
    }

    #[test]
    fn every_key_reaches_the_core() {
        let config = load(
            "schedule: 0 3 * * *\ntimeZone: Europe/London\ndryRun: true\n\
             windows: [{days: [sat], start: \"22:30\", duration: 6h, timeZone: Asia/Tokyo}]\n\
             loadBalancer: {drain: 1s, drainMax: 2m}\n\
             selection: {nodeSelector: pool=a, nodesAtOnce: 3, maxNodesPerRun: 4, maxNodesPerDay: 5, \
             minRemainingNodes: 6, provisionedNodes: migrate}\n\
             drain: {timeout: 7m, force: true, deleteEmptyDirData: false, podGracePeriod: 8s}\n\
             settle: {timeout: 9m}\nnodeGone: {timeout: 10m, deleteNodeObject: false}\n\
             backOff: {initial: 11m, max: 12m}\nexhaustion: {backOff: {initial: 13m, max: 14m}}\n\
             shutdown: {gracePeriod: 15s}\n",
        );
        let own = Own { node: Some("node-7".to_owned()), pod: Some(Uid::new("uid-7")) };
        let settings = settings(&config, &own);

        let drain = DrainRules { force: true, delete_empty_dir_data: false, pod_grace: Some(Duration::from_secs(8)) };
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!((settings.schedule.to_string().as_str(), settings.dry_run), ("0 3 * * *", true));
        assert_eq!(settings.schedule.time_zone().iana_name(), Some("Europe/London"));
        assert_eq!((settings.settle_timeout, settings.exhaustion), (minutes(9), (minutes(13), minutes(14))));

        let policy = settings.policy;
        assert_eq!((policy.own_node.as_deref(), &policy.drain), (Some("node-7"), &drain));
        assert_eq!(policy.drain_timeout, Some(minutes(7)));
        assert_eq!(policy.provisioned_nodes, judge::ProvisionedNodes::Migrate);
        assert!(policy.node_selector.matches(|key| (key == "pool").then_some("a")));
        assert!(!policy.node_selector.matches(|_| None));
        let budgets = policy.budgets;
        assert_eq!(
            (budgets.at_once, budgets.per_run, budgets.per_day, budgets.min_remaining),
            (3, Some(4), Some(5), 6)
        );
        assert_eq!(budgets.time_zone.iana_name(), Some("Europe/London"));
        let [window] = &budgets.windows[..] else { panic!("one window was written: {:?}", budgets.windows) };
        assert_eq!((&window.days[..], window.start), (&[Weekday::Saturday][..], Time::constant(22, 30, 0, 0)));
        assert_eq!((window.duration, window.time_zone.iana_name()), (minutes(360), Some("Asia/Tokyo")));

        let retire = settings.retire;
        assert_eq!((retire.drain_timeout, policy.drain_timeout), (minutes(7), Some(minutes(7))));
        assert_eq!(retire.load_balancer, (Duration::from_secs(1), minutes(2)));
        assert_eq!((retire.node_gone_timeout, retire.delete_node_object), (minutes(10), false));
        assert_eq!(retire.back_off, (minutes(11), minutes(12)));
        assert_eq!((retire.grace_period, policy.own_pod), (Duration::from_secs(15), Some(Uid::new("uid-7"))));
    }

    #[test]
    fn the_defaults_of_the_answers_to_interruptions_are_those_of_the_core() {
        let settings = interruption(&load(""), &Own::default());
        assert_eq!(format!("{settings:?}"), format!("{:?}", InterruptionSettings::default()));
    }

    #[test]
    fn every_key_of_interruptions_reaches_the_core() {
        let config = load(
            "drain: {timeout: 7m, force: true, podGracePeriod: 8s}\nsettle: {timeout: 9m}\n\
             interruption: {rebalanceRecommendation: drain, scheduledChangeLead: 1h, deleteBlockedPodsAfter: 30s, \
             pauseMigrationFor: 2h}\n",
        );
        let own = Own { node: None, pod: Some(Uid::new("uid-7")) };
        let of = interruption(&config, &own);
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!((of.scope, of.rebalance), (Scope::Cluster, Rebalance::Drain));
        assert_eq!((of.scheduled_change_lead, of.pause_migration_for), (minutes(60), minutes(120)));
        assert_eq!((of.delete_blocked_after, of.settle_timeout), (Duration::from_secs(30), minutes(9)));
        assert_eq!((of.drain.force, of.drain.pod_grace), (true, Some(Duration::from_secs(8))));
        assert_eq!((of.retire.drain_timeout, of.own_pod), (minutes(7), Some(Uid::new("uid-7"))));
        let ignored = interruption(&load("interruption: {rebalanceRecommendation: ignore}"), &Own::default());
        assert_eq!(ignored.rebalance, Rebalance::Ignore);
    }

    #[test]
    fn a_queue_is_read_by_a_build_that_can_and_refused_by_another() {
        let queue = "interruption: {queueUrl: \"https://sqs.eu-west-1.amazonaws.com/1/spot\"}";
        let supported = supported(&load(queue)).map_err(|error| error.to_string());
        if cfg!(feature = "aws") {
            assert_eq!(supported, Ok(()));
        } else {
            let refused = supported.expect_err("it can't be read");
            assert!(refused.contains("interruption.queueUrl") && refused.contains("feature `aws`"), "{refused}");
        }
    }

    #[test]
    fn a_cloud_is_asked_by_a_build_that_can_and_known_from_files_by_another() {
        let keys = [("cloudProvider.aws.clusterName".to_owned(), "shop".to_owned())].into();
        let config = Config::load(None, [], &keys).expect("it is read by every build");
        let supported = supported(&config).map_err(|error| error.to_string());
        if cfg!(feature = "aws") {
            assert_eq!(supported, Ok(()));
        } else {
            let refused = supported.expect_err("nobody can be asked");
            assert!(refused.contains("cloudProvider.name") && refused.contains("feature `aws`"), "{refused}");
        }
    }

    #[test]
    fn node_and_pod_come_from_the_pods_manifest() {
        let environment = [("NODE_NAME", "node-7"), ("POD_UID", "uid-7")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let own = Own::of(&environment.into_iter().collect());
        assert_eq!(own, Own { node: Some("node-7".to_owned()), pod: Some(Uid::new("uid-7")) });
        assert_eq!(Own::of(&Environment::default()), Own::default());
    }

    #[rstest]
    #[case("")]
    #[case("interruption: {queueUrl: \"\", rebalanceRecommendation: taint}")]
    #[case("leaderElection: {leaseName: other}")]
    fn defaults_are_not_refused(#[case] body: &str) {
        supported(&load(body)).expect("nothing is asked for");
    }
}
