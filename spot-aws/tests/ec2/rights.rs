//! The policy that is shipped allows what is called, and nothing else; and what `check` finds.

use std::collections::BTreeSet;

use serde_json::Value;
use spot_aws::{Action, AwsSettings};
use spot_core::error::ErrorClass;

use crate::double::{Balancer, Fault, Fleet, allowed};
use crate::support::{World, id, secs, settings};

#[test]
fn the_policy_allows_exactly_the_calls_that_are_made() {
    let of_provider = Action::ALL.into_iter().filter(|action| action.policy() == "deploy/iam/spot-migrator.json");
    let made: BTreeSet<_> = of_provider.map(|action| action.right().to_owned()).collect();
    assert_eq!(allowed(), made);
}

/// The statements of the policy for the cluster `prod`.
fn statements() -> Vec<Value> {
    let policy = include_str!("../../../deploy/iam/spot-migrator.json").replace("CLUSTER_NAME", "prod");
    let mut policy: Value = serde_json::from_str(&policy).unwrap();
    std::mem::take(policy["Statement"].as_array_mut().unwrap())
}

/// The text, or texts, of a value.
fn texts(value: &Value) -> Vec<&str> {
    value.as_str().into_iter().chain(value.as_array().into_iter().flatten().filter_map(Value::as_str)).collect()
}

/// Whether a text is as a pattern says, in which a star stands for anything.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text
            .strip_prefix(start)
            .is_some_and(|text| (0..=text.len()).any(|at| text.get(at..).is_some_and(|text| is_like(rest, text)))),
    }
}

/// Whether the policy allows to do this to a resource with this one tag.
fn allows(action: &str, resource: &str, (key, value): (&str, &str)) -> bool {
    statements().iter().any(|statement| {
        let condition = statement["Condition"]["StringEquals"].as_object();
        let is_met = |(tag, values): (&String, &Value)| {
            tag.strip_prefix("aws:ResourceTag/") == Some(key) && texts(values).contains(&value)
        };
        texts(&statement["Action"]).contains(&action)
            && texts(&statement["Resource"]).iter().any(|pattern| is_like(pattern, resource))
            && condition.is_none_or(|condition| condition.iter().all(is_met))
    })
}

#[test]
fn an_instance_is_taken_out_of_load_balancers_of_the_cluster_and_of_no_other() {
    let cases = [
        ("web", ("kubernetes.io/cluster/prod", "owned"), true),
        ("web", ("kubernetes.io/cluster/prod", "shared"), true),
        ("web", ("elbv2.k8s.aws/cluster", "prod"), true),
        ("prod-web", ("team", "web"), true),
        ("web", ("team", "web"), false),
        ("web", ("kubernetes.io/cluster/test", "owned"), false),
        ("web", ("elbv2.k8s.aws/cluster", "test"), false),
        ("product", ("team", "web"), false),
    ];
    for (name, tag, expected) in cases {
        let arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012";
        let group = format!("{arn}:targetgroup/{name}/6d0ecf831eec9f09");
        assert_eq!(allows(Action::DeregisterTargets.right(), &group, tag), expected, "{group} {tag:?}");
        let classic = format!("{arn}:loadbalancer/{name}");
        let action = Action::DeregisterInstancesFromLoadBalancer.right();
        assert_eq!(allows(action, &classic, tag), expected, "{classic} {tag:?}");
    }
}

#[test]
fn what_changes_something_is_limited_to_what_is_the_clusters() {
    for statement in statements() {
        let limited = format!("{}{}", statement["Resource"], statement["Condition"]).contains("prod");
        for action in statement["Action"].as_array().unwrap() {
            let action = action.as_str().unwrap();
            let known = Action::ALL.into_iter().find(|known| known.right() == action).unwrap();
            assert!(!action.contains('*') && known.is_write() == limited, "{action}");
        }
    }
}

