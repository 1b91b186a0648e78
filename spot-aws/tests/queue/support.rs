//! A queue, its double, and messages as AWS writes them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use jiff::Timestamp;
use serde_json::{Value, json};
use spot_aws::interruption::queue::{Queue, QueueSettings};
use spot_core::error::PortError;
use spot_core::interruption::{Delivery, Handled, Ignored, Told};
use spot_core::ports::{Clock, Instant, NoticeSource, Observer};
use spot_core::progress::Progress;

use crate::double::{Aws, Hook};

/// The queue of the tests.
pub(crate) const URL: &str = "https://sqs.eu-west-1.amazonaws.com/123456789012/notices";

/// Tokio's time, which is virtual, as the core's clock.
#[derive(Debug)]
pub(crate) struct Time(tokio::time::Instant);

#[async_trait]
impl Clock for Time {
    fn now(&self) -> Timestamp {
        noon() + self.0.elapsed()
    }
    fn instant(&self) -> Instant {
        Instant(self.0.elapsed())
    }
    async fn sleep_until(&self, at: Instant) {
        tokio::time::sleep_until(self.0 + at.0).await;
    }
}

/// What the queue told.
#[derive(Debug, Default)]
pub(crate) struct Ears {
    told: Mutex<Vec<Told>>,
    problems: Mutex<Vec<String>>,
}

impl Observer for Ears {
    fn observe(&self, _at: Timestamp, event: &Progress) {
        match event {
            Progress::Interruption(told) => self.told.lock().unwrap().push(told.clone()),
            Progress::Problem { node: None, what, .. } => self.problems.lock().unwrap().push(what.clone()),
            _ => panic!("a queue tells of nothing else: {event:?}"),
        }
    }
}

/// When the tests begin.
pub(crate) fn noon() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn id(number: u32) -> String {
    format!("i-{number:017x}")
}

pub(crate) fn settings() -> QueueSettings {
    QueueSettings {
        url: URL.to_owned(),
        complete_lifecycle_hooks: BTreeSet::from(["drain".to_owned()]),
        scheduled_change_lead: secs(1800),
    }
}

