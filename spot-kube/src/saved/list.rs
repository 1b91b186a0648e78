//! The items of a list in YAML, as kubectl writes it, each by itself: a whole list of tens of thousands of pods as one
//! tree would take gigabytes.
//!
//! ```text
//! apiVersion: v1
//! items:
//! - apiVersion: v1        ◄─ an item begins with a dash in the first column
//!   kind: Pod
//!   …
//! kind: List              ◄─ the list is over
//! ```

/// What is never read, by the section that it stands in: most of the text.
const UNREAD: [(&str, &[&str]); 3] = [
    ("metadata", &["managedFields"]),
    ("spec", &["containers", "initContainers", "ephemeralContainers"]),
    (
        "status",
        &[
            "allocatable",
            "capacity",
            "containerStatuses",
            "ephemeralContainerStatuses",
            "images",
            "initContainerStatuses",
        ],
    ),
];

/// A list whose items are told apart by the first column of their lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List<'t> {
    /// The document without its items.
    pub(super) frame: String,
    /// The text of each item, with its dash, and how many lines are before it.
    pub(super) items: Vec<(usize, &'t str)>,
}

/// The documents of a text, and how many lines are before each. What is between two `---` and holds nothing is none.
pub(super) fn documents(text: &str) -> Vec<(usize, &str)> {
    let mut documents = Vec::new();
    let (mut begun, mut first, mut at) = (0, 0, 0);
    let mut end = |begun: usize, first: usize, at: usize| {
        let document = &text[begun..at];
        let is_said = |line: &str| !line.trim().is_empty() && !line.starts_with('#');
        if document.lines().any(is_said) {
            documents.push((first, document));
        }
    };
    for (number, line) in (Lines { rest: text }).enumerate() {
        let next = at + line.len();
        if line.trim_end() == "---" {
            end(begun, first, at);
            (begun, first) = (next, number + 1);
        }
        at = next;
    }
    end(begun, first, at);
    documents
}

/// The lines of a text, with their ends.
#[derive(Debug)]
pub(super) struct Lines<'t> {
    /// What is left of it.
    pub(super) rest: &'t str,
}

impl<'t> List<'t> {
    /// The list that a document is, if it is laid out so.
    pub(super) fn of(document: &'t str) -> Option<Self> {
        const ITEMS: &str = "items:\n- ";
        let start = if document.starts_with(ITEMS) { 0 } else { document.find("\nitems:\n- ")? + 1 };
        let (head, rest) = document.split_at(start);
        let rest = &rest["items:\n".len()..];
        let mut items = Vec::new();
        let (mut begun, mut first, mut at) = (0, 0, 0);
        let before = head.lines().count() + 1;
        for (number, line) in (Lines { rest }).enumerate() {
            let is_item = line.starts_with("- ");
            if at > begun && (is_item || !is_inside(line)) {
                items.push((before + first, &rest[begun..at]));
                (begun, first) = (at, number);
            }
            if !is_item && !is_inside(line) {
                break;
            }
            at += line.len();
        }
        let tail = &rest[at..];
        if begun < at {
            items.push((before + first, &rest[begun..at]));
        }
        // What stands behind a mark is another document, or none.
        let is_document = |text: &str| !text.lines().any(|line| line.starts_with("---") || line.starts_with("..."));
        (is_document(head) && is_document(tail)).then(|| Self { frame: format!("{head}items: []\n{tail}"), items })
    }
}

impl<'t> Iterator for Lines<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let end = memchr::memchr(b'\n', self.rest.as_bytes()).map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!line.is_empty()).then_some(line)
    }
}

/// How many spaces a line begins with.
pub(super) fn indent(line: &str) -> usize {
    line.bytes().take_while(|byte| *byte == b' ').count()
}

/// Whether a line goes on with an item.
fn is_inside(line: &str) -> bool {
    matches!(line.as_bytes(), [b' ' | b'\n' | b'\r' | b'#', ..])
}

