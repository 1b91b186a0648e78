//! The policy for pools allows what is called, and nothing else.

use std::collections::BTreeSet;

use serde_json::Value;
use spot_aws::Action;

use crate::double::allowed_to_pools;

/// Rights that no call of ours needs, but EC2 asks for behind one of ours.
const BEHIND: [&str; 2] = ["ec2:CreateTags", "iam:PassRole"];

fn statements() -> Vec<Value> {
    let policy = include_str!("../../../deploy/iam/spot-fleet.json");
    let policy =
        policy.replace("CLUSTER_NAME", "prod").replace("FLEET_ROLE", "fleets").replace("MACHINE_ROLE", "nodes");
    let mut policy: Value = serde_json::from_str(&policy).unwrap();
    std::mem::take(policy["Statement"].as_array_mut().unwrap())
}

#[test]
fn the_policy_allows_exactly_the_calls_that_are_made_and_what_is_asked_for_behind_them() {
    let of_pools = Action::ALL.into_iter().filter(|action| action.policy() == "deploy/iam/spot-fleet.json");
    let made: BTreeSet<_> = of_pools.map(Action::right).chain(BEHIND).map(str::to_owned).collect();
    assert_eq!(allowed_to_pools(), made);
}

#[test]
fn what_changes_something_is_limited_by_tag_or_role() {
    for statement in statements() {
        let limits = format!("{}{}", statement["Resource"], statement["Condition"]);
        for action in statement["Action"].as_array().unwrap() {
            let action = action.as_str().unwrap();
            let writes = Action::ALL.into_iter().find(|known| known.right() == action).is_none_or(Action::is_write);
            let launches = statement["Sid"] == "LaunchFromWhatIsThere";
            let by_tag = limits.contains("kubernetes.io/cluster/prod");
            let by_role = limits.contains("role/fleets") || limits.contains("role/aws-service-role/spot");
            assert!(!action.contains('*') && writes == (by_tag || by_role || launches), "{action}: {limits}");
        }
    }
}

/// What a dry run of `RunInstances` is asked for beside what it makes, where it asks for spot instances.
#[test]
fn a_machine_may_be_launched_as_a_spot_instance() {
    let launches = |statement: &&Value| statement["Action"].as_array().unwrap().contains(&"ec2:RunInstances".into());
    let statements = statements();
    let resources: Vec<_> =
        statements.iter().filter(launches).flat_map(|one| one["Resource"].as_array().unwrap()).collect();
    let kinds = ["image", "instance", "key-pair", "launch-template", "network-interface", "security-group", "snapshot"];
    for kind in kinds.into_iter().chain(["spot-instances-request", "subnet", "volume"]) {
        assert!(resources.iter().any(|one| one.as_str().unwrap().ends_with(&format!(":{kind}/*"))), "{kind}");
    }
}

#[test]
fn what_is_only_launched_from_is_not_what_is_launched() {
    let statement = statements().into_iter().find(|one| one["Sid"] == "LaunchFromWhatIsThere").unwrap();
    for resource in statement["Resource"].as_array().unwrap() {
        let resource = resource.as_str().unwrap();
        assert!(!["instance/", "volume/", "fleet", "*:*"].iter().any(|made| resource.ends_with(made)), "{resource}");
    }
}
