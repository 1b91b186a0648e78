//! The plain part of YAML, in which kubectl writes nearly every object: keys and values a line each, nothing that goes
//! on over several lines, no anchors. As JSON it is decoded many times as fast as by a parser of all of YAML; whatever
//! is written in any other way is left to that.

use super::list::{self, Lines};

/// How deep a document may go.
const DEPTH: usize = 64;
/// How many keys a map may have here: each is compared with all before it.
const KEYS: usize = 256;

/// Words that YAML takes, or once took, for something else than a text.
const WORDS: [&str; 11] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"];

/// Writes a document as JSON, if all of it is plain.
pub(super) fn json(document: &str, json: &mut String) -> Option<()> {
    json.clear();
    let mut reader = Reader { rest: Lines { rest: document }, line: None, json };
    reader.step();
    let (indent, _) = reader.line?;
    reader.block(indent, DEPTH)?;
    reader.line.is_none().then_some(())
}

/// What is left of a document, and what was read of it.
struct Reader<'t, 'j> {
    rest: Lines<'t>,
    /// The line that is read: how far it is indented, and what stands on it.
    line: Option<(usize, &'t str)>,
    json: &'j mut String,
}

impl<'t> Reader<'t, '_> {
    /// Goes to the next line.
    fn step(&mut self) {
        self.line = self.rest.next().map(|line| {
            let indent = list::indent(line);
            let content = &line[indent..];
            (indent, content.strip_suffix('\n').unwrap_or(content))
        });
    }

    /// The line, if it is indented like this.
    fn at(&self, indent: usize) -> Option<&'t str> {
        self.line.filter(|(of, _)| *of == indent).map(|(_, content)| content)
    }

    /// A list or a map.
    fn block(&mut self, indent: usize, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if item(self.at(indent)?).is_some() { self.list(indent, depth) } else { self.map(indent, depth) }
    }

    fn list(&mut self, indent: usize, depth: usize) -> Option<()> {
        let mut separator = '[';
        while let Some(content) = self.at(indent).and_then(item) {
            self.json.push(separator);
            separator = ',';
            if item(content).is_some() || entry(content).is_some() {
                self.line = Some((indent + 2, content));
                self.block(indent + 2, depth)?;
            } else {
                self.scalar(content)?;
                self.step();
            }
        }
        self.json.push(']');
        Some(())
    }

    fn map(&mut self, indent: usize, depth: usize) -> Option<()> {
        let mut keys: Vec<&str> = Vec::new();
        while let Some(content) = self.at(indent).filter(|content| item(content).is_none()) {
            let (key, value) = entry(content)?;
            if keys.len() == KEYS || keys.contains(&key) {
                return None;
            }
            self.json.push(if keys.is_empty() { '{' } else { ',' });
            keys.push(key);
            self.text(key);
            self.json.push(':');
            self.step();
            if value.is_empty() {
                self.below(indent, depth)?;
            } else {
                self.scalar(value)?;
            }
        }
        // Nothing that begins here is further in: that would be a text of several lines.
        (!keys.is_empty()).then(|| self.json.push('}'))
    }

    /// What stands below a key that has nothing beside it.
    fn below(&mut self, indent: usize, depth: usize) -> Option<()> {
        match self.line {
            Some((of, _)) if of > indent => self.block(of, depth),
            Some((of, content)) if of == indent && item(content).is_some() => self.block(of, depth),
            Some(_) | None => {
                self.json.push_str("null");
                Some(())
            }
        }
    }

    fn scalar(&mut self, text: &str) -> Option<()> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            return None;
        }
        if matches!(text, "{}" | "[]" | "null" | "true" | "false") || is_whole(text) {
            self.json.push_str(text);
            return Some(());
        }
        let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote).filter(|text| !text.contains(quote));
        let text = within('\'')
            .or_else(|| within('"').filter(|text| !text.contains('\\')))
            .or_else(|| is_text(text).then_some(text))?;
        self.text(text);
        Some(())
    }

    fn text(&mut self, text: &str) {
        self.json.push('"');
        let mut rest = text;
        while let Some(at) = memchr::memchr2(b'"', b'\\', rest.as_bytes()) {
            let (before, behind) = rest.split_at(at);
            self.json.extend([before, "\\", &behind[..1]]);
            rest = &behind[1..];
        }
        self.json.extend([rest, "\""]);
    }
}

