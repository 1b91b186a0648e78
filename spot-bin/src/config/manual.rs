//! The manual of the keys, in Markdown, and the test that keeps it and the JSON Schema up to date.

use super::file::File;
use super::key::{Key, Kind, keys, schema};

const PREFACE: &str = "\
# Configuration

<!-- Made from the source: `UPDATE=1 cargo test -p spot-bin config` writes this page anew. -->

`spot-migrator run --config FILE` reads one YAML file. Its first two keys are required:

```yaml
apiVersion: spot-migrator.io/v1alpha1
kind: SpotMigratorConfiguration
```

Every other key has a default. The file is read strictly: an unknown, misspelt or duplicate key, a key without a value and \
a value of another type are refused, each with its place and the way to write it, before anything is touched. All \
problems are reported at once; the exit code is 2. [`deploy/config.schema.json`](../deploy/config.schema.json) is the \
JSON Schema for editors and charts.

**Overriding.** Each key that holds one value can also be given as a variable and as a flag, named by its full path: \
`drain.timeout` is `SPOT_MIGRATOR_DRAIN_TIMEOUT` and `--drain-timeout`, `selection.nodesAtOnce` is \
`SPOT_MIGRATOR_SELECTION_NODES_AT_ONCE` and `--selection-nodes-at-once`. A flag wins over a variable, a variable over the \
file, the file over the default. A `SPOT_MIGRATOR_` variable that names no key is refused, but for those that Kubernetes \
sets for a Service (`…_SERVICE_HOST`, `…_SERVICE_PORT`, `…_PORT`, `…_PORT_8080_TCP` and so on). Lists and maps are set in \
the file only.

**Changes while it runs.** `run` looks at the file every few seconds, and at once on SIGHUP; a mounted ConfigMap is followed. \
A change that is right as a whole counts from the next run on, `schedule`, `log.level`, `notifications` and `prices` at \
once, and is logged with its keys; a run under way ends as it began. A change that is wrong, or touches a key that needs another process, is refused as \
a whole and logged, and what was in force stays. Those keys are `cloudProvider`, `dryRun`, `interruption`, \
`leaderElection`, `loadBalancer`, `log.format`, `selection.capacityLabels`, `selection.unlabelledNodes`, `server`, \
`shutdown` and `state`. Answers to interruptions keep `backOff`, `drain`, `nodeGone` and `settle` as they were when the \
process began to lead. Files that the configuration names are looked at with it; the URL of a webhook is read before each \
message. Variables and flags go on to win. `--once` reads everything once, and SIGHUP ends it as SIGTERM does.

**Durations** are whole numbers with their units, the larger first: `250ms`, `60s`, `25m`, `1h30m`.
";

/// The whole page.
fn page() -> String {
    format!("{PREFACE}{}{WINDOWS}", tables(keys()))
}

/// A table for each section, and one for what is in none.
pub(crate) fn tables(keys: &[Key]) -> String {
    let mut sections: Vec<(&str, String)> = Vec::new();
    for key in keys.iter().filter(|key| !key.tells_format()) {
        let own = key.path.split_once('.').map_or("", |(section, _)| section);
        let at = sections.iter().position(|(section, _)| *section == own).unwrap_or_else(|| {
            let title = if own.is_empty() { "Top level".to_owned() } else { format!("`{own}`") };
            let head = format!("\n## {title}\n\n| key | type | default | meaning |\n|---|---|---|---|\n");
            sections.push((own, head));
            sections.len() - 1
        });
        let default = match &*key.default {
            _ if key.is_required => "required".to_owned(),
            "null" => "none".to_owned(),
            default => format!("`{default}`"),
        };
        let row = format!("| `{}` | {} | {default} | {} |\n", key.path, kind(key), meaning(key));
        sections[at].1.push_str(&row);
    }
    sections.into_iter().map(|(_, table)| table).collect()
}

const WINDOWS: &str = r#"
## One of `windows`

```yaml
windows:
- days: [mon, tue, wed, thu]   # on which it opens; left out: every day
  start: "22:00"               # in quotes: time of day, required
  duration: 6h                 # required, at most 24h
  timeZone: Europe/London      # left out: the top-level one
```

A node is begun only inside a window. One that is begun is finished, if need be after the window has closed.
"#;

fn kind(key: &Key) -> &'static str {
    match key.kind {
        Kind::Boolean => "true or false",
        Kind::Count => "number",
        Kind::Duration => "duration",
        Kind::Text => "text",
        Kind::Word(_) => "word",
        Kind::List => "list",
        Kind::Map => "map",
    }
}

fn meaning(key: &Key) -> String {
    let mut text = key.summary.replace('\n', " ");
    if let Kind::Word(words) = &key.kind {
        let explained = words.iter().map(|(word, meaning)| match meaning.trim_end_matches('.').split_at_checked(1) {
            None => format!("`{word}`"),
            Some((first, rest)) => format!("`{word}`: {}{rest}", first.to_lowercase()),
        });
        text.push(' ');
        text.push_str(&explained.collect::<Vec<_>>().join("; "));
        text.push('.');
    }
    text.replace('|', r"\|")
}

/// Compares a file of the repository with what the source makes of it, or writes it anew where `UPDATE` is set.
pub(crate) fn assert_up_to_date(path: &str, made: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    #[expect(clippy::disallowed_methods, reason = "the person who runs the test says so, not the code under test")]
    let update = std::env::var_os("UPDATE").is_some();
    if update {
        std::fs::write(&path, made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{} is out of date: run the tests of spot-bin with UPDATE=1", path.display());
}

#[test]
fn the_schema_is_up_to_date() {
    assert_up_to_date("deploy/config.schema.json", &format!("{:#}\n", schema::<File>()));
}

#[test]
fn the_manual_is_up_to_date() {
    assert_up_to_date("docs/configuration.md", &page());
}
