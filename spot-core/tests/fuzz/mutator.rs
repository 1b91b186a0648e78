//! Inputs near those that people and programs write: entries of a corpus, with a few things done to them.
//!
//! A corpus is a folder `tests/corpus/<parser>` of a package, with what is read in `good` and what is not in `refused`.
//! Each file is an entry, and of a file that ends in `.lines` each line. What a run of this finds is added there.

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The longest input that is made.
pub(crate) const LONGEST: usize = 64 * 1024;

/// What breaks readers of text, of YAML, of JSON, of times and of numbers.
const PIECES: [&[u8]; 56] = [
    b"\0",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\r",
    b"\n",
    b"\t",
    b" ",
    b"\x1b[31m",
    b"\x7f",
    b"\xff\xfe",
    b"\xc3",
    b"\xed\xa0\x80",
    "\u{85}".as_bytes(),
    "\u{2028}".as_bytes(),
    "\u{202e}".as_bytes(),
    "é".as_bytes(),
    "İ".as_bytes(),
    "ẞ".as_bytes(),
    "١".as_bytes(),
    "𝟙".as_bytes(),
    b"---\n",
    b"...\n",
    b"- ",
    b": ",
    b", ",
    b"# ",
    b"? ",
    b"| ",
    b">-\n",
    b"&a ",
    b"*a",
    b"<<: *a\n",
    b"!!binary ",
    b"%YAML 1.2\n",
    b"{",
    b"[",
    b"{\"a\":",
    b"}",
    b"]",
    b"\"",
    b"'",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"~",
    b"true",
    b"0",
    b"-1",
    b"1e999",
    b".nan",
    b"18446744073709551616",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9999-12-31T23:59:59.999999999Z",
    b"-009999-01-01T00:00:00Z",
];

/// Entries of one parser.
#[derive(Clone, Debug)]
pub(crate) struct Corpus {
    /// What is read.
    pub(crate) good: Vec<Vec<u8>>,
    /// What is not.
    pub(crate) refused: Vec<Vec<u8>>,
}

/// One thing that is done to an entry.
#[derive(Clone, Debug)]
enum Edit {
    Flip {
        at: Index,
        bits: u8,
    },
    Insert {
        at: Index,
        piece: Vec<u8>,
    },
    Delete {
        at: Index,
        length: usize,
    },
    Copy {
        from: Index,
        length: usize,
        to: Index,
    },
    Truncate {
        at: Index,
    },
    /// Goes on as another entry does.
    Splice {
        at: Index,
        other: Vec<u8>,
        from: Index,
    },
    /// Exchanges two words, or what stands between words.
    Swap {
        one: Index,
        other: Index,
    },
    /// A word becomes one of another entry.
    Borrow {
        one: Index,
        other: Vec<u8>,
        from: Index,
    },
    /// The same many times: long lists, deep nesting.
    Repeat {
        at: Index,
        length: usize,
        times: usize,
    },
}

impl Corpus {
    /// That of the package whose test this is.
    pub(crate) fn of(parser: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(parser);
        Self { good: entries(&folder.join("good")), refused: entries(&folder.join("refused")) }
    }

    /// The entries that are read, as texts.
    pub(crate) fn good(&self) -> impl Iterator<Item = String> {
        self.good.iter().map(|entry| text(entry))
    }

    /// The entries that are not, as texts.
    pub(crate) fn refused(&self) -> impl Iterator<Item = String> {
        self.refused.iter().map(|entry| text(entry))
    }

    /// Entries with up to six things done to them.
    pub(crate) fn bytes(&self) -> impl Strategy<Value = Vec<u8>> + use<> {
        let all = [self.good.as_slice(), self.refused.as_slice()].concat();
        // What is read is worth more: what is done to it reaches further.
        let first = prop_oneof![3 => select(self.good.clone()), 1 => select(all.clone())];
        (first, vec(edits(&all), 0..=6)).prop_map(|(entry, edits)| edits.iter().fold(entry, edited))
    }

    /// The same as texts.
    pub(crate) fn texts(&self) -> impl Strategy<Value = String> + use<> {
        self.bytes().prop_map(|bytes| text(&bytes))
    }
}