pub(crate) struct World {
    pub(crate) aws: Aws,
    pub(crate) clock: Arc<Time>,
    pub(crate) queue: Queue,
    ears: Arc<Ears>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(settings(), "eu-west-1").unwrap()
    }

    pub(crate) fn with(settings: QueueSettings, region: &'static str) -> Result<Self, PortError> {
        let aws = Aws::default();
        let clock = Arc::new(Time(tokio::time::Instant::now()));
        let ears = Arc::new(Ears::default());
        let credentials = Credentials::new("key", "secret", None, None, "test");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new(region))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .http_client(aws.client())
            .retry_config(RetryConfig::standard())
            .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
            .build();
        let observer = Arc::clone(&ears) as Arc<dyn Observer>;
        let queue = Queue::new(settings, &config, Arc::clone(&clock) as Arc<dyn Clock>, None, observer)?;
        Ok(Self { aws, clock, queue, ears })
    }

    pub(crate) fn by(&self, seconds: u64) -> Instant {
        self.clock.instant() + secs(seconds)
    }

    /// Asks until something comes, as the core does, a second after an answer that is none.
    pub(crate) async fn deliveries(&self) -> Vec<Delivery> {
        loop {
            match self.queue.next().await {
                Ok(deliveries) if deliveries.is_empty() => {}
                Ok(deliveries) => return deliveries,
                Err(_again) => tokio::time::sleep(secs(1)).await,
            }
        }
    }

    /// The one that comes.
    pub(crate) async fn delivery(&self) -> Delivery {
        let mut deliveries = self.deliveries().await;
        assert_eq!(deliveries.len(), 1, "{deliveries:?}");
        deliveries.remove(0)
    }

    /// Whether nothing comes for so long.
    pub(crate) async fn is_silent_for(&self, seconds: u64) -> bool {
        tokio::time::timeout(secs(seconds), self.deliveries()).await.is_err()
    }

    pub(crate) async fn extend(&self, delivery: &Delivery) -> Result<(), PortError> {
        self.queue.extend(delivery, self.by(5)).await
    }

    /// Works on a notice for so long, as the core does.
    pub(crate) async fn work(&self, delivery: &Delivery, seconds: u64) {
        for _ in 0..seconds.div_ceil(5) {
            self.extend(delivery).await.unwrap();
            tokio::time::sleep(secs(5)).await;
        }
    }

    pub(crate) async fn settle(&self, delivery: &Delivery, handled: Handled) {
        self.try_settle(delivery, handled).await.unwrap();
    }

    pub(crate) async fn try_settle(&self, delivery: &Delivery, handled: Handled) -> Result<(), PortError> {
        self.queue.settle(delivery, handled, self.by(10)).await
    }

    /// Has there be a hook in group `workers`.
    pub(crate) fn hook(&self, name: &str, heartbeat: u64) {
        let hook = Hook { heartbeat: secs(heartbeat) };
        self.aws.hooks(|hooks| hooks.known.insert(("workers".to_owned(), name.to_owned()), hook));
    }

    /// A group begins to wait, and says so through EventBridge.
    pub(crate) fn wait_at(&self, name: &str, transition: &str, instance: u32) {
        let token = format!("token-{instance}");
        self.aws.hooks(|hooks| hooks.begin("workers", name, &id(instance), &token));
        self.aws.send(&self.lifecycle(name, transition, instance).to_string());
    }

    pub(crate) fn lifecycle(&self, name: &str, transition: &str, instance: u32) -> Value {
        let detail = json!({
            "LifecycleActionToken": format!("token-{instance}"),
            "AutoScalingGroupName": "workers",
            "LifecycleHookName": name,
            "EC2InstanceId": id(instance),
            "LifecycleTransition": format!("autoscaling:EC2_INSTANCE_{}", transition.to_uppercase()),
            "Origin": "AutoScalingGroup",
            "Destination": "EC2",
        });
        let kind = if transition == "launching" { "launch" } else { "terminate" };
        event("aws.autoscaling", &format!("EC2 Instance-{kind} Lifecycle Action"), self.clock.now(), &detail)
    }

    /// A spot interruption warning.
    pub(crate) fn warning(&self, instance: u32) -> String {
        let detail = json!({ "instance-id": id(instance), "instance-action": "terminate" });
        event("aws.ec2", "EC2 Spot Instance Interruption Warning", self.clock.now(), &detail).to_string()
    }

    /// A change that AWS Health schedules for these.
    pub(crate) fn scheduled(&self, instances: &[u32], at: Timestamp) -> String {
        let affected: Vec<_> = instances.iter().map(|number| json!({ "entityValue": id(*number) })).collect();
        let detail = json!({
            "eventArn": "arn:aws:health:eu-west-1::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/1",
            "service": "EC2",
            "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "eventRegion": "eu-west-1",
            "startTime": jiff::fmt::rfc2822::to_string(&at.to_zoned(jiff::tz::TimeZone::UTC)).unwrap(),
            "affectedEntities": affected,
        });
        event("aws.health", "AWS Health Event", self.clock.now(), &detail).to_string()
    }

    /// The problems so far.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.ears.problems.lock().unwrap().clone()
    }

    /// What was ignored so far, and why.
    pub(crate) fn ignored(&self) -> Vec<(Ignored, String)> {
        let told = self.ears.told.lock().unwrap();
        let ignored = told.iter().map(|told| match told {
            Told::Ignored { why, what, .. } => (*why, what.clone()),
            other => panic!("the rest is the core's to tell: {other:?}"),
        });
        ignored.collect()
    }
}

/// An event of EventBridge.
pub(crate) fn event(source: &str, kind: &str, at: Timestamp, detail: &Value) -> Value {
    json!({
        "version": "0",
        "id": "12345678-1234-1234-1234-123456789012",
        "detail-type": kind,
        "source": source,
        "account": "123456789012",
        "time": jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", at).unwrap(),
        "region": "eu-west-1",
        "resources": [],
        "detail": detail,
    })
}
