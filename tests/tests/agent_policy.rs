//! What a real API server lets the agent's token write, with the manifests of `deploy/agent` in force.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    core::v1::{Node, Pod},
    events::v1::Event,
    policy::v1::Eviction,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use spot_tests::{
    Machine, World, programs,
    wait::{PATIENCE, until},
};

/// The label that a person gave the nodes.
const TEAM: &str = "example.test/team";

/// The taints that an agent sets.
const OURS: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "spot-migrator.io/rebalance-recommended", "spot-migrator.io/leaving"];

/// The nodes `one` and `two`, an agent on each, and a few other pods.
struct Scene {
    world: World,
    /// With the token of the agent on `one`.
    agent: Client,
    /// With a token of the same account that was asked for by hand.
    unbound: Client,
}

impl Scene {
    async fn set() -> Self {
        let world = World::start().await;
        let machine = |name| Machine::spot(name).label("kubernetes.io/os", "linux").label(TEAM, "shop");
        // Tainted as nodes may be: an agent belongs there all the same.
        world.join(&[machine("one"), machine("two").taint("gpu", "", "NoExecute")]).await;
        for manifest in ["rbac.yaml", "policy.yaml", "daemonset.yaml"] {
            let path = programs::repository().join("deploy/agent").join(manifest);
            let path = path.to_str().expect("the path is UTF-8");
            let _applied: String = world.control_plane().kubectl(&["apply", "--validate=strict", "-f", path]);
        }
        let bare = |name: &str, node: &str| {
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": node, "tolerations": [{"operator": "Exists"}],
                         "containers": [{"name": "c", "image": "c"}]},
            })
        };
        world.apply(&[bare("web-one", "one"), bare("web-two", "two"), bare("db-two", "two")]);
        let on_one = agent_on(&world, "one").await;
        agent_on(&world, "two").await;
        let (name, uid) = (on_one.name_any(), on_one.uid().expect("a pod has a UID"));
        let token = |bound: &[&str]| {
            let all = [&["create", "token", "spot-agent", "--namespace=spot-agent"], bound].concat();
            world.control_plane().client_with(world.control_plane().kubectl(&all).trim())
        };
        let pod = format!("--bound-object-name={name}");
        let agent = token(&["--bound-object-kind=Pod", &pod, &format!("--bound-object-uid={uid}")]);
        let unbound = token(&[]);
        let scene = Self { world, agent, unbound };
        scene.policies_in_force().await;
        scene
    }

    /// Policies are in force a moment after they were created: each refuses what it is there for.
    async fn policies_in_force(&self) {
        until("the policies to be in force", PATIENCE, || async {
            let dry = PatchParams { dry_run: true, ..PatchParams::default() };
            let nodes = Api::<Node>::all(self.agent.clone());
            let patch = Patch::Merge(json!({"spec": {"unschedulable": true}}));
            refused(nodes.patch("two", &dry, &patch).await).map_err(|()| "another node is patched".to_owned())?;
            let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
            refused(pods(&self.agent).delete("web-two", &dry).await).map_err(|()| "a pod is deleted".to_owned())?;
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            let event = Api::<Event>::namespaced(self.unbound.clone(), "default").create(&dry, &event()).await;
            refused(event).map_err(|()| "an Event is created".to_owned()).map(drop)
        })
        .await;
    }

    async fn patch(&self, client: &Client, node: &str, patch: Value) -> kube::Result<Node> {
        let of_ours = PatchParams { field_manager: Some("spot-migrator".to_owned()), ..PatchParams::default() };
        Api::<Node>::all(client.clone()).patch(node, &of_ours, &Patch::Merge(patch)).await
    }
}

/// The agent's pod on a node, once it runs there.
async fn agent_on(world: &World, node: &str) -> Pod {
    let pods = Api::<Pod>::namespaced(world.client(), "spot-agent");
    let there = ListParams::default().fields(&format!("spec.nodeName={node},status.phase=Running"));
    until(&format!("an agent to run on {node}"), PATIENCE, || async {
        let pods = pods.list(&there).await.map_err(|error| error.to_string())?;
        pods.items.into_iter().next().ok_or_else(|| "none".to_owned())
    })
    .await
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "default")
}

