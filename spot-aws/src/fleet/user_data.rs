//! User data: how labels and taints reach the kubelet before it registers its Node, so that no pod comes first.

use std::collections::{BTreeMap, BTreeSet};

use spot_core::node::Taint;

use super::pool::{Bottlerocket, Kubelet, Nodeadm, Pool, UserData};

/// The most bytes that user data has before it is encoded.
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html>
pub(super) const LIMIT: usize = 16 * 1024;

/// What an own text has to hold: without them, the kubelet would not hear of labels and taints.
pub(super) const REQUIRED: [&str; 2] = ["${NODE_LABELS}", "${NODE_TAINTS}"];

/// The label of what spot capacity is, by convention.
pub(super) const LIFECYCLE: &str = "node.kubernetes.io/lifecycle";

/// Where the arguments of a plain kubelet are written.
const ARGUMENTS: &str = "/etc/spot-pool/kubelet.env";
/// What makes the kubelet's unit read them. It comes after kubeadm's own, whose files would win otherwise.
const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/90-spot-pool.conf";

/// The user data of a pool's machines.
pub(super) fn of(pool: &Pool) -> String {
    match &pool.user_data {
        UserData::Own(text) => own(text, pool),
        UserData::Kubelet(kubelet) => kubelet.script(pool),
        UserData::Nodeadm(nodeadm) => nodeadm.document(pool),
        UserData::Bottlerocket(bottlerocket) => bottlerocket.settings(pool),
    }
}

/// Every label that a machine's kubelet registers with.
pub(super) fn labels(pool: &Pool) -> BTreeMap<&str, &str> {
    let mut labels: BTreeMap<_, _> = pool.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    labels.extend([(LIFECYCLE, "spot"), (super::tag::POOL, pool.name.as_str())]);
    labels
}

/// The kubelet's value of `--node-labels`.
fn label_argument(pool: &Pool) -> String {
    labels(pool).into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// The kubelet's value of `--register-with-taints`, in an order of its own.
fn taint_argument(pool: &Pool) -> String {
    let written = |taint: &Taint| format!("{}={}:{}", taint.key, taint.value, taint.effect.as_str());
    pool.taints.iter().map(written).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(",")
}

/// The pool's arguments of the kubelet, and then the user's.
fn arguments<'a>(pool: &Pool, more: &'a [String]) -> impl Iterator<Item = String> + use<'a> {
    let labels = format!("--node-labels={}", label_argument(pool));
    let taints = (!pool.taints.is_empty()).then(|| format!("--register-with-taints={}", taint_argument(pool)));
    [labels].into_iter().chain(taints).chain(more.iter().cloned())
}

/// The text with its places filled in; `$${` is a literal `${`. Other places are left as they are: they are the shell's.
fn own(text: &str, pool: &Pool) -> String {
    let places = [
        ("${NODE_LABELS}", label_argument(pool)),
        ("${NODE_TAINTS}", taint_argument(pool)),
        ("${CLUSTER}", pool.cluster.clone()),
        ("${POOL}", pool.name.clone()),
    ];
    let (mut filled, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        filled += before;
        let place = places.iter().find(|(place, _)| from.starts_with(place));
        let (written, read) = match place {
            Some((place, value)) => (value.as_str(), place.len()),
            None if from.starts_with("$${") => ("${", 3),
            None => ("$", 1),
        };
        filled += written;
        rest = &from[read..];
    }
    filled + rest
}

/// Whether an own text holds this place, other than literally.
pub(super) fn holds(text: &str, place: &str) -> bool {
    text.replace("$${", "").contains(place)
}

