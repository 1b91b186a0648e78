//! What is shipped for Prometheus, asked of Prometheus itself.

#![expect(clippy::expect_used, reason = "what fails in a test ends it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use spot_tests::{Machine, Migrator, Prometheus, Workload, World, programs::repository, prometheus::promtool};

/// How long it may take until an alert fires, or is over.
const ALERT: Duration = Duration::from_mins(2);

fn yaml(path: &str) -> Value {
    let text = std::fs::read_to_string(repository().join(path)).expect("it is there");
    serde_saphyr::from_str(&text).expect("it is YAML")
}

#[test]
fn promtool_takes_the_alerts_and_each_fires_when_it_should_and_at_no_other_time() {
    promtool(&["check", "rules", "--lint-fatal", "alerts.yaml"]).unwrap_or_else(|said| panic!("{said}"));
    promtool(&["test", "rules", "alerts_test.yaml"]).unwrap_or_else(|said| panic!("{said}"));
}

#[test]
fn every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let mut cases: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for case in yaml("deploy/monitoring/alerts_test.yaml")["tests"].as_array().expect("there are cases") {
        let name = case["name"].as_str().and_then(|name| name.split_once(':')).expect("it is named by its alert").0;
        let samples = case["promql_expr_test"][0]["exp_samples"].as_array().expect("it says what it expects");
        cases.entry(name.to_owned()).or_default()[usize::from(samples.is_empty())] += 1;
    }
    let rules = yaml("deploy/monitoring/alerts.yaml");
    let groups = rules["groups"].as_array().expect("there are groups").iter();
    let alerts = groups.flat_map(|group| group["rules"].as_array().expect("a group has rules"));
    for alert in alerts.filter_map(|rule| rule["alert"].as_str()) {
        let [fires, silent] = cases.get(alert).copied().unwrap_or_default();
        assert!(fires > 0 && silent > 0, "{alert}: {fires} cases fire, {silent} do not");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_fires_while_runs_fail_and_is_over_once_one_succeeds() {
    let world = World::start().await;
    let finalizer = "world.spot.test/held";
    let held = Workload::deployment("held", 1).max_unavailable(1).finalizer(finalizer);
    world.join(&[Machine::on_demand("on-demand-1")]).await;
    world.run(std::slice::from_ref(&held)).await;
    world.join(&[Machine::spot("spot-1")]).await;
    let stuck = world.pods(&held).await[0].name_any();
    let changes = json!({
        "schedule": "@every 1s",
        "drain": {"timeout": "5s", "podGracePeriod": "1s"},
        "backOff": {"initial": "1s", "max": "1s"},
    });
    let running = Migrator::install(&world, changes).await.run(&[]);
    running.serves().await;
    let prometheus = Prometheus::start(&running).await;

    prometheus.fires("SpotMigratorFailing", true, ALERT).await;
    let firing = prometheus.firing();
    assert!(!firing.contains("SpotMigratorDown") && !firing.contains("SpotMigratorNoLeader"), "{firing:?}");

    // Its object goes, so the next run comes to its end.
    let pods: Api<Pod> = Api::default_namespaced(world.client());
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch(&stuck, &PatchParams::default(), &patch).await.expect("the pod is there");
    prometheus.fires("SpotMigratorFailing", false, ALERT).await;
    assert!(!world.nodes().await.contains_key("on-demand-1"), "a run succeeded");

    drop(running);
    prometheus.fires("SpotMigratorDown", true, ALERT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_is_watched_as_well_but_for_a_leader_that_it_never_has() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("on-demand-1")]).await;
    let migrator = Migrator::install(&world, json!({"schedule": "@every 1s", "dryRun": true})).await;
    let running = migrator.run(&[]);
    running.serves().await;
    let prometheus = Prometheus::start(&running).await;
    // A file that it does not take.
    migrator.rewrite(json!({"shedule": "@daily"}));
    prometheus.fires("SpotMigratorReloadRefused", true, ALERT).await;
    assert_eq!(prometheus.firing(), BTreeSet::from(["SpotMigratorReloadRefused".to_owned()]));
    assert_eq!(running.metric("spot_migrator_leader", &[]), 0);

    drop(running);
    prometheus.fires("SpotMigratorDown", true, ALERT).await;
}