/// How many inputs, which `PROPTEST_CASES` says. What is found is kept in the corpus, not beside the test.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// Whether a message is one line that a terminal takes as it is, and says something.
pub(crate) fn is_plain(said: &str) -> bool {
    !said.trim().is_empty() && !said.chars().any(char::is_control)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn entries(folder: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = files.into_iter().flat_map(|file| {
        let bytes = fs::read(&file).unwrap();
        if file.extension().is_some_and(|extension| extension == "lines") {
            text(&bytes).lines().map(|line| line.as_bytes().to_vec()).collect()
        } else {
            vec![bytes]
        }
    });
    read.collect()
}

fn edits(corpus: &[Vec<u8>]) -> impl Strategy<Value = Edit> + use<> {
    let at = any::<Index>;
    let other = || select(corpus.to_vec());
    let length = || prop_oneof![4 => 1_usize..8, 1 => 8_usize..200];
    let piece = prop_oneof![
        4 => select(PIECES.to_vec()).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 1..8),
        1 => "[ -~]{1,4}".prop_map(String::into_bytes),
    ];
    let times = prop_oneof![4 => 2_usize..20, 1 => 20_usize..2_000];
    prop_oneof![
        2 => (at(), 1_u8..).prop_map(|(at, bits)| Edit::Flip { at, bits }),
        4 => (at(), piece).prop_map(|(at, piece)| Edit::Insert { at, piece }),
        2 => (at(), length()).prop_map(|(at, length)| Edit::Delete { at, length }),
        2 => (at(), length(), at()).prop_map(|(from, length, to)| Edit::Copy { from, length, to }),
        1 => at().prop_map(|at| Edit::Truncate { at }),
        1 => (at(), other(), at()).prop_map(|(at, other, from)| Edit::Splice { at, other, from }),
        3 => (at(), at()).prop_map(|(one, other)| Edit::Swap { one, other }),
        3 => (at(), other(), at()).prop_map(|(one, other, from)| Edit::Borrow { one, other, from }),
        1 => (at(), length(), times).prop_map(|(at, length, times)| Edit::Repeat { at, length, times }),
    ]
}

fn edited(mut bytes: Vec<u8>, edit: &Edit) -> Vec<u8> {
    let place = |at: &Index, bytes: &[u8]| at.index(bytes.len() + 1);
    let piece = |at: usize, length: usize, bytes: &[u8]| bytes[at..bytes.len().min(at + length)].to_vec();
    match edit {
        Edit::Flip { at, bits } => {
            let at = place(at, &bytes);
            bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= bits);
        }
        Edit::Insert { at, piece } => {
            let at = place(at, &bytes);
            bytes.splice(at..at, piece.iter().copied());
        }
        Edit::Delete { at, length } => {
            let at = place(at, &bytes);
            bytes.drain(at..bytes.len().min(at + length));
        }
        Edit::Copy { from, length, to } => {
            let copied = piece(place(from, &bytes), *length, &bytes);
            let to = place(to, &bytes);
            bytes.splice(to..to, copied);
        }
        Edit::Truncate { at } => bytes.truncate(place(at, &bytes)),
        Edit::Splice { at, other, from } => {
            bytes.truncate(place(at, &bytes));
            bytes.extend_from_slice(&other[place(from, other)..]);
        }
        Edit::Swap { one, other } => {
            let mut words = words(&bytes);
            let (one, other) = (one.index(words.len()), other.index(words.len()));
            words.swap(one, other);
            bytes = words.concat();
        }
        Edit::Borrow { one, other, from } => {
            let mut own = words(&bytes);
            let (at, others) = (one.index(own.len()), words(other));
            own[at] = others[from.index(others.len())];
            bytes = own.concat();
        }
        Edit::Repeat { at, length, times } => {
            let at = place(at, &bytes);
            let repeated = piece(at, *length, &bytes).repeat(*times);
            bytes.splice(at..at, repeated);
        }
    }
    bytes.truncate(LONGEST);
    bytes
}

/// Words and what stands between them, in their order; at least one.
fn words(bytes: &[u8]) -> Vec<&[u8]> {
    let words: Vec<_> =
        bytes.chunk_by(|one, other| one.is_ascii_alphanumeric() == other.is_ascii_alphanumeric()).collect();
    if words.is_empty() { vec![bytes] } else { words }
}
