//! Classes, by EC2's word, and batches.

use std::sync::Arc;

use spot_core::capacity::Class;
use spot_core::claim::Machine;
use spot_core::cloud::Freshness;
use spot_core::node::key;
use spot_core::reason::ReasonKind;

use crate::double::{Fault, Fleet, tagged};
use crate::support::{World, class, id, kinds, node, uid};

fn label(world: &mut World, number: u32, key: &str, value: &str) {
    world.change_node(number, |node| {
        node.labels.insert(key.to_owned(), value.to_owned());
    });
}

#[tokio::test(start_paused = true)]
async fn rb_07_only_what_ec2_calls_on_demand_is_on_demand() {
    let mut world = World::new();
    for number in 1..=5 {
        world.add(number, Some("spot"));
    }
    world.on_demand(6);
    label(&mut world, 1, "eks.amazonaws.com/capacityType", "SPOT");
    label(&mut world, 2, "karpenter.sh/capacity-type", "spot");
    label(&mut world, 3, "node.kubernetes.io/lifecycle", "spot");
    label(&mut world, 5, "eks.amazonaws.com/capacityType", "ON_DEMAND");
    label(&mut world, 5, "karpenter.sh/capacity-type", "spot");
    label(&mut world, 6, "node.kubernetes.io/lifecycle", "spot");
    let facts = world.survey(&[]).await;
    for number in 1..=5 {
        assert_eq!(facts.class(uid(number).as_str()), Class::Spot, "node {number}");
    }
    assert_eq!(facts.class(uid(6).as_str()), Class::OnDemand, "whatever its labels say");
}

