//! Metrics that are registered, with every series that they will have, at 0.

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry, Result};

/// Makes metrics and takes them into a registry.
pub(super) struct Maker<'r>(&'r Registry);

/// One count under our name and under that of cost-manager, whose alerts go on working.
#[derive(Clone, Debug)]
pub(super) struct Twice(IntCounter, IntCounter);

impl Twice {
    pub(super) fn inc(&self) {
        self.0.inc();
        self.1.inc();
    }
}

impl<'r> Maker<'r> {
    pub(super) const fn new(registry: &'r Registry) -> Self {
        Self(registry)
    }

    pub(super) fn kept<M: Collector + Clone + 'static>(&self, metric: M) -> Result<M> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    pub(super) fn process(&self, collector: ProcessCollector) -> Result<()> {
        self.0.register(Box::new(collector))
    }

    pub(super) fn twice(&self, name: &str, help: &str) -> Result<Twice> {
        let theirs = format!("cost_manager_{name}");
        let as_theirs = format!("{help} As {name}, under the name that cost-manager gave it.");
        Ok(Twice(self.kept(IntCounter::new(name, help)?)?, self.kept(IntCounter::new(theirs, as_theirs)?)?))
    }

    pub(super) fn counters<const N: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
    ) -> Result<IntCounterVec> {
        let counters = self.kept(IntCounterVec::new(Opts::new(name, help), &[label])?)?;
        for value in values {
            counters.get_metric_with_label_values(&[value])?;
        }
        Ok(counters)
    }

    /// One for each pair of two labels' values.
    pub(super) fn pairs<'v, const N: usize>(
        &self,
        name: &str,
        help: &str,
        first: (&str, impl IntoIterator<Item = &'v str>),
        second: (&str, [&str; N]),
    ) -> Result<IntCounterVec> {
        let counters = self.kept(IntCounterVec::new(Opts::new(name, help), &[first.0, second.0])?)?;
        for one in first.1 {
            for other in second.1 {
                counters.get_metric_with_label_values(&[one, other])?;
            }
        }
        Ok(counters)
    }

    pub(super) fn gauges<const N: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
    ) -> Result<IntGaugeVec> {
        let gauges = self.kept(IntGaugeVec::new(Opts::new(name, help), &[label])?)?;
        for value in values {
            gauges.get_metric_with_label_values(&[value])?;
        }
        Ok(gauges)
    }

    pub(super) fn histograms<const N: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
        buckets: &[f64],
    ) -> Result<HistogramVec> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let histograms = self.kept(HistogramVec::new(opts, &[label])?)?;
        for value in values {
            histograms.get_metric_with_label_values(&[value])?;
        }
        Ok(histograms)
    }
}
