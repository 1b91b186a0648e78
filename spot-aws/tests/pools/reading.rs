//! What a machine's kubelet makes of its user data, read by the rules of those who read it there.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What a kubelet registers its Node with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) labels: BTreeMap<String, String>,
    /// As in `key=value:effect`.
    pub(crate) taints: BTreeSet<String>,
    /// The arguments that say something else.
    pub(crate) others: Vec<String>,
}

/// Of the arguments of a kubelet.
fn registration(arguments: Vec<String>) -> Registration {
    let mut found = Registration::default();
    for argument in arguments {
        if let Some(labels) = argument.strip_prefix("--node-labels=") {
            let pairs = labels.split(',').map(|label| label.split_once('=').unwrap());
            found.labels = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        } else if let Some(taints) = argument.strip_prefix("--register-with-taints=") {
            found.taints = taints.split(',').map(str::to_owned).collect();
        } else {
            found.others.push(argument);
        }
    }
    found
}

/// Of a script, run by a real shell; what it would write and start goes to standard output and nowhere.
pub(crate) fn of_script(script: &str) -> Registration {
    let env = "/etc/spot-pool/kubelet.env";
    let drop_in = "/etc/systemd/system/kubelet.service.d/90-spot-pool.conf";
    assert!(script.contains(env) && script.contains(drop_in), "{script}");
    let script = script.replace(&format!(" > {env}\n"), "\n").replace(&format!(" > {drop_in}\n"), "\n");
    let harmless = format!("mkdir() {{ :; }}\nsystemctl() {{ printf 'systemctl %s\\n' \"$*\"; }}\n{script}");
    let run = Command::new("bash").args(["-c", &harmless]).env_clear().output().unwrap();
    assert!(run.status.success() && run.stderr.is_empty(), "{run:?}\n{script}");
    let written = String::from_utf8(run.stdout).unwrap();
    let commands = "systemctl daemon-reload\nsystemctl enable kubelet\nsystemctl restart kubelet\n";
    let tail = format!("[Service]\nEnvironmentFile={env}\n{commands}");
    let variables = written.strip_suffix(&tail).unwrap_or_else(|| panic!("{written}"));
    let value = variables.strip_prefix("KUBELET_EXTRA_ARGS=\"").and_then(|value| value.strip_suffix("\"\n"));
    registration(words(&variable(value.unwrap_or_else(|| panic!("{variables}")))))
}

/// As systemd reads a value between double quotes in a file of variables.
fn variable(quoted: &str) -> String {
    let (mut value, mut rest) = (String::new(), quoted.chars());
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next().unwrap() {
                '\n' => {}
                c @ ('"' | '\\' | '`' | '$') => value.push(c),
                c => value.extend(['\\', c]),
            },
            '"' => panic!("the quotes end within {quoted}"),
            c => value.push(c),
        }
    }
    value
}

/// As systemd splits a variable that is a word of its own of a command.
fn words(value: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut rest) = (Vec::new(), None::<String>, None, value.chars());
    while let Some(c) = rest.next() {
        match (c, quote) {
            ('\\', _) => word.get_or_insert_default().push(rest.next().unwrap()),
            (c, Some(end)) if c == end => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ' | '\t' | '\n' | '\r', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    assert_eq!(quote, None, "{value}");
    words.extend(word);
    words
}

/// Of a `NodeConfig`, by a YAML parser.
pub(crate) fn of_node_config(document: &str) -> (Registration, serde_json::Value) {
    let mut config: serde_json::Value = serde_saphyr::from_str(document).unwrap_or_else(|e| panic!("{e}\n{document}"));
    assert_eq!((&config["apiVersion"], &config["kind"]), (&"node.eks.aws/v1alpha1".into(), &"NodeConfig".into()));
    let flags = config["spec"]["kubelet"]["flags"].as_array().unwrap();
    let flags = flags.iter().map(|flag| flag.as_str().unwrap().to_owned()).collect();
    (registration(flags), config["spec"]["cluster"].take())
}

/// Of Bottlerocket's settings.
pub(crate) fn of_settings(settings: &str) -> (Registration, BTreeMap<String, String>) {
    let (mut found, mut cluster, mut section) = (Registration::default(), BTreeMap::new(), "");
    for line in settings.lines().filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
            continue;
        }
        let (key, rest) = if line.starts_with('"') {
            string(line)
        } else {
            let (key, rest) = line.split_once(' ').unwrap();
            assert!(key.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{line}");
            (key.to_owned(), format!(" {rest}"))
        };
        let rest = rest.strip_prefix(" = ").unwrap_or_else(|| panic!("{line}"));
        match section {
            "settings.kubernetes" => assert_eq!(cluster.insert(key, one(rest)), None, "{line}"),
            "settings.kubernetes.node-labels" => assert_eq!(found.labels.insert(key, one(rest)), None, "{line}"),
            "settings.kubernetes.node-taints" => {
                let mut rest = rest.strip_prefix('[').unwrap().to_owned();
                while rest != "]" {
                    let (value, after) = string(rest.trim_start_matches(", "));
                    assert!(found.taints.insert(format!("{key}={value}")), "{line}");
                    rest = after;
                }
            }
            other => panic!("no section of the kubelet: {other}"),
        }
    }
    (found, cluster)
}

fn one(text: &str) -> String {
    let (value, rest) = string(text);
    assert_eq!(rest, "", "{text}");
    value
}

/// A basic string of TOML, and what follows it. <https://toml.io/en/v1.0.0#string>
fn string(text: &str) -> (String, String) {
    let mut rest = text.strip_prefix('"').unwrap().chars();
    let mut value = String::new();
    loop {
        match rest.next().unwrap() {
            '"' => return (value, rest.collect()),
            '\\' => match rest.next().unwrap() {
                'n' => value.push('\n'),
                'u' => {
                    let digits: String = rest.by_ref().take(4).collect();
                    value.push(char::from_u32(u32::from_str_radix(&digits, 16).unwrap()).unwrap());
                }
                c @ ('"' | '\\') => value.push(c),
                c => panic!("no escape of TOML, or none that is used: {c:?} in {text}"),
            },
            c => {
                assert!(!c.is_ascii_control(), "TOML does not take {c:?}");
                value.push(c);
            }
        }
    }
}
