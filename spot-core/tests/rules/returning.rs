//! Whether what was announced of a node is over.

use std::time::Duration;

use jiff::SignedDuration;
use proptest::prelude::*;
use spot_core::claim::{Claim, ClaimStep, Owner};
use spot_core::interruption::returning::{OVERDUE, Returning, SOFT_FOR, hardening, returning, softening};
use spot_core::node::{ClaimAnnotation, Effect, NodeSnapshot, Readiness, Taint, key};
use spot_core::ports::NodeChange;

use crate::support::build::{claim, node, noon};
use crate::support::config;

fn secs(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

const MARKED: (&str, &str) = (key::SELECTED, "true");

/// A node that was claimed at noon, since its machine goes two minutes later.
fn claimed() -> (NodeSnapshot, Claim) {
    let claim = Claim {
        owner: Owner::Interruption,
        since: noon(),
        until: Some(noon() + secs(120)),
        taint: Some("1770000000".to_owned()),
        ..claim("spot-1", ClaimStep::Draining)
    };
    let mut node = NodeSnapshot {
        boot_id: claim.boot_id.clone(),
        unschedulable: true,
        claim: ClaimAnnotation::Valid(Box::new(claim.clone())),
        ready_since: Some(noon() - secs(3_600)),
        taints: vec![Taint::new(key::TO_BE_DELETED, "1770000000", Effect::NoSchedule)],
        ..node("spot-1")
    };
    node.labels.insert(MARKED.0.to_owned(), MARKED.1.to_owned());
    (node, claim)
}

fn is_back(node: &NodeSnapshot, claim: &Claim, at: i64) -> bool {
    matches!(returning(node, claim, noon() + secs(at)), Returning::Yes(_))
}

#[test]
fn a_machine_that_has_booted_again_is_back_as_soon_as_its_node_is_ready() {
    let (node, claim) = claimed();
    let booted = NodeSnapshot { boot_id: "another".to_owned(), ..node };
    assert!(is_back(&booted, &claim, 30));
    let silent = Readiness::Unreachable { since: noon() };
    assert!(!is_back(&NodeSnapshot { readiness: silent, ready_since: None, ..booted.clone() }, &claim, 30));
    assert!(!is_back(&NodeSnapshot { deleting_since: Some(noon()), ..booted }, &claim, 30));
}

#[test]
fn a_machine_that_went_on_is_back_when_its_node_is_ready_again_after_its_time() {
    let (node, claim) = claimed();
    assert!(!is_back(&node, &claim, 300), "it was ready all the time: it may go yet");
    for early in [60, 120] {
        let flapped = NodeSnapshot { ready_since: Some(noon() + secs(early)), ..node.clone() };
        assert!(!is_back(&flapped, &claim, 121), "a kubelet that was late before its time tells nothing");
        let cordoned = Claim { until: None, ..claim.clone() };
        assert!(is_back(&flapped, &cordoned, early + 1), "without a time, the claim's own counts");
    }
    let again = NodeSnapshot { ready_since: Some(noon() + secs(121)), ..node };
    assert!(is_back(&again, &claim, 121));
}

#[test]
fn the_cloud_is_asked_when_a_machine_ought_to_be_gone_for_long() {
    let (node, claim) = claimed();
    let overdue = 120 + i64::try_from(OVERDUE.as_secs()).unwrap();
    assert_eq!(returning(&node, &claim, noon() + secs(overdue - 1)), Returning::No);
    assert_eq!(returning(&node, &claim, noon() + secs(overdue)), Returning::AskCloud);
    let silent = NodeSnapshot { readiness: Readiness::Unreachable { since: noon() }, ready_since: None, ..node };
    assert_eq!(returning(&silent, &claim, noon() + secs(overdue)), Returning::No);
}

#[test]
fn what_a_person_took_back_is_released_and_what_an_autoscaler_took_off_is_not() {
    let (node, claim) = claimed();
    assert!(!is_back(&node, &claim, 30));
    assert!(is_back(&NodeSnapshot { unschedulable: false, ..node.clone() }, &claim, 30));
    let autoscaler = NodeSnapshot { unschedulable: false, taints: Vec::new(), ..node.clone() };
    assert!(!is_back(&autoscaler, &claim, 30));
    let mut unmarked = node;
    unmarked.labels.remove(key::SELECTED);
    assert!(is_back(&unmarked, &claim, 30));
}

#[test]
fn the_soft_taint_goes_when_nothing_followed_and_other_taints_stay() {
    let plain = NodeSnapshot { taints: vec![Taint::new("gpu", "", Effect::NoSchedule)], ..node("spot-1") };
    let taints = softening(&plain, noon()).taints.expect("it is put on");
    let soft = NodeSnapshot { taints, ..plain.clone() };
    assert_eq!(softening(&soft, noon() + secs(60)), NodeChange::default(), "once");
    let over = noon() + secs(i64::try_from(SOFT_FOR.as_secs()).unwrap());
    assert_eq!(hardening(&soft, over - secs(1)), NodeChange::default());
    assert_eq!(hardening(&soft, over).taints, Some(plain.taints.clone()));
    assert_eq!(hardening(&plain, over), NodeChange::default());
    for odd in ["", "soon", "99999999999"] {
        let taint = Taint::new(key::REBALANCE, odd, Effect::PreferNoSchedule);
        let odd = NodeSnapshot { taints: vec![taint], ..plain.clone() };
        assert_eq!(hardening(&odd, noon()).taints, Some(Vec::new()), "nobody else takes it off");
    }
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn a_soft_taint_is_on_for_as_long_and_no_longer(put_on in -100_000_i64..100_000, later in 0_i64..10_000) {
        let at = noon() + secs(put_on);
        let taints = softening(&node("spot-1"), at).taints.unwrap();
        let soft = NodeSnapshot { taints, ..node("spot-1") };
        let goes = hardening(&soft, at + secs(later)) != NodeChange::default();
        prop_assert_eq!(goes, Duration::from_secs(later.unsigned_abs()) >= SOFT_FOR);
    }
}
