//! What is told to the one who reads the log.

use std::io;
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;

use crate::double::Fault;
use crate::support::{World, id, name, secs};

/// What was logged.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// Listens to this thread, on which a test's runtime runs.
fn listen() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    (log, tracing::subscriber::set_default(subscriber))
}

#[tokio::test(start_paused = true)]
async fn rb_07_labels_that_contradict_ec2_are_told_once() {
    let (log, _guard) = listen();
    let mut world = World::new();
    world.add(1, Some("spot")).on_demand(2);
    for number in [1, 2] {
        world.change_node(number, |node| {
            node.labels.insert("eks.amazonaws.com/capacityType".to_owned(), "ON_DEMAND".to_owned());
        });
    }
    world.survey(&[]).await;
    world.survey(&[]).await;
    let told: Vec<_> = log.lines().into_iter().filter(|line| line.contains("contradict")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&name(1)) && told[0].contains("ec2=spot") && told[0].contains("on-demand"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn rb_52_an_instance_that_goes_by_ec2_though_a_group_had_it_is_told() {
    let (log, _guard) = listen();
    let world = World::of_group(2, 0);
    world.change_group("od", |group| {
        group.members.remove(&id(1));
        group.desired = 1;
    });
    world.delete(1).await.unwrap();
    assert!(log.lines().iter().any(|line| line.contains("not counted by its group") && line.contains(&id(1))));
}

#[tokio::test(start_paused = true)]
async fn instances_that_run_without_a_node_are_told_of_once_and_left_alone() {
    let (log, _listening) = listen();
    let mut world = World::of_group(3, 0);
    for number in 4..=8 {
        world.on_demand(number);
    }
    // 1 was detached from its group, 4 never joined; of the others each has a reason to have no node.
    world.change_group("od", |group| {
        group.members.remove(&id(1));
    });
    world.nodes.retain(|node| ![1, 4, 5, 6, 7].contains(&number_of(node)));
    let now = crate::support::noon();
    world.change_instance(5, |instance| instance.launched = now - secs(600));
    world.change_instance(6, |instance| instance.state = "stopped");
    world.change_instance(7, |instance| instance.tags.clear());
    world.aws.state().page = 2;
    let told = || log.lines().into_iter().filter(|line| line.contains("without a Node")).collect::<Vec<_>>();
    world.survey(&[]).await;
    let [line] = &told()[..] else { panic!("{:?}", log.lines()) };
    assert!(line.contains(&format!("{}, {}", id(1), id(4))), "{line}");
    assert!([5, 6, 7].iter().all(|number| !line.contains(&id(*number))), "{line}");
    world.survey(&[]).await;
    world.pass(3600).await;
    world.survey(&[]).await;
    let lines = told();
    assert!(lines.len() == 2 && lines[1].contains(&id(5)) && !lines[1].contains(&id(1)), "only what is new: {lines:?}");
    assert!(world.aws.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn whoever_asked_for_instances_without_a_node_is_not_warned_of_them_right_after() {
    let (log, _listening) = listen();
    let mut world = World::of_group(3, 0);
    world.nodes.retain(|node| number_of(node) != 1);
    let found = world.provider.without_node(&world.nodes, world.by(20)).await.unwrap();
    assert_eq!(found, [id(1)].into());
    world.survey(&[]).await;
    assert!(!log.lines().iter().any(|line| line.contains("without a Node")), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn instances_without_a_node_that_can_not_be_looked_for_hold_nothing_up() {
    let world = World::of_group(3, 0);
    world.survey(&[]).await;
    world.pass(3600).await;
    world.aws.fail("ec2:DescribeInstances", Fault::Hang, u32::MAX);
    let by = world.by(90);
    assert!(world.provider.without_node(&world.nodes, world.by(20)).await.is_err());
    assert!(world.clock_at(secs(0)) < by);
}

fn number_of(node: &spot_core::node::NodeSnapshot) -> u32 {
    (1..=8).find(|number| *node.name == *name(*number)).unwrap()
}