/// What is behind the dash of an item.
fn item(content: &str) -> Option<&str> {
    content.strip_prefix("- ")
}

/// The key of a line and what stands behind it.
fn entry(content: &str) -> Option<(&str, &str)> {
    let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'/');
    let (key, rest) = content.split_at(content.bytes().position(|byte| !is_of_key(byte))?);
    let value = rest.strip_prefix(':')?;
    let value = if value.is_empty() { value } else { value.strip_prefix(' ').filter(|value| !value.is_empty())? };
    is_text(key).then_some((key, value))
}

/// Whether YAML takes it for a whole number, and JSON too.
fn is_whole(text: &str) -> bool {
    let is_short = (1..=18).contains(&text.len());
    is_short && text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'))
}

/// Whether it is a text though it stands in no quotes.
fn is_text(text: &str) -> bool {
    let text = text.as_bytes();
    let is_word = || WORDS.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
    // No number has one of these letters, as hashes have, or two of these marks, as UIDs and addresses have.
    let has_letter = || text.iter().any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E'));
    let has_two = |mark| memchr::memchr_iter(mark, text).nth(1).is_some();
    let begins = match text {
        [b'a'..=b'z' | b'A'..=b'Z' | b'/', ..] => !is_word(),
        [b'0', b'a'..=b'z' | b'A'..=b'Z', ..] => false,
        [b'0'..=b'9', ..] => has_letter() || has_two(b'.') || has_two(b'-'),
        _ => false,
    };
    let is_mark = |pair: &[u8]| matches!(pair, b": " | b" #");
    begins && !matches!(text, [.., b' ' | b':']) && !text.windows(2).any(is_mark)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> Option<Value> {
        let mut written = "of another document".to_owned();
        json(text, &mut written)?;
        Some(serde_json::from_str(&written).unwrap_or_else(|error| panic!("{error}: {written}")))
    }

    /// What a parser of all of YAML makes of it.
    fn whole(text: &str) -> Option<Value> {
        serde_saphyr::from_str(text).ok()
    }

    /// What stands on lines: what is plain, and what only looks so.
    const PIECES: [&str; 59] = [
        "- ",
        "- - ",
        "-",
        "a: ",
        "b:",
        "key.io/of-it: ",
        "10.0.0.1: ",
        "y: ",
        "? ",
        "text",
        "several words",
        "a:b",
        "c#d",
        " # e",
        "{}",
        "[]",
        "{f: g}",
        "|",
        ">-",
        "&h ",
        "*h",
        "!!str ",
        "'i'",
        "'j''k'",
        "'it says \"l\" \\ m'",
        "\"n\"",
        "\"o\\n\"",
        "true",
        "True",
        "null",
        "~",
        "yes",
        "0",
        "17",
        "017",
        "0x1f",
        "1e3",
        "7c9d8b6f5",
        "0b1",
        "0c1",
        "12e",
        "1e3f",
        "1930m",
        "1.5",
        "-3",
        "1_000",
        "10.0.0.1",
        "5e1f-4-8",
        "2026-01-01",
        "12:30:00",
        ".inf",
        "\t",
        "\r",
        "é",
        "<<: ",
        "---",
        "%p",
        "off",
        "Null",
    ];

    fn piece() -> impl Strategy<Value = String> {
        select(&PIECES).prop_map(str::to_owned)
    }

    prop_compose! {
        fn document()(lines in vec((0_usize..4, vec(piece(), 0..4)), 1..6)) -> String {
            let lines = lines.iter().map(|(indent, pieces)| format!("{:1$}{2}\n", "", 2 * indent, pieces.concat()));
            lines.collect()
        }
    }

    /// A tree as kubectl could write it.
    fn tree() -> impl Strategy<Value = Value> {
        let text = prop_oneof![piece(), "[ -~]{0,12}"];
        let leaf = prop_oneof![
            text.prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            any::<u32>().prop_map(Value::from),
            Just(Value::Null)
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            let map = proptest::collection::btree_map("[a-z][a-zA-Z0-9./_-]{0,8}", inner.clone(), 0..5);
            prop_oneof![vec(inner, 0..5).prop_map(Value::from), map.prop_map(|map| map.into_iter().collect())]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn what_is_read_is_what_yaml_says(text in document()) {
            if let Some(read) = read(&text) {
                prop_assert_eq!(Some(read), whole(&text));
            }
        }

        #[test]
        fn what_a_tree_is_written_as_is_read_as_that_tree_or_not_at_all(tree in tree()) {
            let text = serde_saphyr::to_string(&tree).unwrap();
            if let Some(read) = read(&text) {
                prop_assert_eq!(read, tree);
            }
        }
    }

    #[test]
    fn every_pair_is_read_as_yaml_says_or_left_to_others() {
        let mut read_as_well = 0;
        for (first, second) in PIECES.iter().flat_map(|first| PIECES.iter().map(move |second| (first, second))) {
            for text in [
                format!("a: {first}{second}\n"),
                format!("- {first}\n- {second}\n"),
                format!("{first}: {second}\n"),
                format!("a: {first}\nb: {second}\n"),
                format!("{first}\n{second}\n"),
                format!("{first}\n  {second}\n"),
            ] {
                if let Some(read) = read(&text) {
                    assert_eq!(Some(read), whole(&text), "{text}");
                    read_as_well += 1;
                }
            }
        }
        assert!(read_as_well > 1_000, "{read_as_well}");
    }

    #[test]
    fn an_object_as_kubectl_writes_it_is_plain() {
        let text = "  apiVersion: v1\n  kind: Pod\n  metadata:\n    annotations:\n      csi.io/id: '{\"a\":\"b\"}'\n      \
                    since: \"2026-01-01T00:00:00Z\"\n    hash: 6799fc88d8\n    name: web-0\n    uid: 55550000-0000-4000-8000-000000000000\n  spec:\n    \
                    nodeName: a.internal\n    priority: 0\n    securityContext: {}\n    tolerations:\n    - effect: NoExecute\n      \
                    key: a.io/b\n    - key: c\n    volumes:\n    - emptyDir: {}\n      name: d\n  status:\n    \
                    conditions:\n    - lastProbeTime: null\n      status: \"True\"\n      type: Ready\n    ips:\n    - 10.0.0.1\n";
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "annotations": {"csi.io/id": "{\"a\":\"b\"}", "since": "2026-01-01T00:00:00Z"},
                "hash": "6799fc88d8",
                "name": "web-0",
                "uid": "55550000-0000-4000-8000-000000000000",
            },
            "spec": {
                "nodeName": "a.internal",
                "priority": 0,
                "securityContext": {},
                "tolerations": [{"effect": "NoExecute", "key": "a.io/b"}, {"key": "c"}],
                "volumes": [{"emptyDir": {}, "name": "d"}],
            },
            "status": {
                "conditions": [{"lastProbeTime": null, "status": "True", "type": "Ready"}],
                "ips": ["10.0.0.1"],
            },
        });
        assert_eq!(read(text), Some(expected));
    }

    #[test]
    fn what_is_written_in_another_way_is_left_to_others() {
        for text in [
            "",
            "a\n",
            "a: |\n  b\n",
            "a: b\n  c\n",
            "a: 'b\n  c'\n",
            "a: &b c\n",
            "a: b\na: c\n",
            "a: b # c\n",
            "a: b\n\nc: d\n",
            "a: True\n",
            "a: 1e3\n",
            "y: a\n",
            "a: b\n- c\n",
            "---\na: b\n",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(&format!("{}a: b\n", "- ".repeat(100_000))), None, "it is too deep");
        let many = |keys: usize| (0..keys).map(|key| format!("a{key}: b\n")).collect::<Vec<_>>().concat();
        assert!(read(&many(KEYS)).is_some() && read(&many(KEYS + 1)).is_none(), "it is too long");
    }
}
