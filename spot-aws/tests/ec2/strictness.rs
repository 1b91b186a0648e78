//! The double is no friendlier than AWS: asked by the bare clients.

use aws_sdk_autoscaling::error::ProvideErrorMetadata;
use aws_sdk_ec2::types::Filter;

use crate::double::Fault;
use crate::support::{World, config, id, secs};

struct Clients {
    ec2: aws_sdk_ec2::Client,
    autoscaling: aws_sdk_autoscaling::Client,
}

fn clients(world: &World) -> Clients {
    let config = config(&world.aws);
    Clients { ec2: aws_sdk_ec2::Client::new(&config), autoscaling: aws_sdk_autoscaling::Client::new(&config) }
}

impl Clients {
    /// Terminates a member with a decrement; what AWS says if it refuses.
    async fn terminate(&self, number: u32) -> Option<String> {
        let request = self.autoscaling.terminate_instance_in_auto_scaling_group().instance_id(id(number));
        let answer = request.should_decrement_desired_capacity(true).send().await;
        answer.err().map(|error| format!("{}: {}", error.code().unwrap(), error.message().unwrap()))
    }

    /// The desired capacity of the group, and the states of its members.
    async fn group(&self) -> (i32, Vec<String>) {
        let answer =
            self.autoscaling.describe_auto_scaling_groups().auto_scaling_group_names("od").send().await.unwrap();
        let group = &answer.auto_scaling_groups()[0];
        let states = group.instances().iter().map(|member| member.lifecycle_state().unwrap().as_str().to_owned());
        (group.desired_capacity().unwrap(), states.collect())
    }

    /// The states by a describe of these IDs.
    async fn describe(&self, ids: &[String]) -> Result<Vec<String>, String> {
        let answer = self.ec2.describe_instances().set_instance_ids(Some(ids.to_vec())).send().await;
        let answer = answer.map_err(|error| error.code().unwrap().to_owned())?;
        let instances = answer.reservations().iter().flat_map(aws_sdk_ec2::types::Reservation::instances);
        Ok(instances.map(|one| one.state().unwrap().name().unwrap().as_str().to_owned()).collect())
    }
}

#[tokio::test(start_paused = true)]
async fn rb_77_one_code_stands_for_every_refusal_of_a_group() {
    let world = World::of_group(3, 2);
    let clients = clients(&world);
    world.change_group("od", |group| group.members.get_mut(&id(2)).unwrap().protected = true);
    assert!(clients.terminate(2).await.unwrap().contains("ValidationError: This instance is protected from scale in"));
    assert_eq!(clients.terminate(1).await, None);
    world.pass(60).await;
    assert!(clients.terminate(1).await.unwrap().starts_with("ValidationError: Instance Id not found - No managed"));
    assert!(clients.terminate(3).await.unwrap().starts_with("ValidationError: Currently, desiredSize equals minSize"));
    assert_eq!(world.aws.state().groups["od"].desired, 2);
}

#[tokio::test(start_paused = true)]
async fn rb_77_one_unknown_or_malformed_id_fails_a_describe_but_no_filter() {
    let world = World::of_group(2, 0);
    let clients = clients(&world);
    assert_eq!(clients.describe(&[id(1), id(2)]).await.unwrap().len(), 2);
    assert_eq!(clients.describe(&[id(1), id(99)]).await.unwrap_err(), "InvalidInstanceID.NotFound");
    assert_eq!(clients.describe(&[id(1), "i-xyz".to_owned()]).await.unwrap_err(), "InvalidInstanceID.Malformed");
    let filtered = async |values: Vec<String>| {
        let filter = Filter::builder().name("instance-id").set_values(Some(values)).build();
        let answer = clients.ec2.describe_instances().filters(filter).send().await;
        answer.map(|answer| answer.reservations().len()).map_err(|error| error.code().unwrap().to_owned())
    };
    assert_eq!(filtered(vec![id(1), id(99)]).await, Ok(1));
    assert_eq!(filtered((1..=201).map(id).collect()).await, Err("FilterLimitExceeded".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn rb_77_describes_tell_of_a_change_late() {
    let world = World::of_group(2, 0);
    let clients = clients(&world);
    world.aws.state().lag = secs(30);
    assert_eq!(clients.terminate(1).await, None);
    assert_eq!(clients.describe(&[id(1)]).await.unwrap(), ["running"]);
    assert_eq!(clients.group().await, (2, vec!["InService".to_owned(); 2]));
    world.pass(30).await;
    assert_eq!(clients.describe(&[id(1)]).await.unwrap(), ["shutting-down"]);
    assert_eq!(clients.group().await, (1, vec!["Terminating".to_owned(), "InService".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn rb_77_a_group_shrinks_as_often_as_it_is_asked_to() {
    let world = World::of_group(3, 0);
    let clients = clients(&world);
    assert_eq!((clients.terminate(1).await, clients.terminate(1).await), (None, None));
    let state = world.aws.state();
    assert_eq!((state.groups["od"].desired, state.decrements), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn rb_77_a_hook_holds_an_instance_and_ec2_calls_it_running() {
    let world = World::of_group(2, 0);
    let clients = clients(&world);
    world.change_group("od", |group| group.hooks.push("drain-it".to_owned()));
    assert_eq!(clients.terminate(1).await, None);
    world.pass(600).await;
    assert_eq!(clients.describe(&[id(1)]).await.unwrap(), ["running"]);
    assert_eq!(world.aws.state().groups["od"].members[&id(1)].state, "Terminating:Wait");
}

#[tokio::test(start_paused = true)]
async fn rb_77_mixes_and_zones_are_kept_by_launching_and_terminating_others() {
    let mut world = World::new();
    world.on_demand(1).add(2, Some("spot")).add(3, Some("spot")).group("mixed", &[1, 2, 3], 0);
    world.change_group("mixed", |group| group.mix = Some((1, 0)));
    assert_eq!(clients(&world).terminate(1).await, None);
    world.pass(120).await;
    assert_eq!(world.aws.state().launched.len(), 1, "on demand, for the base");

    let mut world = World::new();
    for number in 1..=3 {
        world.on_demand(number);
    }
    world.change_instance(3, |instance| "eu-west-1b".clone_into(&mut instance.zone));
    world.group("zones", &[1, 2, 3], 0);
    assert_eq!(clients(&world).terminate(3).await, None);
    world.pass(1).await;
    assert_eq!(world.aws.state().victims.len(), 1, "one of the full zone");
}

#[tokio::test(start_paused = true)]
async fn rb_77_throttled_is_throttled() {
    let world = World::of_group(2, 0);
    world.aws.fail("autoscaling:TerminateInstanceInAutoScalingGroup", Fault::Throttled, u32::MAX);
    assert!(clients(&world).terminate(1).await.unwrap().starts_with("Throttling"));
    assert_eq!(world.aws.state().decrements, 0);
}
