//! Reads a [`Tree`] into the structures of the file, and goes on after a mistake.
//!
//! Serde stops at the first error. Its error therefore carries the path of what it stopped at: that is noted, taken out of
//! the tree (the default stands in for it), and the tree read again, until nothing is left to refuse.

use std::fmt;

use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, value::StrDeserializer};

use super::{
    problem::{Place, Problem, meant},
    tree::{Entry, Step, Tree, Value, written},
};

/// Reads `tree`, taking out of it what can't be read; `elsewhere` names a key that exists under another path.
pub(crate) fn read<T: DeserializeOwned + Default>(
    tree: &mut Tree,
    elsewhere: impl Fn(&str) -> Option<String>,
) -> (T, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut refused: Vec<Vec<Step>> = Vec::new();
    loop {
        match T::deserialize(&*tree) {
            Ok(value) => return (value, problems),
            Err(mut mistake) => {
                mistake.path.reverse();
                // A key may be missing only because it was refused: the first problem says all.
                let follows = matches!(mistake.fault, Fault::Missing(_))
                    && refused.iter().any(|path| path.starts_with(&mistake.path));
                if !follows {
                    problems.push(mistake.problem(&elsewhere));
                }
                if !tree.remove(&mistake.path) {
                    return (T::default(), problems);
                }
                refused.push(mistake.path);
            }
        }
    }
}

/// Why reading stopped.
#[derive(Debug)]
pub(crate) struct Mistake {
    /// From the innermost step outwards.
    path: Vec<Step>,
    place: Option<Place>,
    fault: Fault,
}

#[derive(Debug)]
enum Fault {
    UnknownKey { key: String, known: &'static [&'static str] },
    UnknownWord { word: String, known: &'static [&'static str] },
    Missing(&'static str),
    Other(String),
}

impl Mistake {
    fn new(fault: Fault) -> Self {
        Self { path: Vec::new(), place: None, fault }
    }

    fn at(mut self, place: &Place) -> Self {
        self.place.get_or_insert_with(|| place.clone());
        self
    }

    fn under(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    fn problem(&self, elsewhere: impl Fn(&str) -> Option<String>) -> Problem {
        let message = match &self.fault {
            Fault::UnknownKey { key, known } => {
                let remedy = match (meant(key, known.iter().copied()), elsewhere(key)) {
                    (Some(meant), _) => format!("did you mean `{meant}`?"),
                    (None, Some(path)) => format!("did you mean `{path}`?"),
                    (None, None) => format!("write {}", list(known)),
                };
                format!("unknown key: {remedy}")
            }
            Fault::UnknownWord { word, known } => match meant(word, known.iter().copied()) {
                Some(meant) => format!("found {word:?}: did you mean `{meant}`?"),
                None => format!("found {word:?}: write {}", list(known)),
            },
            Fault::Missing(key) => format!("the key `{key}` is missing: add it"),
            Fault::Other(message) => message.clone(),
        };
        Problem { place: self.place.clone().unwrap_or_default(), key: written(&self.path), message }
    }
}

fn list(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem(|_| None).message)
    }
}

impl std::error::Error for Mistake {}

impl de::Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Fault::Other(message.to_string()))
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        Self::new(Fault::UnknownWord { word: word.to_owned(), known })
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self::new(Fault::UnknownKey { key: key.to_owned(), known })
    }

    fn missing_field(key: &'static str) -> Self {
        Self::new(Fault::Missing(key))
    }

    fn invalid_type(found: de::Unexpected<'_>, wanted: &dyn de::Expected) -> Self {
        let found = match found {
            de::Unexpected::Unit | de::Unexpected::Option => "nothing".to_owned(),
            de::Unexpected::Seq => "a list".to_owned(),
            de::Unexpected::Map => "a mapping".to_owned(),
            other => other.to_string(),
        };
        Self::new(Fault::Other(format!("found {found}: write {wanted}")))
    }
}

