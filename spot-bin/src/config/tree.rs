//! A YAML document as a tree in which every value knows its place.
//!
//! Values of variables and flags are planted into the tree of the file before it is read, so that one reader serves all
//! sources and each problem names the place where the value was written.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::{Spanned, options::DuplicateKeyPolicy};

use super::problem::{Place, Problem};

/// How deep a file may go, of which the deepest key is four deep: each level takes some of the stack.
const DEPTH: usize = 16;

/// A value and its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tree {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// What a value is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Value {
    #[default]
    Null,
    Bool(bool),
    Natural(u64),
    Negative(i64),
    Fraction(f64),
    Text(String),
    /// Text from outside the file, whose key says how it is read.
    Outside(String),
    /// Items keep the index that they were written at when one before them is taken out.
    List(Vec<(usize, Tree)>),
    Map(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) place: Place,
    pub(crate) tree: Tree,
}

/// One step down the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl Tree {
    /// Parses a document; a key that is written twice counts the first time, and is a problem each further time.
    pub(crate) fn parse(text: &str) -> Result<(Self, Vec<Problem>), Problem> {
        let options = serde_saphyr::options! {
            duplicate_keys: DuplicateKeyPolicy::PassThrough,
            strict_booleans: true,
            with_snippet: false,
            budget: serde_saphyr::budget! { max_depth: DEPTH },
        };
        let mut tree: Self =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| syntax(text, &error))?;
        let mut problems = Vec::new();
        tree.drop_duplicates(&mut Vec::new(), &mut problems);
        Ok((tree, problems))
    }

    /// Puts `value` where `keys` lead; what is in the way and no mapping is replaced.
    pub(crate) fn plant<'k>(&mut self, keys: impl IntoIterator<Item = &'k str>, value: Self) {
        let mut tree = self;
        for key in keys {
            if !matches!(tree.value, Value::Map(_)) {
                tree.value = Value::Map(Vec::new());
            }
            let Value::Map(entries) = &mut tree.value else { return };
            let at = entries.iter().position(|entry| entry.key == key).unwrap_or_else(|| {
                entries.push(Entry { key: key.to_owned(), place: value.place.clone(), tree: Self::default() });
                entries.len() - 1
            });
            tree = &mut entries[at].tree;
        }
        *tree = value;
    }

    /// Takes out what `path` leads to; false if there is nothing.
    pub(crate) fn remove(&mut self, path: &[Step]) -> bool {
        let Some((last, above)) = path.split_last() else { return false };
        let mut tree = self;
        for step in above {
            let Some(below) = tree.step_mut(step) else { return false };
            tree = below;
        }
        match (&mut tree.value, last) {
            (Value::Map(entries), Step::Key(key)) => {
                let before = entries.len();
                entries.retain(|entry| entry.key != *key);
                entries.len() < before
            }
            (Value::List(items), Step::Index(index)) => {
                let before = items.len();
                items.retain(|(at, _)| at != index);
                items.len() < before
            }
            _ => false,
        }
    }

    /// The value of a key of this mapping.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.tree)
    }

    /// The place of the value that `path` (as in `windows[0].start`) leads to, or [`Place::Default`].
    pub(crate) fn place(&self, path: &str) -> Place {
        let found = steps(path).iter().try_fold(self, Self::step);
        found.map(|tree| tree.place.clone()).unwrap_or_default()
    }

    /// The value that `path` leads to, or the one that it would be in.
    #[cfg(feature = "aws")]
    pub(crate) fn nearest(&self, path: &str) -> &Self {
        let reached = steps(path).iter().try_fold(self, |tree, step| tree.step(step).ok_or(tree));
        reached.unwrap_or_else(|last| last)
    }

    /// The indices of this list's items, as they were written.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> {
        let items = if let Value::List(items) = &self.value { items.as_slice() } else { &[] };
        items.iter().map(|(index, _)| *index)
    }

    /// Where `key` of this mapping is written.
    pub(crate) fn key_place(&self, key: &str) -> Option<Place> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| entry.place.clone())
    }

    fn step(&self, step: &Step) -> Option<&Self> {
        match (&self.value, step) {
            (Value::Map(_), Step::Key(key)) => self.get(key),
            (Value::List(items), Step::Index(index)) => items.iter().find(|(at, _)| at == index).map(|(_, item)| item),
            _ => None,
        }
    }

    fn step_mut(&mut self, step: &Step) -> Option<&mut Self> {
        match (&mut self.value, step) {
            (Value::Map(entries), Step::Key(key)) => {
                entries.iter_mut().find(|entry| entry.key == *key).map(|entry| &mut entry.tree)
            }
            (Value::List(items), Step::Index(index)) => {
                items.iter_mut().find(|(at, _)| at == index).map(|(_, item)| item)
            }
            _ => None,
        }
    }

    fn drop_duplicates(&mut self, path: &mut Vec<Step>, problems: &mut Vec<Problem>) {
        match &mut self.value {
            Value::Map(entries) => {
                let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
                for mut entry in std::mem::take(entries) {
                    path.push(Step::Key(entry.key.clone()));
                    if let Some(first) = kept.iter().find(|first| first.key == entry.key) {
                        let message = match first.place {
                            Place::File { line, .. } => {
                                format!("duplicate key, first written in line {line}: keep one of the two")
                            }
                            Place::Variable(_) | Place::Flag(_) | Place::Default => {
                                "duplicate key: keep one of the two".to_owned()
                            }
                        };
                        problems.push(Problem { place: entry.place, key: written(path), message });
                    } else {
                        entry.tree.drop_duplicates(path, problems);
                        kept.push(entry);
                    }
                    path.pop();
                }
                *entries = kept;
            }
            Value::List(items) => {
                for (at, item) in items {
                    path.push(Step::Index(*at));
                    item.drop_duplicates(path, problems);
                    path.pop();
                }
            }
            _ => {}
        }
    }
}

