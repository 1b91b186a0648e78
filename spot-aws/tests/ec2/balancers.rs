//! Load balancers let go of an instance before it goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use spot_core::error::{ErrorClass, chain};
use spot_core::ports::{Alone, CloudProvider, Write};
use tokio::time::Instant;

use crate::double::{Balancer, Fault, Registration};
use crate::support::{World, class, id, noon, secs, settings};

const DEREGISTER: &str = "elasticloadbalancing:DeregisterTargets";
const REGISTER: &str = "elasticloadbalancing:RegisterTargets";
const DEREGISTER_CLASSIC: &str = "elasticloadbalancing:DeregisterInstancesFromLoadBalancer";

fn serving(numbers: &[u32], draining: u64) -> Balancer {
    let registered = numbers.iter().map(|number| (id(*number), Registration::Serving)).collect();
    Balancer { registered, draining: secs(draining), ..Balancer::default() }
}

fn tagged(mut balancer: Balancer, key: &str, value: &str) -> Balancer {
    balancer.tags = BTreeMap::from([(key.to_owned(), value.to_owned())]);
    balancer
}

fn is_registered(balancer: &Balancer, number: u32) -> bool {
    balancer.registered.contains_key(&id(number))
}

#[tokio::test(start_paused = true)]
async fn the_taint_is_on_for_long_enough_first() {
    // Seconds since the taint, and how long is waited then.
    for (tainted, wait) in [(Some(0), 60), (Some(45), 15), (Some(60), 0), (Some(4000), 0), (Some(-30), 60), (None, 60)]
    {
        let world = World::of_group(2, 0);
        let began = Instant::now();
        world.detach(1, tainted).await.unwrap();
        let took = began.elapsed();
        assert!(took >= secs(wait) && took < secs(wait + 2), "{tainted:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_does_not_tell_since_when_it_is_on_is_waited_for_once() {
    for ahead in [None, Some(30), Some(4000)] {
        let world = World::of_group(2, 0);
        let tainted = ahead.map(|ahead| noon() + secs(ahead));
        let detach = async |number, tainted: Option<Timestamp>| {
            let began = Instant::now();
            let write = Write::assume(world.by(690), Arc::new(Alone));
            world.provider.detach(world.node(number), tainted, &write).await.unwrap();
            began.elapsed()
        };
        let passes = [detach(1, tainted).await, detach(1, tainted).await, detach(1, tainted).await];
        assert!(passes[0] >= secs(60) && passes[1..].iter().all(|pass| *pass < secs(2)), "{ahead:?}: {passes:?}");
        let others = [detach(1, Some(noon() + secs(9000))).await, detach(2, Some(noon() + secs(9000))).await];
        assert!(others.iter().all(|other| *other >= secs(60)), "another taint, and another node's: {others:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_taken_out_of_its_groups_and_its_clusters_balancers_and_out_of_no_other() {
    let world = World::of_group(2, 0);
    {
        let mut state = world.aws.state();
        let group = state.groups.get_mut("od").unwrap();
        group.target_groups.push("attached".to_owned());
        group.classic.push("attached".to_owned());
        let cluster = "kubernetes.io/cluster/prod";
        for (name, balancer) in [
            ("attached", serving(&[1, 2], 30)),
            ("cluster", tagged(serving(&[1, 2], 30), cluster, "owned")),
            ("controller", tagged(serving(&[1, 2], 30), "elbv2.k8s.aws/cluster", "prod")),
            ("foreign", tagged(serving(&[1, 2], 30), "kubernetes.io/cluster/test", "owned")),
            ("untagged", serving(&[1, 2], 30)),
            ("without", tagged(serving(&[2], 30), cluster, "owned")),
        ] {
            state.target_groups.insert(name.to_owned(), balancer);
        }
        let addresses = Balancer { of_addresses: true, ..tagged(serving(&[1], 30), cluster, "owned") };
        state.target_groups.insert("addresses".to_owned(), addresses);
        for (name, balancer) in [
            ("attached", serving(&[1, 2], 30)),
            ("cluster", tagged(serving(&[1, 2], 30), cluster, "owned")),
            ("foreign", serving(&[1, 2], 30)),
        ] {
            state.classic.insert(name.to_owned(), balancer);
        }
    }
    let began = Instant::now();
    world.detach(1, Some(60)).await.unwrap();
    let took = began.elapsed();
    assert!(took >= secs(30) && took < secs(40), "until they were drained, and not much longer: {took:?}");
    let state = world.aws.state();
    for name in ["attached", "cluster", "controller"] {
        assert!(!is_registered(&state.target_groups[name], 1), "{name}");
    }
    for name in ["attached", "cluster"] {
        assert!(!is_registered(&state.classic[name], 1), "classic {name}");
    }
    for name in ["foreign", "untagged", "addresses"] {
        assert!(is_registered(&state.target_groups[name], 1), "{name}");
    }
    assert!(is_registered(&state.classic["foreign"], 1));
    let others = ["attached", "cluster", "controller", "without"];
    assert!(others.iter().all(|name| is_registered(&state.target_groups[*name], 2)), "the other node serves on");
    drop(state);
    assert_eq!((world.aws.count(DEREGISTER), world.aws.count(DEREGISTER_CLASSIC)), (3, 2), "once each");
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_taken_out_on_every_port_on_which_it_is_registered() {
    let world = World::of_group(2, 0);
    world.change_group("od", |group| group.target_groups.extend(["own".to_owned(), "other".to_owned()]));
    let on = |number, port| ((id(number), port), Registration::Serving);
    let own = Balancer { elsewhere: [on(1, 8080), on(2, 8080)].into(), ..serving(&[1, 2], 30) };
    let other = Balancer { elsewhere: [on(1, 8080), on(1, 9090)].into(), ..serving(&[], 30) };
    world.aws.state().target_groups.extend([("own".to_owned(), own), ("other".to_owned(), other)]);
    let began = Instant::now();
    world.detach(1, Some(60)).await.unwrap();
    assert!(began.elapsed() >= secs(30), "they drain first: {:?}", began.elapsed());
    let state = world.aws.state();
    let (own, other) = (&state.target_groups["own"], &state.target_groups["other"]);
    assert!(own.registered.keys().eq([&id(2)]) && own.elsewhere.keys().eq([&(id(2), 8080)]), "{own:?}");
    assert!(other.elsewhere.is_empty(), "{other:?}");
    drop(state);
    assert_eq!(world.aws.count(DEREGISTER), 2, "once each");
}

#[tokio::test(start_paused = true)]
async fn draining_without_end_is_waited_for_as_long_as_was_said() {
    let mut settings = settings();
    settings.load_balancer = (secs(60), secs(120));
    let mut world = World::with(settings);
    world.on_demand(1).group("od", &[1], 0);
    world.change_group("od", |group| group.target_groups.push("slow".to_owned()));
    world.aws.state().target_groups.insert("slow".to_owned(), serving(&[1], 3600));
    let began = Instant::now();
    world.detach(1, Some(60)).await.unwrap();
    let took = began.elapsed();
    assert!(took >= secs(120) && took < secs(130), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_serves_nothing_is_waited_for() {
    let world = World::of_group(1, 0);
    world.change_group("od", |group| {
        group.target_groups.push("gone".to_owned());
        group.classic.extend(["gone".to_owned(), "strict".to_owned(), "lenient".to_owned()]);
    });
    for lenient in [false, true] {
        let name = if lenient { "lenient" } else { "strict" };
        world.aws.state().classic.insert(name.to_owned(), Balancer { lenient, ..serving(&[], 30) });
    }
    let began = Instant::now();
    world.detach(1, Some(60)).await.unwrap();
    assert!(began.elapsed() < secs(2), "{:?}", began.elapsed());
    assert!(world.aws.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_would_refuse_the_deletion_is_found_before_anything_is_deregistered() {
    let world = World::of_group(2, 1);
    world.change_group("od", |group| group.target_groups.push("attached".to_owned()));
    world.aws.state().target_groups.insert("attached".to_owned(), serving(&[1, 2], 30));
    world.survey(&[1]).await;
    world.change_group("od", |group| group.min = 2);
    let answer = world.detach(1, Some(60)).await;
    assert_eq!(class(&answer), ErrorClass::Permanent);
    let words = chain(&answer.unwrap_err());
    assert!(words.contains("group_at_minimum") && !words.contains("deregistered"), "{words}");
    assert_eq!(world.aws.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_stays_after_all_is_registered_where_it_was_and_nowhere_else() {
    let world = World::of_group(2, 0);
    world.change_group("od", |group| {
        group.target_groups.extend(["attached".to_owned(), "without".to_owned()]);
        group.classic.push("classic".to_owned());
    });
    let on = |number, port| ((id(number), port), Registration::Serving);
    {
        let mut state = world.aws.state();
        let attached = Balancer { elsewhere: [on(1, 8080)].into(), ..serving(&[1, 2], 30) };
        state.target_groups.insert("attached".to_owned(), attached);
        state.target_groups.insert("without".to_owned(), serving(&[2], 30));
        state.target_groups.insert("other".to_owned(), serving(&[1, 2], 30));
        state.classic.insert("classic".to_owned(), serving(&[1, 2], 30));
    }
    world.detach(1, Some(60)).await.unwrap();
    assert!(!is_registered(&world.aws.state().target_groups["attached"], 1));
    world.change_group("od", |group| group.min = 2);
    let refused = world.delete(1).await;
    assert_eq!(class(&refused), ErrorClass::Permanent);
    assert!(chain(&refused.unwrap_err()).contains("group_at_minimum"));
    world.attach(1).await.unwrap();
    {
        let state = world.aws.state();
        let attached = &state.target_groups["attached"];
        assert!(is_registered(attached, 1) && attached.elsewhere.contains_key(&(id(1), 8080)), "{attached:?}");
        assert!(is_registered(&state.classic["classic"], 1));
        assert!(!is_registered(&state.target_groups["without"], 1), "it was not there");
    }
    let writes = world.aws.writes().len();
    world.attach(1).await.unwrap();
    world.attach(2).await.unwrap();
    assert_eq!(world.aws.writes().len(), writes, "once, and only what was taken out");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_be_registered_again_is_told_of_with_where_it_is_missing() {
    let world = World::of_group(1, 0);
    world.change_group("od", |group| {
        group.target_groups.push("attached".to_owned());
        group.classic.push("classic".to_owned());
    });
    world.aws.state().target_groups.insert("attached".to_owned(), serving(&[1], 30));
    world.aws.state().classic.insert("classic".to_owned(), serving(&[1], 30));
    world.detach(1, Some(60)).await.unwrap();
    world.aws.fail(REGISTER, Fault::Denied, 1);
    let answer = world.attach(1).await;
    assert_eq!(class(&answer), ErrorClass::Denied);
    let words = chain(&answer.unwrap_err());
    let told = [&id(1), "deregistered from attached,", REGISTER].map(|word| words.contains(word));
    assert!(told == [true; 3] && !words.contains("classic"), "{words}");
    assert!(is_registered(&world.aws.state().classic["classic"], 1), "the other one has it again");
    for fault in Fault::PASSING {
        world.aws.fail(REGISTER, fault, 1);
        world.attach(1).await.unwrap();
        assert!(is_registered(&world.aws.state().target_groups["attached"], 1), "{fault:?}");
        world.detach(1, Some(60)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_taken_out_is_not_put_back() {
    let world = World::of_group(1, 0);
    world.change_group("od", |group| group.target_groups.push("attached".to_owned()));
    world.aws.state().target_groups.insert("attached".to_owned(), serving(&[1], 30));
    world.aws.fail(DEREGISTER, Fault::Denied, 1);
    assert_eq!(class(&world.detach(1, Some(60)).await), ErrorClass::Denied);
    world.attach(1).await.unwrap();
    assert_eq!(world.aws.count(REGISTER), 0);
    world.aws.fail(DEREGISTER, Fault::LostAnswer, 1);
    world.detach(1, Some(60)).await.unwrap();
    world.attach(1).await.unwrap();
    assert!(is_registered(&world.aws.state().target_groups["attached"], 1), "though the answer was lost");
}

/// A cluster of 200 nodes in a group, with target groups and a classic balancer that drain for a while.
fn crowd() -> World {
    let world = World::of_group(200, 0);
    let all: Vec<_> = (1..=200).collect();
    let mut state = world.aws.state();
    for name in ["one", "two", "three"] {
        let balancer = tagged(serving(&all, 20), "kubernetes.io/cluster/prod", "owned");
        state.target_groups.insert(name.to_owned(), balancer);
    }
    state.classic.insert("classic".to_owned(), tagged(serving(&all, 20), "kubernetes.io/cluster/prod", "owned"));
    drop(state);
    world
}

fn is_out_of_everything(world: &World) -> bool {
    let state = world.aws.state();
    state.target_groups.values().chain(state.classic.values()).all(|balancer| balancer.registered.is_empty())
}

#[tokio::test(start_paused = true)]
async fn two_hundred_interrupted_nodes_are_taken_out_at_once_and_together() {
    let world = crowd();
    let began = Instant::now();
    let ended = futures::future::join_all((1..=200).map(|number| world.detach_at_once(number))).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    assert!(is_out_of_everything(&world));
    assert!(began.elapsed() < secs(30), "until they were drained, and no longer: {:?}", began.elapsed());
    // Of four places: a round for the first to come, one for the second, one for all the rest, and a look every five
    // seconds while they drain. The classic balancer knows none that has left, so that each is asked for by itself then.
    let (calls, by_itself) = (world.aws.calls().len(), world.aws.count("elasticloadbalancing:DescribeInstanceHealth"));
    assert_eq!((world.aws.count(DEREGISTER), world.aws.count(DEREGISTER_CLASSIC)), (9, 3));
    assert!(calls - by_itself <= 110 && by_itself <= 250, "{calls} calls, {by_itself} of the classic balancer");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_interrupted_nodes_are_taken_out_through_throttling() {
    for action in ON_THE_WAY {
        let world = crowd();
        world.aws.fail(action, Fault::Throttled, 5);
        let ended = futures::future::join_all((1..=200).map(|number| world.detach_at_once(number))).await;
        assert!(ended.iter().all(Result::is_ok) && is_out_of_everything(&world), "{action}: {ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_hangs_holds_up_no_other() {
    let world = World::of_group(1, 0);
    world.change_group("od", |group| group.target_groups.push("attached".to_owned()));
    world.aws.state().target_groups.insert("attached".to_owned(), serving(&[1], 5));
    world
        .aws
        .state()
        .classic
        .insert("hangs".to_owned(), tagged(serving(&[1], 5), "kubernetes.io/cluster/prod", "owned"));
    world.aws.fail("elasticloadbalancing:DescribeInstanceHealth", Fault::Hang, u32::MAX);
    let answer = world.detach_at_once(1).await;
    assert_eq!(class(&answer), ErrorClass::Timeout);
    assert!(!is_registered(&world.aws.state().target_groups["attached"], 1));
}

#[tokio::test(start_paused = true)]
async fn planned_work_that_hangs_holds_up_no_interruption() {
    for action in ["elasticloadbalancing:DescribeTargetGroups", "elasticloadbalancing:DescribeTargetHealth"] {
        let world = World::of_group(2, 0);
        world.change_group("od", |group| group.target_groups.push("attached".to_owned()));
        world.aws.state().target_groups.insert("attached".to_owned(), serving(&[1, 2], 20));
        world.aws.fail(action, Fault::Hang, 1);
        let planned = world.detach(1, Some(60));
        tokio::pin!(planned);
        assert!(tokio::time::timeout(secs(1), &mut planned).await.is_err(), "it hangs");
        let both = futures::future::join(planned, world.detach_at_once(2));
        assert!(tokio::time::timeout(secs(2), both).await.is_err(), "it hangs still, or they drain");
        let state = world.aws.state();
        let registered = &state.target_groups["attached"].registered;
        let serves = |number| matches!(registered.get(&id(number)), Some(Registration::Serving));
        assert!(serves(1) && !serves(2), "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_work_is_dropped_is_not_taken_out_with_others() {
    for step in 0..40 {
        let world = World::of_group(3, 0);
        world.change_group("od", |group| group.target_groups.push("attached".to_owned()));
        world.aws.state().target_groups.insert("attached".to_owned(), serving(&[1, 2, 3], 20));
        let named =
            || world.aws.writes().iter().filter(|call| call.params.values().any(|value| *value == id(3))).count();
        let others = futures::future::join(world.detach_at_once(1), world.detach_at_once(2));
        tokio::pin!(others);
        {
            let dropped = futures::future::select(&mut others, Box::pin(world.detach_at_once(3)));
            let lives = std::time::Duration::from_millis(10 * step + 5);
            assert!(tokio::time::timeout(lives, dropped).await.is_err(), "all are under way");
        }
        // A round that has begun ends.
        assert!(tokio::time::timeout(secs(1), &mut others).await.is_err(), "they drain");
        let before = named();
        let (first, second) = others.await;
        assert!(first.is_ok() && second.is_ok());
        assert_eq!(named(), before, "dropped after {step} steps");
    }
}

/// What is asked of load balancers on the way to a deregistration, the deletion's own questions among it.
const ON_THE_WAY: [&str; 5] = [
    "elasticloadbalancing:DescribeTargetGroups",
    "elasticloadbalancing:DescribeTags",
    "elasticloadbalancing:DescribeTargetHealth",
    "autoscaling:DescribeAutoScalingGroups",
    DEREGISTER,
];

#[tokio::test(start_paused = true)]
async fn what_is_throttled_for_minutes_is_asked_again_until_it_is_answered() {
    for action in ON_THE_WAY {
        let world = World::of_group(1, 0);
        let balancer = tagged(serving(&[1], 30), "kubernetes.io/cluster/prod", "owned");
        world.aws.state().target_groups.insert("cluster".to_owned(), balancer);
        world.aws.fail(action, Fault::Throttled, 20);
        world.detach(1, Some(60)).await.expect(action);
        assert!(!is_registered(&world.aws.state().target_groups["cluster"], 1), "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_may_serve_still_is_not_let_go_when_the_time_is_over() {
    for action in ON_THE_WAY {
        let world = World::of_group(1, 0);
        let balancer = tagged(serving(&[1], 30), "kubernetes.io/cluster/prod", "owned");
        world.aws.state().target_groups.insert("cluster".to_owned(), balancer);
        world.aws.fail(action, Fault::Throttled, u32::MAX);
        let began = Instant::now();
        let answer = world.detach(1, Some(60)).await;
        assert!(!class(&answer).had_no_effect(), "{action}: {answer:?}");
        assert!(began.elapsed() >= secs(680), "{action}: it was tried for {:?}", began.elapsed());
        assert!(is_registered(&world.aws.state().target_groups["cluster"], 1), "{action}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_deregistration_is_final() {
    let world = World::of_group(1, 0);
    world.change_group("od", |group| group.target_groups.push("attached".to_owned()));
    world.aws.state().target_groups.insert("attached".to_owned(), serving(&[1], 30));
    world.aws.fail(DEREGISTER, Fault::Denied, u32::MAX);
    let answer = world.detach(1, Some(60)).await;
    assert_eq!(class(&answer), ErrorClass::Denied);
    assert!(answer.unwrap_err().to_string().contains(DEREGISTER));
}

#[tokio::test(start_paused = true)]
async fn more_balancers_than_one_call_can_tell_of_are_all_found() {
    let world = World::of_group(1, 0);
    {
        let mut state = world.aws.state();
        state.page = 15;
        for number in 0..50 {
            let balancer = || tagged(serving(&[1], 5), "kubernetes.io/cluster/prod", "owned");
            state.target_groups.insert(format!("group-{number:02}"), balancer());
            state.classic.insert(format!("classic-{number:02}"), balancer());
        }
    }
    world.detach(1, Some(60)).await.unwrap();
    assert_eq!((world.aws.count(DEREGISTER), world.aws.count(DEREGISTER_CLASSIC)), (50, 50));
}

#[tokio::test(start_paused = true)]
async fn a_balancer_that_came_a_moment_ago_is_found() {
    let world = World::of_group(2, 0);
    world.detach(1, Some(60)).await.unwrap();
    let balancer = tagged(serving(&[1, 2], 5), "kubernetes.io/cluster/prod", "owned");
    world.aws.state().target_groups.insert("new".to_owned(), balancer.clone());
    world.aws.state().classic.insert("new".to_owned(), balancer);
    world.detach(2, Some(60)).await.unwrap();
    let state = world.aws.state();
    for balancer in [&state.target_groups["new"], &state.classic["new"]] {
        assert!(!is_registered(balancer, 2) && is_registered(balancer, 1), "{balancer:?}");
    }
}
