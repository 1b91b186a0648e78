//! The notices of the machine on which the process runs, from its own metadata service.
//!
//! ```text
//! instance-id ─► the machine of this node, or nothing begins
//! spot/instance-action · events/recommendations/rebalance ── every 2 s ──► document ─► ledger ─► Delivery
//! events/maintenance/scheduled ── every 30 s ─────────────────┘
//! ```
//!
//! The service goes on announcing until the machine is gone, and is told nothing: what was delivered, and what became
//! of it, is remembered here, and forgotten with the announcement.
//!
//! # Cancel safety
//! Every future may be dropped: a notice counts as delivered only once it is returned.

mod document;
mod ledger;
mod service;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use spot_core::claim::InstanceId;
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::interruption::{Delivery, Handled, Source, Told};
use spot_core::ports::{Clock, Instant, NoticeSource, Observer};
use spot_core::progress::Progress;
use tracing::warn;

use crate::provider_id::ProviderId;
use document::Document;
use ledger::Ledger;
use service::Service;

/// Where the service is, unless somebody says otherwise.
pub const ENDPOINT: &str = "http://169.254.169.254";

/// The pause between two polls: what AWS recommends for the warning of an interruption is five seconds.
const POLL: Duration = Duration::from_secs(2);

/// What the source of a machine's notices needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataSettings {
    /// Where the service is; [`ENDPOINT`] unless it is another one.
    pub endpoint: String,
    /// Whether recommendations to rebalance are asked for.
    pub rebalance: bool,
}

/// The notices of one machine.
pub struct Metadata {
    service: Service,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    instance: InstanceId,
    state: Mutex<State>,
}

/// What changes.
#[derive(Debug, Default)]
struct State {
    ledger: Ledger,
    /// When each document is asked for next.
    due: BTreeMap<Document, Instant>,
}

impl Metadata {
    /// The notices of the machine behind a node, which has this provider ID. The service is asked which machine it is
    /// of until it answers, or until `by`.
    ///
    /// # Errors
    /// When it does not answer in time, or of another machine: nothing that it says is meant for this node.
    pub async fn open(
        settings: &MetadataSettings,
        provider_id: &ProviderId,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        by: Instant,
    ) -> Result<Self, PortError> {
        let service = Service::new(&settings.endpoint)?;
        let instance = instance(&service, clock.as_ref(), by).await?;
        if instance.as_str() != provider_id.instance_id() {
            let what = format!(
                "the metadata service at {} is of {instance}, but the machine of the node is {}: run on the node's own \
                 machine, in its network",
                settings.endpoint,
                provider_id.instance_id(),
            );
            return Err(PortError::new(ErrorClass::Permanent, what));
        }
        let wanted = |document: &Document| settings.rebalance || *document != Document::Rebalance;
        let due = Document::ALL.into_iter().filter(wanted).map(|document| (document, Instant::default())).collect();
        let state = Mutex::new(State { due, ..State::default() });
        Ok(Self { service, clock, observer, instance, state })
    }

    /// The machine.
    #[must_use]
    pub const fn instance(&self) -> &InstanceId {
        &self.instance
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be asked for, once the time for any of it has come.
    async fn due(&self) -> Vec<Document> {
        let first = self.state().due.values().min().copied().unwrap_or_default();
        self.clock.sleep_until(first).await;
        let now = self.clock.instant();
        let mut state = self.state();
        let due = state.due.iter_mut().filter(|(_, due)| **due <= now);
        due.map(|(document, due)| {
            *due = now + POLL;
            *document
        })
        .collect()
    }

    /// The notices in an answer that were not delivered, and what of it can't be made use of.
    fn read(&self, document: Document, text: Option<&str>) -> Vec<Delivery> {
        let (announced, unusable) = text.map_or_else(Default::default, |text| document.read(text));
        let (now, instant) = (self.clock.now(), self.clock.instant());
        for (why, what) in unusable {
            let told = Told::Ignored { source: Source::Metadata, why, what: format!("{document}: {what}") };
            self.observer.observe(now, &Progress::Interruption(told));
        }
        let mut state = self.state();
        state.due.insert(document, instant + document.pause());
        state.ledger.sight(document, announced, &self.instance, (now, instant))
    }
}

#[async_trait]
impl NoticeSource for Metadata {
    fn kind(&self) -> Source {
        Source::Metadata
    }

    /// Only the machine on which the process runs.
    fn instance_of(&self, provider_id: &str) -> Option<InstanceId> {
        // Whatever else is wrong with it: it is not ours.
        let parsed = ProviderId::parse(provider_id).ok()?;
        (parsed.instance_id() == self.instance.as_str()).then(|| self.instance.clone())
    }

    async fn next(&self) -> Result<Vec<Delivery>, PortError> {
        let due = self.due().await;
        let answers = join_all(due.iter().map(|document| self.service.get(document.path()))).await;
        let (mut deliveries, mut failed) = (Vec::new(), None);
        for (document, answer) in due.into_iter().zip(answers) {
            match answer {
                Ok(text) => deliveries.extend(self.read(document, text.as_deref())),
                // One error tells enough of a service that fails; a notice tells more than an error, which comes again.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if deliveries.is_empty() => Err(error),
            Some(_) | None => Ok(deliveries),
        }
    }

    /// Nobody else is there to whom it could be delivered.
    async fn extend(&self, _delivery: &Delivery, _by: Instant) -> Result<(), PortError> {
        Ok(())
    }

    async fn settle(&self, delivery: &Delivery, handled: Handled, _by: Instant) -> Result<(), PortError> {
        let now = self.clock.instant();
        self.state().ledger.settle(&delivery.ticket.message, handled, now);
        Ok(())
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// The machine that the service is of.
async fn instance(service: &Service, clock: &dyn Clock, by: Instant) -> Result<InstanceId, PortError> {
    let mut told = String::new();
    loop {
        let error = match service.get("instance-id").await {
            // What is no instance ID is none in a provider ID either.
            Ok(Some(id)) if ProviderId::parse(&format!("aws:////{id}")).is_ok() => return Ok(InstanceId::new(id)),
            Ok(Some(id)) => PortError::new(ErrorClass::Transient, format!("{id:?} is no instance ID")),
            Ok(None) => PortError::new(ErrorClass::Transient, "the metadata service has no instance-id"),
            Err(error) => error,
        };
        let next = clock.instant() + POLL;
        if next > by || error.class == ErrorClass::Permanent {
            return Err(PortError::new(error.class, "it is not known which machine this is").caused_by(error));
        }
        let why = chain(&error);
        if why != told {
            warn!(error = why, "the metadata service does not say yet which machine this is; trying again");
            told = why;
        }
        clock.sleep_until(next).await;
    }
}