/// An item as a document of its own, without what is never read.
pub(super) fn document(item: &str, kept: &mut String) {
    kept.clear();
    let mut unread: &[&str] = &[];
    let mut is_skipping = false;
    for (number, line) in (Lines { rest: item }).enumerate() {
        if number == 0 {
            kept.push_str("  ");
            kept.push_str(line.strip_prefix("- ").unwrap_or(line));
            continue;
        }
        let indent = indent(line);
        let content = &line[indent..];
        let is_blank = matches!(content.as_bytes(), [] | [b'\n' | b'\r', ..]);
        if is_skipping && (indent > 4 || is_blank || (indent == 4 && content.starts_with('-'))) {
            continue;
        }
        let key = || content.split(':').next().unwrap_or_default();
        if indent == 2 && !is_blank {
            unread = UNREAD.iter().find(|(section, _)| *section == key()).map_or(&[], |(_, keys)| keys);
        }
        is_skipping = indent == 4 && unread.contains(&key());
        if !is_skipping {
            kept.push_str(line);
        }
    }
}

/// The word behind `kind:` of an item, where it stands on a line of its own, with nothing beside it.
pub(super) fn kind(item: &str) -> Option<&str> {
    let mut lines = item.lines().map(|line| line.strip_prefix("- ").or_else(|| line.strip_prefix("  ")));
    let value = lines.find_map(|line| line?.strip_prefix("kind: "))?;
    let word = value.trim().trim_matches(['"', '\'']);
    word.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "- apiVersion: v1\n  kind: Pod\n  metadata:\n    managedFields:\n    - manager: a\n      fields:\n        b: {}\n    \
                       name: web\n  spec:\n    containers:\n    - name: a\n      args:\n      - |\n        status:\n          phase: Failed\n\n    \
                       nodeName: node\n  status:\n    containerStatuses:\n    - ready: true\n    phase: Running\n";

    #[test]
    fn a_list_is_told_apart_into_its_items_and_what_is_around_them() {
        let text = format!(
            "apiVersion: v1\nitems:\n{POD}- kind: Node\n  metadata:\n    name: node\nkind: List\nmetadata: {{}}\n"
        );
        let list = List::of(&text).expect("it is one");
        assert_eq!(list.frame, "apiVersion: v1\nitems: []\nkind: List\nmetadata: {}\n");
        assert_eq!(list.items, [(2, POD), (2 + POD.lines().count(), "- kind: Node\n  metadata:\n    name: node\n")]);
        let kinds: Vec<_> = list.items.iter().map(|(_, item)| kind(item)).collect();
        assert_eq!(kinds, [Some("Pod"), Some("Node")]);
        assert_eq!(kind("- kind: Node # one\n"), None, "it takes a parser");
    }

    #[test]
    fn items_may_come_last_and_first() {
        for (text, frame) in [
            ("kind: List\nitems:\n- kind: Node\n- kind: Pod\n", "kind: List\nitems: []\n"),
            ("items:\n- kind: Node\n- kind: Pod\nkind: List\n", "items: []\nkind: List\n"),
        ] {
            let list = List::of(text).expect("it is one");
            assert_eq!((list.frame.as_str(), list.items.len()), (frame, 2), "{text}");
        }
    }

    #[test]
    fn what_is_laid_out_in_another_way_is_left_to_others() {
        for text in [
            "kind: Node\n",
            "kind: List\nitems: []\n",
            "kind: List\nitems:\n  - kind: Node\n",
            "kind: List\nitems:\n- kind: Node\n--- {kind: Pod}\n",
            "kind: List\nitems:\n- kind: Node\n...\n",
            "",
        ] {
            assert_eq!(List::of(text), None, "{text}");
        }
    }

    #[test]
    fn a_stream_is_told_apart_into_its_documents() {
        let text = "# saved\n---\nkind: Node\n---\n\n---   \nkind: Pod\nnote: |\n  ---\n---\n";
        assert_eq!(documents(text), [(2, "kind: Node\n"), (6, "kind: Pod\nnote: |\n  ---\n")]);
        assert_eq!(documents("kind: Node"), [(0, "kind: Node")]);
        assert_eq!(documents(""), []);
    }

    #[test]
    fn a_document_has_all_that_is_read_and_nothing_of_what_is_not() {
        let expected = "  apiVersion: v1\n  kind: Pod\n  metadata:\n    name: web\n  spec:\n    nodeName: node\n  status:\n    \
                        phase: Running\n";
        let mut kept = "of another item".to_owned();
        document(POD, &mut kept);
        assert_eq!(kept, expected);
    }
}
