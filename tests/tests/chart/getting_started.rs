//! The path of a new user, as the page has it: each command of the part for kind, on a real control plane. What builds
//! images and machines has its place taken; everything else is done as it stands there.

use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use spot_tests::{
    Machine, Running, World,
    control_plane::{User, free_port},
    helm::Kubelet,
    programs,
    wait::{PATIENCE, until},
};

use crate::{file, install, read, rendered};

/// The part of the page with this heading.
fn part(heading: &str) -> String {
    let page = read("docs/getting-started.md");
    let (_, rest) = page.split_once(&format!("## {heading}\n")).expect("there is that part");
    let (part, _) = rest.split_once("\n## ").expect("there is another after it");
    part.to_owned()
}

/// The commands of a part, in order, each in one line; what a command reads is left out.
fn commands(part: &str) -> Vec<String> {
    let blocks = part.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let (mut commands, mut end) = (Vec::new(), None::<String>);
    for line in blocks.map(|block| block.replace("\\\n", " ")).collect::<String>().lines() {
        match &end {
            Some(word) if line == word => end = None,
            Some(_) => {}
            None => {
                end = line.split_once("<<'").map(|(_, word)| word.trim_end_matches('\'').to_owned());
                commands.push(line.to_owned());
            }
        }
    }
    commands
}

/// Runs a command of helm or kubectl with the rights of an administrator.
fn shell(world: &World, command: &str) {
    let kubectl = "kubectl() { \"$CONTROL_PLANE\" kubectl --kubeconfig \"$KUBECONFIG\" \"$@\"; }";
    let output = Command::new("sh")
        .args(["-ec", &format!("{kubectl}; helm() {{ \"$HELM\" \"$@\"; }}; {command}")])
        .current_dir(programs::repository())
        .env_clear()
        .env("CONTROL_PLANE", programs::path("controlplane"))
        .env("HELM", programs::path("helm"))
        .env("HOME", world.control_plane().folder())
        .env("KUBECONFIG", world.control_plane().kubeconfig(User::Admin))
        .stdin(Stdio::null())
        .output()
        .expect("there is a shell");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// One of the pods, once those of before are gone.
async fn pod(world: &World) -> Pod {
    shell(world, "kubectl --namespace spot-migrator rollout status deploy/spot-migrator --timeout 2m");
    until("two pods to be there", PATIENCE, || async {
        let mut pods = install::pods(world).await;
        if pods.len() == 2 { Ok(pods.remove(0)) } else { Err(format!("{} pods", pods.len())) }
    })
    .await
}

/// What one of the pods does with these arguments instead of its own.
async fn execute(world: &World, arguments: &[&str]) -> Running {
    let pod = pod(world).await;
    let mut container = install::containers(&pod).remove(0);
    container.args = Some(arguments.iter().map(|&argument| argument.to_owned()).collect());
    Kubelet::of(world, pod).start(&container).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_for_new_users_leads_from_nothing_to_a_first_node_retired() {
    let world = World::start().await;
    let linux = |name: &str| Machine::unlabelled(name).label("kubernetes.io/os", "linux");
    let role = "node-role.kubernetes.io/control-plane";
    let control_plane = linux("kind-control-plane").label(role, "").taint(role, "", "NoSchedule");
    // Others may listen on the port of the default.
    let port = format!(" --set config.server.address=127.0.0.1:{}", free_port());
    let mut done = 0;
    for command in commands(&part("On kind")) {
        done += 1;
        match &command.split_whitespace().take(2).collect::<Vec<_>>()[..] {
            ["kind", "create"] => {
                world.join(std::slice::from_ref(&control_plane)).await;
                world.join(&["kind-worker", "kind-worker2", "kind-worker3"].map(linux)).await;
            }
            ["docker", "build"] => {}
            ["helm", "install" | "upgrade"] => shell(&world, &(command + &port)),
            ["kubectl", "label" | "create"] => shell(&world, &command),
            ["helm", "test"] => {
                let check = execute(&world, &["check", "--config", "/etc/spot-migrator/config.yaml"]).await;
                check.ended(PATIENCE).await.assert_code(0);
            }
            ["kubectl", "--namespace"] => {
                let (_, arguments) =
                    command.split_once("exec deploy/spot-migrator -- spot-migrator ").expect("it is exec");
                let arguments: Vec<_> = arguments.split_whitespace().collect();
                let ended = execute(&world, &arguments).await.ended(PATIENCE).await;
                ended.assert_code(0);
                for said in ["kind-worker ", "kind-worker2", "on-demand", "2 eligible"] {
                    assert!(ended.output.contains(said), "{said} in {}", ended.output);
                }
            }
            ["kubectl", "get"] => {
                let pod = pod(&world).await;
                let running = Kubelet::of(&world, pod.clone()).start(&install::containers(&pod)[0]).await;
                until("the first node to go", install::RUN, || async {
                    let nodes = world.nodes().await;
                    if nodes.len() == 3 { Ok(()) } else { Err(running.process().output()) }
                })
                .await;
                let nodes: Vec<_> = world.nodes().await.into_keys().collect();
                assert!(nodes.contains(&"kind-worker3".to_owned()), "{nodes:?}, by {}", pod.name_any());
            }
            _ => panic!("nobody knows how to do this here: {command}"),
        }
    }
    assert_eq!(done, 10, "the whole of the page");
}

#[test]
fn what_is_installed_on_eks_is_right_and_no_dry_run_in_the_end() {
    let eks = part("On EKS");
    let (_, file) = eks.split_once("<<'YAML'\n").expect("there is a configuration");
    let config: Value = serde_saphyr::from_str(file.split_once("YAML\n").expect("it ends").0).expect("it is YAML");
    rendered(&json!({"image": {"repository": "spot"}, "config": config})).expect("the configuration is one");

    let helm = |command: &str| commands(&eks).into_iter().find(|line| line.starts_with(command)).expect("it is there");
    let installed = templated(&helm("helm install"), &[]);
    assert!(installed.contains("dryRun: true") && installed.contains("role-arn: arn:aws"), "{installed}");
    let karpenter = "--set config.cloudProvider.name=node-object --set config.selection.provisionedNodes=migrate";
    assert!(eks.contains(karpenter));
    let other = "helm install spot-migrator deploy/chart --set image.repository=spot ".to_owned() + karpenter;
    assert!(templated(&other, &[]).contains("provisionedNodes: migrate"));

    let (_, values) = eks.split_once("```yaml\n").expect("there are values");
    let values = values.split_once("```").expect("they end").0;
    let upgraded = templated(&helm("helm upgrade"), &[("values.yaml", values)]);
    assert!(!upgraded.contains("dryRun") && upgraded.contains("kind: PrometheusRule"), "{upgraded}");
}

/// What such a command would have the cluster take, with these files where it is run.
fn templated(command: &str, files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().expect("temporary folders can be made");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("the folder is writable");
    }
    let chart = file("deploy/chart").display().to_string();
    let command = command.replace("deploy/chart", &chart).replace("--create-namespace", "");
    let (_, arguments) = command.trim_start_matches("helm ").split_once(' ').expect("it has arguments");
    let output = Command::new("sh")
        .args(["-ec", &format!("\"$HELM\" template {arguments}")])
        .current_dir(folder.path())
        .env_clear()
        .env("HELM", programs::path("helm"))
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("there is a shell");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
