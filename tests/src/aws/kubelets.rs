//! The machines' half of a Node's life: an instance joins the cluster when it runs, with the labels and taints that its
//! user data tells the kubelet, and falls silent when it ends.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{task::JoinHandle, time::sleep};

use super::{Aws, Instance};
use crate::{kwok::SILENT, machine::Machine};

/// The taint with which a kubelet registers where a cloud controller manager has to complete the Node.
const UNINITIALISED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// How often instances and Nodes are compared.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A task that makes Nodes of new instances and silences those of ended ones, until it is dropped.
#[derive(Debug)]
pub(super) struct Kubelets {
    task: JoinHandle<()>,
}

impl Kubelets {
    pub(super) fn start(aws: Arc<Aws>, client: Client) -> Self {
        let nodes: Api<Node> = Api::all(client);
        let task = tokio::spawn(async move {
            // An instance joins once, whatever becomes of its Node.
            let mut joined = BTreeSet::new();
            loop {
                tend(&aws, &nodes, &mut joined).await;
                sleep(LOOK_AGAIN).await;
            }
        });
        Self { task }
    }

    /// Fails the test if they have failed.
    pub(super) fn check(&self) {
        assert!(!self.task.is_finished(), "the task that joins and silences Nodes has failed");
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether the cloud controller manager has completed `node`, and it takes pods.
pub(super) fn is_initialised(node: &Node) -> bool {
    let status = node.status.iter();
    let ready = status.clone().flat_map(|status| status.conditions.iter().flatten());
    let addresses = status.flat_map(|status| status.addresses.iter().flatten());
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    ready.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        && addresses.into_iter().any(|address| address.type_ == "InternalDNS" && address.address == node.name_any())
        && !taints.any(|taint| taint.key == UNINITIALISED || taint.key == "node.kubernetes.io/not-ready")
}

async fn tend(aws: &Aws, nodes: &Api<Node>, joined: &mut BTreeSet<String>) {
    let running: Vec<_> = aws.instances().await.into_iter().filter(Instance::is_running).collect();
    for node in nodes.list(&ListParams::default()).await.expect("nodes can be listed") {
        let instance = instance_of(&node).filter(|instance| joined.contains(*instance));
        let ended = instance.is_some_and(|instance| running.iter().all(|running| running.id != instance));
        if ended && !node.annotations().contains_key(SILENT) {
            silence(nodes, node).await;
        }
    }
    for instance in running {
        if !joined.contains(&instance.id) && join(aws, nodes, &instance).await {
            joined.insert(instance.id);
        }
    }
}

fn instance_of(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()?.strip_prefix("aws:///")?.rsplit('/').next()
}

/// Makes the Node of `instance`, unless there still is one of its name: an address is soon given to another instance.
async fn join(aws: &Aws, nodes: &Api<Node>, instance: &Instance) -> bool {
    let told = Told::by(&aws.user_data(&instance.id).await);
    let mut machine = Machine::unlabelled(&instance.private_dns_name).taint(UNINITIALISED, "true", "NoSchedule");
    for (key, value) in &told.labels {
        machine = machine.label(key, value);
    }
    for (key, value, effect) in &told.taints {
        machine = machine.taint(key, value, effect);
    }
    let mut node = machine.node();
    node.spec.get_or_insert_default().provider_id = Some(instance.provider_id());
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 409 => false,
        Err(error) => panic!("{} can't join: {error}", instance.id),
    }
}

/// What a machine's user data has its kubelet register with.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    labels: Vec<(String, String)>,
    taints: Vec<(String, String, String)>,
}

