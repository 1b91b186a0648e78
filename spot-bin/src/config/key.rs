//! The keys of the configuration, read off the schema of the file, and the flags and variables named after them.

use std::{collections::BTreeMap, sync::LazyLock};

use clap::{Arg, ArgMatches};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::Value;

use super::{
    file::File,
    lapse,
    problem::{Place, Problem, meant},
    tree::{self, Tree},
};

const VARIABLE_PREFIX: &str = "SPOT_MIGRATOR_";

/// Variables that belong to the command line and not to the configuration: the path of the file itself.
const OTHER_VARIABLES: [&str; 1] = ["SPOT_MIGRATOR_CONFIG"];

const HELP_HEADING: &str = "Configuration (each overrides its variable and the file)";

/// One key that holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// As in `leaderElection.leaseName`.
    pub(crate) path: String,
    pub(crate) kind: Kind,
    /// As it would be written; `null` where there is none.
    pub(crate) default: String,
    /// Whether there is no file without it, or no section.
    pub(crate) is_required: bool,
    pub(crate) summary: String,
}

/// What a key's value looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean,
    Count,
    Duration,
    Text,
    /// One of these words, each with what it means.
    Word(Vec<(String, String)>),
    List,
    Map,
}

/// The JSON Schema of the file, without references, in the draft that Helm and editors understand.
pub(crate) fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Every key of the configuration, in the order of the file.
pub(crate) fn keys() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| keys_of(&File::default()));
    &KEYS
}

/// Every key of a kind of file, in the order in which `example` is written; one that it leaves out comes first.
pub(crate) fn keys_of<T: JsonSchema + Serialize>(example: &T) -> Vec<Key> {
    let mut keys = Vec::new();
    collect(&schema::<T>(), "", &mut keys);
    // The schema sorts by name; people read in the order in which the file is written.
    let order = order_of(example);
    keys.sort_by_key(|key| order.iter().position(|path| *path == key.path));
    keys
}

fn order_of<T: Serialize>(example: &T) -> Vec<String> {
    fn walk(tree: &Tree, prefix: &str, paths: &mut Vec<String>) {
        let tree::Value::Map(entries) = &tree.value else { return };
        for entry in entries {
            let path = format!("{prefix}{}", entry.key);
            walk(&entry.tree, &format!("{path}."), paths);
            paths.push(path);
        }
    }
    let mut paths = Vec::new();
    // The defaults are text, numbers and maps, which serialize and parse without fail; if not, the order is the schema's.
    let defaults = serde_saphyr::to_string(example).unwrap_or_default();
    if let Ok((tree, _)) = Tree::parse(&defaults) {
        walk(&tree, "", &mut paths);
    }
    paths
}

fn collect(section: &Value, prefix: &str, keys: &mut Vec<Key>) {
    let properties = section["properties"].as_object().into_iter().flatten();
    for (name, property) in properties {
        let path = format!("{prefix}{name}");
        if property.get("properties").is_some() {
            collect(property, &format!("{path}."), keys);
        } else {
            let summary = property["description"].as_str().unwrap_or_default().to_owned();
            let (kind, default) = (Kind::of(property), property["default"].to_string());
            let is_required =
                section["required"].as_array().is_some_and(|keys| keys.contains(&Value::from(name.as_str())));
            keys.push(Key { path, kind, default, is_required, summary });
        }
    }
}

impl Kind {
    fn of(property: &Value) -> Self {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(words) = property["oneOf"].as_array() {
            return Self::Word(words.iter().map(|one| (word(&one["const"]), word(&one["description"]))).collect());
        }
        if let Some(words) = property["enum"].as_array() {
            return Self::Word(words.iter().map(|one| (word(one), String::new())).collect());
        }
        match property["type"].as_str() {
            Some("boolean") => Self::Boolean,
            Some("integer") => Self::Count,
            Some("array") => Self::List,
            Some("object") => Self::Map,
            _ if property["pattern"] == lapse::PATTERN => Self::Duration,
            _ => Self::Text,
        }
    }
}

impl Key {
    /// Whether it says which format the file has.
    pub(crate) fn tells_format(&self) -> bool {
        matches!(self.path.as_str(), "apiVersion" | "kind")
    }

    /// Whether one value can be given outside the file; what says which format the file has can't.
    pub(crate) fn is_overridable(&self) -> bool {
        !matches!(self.kind, Kind::List | Kind::Map) && !self.tells_format()
    }

    /// The flag without its dashes: `leader-election-lease-name`.
    pub(crate) fn flag(&self) -> String {
        self.words("-")
    }

