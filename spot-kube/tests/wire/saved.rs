//! Saved files.

use serde_json::{Value, json};
use spot_core::claim::BackOff;
use spot_core::error::chain;
use spot_core::node::{ClaimAnnotation, Effect, Readiness, Taint, Uid};
use spot_core::pod::{BudgetRef, PodPhase, UnhealthyPods};
use spot_core::view::{Known, View};
use spot_kube::saved::{self, SAVE, SavedError, SavedFile};

use crate::server::{list, node, pod};

fn view(text: &str) -> Result<View, SavedError> {
    saved::read(&[SavedFile { name: "f", text }]).map(|read| read.view)
}

fn refusal(text: &str) -> String {
    chain(&view(text).unwrap_err())
}

#[test]
fn everything_that_is_read_of_a_node_is_there() {
    let text = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata:
    name: od-1
    uid: u1
    resourceVersion: "17"
    creationTimestamp: "2026-01-01T00:00:00Z"
    deletionTimestamp: "2026-01-02T00:00:00Z"
    finalizers: [karpenter.sh/termination]
    labels: {zone: a}
    annotations:
      spot-migrator.io/claim: '{"half'
      spot-migrator.io/back-off: '{"until":"2026-01-03T00:00:00Z","count":2}'
      karpenter.sh/do-not-disrupt: "true"
      kubectl.kubernetes.io/last-applied-configuration: "very long"
  spec:
    providerID: aws:///a/i-1
    unschedulable: true
    taints:
    - {key: k, value: v, effect: NoSchedule, timeAdded: "2026-01-01T00:00:01Z"}
    - {key: bare, effect: PreferNoSchedule}
  status:
    nodeInfo: {bootID: b1}
    addresses:
    - {type: Hostname, address: od-1}
    - {type: InternalIP, address: 10.0.0.1}
    - {type: ExternalIP, address: 192.0.2.1}
    - {type: InternalIP, address: "fd00::1"}
    conditions:
    - {type: MemoryPressure, status: "False"}
    - {type: Ready, status: Unknown, lastTransitionTime: "2026-01-01T10:00:00Z"}
    images:
    - names: [x]
"#;
    let view = view(text).unwrap();
    let node = &view.nodes()[0];
    assert_eq!((&*node.name, node.uid.as_str(), node.resource_version.as_str()), ("od-1", "u1", "17"));
    assert_eq!(node.created_at, "2026-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(node.deleting_since, "2026-01-02T00:00:00Z".parse().ok());
    assert_eq!(node.finalizers, ["karpenter.sh/termination"]);
    assert_eq!(node.labels.get("zone").map(String::as_str), Some("a"));
    assert_eq!(node.annotations.keys().collect::<Vec<_>>(), ["karpenter.sh/do-not-disrupt"]);
    assert!(matches!(node.claim, ClaimAnnotation::Unreadable(_)));
    let until = "2026-01-03T00:00:00Z".parse().unwrap();
    assert_eq!(node.back_off, Some(BackOff { until, count: 2 }));
    assert_eq!((node.provider_id.as_str(), node.unschedulable, node.boot_id.as_str()), ("aws:///a/i-1", true, "b1"));
    assert_eq!(node.internal_addresses, ["10.0.0.1", "fd00::1"]);
    let since = "2026-01-01T10:00:00Z".parse().unwrap();
    assert_eq!(node.readiness, Readiness::Unreachable { since });
    let time_added = "2026-01-01T00:00:01Z".parse().ok();
    let first = Taint { time_added, ..Taint::new("k", "v", Effect::NoSchedule) };
    assert_eq!(node.taints, [first, Taint::new("bare", "", Effect::PreferNoSchedule)]);
}

#[test]
fn a_node_that_no_kubelet_has_reported_is_not_ready_since_its_birth() {
    let mut silent = node("a", "1");
    silent["status"] = json!({});
    let view = view(&silent.to_string()).unwrap();
    assert_eq!(view.nodes()[0].readiness, Readiness::NotReady { since: view.nodes()[0].created_at });
}

#[test]
fn a_kubelet_that_says_no_is_told_from_one_that_nobody_has_heard_of() {
    let since = "2026-01-01T10:00:00Z".parse().unwrap();
    for (status, readiness, ready_since) in [
        ("False", Readiness::NotReady { since }, None),
        ("Unknown", Readiness::Unreachable { since }, None),
        ("True", Readiness::Ready, Some(since)),
    ] {
        let mut one = node("a", "1");
        let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T10:00:00Z"});
        one["status"] = json!({"conditions": [ready]});
        let view = view(&one.to_string()).unwrap();
        assert_eq!((view.nodes()[0].readiness, view.nodes()[0].ready_since), (readiness, ready_since), "{status}");
    }
}

fn one_pod(change: impl FnOnce(&mut Value)) -> std::sync::Arc<spot_core::pod::PodSnapshot> {
    let mut pod = pod("p", "a");
    change(&mut pod);
    let view = view(&list("1", &[node("a", "1"), pod]).to_string()).unwrap();
    std::sync::Arc::clone(view.pods().next().unwrap())
}

#[test]
fn everything_that_is_read_of_a_pod_is_there() {
    let plain = one_pod(|_| {});
    assert_eq!((&*plain.namespace, &*plain.name, plain.uid.as_str()), ("shop", "p", "uid-p"));
    assert_eq!((plain.node.as_deref(), plain.phase, plain.ready), (Some("a"), PodPhase::Running, false));
    assert_eq!((plain.grace.as_secs(), plain.empty_dir, plain.mirror), (30, false, false));
    assert_eq!((&plain.controller, plain.opted_out, plain.deletion), (&None, None, None));

    let full = one_pod(|pod| {
        pod["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "n"},
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d1", "controller": true},
        ]);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
        pod["spec"]["volumes"] = json!([{"name": "c", "configMap": {}}, {"name": "e", "emptyDir": {}}]);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    });
    let controller = full.controller.clone().unwrap();
    assert!(controller.is_daemon_set() && controller.uid.as_str() == "d1");
    assert!(full.mirror && full.empty_dir && full.ready && full.grace.is_zero() && full.deletion.is_some());
}

