//! What is refused before anything is touched.

use std::sync::Arc;

use spot_aws::Identity;
use spot_core::capacity::Class;
use spot_core::claim::{InstanceId, Machine};
use spot_core::cloud::Freshness;
use spot_core::error::ErrorClass;
use spot_core::node::ClaimAnnotation;
use spot_core::reason::ReasonKind;

use crate::double::Fault;
use crate::support::{World, claim, class, id, kinds, node, settings, uid};

const NONE: [ReasonKind; 0] = [];

#[tokio::test(start_paused = true)]
async fn a_node_of_a_group_with_room_is_not_refused() {
    let world = World::of_group(4, 1);
    let fact = world.fact(2).await;
    assert_eq!((fact.class, kinds(&fact)), (Class::OnDemand, vec![]));
    assert_eq!(fact.machine, Some(Machine::Instance(InstanceId::new(id(2)))));
    let group = fact.group.unwrap();
    assert_eq!((group.id.as_str(), group.desired, group.floor, group.weight), ("od", 4, 1, 1));
    assert!(world.aws.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn rb_02_a_groups_sizes_are_known_before_anything_is_touched() {
    let world = World::of_group(3, 3);
    let group = world.fact(1).await.group.unwrap();
    assert_eq!((group.desired, group.floor), (3, 3), "the judgement refuses: group_at_minimum");
}

#[tokio::test(start_paused = true)]
async fn a_departing_member_has_left_its_groups_room() {
    let mut world = World::of_group(3, 1);
    let departing = claim(2, Machine::Instance(InstanceId::new(id(2))));
    world.change_node(2, |node| node.claim = ClaimAnnotation::Valid(Box::new(departing)));
    let facts = world.survey(&[1]).await;
    assert_eq!(facts.of(uid(1).as_str()).unwrap().group.as_ref().unwrap().desired, 2);
    world.change_group("od", |group| {
        group.desired = 2;
        group.members.get_mut(&id(2)).unwrap().state = "Terminating:Wait";
    });
    let facts = world.survey(&[1]).await;
    assert_eq!(facts.of(uid(1).as_str()).unwrap().group.as_ref().unwrap().desired, 2, "not subtracted twice");
}

#[tokio::test(start_paused = true)]
async fn rb_44_each_protection_refuses_its_own_instance_only() {
    let world = World::of_group(3, 0);
    world.change_group("od", |group| group.members.get_mut(&id(1)).unwrap().protected = true);
    world.change_instance(2, |instance| instance.protected = true);
    let facts = world.survey(&[1, 2, 3]).await;
    let refusals = |number| kinds(facts.of(uid(number).as_str()).unwrap());
    assert_eq!(refusals(1), [ReasonKind::ScaleInProtected]);
    assert_eq!(refusals(2), [ReasonKind::TerminationProtected]);
    assert_eq!(refusals(3), NONE);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_not_in_service_is_refused() {
    let world = World::of_group(4, 0);
    for (number, state) in [(1, "Pending:Wait"), (2, "Standby"), (3, "Terminating:Wait")] {
        world.change_group("od", |group| group.members.get_mut(&id(number)).unwrap().state = state);
    }
    world.change_instance(4, |instance| instance.state = "stopping");
    for number in 1..=4 {
        assert_eq!(world.refusals(number).await, [ReasonKind::InstanceInTransition], "node {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mixed_group_that_would_buy_on_demand_again_refuses() {
    // Of 4, of which 2 are on demand: base, percentage, whether one on-demand member may go.
    for (base, percentage, may_go) in [(1, 0, true), (2, 0, false), (0, 50, false), (0, 30, true), (1, 30, false)] {
        let mut world = World::new();
        world.on_demand(1).on_demand(2).add(3, Some("spot")).add(4, Some("spot"));
        world.group("mixed", &[1, 2, 3, 4], 0);
        world.change_group("mixed", |group| group.mix = Some((base, percentage)));
        let expected = if may_go { vec![] } else { vec![ReasonKind::MixedOnDemandBase] };
        assert_eq!(world.refusals(1).await, expected, "base {base}, {percentage} %");
        assert_eq!(kinds(world.survey(&[]).await.of(uid(1).as_str()).unwrap()), expected, "and so it is not chosen");
        assert_eq!(world.refusals(3).await, NONE, "a spot member may always go");
        if may_go {
            world.delete(1).await.unwrap();
            world.pass(180).await;
            world.assert_nothing_else_happened();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_as_many_may_go_as_the_mix_allows() {
    let mut world = World::new();
    world.on_demand(1).on_demand(2).on_demand(3).add(4, Some("spot")).group("mixed", &[1, 2, 3, 4], 0);
    world.change_group("mixed", |group| group.mix = Some((1, 25)));
    let facts = world.survey(&[1, 2, 3]).await;
    let refusals = [1, 2, 3].map(|number| kinds(facts.of(uid(number).as_str()).unwrap()));
    assert_eq!(refusals, [vec![], vec![ReasonKind::MixedOnDemandBase], vec![ReasonKind::MixedOnDemandBase]]);
}

/// Nodes 1 to 3 in zone a, 4 and 5 in zone b.
fn two_zones() -> World {
    let mut world = World::new();
    for number in 1..=5 {
        world.on_demand(number);
        let zone = if number <= 3 { "eu-west-1a" } else { "eu-west-1b" };
        world.change_instance(number, |instance| zone.clone_into(&mut instance.zone));
    }
    world.group("od", &[1, 2, 3, 4, 5], 0);
    world
}

#[tokio::test(start_paused = true)]
async fn a_group_that_would_balance_its_zones_gives_from_the_fuller_one() {
    let world = two_zones();
    assert_eq!(world.refusals(4).await, [ReasonKind::ZoneRebalance]);
    assert_eq!(world.refusals(1).await, NONE);
    for number in [1, 2, 4, 3, 5] {
        world.delete(number).await.unwrap();
        world.pass(120).await;
    }
    world.assert_nothing_else_happened();
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_as_many_may_go_as_leave_the_zones_in_balance() {
    let world = two_zones();
    let facts = world.survey(&[1, 2, 3]).await;
    let refusals = [1, 2, 3].map(|number| kinds(facts.of(uid(number).as_str()).unwrap()));
    assert_eq!(refusals, [vec![], vec![], vec![ReasonKind::ZoneRebalance]]);
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_each_may_go_whichever_of_the_others_went_before() {
    // The nodes in zone a, those in zone b, all in order of preference, and who of them may go.
    let batches: [(&[u32], &[u32], &[u32]); 4] = [
        // Of b one may go only after one of a.
        (&[1, 2, 3], &[4, 5], &[1, 2]),
        // Two of a leave it too small while b is full; one of each does not.
        (&[1, 2], &[3, 4], &[1, 3]),
        (&[3, 4], &[1, 2], &[1, 3]),
        (&[1, 2], &[3], &[1, 2]),
    ];
    for (a, b, may_go) in batches {
        let build = || {
            let mut world = World::new();
            let all: Vec<u32> = (1..).take(a.len() + b.len()).collect();
            for number in &all {
                world.on_demand(*number);
                let zone = if a.contains(number) { "eu-west-1a" } else { "eu-west-1b" };
                world.change_instance(*number, |instance| zone.clone_into(&mut instance.zone));
            }
            world.group("od", &all, 0);
            (world, all)
        };
        let (world, all) = build();
        let facts = world.survey(&all).await;
        let free = |number: &&u32| facts.of(uid(**number).as_str()).unwrap().refusals.is_empty();
        assert_eq!(all.iter().filter(free).copied().collect::<Vec<_>>(), may_go, "{a:?} {b:?}");
        for at in 0..may_go.len() {
            let (world, _) = build();
            let mut order = may_go.to_vec();
            order.rotate_left(at);
            for number in order {
                world.delete(number).await.unwrap();
                world.pass(60).await;
            }
            world.assert_nothing_else_happened();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_does_not_balance_its_zones_gives_from_any() {
    let world = two_zones();
    world.change_group("od", |group| group.suspended.push("AZRebalance".to_owned()));
    assert_eq!(world.refusals(4).await, NONE);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_being_rolled_is_left_alone() {
    let world = World::of_group(3, 0);
    for (status, refused) in [("Pending", true), ("InProgress", true), ("RollbackInProgress", true), ("Baking", true)] {
        world.change_group("od", |group| group.refresh = Some(status));
        assert_eq!(world.refusals(1).await.contains(&ReasonKind::GroupRefreshing), refused, "{status}");
    }
    for status in ["Successful", "Failed", "Cancelled", "RollbackSuccessful", "RollbackFailed"] {
        world.change_group("od", |group| group.refresh = Some(status));
        assert_eq!(world.refusals(1).await, NONE, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_managed_node_group_that_is_being_updated_is_left_alone() {
    let world = World::of_group(3, 0);
    world.change_group("od", |group| {
        let tags = [("eks:cluster-name", "prod"), ("eks:nodegroup-name", "workers")];
        group.tags.extend(tags.map(|(key, value)| (key.to_owned(), value.to_owned())));
    });
    let key = ("prod".to_owned(), "workers".to_owned());
    assert_eq!(world.refusals(1).await, NONE, "EKS does not know it");
    for (status, refusals) in [("ACTIVE", vec![]), ("UPDATING", vec![ReasonKind::GroupRefreshing])] {
        world.aws.state().node_groups.insert(key.clone(), status);
        assert_eq!(world.refusals(1).await, refusals, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_another_cluster_is_refused() {
    let tags: [(&str, &str, bool); 5] = [
        ("kubernetes.io/cluster/prod", "owned", true),
        ("kubernetes.io/cluster/prod", "shared", true),
        ("kubernetes.io/cluster/prod", "", false),
        ("kubernetes.io/cluster/test", "owned", false),
        ("Name", "prod", false),
    ];
    for (key, value, ours) in tags {
        let world = World::of_group(2, 0);
        world.change_instance(1, |instance| {
            instance.tags.remove("kubernetes.io/cluster/prod");
            instance.tags.insert(key.to_owned(), value.to_owned());
        });
        let expected = if ours { vec![] } else { vec![ReasonKind::WrongCluster] };
        assert_eq!(world.refusals(1).await, expected, "{key}={value}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_no_cluster_tag_is_required_none_is_needed() {
    let mut settings = settings();
    settings.require_cluster_tag = false;
    let mut world = World::with(settings);
    world.on_demand(1);
    world.change_instance(1, |instance| instance.tags.clear());
    assert_eq!(world.refusals(1).await, NONE);
}

#[tokio::test(start_paused = true)]
async fn rb_39_a_node_that_points_at_another_machine_is_refused() {
    let mut world = World::of_group(3, 0);
    // The control plane's, and a database server's.
    world.on_demand(8).aws.state().instances.insert(id(9), crate::support::instance(9, None));
    world.change_instance(9, |instance| instance.tags.clear());
    world.change_node(1, |node| node.provider_id = format!("aws:///eu-west-1a/{}", id(8)));
    world.change_node(2, |node| node.provider_id = format!("aws:///eu-west-1a/{}", id(9)));
    assert_eq!(world.refusals(1).await, [ReasonKind::IdentityMismatch, ReasonKind::ClaimedTwice]);
    assert_eq!(world.refusals(8).await, [ReasonKind::ClaimedTwice], "whose machine it is can't be told");
    assert_eq!(world.refusals(2).await, [ReasonKind::WrongCluster, ReasonKind::IdentityMismatch]);
    for number in [1, 2, 8] {
        let answer = world.delete_pointing(number).await;
        assert_eq!(class(&answer), ErrorClass::Permanent, "node {number}");
    }
    assert!(world.aws.writes().is_empty(), "nothing was deleted");
}

#[tokio::test(start_paused = true)]
async fn a_node_may_be_called_by_its_instance_id() {
    let mut world = World::of_group(2, 0);
    world.change_node(1, |node| node.name = id(1).into());
    assert_eq!(world.refusals(1).await, NONE);
    world.change_node(1, |node| node.name = "worker-7.corp".into());
    assert_eq!(world.refusals(1).await, [ReasonKind::IdentityMismatch]);
}

#[tokio::test(start_paused = true)]
async fn by_address_a_node_of_any_name_may_go() {
    for (identity, address, may_go) in [
        (Identity::Address, Some("10.0.0.1"), true),
        (Identity::Address, Some("10.0.0.2"), false),
        (Identity::Address, None, false),
        (Identity::Name, Some("10.0.0.1"), false),
    ] {
        let mut settings = settings();
        settings.identity = identity;
        let mut world = World::with(settings);
        world.on_demand(1);
        world.change_node(1, |node| {
            node.name = "worker-7.corp".into();
            node.internal_addresses.extend(address.map(str::to_owned));
        });
        let expected = if may_go { vec![] } else { vec![ReasonKind::IdentityMismatch] };
        assert_eq!(world.refusals(1).await, expected, "{identity:?}, {address:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_nodes_that_claim_one_instance_are_both_refused() {
    let mut world = World::of_group(2, 0);
    let mut twin = node(7);
    twin.provider_id = format!("aws:////{}", id(1));
    world.nodes.push(Arc::new(twin));
    assert_eq!(world.refusals(1).await, [ReasonKind::ClaimedTwice]);
    assert_eq!(world.refusals(2).await, NONE);
    assert_eq!(class(&world.delete(1).await), ErrorClass::Permanent, "remembered until the deletion");
    assert!(world.aws.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_counts_in_something_else_than_instances_is_refused() {
    let world = World::of_group(2, 0);
    world.change_group("od", |group| group.unit = Some("vcpu".to_owned()));
    assert_eq!(world.refusals(1).await, [ReasonKind::FractionalWeight]);
    world.change_group("od", |group| group.unit = Some("units".to_owned()));
    assert_eq!(world.refusals(1).await, NONE);
}

#[tokio::test(start_paused = true)]
async fn rb_52_an_instance_that_its_group_does_not_list_is_refused() {
    let world = World::of_group(3, 0);
    world.change_group("od", |group| {
        group.members.remove(&id(1));
    });
    for chosen in [&[][..], &[1]] {
        let facts = world.survey(chosen).await;
        assert_eq!(kinds(facts.of(uid(1).as_str()).unwrap()), [ReasonKind::InstanceInTransition]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_without_the_tag_is_known_by_its_group() {
    let world = World::of_group(3, 0);
    world.change_instance(1, |instance| drop(instance.tags.remove("aws:autoscaling:groupName")));
    assert_eq!(world.fact(1).await.group.unwrap().id, "od");
    world.delete(1).await.unwrap();
    world.pass(180).await;
    world.assert_nothing_else_happened();
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_asked_is_not_touched() {
    for action in [
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeAutoScalingInstances",
        "autoscaling:DescribeInstanceRefreshes",
        "ec2:DescribeInstanceAttribute",
    ] {
        let world = World::of_group(3, 0);
        world.aws.fail(action, Fault::Denied, u32::MAX);
        let fact = world.fact(1).await;
        assert_eq!(fact.class, Class::OnDemand, "{action}: its class is known all the same");
        assert_eq!(kinds(&fact), [ReasonKind::CloudUnreachable], "{action}");
        assert!(fact.refusals[0].to_string().contains(action), "{}", fact.refusals[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named_with_the_place_of_the_policy() {
    let world = World::of_group(1, 0);
    world.aws.fail("ec2:DescribeInstances", Fault::Denied, u32::MAX);
    let answer = world.try_survey(&[], Freshness::Cached).await;
    assert_eq!(class(&answer), ErrorClass::Denied);
    let words = answer.unwrap_err().to_string();
    assert!(words.contains("ec2:DescribeInstances") && words.contains("deploy/iam/spot-migrator.json"), "{words}");
    world.aws.fail("ec2:DescribeInstances", Fault::Expired, u32::MAX);
    let answer = world.try_survey(&[], Freshness::Cached).await;
    assert_eq!(class(&answer), ErrorClass::Denied);
    let words = answer.unwrap_err().to_string();
    assert!(words.contains("credentials") && words.contains("expired"), "{words}");
}