#[tokio::test(start_paused = true)]
async fn rb_07_a_node_that_ec2_does_not_know_goes_by_its_labels_and_may_not_go() {
    let mut world = World::new();
    world.nodes.extend([Arc::new(node(1)), Arc::new(node(2))]);
    label(&mut world, 1, "node.kubernetes.io/lifecycle", "on-demand");
    let facts = world.survey(&[]).await;
    assert_eq!(facts.class(uid(1).as_str()), Class::OnDemand);
    assert_eq!(facts.class(uid(2).as_str()), Class::Unknown);
    for number in [1, 2] {
        assert_eq!(kinds(facts.of(uid(number).as_str()).unwrap()), [ReasonKind::IdentityMismatch]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_paid_for_in_advance_is_reserved() {
    let mut world = World::new();
    world.add(1, Some("scheduled")).add(2, Some("capacity-block")).add(3, Some("interruptible-capacity-reservation"));
    world.on_demand(4).add(5, Some("something-new"));
    world.change_instance(4, |instance| instance.reservation = Some("cr-1".to_owned()));
    let facts = world.survey(&[]).await;
    for number in 1..=4 {
        assert_eq!(facts.class(uid(number).as_str()), Class::Reserved, "node {number}");
    }
    assert_eq!(facts.class(uid(5).as_str()), Class::Unknown, "a word that nobody knows yet is no guess");
}

#[tokio::test(start_paused = true)]
async fn rb_24_one_odd_provider_id_concerns_no_other_node() {
    let mut world = World::of_group(3, 0);
    let odd = [
        "aws:///eu-west-1b/4f0c3f8a1e-1f1a/fargate-ip-10-0-0-9.eu-west-1.compute.internal",
        "eks-hybrid:///eu-west-1/prod/mi-0123456789abcdef0",
        "kind://docker/kind/kind-worker",
        "",
        "aws:///eu-west-1a/i-not-an-id",
        "aws:///eu-west-1a/i-0123456789abcdef0; drop table",
    ];
    for (number, provider_id) in (11..).zip(odd) {
        let mut node = node(number);
        node.provider_id = provider_id.to_owned();
        world.nodes.push(Arc::new(node));
    }
    world.change_node(3, |node| node.provider_id = format!("aws:////{}", id(3)));
    let facts = world.survey(&[1]).await;
    for number in 11..=16 {
        let fact = facts.of(uid(number).as_str()).unwrap();
        assert_eq!((kinds(fact), fact.machine.clone()), (vec![ReasonKind::UnsupportedProviderId], None));
    }
    for number in [1, 3] {
        let fact = facts.of(uid(number).as_str()).unwrap();
        assert_eq!((kinds(fact), fact.class), (vec![], Class::OnDemand), "node {number}");
    }
    let asked = world.aws.calls().into_iter().flat_map(|call| call.params.into_values());
    assert!(asked.into_iter().all(|value| !value.contains("fargate") && !value.contains("drop")));
}

#[tokio::test(start_paused = true)]
async fn rb_47_1200_nodes_are_classified_in_at_most_20_calls_with_ids_that_do_not_exist() {
    let mut world = World::new();
    for number in 1..=1200 {
        world.add(number, (number % 3 == 0).then_some("spot"));
    }
    for group in 0..30 {
        let members: Vec<u32> = (1..=30).map(|at| group * 30 + at).collect();
        world.group(&format!("group-{group}"), &members, 0);
    }
    // Each of the rest has a fleet, and a provisioner half of them.
    for number in 901..=1200 {
        let fleet = if number == 1200 { "sfr-1200".to_owned() } else { format!("fleet-{number}") };
        world.change_instance(number, |instance| instance.tags.extend([tagged(&fleet)]));
        let kind = if number > 1190 { "maintain" } else { "instant" };
        let fleet_of_one = Fleet { kind, target: 1, members: [id(number)].into(), ..Fleet::maintaining() };
        world.aws.state().fleets.insert(fleet, fleet_of_one);
        if number <= 1050 {
            label(&mut world, number, key::NODE_POOL, "pool");
        }
    }
    for number in [100, 600, 1100] {
        world.aws.state().instances.remove(&id(number));
    }
    let facts = world.survey(&[1, 2, 1198]).await;
    assert!(world.aws.calls().len() <= 20, "{} calls", world.aws.calls().len());
    let of = |class| (1..=1200).filter(|number| facts.class(uid(*number).as_str()) == class).count();
    assert_eq!((of(Class::Spot), of(Class::OnDemand), of(Class::Unknown)), (399, 798, 3));
    let kept = |number: u32| facts.of(uid(number).as_str()).unwrap().group.is_some();
    let fleets: Vec<_> = (901..=1200).filter(|number| kept(*number)).collect();
    assert_eq!(fleets, (1191..=1200).collect::<Vec<_>>(), "those that maintain keep");
    let before = world.aws.calls().len();
    world.survey(&[]).await;
    let asked = world.aws.calls().len() - before;
    assert!(
        asked <= 4,
        "cached, but for the instances that were not there and a look for those without a node: {asked}"
    );
    world.survey(&[1]).await;
    assert!(world.aws.calls().len() <= before + 12, "only what is chosen is asked for anew");
}

#[tokio::test(start_paused = true)]
async fn the_fleets_of_a_provisioners_nodes_are_not_asked_for() {
    let mut world = World::new();
    world.on_demand(1);
    world.change_instance(1, |instance| instance.tags.extend([tagged("fleet-1")]));
    label(&mut world, 1, key::NODE_POOL, "pool");
    world.survey(&[1]).await;
    assert_eq!(world.aws.count("ec2:DescribeFleets"), 0);
}

#[tokio::test(start_paused = true)]
async fn fleets_of_one_kind_are_known_page_by_page_though_those_of_the_other_are_not() {
    for (denied, known) in [("ec2:DescribeFleets", "sfr"), ("ec2:DescribeSpotFleetRequests", "fleet")] {
        let mut world = World::new();
        world.aws.state().page = 2;
        for number in 1..=10 {
            world.on_demand(number);
            let fleet = format!("{}-{number:02}", if number <= 5 { "fleet" } else { "sfr" });
            world.change_instance(number, |instance| instance.tags.extend([tagged(&fleet)]));
            let members = [id(number)].into();
            world.aws.state().fleets.insert(fleet, Fleet { target: 1, members, ..Fleet::maintaining() });
        }
        world.aws.fail(denied, Fault::Denied, u32::MAX);
        let facts = world.survey(&[]).await;
        for number in 1..=10 {
            let fact = facts.of(uid(number).as_str()).unwrap();
            let is_known = (number <= 5) == (known == "fleet");
            let expected = if is_known { vec![] } else { vec![ReasonKind::CloudUnreachable] };
            assert_eq!((kinds(fact), fact.group.is_some()), (expected, is_known), "{denied}: node {number}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rb_47_throttling_is_neither_spot_nor_gone() {
    let world = World::of_group(3, 0);
    world.aws.fail("ec2:DescribeInstances", Fault::Throttled, 3);
    world.aws.fail("autoscaling:DescribeAutoScalingGroups", Fault::Throttled, 3);
    let facts = world.survey(&[]).await;
    for number in 1..=3 {
        let fact = facts.of(uid(number).as_str()).unwrap();
        assert_eq!((fact.class, kinds(fact)), (Class::OnDemand, vec![]));
    }
    world.aws.fail("ec2:DescribeInstances", Fault::Throttled, u32::MAX);
    let answer = world.try_survey(&[], Freshness::Now).await;
    assert!(!class(&answer).had_no_effect(), "a survey that learnt nothing is an error, not an answer");
}

#[tokio::test(start_paused = true)]
async fn a_survey_learns_from_the_batches_that_are_answered() {
    let mut world = World::new();
    for number in 1..=300 {
        world.on_demand(number);
    }
    world.aws.fail("ec2:DescribeInstances", Fault::Denied, 1);
    let facts = world.survey(&[]).await;
    let silent = (1..=300).filter(|number| {
        let fact = facts.of(uid(*number).as_str()).unwrap();
        kinds(fact) == [ReasonKind::CloudUnreachable] && fact.class == Class::Unknown
    });
    assert_eq!(silent.count(), 200, "those of the first batch, and no other");
}

#[tokio::test(start_paused = true)]
async fn all_pages_are_read() {
    let mut world = World::of_group(30, 0);
    for group in 1..=5 {
        world.on_demand(100 + group);
        world.group(&format!("more-{group}"), &[100 + group], 0);
    }
    world.aws.state().page = 3;
    let facts = world.survey(&[]).await;
    for node in &world.nodes {
        let fact = facts.of(node.uid.as_str()).unwrap();
        assert!(fact.class == Class::OnDemand && fact.group.is_some() && fact.refusals.is_empty(), "{fact:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_kept_for_a_while_and_asked_for_anew_on_demand() {
    let world = World::of_group(3, 0);
    world.survey(&[]).await;
    let calls = world.aws.calls().len();
    world.survey(&[]).await;
    assert_eq!(world.aws.calls().len(), calls, "all of it is known");
    world.try_survey(&[], Freshness::Now).await.unwrap();
    let anew = world.aws.calls().len() - calls;
    // All but the look for instances without a node, which is a matter of hours.
    assert_eq!(anew, calls - 1, "asked for now");
    world.pass(301).await;
    world.survey(&[]).await;
    assert_eq!(world.aws.calls().len(), calls + 2 * anew, "too old");
    world.change_group("od", |group| group.min = 3);
    let fact = world.fact(1).await;
    assert_eq!(fact.group.unwrap().floor, 3, "what is chosen is never taken from the cache");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_has_only_its_own_machine_asked_for_again() {
    let mut world = World::new();
    for number in 1..=1000 {
        world.on_demand(number);
    }
    world.group("od", &(1..=1000).collect::<Vec<_>>(), 0);
    world.change_group("od", |group| group.mix = Some((0, 100)));
    // One that has not joined yet counts too.
    world.nodes.pop();
    world.survey(&[]).await;
    for number in 1..=3 {
        world.survey(&[number]).await;
        let before = world.aws.calls().len();
        world.delete(number).await.unwrap();
        world.survey(&[]).await;
        let calls = world.aws.calls().len() - before;
        assert!(calls <= 9, "{calls} calls for node {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_its_group_later_is_a_member_like_any_other() {
    let mut world = World::of_group(3, 0);
    world.survey(&[]).await;
    world.on_demand(4).group("od", &[1, 2, 3, 4], 0);
    let facts = world.survey(&[]).await;
    let fact = facts.of(uid(4).as_str()).unwrap();
    assert_eq!((kinds(fact), fact.group.as_ref().unwrap().desired), (vec![], 4));
}

#[tokio::test(start_paused = true)]
async fn rb_76_a_node_of_another_provisioner_goes_with_its_node_object() {
    let mut world = World::of_group(2, 0);
    for number in [1, 2] {
        label(&mut world, number, key::NODE_POOL, "default");
    }
    world.change_node(1, |node| node.finalizers.push(key::KARPENTER_FINALIZER.to_owned()));
    let owned = world.fact(1).await;
    assert_eq!((owned.machine, owned.class, owned.refusals), (Some(Machine::WithNode), Class::OnDemand, vec![]));
    let orphan = world.fact(2).await;
    assert_eq!((kinds(&orphan), orphan.machine), (vec![ReasonKind::NoMachineOwner], None));
}
