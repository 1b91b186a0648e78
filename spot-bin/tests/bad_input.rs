//! Every key of the configuration, wrong in every way that a person or a machine may get it wrong: refused with its
//! place, what is wrong and the remedy, and nothing else happens.

#![expect(clippy::expect_used, clippy::panic, reason = "what fails in a test ends it")]

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output, Stdio};

use rstest::rstest;
use serde_json::{Map, Value, json};
use spot_bin::config::Config;

const HEADER: [(&str, &str); 2] = [("apiVersion", "spot-migrator.io/v1alpha1"), ("kind", "SpotMigratorConfiguration")];

/// The whole file with all its defaults, which is right.
fn right() -> Value {
    let keys = BTreeMap::from([("cloudProvider.name".to_owned(), "node-object".to_owned())]);
    let config = Config::load(None, [], &keys).expect("the defaults are right");
    serde_json::from_str(&config.to_json()).expect("it is JSON")
}

/// A file, with a line for each key at the top so that places tell them apart.
fn written(file: &Value) -> String {
    let object = file.as_object().expect("it is a map");
    object.iter().fold(String::new(), |text, (key, value)| text + &format!("{key}: {value}\n"))
}

fn load(text: &str) -> Result<Config, String> {
    Config::load(Some(("spot.yaml", text)), [], &BTreeMap::new()).map_err(|error| error.to_string())
}

/// The paths of all keys that hold no map, with their values.
fn leaves(value: &Value, path: &[String], found: &mut Vec<(Vec<String>, Value)>) {
    let Value::Object(object) = value else {
        found.push((path.to_vec(), value.clone()));
        return;
    };
    if object.is_empty() {
        found.push((path.to_vec(), value.clone()));
    }
    for (key, value) in object {
        leaves(value, &[path, std::slice::from_ref(key)].concat(), found);
    }
}

fn keys() -> Vec<(Vec<String>, Value)> {
    let mut found = Vec::new();
    leaves(&right(), &[], &mut found);
    found.retain(|(path, _)| HEADER.iter().all(|(key, _)| path[0] != *key));
    assert!(found.len() > 40, "{}", found.len());
    found
}

/// The file with another value at a path, or none.
fn with(path: &[String], value: Option<Value>) -> Value {
    let mut file = right();
    let (last, above) = path.split_last().expect("a path has a key");
    let parent = above.iter().fold(&mut file, |value, key| &mut value[key]);
    let parent: &mut Map<String, Value> = parent.as_object_mut().expect("it is a map");
    match value {
        Some(value) => drop(parent.insert(last.clone(), value)),
        None => drop(parent.remove(last)),
    }
    file
}

/// Fails the test unless the file is refused, by a message that names the file's line and all of these words.
fn assert_refused(text: &str, words: &[&str]) {
    let Err(said) = load(text) else { panic!("it is taken: {text}") };
    let has_place = said.contains("spot.yaml:");
    assert!(has_place, "no place in {said}\n{text}");
    for word in words {
        assert!(said.contains(word), "{word} is not named in {said}\n{text}");
    }
}

#[test]
fn the_file_that_is_written_down_is_taken() {
    load(&written(&right())).expect("it is right");
}

#[test]
fn a_value_of_another_type_is_refused_by_its_key() {
    for (path, value) in keys() {
        let name = path.join(".");
        let wrong: Vec<Value> = match &value {
            Value::Bool(_) => vec![json!("yes"), json!(1), json!([true]), json!({"a": true})],
            Value::Number(_) => vec![json!("many"), json!(1.5), json!(-1), json!([1]), json!({"a": 1}), json!(true)],
            Value::String(_) => vec![json!(["a"]), json!({"a": "b"})],
            Value::Array(_) => vec![json!("a"), json!(1), json!({"a": "b"}), json!(true), json!([[]])],
            Value::Object(_) => vec![json!("a"), json!(1), json!(["a"]), json!(true)],
            Value::Null => panic!("{name} has no value"),
        };
        for value in wrong.into_iter().chain([Value::Null]) {
            assert_refused(&written(&with(&path, Some(value))), &[&name]);
        }
    }
}

#[test]
fn a_number_out_of_its_range_is_refused() {
    for (path, value) in keys().into_iter().filter(|(_, value)| value.is_number()) {
        for wrong in [json!(-1), json!(1_u64 << 40), json!(1e300)] {
            assert_refused(&written(&with(&path, Some(wrong))), &[&path.join(".")]);
        }
        load(&written(&with(&path, Some(value)))).expect("it is right");
    }
}

#[test]
fn a_duration_is_refused_without_a_unit_with_another_one_negative_or_endless() {
    let is_duration = |value: &Value| value.as_str().is_some_and(|text| humantime::parse_duration(text).is_ok());
    let durations: Vec<_> = keys().into_iter().filter(|(_, value)| is_duration(value)).collect();
    assert!(durations.len() > 15, "{durations:?}");
    for (path, _) in durations {
        for wrong in
            ["10", "10 minutes", "-5m", "5 m", "m", "1h30", "99999999999999999999s", "1.5h", "ten", "１m", "5M"]
        {
            assert_refused(&written(&with(&path, Some(json!(wrong)))), &[&path.join(".")]);
        }
    }
}