    /// The variable: `SPOT_MIGRATOR_LEADER_ELECTION_LEASE_NAME`.
    pub(crate) fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.words("_").to_uppercase())
    }

    fn words(&self, between: &str) -> String {
        let mut words = String::new();
        for c in self.path.chars() {
            match c {
                '.' => words.push_str(between),
                c if c.is_ascii_uppercase() => {
                    words.push_str(between);
                    words.push(c.to_ascii_lowercase());
                }
                c => words.push(c),
            }
        }
        words
    }

    /// The argument's ID, which no field of a derived command can have.
    fn id(&self) -> String {
        format!("configuration:{}", self.path)
    }

    fn argument(&self) -> Arg {
        let argument = Arg::new(self.id()).long(self.flag()).help_heading(HELP_HEADING);
        let default = if self.default == "\"\"" { &self.default } else { self.default.trim_matches('"') };
        let help = format!("{} [default: {default}]", self.summary.trim_end_matches('.'));
        let argument = argument.help(help);
        match &self.kind {
            // `--dry-run` alone says true, and doesn't eat the argument behind it.
            Kind::Boolean => {
                argument.value_name("BOOL").num_args(0..=1).require_equals(true).default_missing_value("true")
            }
            Kind::Count => argument.value_name("N"),
            Kind::Duration => argument.value_name("DURATION"),
            Kind::Word(words) => {
                argument.value_name(words.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join("|"))
            }
            Kind::Text | Kind::List | Kind::Map => argument.value_name("TEXT"),
        }
    }
}

/// The arguments that override keys of the file, under a heading of their own.
#[must_use]
pub fn flags() -> Vec<Arg> {
    keys().iter().filter(|key| key.is_overridable()).map(Key::argument).collect()
}

/// The values of [`flags`] that were given, by the full path of their key.
#[must_use]
pub fn flag_values(matches: &ArgMatches) -> BTreeMap<String, String> {
    let given = keys().iter().filter(|key| key.is_overridable()).filter_map(|key| {
        // An ID that the command does not declare was not given either.
        let value = matches.try_get_one::<String>(&key.id()).ok().flatten()?;
        Some((key.path.clone(), value.clone()))
    });
    given.collect()
}

/// The path of the one key, elsewhere in the file, that ends in `name`.
pub(crate) fn elsewhere(name: &str, keys: &[Key]) -> Option<String> {
    let mut found = keys.iter().filter(|key| !key.tells_format() && key.path.rsplit('.').next() == Some(name));
    match (found.next(), found.next()) {
        (Some(key), None) => Some(key.path.clone()),
        _ => None,
    }
}

/// Plants the variables' and then the flags' values into `tree`.
pub(crate) fn override_keys(
    tree: &mut Tree,
    environment: impl Iterator<Item = (String, String)>,
    flags: &BTreeMap<String, String>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, value) in environment {
        if !name.starts_with(VARIABLE_PREFIX) || OTHER_VARIABLES.contains(&name.as_str()) {
            continue;
        }
        match keys().iter().find(|key| key.variable() == name) {
            Some(key) if key.is_overridable() => plant(tree, key, Place::Variable(name), value),
            Some(key) => problems.push(Problem {
                place: Place::Variable(name),
                key: key.path.clone(),
                message: "this key can be set in the file only: write it there".to_owned(),
            }),
            None if is_service_link(&name) => {}
            None => problems.push(unknown_variable(name)),
        }
    }
    for (path, value) in flags {
        match keys().iter().find(|key| key.path == *path && key.is_overridable()) {
            Some(key) => plant(tree, key, Place::Flag(format!("--{}", key.flag())), value.clone()),
            None => problems.push(Problem {
                place: Place::Flag(path.clone()),
                key: path.clone(),
                message: "no such key: see --help".to_owned(),
            }),
        }
    }
    problems
}

fn plant(tree: &mut Tree, key: &Key, place: Place, value: String) {
    tree.plant(key.path.split('.'), Tree { place, value: tree::Value::Outside(value) });
}

fn unknown_variable(name: String) -> Problem {
    let known: Vec<_> = keys().iter().filter(|key| key.is_overridable()).map(Key::variable).collect();
    let bare = |name: &str| name.strip_prefix(VARIABLE_PREFIX).unwrap_or_default().to_owned();
    let bare_known: Vec<_> = known.iter().map(|name| bare(name)).collect();
    let remedy = match meant(&bare(&name), bare_known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {VARIABLE_PREFIX}{meant}?"),
        None => "unset it, or see the manual for the names".to_owned(),
    };
    Problem { place: Place::Variable(name), key: String::new(), message: format!("names no key: {remedy}") }
}

/// Whether Kubernetes sets a variable of this name for a Service, unless `enableServiceLinks` is off.
fn is_service_link(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT")
        || name.contains("_PORT_")
}
