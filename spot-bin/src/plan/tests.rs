//! Plans of files that kubectl wrote, in every format.

use std::fs;
use std::path::PathBuf;

use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::cli::Arguments;

/// Objects as `kubectl get … -o json` writes them.
fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn node(name: &str, number: u32, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": format!("uid-{name}"),
            "resourceVersion": "1",
            "creationTimestamp": format!("2026-01-01T00:{number:02}:00Z"),
            "labels": labels,
        },
        "spec": {},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z"}
        ]},
    })
}

fn on_demand(name: &str, number: u32) -> Value {
    node(name, number, &json!({"node.kubernetes.io/lifecycle": "on-demand"}))
}

fn spot(name: &str, number: u32) -> Value {
    node(name, number, &json!({"node.kubernetes.io/lifecycle": "spot"}))
}

fn bare_pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-01-01T02:00:00Z",
        },
        "spec": {"nodeName": node, "containers": [{"name": "a", "image": "a"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// One control-plane node, three on-demand (one cordoned, one with a pod that nobody brings back), two spot, one of
/// which nobody knows what it is.
fn cluster() -> Value {
    let mut cordoned = on_demand("worker-c", 3);
    cordoned["spec"]["unschedulable"] = json!(true);
    list(&[
        node("master", 0, &json!({"node-role.kubernetes.io/control-plane": "", "node-lifecycle": "on-demand"})),
        on_demand("worker-a", 1),
        on_demand("worker-b", 2),
        cordoned,
        spot("spot-a", 4),
        spot("spot-b", 5),
        node("mystery", 6, &json!({})),
        bare_pod("bare", "worker-a"),
        bare_pod("bare-too", "worker-a"),
    ])
}

fn saved(folder: &TempDir, objects: &Value) -> PathBuf {
    let path = folder.path().join("objects.json");
    fs::write(&path, objects.to_string()).expect("the folder is writable");
    path
}

fn planned(objects: &Value, arguments: &[&str]) -> Plan {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = saved(&folder, objects);
    let path = path.to_str().expect("the path is UTF-8");
    let all = ["spot-migrator", "plan", "--cloud-provider-name", "node-object", "-f", path];
    let arguments = Arguments::parse(all.iter().chain(arguments).map(Into::into)).expect("they are right");
    let crate::cli::Command::Plan(args) = &arguments.command else { panic!("it is plan") };
    gather::plan(args, &arguments.overrides, &Environment::default())
        .unwrap_or_else(|fault| panic!("{:#}", fault.error))
        .plan
}

/// The table as those see it who see no colours.
fn few(plan: &Plan, width: Option<usize>) -> String {
    anstream::adapter::strip_str(&table::text(plan, table::Columns::Few, width)).to_string()
}

/// The same cluster on machines whose prices are known, but for one.
fn priced() -> Value {
    let mut cluster = cluster();
    for (at, node) in cluster["items"].as_array_mut().expect("it is a list").iter_mut().enumerate() {
        if node["kind"] != "Node" {
            continue;
        }
        let labels = &mut node["metadata"]["labels"];
        labels["node.kubernetes.io/instance-type"] = json!(["m5.large", "c5.4xlarge"][at % 2]);
        labels["topology.kubernetes.io/region"] = json!(if at == 2 { "eu-nowhere-1" } else { "us-east-1" });
        labels["topology.kubernetes.io/zone"] = json!("us-east-1a");
        labels["eks.amazonaws.com/nodegroup"] = json!(["system", "workers"][at.min(1)]);
    }
    cluster
}

#[test]
fn with_prices_it_says_what_a_month_costs_and_would_cost_by_pool() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let prices = folder.path().join("prices");
    fs::write(&prices, "us-east-1,m5.large,0.096,0.04\nus-east-1,c5.4xlarge,0.68,0.25\n").expect("it is writable");
    let plan = planned(&priced(), &["--prices", prices.to_str().expect("it is UTF-8")]);
    let wide = table::text(&plan, table::Columns::All, None);
    insta::assert_snapshot!(anstream::adapter::strip_str(&wide).to_string());
}

/// A cluster as EKS names it, with much in the way.
fn eks() -> Value {
    let name = |at: u32| format!("ip-10-0-12-{at}.eu-west-1.compute.internal");
    let nodes = (0..4).map(|at| if at == 3 { spot(&name(at), at) } else { on_demand(&name(at), at) });
    let pods = (0..7).map(|at| {
        let mut pod = bare_pod(&format!("web-6799fc88d8-{at}"), &name(u32::from(at > 5)));
        pod["metadata"]["labels"] = json!({"app": "web"});
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true}]);
        pod
    });
    let pods = pods.chain([bare_pod("debug", &name(0))]);
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default", "uid": "web", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 0, "expectedPods": 7, "currentHealthy": 6, "desiredHealthy": 6},
    });
    list(&nodes.chain(pods).chain([budget]).collect::<Vec<_>>())
}

#[rstest]
#[case(60)]
#[case(80)]
#[case(120)]
fn a_table_is_read_with_ease_on_a_terminal_of_any_width(#[case] width: usize) {
    let table = few(&planned(&eks(), &[]), Some(width));
    insta::assert_snapshot!(format!("a_terminal_of_{width}_columns"), table);
}

#[test]
fn a_table_shows_every_node_in_order_and_what_would_help() {
    insta::assert_snapshot!(few(&planned(&cluster(), &[]), None));
}

#[test]
fn yaml_and_json_say_the_same() {
    let plan = planned(&cluster(), &[]);
    let yaml = serde_saphyr::to_string(&plan).expect("it is YAML");
    let from_yaml: Value = serde_saphyr::from_str(&yaml).expect("it is YAML");
    assert_eq!(from_yaml, serde_json::to_value(&plan).expect("it is JSON"));
}

#[test]
fn the_order_of_the_files_objects_never_matters() {
    let mut reversed = cluster();
    reversed["items"].as_array_mut().expect("it is a list").reverse();
    assert_eq!(planned(&cluster(), &[]), planned(&reversed, &[]));
}

#[test]
fn the_first_by_rank_is_the_next_and_ranks_belong_to_eligible_nodes_only() {
    let plan = planned(&cluster(), &[]);
    assert_eq!(plan.next, ["worker-c"]);
    let ranked: Vec<_> = plan.nodes.iter().filter_map(|row| Some((row.rank?, row.name.as_str()))).collect();
    assert_eq!(ranked, [(1, "worker-c"), (2, "worker-b")]);
    assert!(plan.nodes.iter().all(|row| row.rank.is_some() == (row.verdict == "eligible")));
}

#[test]
fn flags_of_the_configuration_change_the_plan() {
    let plan = planned(&cluster(), &["--drain-force", "--selection-unlabelled-nodes", "on-demand"]);
    assert_eq!((plan.summary.eligible, plan.summary.refused), (4, 0));
}

#[test]
fn without_on_demand_nodes_there_is_nothing_to_do() {
    let plan = planned(&list(&[spot("spot-a", 1)]), &[]);
    assert_eq!((plan.outlook, plan.next.len()), (Outlook::AllSpot, 0));
    assert!(few(&plan, None).ends_with("`run` would find nothing to do: no on-demand node is left.\n"));
}