/// What was found, for a message.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("nothing"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Natural(value) => write!(f, "{value}"),
            Self::Negative(value) => write!(f, "{value}"),
            Self::Fraction(value) => write!(f, "{value}"),
            Self::Text(value) | Self::Outside(value) => write!(f, "{value:?}"),
            Self::List(_) => f.write_str("a list"),
            Self::Map(_) => f.write_str("a mapping"),
        }
    }
}

/// A path as people write it: `windows[0].start`, `selection.capacityLabels["pool=spot"]`.
pub(crate) fn written(path: &[Step]) -> String {
    let plain = |key: &str| key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let steps = path.iter().enumerate().map(|(depth, step)| match step {
        Step::Index(index) => format!("[{index}]"),
        Step::Key(key) if !plain(key) => format!("[{key:?}]"),
        Step::Key(key) if depth == 0 => key.clone(),
        Step::Key(key) => format!(".{key}"),
    });
    steps.collect()
}

/// The steps of a path that [`written`] wrote.
pub(crate) fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = if let Some((key, after)) = rest.strip_prefix("[\"").and_then(|rest| rest.split_once("\"]"))
        {
            (Step::Key(key.replace("\\\"", "\"").replace(r"\\", r"\")), after)
        } else if let Some((index, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            (index.parse().map_or_else(|_| Step::Key(index.to_owned()), Step::Index), after)
        } else {
            let (key, after) = rest.split_at(rest.find(['.', '[']).filter(|at| *at > 0).unwrap_or(rest.len()));
            (Step::Key(key.to_owned()), after)
        };
        steps.push(step);
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    steps
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { place: Place::File { line: referenced.line(), column: referenced.column() }, value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> de::Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Natural(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or(Value::Negative(value), Value::Natural))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Fraction(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push((list.len(), item));
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let place = Place::File { line: key.referenced.line(), column: key.referenced.column() };
            let mut tree: Tree = entries.next_value()?;
            if tree.value == Value::Null {
                // What is not written has no place but its key's.
                tree.place = place.clone();
            }
            map.push(Entry { key: key.value, place, tree });
        }
        Ok(Value::Map(map))
    }
}

/// What the parser says of a text that is no YAML, with the remedies of the two commonest slips.
fn syntax(text: &str, error: &serde_saphyr::Error) -> Problem {
    let Some(location) = error.location().filter(|location| location.line() > 0) else {
        return Problem { place: Place::Default, key: String::new(), message: format!("not YAML: {error}") };
    };
    let (line, column) = (location.line(), location.column());
    let place = Place::File { line, column };
    if matches!(error, serde_saphyr::Error::MultipleDocuments { .. }) {
        let message = "a second document begins: write one document, without `---` between its keys".to_owned();
        return Problem { place, key: String::new(), message };
    }
    // The parser adds the position in words of its own, which the place already has.
    let reason = error.to_string();
    let reason = reason.split(" at line ").next().unwrap_or_default().trim_end_matches([',', ' ']);
    let written = usize::try_from(line).ok().and_then(|line| text.lines().nth(line - 1)).unwrap_or_default();
    let remedy = if written.contains(": @") {
        ": put quotes round what begins with `@`, as in \"@hourly\""
    } else if written.contains('\t') || reason.ends_with("a tab") {
        ": indent by spaces, YAML allows no tabs"
    } else {
        ""
    };
    Problem { place, key: String::new(), message: format!("not YAML: {reason}{remedy}") }
}
