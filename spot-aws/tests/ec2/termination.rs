//! How instances go, once and only once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use spot_core::claim::{InstanceId, Machine};
use spot_core::cloud::{Deletion, InstanceState};
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::key;
use spot_core::ports::{Alone, CloudProvider, Leadership, Write};
use spot_core::retire::RetiredNode;

use crate::double::Fault;
use crate::support::{World, claim, class, id, secs};

const IN_GROUP: &str = "autoscaling:TerminateInstanceInAutoScalingGroup";
const PLAINLY: &str = "ec2:TerminateInstances";

/// Something that happens, and its name.
type Change = (&'static str, fn(&World));

#[tokio::test(start_paused = true)]
async fn rb_03_a_member_goes_through_its_group_and_nothing_is_launched() {
    let world = World::of_group(3, 0);
    assert_eq!(world.delete(1).await.unwrap(), Deletion::Accepted);
    let writes = world.aws.writes();
    assert_eq!(writes.len(), 1);
    assert_eq!(
        (writes[0].action.as_str(), writes[0].params["ShouldDecrementDesiredCapacity"].as_str()),
        (IN_GROUP, "true")
    );
    world.pass(300).await;
    world.assert_nothing_else_happened();
    assert_eq!(world.aws.state().groups["od"].desired, 2);
    assert_eq!(world.state_of(1), "terminated");
}

#[tokio::test(start_paused = true)]
async fn rb_77_the_double_relaunches_what_went_without_a_decrement() {
    let world = World::of_group(3, 0);
    world.aws.state().shut_down(&id(1));
    world.pass(180).await;
    assert_eq!(world.aws.state().launched.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_nobody_goes_by_ec2() {
    let mut world = World::new();
    world.on_demand(1);
    assert_eq!(world.delete(1).await.unwrap(), Deletion::Accepted);
    assert_eq!(world.aws.writes().iter().map(|call| call.action.as_str()).collect::<Vec<_>>(), [PLAINLY]);
    assert_eq!(world.state_of(1), "shutting-down");
}

#[tokio::test(start_paused = true)]
async fn rb_02_a_group_that_reached_its_minimum_since_refuses_and_nothing_happens() {
    let world = World::of_group(3, 0);
    world.survey(&[1]).await;
    world.change_group("od", |group| group.min = 3);
    let answer = world.delete(1).await;
    assert_eq!(class(&answer), ErrorClass::Permanent, "certainly without effect: the node is released");
    assert!(answer.unwrap_err().to_string().contains("group_at_minimum"));
    assert!(world.aws.writes().is_empty());
}

/// Lets something happen between the last look and the call.
#[derive(Debug)]
struct Meanwhile<F>(F, AtomicU32);

#[async_trait]
impl<F: Fn() + Send + Sync> Leadership for Meanwhile<F> {
    fn check(&self) -> Result<(), PortError> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.0)();
        }
        Ok(())
    }
    async fn lost(&self) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test(start_paused = true)]
async fn rb_02_the_minimum_reached_between_look_and_call_is_a_refusal_in_aws_own_words() {
    let world = World::of_group(3, 0);
    let aws = world.aws.clone();
    let meanwhile = Meanwhile(move || aws.state().groups.get_mut("od").unwrap().min = 3, AtomicU32::new(0));
    let answer = world.delete_as(1, Arc::new(meanwhile)).await;
    assert_eq!(class(&answer), ErrorClass::Permanent);
    let words = answer.unwrap_err().to_string();
    assert!(words.contains("group_at_minimum") && words.contains("minSize (3)"), "{words}");
    assert_eq!((world.aws.count(IN_GROUP), world.state_of(1)), (1, "running"));
}

