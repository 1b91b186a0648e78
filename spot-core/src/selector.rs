//! Label selectors, as Kubernetes reads them.
//!
//! One type serves both ways in which people write a selector: the text that `kubectl -l` takes ([`LabelSelector::parse`])
//! and the list of requirements that API objects such as a `PodDisruptionBudget` hold ([`LabelSelector::new`]).
//!
//! Semantics are those of `k8s.io/apimachinery/pkg/labels`: requirements are joined by AND, a selector without any
//! matches everything, and `!=` and `notin` also match where the label is absent.

mod parser;

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::error::plain;

/// Requirements on labels that must all hold.
///
/// ```
/// use spot_core::selector::LabelSelector;
///
/// let selector = LabelSelector::parse("pool=batch,zone notin (a, b),!pinned")?;
/// assert!(selector.matches(|key| (key == "pool").then_some("batch")));
/// assert!(!selector.matches(|_| None));
/// # Ok::<(), spot_core::selector::SelectorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

/// What one label must be like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: BTreeSet<String>,
}

/// How a requirement compares, named as in the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The label is there and has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is there, whatever its value.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// Why a text is no label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// Something else stands where `wanted` should.
    #[error("expected {wanted} at character {at}, found {found}")]
    Unexpected {
        /// Position in the text, counted from 1.
        at: usize,
        /// What the grammar allows there.
        wanted: &'static str,
        /// What stands there, quoted, or `the end`.
        found: String,
    },
    /// The key is not a label key.
    #[error("`{key}` at character {at} is not a label key: {rule}")]
    Key {
        /// Position in the text, counted from 1.
        at: usize,
        /// The refused key.
        key: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The value is not a label value.
    #[error("`{value}` at character {at} is not a label value: {rule}")]
    Value {
        /// Position in the text, counted from 1.
        at: usize,
        /// The refused value.
        value: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The API has no such operator.
    #[error("`{0}` is not an operator: one of In, NotIn, Exists, DoesNotExist")]
    Operator(String),
}

impl LabelSelector {
    /// Joins `requirements` by AND; none at all match everything.
    #[must_use]
    pub fn new(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self { requirements: requirements.into_iter().collect() }
    }

    /// Parses what `kubectl -l` takes: `a=b`, `a==b`, `a!=b`, `a in (x,y)`, `a notin (x,y)`, `a`, `!a`, joined by commas.
    ///
    /// Text of white space alone is the selector that matches everything.
    ///
    /// # Errors
    /// The first place where the text departs from the grammar, or a key or value that no label can have.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        // No key or value has a control character, so that nothing else is read in its stead.
        Ok(Self { requirements: parser::requirements(&plain(text))? })
    }

    /// Whether labels, looked up by `label`, meet every requirement.
    pub fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }

    /// Whether the selector matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements, in the order in which they were written.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

impl FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

/// Writes the text that [`LabelSelector::parse`] reads back to an equal selector, provided that keys and values are valid.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl Requirement {
    /// A requirement from the parts of an API object's `matchExpressions`; `values` count for `In` and `NotIn` alone.
    ///
    /// Nothing is validated: the API server did. `In` without values matches nothing.
    #[must_use]
    pub fn new(
        key: impl Into<String>,
        operator: Operator,
        values: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let values = match operator {
            Operator::In | Operator::NotIn => values.into_iter().map(Into::into).collect(),
            Operator::Exists | Operator::DoesNotExist => BTreeSet::new(),
        };
        Self { key: key.into(), operator, values }
    }

    /// The requirement of one entry of `matchLabels`: the label has exactly this value.
    #[must_use]
    pub fn equals(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::new(key, Operator::In, [value])
    }

    /// The label's key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the label is compared.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values that `In` and `NotIn` compare with, sorted.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(String::as_str)
    }

    /// Whether a label with this value, or its absence, meets the requirement.
    #[must_use]
    pub fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let mut values = self.values.iter().map(String::as_str);
        match (self.operator, values.len()) {
            (Operator::Exists, _) => write!(f, "{key}"),
            (Operator::DoesNotExist, _) => write!(f, "!{key}"),
            (Operator::In, 1) => write!(f, "{key}={}", values.next().unwrap_or_default()),
            (Operator::NotIn, 1) => write!(f, "{key}!={}", values.next().unwrap_or_default()),
            (Operator::In, _) => write!(f, "{key} in ({})", values.collect::<Vec<_>>().join(",")),
            (Operator::NotIn, _) => write!(f, "{key} notin ({})", values.collect::<Vec<_>>().join(",")),
        }
    }
}

