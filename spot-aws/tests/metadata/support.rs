//! A source before the service, and time that passes when it is waited for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use spot_aws::ProviderId;
use spot_aws::interruption::metadata::{Metadata, MetadataSettings};
use spot_core::error::PortError;
use spot_core::interruption::{Announcement, Delivery, Handled, Ignored, Reclaim, Told};
use spot_core::ports::{Clock, Instant, NoticeSource as _, Observer};
use spot_core::progress::Progress;

use crate::stub::{INSTANCE, Stub};

/// The warning of an interruption, two minutes ahead.
pub(crate) const TERMINATE: &str = r#"{"action": "terminate", "time": "2026-03-01T12:02:00Z"}"#;

/// What it announces.
pub(crate) fn terminate() -> Announcement {
    Announcement::Interruption { action: Reclaim::Terminate, at: "2026-03-01T12:02:00Z".parse().unwrap() }
}

/// Time that passes only when it is waited for.
#[derive(Debug, Default)]
pub(crate) struct Time(Mutex<Duration>);

#[async_trait]
impl Clock for Time {
    fn now(&self) -> Timestamp {
        let noon: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        noon + *self.0.lock().unwrap()
    }
    fn instant(&self) -> Instant {
        Instant(*self.0.lock().unwrap())
    }
    async fn sleep_until(&self, at: Instant) {
        let mut now = self.0.lock().unwrap();
        *now = (*now).max(at.0);
    }
}

/// What was told.
#[derive(Debug, Default)]
pub(crate) struct Heard(Mutex<Vec<(Ignored, String)>>);

impl Heard {
    pub(crate) fn ignored(&self) -> Vec<(Ignored, String)> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Heard {
    fn observe(&self, _at: Timestamp, event: &Progress) {
        match event {
            Progress::Interruption(Told::Ignored { why, what, .. }) => {
                self.0.lock().unwrap().push((*why, what.clone()));
            }
            other => panic!("nobody asked for {other:?}"),
        }
    }
}

/// The service, and the source before it.
pub(crate) struct World {
    pub(crate) stub: Stub,
    pub(crate) clock: Arc<Time>,
    pub(crate) heard: Arc<Heard>,
    pub(crate) source: Metadata,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_rebalance(true).await
    }

    pub(crate) async fn with_rebalance(rebalance: bool) -> Self {
        let stub = Stub::start().await;
        let (clock, heard) = (Arc::new(Time::default()), Arc::new(Heard::default()));
        let source = open(&stub, INSTANCE, &clock, &heard, rebalance, 0).await.unwrap();
        Self { stub, clock, heard, source }
    }

    /// The notices of the next poll.
    pub(crate) async fn poll(&self) -> Vec<Delivery> {
        self.source.next().await.unwrap()
    }

    /// What the next poll announces, if it announces one thing.
    pub(crate) async fn announced(&self) -> Option<Announcement> {
        let mut deliveries = self.poll().await;
        assert!(deliveries.len() <= 1, "{deliveries:?}");
        deliveries.pop().map(|delivery| delivery.notice.announcement)
    }

    pub(crate) async fn settle(&self, delivery: &Delivery, handled: Handled) {
        self.source.settle(delivery, handled, self.clock.instant()).await.unwrap();
    }
}

/// The source on a machine, for a node of this instance, with so many seconds of patience.
pub(crate) async fn open(
    stub: &Stub,
    instance: &str,
    clock: &Arc<Time>,
    heard: &Arc<Heard>,
    rebalance: bool,
    patience: u64,
) -> Result<Metadata, PortError> {
    let provider_id = ProviderId::parse(&format!("aws:///eu-west-1a/{instance}")).unwrap();
    let settings = MetadataSettings { endpoint: stub.url(), rebalance };
    let by = Instant(Duration::from_secs(patience));
    let (clock, observer) = (Arc::clone(clock) as Arc<dyn Clock>, Arc::clone(heard) as Arc<dyn Observer>);
    Metadata::open(&settings, &provider_id, clock, observer, by).await
}
