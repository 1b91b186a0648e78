//! The autoscaler that buys the cluster's nodes: it is to prefer spot.

use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use super::surroundings::answered;
use super::{Finding, Subject};

/// By which labels cluster-autoscaler's Deployments are found: the charts' own, and those of its examples.
const AUTOSCALERS: [&str; 3] = [
    "app.kubernetes.io/name in (aws-cluster-autoscaler,cluster-autoscaler,clusterapi-cluster-autoscaler)",
    "app=cluster-autoscaler",
    "k8s-app=cluster-autoscaler",
];

/// How whoever may not look finds out. A run needs no such right: the manifests do not grant it.
const LOOK: &str = "see its arguments, or run this with an account that may list Deployments: \
                    `kubectl create clusterrole deployments-reader --verb=list --resource=deployments.apps`, bound to it";

/// Of each cluster-autoscaler how it chooses among groups; that it could not be looked for, where that is so.
pub(super) async fn findings(client: &Client) -> Vec<Finding> {
    let deployments: Api<Deployment> = Api::all(client.clone());
    let wanted = AUTOSCALERS.map(|labels| ListParams::default().labels(labels).limit(10));
    let found = try_join_all(wanted.iter().map(|wanted| answered(deployments.list(wanted)))).await;
    match found {
        // One that bears labels of several kinds is found by each.
        Ok(found) => found.iter().find(|found| !found.items.is_empty()).into_iter().flatten().map(finding).collect(),
        Err(unseen) => vec![unlooked(&unseen)],
    }
}

fn unlooked(why: &str) -> Finding {
    let detail = format!("whether a cluster-autoscaler prefers spot is not known: {why}");
    Finding::advice(Subject::Autoscaler, detail, LOOK)
}

fn finding(deployment: &Deployment) -> Finding {
    let name = format!("{}/{}", deployment.namespace().unwrap_or_default(), deployment.name_any());
    let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let words = containers.iter().flat_map(|container| container.command.iter().chain(&container.args).flatten());
    match expander(words.map(String::as_str)) {
        // The others only choose among what the first one leaves.
        Some(expander) if expander.split(',').take(1).any(|one| ["priority", "price", "grpc"].contains(&one)) => {
            Finding::ok(Subject::Autoscaler, format!("{name} chooses groups by `--expander={expander}`"))
        }
        found => Finding::advice(
            Subject::Autoscaler,
            format!("{name} chooses groups by `--expander={}`, spot or not", found.unwrap_or("least-waste")),
            "give it `--expander=priority`, with the spot groups first: it buys on-demand nodes again otherwise",
        ),
    }
}

/// The value of that flag, in one word or in two, the last one if it is there several times.
fn expander<'w>(words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let mut found = None;
    let mut is_next = false;
    for word in words {
        let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or_default();
        if is_next {
            found = Some(word);
        } else if let Some(value) = flag.strip_prefix("expander=") {
            found = Some(value);
        }
        is_next = flag == "expander";
    }
    found
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::super::Verdict;
    use super::*;

    #[rstest]
    #[case::by_priority(&["./cluster-autoscaler", "--expander=priority"], Verdict::Ok)]
    #[case::in_two_words(&["--expander", "priority"], Verdict::Ok)]
    #[case::first_of_several(&["--expander=priority,least-waste"], Verdict::Ok)]
    #[case::last_of_several(&["--expander=least-waste,priority"], Verdict::Advice)]
    #[case::the_last_counts(&["--expander=priority", "--expander=random"], Verdict::Advice)]
    #[case::by_waste(&["--expander=least-waste"], Verdict::Advice)]
    #[case::by_default(&["./cluster-autoscaler"], Verdict::Advice)]
    fn an_autoscaler_that_does_not_prefer_spot_is_told(#[case] words: &[&str], #[case] verdict: Verdict) {
        let deployment = json!({
            "metadata": {"name": "ca", "namespace": "kube-system"},
            "spec": {
                "selector": {},
                "template": {"spec": {"containers": [{"name": "ca", "command": &words[..1], "args": &words[1..]}]}},
            },
        });
        let found = finding(&serde_json::from_value(deployment).expect("it is a Deployment"));
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.detail.starts_with("kube-system/ca "), "{found:?}");
    }

    #[test]
    fn whoever_may_not_look_is_told_how_to_and_nothing_fails() {
        let found = unlooked("deployments is forbidden");
        assert_eq!(found.verdict, Verdict::Advice);
        assert!(found.detail.ends_with("deployments is forbidden"), "{found:?}");
        assert!(
            found.remedy.is_some_and(|remedy| remedy.contains("--verb=list --resource=deployments.apps")),
            "{found:?}"
        );
    }
}
