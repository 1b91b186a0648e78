//! Helm installs the chart into a real control plane, and its containers do their work there, each as a process with the
//! arguments, the variables, the files and the token of its pod.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, Container, Node, Pod, PodSpec},
    rbac::v1::ClusterRole,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use spot_tests::{
    Helm, Machine, Running, Verb, Workload, World,
    control_plane::free_port,
    helm::Kubelet,
    wait::{PATIENCE, until},
};

use crate::{RELEASE, node_object, with};

/// How long a migration of a few nodes may take.
pub(crate) const RUN: Duration = Duration::from_mins(3);

/// The name by which the API server knows the chart's account.
const ACCOUNT: &str = "system:serviceaccount:spot-migrator:spot-migrator";

/// The node that comes when the others are gone.
const LATE: &str = "on-demand-3";

/// A namespace with Pod Security's strictest level, and nodes of which one is spot.
async fn cluster() -> World {
    let world = World::start().await;
    world.apply(&[json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": RELEASE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    })]);
    let linux = |machine: Machine| machine.label("kubernetes.io/os", "linux");
    world.join(&["on-demand-1", "on-demand-2"].map(|name| linux(Machine::on_demand(name)))).await;
    world
}

/// What the tests ask for: a run each second, and pods where nothing moves them away, for the processes of the tests
/// have their tokens, which end with them.
fn values() -> Value {
    with(
        node_object(),
        json!({
            "config": {
                "schedule": "@every 1s",
                "loadBalancer": {"drain": "0s"},
                "server": {"address": format!("127.0.0.1:{}", free_port())},
                "log": {"format": "text", "level": "debug"},
            },
            "nodeSelector": {"node.kubernetes.io/lifecycle": "spot"},
        }),
    )
}

fn install(helm: &Helm, values: &Value) -> String {
    let arguments = ["install", RELEASE, "--namespace", RELEASE, "--wait", "--timeout", "2m"];
    helm.with_chart(&arguments, values).expect("it is installed")
}

fn upgrade(helm: &Helm, values: &Value) {
    let arguments = ["upgrade", RELEASE, "--namespace", RELEASE, "--wait", "--timeout", "2m"];
    helm.with_chart(&arguments, values).expect("it is upgraded");
}

/// The pods of the Deployment, by name.
pub(crate) async fn pods(world: &World) -> Vec<Pod> {
    let ours = ListParams::default().labels("app.kubernetes.io/component=migrator");
    let mut pods = Api::<Pod>::namespaced(world.client(), RELEASE).list(&ours).await.expect("pods can be listed").items;
    pods.sort_by_key(ResourceExt::name_any);
    pods
}

pub(crate) fn containers(pod: &Pod) -> Vec<Container> {
    let spec = pod.spec.clone().expect("a pod has a spec");
    spec.init_containers.into_iter().flatten().chain(spec.containers).collect()
}

/// The pod of the hook, as Helm's Job makes it.
async fn hook(world: &World, helm: &Helm) -> Pod {
    let text = helm.run(&["get", "hooks", RELEASE, "--namespace", RELEASE]).expect("it is installed");
    let hooks: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
    let job = hooks.into_iter().find(|hook| hook["kind"] == "Job").expect("there is one");
    let job: Job = serde_json::from_value(job).expect("it is a Job");
    let template = job.spec.expect("a Job has a spec").template;
    let mut pod = Pod { spec: template.spec, ..Pod::default() };
    pod.metadata.name = Some("uninstall".to_owned());
    pod.metadata.labels = template.metadata.and_then(|metadata| metadata.labels);
    let pods = Api::<Pod>::namespaced(world.client(), RELEASE);
    pods.create(&PostParams::default(), &pod).await.expect("the namespace accepts it");
    until("the pod of the hook to have a node", PATIENCE, || async {
        let pod = pods.get("uninstall").await.map_err(|error| error.to_string())?;
        let placed = pod.spec.as_ref().is_some_and(|spec: &PodSpec| spec.node_name.is_some());
        if placed { Ok(pod) } else { Err(format!("{:?}", pod.status)) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_helm_installs_migrates_a_cluster_under_its_own_account_and_leaves_it_as_it_should() {
    let world = cluster().await;
    let web = Workload::deployment("web", 6).max_unavailable(1);
    world.run(std::slice::from_ref(&web)).await;
    world.join(&[Machine::spot("spot-1").label("kubernetes.io/os", "linux")]).await;
    let helm = Helm::on(&world);
    let mut values = values();
    let said = install(&helm, &values);
    assert!(said.contains("helm test spot-migrator -n spot-migrator --logs"), "{said}");
    let [first, _second] = &pods(&world).await[..] else { panic!("two pods") };
    let running = Kubelet::of(&world, first.clone()).start(&containers(first)[0]).await;

    until("the on-demand nodes to go", RUN, || async {
        if world.nodes().await.keys().eq(["spot-1"]) { Ok(()) } else { Err(running.process().output()) }
    })
    .await;
    world.settled(std::slice::from_ref(&web)).await;
    assert_retired_by_the_account(&world, 2).await;

    // A change that needs no new process replaces no pod.
    values["config"]["drain"] = json!({"timeout": "30m"});
    upgrade(&helm, &values);
    let names = |pods: &[Pod]| pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    let kept = names(&pods(&world).await);
    assert!(kept.contains(&first.name_any()) && kept.len() == 2, "{kept:?}");
    let config = Api::<ConfigMap>::namespaced(world.client(), RELEASE).get("spot-migrator-config").await;
    let text = config.expect("it is there").data.and_then(|mut data| data.remove("config.yaml"));
    assert!(text.expect("it has the file").contains("timeout: 30m"));

    killed_in_mid_drain(&world, running).await;
    release_before_removal(&world, &helm).await;
    let node = &world.nodes().await[LATE];
    assert!(!is_claimed(node) && !node.annotations().contains_key("spot-migrator.io/claim"), "{node:?}");
    assert_ne!(node.spec.as_ref().and_then(|spec| spec.unschedulable), Some(true));

    helm.run(&["uninstall", RELEASE, "--namespace", RELEASE, "--timeout", "2m"]).expect("it is removed");
    let roles = Api::<ClusterRole>::all(world.client());
    assert_eq!(roles.get_opt(RELEASE).await.expect("roles can be read"), None);
    let deployments = Api::<Deployment>::namespaced(world.client(), RELEASE);
    assert_eq!(deployments.get_opt(RELEASE).await.expect("deployments can be read"), None);
    let jobs = Api::<Job>::namespaced(world.client(), RELEASE).list(&ListParams::default()).await;
    assert_eq!(jobs.expect("jobs can be listed").items, [], "the hook's Job went too");
}

/// So many nodes went, by the chart's account, which lacked no right.
async fn assert_retired_by_the_account(world: &World, nodes: usize) {
    let audit = world.audit().await;
    let retired = audit.entries().filter(|entry| entry.verb == Verb::Delete && entry.resource == "nodes");
    let retired: Vec<_> = retired.map(|entry| (entry.user.as_str(), entry.succeeded())).collect();
    assert_eq!(retired, vec![(ACCOUNT, true); nodes]);
    let lacking: Vec<_> = audit.entries().filter(|entry| entry.user == ACCOUNT && entry.code == 403).collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}

/// Gives the process a node whose pods take an hour to stop, and kills it when it has begun.
async fn killed_in_mid_drain(world: &World, running: Running) {
    let slow = Workload::deployment("slow", 2).max_unavailable(1).stop_after("1h");
    world.patch_node("spot-1", &json!({"spec": {"unschedulable": true}})).await;
    world.join(&[Machine::on_demand(LATE)]).await;
    world.run(std::slice::from_ref(&slow)).await;
    world.patch_node("spot-1", &json!({"spec": {"unschedulable": null}})).await;
    world.node_when(LATE, "claimed", RUN, is_claimed).await;
    running.kill();
}

/// What Helm does before it removes anything: the containers of the hook, one after the other.
async fn release_before_removal(world: &World, helm: &Helm) {
    let hook = hook(world, helm).await;
    let kubelet = Kubelet::of(world, hook.clone());
    for (container, expected) in
        containers(&hook).iter().zip(["paused by ConfigMap spot-migrator/spot-migrator", "on-demand-3: released"])
    {
        let ended = kubelet.start(container).await.ended(PATIENCE).await;
        ended.assert_code(0);
        assert!(ended.output.contains(expected), "{}: {}", container.name, ended.output);
    }
}

/// Its pods are ended some time after Helm asks for it. This process is not ended at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_lives_on_begins_nothing_while_its_release_is_removed_and_the_next_one_begins_unpaused() {
    let world = cluster().await;
    world.join(&[Machine::spot("spot-1").label("kubernetes.io/os", "linux")]).await;
    let opt_out = |value: Value| json!({"metadata": {"annotations": {"spot-migrator.io/do-not-migrate": value}}});
    world.patch_node("on-demand-1", &opt_out(json!("true"))).await;
    world.patch_node("on-demand-2", &opt_out(json!("true"))).await;
    let (helm, values) = (Helm::on(&world), values());
    let said = install(&helm, &values);
    assert!(!said.contains("It is paused"), "{said}");
    let [first, _second] = &pods(&world).await[..] else { panic!("two pods") };
    let running = Kubelet::of(&world, first.clone()).start(&containers(first)[0]).await;
    running.serves().await;
    runs_end(&running, 1).await;

    let hook = hook(&world, &helm).await;
    let kubelet = Kubelet::of(&world, hook.clone());
    for (done, container) in containers(&hook).iter().enumerate() {
        kubelet.start(container).await.ended(PATIENCE).await.assert_code(0);
        if done == 0 {
            // As if the hook was killed here: it is still installed, and says what holds it.
            let said = helm.with_chart(&["upgrade", RELEASE, "--namespace", RELEASE], &values).expect("it is upgraded");
            assert!(said.contains("It is paused") && said.contains(" resume --config"), "{said}");
        }
    }
    world.patch_node("on-demand-1", &opt_out(json!(null))).await;
    world.patch_node("on-demand-2", &opt_out(json!(null))).await;
    // The times of several runs come before Helm goes on.
    runs_end(&running, 3).await;
    helm.run(&["uninstall", RELEASE, "--namespace", RELEASE, "--timeout", "2m"]).expect("it is removed");
    running.ended(PATIENCE).await.assert_code(4);
    for name in ["on-demand-1", "on-demand-2"] {
        let node = &world.nodes().await[name];
        assert!(!is_claimed(node) && node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true), "{node:?}");
    }
    let audit = world.audit().await;
    let writes =
        audit.entries().filter(|entry| entry.user == ACCOUNT && entry.resource == "nodes" && entry.succeeded());
    assert_eq!(writes.filter(|entry| entry.verb == Verb::Patch).count(), 0, "no node was marked");
    let states = Api::<ConfigMap>::namespaced(world.client(), RELEASE);
    assert_eq!(states.get_opt(RELEASE).await.expect("ConfigMaps can be read"), None);

    let said = install(&helm, &values);
    assert!(!said.contains("It is paused"), "{said}");
    let [first, _second] = &pods(&world).await[..] else { panic!("two pods") };
    let running = Kubelet::of(&world, first.clone()).start(&containers(first)[0]).await;
    until("the on-demand nodes to go", RUN, || async {
        if world.nodes().await.keys().eq(["spot-1"]) { Ok(()) } else { Err(running.process().output()) }
    })
    .await;
}

/// Waits until so many more runs have found nothing to do.
async fn runs_end(running: &Running, more: u64) {
    let ended = || running.metric("spot_migrator_runs_total", &[("outcome", "nothing_eligible")]);
    let before = ended();
    until("runs to end", PATIENCE, || async {
        if ended() >= before + more { Ok(()) } else { Err(running.process().output()) }
    })
    .await;
}

fn is_claimed(node: &Node) -> bool {
    node.labels().contains_key("spot-migrator.io/selected-for-deletion")
}

/// With everything on that the API server knows the kinds of.
#[tokio::test(flavor = "multi_thread")]
async fn everything_that_can_be_switched_on_is_accepted_and_its_pods_run() {
    let world = cluster().await;
    world.join(&[Machine::spot("spot-1").label("kubernetes.io/os", "linux")]).await;
    world.apply(&[json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "webhook", "namespace": RELEASE}, "stringData": {"url": "https://hooks.example.com/secret"},
    })]);
    let helm = Helm::on(&world);
    let everything = with(
        values(),
        json!({
            // Nobody is there: AWS is not asked.
            "config": {
                "cloudProvider": {"aws": {"region": "eu-west-1", "endpointUrl": "http://127.0.0.1:1"}},
                "interruption": {"queueUrl": "http://127.0.0.1:1/111122223333/notices"},
            },
            "files": {"prices.tsv": ""},
            "dashboard": {"enabled": true},
            "agent": {"enabled": true},
        }),
    );
    install(&helm, &everything);
    let agents = Api::<Pod>::namespaced(world.client(), "spot-agent");
    until("an agent to run on each node", PATIENCE, || async {
        let running = ListParams::default().fields("status.phase=Running");
        let count = agents.list(&running).await.map_err(|error| error.to_string())?.items.len();
        if count == 3 { Ok(()) } else { Err(format!("{count} of 3")) }
    })
    .await;

    // The check that `helm test` runs says that no right is missing.
    let [first, _] = &pods(&world).await[..] else { panic!("two pods") };
    let mut check = containers(first).remove(0);
    check.args = Some(["check", "--config", "/etc/spot-migrator/config.yaml"].map(str::to_owned).into());
    let ended = Kubelet::of(&world, first.clone()).start(&check).await.ended(PATIENCE).await;
    assert!(ended.output.contains("rights") && !ended.output.contains("` is missing"), "{}", ended.output);

    // With a Secret mounted besides, pods are accepted too.
    upgrade(&helm, &with(everything, json!({"webhookSecret": {"name": "webhook"}})));
}
