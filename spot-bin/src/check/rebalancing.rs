//! Groups that replace spot instances by themselves when EC2 recommends it. Pure.

use std::collections::BTreeMap;

use super::{Finding, Subject};
use crate::config::{Interruption, RebalanceRecommendation};

/// What has the nodes drained before their machines go.
const DRAIN: &str = "set `interruption.queueUrl`, give the group a hook that holds instances which are terminated, send its notices \
                     to that queue and name it in `interruption.completeLifecycleHooks`; or turn the group's capacity \
                     rebalancing off";

/// Of each group that does so, with its hooks that hold what it terminates, whether the nodes are drained before.
pub(super) fn findings(groups: &BTreeMap<String, Option<Vec<String>>>, interruption: &Interruption) -> Vec<Finding> {
    groups.iter().map(|(name, hooks)| finding(name, hooks.as_deref(), interruption)).collect()
}

fn finding(group: &str, hooks: Option<&[String]>, interruption: &Interruption) -> Finding {
    let told = |words: &str| {
        format!("group {group} replaces spot instances when EC2 recommends it (capacity rebalancing){words}")
    };
    let advice = |words: &str, remedy| Finding::advice(Subject::Cloud, told(words), remedy);
    if interruption.queue.is_none() {
        return advice(", and terminates the old ones: nothing drains their nodes", DRAIN);
    }
    let is_answered = |hook: &String| interruption.complete_lifecycle_hooks.contains(hook);
    match hooks {
        None => {
            advice("; whether a hook holds the old ones is not known", "grant `autoscaling:DescribeLifecycleHooks`")
        }
        Some([]) if interruption.rebalance_recommendation == RebalanceRecommendation::Drain => {
            advice(", and may terminate the old ones before their nodes are drained: no hook holds them", DRAIN)
        }
        Some([]) => advice(", and terminates the old ones: no hook holds them until their nodes are drained", DRAIN),
        Some(hooks) => match hooks.iter().find(|hook| is_answered(hook)) {
            Some(hook) => Finding::ok(Subject::Cloud, told(&format!("; hook {hook} holds the old ones meanwhile"))),
            None => advice(
                &format!("; hook {} holds the old ones until its time is over", hooks.join(", ")),
                "name it in `interruption.completeLifecycleHooks`, unless somebody else completes it",
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::Verdict;
    use super::*;
    use crate::config::Config;

    #[rstest]
    #[case::nobody_is_told(None, Some(&["drain"][..]), Verdict::Advice, "nothing drains their nodes")]
    #[case::no_hook(Some(""), Some(&[][..]), Verdict::Advice, "no hook holds them until")]
    #[case::a_drain_at_once(Some("rebalanceRecommendation: drain"), Some(&[][..]), Verdict::Advice, "may terminate")]
    #[case::a_hook_of_ours(
        Some("completeLifecycleHooks: [drain]"), Some(&["logs", "drain"][..]), Verdict::Ok, "hook drain holds"
    )]
    #[case::a_hook_of_others(
        Some("completeLifecycleHooks: [drain]"), Some(&["logs"][..]), Verdict::Advice, "hook logs holds"
    )]
    #[case::unknown_hooks(Some("completeLifecycleHooks: [drain]"), None, Verdict::Advice, "is not known")]
    fn it_is_told_whether_nodes_are_drained_before_their_group_terminates_them(
        #[case] beside_a_queue: Option<&str>,
        #[case] hooks: Option<&[&str]>,
        #[case] verdict: Verdict,
        #[case] words: &str,
    ) {
        let queue = "queueUrl: 'https://sqs.eu-west-1.amazonaws.com/123456789012/notices'";
        let keys = beside_a_queue.map(|keys| format!("interruption: {{{queue}, {keys}}}")).unwrap_or_default();
        let text = format!(
            "apiVersion: spot-migrator.io/v1alpha1\nkind: SpotMigratorConfiguration\n\
             cloudProvider: {{name: aws, aws: {{clusterName: prod}}}}\n{keys}\n"
        );
        let config = Config::load(Some(("spot.yaml", &text)), [], &BTreeMap::new());
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        let hooks = hooks.map(|hooks| hooks.iter().map(|hook| (*hook).to_owned()).collect());
        let found = findings(&[("spot".to_owned(), hooks)].into(), &config.interruption);
        let [found] = &found[..] else { panic!("there is one group: {found:?}") };
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.detail.starts_with("group spot replaces") && found.detail.contains(words), "{found:?}");
        assert_eq!(found.remedy.is_some(), verdict != Verdict::Ok, "{found:?}");
    }
}
