//! What nodes cost while a migration runs, and what it saves.
//!
//! Beside the provider: each survey of the nodes is taken down on its way, and decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use jiff::Timestamp;
use spot_core::capacity::Class;
use spot_core::claim::InstanceId;
use spot_core::cloud::{CloudFacts, Deletion, Freshness, InstanceState};
use spot_core::error::{PortError, chain};
use spot_core::node::{NodeRef, NodeSnapshot, Uid};
use spot_core::ports::{Clock, CloudProvider, Instant, Observer, Write};
use spot_core::progress::Progress;
use spot_core::retire::RetiredNode;
use tracing::{debug, info, warn};

use super::{Dollars, PriceBook, dollars, instance_types, may_be_spot};
use crate::metrics::Metrics;
use crate::provider::Provider;

/// Prices on spot change a few times a day.
const CURRENT: Duration = Duration::from_hours(1);
/// When the cloud is asked again that did not say them: it may have been throttled, or a right is given meanwhile.
const AGAIN: Duration = Duration::from_mins(1);
/// How long the cloud may take to say them. Nobody waits for it.
const ASKING: Duration = Duration::from_secs(30);

/// What nodes cost an hour together, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Those on demand.
    pub on_demand: f64,
    /// Those on spot.
    pub spot: f64,
    /// How much less those on demand would cost on spot.
    pub saving: f64,
}

/// What an hour on spot costs, by instance type and zone, or why that is not known.
type Told = Result<BTreeMap<(String, String), f64>, PortError>;
/// Asks for that, of these instance types, until then.
type Ask = Box<dyn Fn(BTreeSet<String>, Instant) -> BoxFuture<'static, Told> + Send + Sync>;

/// A provider whose surveys are taken down.
pub struct Ledger {
    port: Arc<dyn CloudProvider>,
    ask: Ask,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    book: Arc<Mutex<Book>>,
}

#[derive(Debug)]
struct Book {
    prices: PriceBook,
    /// When the cloud is asked next.
    due: Instant,
    /// Whether it did not say when it was asked last.
    is_silent: bool,
    /// The nodes that this run has seen, and that would be less dear on spot.
    seen: BTreeMap<Uid, Arc<NodeSnapshot>>,
    /// How much less an hour of those together costs that this run has retired.
    saved: f64,
}

impl Ledger {
    /// One for this provider, with these prices.
    #[must_use]
    pub fn new(provider: Provider, prices: PriceBook, clock: Arc<dyn Clock>, metrics: Metrics) -> Self {
        let (due, seen) = (clock.instant(), BTreeMap::new());
        let book = Arc::new(Mutex::new(Book { prices, due, is_silent: false, seen, saved: 0.0 }));
        let port = provider.port();
        let ask: Ask = Box::new(move |types, by| {
            let provider = provider.clone();
            Box::pin(async move { provider.spot_prices(&types, by).await })
        });
        Self { port, ask, clock, metrics, book }
    }

    /// Goes by these prices from now on, and by those that the cloud said.
    pub fn renew(&self, prices: PriceBook) {
        lock(&self.book).prices.table = prices.table;
    }

    /// How much less an hour of the nodes that the last run retired costs on spot, as far as that is known.
    #[must_use]
    pub fn saved_by_run(&self) -> f64 {
        lock(&self.book).saved
    }

    /// Takes down what these nodes cost.
    fn take_down(&self, nodes: &[Arc<NodeSnapshot>], facts: &CloudFacts) {
        let mut book = lock(&self.book);
        let mut totals = Totals::default();
        for node in nodes {
            let class = facts.class(node.uid.as_str());
            let price = book.prices.of(node);
            // What is not known is in no sum.
            let now = price.now(class).unwrap_or_default();
            match class {
                Class::OnDemand => totals.on_demand += now,
                Class::Spot => totals.spot += now,
                Class::Reserved | Class::Unknown => {}
            }
            if may_be_spot(node, class) {
                totals.saving += price.saving().unwrap_or_default();
                book.seen.insert(node.uid.clone(), Arc::clone(node));
            }
        }
        self.metrics.cost(totals);
    }

    /// Has the cloud asked for prices when that is due. Nobody waits for it.
    fn refresh(&self, nodes: &[Arc<NodeSnapshot>]) {
        let now = self.clock.instant();
        let Some(types) = lock(&self.book).next_question(nodes, now) else { return };
        let (told, book) = ((self.ask)(types, now + ASKING), Arc::clone(&self.book));
        drop(tokio::spawn(async move {
            let told = told.await;
            lock(&book).learn(told, now);
        }));
    }
}

impl Book {
    /// The instance types that the cloud is asked for, if that is due.
    fn next_question(&mut self, nodes: &[Arc<NodeSnapshot>], now: Instant) -> Option<BTreeSet<String>> {
        if now < self.due {
            return None;
        }
        let types = instance_types(nodes);
        if types.is_empty() {
            return None;
        }
        self.due = now + CURRENT;
        Some(types)
    }

    /// What the cloud said when it was asked.
    fn learn(&mut self, told: Told, asked: Instant) {
        let was_silent = mem::replace(&mut self.is_silent, told.is_err());
        match told {
            Ok(spot) => self.prices.spot = spot,
            Err(error) => {
                self.due = asked + AGAIN;
                let error = chain(&error);
                if was_silent {
                    debug!(error, "what spot costs is still not known");
                } else {
                    warn!(error, "what spot costs is not known: the cloud is asked again every minute");
                }
            }
        }
    }
}

#[async_trait]
impl CloudProvider for Ledger {
    async fn survey(
        &self,
        nodes: &[Arc<NodeSnapshot>],
        chosen: &[NodeRef],
        freshness: Freshness,
        by: Instant,
    ) -> Result<CloudFacts, PortError> {
        self.refresh(nodes);
        let facts = self.port.survey(nodes, chosen, freshness, by).await?;
        self.take_down(nodes, &facts);
        Ok(facts)
    }

    async fn detach(&self, node: &NodeSnapshot, tainted_at: Option<Timestamp>, write: &Write) -> Result<(), PortError> {
        self.port.detach(node, tainted_at, write).await
    }

    async fn attach(&self, node: &NodeSnapshot, write: &Write) -> Result<(), PortError> {
        self.port.attach(node, write).await
    }

    async fn delete_instance(&self, node: &RetiredNode, write: &Write) -> Result<Deletion, PortError> {
        self.port.delete_instance(node, write).await
    }

    async fn instance_state(&self, instance: &InstanceId, by: Instant) -> Result<InstanceState, PortError> {
        self.port.instance_state(instance, by).await
    }
}

impl Observer for Ledger {
    fn observe(&self, _at: Timestamp, event: &Progress) {
        let mut book = lock(&self.book);
        match event {
            Progress::RunStarted { nodes: _ } => book.saved = 0.0,
            Progress::Retired { node } => {
                let node = book.seen.remove(&node.uid);
                book.saved += node.and_then(|node| book.prices.of(&node).saving()).unwrap_or_default();
            }
            // Some may have been less dear on demand. What is counted is what is told: all of it together.
            Progress::RunEnded { report: _ } | Progress::RunFailed { class: _, why: _ } => {
                if book.saved > 0.0 {
                    let Dollars(month) = Dollars::monthly(book.saved);
                    info!(saves_a_month = dollars(month), "the retired nodes cost so much less on spot");
                }
                self.metrics.saved(book.saved);
                // Whoever is still there is seen again by the next run.
                book.seen.clear();
            }
            _other => {}
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("book", &self.book).finish_non_exhaustive()
    }
}

/// A panic elsewhere leaves whole values in it.
fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
