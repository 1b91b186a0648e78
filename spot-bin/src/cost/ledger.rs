//! What nodes cost while a migration runs, and what it saves.
//!
//! Beside the provider: each survey of the nodes is taken down on its way, and decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use spot_core::capacity::Class;
use spot_core::claim::InstanceId;
use spot_core::cloud::{CloudFacts, Deletion, Freshness, InstanceState};
use spot_core::error::{PortError, chain};
use spot_core::node::{NodeRef, NodeSnapshot, Uid};
use spot_core::ports::{Clock, CloudProvider, Instant, Observer, Write};
use spot_core::progress::Progress;
use spot_core::retire::RetiredNode;
use tracing::{debug, info};

use super::{Dollars, PriceBook, dollars, instance_types, may_be_spot};
use crate::metrics::Metrics;
use crate::provider::Provider;

/// Prices on spot change a few times a day.
const CURRENT: Duration = Duration::from_hours(1);
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

/// A provider whose surveys are taken down.
pub struct Ledger {
    provider: Provider,
    port: Arc<dyn CloudProvider>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    book: Arc<Mutex<Book>>,
}

#[derive(Debug)]
struct Book {
    prices: PriceBook,
    asked: Option<Instant>,
    /// How much less an hour of each on-demand node that this run has seen would cost on spot.
    savings: BTreeMap<Uid, f64>,
    /// The same of those together that this run has retired.
    saved: f64,
}

impl Ledger {
    /// One for this provider, with these prices.
    #[must_use]
    pub fn new(provider: Provider, prices: PriceBook, clock: Arc<dyn Clock>, metrics: Metrics) -> Self {
        let book = Book { prices, asked: None, savings: BTreeMap::new(), saved: 0.0 };
        Self { port: provider.port(), provider, clock, metrics, book: Arc::new(Mutex::new(book)) }
    }

    /// Goes by these prices from now on; what the cloud says of spot is asked anew.
    pub fn renew(&self, prices: PriceBook) {
        let mut book = lock(&self.book);
        (book.prices, book.asked) = (prices, None);
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
            if let Some(saving) = price.saving().filter(|_| may_be_spot(node, class)) {
                totals.saving += saving;
                book.savings.insert(node.uid.clone(), saving);
            }
        }
        self.metrics.cost(totals);
    }

    /// Has the cloud asked for prices, unless that was done lately.
    fn refresh(&self, nodes: &[Arc<NodeSnapshot>]) {
        let now = self.clock.instant();
        let types = {
            let mut book = lock(&self.book);
            if book.asked.is_some_and(|asked| now < asked + CURRENT) {
                return;
            }
            let types = instance_types(nodes);
            if types.is_empty() {
                return;
            }
            book.asked = Some(now);
            types
        };
        let (provider, book) = (self.provider.clone(), Arc::clone(&self.book));
        drop(tokio::spawn(async move { ask(&provider, &types, now + ASKING, &book).await }));
    }
}

async fn ask(provider: &Provider, types: &BTreeSet<String>, by: Instant, book: &Mutex<Book>) {
    match provider.spot_prices(types, by).await {
        Ok(spot) if spot.is_empty() => {}
        Ok(spot) => {
            let mut book = lock(book);
            book.prices = mem::take(&mut book.prices).with_spot(spot);
        }
        Err(error) => debug!(error = chain(&error), "what spot costs could not be asked for"),
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
                if let Some(saving) = book.savings.remove(&node.uid) {
                    book.saved += saving;
                    self.metrics.saved(saving);
                }
            }
            Progress::RunEnded { report: _ } => {
                if book.saved > 0.0 {
                    let Dollars(month) = Dollars::monthly(book.saved);
                    info!(saves_a_month = dollars(month), "the retired nodes cost so much less on spot");
                }
                // Whoever is still there is seen again by the next run.
                book.savings.clear();
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
mod tests {
    use std::fs;

    use spot_core::progress::Outcome;
    use spot_kube::TokioClock;

    use super::*;
    use crate::config::Config;
    use crate::sample::{report, snapshot};

    fn ledger() -> (Ledger, Metrics) {
        let keys = [("cloudProvider.name".to_owned(), "node-object".to_owned())].into();
        let config = Config::load(None, [], &keys).expect("it is right");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("prices");
        fs::write(&path, "eu-west-1,m5.large,0.1,0.04\neu-west-1,m5.xlarge,0.2\n").expect("it is writable");
        let prices = PriceBook::read(Some(&path)).expect("it is a table");
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let metrics = Metrics::new().expect("names are distinct");
        (Ledger::new(Provider::node_object(&config, &clock), prices, clock, metrics.clone()), metrics)
    }

    fn node(name: &str, kind: &str, lifecycle: &str) -> Arc<NodeSnapshot> {
        let mut node = snapshot(name);
        for (key, value) in [
            ("node.kubernetes.io/instance-type", kind),
            ("topology.kubernetes.io/region", "eu-west-1"),
            ("node.kubernetes.io/lifecycle", lifecycle),
        ] {
            node.labels.insert(key.to_owned(), value.to_owned());
        }
        Arc::new(node)
    }

    fn value(metrics: &Metrics, series: &str) -> f64 {
        let text = metrics.text().expect("it is text");
        let line = text.lines().find_map(|line| line.strip_prefix(series)).expect("it is there");
        line.trim().parse().expect("it is a number")
    }

    #[tokio::test]
    async fn what_nodes_cost_is_a_number_and_so_is_what_their_retirement_saves() {
        let (ledger, metrics) = ledger();
        let nodes = [
            node("a", "m5.large", "on-demand"),
            node("b", "m5.xlarge", "on-demand"),
            node("c", "m5.large", "spot"),
            node("d", "m5.large", "none"),
        ];
        let by = ledger.clock.instant() + Duration::from_secs(10);
        let facts = ledger.survey(&nodes, &[], Freshness::Now, by).await.expect("labels tell");
        assert_eq!(facts.of("a").map(|fact| fact.class), Some(Class::OnDemand), "the provider's word is passed on");
        let close = |series: &str, dollars: f64| {
            let found = value(&metrics, series);
            assert!((found - dollars).abs() < 1e-9, "{series}: {found}");
        };
        close("spot_migrator_cost_dollars_per_hour{class=\"on-demand\"}", 0.3);
        close("spot_migrator_cost_dollars_per_hour{class=\"spot\"}", 0.04);
        close("spot_migrator_possible_saving_dollars_per_hour", 0.06);
        for name in ["a", "b", "a", "c"] {
            ledger.observe(Timestamp::UNIX_EPOCH, &Progress::Retired { node: snapshot(name).reference() });
        }
        close("spot_migrator_saved_dollars_per_hour_total", 0.06);
        ledger.observe(Timestamp::UNIX_EPOCH, &Progress::RunEnded { report: report(Outcome::AllSpot) });
        assert!(lock(&ledger.book).savings.is_empty(), "nothing of a run is kept for ever");
    }
}