impl FromStr for Operator {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        match text {
            "In" => Ok(Self::In),
            "NotIn" => Ok(Self::NotIn),
            "Exists" => Ok(Self::Exists),
            "DoesNotExist" => Ok(Self::DoesNotExist),
            other => Err(SelectorError::Operator(plain(other).into_owned())),
        }
    }
}

const NO_VALUES: [&str; 0] = [];

/// The rule that `key` breaks, if it is no label key (`name` or `dns.sub.domain/name`).
///
/// ```
/// use spot_core::selector::key_fault;
///
/// assert_eq!(key_fault("topology.kubernetes.io/zone"), None);
/// assert!(key_fault("-zone").is_some());
/// ```
#[must_use]
pub fn key_fault(key: &str) -> Option<&'static str> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if let Some(prefix) = prefix {
        let label_ok = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if prefix.len() > 253 || !prefix.split('.').all(label_ok) {
            return Some("what stands before `/` must be a DNS name in lower case, of at most 253 characters");
        }
    }
    if name.is_empty() { Some("the name is empty") } else { value_fault(name) }
}

/// The rule that `value` breaks, if it is no label value; the empty one is.
///
/// ```
/// use spot_core::selector::value_fault;
///
/// assert_eq!(value_fault("on-demand"), None);
/// assert!(value_fault("on demand").is_some());
/// ```
#[must_use]
pub fn value_fault(value: &str) -> Option<&'static str> {
    if value.len() > 63 {
        return Some("at most 63 characters are allowed");
    }
    if !value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        return Some("only letters, digits, `-`, `_` and `.` are allowed");
    }
    let edge_ok = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    if !edge_ok(value.as_bytes().first()) || !edge_ok(value.as_bytes().last()) {
        return Some("it must begin and end with a letter or a digit");
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        LabelSelector::parse(selector).unwrap().matches(|key| labels.get(key).copied())
    }

    #[test]
    fn an_empty_selector_matches_everything() {
        for text in ["", " ", "\t\n"] {
            assert!(matches(text, &[]), "{text:?}");
            assert!(matches(text, &[("a", "b")]), "{text:?}");
            assert!(LabelSelector::parse(text).unwrap().is_empty());
        }
        assert!(LabelSelector::new([]).matches(|_| None));
        assert_eq!(LabelSelector::default(), LabelSelector::parse("").unwrap());
    }

    #[test]
    fn each_operator_compares_as_kubernetes_does() {
        type Row<'r> = (&'r str, &'r [(&'r str, &'r str)], bool);
        let table: &[Row<'_>] = &[
            ("a=b", &[("a", "b")], true),
            ("a==b", &[("a", "b")], true),
            ("a=b", &[("a", "c")], false),
            ("a=b", &[], false),
            ("a=b", &[("A", "b")], false),
            ("a=", &[("a", "")], true),
            ("a=", &[("a", "b")], false),
            ("a=", &[], false),
            ("a=,b", &[("a", ""), ("b", "x")], true),
            ("a!=b", &[("a", "c")], true),
            ("a!=b", &[("a", "b")], false),
            ("a!=b", &[], true),
            ("a!=", &[("a", "b")], true),
            ("a!=", &[("a", "")], false),
            ("a", &[("a", "")], true),
            ("a", &[], false),
            ("!a", &[("a", "b")], false),
            ("! a", &[], true),
            ("a in (x,y)", &[("a", "y")], true),
            ("a in (x,y)", &[("a", "z")], false),
            ("a in (x,y)", &[], false),
            ("a in (x,)", &[("a", "")], true),
            ("a in(x)", &[("a", "x")], true),
            ("a notin (x,y)", &[("a", "y")], false),
            ("a notin (x,y)", &[("a", "z")], true),
            ("a notin (x,y)", &[], true),
            ("in in (in,notin)", &[("in", "notin")], true),
            ("in", &[("in", "")], true),
            ("a = b , c", &[("a", "b"), ("c", "")], true),
            ("a=b,a!=b", &[("a", "b")], false),
            (
                "kubernetes.io/os=linux,pool in (batch, ci),!pinned",
                &[("kubernetes.io/os", "linux"), ("pool", "ci")],
                true,
            ),
        ];
        for (selector, labels, expected) in table {
            assert_eq!(matches(selector, labels), *expected, "{selector} on {labels:?}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused_with_its_place() {
        let table = [
            (",", "expected a label key at character 1, found `,`"),
            ("a,", "expected a label key at character 3, found the end"),
            ("a,,b", "expected a label key at character 3, found `,`"),
            ("a b", "expected `=`, `!=`, `in`, `notin` or `,` at character 3, found `b`"),
            ("a=b c", "expected `,` or the end at character 5, found `c`"),
            ("a=b=c", "expected `,` or the end at character 4, found `=`"),
            ("a in x", "expected `(` at character 6, found `x`"),
            ("a in ()", "expected at least one value at character 7, found `)`"),
            ("a in (x", "expected `,` or `)` at character 8, found the end"),
            ("a in (x y)", "expected `,` or `)` at character 9, found `y`"),
            ("!a=b", "expected `,` or the end at character 3, found `=`"),
            ("!", "expected a label key at character 2, found the end"),
            ("=b", "expected a label key at character 1, found `=`"),
            ("a=b, c!d", "expected `=`, `!=`, `in`, `notin` or `,` at character 7, found `!`"),
            ("ä", "`ä` at character 1 is not a label key: only letters, digits, `-`, `_` and `.` are allowed"),
            ("a=b,-c", "`-c` at character 5 is not a label key: it must begin and end with a letter or a digit"),
            ("x/=b", "`x/` at character 1 is not a label key: the name is empty"),
            (
                "Up.io/a",
                "`Up.io/a` at character 1 is not a label key: what stands before `/` must be a DNS name in lower case, \
                 of at most 253 characters",
            ),
            ("a=b_", "`b_` at character 3 is not a label value: it must begin and end with a letter or a digit"),
            ("a=b:c", "`b:c` at character 3 is not a label value: only letters, digits, `-`, `_` and `.` are allowed"),
            ("a>1", "`a>1` at character 1 is not a label key: only letters, digits, `-`, `_` and `.` are allowed"),
        ];
        for (text, message) in table {
            assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), message, "{text}");
        }
        let long = "x".repeat(64);
        assert!(LabelSelector::parse(&long).is_err());
        assert!(LabelSelector::parse(&long[1..]).is_ok());
    }

    #[test]
    fn requirements_of_an_api_object_match_like_their_text() {
        let selector = LabelSelector::new([
            Requirement::equals("app", "api"),
            Requirement::new("tier", "NotIn".parse().unwrap(), ["batch", "ci"]),
            Requirement::new("ready", "Exists".parse().unwrap(), NO_VALUES),
            Requirement::new("legacy", "DoesNotExist".parse().unwrap(), NO_VALUES),
            Requirement::new("zone", "In".parse().unwrap(), ["b", "a"]),
        ]);
        let text = "app=api,tier notin (batch,ci),ready,!legacy,zone in (a,b)";
        assert_eq!(selector, LabelSelector::parse(text).unwrap());
        assert_eq!(selector.to_string(), text);
        assert_eq!("in".parse::<Operator>().unwrap_err(), SelectorError::Operator("in".to_owned()));
    }

    #[test]
    fn in_without_values_matches_nothing_and_notin_everything() {
        assert!(!Requirement::new("a", Operator::In, NO_VALUES).matches(Some("")));
        assert!(Requirement::new("a", Operator::NotIn, NO_VALUES).matches(Some("")));
    }

    fn requirement() -> impl Strategy<Value = Requirement> {
        let operator =
            prop::sample::select(vec![Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist]);
        let values = prop::collection::vec("([a-z]([a-z._-]{0,3}[a-z])?)?", 1..4);
        ("([a-z]{1,3}\\.io/)?[a-zA-Z]{1,4}", operator, values)
            .prop_map(|(key, operator, values)| Requirement::new(key, operator, values))
    }

    proptest! {
        #[test]
        fn a_written_selector_reads_back_as_itself(requirements in prop::collection::vec(requirement(), 0..5)) {
            let selector = LabelSelector::new(requirements);
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
        }

        #[test]
        fn an_operator_and_its_negation_never_agree(key in "[a-z]", value in prop::option::of("[a-b]")) {
            let value = value.as_deref();
            for (yes, no) in [(Operator::In, Operator::NotIn), (Operator::Exists, Operator::DoesNotExist)] {
                let holds = |operator| Requirement::new(key.clone(), operator, ["a"]).matches(value);
                prop_assert_ne!(holds(yes), holds(no));
            }
        }

        #[test]
        fn no_text_makes_the_parser_fail_otherwise_than_by_an_error(text in "[a-c ,()!=/.äin-]{0,16}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
            }
        }
    }
}
