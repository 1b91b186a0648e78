//! Pages that are made from the code, what is shipped for Prometheus and Grafana, and the runbook: held to the code.
#![cfg(feature = "aws")]
#![expect(clippy::expect_used, clippy::panic, reason = "what fails in a test ends it")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use spot_bin::metrics::Metrics;
use spot_core::reason::ReasonKind;
use spot_kube::EventReason;

/// A metric, as Prometheus reads it.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is a folder of the workspace").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fails the test unless the page is as it would be made now; with `UPDATE=1` it is made.
fn assert_up_to_date(path: &str, made: &str) {
    #[expect(clippy::disallowed_methods, reason = "how the person at the keyboard asks for new pages")]
    let update = std::env::var_os("UPDATE").is_some();
    if update {
        std::fs::write(file(path), made).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    assert!(
        read(path) == made,
        "{path} is not as the code has it: UPDATE=1 cargo test -p spot-bin --features aws manual"
    );
}

/// The metrics of the process, by name.
fn metrics() -> BTreeMap<String, Metric> {
    let text = Metrics::new().and_then(|metrics| metrics.text()).expect("names are distinct");
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
            help.clone_into(&mut metrics.entry(name.to_owned()).or_default().help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            kind.clone_into(&mut metrics.entry(name.to_owned()).or_default().kind);
        } else if let Some((series, labels)) = line.split_once('{') {
            let name = name_of(series);
            let labels = labels.rsplit_once('}').expect("a series has its labels between braces").0;
            for (label, value) in labels.split("\",").filter_map(|label| label.split_once("=\"")) {
                let metric = metrics.get_mut(name).unwrap_or_else(|| panic!("{line} has no type"));
                let value = value.trim_end_matches('"').to_owned();
                let _new = metric.labels.entry(label.to_owned()).or_default().insert(value);
            }
        }
    }
    metrics
}

/// The name of the metric that a series belongs to.
fn name_of(series: &str) -> &str {
    let of_histogram = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| series.strip_suffix(end));
    of_histogram.filter(|name| name.ends_with("_seconds")).unwrap_or(series)
}

#[test]
fn the_page_of_metrics_is_made_from_the_registry() {
    let mut page = METRICS.to_owned();
    for (name, Metric { kind, help, labels }) in metrics() {
        let _written = write!(page, "\n## `{name}`\n\n{kind}. {help}\n");
        for (label, values) in labels.iter().filter(|(label, _)| !["le", "version"].contains(&label.as_str())) {
            let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
            let _written = write!(page, "\n- `{label}`: {}\n", values.join(", "));
        }
    }
    assert_up_to_date("docs/metrics.md", &page);
}

const METRICS: &str = "\
# Metrics

<!-- Made from the source: `UPDATE=1 cargo test -p spot-bin --features aws manual` writes this page anew. -->

`spot-migrator run` and `spot-agent` serve these at `/metrics` (`server.address`, `--server-address`). Every series is \
there from the start, at 0, and labels come from closed lists, so an alert never misses a series that has not begun, and \
no name of a node or pod makes a new one. Counters of a process that does not lead stay at 0: sum over them.

[`deploy/monitoring`](../deploy/monitoring) has alerts and a dashboard on them; the [runbook](runbook.md) says what to do.
";

#[test]
fn the_page_of_events_is_made_from_the_list_of_reasons() {
    let mut page = EVENTS.to_owned();
    for reason in EventReason::ALL {
        let (word, about, kind, meaning) = (reason.as_str(), reason.about(), reason.kind(), reason.meaning());
        let _written = writeln!(page, "| `{word}` | {about} | {kind} | {meaning} |");
    }
    assert_up_to_date("docs/events.md", &page);
}

const EVENTS: &str = "\
# Events

<!-- Made from the source: `UPDATE=1 cargo test -p spot-bin --features aws manual` writes this page anew. -->

What is done to nodes and pods is told by Kubernetes Events of the controller `spot-migrator.io/spot-migrator`:

```sh
kubectl get events -A --field-selector reportingComponent=spot-migrator.io/spot-migrator
kubectl describe node NAME
```

Events about nodes are in the namespace `default`, as those of the kubelet are. They are a help, no record: too many at \
once are dropped and counted in the log.

| reason | about | type | what happened |
|---|---|---|---|
";

/// Every name in an expression that is one of ours.
fn named(expression: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == ':';
    let words = expression.split(|character| !is_part(character));
    words
        .filter(|word| word.starts_with("spot_migrator_") || word.starts_with("cost_manager_"))
        .map(str::to_owned)
        .collect()
}

fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read("deploy/monitoring/alerts.yaml")).expect("it is YAML");
    let groups = rules["groups"].as_array().expect("there are groups");
    groups.iter().flat_map(|group| group["rules"].as_array().expect("a group has rules")).cloned().collect()
}

#[test]
fn every_alert_asks_for_what_there_is_and_has_its_section_in_the_runbook() {
    let (metrics, runbook) = (metrics(), read("docs/runbook.md"));
    let alerts = alerts();
    assert!(alerts.len() > 10, "{alerts:#?}");
    for alert in &alerts {
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{alert}")).to_owned();
        let name = text(&alert["alert"]);
        let names = named(&text(&alert["expr"]));
        assert!(!names.is_empty(), "{name}");
        for metric in names {
            assert!(metrics.contains_key(name_of(&metric)), "{name}: there is no {metric}");
        }
        let url = text(&alert["annotations"]["runbook_url"]);
        assert!(url.ends_with(&format!("/docs/runbook.md#{}", name.to_lowercase())), "{url}");
        assert!(runbook.lines().any(|line| line == format!("### {name}")), "the runbook has no section {name}");
        for annotation in ["summary", "description"] {
            assert!(text(&alert["annotations"][annotation]).ends_with(['.', '?']), "{name}: {annotation}");
        }
        assert!(["critical", "warning", "info"].contains(&text(&alert["labels"]["severity"]).as_str()), "{name}");
    }
}

/// What expressions of alerts and dashboard compare labels with.
#[test]
fn labels_that_are_asked_for_have_the_values_that_are_asked_for() {
    let metrics = metrics();
    let known = |label: &str, value: &str| {
        let values = metrics.values().filter_map(|metric| metric.labels.get(label));
        values.into_iter().any(|values| values.contains(value))
    };
    let mut expressions: Vec<String> =
        alerts().iter().filter_map(|alert| alert["expr"].as_str().map(str::to_owned)).collect();
    expressions.extend(queries());
    for expression in expressions {
        for part in expression.split('"').collect::<Vec<_>>().windows(2).step_by(2) {
            let [before, value] = part else { continue };
            let label = before.trim_end_matches(['=', '!', '~']);
            let start = label.rfind(|character: char| !character.is_ascii_alphanumeric() && character != '_');
            let label = &label[start.map_or(0, |at| at + 1)..];
            if value.starts_with('$') {
                continue;
            }
            for value in value.split('|') {
                assert!(known(label, value), "{expression}: no {label} is {value}");
            }
        }
    }
}

/// The queries of the dashboard's panels.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("there are panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets.map(|target| target["expr"].as_str().unwrap_or_else(|| panic!("{target}")).to_owned()).collect()
}

#[test]
fn the_dashboard_shows_every_metric_of_ours_and_no_other() {
    let metrics = metrics();
    let shown: BTreeSet<_> = queries().iter().flat_map(|query| named(query)).collect();
    for metric in &shown {
        assert!(metrics.contains_key(name_of(metric)), "there is no {metric}");
    }
    let shown: BTreeSet<_> = shown.iter().map(|metric| name_of(metric)).collect();
    // The second names are for the alerts of those who come from cost-manager.
    let ours = metrics.keys().map(String::as_str).filter(|name| name.starts_with("spot_migrator_"));
    let missing: Vec<_> = ours.filter(|name| !shown.contains(name)).collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
}

#[test]
fn panels_have_distinct_ids_a_title_and_a_unit_and_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("there are panels");
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("it has an ID")), "{panel}");
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()), "{panel}");
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap_or_else(|| panic!("{panel}"));
        assert!(at("x") + at("w") <= 24, "{panel}");
        for cell in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{} lies over another panel", panel["title"]);
        }
        if panel["type"] != "row" {
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{} has no unit", panel["title"]);
        }
    }
}

#[test]
fn the_runbook_has_a_section_for_every_reason_with_its_remedy() {
    let runbook = read("docs/runbook.md");
    let sections: BTreeMap<_, _> =
        runbook.split("\n### ").skip(1).map(|section| section.split_once('\n').unwrap_or((section, ""))).collect();
    for kind in ReasonKind::ALL {
        let section = sections.get(kind.as_str()).unwrap_or_else(|| panic!("the runbook has no section {kind}"));
        let remedy = kind.remedy();
        let first = remedy.chars().next().expect("there is a remedy").to_uppercase();
        let sentence = format!("{first}{}", &remedy[1..]);
        assert!(section.contains(&sentence), "the section {kind} does not say: {sentence}");
    }
}
