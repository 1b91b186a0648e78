//! What is rendered, for the values that people have.

use serde_json::{Value, json};
use spot_tests::Helm;

use crate::{RELEASE, aws, node_object, object, objects, rendered, with};

fn everything() -> Value {
    with(
        aws(),
        json!({
            "image": {"digest": format!("sha256:{}", "0".repeat(64)), "pullSecrets": [{"name": "registry"}]},
            "config": {
                "schedule": "0 3 * * mon-fri",
                "interruption": {"queueUrl": "https://sqs.eu-west-1.amazonaws.com/111122223333/shop-notices"},
                "leaderElection": {"leaseName": "shop"},
                "server": {"address": "0.0.0.0:9090"},
                "shutdown": {"gracePeriod": "1m5s"},
                "state": {"namespace": "kube-system", "configMap": "shop-memory"},
            },
            "files": {"message.json": "{\"text\": \"hello\"}\n"},
            "webhookSecret": {"name": "webhook"},
            "serviceAccount": {
                "name": "mover",
                "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/spot-migrator"},
            },
            "tolerations": [{"key": "infra", "operator": "Exists"}],
            "affinity": {"podAffinity": {}},
            "extraEnv": [{"name": "AWS_EC2_METADATA_DISABLED", "value": "false"}],
            "labels": {"team": "platform"},
            "podLabels": {"cost-centre": "42"},
            "podAnnotations": {"example.com/note": "kept"},
            "service": {"annotations": {"prometheus.io/scrape": "true"}},
            "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]},
            "podMonitor": {"enabled": true, "interval": "30s", "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": false},
            "agent": {"enabled": true, "namespace": {"name": "agents"}},
        }),
    )
}

#[test]
fn the_rendered_objects_are_as_reviewed() {
    for (name, values) in [
        ("node-object", node_object()),
        ("aws", aws()),
        ("dry-run", with(node_object(), json!({"config": {"dryRun": true}, "replicas": 1}))),
        ("everything", everything()),
    ] {
        let printed = rendered(&values).expect("the values are enough");
        insta::assert_snapshot!(name, printed.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    }
}

#[test]
fn what_is_shipped_for_monitoring_is_rendered_whole_and_so_it_is_for_a_dry_run() {
    let monitored = with(
        node_object(),
        json!({"prometheusRule": {"enabled": true, "labels": {"release": "p"}}, "dashboard": {"enabled": true}}),
    );
    let dry = objects(&with(monitored.clone(), json!({"config": {"dryRun": true}})));
    let objects = objects(&monitored);
    assert_eq!(object(&dry, "PrometheusRule", RELEASE), object(&objects, "PrometheusRule", RELEASE));
    let rule = object(&objects, "PrometheusRule", RELEASE);
    assert_eq!(rule["spec"], crate::yaml("deploy/monitoring/alerts.yaml")[0]);
    assert_eq!(rule["metadata"]["labels"]["release"], "p");
    let dashboard = object(&objects, "ConfigMap", "spot-migrator-dashboard");
    assert_eq!(dashboard["data"]["spot-migrator.json"], json!(crate::read("deploy/monitoring/dashboard.json")));
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
}

#[test]
fn pods_are_replaced_for_a_key_that_needs_a_new_process_and_for_no_other() {
    let region = json!({"config": {"cloudProvider": {"aws": {"region": "eu-west-1"}}}});
    let pod = |config: Value| {
        let objects = objects(&with(with(node_object(), region.clone()), json!({"config": config})));
        object(&objects, "Deployment", RELEASE)["spec"]["template"].clone()
    };
    let as_it_is = pod(json!({}));
    for taken_over in [
        json!({"schedule": "@daily"}),
        json!({"drain": {"timeout": "5m"}}),
        json!({"selection": {"nodesAtOnce": 2}}),
        json!({"log": {"level": "debug"}}),
        // As it is by default.
        json!({"log": {"format": "auto"}}),
    ] {
        assert_eq!(pod(taken_over.clone()), as_it_is, "{taken_over}");
    }
    for fixed in [
        json!({"cloudProvider": {"aws": {"region": "eu-west-2"}}}),
        json!({"leaderElection": {"leaseDuration": "20s"}}),
        json!({"state": {"configMap": "other"}}),
        json!({"server": {"address": "0.0.0.0:8081"}}),
        json!({"interruption": {"queueUrl": "https://sqs.eu-west-1.amazonaws.com/1/q"}}),
        json!({"log": {"format": "json"}}),
        json!({"dryRun": true}),
        json!({"loadBalancer": {"drain": "5s"}}),
        json!({"selection": {"unlabelledNodes": "on-demand"}}),
        json!({"shutdown": {"gracePeriod": "31s"}}),
    ] {
        assert_ne!(pod(fixed.clone()), as_it_is, "{fixed}");
    }
}

#[test]
fn a_pod_may_take_longer_to_end_than_the_process_cleans_up() {
    for (grace, seconds) in [("30s", 40), ("1m", 70), ("1h2m3s", 3733), ("500ms", 10), ("1m500ms", 70)] {
        let objects = objects(&with(node_object(), json!({"config": {"shutdown": {"gracePeriod": grace}}})));
        let pod = &object(&objects, "Deployment", RELEASE)["spec"]["template"]["spec"];
        assert_eq!(pod["terminationGracePeriodSeconds"], seconds, "{grace}");
    }
}

#[test]
fn without_leader_election_no_two_pods_run_at_once() {
    let values = json!({"replicas": 1, "config": {"leaderElection": {"enabled": false}}});
    let deployment = object(&objects(&with(node_object(), values)), "Deployment", RELEASE);
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
}

/// To YAML, 7 is a number, and the API server takes none for a name.
#[test]
fn names_that_look_like_numbers_stay_texts() {
    let values = with(
        everything(),
        json!({
            "config": {"state": {"namespace": "1", "configMap": "2"}, "leaderElection": {"leaseName": "3"}},
            "serviceAccount": {"name": "4"},
            "webhookSecret": {"name": "5"},
            "agent": {"namespace": {"name": "6"}},
        }),
    );
    let printed = Helm::offline().with_chart(&["template", "--namespace", "8", "7"], &values).expect("they are enough");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&printed).expect("it is YAML");
    assert!(objects.len() > 10, "{printed}");
    objects.iter().for_each(assert_named_by_texts);
}