impl Told {
    /// By the arguments of a kubelet, wherever they stand, or by the settings of Bottlerocket.
    fn by(user_data: &str) -> Self {
        let mut told = Self::default();
        let mut section = "";
        for line in user_data.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            for pair in argument(line, "--node-labels=") {
                told.labels.extend(pair.split_once('=').map(owned));
            }
            for taint in argument(line, "--register-with-taints=") {
                told.taints.extend(taint.split_once('=').and_then(|(key, rest)| tainted(key, rest)));
            }
            match (section, line.split_once(" = ")) {
                ("[settings.kubernetes.node-labels]", Some((key, value))) => {
                    told.labels.push((unquoted(key), unquoted(value)));
                }
                ("[settings.kubernetes.node-taints]", Some((key, values))) => {
                    let key: String = unquoted(key);
                    told.taints.extend(unquoted::<Vec<String>>(values).iter().filter_map(|rest| tainted(&key, rest)));
                }
                _ if line.starts_with('[') => section = line,
                _ => {}
            }
        }
        told
    }
}

/// The items of an argument of the kubelet that stands in `line`.
fn argument<'l>(line: &'l str, name: &str) -> impl Iterator<Item = &'l str> {
    let value = line.split_once(name).map_or("", |(_, rest)| rest);
    let end = value.find(|c: char| c.is_whitespace() || "\"'\\".contains(c)).unwrap_or(value.len());
    value[..end].split(',').filter(|item| !item.is_empty())
}

fn tainted(key: &str, rest: &str) -> Option<(String, String, String)> {
    let (value, effect) = rest.rsplit_once(':')?;
    Some((key.to_owned(), value.to_owned(), effect.to_owned()))
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

/// TOML's strings and lists of them, which are JSON's here.
fn unquoted<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// As its machine's network goes: KWOK says nothing of it any more, and it is not ready. Whoever was faster and has
/// deleted the Node is right.
async fn silence(nodes: &Api<Node>, node: Node) {
    let name = node.name_any();
    let gone = |result: kube::Result<Node>| match result {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => panic!("{name} can't be silenced: {error}"),
    };
    let annotation = json!({"metadata": {"annotations": {SILENT: "true"}}});
    let mut conditions = json!(node.status.unwrap_or_default().conditions);
    for condition in conditions.as_array_mut().into_iter().flatten().filter(|condition| condition["type"] == "Ready") {
        condition["status"] = json!("Unknown");
        condition["reason"] = json!("NodeStatusUnknown");
    }
    let status = json!({"status": {"conditions": conditions}});
    gone(nodes.patch(&name, &PatchParams::default(), &Patch::Merge(&annotation)).await);
    gone(nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_taints_are_read_from_every_kind_of_user_data() {
        let arguments = "--node-labels=a.b/c=d,e= --register-with-taints=f=g:NoSchedule,f=g:NoExecute,h=:NoSchedule";
        let nodeadm = arguments.split(' ').map(|argument| format!("      - \"{argument}\"")).collect::<Vec<_>>();
        let bottlerocket = "[settings.kubernetes]\ncluster-name = \"a\"\n\n[settings.kubernetes.node-labels]\n\
            \"a.b/c\" = \"d\"\n\"e\" = \"\"\n\n[settings.kubernetes.node-taints]\n\
            \"f\" = [\"g:NoSchedule\", \"g:NoExecute\"]\n\"h\" = [\":NoSchedule\"]\n";
        let text = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        for user_data in [
            format!("#!/bin/sh\n# --node-labels=not=this\nprintf '%s\\n' 'KUBELET_EXTRA_ARGS=\"{arguments}\"'\n"),
            format!("spec:\n  kubelet:\n    flags:\n{}\n", nodeadm.join("\n")),
            bottlerocket.to_owned(),
        ] {
            let told = Told::by(&user_data);
            let labels: Vec<_> = told.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let taints: Vec<_> =
                told.taints.iter().map(|(key, value, effect)| format!("{key}={value}:{effect}")).collect();
            assert_eq!(labels, text(&["a.b/c=d", "e="]), "{user_data}");
            assert_eq!(taints, text(&["f=g:NoSchedule", "f=g:NoExecute", "h=:NoSchedule"]), "{user_data}");
        }
        assert_eq!(Told::by(""), Told::default());
    }
}