#[test]
fn a_pod_is_opted_out_by_any_of_three_keys() {
    let with = |field: &'static str, key: &'static str, value: &'static str| {
        one_pod(|pod| pod["metadata"][field] = json!({ key: value })).opted_out
    };
    let ours = "spot-migrator.io/do-not-evict";
    assert_eq!(with("labels", ours, "true"), Some(ours));
    assert_eq!(with("annotations", ours, "true"), Some(ours));
    assert_eq!(with("annotations", ours, "false"), None);
    assert_eq!(with("annotations", "karpenter.sh/do-not-disrupt", "true"), Some("karpenter.sh/do-not-disrupt"));
    assert_eq!(with("labels", "karpenter.sh/do-not-disrupt", "true"), None);
    let safe = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    assert_eq!(with("annotations", safe, "false"), Some(safe));
    assert_eq!(with("annotations", safe, "true"), None);
}

#[test]
fn a_budget_without_a_selector_protects_nothing_and_an_empty_one_everything() {
    for (selector, protects) in [
        (json!(null), false),
        (json!({}), true),
        (json!({"matchLabels": {"app": "db"}}), true),
        (json!({"matchLabels": {"app": "web"}}), false),
        (json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}), true),
        (
            json!({"matchExpressions": [{"key": "app", "operator": "Exists"}, {"key": "x", "operator": "DoesNotExist"}]}),
            true,
        ),
        (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}), false),
    ] {
        let budget = json!({"kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "shop"},
                            "spec": {"selector": selector}});
        let mut labelled = pod("p", "a");
        labelled["metadata"]["labels"] = json!({"app": "db"});
        let view = view(&list("1", &[node("a", "1"), labelled, budget]).to_string()).unwrap();
        let pod = view.pods().next().unwrap();
        assert_eq!(view.budgets_of(pod).count() == 1, protects, "{selector}");
    }
}

#[test]
fn a_budgets_status_counts_if_it_is_of_the_specification_as_it_stands() {
    for (generation, observed, current) in [
        (json!(2), json!(2), true),
        (json!(2), json!(1), false),
        (json!(2), json!(null), false),
        (json!(null), json!(1), true),
    ] {
        let budget = json!({"kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": "shop", "generation": generation},
            "spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"},
            "status": {"observedGeneration": observed, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2,
                       "expectedPods": 4, "disruptedPods": {"p": "2026-01-01T00:00:00Z"}}});
        let view = view(&list("1", &[node("a", "1"), budget]).to_string()).unwrap();
        let budget = view.budget(&BudgetRef { namespace: "shop".into(), name: "b".into() }).unwrap();
        assert_eq!(budget.current, current);
        assert_eq!((budget.disruptions_allowed, budget.current_healthy), (1, 3));
        assert_eq!((budget.desired_healthy, budget.expected_pods), (2, 4));
        assert_eq!(
            (budget.disrupted_pods.as_slice(), budget.unhealthy_pods),
            (&["p".to_owned()][..], UnhealthyPods::AlwaysAllow)
        );
    }
}

