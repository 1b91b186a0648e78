//! Values that can't work are refused before anything is installed, with what would help.

use serde_json::{Value, json};

use crate::{aws, node_object, rendered, with};

fn refusal(values: &Value) -> String {
    rendered(values).expect_err("the values can't work")
}

#[test]
fn everything_that_is_missing_is_named_at_once_with_what_would_help() {
    let said = refusal(&json!({}));
    for part in [
        "image.repository",
        "Dockerfile",
        "config.cloudProvider.aws.clusterName",
        "config.cloudProvider.name=node-object",
        "config.cloudProvider.aws.region=eu-west-1",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let region = json!({"extraEnv": [{"name": "AWS_REGION", "value": "eu-west-1"}]});
    let unnamed = json!({"config": {"cloudProvider": {"aws": {"region": ""}}}});
    rendered(&with(with(aws(), unnamed), region)).expect("the region is in the environment");
}

#[test]
fn a_queue_without_a_region_is_refused_with_every_provider() {
    let queue = json!({"interruption": {"queueUrl": "https://sqs.eu-west-1.amazonaws.com/1/q"}});
    let values = with(node_object(), json!({"config": queue}));
    let said = refusal(&values);
    assert!(said.contains("config.interruption.queueUrl") && said.contains("aws.region=eu-west-1"), "{said}");
    let region = json!({"config": {"cloudProvider": {"aws": {"region": "eu-west-1"}}}});
    rendered(&with(values.clone(), region)).expect("the region is in the configuration");
    for variable in ["AWS_REGION", "AWS_DEFAULT_REGION"] {
        let region = json!({"extraEnv": [{"name": variable, "value": "eu-west-1"}]});
        rendered(&with(values.clone(), region)).expect("the region is in the environment");
    }
}

#[test]
fn a_misspelt_value_is_refused_wherever_it_is() {
    for (path, named) in [
        (json!({"replicaCount": 2}), "replicaCount"),
        (json!({"image": {"repo": "x"}}), "repo"),
        (json!({"config": {"shedule": "@daily"}}), "shedule"),
        (json!({"config": {"drain": {"timout": "5m"}}}), "timout"),
        (json!({"config": {"cloudProvider": {"aws": {"cluster": "x"}}}}), "cluster"),
        (json!({"agent": {"namespace": {"nam": "x"}}}), "nam"),
        (json!({"podMonitor": {"enable": true}}), "enable"),
        (json!({"serviceAccount": {"annotation": {}}}), "annotation"),
    ] {
        let said = refusal(&with(node_object(), path));
        assert!(said.contains(&format!("additional properties '{named}' not allowed")), "{said}");
    }
}

#[test]
fn a_value_of_another_type_or_range_is_refused_at_its_place() {
    for (values, place) in [
        (json!({"replicas": 3}), "/replicas"),
        (json!({"replicas": "2"}), "/replicas"),
        (json!({"image": {"digest": "sha256:12"}}), "/image/digest"),
        (json!({"image": {"repository": "spot:1.0"}}), "/image/repository"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "/image/pullPolicy"),
        (json!({"config": {"drain": {"timeout": "5 minutes"}}}), "/config/drain/timeout"),
        (json!({"config": {"dryRun": "yes"}}), "/config/dryRun"),
        (json!({"config": {"cloudProvider": {"name": "gcp"}}}), "/config/cloudProvider/name"),
        (json!({"config": {"apiVersion": "spot-migrator.io/v1"}}), "/config/apiVersion"),
        (json!({"agent": {"rebalanceRecommendation": "drain"}}), "/agent/rebalanceRecommendation"),
        (json!({"agent": {"port": 0}}), "/agent/port"),
        (json!({"files": {"prices.csv": 1}}), "/files/prices.csv"),
    ] {
        let said = refusal(&with(node_object(), values));
        assert!(said.contains(&format!("'{place}'")), "{place} in {said}");
    }
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    for (values, named) in [
        (json!({"config": {"leaderElection": {"enabled": false}}}), "--set replicas=1"),
        (
            json!({"webhookSecret": {"name": "webhook"}, "config": {"notifications": {"webhookUrlFile": "/x"}}}),
            "leave out one of the two",
        ),
        (json!({"config": {"state": {"configMap": "spot-migrator-config"}}}), "choose another name"),
        (json!({"files": {"config.yaml": ""}}), "the configuration itself"),
        (json!({"agent": {"enabled": true, "namespace": {"name": "spot-migrator"}}}), "agent.namespace.create=false"),
    ] {
        let said = refusal(&with(node_object(), values));
        assert!(said.contains(named), "{named} in {said}");
    }
}

#[test]
fn a_chart_that_depends_on_this_one_may_switch_it_and_share_values() {
    let values = json!({"enabled": true, "global": {"registry": "registry.example.com"}});
    rendered(&with(node_object(), values)).expect("both are allowed");
}