impl Tree {
    fn refuse<T>(&self, wanted: &str) -> Result<T, Mistake> {
        Err(Mistake::new(Fault::Other(format!("found {}: write {wanted}", self.value))).at(&self.place))
    }
}

impl<'de> de::Deserializer<'de> for &'de Tree {
    type Error = Mistake;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let read = match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Natural(value) => visitor.visit_u64(*value),
            Value::Negative(value) => visitor.visit_i64(*value),
            Value::Fraction(value) => visitor.visit_f64(*value),
            Value::Text(value) | Value::Outside(value) => visitor.visit_str(value),
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Map(entries) => visitor.visit_map(Entries { rest: entries.iter(), current: None }),
        };
        read.map_err(|mistake| mistake.at(&self.place))
    }

    fn deserialize_bool<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Outside(text) if text == "true" => visitor.visit_bool(true),
            Value::Outside(text) if text == "false" => visitor.visit_bool(false),
            _ => self.refuse("true or false"),
        }
    }

    fn deserialize_u32<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let number = match &self.value {
            Value::Natural(value) => u32::try_from(*value).ok(),
            // `parse` alone would take a plus sign.
            Value::Outside(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => visitor.visit_u32(number),
            None => self.refuse("a whole number from 0 to 4294967295"),
        }
    }

    fn deserialize_str<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.value {
            Value::Text(text) | Value::Outside(text) => {
                visitor.visit_str(text).map_err(|mistake: Mistake| mistake.at(&self.place))
            }
            Value::Bool(_) | Value::Natural(_) | Value::Negative(_) | Value::Fraction(_) => {
                self.refuse(&format!("text, in quotes: \"{}\"", self.value))
            }
            Value::Null => self.refuse("text, or \"\" for none"),
            Value::List(_) | Value::Map(_) => self.refuse("text"),
        }
    }

    fn deserialize_string<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let Value::List(_) = &self.value else { return self.refuse("a list, which may be empty: []") };
        self.deserialize_any(visitor)
    }

    fn deserialize_map<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let Value::Map(_) = &self.value else { return self.refuse("a mapping, which may be empty: {}") };
        self.deserialize_any(visitor)
    }

    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let Value::Map(_) = &self.value else { return self.refuse(&format!("keys below it, of {}", list(keys))) };
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let (Value::Text(text) | Value::Outside(text)) = &self.value else { return self.refuse(&list(words)) };
        let word: StrDeserializer<'_, Mistake> = text.as_str().into_deserializer();
        visitor.visit_enum(word).map_err(|mistake| mistake.at(&self.place))
    }

    /// A key that is there has a value: one without is refused by what reads it.
    fn deserialize_option<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_some(self)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct identifier ignored_any
    }
}

struct Items<'t>(std::slice::Iter<'t, (usize, Tree)>);

impl<'t> de::SeqAccess<'t> for Items<'t> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'t>>(&mut self, seed: T) -> Result<Option<T::Value>, Mistake> {
        let Some((index, item)) = self.0.next() else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|mistake| mistake.under(Step::Index(*index)))
    }
}

struct Entries<'t> {
    rest: std::slice::Iter<'t, Entry>,
    current: Option<&'t Entry>,
}

impl<'t> de::MapAccess<'t> for Entries<'t> {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'t>>(&mut self, seed: K) -> Result<Option<K::Value>, Mistake> {
        self.current = self.rest.next();
        let Some(entry) = self.current else { return Ok(None) };
        let key: StrDeserializer<'_, Mistake> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).map_err(|mistake| mistake.at(&entry.place).under(Step::Key(entry.key.clone())))
    }

    fn next_value_seed<V: DeserializeSeed<'t>>(&mut self, seed: V) -> Result<V::Value, Mistake> {
        let Some(entry) = self.current else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        let read = seed.deserialize(&entry.tree);
        read.map_err(|mistake| mistake.at(&entry.tree.place).under(Step::Key(entry.key.clone())))
    }
}