#[test]
fn an_item_is_read_alike_whether_all_of_it_is_plain_or_not() {
    let list = |more: &str| {
        format!(
            "kind: List\nitems:\n- kind: Node\n  metadata:\n    name: a\n    uid: u\n    {more}creationTimestamp: \
             \"2026-01-01T00:00:00Z\"\n    labels:\n      zone: a\n      hash: 7c9d8b6f5\n  spec:\n    unschedulable: \
             true\n    taints:\n    - key: k\n      effect: NoSchedule\n"
        )
    };
    let node = |more: &str| std::sync::Arc::clone(&view(&list(more)).unwrap().nodes()[0]);
    assert_eq!(node("").labels.get("hash").map(String::as_str), Some("7c9d8b6f5"));
    for more in [
        "# a comment\n    ",
        "annotations:\n      of: |\n        several\n        lines\n    ",
        "generateName: {}\n    ",
    ] {
        assert_eq!(node(more), node(""), "{more}");
    }
    let twice = chain(&view(&list("labels:\n      zone: b\n    ")).unwrap_err());
    assert!(twice.contains("item 1 can't be used") && twice.contains("labels"), "{twice}");
}

#[test]
fn files_are_joined_and_what_none_of_them_holds_is_unknown() {
    let nodes = json!({"kind": "NodeList", "items": [{"metadata": {"name": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}}]});
    let pods = "kind: PodList\nitems: []\n---\nkind: DaemonSet\nmetadata: {name: d, namespace: s, uid: d1}\n---\nkind: Secret\n";
    let files = [SavedFile { name: "nodes", text: &nodes.to_string() }, SavedFile { name: "rest", text: pods }];
    let view = saved::read(&files).unwrap().view;
    assert_eq!(view.known(), Known { pods: true, budgets: false, daemon_sets: true, claims: false, volumes: false });
    assert_eq!(view.nodes().len(), 1);
    assert!(view.daemon_set_exists(&Uid::new("d1")));
}

#[test]
fn what_can_not_be_read_of_an_object_is_told_with_what_comes_of_it() {
    let mut odd = node("a", "1");
    odd["metadata"]["labels"] = json!({"spot-migrator.io/do-not-migrate": "yes"});
    let mut pod = pod("p", "a");
    pod["metadata"]["annotations"] = json!({"spot-migrator.io/do-not-evict": "no"});
    let budget = json!({"kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "shop"},
                        "spec": {"selector": {"matchLabels": {"app": "x y!"}}}});
    let text = list("1", &[odd, pod, budget]).to_string();
    let doubts = saved::read(&[SavedFile { name: "f", text: &text }]).unwrap().doubts;
    let begins = ["Node a: `spot-migrator.io/do-not-migrate`", "Pod shop/p: `spot-migrator.io/do-not-evict`"];
    let [of_node, of_pod, of_budget] = &doubts[..] else { panic!("{doubts:?}") };
    assert!(of_node.starts_with(begins[0]) && of_pod.starts_with(begins[1]), "{doubts:?}");
    assert!(of_budget.starts_with("PodDisruptionBudget shop/b: `spec.selector`"), "{of_budget}");
    assert!(of_budget.ends_with("the budget lets no pod of its namespace go until it can be"), "{of_budget}");
}

#[test]
fn what_can_not_be_used_is_named_with_its_place() {
    assert_eq!(
        refusal(&list("1", &[pod("p", "a")]).to_string()),
        "f: not a list of nodes; save the objects with `kubectl get nodes,pods,pdb,daemonsets,pvc,pv -A -o yaml`"
    );
    let mut odd = node("odd", "1");
    odd["metadata"]["creationTimestamp"] = json!(null);
    let items = list("1", &[node("a", "1"), odd]).to_string();
    let expected = format!("item 2 can't be used; {SAVE}: node odd has no metadata.creationTimestamp");
    assert_eq!(refusal(&items), format!("f: {expected}"));
    let second = format!("kind: Secret\n---\n{items}");
    assert_eq!(refusal(&second), format!("f: document 2, {expected}"));
    let odd = list("1", &[json!({"kind": "Node", "metadata": {"name": 5}})]).to_string();
    assert!(
        refusal(&odd).starts_with(&format!("f: item 1 can't be used; {SAVE}: invalid type: integer `5`")),
        "{}",
        refusal(&odd)
    );
    assert!(
        refusal(&list("1", &[json!(7)]).to_string()).starts_with("f: item 1 is no Kubernetes object: it has no `kind`")
    );
    assert!(refusal("hello: world").starts_with("f: the document is no Kubernetes object: it has no `kind`"));
    assert!(refusal("kind: List\nitems: 5").contains("it is a list without `items`"));
    assert!(refusal("").starts_with("f: not a list of nodes"));
    assert!(refusal("a: [1").starts_with("f: neither JSON nor YAML; save the objects with "));
    assert!(refusal("{\"kind\": ").starts_with("f: neither JSON nor YAML; save the objects with "));
    assert!(refusal("kind: NodeList\nkind: PodList").starts_with("f: neither JSON nor YAML; save the objects with "));
}