fn assert_named_by_texts(value: &Value) {
    let named = ["name", "namespace", "app.kubernetes.io/instance", "secretName", "serviceAccountName"];
    let listed = ["resourceNames", "matchNames"];
    for (key, value) in value.as_object().into_iter().flatten() {
        let is_name = named.contains(&&**key) && value.is_number();
        let is_list = listed.contains(&&**key) && value.as_array().into_iter().flatten().any(Value::is_number);
        assert!(!is_name && !is_list, "{key}: {value}");
        assert_named_by_texts(value);
    }
    value.as_array().into_iter().flatten().for_each(assert_named_by_texts);
}

/// Of the manifests for those who have no Helm.
#[test]
fn the_agent_is_that_of_its_manifests() {
    let objects = objects(&with(node_object(), json!({"agent": {"enabled": true}})));
    for original in ["rbac.yaml", "policy.yaml", "daemonset.yaml"] {
        for original in crate::yaml(&format!("deploy/agent/{original}")) {
            let (kind, name) = (&original["kind"], &original["metadata"]["name"]);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let mut rendered = object(&objects, &text(kind), &text(name));
            let mut original = original.clone();
            for side in [&mut rendered, &mut original] {
                let labels = side["metadata"]["labels"].take();
                let enforced = &labels["pod-security.kubernetes.io/enforce"];
                side["metadata"]["labels"] = enforced.clone();
                if kind == "DaemonSet" {
                    // Whose it is, and where the image is.
                    side["spec"]["selector"].take();
                    side["spec"]["template"]["metadata"].take();
                    let container = &mut side["spec"]["template"]["spec"]["containers"][0];
                    for own in ["image", "imagePullPolicy", "args"] {
                        container[own].take();
                    }
                }
            }
            assert_eq!(rendered, original, "{kind} {name}");
        }
    }
}
