//! Messages of no use: counted by reason, told of, deleted, and never in the way.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use serde_json::json;
use spot_core::interruption::{Handled, Ignored};
use spot_core::ports::{Clock, NoticeSource};
use tracing::field::{Field, Visit};
use tracing::span;

use crate::double::Fault;
use crate::support::{World, event, id, noon, secs};

/// What a test's process logs at level warn, one text an event.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN && metadata.target().starts_with("spot_aws")
    }
    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}
    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _span: &span::Id) {}
    fn exit(&self, _span: &span::Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

/// Fifty, of which one is ours: instance 7.
fn send_fifty(world: &World) {
    let at = world.clock.now();
    let elsewhere = |number: u32, key: &str, value: &str| {
        let detail = json!({ "instance-id": id(number), "instance-action": "terminate" });
        let mut foreign = event("aws.ec2", "EC2 Spot Instance Interruption Warning", at, &detail);
        foreign[key] = json!(value);
        foreign.to_string()
    };
    for number in 100..120 {
        world.aws.send(&elsewhere(number, "account", "210987654321"));
        world.aws.send(&elsewhere(number, "region", "us-east-1"));
    }
    for body in ["not JSON", "{", ""] {
        world.aws.send(body);
    }
    world.aws.send(&event("aws.s3", "Object Created", at, &json!({ "bucket": "b" })).to_string());
    let detail = json!({ "instance-id": "i-none", "instance-action": "terminate" });
    world.aws.send(&event("aws.ec2", "EC2 Spot Instance Interruption Warning", at, &detail).to_string());
    let detail = json!({ "instance-id": id(1), "instance-action": "explode" });
    world.aws.send(&event("aws.ec2", "EC2 Spot Instance Interruption Warning", at, &detail).to_string());
    let test = json!({ "Service": "AWS Auto Scaling", "Event": "autoscaling:TEST_NOTIFICATION" });
    world.aws.send(&test.to_string());
    world.aws.send(&json!({ "some": "thing" }).to_string());
    world.aws.send(&event("my.app", "EC2 Spot Instance Interruption Warning", at, &json!({})).to_string());
    world.aws.send(&world.warning(7));
}

#[tokio::test(start_paused = true)]
async fn rb_21_one_of_fifty_messages_is_ours_and_comes_at_once_and_the_others_are_counted_and_deleted() {
    let world = World::new();
    send_fifty(&world);
    assert_eq!(world.aws.messages(|messages| messages.len()), 50);
    let receivers = futures::future::select_all((0..world.queue.receivers()).map(|_| Box::pin(world.deliveries())));
    let (deliveries, ..) = receivers.await;
    assert!(world.clock.now() < noon() + secs(1), "{}", world.clock.now());
    assert_eq!(deliveries.len(), 1);
    assert_eq!(deliveries[0].notice.instance.as_str(), id(7));
    world.settle(&deliveries[0], Handled::Done).await;
    assert!(world.is_silent_for(60).await);
    assert_eq!(world.aws.messages(|messages| messages.len()), 0, "none comes back for days");
    let ignored = world.ignored();
    let count = |wanted| ignored.iter().filter(|(why, _)| *why == wanted).count();
    // One that was received by an attempt which was dropped here is told of once more.
    assert!((41..=51).contains(&count(Ignored::Foreign)), "{ignored:?}");
    assert!((4..=8).contains(&count(Ignored::Unreadable)), "{ignored:?}");
    assert!((3..=6).contains(&count(Ignored::UnknownKind)), "{ignored:?}");
    assert!((1..=2).contains(&count(Ignored::NoAction)), "{ignored:?}");
}

#[tokio::test(start_paused = true)]
async fn deleting_what_is_of_no_use_keeps_no_notice_waiting() {
    let world = World::new();
    world.aws.fail("sqs:DeleteMessage", Fault::Hang, u32::MAX);
    for number in 0..9 {
        world.aws.send(&format!("garbage {number}"));
    }
    world.aws.send(&world.warning(1));
    assert_eq!(world.delivery().await.notice.instance.as_str(), id(1));
    assert!(world.clock.now() < noon() + secs(1));
    let sent = world.clock.now();
    world.aws.send(&world.warning(2));
    assert_eq!(world.delivery().await.notice.instance.as_str(), id(2));
    assert!(world.clock.now() < sent + secs(1), "{}", world.clock.now());
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_deleted_comes_again_and_is_deleted_then() {
    for fault in [Fault::Denied, Fault::Hang, Fault::ServerError, Fault::HalfAnswer] {
        let world = World::new();
        world.aws.fail("sqs:DeleteMessage", fault, u32::MAX);
        world.aws.send("garbage");
        assert!(world.is_silent_for(20).await);
        world.aws.recover("sqs:DeleteMessage");
        assert!(world.is_silent_for(60).await);
        assert_eq!(world.aws.messages(|messages| messages.len()), 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_ignored_is_told_and_left_to_whoever_is_told_to_log() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let world = World::new();
    send_fifty(&world);
    assert_eq!(world.delivery().await.notice.instance.as_str(), id(7));
    assert!(!world.ignored().is_empty());
    let logged = log.0.lock().unwrap().clone();
    assert!(logged.is_empty(), "{logged:#?}");
    // Whatever else is logged would be heard.
    world.hook("drain", 60);
    world.aws.fail("autoscaling:DescribeLifecycleHooks", Fault::Denied, 1);
    world.wait_at("drain", "terminating", 1);
    while world.delivery().await.notice.instance.as_str() != id(1) {}
    assert_eq!(log.0.lock().unwrap().len(), 1);
}
