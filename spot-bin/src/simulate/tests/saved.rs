//! A simulation of a cluster that files hold.

use std::io::Write as _;

use serde_json::json;
use tempfile::NamedTempFile;

use super::*;

/// Saved objects of a cluster: three on-demand nodes, a spot one, ten pods and what is in the way of one of them.
fn saved() -> NamedTempFile {
    let node = |name: &str, lifecycle: &str| {
        let labels = json!({
            "kubernetes.io/hostname": name,
            "node.kubernetes.io/lifecycle": lifecycle,
            "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/zone": "us-east-1a",
            "topology.kubernetes.io/region": "us-east-1",
        });
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-03-01T05:00:00Z", "labels": labels},
            "spec": {"providerID": format!("kwok://{name}")},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T05:01:00Z"}]},
        })
    };
    let pod = |name: &str, owner: Option<&str>, node: &str| {
        let owner = owner.map(
            |uid| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true}),
        );
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": "2026-03-01T06:00:00Z",
                "ownerReferences": owner.into_iter().collect::<Vec<_>>()},
            "spec": {"nodeName": node, "containers": [{"name": "web"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    let nodes = [node("a", "on-demand"), node("b", "on-demand"), node("c", "on-demand"), node("d", "spot")];
    let web = (0..9).map(|number| pod(&format!("web-{number}"), Some("web"), ["a", "b", "c"][number % 3]));
    let items: Vec<_> = nodes.into_iter().chain(web).chain([pod("one-off", None, "c")]).collect();
    let mut file = NamedTempFile::new().expect("there is room for it");
    write!(file, "{}", json!({"apiVersion": "v1", "kind": "List", "items": items})).expect("it is writable");
    file
}

/// What a simulation of that cluster comes to, with this in the configuration.
fn simulated(scenario: ScenarioName, configuration: &str) -> Result<Story, Fault> {
    let file = saved();
    let mut config = NamedTempFile::new().expect("there is room for it");
    let header = "apiVersion: spot-migrator.io/v1alpha1\nkind: SpotMigratorConfiguration\n";
    write!(config, "{header}cloudProvider: {{name: node-object}}\n{configuration}").expect("it is writable");
    let args = SimulateArgs {
        config: ConfigArgs { config: Some(config.path().to_owned()) },
        files: vec![file.path().to_owned()],
        output: SimulateOutput::Html,
        ..args(scenario, 0)
    };
    let stage = Stage::of(&args, &BTreeMap::new(), &Environment::default())?;
    Ok(Story::of(&args, stage, false)?)
}

/// The same while spot has room.
fn migrated(configuration: &str) -> Story {
    simulated(ScenarioName::SpotAvailable, configuration).unwrap_or_else(|fault| panic!("{:#}", fault.error))
}

#[test]
fn a_saved_cluster_is_simulated_as_it_is() {
    let story = migrated("");
    assert_eq!(story.cast, Cast { control_plane: 0, on_demand: 3, spot: 1, others: 0, pods: 10 });
    assert_eq!((story.outcome, story.retired), ("nothing_eligible", 2));
    let [kept] = &story.kept[..] else { panic!("one node has a pod that nobody brings back: {:?}", story.kept) };
    assert_eq!((kept.node.as_str(), kept.reasons[0].kind), ("c", "unmanaged_pod"));
    assert_eq!(story.start.to_string(), "2026-03-01T06:00:00Z", "when it was saved, whatever the clock says");
    let text = timeline::text(&story);
    assert!(text.contains("\nAssumed:\n  - A node has room for"), "{text}");
}

#[test]
fn a_saved_cluster_for_which_spot_has_too_little_gets_an_on_demand_node_back() {
    let story = simulated(ScenarioName::SpotExhausted, "drain: {force: true}").expect("it ends");
    assert_eq!(story.outcome, "spot_exhausted");
    assert!(story.timeline.iter().any(|entry| matches!(entry.what, recorder::What::Created { .. })));
}

#[test]
fn the_configuration_counts_in_a_simulation() {
    assert_eq!(migrated("drain: {force: true}").outcome, "all_spot");
    assert_eq!(migrated("selection: {maxNodesPerRun: 1}").retired, 1);
    let built_in = told(&args(ScenarioName::SpotAvailable, 0), &[("selection.maxNodesPerRun", "2")]);
    assert_eq!(built_in.retired, 2);
    let dry = migrated("dryRun: true");
    assert_eq!((dry.outcome, dry.retired), ("dry_run", 0));
}

#[test]
fn a_saved_cluster_costs_what_the_prices_say() {
    let mut prices = NamedTempFile::new().expect("there is room for it");
    writeln!(prices, "us-east-1,m5.large,0.10,0.04").expect("it is writable");
    let story = migrated(&format!("prices: {}\ndrain: {{force: true}}", prices.path().display()));
    let Costs { before, after } = story.costs.as_ref().expect("they are known");
    let close = |bill: &Bill, hourly: f64| {
        let found = bill.total.monthly.0;
        assert!((found - hourly * 730.0).abs() < 1e-6, "{found} of {hourly}");
    };
    close(before, 0.34);
    assert_eq!((after.total.on_demand, after.total.unpriced), (0, 0));
    close(after, 0.04 * f64::from(u32::try_from(after.total.spot).expect("a few")));
    let text = timeline::text(&story);
    assert!(text.contains("costs a month  $248 before, "), "{text}");
    let last = story.film.frames.last().expect("something happened");
    assert!((last.dollars * 730.0 - after.total.monthly.0).abs() < 1e-6, "it ends as the film does: {last:?}");
}

#[test]
fn a_run_begins_when_a_window_is_open() {
    let windows = "windows: [{days: [mon], start: \"22:00\", duration: 2h}]";
    let story = migrated(&format!("{windows}\nschedule: 30 * * * *"));
    assert_eq!(story.start.to_string(), "2026-03-02T22:30:00Z");
    assert!(story.retired == 2 && story.timeline[0].at < Duration::from_secs(1), "time is counted from there");
    let said = story.assumptions.last().expect("it is said");
    assert!(said.contains("2026-03-02T22:30:00Z"), "{said}");
    let never = simulated(ScenarioName::SpotAvailable, &format!("{windows}\nschedule: 0 3 * * *"));
    let fault = never.expect_err("they never meet");
    assert_eq!(fault.exit, Exit::Usage);
    assert!(fault.error.to_string().contains("`windows`"), "{:#}", fault.error);
}

#[test]
fn files_without_a_node_are_refused() {
    let mut file = NamedTempFile::new().expect("there is room for it");
    write!(file, "{}", json!({"apiVersion": "v1", "kind": "List", "items": []})).expect("it is writable");
    let args = SimulateArgs { files: vec![file.path().to_owned()], ..args(ScenarioName::SpotAvailable, 0) };
    let fault = Stage::of(&args, &BTreeMap::new(), &Environment::default()).expect_err("there is nothing in it");
    assert_eq!(fault.exit, Exit::Usage);
}