#[test]
fn a_word_that_is_nearly_right_is_refused_with_what_there_is() {
    for (path, wrong, right) in [
        ("cloudProvider.name", "node_object", "node-object"),
        ("cloudProvider.name", "AWS", "aws"),
        ("cloudProvider.aws.identity", "names", "name"),
        ("selection.unlabelledNodes", "ondemand", "on-demand"),
        ("selection.provisionedNodes", "migrated", "migrate"),
        ("interruption.rebalanceRecommendation", "tainted", "taint"),
        ("log.level", "warning", "warn"),
        ("log.format", "JSON", "json"),
        ("timeZone", "Europe/Berln", "Europe/Berlin"),
    ] {
        let path: Vec<_> = path.split('.').map(str::to_owned).collect();
        assert_refused(&written(&with(&path, Some(json!(wrong)))), &[&path.join("."), right]);
    }
}

#[test]
fn a_key_that_is_nearly_right_is_refused_with_the_right_one() {
    for (path, value) in keys() {
        let (last, above) = path.split_last().expect("a path has a key");
        let mut letters: Vec<char> = last.chars().collect();
        // Two letters that change places; where they are the same, one is left out.
        let middle = letters.len() / 2;
        if letters[middle] == letters[middle - 1] {
            let _left_out = letters.remove(middle);
        } else {
            letters.swap(middle, middle - 1);
        }
        let misspelt: String = letters.into_iter().collect();
        let mut file = with(&path, None);
        let parent = above.iter().fold(&mut file, |value, key| &mut value[key]);
        parent[&misspelt] = value;
        assert_refused(&written(&file), &[&misspelt, last]);
    }
}

#[test]
fn a_key_that_is_there_twice_is_refused() {
    for (path, _) in keys() {
        let mut text = written(&right());
        let (top, rest) = path.split_first().expect("a path has a key");
        match rest {
            [] => text.extend([top, ": ", &right()[top].to_string(), "\n"]),
            [key, ..] => {
                let value = right()[top].clone();
                let twice = format!("{top}: {{{}, \"{key}\": {}}}", inside(&value), value[key]);
                let lines = text.lines().map(|line| if line.starts_with(&format!("{top}: ")) { &twice } else { line });
                text = lines.collect::<Vec<_>>().join("\n");
            }
        }
        assert_refused(&text, &[rest.first().unwrap_or(top)]);
    }
}

/// What is between the braces of a map.
fn inside(value: &Value) -> String {
    let text = value.to_string();
    text.trim_start_matches('{').strip_suffix('}').expect("it is a map").to_owned()
}

#[test]
fn the_keys_that_tell_the_format_are_required_and_have_one_value() {
    for (key, value) in HEADER {
        let path = [key.to_owned()];
        assert_refused(&written(&with(&path, None)), &[key, value]);
        assert_refused(&written(&with(&path, Some(json!("v2")))), &[key, value]);
    }
}

/// The program with a configuration at a path in a folder of its own.
fn run(make: impl FnOnce(&std::path::Path)) -> Output {
    let folder = tempfile::tempdir().expect("a folder can be made");
    make(&folder.path().join("spot.yaml"));
    Command::new(env!("CARGO_BIN_EXE_spot-migrator"))
        .args(["run", "--config", "spot.yaml"])
        .env_clear()
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

#[rstest]
#[case::empty(b"", &["apiVersion"])]
#[case::only_a_comment(b"# nothing\n", &["apiVersion"])]
#[case::tabs(b"apiVersion: spot-migrator.io/v1alpha1\nkind: SpotMigratorConfiguration\ndrain:\n\ttimeout: 1h\n", &["spot.yaml:4", "tab"])]
#[case::not_utf8(b"apiVersion: spot-migrator.io/v1alpha1\nkind: \xff\xfe\n", &["line 2", "UTF-8"])]
#[case::another_encoding(b"\xff\xfea\x00p\x00i\x00", &["UTF-16", "utf8"])]
#[case::a_list(b"- apiVersion: spot-migrator.io/v1alpha1\n", &["spot.yaml:1"])]
#[case::a_text(b"hello\n", &["spot.yaml:1"])]
#[case::two_documents(b"apiVersion: spot-migrator.io/v1alpha1\nkind: SpotMigratorConfiguration\n---\ndryRun: true\n", &["spot.yaml:"])]
#[case::unclosed(b"apiVersion: spot-migrator.io/v1alpha1\ndrain: {timeout: 1h\n", &["spot.yaml:"])]
#[case::a_null_byte(b"apiVersion: spot-migrator.io/v1alpha1\nkind: \0\n", &["spot.yaml:"])]
fn what_is_no_configuration_at_all_is_refused(#[case] content: &[u8], #[case] named: &[&str]) {
    let output = run(|path| fs::write(path, content).expect("it is writable"));
    assert_usage(&output, named);
}

#[test]
fn a_folder_a_missing_file_and_a_huge_one_are_refused() {
    assert_usage(
        &run(|path| fs::create_dir(path).expect("it can be made")),
        &["spot.yaml", "it is a folder", "--config"],
    );
    assert_usage(&run(|_| {}), &["spot.yaml", "--config"]);
    // A hole of 100 MB, of which not all is read.
    let huge = |path: &std::path::Path| {
        let file = fs::File::create(path).expect("it can be made");
        file.set_len(100_000_000).expect("it may be large");
    };
    assert_usage(&run(huge), &["spot.yaml", "larger than 1 MiB"]);
}

fn assert_usage(output: &Output, named: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: ") && output.stdout.is_empty(), "{said}");
    for word in named {
        assert!(said.contains(word), "{word} is not named in\n{said}");
    }
}
