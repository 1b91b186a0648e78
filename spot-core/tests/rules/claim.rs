//! Claims: whose they are, how far they have come, and how long a node is left alone after one failed.

use proptest::prelude::*;
use spot_core::NodeSnapshot;
use spot_core::claim::{BackOff, Claim, ClaimRecord, ClaimStep, InstanceId, Owner};
use spot_core::node::{ClaimAnnotation, Node};

use crate::support::build::{annotated, claim, node, noon, secs, uid};
use crate::support::config;

#[test]
fn owners_are_read_back_as_they_were_written() {
    let table = [
        (Owner::Migrator, "migrator"),
        (Owner::Interruption, "interruption"),
        (Owner::Fleet("batch".to_owned()), "fleet:batch"),
        (Owner::Fleet("migrator".to_owned()), "fleet:migrator"),
        (Owner::Fleet("a:b".to_owned()), "fleet:a:b"),
    ];
    for (owner, text) in table {
        assert_eq!(owner.to_string(), text);
        assert_eq!(Owner::parse(text), Some(owner));
    }
    for text in ["", "fleet", "fleet:", "Migrator", "migrator ", "pool:batch"] {
        assert_eq!(Owner::parse(text), None, "{text:?}");
    }
}

#[test]
fn steps_are_read_back_as_they_were_written_and_follow_the_work() {
    assert!(ClaimStep::ALL.is_sorted());
    assert_eq!(ClaimStep::ALL.map(ClaimStep::as_str), ["draining", "tainted", "deleting"]);
    for step in ClaimStep::ALL {
        assert_eq!(ClaimStep::parse(step.as_str()), Some(step));
        assert_eq!(claim("od-1", step).is_departing(), step == ClaimStep::Deleting);
    }
    assert_eq!(ClaimStep::parse("Draining"), None);
    assert_eq!(ClaimStep::parse(""), None);
}

#[test]
fn an_instance_goes_by_the_name_that_the_cloud_gave_it() {
    let instance = InstanceId::new("i-0abc");
    assert_eq!(instance.as_str(), "i-0abc");
    assert_eq!(instance.to_string(), "i-0abc");
}

#[test]
fn rb_08_a_record_counts_only_on_the_very_node_it_was_written_for() {
    let own = claim("od-1", ClaimStep::Draining);
    let on_node = |record| NodeSnapshot { claim: record, ..node("od-1") };
    let found = |record| on_node(record).claim().of("uid-od-1").cloned();
    assert_eq!(found(annotated(own.clone())), Some(own.clone()));
    assert_eq!(found(annotated(Claim { node: uid("n2"), ..own })), None);
    assert_eq!(found(ClaimAnnotation::Absent), None);
    assert_eq!(found(ClaimAnnotation::Unreadable("no JSON".to_owned())), None);
    assert_eq!(on_node(ClaimAnnotation::Unreadable(String::new())).claim(), ClaimRecord::Unreadable);
}

#[test]
fn a_back_off_doubles_with_each_failure_up_to_its_cap() {
    let mut back_off = None;
    for hours in [1, 2, 4, 8, 16, 24, 24] {
        let next = BackOff::after(back_off, noon(), secs(3_600), secs(86_400));
        assert_eq!(next.until, noon() + secs(hours * 3_600));
        assert_eq!(next.count, back_off.map_or(1, |previous| previous.count + 1));
        back_off = Some(next);
    }
    let long_ago = BackOff { until: noon() - secs(9), count: 1 };
    assert_eq!(BackOff::after(Some(long_ago), noon(), secs(10), secs(99)).until, noon() + secs(20));
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn a_pools_owner_is_read_back_whatever_its_name(pool in ".{1,20}") {
        let owner = Owner::Fleet(pool);
        prop_assert_eq!(Owner::parse(&owner.to_string()), Some(owner));
    }

    #[test]
    fn a_back_off_is_never_shorter_than_the_last_nor_longer_than_its_cap(
        count in prop_oneof![0_u32..80, Just(u32::MAX)],
        initial in 1_u64..10_000,
        max in 1_u64..1_000_000_000_000,
    ) {
        let wait = |count| {
            let previous = BackOff { until: noon(), count };
            BackOff::after(Some(previous), noon(), secs(initial), secs(max)).until
        };
        prop_assert!(wait(count) <= wait(count.saturating_add(1)));
        prop_assert!(wait(count) > noon());
        if let Ok(capped) = noon().checked_add(secs(max)) {
            prop_assert!(wait(count) <= capped);
        }
    }
}
