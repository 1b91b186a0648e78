//! Values of JSON as block YAML, plain where kubectl is, so that both readers of it are reached.

use std::fmt::Write as _;

use serde_json::Value;

/// What YAML takes, or once took, for something else than a text.
const WORDS: [&str; 11] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"];

/// Whether it can be written: a key of a line has at most 1024 characters in YAML, some of which escapes take.
pub(crate) fn has_short_keys(value: &Value) -> bool {
    match value {
        Value::Object(entries) => entries.iter().all(|(key, value)| key.len() < 100 && has_short_keys(value)),
        Value::Array(items) => items.iter().all(has_short_keys),
        _ => true,
    }
}

/// A document in which the items of a list stand so much further in than its key; kubectl's stand at 0.
pub(crate) fn written(value: &Value, further: usize) -> String {
    let mut text = String::new();
    block(value, 0, further, &mut text);
    text
}

/// The value on lines of its own.
fn block(value: &Value, indent: usize, further: usize, text: &mut String) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                write!(text, "{:indent$}{}:", "", word(key)).unwrap();
                let below = indent + if value.is_array() { further } else { 2 };
                behind(value, below, further, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let begun = text.len();
                block(item, indent + 2, further, text);
                text.replace_range(begun + indent..=begun + indent, "-");
            }
        }
        _ => writeln!(text, "{:indent$}{}", "", scalar(value)).unwrap(),
    }
}

/// The value behind a key.
fn behind(value: &Value, below: usize, further: usize, text: &mut String) {
    let is_block = value.as_object().is_some_and(|entries| !entries.is_empty())
        || value.as_array().is_some_and(|items| !items.is_empty());
    if is_block {
        text.push('\n');
        block(value, below, further, text);
    } else {
        writeln!(text, " {}", scalar(value)).unwrap();
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => word(text),
        // An empty list or map among them.
        other => other.to_string(),
    }
}

/// A text, in quotes unless it is as plain as names are.
fn word(text: &str) -> String {
    let is_name = text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is_name && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-./".contains(&byte)) {
        return text.to_owned();
    }
    let letters = text.chars().map(|letter| match letter {
        '"' | '\\' => format!("\\{letter}"),
        ' '..='~' => letter.to_string(),
        other => format!("\\U{:08X}", u32::from(other)),
    });
    format!("\"{}\"", letters.collect::<String>())
}