fn event() -> Event {
    serde_json::from_value(json!({
        "metadata": {"generateName": "one-", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "spot-migrator.io/spot-migrator", "reportingInstance": "agent",
        "action": "Cordon", "reason": "SpotInterruption", "type": "Warning",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "one"},
    }))
    .expect("the fields are those of an Event")
}

fn eviction(pod: &str) -> Eviction {
    serde_json::from_value(json!({"metadata": {"name": pod, "namespace": "default"}})).expect("they are an Eviction's")
}

async fn evict(client: &Client, pod: &str) -> kube::Result<Value> {
    pods(client).create_subresource("eviction", pod, &PostParams::default(), &eviction(pod)).await
}

/// What a policy said when it refused; nothing if the call was not refused by one.
fn refused<T>(answer: kube::Result<T>) -> Result<String, ()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("ValidatingAdmissionPolicy") => {
            Ok(status.message)
        }
        Ok(_) | Err(_) => Err(()),
    }
}

/// What is written when a machine is taken back, in one patch.
fn cordon() -> Value {
    json!({
        "metadata": {
            "labels": {"spot-migrator.io/selected-for-deletion": "true"},
            "annotations": {"spot-migrator.io/claim": "{}", "spot-migrator.io/back-off": "{}"},
        },
        "spec": {
            "unschedulable": true,
            "taints": [
                {"key": "ToBeDeletedByClusterAutoscaler", "value": "1767225600", "effect": "NoSchedule"},
                {"key": "spot-migrator.io/rebalance-recommended", "value": "1767225600", "effect": "PreferNoSchedule"},
                {"key": "spot-migrator.io/leaving", "value": "1767225600", "effect": "PreferNoSchedule"},
            ],
        },
    })
}

/// What is written when it comes back: the taints of others stay.
fn release(node: &Node) -> Value {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.clone().unwrap_or_default());
    let others: Vec<_> = taints.filter(|taint| !OURS.contains(&&*taint.key)).collect();
    json!({
        "metadata": {
            "labels": {"spot-migrator.io/selected-for-deletion": null, "cost-manager.io/selected-for-deletion": null},
            "annotations": {"spot-migrator.io/claim": null, "spot-migrator.io/back-off": null},
        },
        "spec": {"unschedulable": null, "taints": others},
    })
}