/// The rights of the policy that can't be asked for without using them: neither Auto Scaling nor load balancing has dry
/// runs, nor have Spot Fleets. A made-up name asks nothing: the policy allows them on what bears the cluster's tag alone.
const UNASKED: [Action; 6] = [
    Action::ModifySpotFleetRequest,
    Action::TerminateInstanceInAutoScalingGroup,
    Action::DeregisterInstancesFromLoadBalancer,
    Action::DeregisterTargets,
    Action::RegisterInstancesWithLoadBalancer,
    Action::RegisterTargets,
];

/// A group of EKS, fleets of both kinds, and balancers of both.
fn of_everything() -> World {
    let world = World::of_group(3, 0);
    world.change_group("od", |group| {
        let tags = [("eks:cluster-name", "prod"), ("eks:nodegroup-name", "workers")];
        group.tags.extend(tags.map(|(key, value)| (key.to_owned(), value.to_owned())));
    });
    let mut state = world.aws.state();
    for id in ["fleet-1", "sfr-1"] {
        let tags = [("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned())].into();
        state.fleets.insert(id.to_owned(), Fleet { target: 3, tags, ..Fleet::maintaining() });
    }
    state.target_groups.insert("arn:web".to_owned(), Balancer::default());
    state.classic.insert("web".to_owned(), Balancer::default());
    drop(state);
    world
}

#[tokio::test(start_paused = true)]
async fn check_asks_for_every_right_that_can_be_asked_for_without_changing_anything() {
    let world = of_everything();
    let checked = world.provider.check(world.by(60)).await;
    assert!(checked.iter().all(|one| one.outcome.is_ok()), "{checked:?}");
    assert!(world.aws.writes().is_empty());
    assert_eq!(world.aws.state().fleets["fleet-1"].target, 3);
    let told: BTreeSet<_> = checked.iter().map(|one| one.action.right().to_owned()).collect();
    assert_eq!(told.len(), checked.len(), "each is told once: {checked:?}");
    assert_eq!(told, world.aws.actions(), "what is told was asked");
    let unasked = UNASKED.map(|action| action.right().to_owned()).into();
    assert!(told.is_disjoint(&unasked));
    assert_eq!(&told | &unasked, allowed());
    assert!(UNASKED.iter().all(|action| action.is_write()), "every read is asked for");
}

#[tokio::test(start_paused = true)]
async fn a_run_can_do_without_what_not_every_cluster_needs_and_without_nothing_else() {
    let world = of_everything();
    let checked = world.provider.check(world.by(60)).await;
    let dispensable: BTreeSet<_> = checked.iter().filter(|one| one.dispensable).map(|one| one.action).collect();
    let expected = [
        Action::DescribeFleets,
        Action::DescribeFleetInstances,
        Action::ModifyFleet,
        Action::DescribeSpotFleetRequests,
        Action::DescribeSpotFleetInstances,
        Action::DescribeNodegroup,
        Action::DescribeSpotPriceHistory,
        Action::DescribeLifecycleHooks,
    ];
    assert_eq!(dispensable, expected.into());
}

#[tokio::test(start_paused = true)]
async fn check_asks_about_nothing_that_is_not_there() {
    let mut world = World::new();
    world.on_demand(1);
    let checked = world.provider.check(world.by(60)).await;
    assert!(checked.iter().all(|one| one.outcome.is_ok()), "{checked:?}");
    let asked: Vec<_> = checked.iter().map(|one| one.action).collect();
    let expected = [
        Action::DescribeInstances,
        Action::DescribeInstanceAttribute,
        Action::TerminateInstances,
        Action::DescribeAutoScalingInstances,
        Action::DescribeAutoScalingGroups,
        Action::DescribeFleets,
        Action::DescribeSpotFleetRequests,
        Action::DescribeTargetGroups,
        Action::DescribeLoadBalancers,
        Action::DescribeSpotPriceHistory,
    ];
    assert_eq!(asked, expected);
}

#[tokio::test(start_paused = true)]
async fn what_goes_before_it_is_asked_about_is_no_want_of_a_right() {
    for action in [
        Action::DescribeInstanceRefreshes,
        Action::DescribeLifecycleHooks,
        Action::DescribeNodegroup,
        Action::DescribeFleetInstances,
        Action::ModifyFleet,
        Action::DescribeSpotFleetInstances,
        Action::DescribeTags,
        Action::DescribeTargetHealth,
        Action::DescribeInstanceHealth,
    ] {
        let world = of_everything();
        world.aws.fail(action.right(), Fault::Gone, 1);
        let checked = world.provider.check(world.by(60)).await;
        assert!(checked.iter().all(|one| one.outcome.is_ok()), "{action}: {checked:?}");
        assert_eq!(world.aws.count(action.right()), 1, "{action}");
    }
}

/// What became of the question whether instances may be terminated; none: it was not asked.
async fn terminating(world: &World) -> Option<Result<(), ErrorClass>> {
    let checked = world.provider.check(world.by(60)).await;
    let asked = checked.into_iter().find(|one| one.action == Action::TerminateInstances)?;
    assert!(!asked.dispensable);
    Some(asked.outcome.map_err(|error| error.class))
}

#[tokio::test(start_paused = true)]
async fn check_has_ec2_say_whether_it_would_terminate_an_instance_and_terminates_none() {
    let world = World::of_group(1, 0);
    assert_eq!(terminating(&world).await, Some(Ok(())));
    world.change_instance(1, |instance| instance.protected = true);
    assert_eq!(terminating(&world).await, Some(Ok(())), "that is no want of a right");
    world.aws.fail("ec2:TerminateInstances", Fault::Denied, 1);
    assert_eq!(terminating(&world).await, Some(Err(ErrorClass::Denied)));
    assert!(world.aws.writes().is_empty());
    assert_eq!(world.aws.state().instances[&id(1)].state, "running");
}

#[tokio::test(start_paused = true)]
async fn check_outlasts_a_read_that_fails_again_and_again() {
    for fault in Fault::PASSING {
        let world = World::of_group(3, 0);
        world.aws.fail("autoscaling:DescribeAutoScalingGroups", fault, 5);
        let checked = world.provider.check(world.by(60)).await;
        assert!(checked.iter().all(|one| one.outcome.is_ok()), "{fault:?}: {checked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn check_finds_that_no_instance_is_tagged_for_the_cluster() {
    for required in [true, false] {
        let mut world = World::with(AwsSettings { require_cluster_tag: required, ..settings() });
        world.on_demand(1).on_demand(2);
        world.change_instance(1, |instance| instance.tags.retain(|key, _| !key.starts_with("kubernetes.io/cluster/")));
        world.change_instance(2, |instance| instance.state = "terminated");
        let checked = world.provider.check(world.by(60)).await;
        assert!(checked.iter().all(|one| one.action != Action::TerminateInstances), "there is none to ask about");
        let described = checked.into_iter().find(|one| one.action == Action::DescribeInstances).unwrap();
        match described.outcome {
            Ok(()) => assert!(!required),
            Err(error) => {
                assert!(required && error.class == ErrorClass::Permanent);
                let expected = "no instance of region eu-west-1 is tagged for cluster prod: look at \
                                `cloudProvider.aws.region` and `cloudProvider.aws.clusterName`";
                assert_eq!(error.to_string(), expected);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn check_names_each_right_that_is_missing_and_tells_it_from_what_may_pass() {
    for (fault, class) in [
        (Fault::Denied, ErrorClass::Denied),
        (Fault::Expired, ErrorClass::Denied),
        (Fault::ServerError, ErrorClass::Transient),
        (Fault::Hang, ErrorClass::Timeout),
    ] {
        for failing in Action::ALL.into_iter().filter(|action| allowed().contains(action.right())) {
            if UNASKED.contains(&failing) {
                continue;
            }
            let world = of_everything();
            world.aws.fail(failing.right(), fault, u32::MAX);
            let checked = world.provider.check(world.clock_at(secs(600))).await;
            let failed = checked.iter().filter_map(|one| Some((one.action, one.outcome.as_ref().err()?.class)));
            assert_eq!(failed.collect::<Vec<_>>(), [(failing, class)], "{fault:?}: {checked:?}");
        }
    }
}