#[tokio::test(start_paused = true)]
async fn every_refusal_is_found_again_right_before_the_call() {
    let changes: [Change; 6] = [
        ("scale_in_protected", |world| {
            world.change_group("od", |group| group.members.get_mut(&id(1)).unwrap().protected = true);
        }),
        ("termination_protected", |world| world.change_instance(1, |instance| instance.protected = true)),
        ("group_refreshing", |world| world.change_group("od", |group| group.refresh = Some("InProgress"))),
        ("zone_rebalance", |world| world.change_instance(1, |instance| "eu-west-1b".clone_into(&mut instance.zone))),
        ("wrong_cluster", |world| world.change_instance(1, |instance| instance.tags.clear())),
        ("identity_mismatch", |world| world.change_instance(1, |instance| "other".clone_into(&mut instance.dns))),
    ];
    for (reason, change) in changes {
        let world = World::of_group(3, 0);
        assert!(world.refusals(1).await.is_empty());
        change(&world);
        let answer = world.delete(1).await;
        assert_eq!(class(&answer), ErrorClass::Permanent, "{reason}");
        let words = answer.unwrap_err().to_string();
        assert!(words.contains(reason), "{words}");
        assert!(world.aws.writes().is_empty(), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn rb_44_ec2s_own_refusal_of_a_protected_instance_is_final() {
    let mut world = World::new();
    world.on_demand(1);
    let aws = world.aws.clone();
    let meanwhile =
        Meanwhile(move || aws.state().instances.get_mut(&id(1)).unwrap().protected = true, AtomicU32::new(0));
    let answer = world.delete_as(1, Arc::new(meanwhile)).await;
    assert_eq!(class(&answer), ErrorClass::Permanent);
    assert!(answer.unwrap_err().to_string().contains("termination_protected"));
    assert_eq!(world.aws.count(PLAINLY), 1);
}

#[tokio::test(start_paused = true)]
async fn rb_65_what_is_gone_or_going_is_accepted_without_a_call() {
    let gone: [Change; 5] = [
        ("shutting down", |world| world.aws.state().shut_down(&id(1))),
        ("terminated", |world| world.change_instance(1, |instance| instance.state = "terminated")),
        ("not found", |world| drop(world.aws.state().instances.remove(&id(1)))),
        ("held by a hook", |world| {
            world.change_group("od", |group| group.members.get_mut(&id(1)).unwrap().state = "Terminating:Wait");
        }),
        ("let go by a hook", |world| {
            world.change_group("od", |group| group.members.get_mut(&id(1)).unwrap().state = "Terminating:Proceed");
        }),
    ];
    for (what, change) in gone {
        let world = World::of_group(3, 0);
        change(&world);
        assert_eq!(world.delete(1).await.unwrap(), Deletion::Accepted, "{what}");
        assert!(world.aws.writes().is_empty(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn rb_65_an_answer_that_was_lost_is_not_asked_for_twice() {
    for fault in [Fault::LostAnswer, Fault::HangAfterwards] {
        let world = World::of_group(3, 0);
        world.aws.fail(IN_GROUP, fault, 1);
        assert_eq!(world.delete(1).await.unwrap(), Deletion::Accepted, "{fault:?}");
        assert_eq!((world.aws.count(IN_GROUP), world.aws.state().decrements), (1, 1), "{fault:?}");
        world.pass(300).await;
        world.assert_nothing_else_happened();
    }
}

#[tokio::test(start_paused = true)]
async fn rb_65_an_answer_that_was_lost_is_not_asked_for_twice_though_the_group_tells_of_it_late() {
    for (fault, lag) in [(Fault::LostAnswer, 20), (Fault::LostAnswer, 45), (Fault::HangAfterwards, 45)] {
        let world = World::of_group(3, 0);
        world.aws.state().lag = secs(lag);
        world.aws.fail(IN_GROUP, fault, 1);
        let mut answer = world.delete(1).await;
        if lag > 30 {
            assert_eq!(class(&answer), ErrorClass::Timeout, "unknown when its time is over");
            // Another member goes meanwhile: that the group is smaller for it says nothing of the first.
            assert_eq!(world.delete(2).await.unwrap(), Deletion::Accepted);
            answer = world.delete(1).await;
        }
        assert_eq!(answer.unwrap(), Deletion::Accepted);
        let decrements = if lag > 30 { 2 } else { 1 };
        assert_eq!(world.aws.state().decrements, decrements, "{fault:?}, told after {lag} s");
        world.pass(300).await;
        world.assert_nothing_else_happened();
    }
}

#[tokio::test(start_paused = true)]
async fn rb_65_a_request_that_did_not_arrive_is_made_again_when_the_group_would_have_told_of_it() {
    let world = World::of_group(3, 0);
    world.aws.fail(IN_GROUP, Fault::Reset, 1);
    assert_eq!(class(&world.delete(1).await), ErrorClass::Timeout);
    // Another member goes meanwhile: that the group is smaller for it says nothing of the first.
    assert_eq!(world.delete(2).await.unwrap(), Deletion::Accepted);
    assert_eq!(class(&world.delete(1).await), ErrorClass::Timeout);
    assert_eq!(world.aws.count(IN_GROUP), 2);
    assert_eq!(world.delete(1).await.unwrap(), Deletion::Accepted);
    assert_eq!((world.aws.count(IN_GROUP), world.aws.state().decrements), (3, 2));
    world.pass(300).await;
    world.assert_nothing_else_happened();
    assert_eq!(world.state_of(1), "terminated");
}

#[tokio::test(start_paused = true)]
async fn rb_65_no_managed_instance_is_looked_into() {
    // EC2 tells of it late; the group knows it no more at once.
    let world = World::of_group(3, 0);
    world.aws.state().lag = secs(10);
    let aws = world.aws.clone();
    let meanwhile = Meanwhile(
        move || {
            let mut state = aws.state();
            let group = state.groups.get_mut("od").unwrap();
            group.members.remove(&id(1));
            group.desired -= 1;
            state.shut_down(&id(1));
        },
        AtomicU32::new(0),
    );
    let answer = world.delete_as(1, Arc::new(meanwhile)).await;
    assert_eq!(answer.unwrap(), Deletion::Accepted);
    world.pass(300).await;
    assert_eq!(world.aws.state().groups["od"].desired, 2, "not lowered twice");
    world.assert_nothing_else_happened();
}

#[tokio::test(start_paused = true)]
async fn rb_65_after_an_unknown_effect_no_refusal_is_certain() {
    let world = World::of_group(3, 0);
    world.aws.fail(IN_GROUP, Fault::Reset, 1);
    let aws = world.aws.clone();
    let meanwhile = Meanwhile(move || aws.state().groups.get_mut("od").unwrap().min = 3, AtomicU32::new(0));
    let answer = world.delete_as(1, Arc::new(meanwhile)).await;
    assert_eq!(class(&answer), ErrorClass::Timeout, "it must not be released");
}

#[tokio::test(start_paused = true)]
async fn rb_65_standby_and_detached_instances_go_by_ec2_once() {
    let outside: [Change; 2] = [
        ("standby", |world| {
            world.change_group("od", |group| {
                group.members.get_mut(&id(1)).unwrap().state = "Standby";
                group.desired = 2;
            });
        }),
        ("detached", |world| {
            world.change_group("od", |group| {
                group.members.remove(&id(1));
                group.desired = 2;
            });
        }),
    ];
    for (what, change) in outside {
        let world = World::of_group(3, 0);
        change(&world);
        assert_eq!(world.delete(1).await.unwrap(), Deletion::Accepted, "{what}");
        assert_eq!((world.aws.count(PLAINLY), world.aws.count(IN_GROUP)), (1, 0), "{what}");
        world.pass(300).await;
        world.assert_nothing_else_happened();
    }
}

#[tokio::test(start_paused = true)]
async fn members_that_are_neither_in_service_nor_outside_are_not_terminated() {
    for state in ["Pending", "EnteringStandby", "Detaching", "Warmed:Stopped"] {
        let world = World::of_group(3, 0);
        world.change_group("od", |group| group.members.get_mut(&id(1)).unwrap().state = state);
        assert_eq!(class(&world.delete(1).await), ErrorClass::Permanent, "{state}");
        assert!(world.aws.writes().is_empty(), "{state}");
    }
}

#[tokio::test(start_paused = true)]
async fn rb_11_denied_is_final_and_names_the_right() {
    let world = World::of_group(3, 0);
    world.aws.fail(IN_GROUP, Fault::Denied, u32::MAX);
    let answer = world.delete(1).await;
    assert_eq!((class(&answer), world.aws.count(IN_GROUP)), (ErrorClass::Denied, 1));
    let words = answer.unwrap_err().to_string();
    assert!(words.contains(IN_GROUP) && words.contains("deploy/iam/"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn rb_11_a_right_that_is_taken_away_before_the_call_is_final_too() {
    let reads = ["ec2:DescribeInstances", "autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstanceAttribute"];
    for action in reads {
        let world = World::of_group(3, 0);
        world.aws.fail(action, Fault::Denied, u32::MAX);
        let answer = world.delete(1).await;
        assert_eq!(class(&answer), ErrorClass::Denied, "{action}");
        assert!(answer.unwrap_err().to_string().contains(action) && world.aws.writes().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn rb_11_throttled_three_times_it_goes_in_the_end() {
    let world = World::of_group(3, 0);
    world.aws.fail(IN_GROUP, Fault::Throttled, 3);
    assert_eq!(world.delete(1).await.unwrap(), Deletion::Accepted);
    assert_eq!((world.aws.count(IN_GROUP), world.aws.state().decrements), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn throttled_for_good_it_ends_within_its_deadline() {
    let world = World::of_group(3, 0);
    world.aws.fail(IN_GROUP, Fault::Throttled, u32::MAX);
    let began = tokio::time::Instant::now();
    assert_eq!(class(&world.delete(1).await), ErrorClass::Transient);
    assert!(began.elapsed() <= secs(31), "{:?}", began.elapsed());
    assert!(world.aws.count(IN_GROUP) < 20, "with growing pauses");
}

/// Leads for so many requests.
#[derive(Debug)]
struct Deposed(AtomicU32);

#[async_trait]
impl Leadership for Deposed {
    fn check(&self) -> Result<(), PortError> {
        if self.0.load(Ordering::Relaxed) == 0 {
            return Err(PortError::new(ErrorClass::NotLeader, "lost"));
        }
        self.0.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
    async fn lost(&self) {}
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_the_leadership() {
    let world = World::of_group(3, 0);
    assert_eq!(class(&world.delete_as(1, Arc::new(Deposed(AtomicU32::new(0)))).await), ErrorClass::NotLeader);
    assert!(world.aws.writes().is_empty());
    world.aws.fail(IN_GROUP, Fault::Throttled, 5);
    assert_eq!(class(&world.delete_as(1, Arc::new(Deposed(AtomicU32::new(2)))).await), ErrorClass::NotLeader);
    assert_eq!(world.aws.count(IN_GROUP), 2, "asked again before each request");
}

#[tokio::test(start_paused = true)]
async fn rb_08_an_instance_that_the_node_does_not_name_any_more_is_not_deleted() {
    let mut world = World::of_group(3, 0);
    world.change_node(1, |node| node.provider_id = format!("aws:///eu-west-1a/{}", id(2)));
    assert_eq!(class(&world.delete(1).await), ErrorClass::Permanent);
    assert!(world.aws.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn rb_76_a_provisioned_nodes_machine_is_its_owners_to_delete() {
    let mut world = World::of_group(1, 0);
    world.change_node(1, |node| {
        node.labels.insert(key::NODE_POOL.to_owned(), "default".to_owned());
        node.finalizers.push(key::KARPENTER_FINALIZER.to_owned());
    });
    let write = || Write::assume(world.by(30), Arc::new(Alone));
    let retired = RetiredNode::assume(Arc::clone(world.node(1)), claim(1, Machine::WithNode));
    assert_eq!(world.provider.delete_instance(&retired, &write()).await.unwrap(), Deletion::WithNode);
    let mut orphan = world.node(1).as_ref().clone();
    orphan.finalizers.clear();
    let retired = RetiredNode::assume(Arc::new(orphan), claim(1, Machine::WithNode));
    assert_eq!(class(&world.provider.delete_instance(&retired, &write()).await), ErrorClass::Permanent);
    assert!(world.aws.calls().is_empty(), "AWS is not asked");
}

#[tokio::test(start_paused = true)]
async fn rb_30_the_state_of_an_instance_is_ec2s_word() {
    let world = World::of_group(3, 0);
    let state = async |number| world.provider.instance_state(&InstanceId::new(id(number)), world.by(30)).await.unwrap();
    assert_eq!(state(1).await, InstanceState::Running);
    assert_eq!(state(99).await, InstanceState::Gone);
    world.delete(1).await.unwrap();
    assert_eq!(state(1).await, InstanceState::ShuttingDown);
    world.pass(60).await;
    assert_eq!(state(1).await, InstanceState::Gone);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_a_hook_holds_is_on_its_way_and_the_hook_is_named() {
    let world = World::of_group(3, 0);
    world.change_group("od", |group| group.hooks.push("drain-it".to_owned()));
    assert_eq!(world.delete(1).await.unwrap(), Deletion::Accepted);
    assert_eq!(world.state_of(1), "running");
    let state = world.provider.instance_state(&InstanceId::new(id(1)), world.by(30)).await;
    assert_eq!(state.unwrap(), InstanceState::Held("drain-it of group od".to_owned()));
    assert_eq!(world.delete(1).await.unwrap(), Deletion::Accepted, "once more");
    assert_eq!((world.aws.count(IN_GROUP), world.aws.state().groups["od"].desired), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_each_goes_once_and_the_minimum_holds() {
    let world = World::of_group(4, 2);
    let ended = futures::future::join_all((1..=4).map(|number| world.delete(number))).await;
    let (accepted, refused): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
    assert_eq!((accepted.len(), refused.len()), (2, 2));
    assert!(refused.into_iter().all(|answer| class(&answer) == ErrorClass::Permanent));
    world.pass(300).await;
    world.assert_nothing_else_happened();
    assert_eq!(world.aws.state().groups["od"].desired, 2);
}

#[tokio::test(start_paused = true)]
async fn a_weighted_member_takes_its_weight_with_it() {
    let world = World::of_group(3, 1);
    world.change_group("od", |group| {
        for member in group.members.values_mut() {
            member.weight = Some(2);
        }
        group.desired = 6;
    });
    assert_eq!(world.fact(1).await.group.unwrap().weight, 2);
    world.delete(1).await.unwrap();
    world.delete(2).await.unwrap();
    assert_eq!(class(&world.delete(3).await), ErrorClass::Permanent, "2 less than 2 is below 1");
    world.pass(300).await;
    world.assert_nothing_else_happened();
}
