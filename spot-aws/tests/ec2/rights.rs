//! The policy that is shipped allows what is called, and nothing else; and what `check` finds.

use std::collections::BTreeSet;

use spot_aws::Action;
use spot_core::error::ErrorClass;

use crate::double::{Fault, allowed};
use crate::support::{World, secs};

#[test]
fn the_policy_allows_exactly_the_calls_that_are_made() {
    let made: BTreeSet<_> = Action::ALL.into_iter().map(|action| action.right().to_owned()).collect();
    assert_eq!(allowed(), made);
}

#[test]
fn what_changes_something_is_limited_to_the_clusters_machines_or_to_load_balancers() {
    let policy: serde_json::Value =
        serde_json::from_str(include_str!("../../../deploy/iam/spot-migrator.json")).unwrap();
    for statement in policy["Statement"].as_array().unwrap() {
        let limited = statement["Resource"] != "*" || statement["Condition"].is_object();
        for action in statement["Action"].as_array().unwrap() {
            let action = action.as_str().unwrap();
            let known = Action::ALL.into_iter().find(|known| known.right() == action).unwrap();
            assert!(!action.contains('*') && known.is_write() == limited, "{action}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn check_asks_without_changing_anything() {
    let world = World::of_group(3, 0);
    let checked = world.provider.check(world.by(60)).await;
    assert!(checked.iter().all(|one| one.outcome.is_ok()), "{checked:?}");
    assert!(checked.len() >= 7 && world.aws.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn check_names_each_right_that_is_missing_and_tells_it_from_what_may_pass() {
    for (fault, class) in [
        (Fault::Denied, ErrorClass::Denied),
        (Fault::Expired, ErrorClass::Denied),
        (Fault::ServerError, ErrorClass::Transient),
        (Fault::Hang, ErrorClass::Timeout),
    ] {
        let world = World::of_group(1, 0);
        world.aws.fail("autoscaling:DescribeAutoScalingGroups", fault, u32::MAX);
        let checked = world.provider.check(world.clock_at(secs(600))).await;
        for one in checked {
            let expected = (one.action == Action::DescribeAutoScalingGroups).then_some(class);
            assert_eq!(one.outcome.err().map(|error| error.class), expected, "{fault:?}: {}", one.action);
        }
    }
}
