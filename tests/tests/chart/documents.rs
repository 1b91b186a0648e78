//! The chart's page says of every value what it is, and what it is by default.

use std::{
    fmt::Write as _,
    process::{Command, Stdio},
};

use serde_json::Value;
use spot_tests::programs;

use crate::{assert_up_to_date, file, read, rendered, yaml};

/// A value: its place, and what the file says of it.
struct Entry {
    path: Vec<String>,
    text: String,
}

/// The keys of `values.yaml` with the comment above them.
fn entries(text: &str) -> Vec<Entry> {
    let (mut entries, mut path, mut comment) = (Vec::new(), Vec::<String>::new(), Option::<String>::None);
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(begun) = trimmed.strip_prefix("# -- ") {
            comment = Some(begun.to_owned());
        } else if let (Some(so_far), Some(more)) = (&mut comment, trimmed.strip_prefix("# ")) {
            so_far.push(' ');
            so_far.push_str(more);
        } else if let Some((key, _)) = trimmed.split_once(':').filter(|_| !trimmed.starts_with(['#', '-'])) {
            path.truncate((line.len() - trimmed.len()) / 2);
            path.push(key.to_owned());
            if let Some(text) = comment.take() {
                entries.push(Entry { path: path.clone(), text });
            }
        }
    }
    entries
}

/// The places of all values that no described one holds.
fn undescribed(value: &Value, at: &[String], entries: &[Entry]) -> Vec<String> {
    if entries.iter().any(|entry| entry.path == at) {
        return Vec::new();
    }
    let Some(object) = value.as_object().filter(|object| !object.is_empty()) else { return vec![at.join(".")] };
    object
        .iter()
        .flat_map(|(key, value)| undescribed(value, &[at, std::slice::from_ref(key)].concat(), entries))
        .collect()
}

fn table(entries: &[Entry], values: &Value) -> String {
    let mut table = "| value | default | what it is |\n|---|---|---|\n".to_owned();
    for Entry { path, text } in entries {
        let value = path.iter().fold(values, |value, key| &value[key.as_str()]);
        let cell = text.replace('|', r"\|");
        // Writing into a String has no way to fail.
        let _written = writeln!(table, "| `{}` | `{value}` | {cell} |", path.join("."));
    }
    table
}

#[test]
fn the_page_of_the_chart_has_every_value_with_its_default() {
    let values = &yaml("deploy/chart/values.yaml")[0];
    let entries = entries(&read("deploy/chart/values.yaml"));
    assert_eq!(undescribed(values, &[], &entries), Vec::<String>::new(), "values without a word on them");

    let page = read("deploy/chart/README.md");
    let (begin, end) = ("<!-- values -->\n", "<!-- end of values -->");
    let (before, rest) = page.split_once(begin).expect("the page has a place for the table");
    let (_, after) = rest.split_once(end).expect("the place has an end");
    let made = format!("{before}{begin}{}{end}{after}", table(&entries, values));
    assert_up_to_date(&file("deploy/chart/README.md"), &made);
}

#[test]
fn the_schema_and_the_defaults_know_the_same_values() {
    let schema: Value = serde_json::from_str(&read("deploy/chart/values.schema.json")).expect("it is JSON");
    let values = &yaml("deploy/chart/values.yaml")[0];
    let names = |value: &Value| value.as_object().into_iter().flat_map(|object| object.keys().cloned()).collect();
    let mut known: Vec<String> = names(&schema["properties"]);
    // What a chart that depends on this one brings.
    known.retain(|name| !["enabled", "global"].contains(&name.as_str()));
    let mut given: Vec<String> = names(values);
    given.sort();
    known.sort();
    assert_eq!(known, given);
    // The configuration's own keys have their defaults in the program.
    for name in given.iter().filter(|name| *name != "config") {
        let (schema, value) = (&schema["properties"][name], &values[name]);
        if let Some(properties) = schema["properties"].as_object() {
            let keys: Vec<_> = value.as_object().into_iter().flat_map(|object| object.keys()).collect();
            let mut known: Vec<_> = properties.keys().collect();
            known.sort();
            let mut given = keys;
            given.sort();
            assert_eq!(known, given, "{name}");
        }
    }
}

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = read("deploy/chart/README.md");
    let begin = format!("```{language}\n");
    let blocks = page.split(begin.as_str()).skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

#[test]
fn every_installation_on_the_page_is_one() {
    let home = tempfile::tempdir().expect("temporary folders can be made");
    let mut installed = 0;
    for block in blocks("sh") {
        let block = block.replace("\\\n", " ");
        for command in block.lines().filter(|line| line.starts_with("helm install")) {
            let command = command.replacen("helm", "\"$HELM\"", 1) + " --dry-run=client";
            let output = Command::new("sh")
                .args(["-c", &command])
                .current_dir(programs::repository())
                .env_clear()
                .env("HELM", programs::path("helm"))
                .env("HOME", home.path())
                .stdin(Stdio::null())
                .output()
                .expect("there is a shell");
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            let named = printed.contains("eks.amazonaws.com/role-arn: arn:aws:iam::111122223333:role/spot-migrator");
            assert_eq!(named, command.contains("role-arn"), "{command}: {printed}");
            installed += 1;
        }
    }
    assert_eq!(installed, 3, "for kind, Karpenter and EKS");
}

#[test]
fn the_values_on_the_page_are_some() {
    let [values] = &blocks("yaml")[..] else { panic!("one block") };
    let values: Value = serde_saphyr::from_str(values).expect("it is YAML");
    let printed = rendered(&values).expect("they are enough");
    assert!(printed.contains("kind: PrometheusRule") && printed.contains("secretName: \"spot-webhook\""), "{printed}");
}