impl Kubelet {
    /// A script that leaves the arguments where the kubelet's unit, as kubeadm's packages have it, reads them.
    fn script(&self, pool: &Pool) -> String {
        let words: Vec<_> = arguments(pool, &self.arguments).map(|argument| word(&argument)).collect();
        let arguments = format!("KUBELET_EXTRA_ARGS={}", quoted_variable(&words.join(" ")));
        let drop_in = format!("[Service]\nEnvironmentFile={ARGUMENTS}");
        let file = |path: &str, content: &str| {
            let directory = path.rsplit_once('/').map_or(path, |(directory, _)| directory);
            format!("mkdir -p {directory}\nprintf '%s\\n' {} > {path}", quoted_for_shell(content))
        };
        let mut lines = vec!["#!/bin/bash".to_owned(), "set -eu".to_owned()];
        lines.extend([file(ARGUMENTS, &arguments), file(DROP_IN, &drop_in), "systemctl daemon-reload".to_owned()]);
        if !self.before.is_empty() {
            lines.push(self.before.trim_end_matches('\n').to_owned());
        }
        lines.extend(["systemctl enable kubelet".to_owned(), "systemctl restart kubelet\n".to_owned()]);
        lines.join("\n")
    }
}

/// One word of a variable that systemd splits into arguments: quotes are respected, and a backslash means what follows.
/// <https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines>
fn word(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) { argument.to_owned() } else { escaped(argument, "\\\"") }
}

/// The value of a variable in a file of them, where a backslash means one of these characters if one follows.
/// <https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#EnvironmentFile=>
fn quoted_variable(value: &str) -> String {
    escaped(value, "\\\"`$")
}

fn escaped(text: &str, special: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        if special.contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

/// One word of a shell.
fn quoted_for_shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Nodeadm {
    /// A `NodeConfig`. <https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/>
    fn document(&self, pool: &Pool) -> String {
        let cluster = [
            ("name", &pool.cluster),
            ("apiServerEndpoint", &self.api_server),
            ("certificateAuthority", &self.certificate_authority),
            ("cidr", &self.service_cidr),
        ];
        let head = ["---", "apiVersion: node.eks.aws/v1alpha1", "kind: NodeConfig", "spec:", "  cluster:"];
        let mut lines = head.map(str::to_owned).to_vec();
        lines.extend(cluster.map(|(key, value)| format!("    {key}: {}", quoted(value))));
        lines.extend(["  kubelet:", "    flags:"].map(str::to_owned));
        let flags = arguments(pool, &self.kubelet_arguments);
        lines.extend(flags.map(|argument| format!("      - {}", quoted(&argument))));
        lines.join("\n") + "\n"
    }
}

impl Bottlerocket {
    /// Settings. <https://bottlerocket.dev/en/os/latest/api/settings/kubernetes/>
    fn settings(&self, pool: &Pool) -> String {
        let line = |(key, value): (&str, &str)| format!("{key} = {}", quoted(value));
        let mut lines = vec!["[settings.kubernetes]".to_owned()];
        lines.extend([("cluster-name", pool.cluster.as_str()), ("api-server", &self.api_server)].map(line));
        lines.push(line(("cluster-certificate", &self.certificate_authority)));
        if !self.cluster_dns.is_empty() {
            lines.push(line(("cluster-dns-ip", &self.cluster_dns)));
        }
        lines.push("\n[settings.kubernetes.node-labels]".to_owned());
        lines.extend(labels(pool).into_iter().map(|(key, value)| line((&quoted(key), value))));
        let mut taints: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for Taint { key, value, effect, time_added: _ } in &pool.taints {
            taints.entry(key).or_default().insert(quoted(&format!("{value}:{}", effect.as_str())));
        }
        if !taints.is_empty() {
            lines.push("\n[settings.kubernetes.node-taints]".to_owned());
        }
        lines.extend(
            taints.into_iter().map(|(key, values)| {
                format!("{} = [{}]", quoted(key), values.into_iter().collect::<Vec<_>>().join(", "))
            }),
        );
        lines.join("\n") + "\n"
    }
}

/// A string as YAML and TOML read it alike: in double quotes, with the escapes that they share.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        // What is not printable, or breaks a line for one of the two.
        c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') => {
            format!("\\u{:04x}", u32::from(c))
        }
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
