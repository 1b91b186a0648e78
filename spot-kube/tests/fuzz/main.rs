//! Saved manifests, and the annotations that any kubelet may write: whatever it is, it is read or refused in words that
//! can be shown, and what is read is what it says, whichever way it is written.

#![expect(clippy::unwrap_used, reason = "what fails in a test ends it")]

#[path = "../../../spot-core/tests/fuzz/mutator.rs"]
mod mutator;
mod yaml;

use std::sync::LazyLock;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use spot_core::error::chain;
use spot_core::node::{ClaimAnnotation, NodeSnapshot, key};
use spot_kube::saved::{self, Read, SavedFile};

use self::mutator::{Corpus, config, is_plain};

static SAVED: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("saved"));
static CLAIMS: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("claim"));
static BACK_OFFS: LazyLock<Corpus> = LazyLock::new(|| Corpus::of("back_off"));

fn read(text: &str) -> Result<Read, String> {
    saved::read(&[SavedFile { name: "f", text }]).map_err(|error| chain(&error))
}

/// All that was read, to be compared.
fn shown(read: &Result<Read, String>) -> Option<String> {
    read.as_ref().ok().map(|read| format!("{:?}\n{:?}", read.view, read.doubts))
}

/// A node with this annotation, and what was told of it.
fn annotated(key: &str, text: &str) -> (NodeSnapshot, Vec<String>) {
    let metadata = json!({
        "name": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": { key: text },
    });
    let read = read(&json!({ "kind": "Node", "metadata": metadata }).to_string()).unwrap();
    ((*read.view.nodes()[0]).clone(), read.doubts)
}

/// The time that a key holds.
fn time(json: &Value, key: &str) -> Option<Timestamp> {
    json[key].as_str()?.parse().ok()
}

#[test]
fn the_corpus_holds_manifests_and_what_is_none() {
    for text in SAVED.good() {
        assert!(read(&text).is_ok(), "{text}: {:?}", read(&text));
    }
    let said: Vec<_> = SAVED.refused().map(|text| read(&text).map(drop).expect_err(&text)).collect();
    for words in ["neither JSON nor YAML", "is no Kubernetes object", "can't be used", "not a list of nodes"] {
        assert!(said.iter().any(|said| said.contains(words)), "{words}: {said:#?}");
    }
    assert!(said.iter().all(|said| is_plain(&said.replace('\n', " "))), "{said:?}");
}

#[test]
fn the_corpus_holds_records_and_what_is_none() {
    for text in CLAIMS.good() {
        assert!(matches!(annotated(key::CLAIM, &text).0.claim, ClaimAnnotation::Valid(_)), "{text}");
    }
    for text in CLAIMS.refused() {
        let (node, doubts) = annotated(key::CLAIM, &text);
        assert!(matches!(node.claim, ClaimAnnotation::Unreadable(why) if is_plain(&why)), "{doubts:?}");
    }
    assert!(BACK_OFFS.good().all(|text| annotated(key::BACK_OFF, &text).0.back_off.is_some()));
    assert!(BACK_OFFS.refused().all(|text| annotated(key::BACK_OFF, &text).0.back_off.is_none()));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_manifest_is_read_or_refused_in_words_that_can_be_shown(text in SAVED.texts()) {
        match read(&text) {
            Ok(Read { doubts, .. }) => prop_assert!(doubts.iter().all(|doubt| is_plain(doubt)), "{:?}", doubts),
            Err(said) => {
                prop_assert!(said.starts_with("f: "), "{}", said);
                // The YAML parser shows the lines that it is about.
                prop_assert!(is_plain(&said.replace('\n', " ")), "{:?}", said);
            }
        }
    }

    #[test]
    fn a_manifest_means_the_same_in_json_and_in_each_layout_of_yaml(text in SAVED.texts()) {
        let Ok(value) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
        // Of a list, JSON takes none for items only as `[]`, which is what kubectl writes.
        prop_assume!(!value["items"].is_null() || value.get("items").is_none());
        prop_assume!(yaml::has_short_keys(&value));
        let of_json = shown(&read(&value.to_string()));
        let (by_item, as_tree) = (yaml::written(&value, 0), yaml::written(&value, 2));
        let (of_items, of_tree) = (read(&by_item), read(&as_tree));
        prop_assert_eq!(&shown(&of_tree), &of_json, "{}\n{:?}", as_tree, of_tree);
        prop_assert_eq!(&shown(&of_items), &of_json, "{}\n{:?}", by_item, of_items);
    }

    #[test]
    fn a_claim_is_what_the_annotation_says_or_unreadable_in_plain_words(text in CLAIMS.texts()) {
        let (node, doubts) = annotated(key::CLAIM, &text);
        match node.claim {
            ClaimAnnotation::Valid(claim) => {
                prop_assert!(text.len() <= 4096 && doubts.is_empty());
                let json: Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(json["owner"].as_str(), Some(&*claim.owner.to_string()));
                prop_assert_eq!(json["node"].as_str(), Some(claim.node.as_str()));
                prop_assert_eq!(json["step"].as_str(), Some(claim.step.as_str()));
                prop_assert_eq!(json["taint"].as_str(), claim.taint.as_deref());
                prop_assert_eq!(json["cordoned"].as_bool(), Some(claim.cordoned));
                prop_assert_eq!(time(&json, "since"), Some(claim.since));
                prop_assert_eq!(time(&json, "until"), claim.until);
                prop_assert_eq!(json["fleetBefore"]["target"].as_u64(), claim.fleet_before.map(|fleet| fleet.target.into()));
            }
            ClaimAnnotation::Unreadable(why) => {
                prop_assert!(is_plain(&why), "{:?}", why);
                prop_assert!(why.len() < 1024, "{} bytes", why.len());
                prop_assert_eq!(doubts.len(), 1);
            }
            ClaimAnnotation::Absent => prop_assert!(false, "it is there"),
        }
    }

    #[test]
    fn a_back_off_is_what_the_annotation_says_or_told_of_in_plain_words(text in BACK_OFFS.texts()) {
        let (node, doubts) = annotated(key::BACK_OFF, &text);
        match node.back_off {
            Some(back_off) => {
                let json: Value = serde_json::from_str(&text).unwrap();
                prop_assert!(text.len() <= 4096 && doubts.is_empty());
                prop_assert_eq!(time(&json, "until"), Some(back_off.until));
                prop_assert_eq!(json["count"].as_u64(), Some(back_off.count.into()));
            }
            None => prop_assert!(doubts.len() == 1 && is_plain(&doubts[0]) && doubts[0].len() < 1024, "{:?}", doubts),
        }
    }
}