#[test]
fn an_alias_bomb_is_refused() {
    let level = |level: usize| {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        format!("a{level}: &a{level} [{aliases}]\n")
    };
    let text = format!("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{}", (1..12).map(level).collect::<String>());
    assert!(refusal(&text).starts_with("f: neither JSON nor YAML; save the objects with "), "{}", refusal(&text));
}

const NODES: &str = "apiVersion: v1\nitems:\n- kind: Node\n  metadata:\n    name: a\n    uid: u\n    creationTimestamp: \
                     \"2026-01-01T00:00:00Z\"\n    managedFields:\n    - manager: kubelet\n      operation: Update\nkind: \
                     List\n";
const PODS: &str = "apiVersion: v1\nitems:\n- kind: Pod\n  metadata:\n    name: p\n    namespace: shop\n    uid: p1\n    \
                    creationTimestamp: \"2026-01-01T00:00:00Z\"\n  spec:\n    nodeName: a\n    \
                    terminationGracePeriodSeconds: 30\nkind: List\n";

#[test]
fn lists_in_a_row_and_the_line_ends_of_windows_are_read_alike() {
    let of = |text: &str| format!("{:?}", view(text).unwrap());
    let stream = format!("{NODES}---\n{PODS}");
    let files = [SavedFile { name: "nodes", text: NODES }, SavedFile { name: "pods", text: PODS }];
    let apart = format!("{:?}", saved::read(&files).unwrap().view);
    assert_eq!(of(&stream), apart);
    assert_eq!(of(&format!("---\n{stream}---\n# nothing\n")), apart);
    assert_eq!(of(&stream.replace('\n', "\r\n")), apart);
    let json = list("1", &[node("a", "1")]).to_string();
    assert_eq!(of(&json.replace(',', ",\r\n")), of(&json));
}

#[test]
fn what_is_wrong_in_yaml_is_said_with_the_line_of_the_file() {
    let stream = format!("{NODES}---\n{PODS}");
    let odd = stream.replace("Seconds: 30", "Seconds: soon");
    let line = odd.lines().position(|line| line.contains("soon")).unwrap() + 1;
    for text in [odd.clone(), odd.replace('\n', "\r\n")] {
        let refused = refusal(&text);
        assert!(refused.contains("document 2, item 1 can't be used"), "{refused}");
        assert!(refused.contains(&format!("line {line} ")), "line {line}: {refused}");
    }
    let open = stream.replace("kind: List\n", "kind: [List\n");
    let line = NODES.lines().count();
    let refused = refusal(&open);
    assert!((line..=line + 1).any(|line| refused.contains(&format!("line {line} "))), "line {line}: {refused}");
    // Of one object on one line there is none to name.
    let refused = refusal(&list("1", &[json!({"kind": "Node", "metadata": {"name": 5}})]).to_string());
    assert!(!refused.contains(" line "), "{refused}");
}

#[test]
fn no_object_is_left_out_in_silence() {
    let commented = NODES.replace("kind: Node\n", "kind: Node # of the control plane\n");
    assert_eq!(view(&commented).unwrap().nodes().len(), 1);
    let in_list = list("1", &[list("1", &[node("a", "1")])]).to_string();
    assert!(refusal(&in_list).contains("item 1 is no Kubernetes object: it is a list in another list"));
    let (one, other) = (node("a", "1").to_string(), node("b", "1").to_string());
    let twice = format!(r#"{{"kind": "List", "items": [{one}], "items": [{other}]}}"#);
    assert!(refusal(&twice).contains("duplicate field `items`"), "{}", refusal(&twice));
    let joined = refusal(&format!("{NODES}{PODS}"));
    assert!(joined.contains("write `---` between two lists") && !joined.contains("DuplicateKeyPolicy"), "{joined}");
    assert!(refusal(r#"{"kind": "NodeList"}"#).contains("it is a list without `items`"));
    for none in [r#"{"kind": "NodeList", "items": null}"#, "kind: NodeList\nitems:\n"] {
        assert_eq!(view(none).unwrap().nodes().len(), 0, "{none}");
    }
}

#[test]
fn two_nodes_of_one_name_are_told() {
    let doubts = |text: &str| saved::read(&[SavedFile { name: "f", text }]).unwrap().doubts;
    let other = NODES.replace("uid: u\n", "uid: v\n");
    assert_eq!(
        doubts(&format!("{NODES}---\n{other}")),
        ["Node a is there twice, with two UIDs: it counts as two nodes"]
    );
    assert_eq!(doubts(&format!("{NODES}---\n{NODES}")), [""; 0], "the same one is one");
}