/// The node once the controllers have tainted it too, because it is cordoned.
async fn cordoned(world: &World, node: &str) -> Node {
    let key = "node.kubernetes.io/unschedulable";
    let tainted =
        |node: &Node| node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|one| one.key == key);
    world.node_when(node, "tainted by the controllers", PATIENCE, tainted).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_writes_to_its_own_node_and_deletes_that_nodes_pods_and_no_others() {
    let scene = Scene::set().await;
    let Scene { world, agent, .. } = &scene;
    let written = scene.patch(agent, "one", cordon()).await.expect("it is its own node");
    assert_eq!(written.spec.expect("it has one").unschedulable, Some(true));
    let released = release(&cordoned(world, "one").await);
    scene.patch(agent, "one", released).await.expect("it is its own node");
    let others = refused(scene.patch(agent, "two", cordon()).await).expect("it is another's");
    assert!(others.contains("its own node"), "{others}");

    let delete = DeleteParams::default().grace_period(1);
    let elsewhere = refused(pods(agent).delete("web-two", &delete).await).expect("it is elsewhere");
    assert!(elsewhere.contains("pods of its own node"), "{elsewhere}");
    pods(agent).delete("web-one", &delete).await.expect("it is on its own node");
    Api::<Event>::namespaced(agent.clone(), "default").create(&PostParams::default(), &event()).await.expect("allowed");

    // What no policy can see: an eviction names no node. `SECURITY.md` says so.
    evict(agent, "db-two").await.expect("evictions can't be confined");

    // Nobody else is held to any of this.
    scene.patch(&world.client(), "two", json!({"metadata": {"labels": {TEAM: "bank"}}})).await.expect("not an agent");
    pods(&world.client()).delete("web-two", &delete).await.expect("not an agent");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_its_own_node_an_agent_changes_the_cordon_and_what_is_ours_and_nothing_else() {
    let scene = Scene::set().await;
    let Scene { world, agent, .. } = &scene;
    let theirs = json!({
        "metadata": {
            "labels": {"cost-manager.io/selected-for-deletion": "true"},
            "annotations": {"example.test/note": "keep"},
            "finalizers": ["example.test/keep"],
        },
        "spec": {"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]},
    });
    scene.patch(&world.client(), "one", theirs).await.expect("not an agent");

    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    for (what, patch, said) in [
        ("a label is set", json!({"metadata": {"labels": {TEAM: "bank"}}}), "no label"),
        ("a label is added", json!({"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}}), "no label"),
        ("a label is taken off", json!({"metadata": {"labels": {TEAM: null}}}), "no label"),
        ("an annotation is set", json!({"metadata": {"annotations": {"example.test/note": "x"}}}), "no annotation"),
        (
            "an annotation is taken off",
            json!({"metadata": {"annotations": {"example.test/note": null}}}),
            "no annotation",
        ),
        ("a taint is taken off", taints(json!(null)), "no taint"),
        ("a taint is changed", taints(json!([{"key": "gpu", "effect": "NoExecute"}])), "no taint"),
        (
            "a taint is added",
            taints(json!([{"key": "gpu", "effect": "PreferNoSchedule"}, {"key": "x", "effect": "NoExecute"}])),
            "no taint",
        ),
        ("a finalizer is taken off", json!({"metadata": {"finalizers": null}}), "the cordon alone"),
        (
            "an owner is set",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "two", "uid": "u"}]}}),
            "the cordon alone",
        ),
        (
            "its addresses are set",
            json!({"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}}),
            "the cordon alone",
        ),
    ] {
        let answer = refused(scene.patch(agent, "one", patch).await);
        assert!(answer.as_ref().is_ok_and(|text| text.contains(said)), "{what}: {answer:?}");
    }

    let mut cordon = cordon();
    let all = cordon.pointer_mut("/spec/taints").and_then(Value::as_array_mut).expect("it has some");
    all.insert(0, json!({"key": "gpu", "effect": "PreferNoSchedule"}));
    scene.patch(agent, "one", cordon).await.expect("it is its own node");
    let release = release(&cordoned(world, "one").await);
    let released = scene.patch(agent, "one", release).await.expect("everything of ours may be taken off");
    assert!(!released.labels().contains_key("spot-migrator.io/selected-for-deletion"));
    assert!(!released.labels().contains_key("cost-manager.io/selected-for-deletion"));
    assert_eq!(released.labels().get(TEAM).map(String::as_str), Some("shop"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_names_no_node_writes_nothing_and_the_policies_fit_the_types() {
    let scene = Scene::set().await;
    let Scene { world, unbound, .. } = &scene;
    let delete = DeleteParams::default();
    let answers = [
        refused(scene.patch(unbound, "one", cordon()).await),
        refused(pods(unbound).delete("web-one", &delete).await),
        refused(evict(unbound, "web-one").await),
        refused(Api::<Event>::namespaced(unbound.clone(), "default").create(&PostParams::default(), &event()).await),
    ];
    for answer in answers {
        assert!(answer.is_ok_and(|text| text.contains("spot-agent")), "a policy of ours has refused it");
    }
    let left: Vec<_> = pods(unbound).list(&ListParams::default()).await.expect("it may look").into_iter().collect();
    assert_eq!(left.len(), 3, "it may look, and nothing went");

    let policies = Api::<ValidatingAdmissionPolicy>::all(world.client());
    for policy in ["spot-agent-token", "spot-agent-nodes", "spot-agent-pods"] {
        let status = until(&format!("{policy} to be checked"), PATIENCE, || async {
            let policy = policies.get(policy).await.map_err(|error| error.to_string())?;
            policy.status.filter(|status| status.type_checking.is_some()).ok_or_else(|| "not yet".to_owned())
        })
        .await;
        let warnings = status.type_checking.and_then(|checked| checked.expression_warnings).unwrap_or_default();
        assert_eq!(warnings, [], "{policy}");
    }
}
