//! What is told of notices and of their answers, as numbers.

use std::time::Duration;

use jiff::Timestamp;
use prometheus::{Gauge, GaugeVec, HistogramVec, IntCounterVec, Opts, Result};
use spot_core::interruption::{Ignored, NoticeKind, Source, Told};

use super::maker::Maker;
use super::seconds;

/// The aim is 0.25 s for half of them and 1 s for the last; beyond two minutes the machine is gone.
const CORDON_SECONDS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0];
/// A machine that is taken back is there for two minutes, and the pods' default grace period is 30 s.
const EMPTY_SECONDS: [f64; 12] = [1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 75.0, 90.0, 105.0, 120.0, 600.0];

/// How the drain of a node ended that a notice was about.
const EMPTIED: &str = "emptied";
const NOT_EMPTIED: &str = "not_emptied";

/// The numbers.
#[derive(Clone, Debug)]
pub(super) struct Interruptions {
    received: IntCounterVec,
    ignored: IntCounterVec,
    drained: IntCounterVec,
    to_cordon: HistogramVec,
    to_empty: HistogramVec,
    oldest: GaugeVec,
    last_poll: GaugeVec,
    held_until: Gauge,
}

impl Interruptions {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self> {
        let sources = Source::ALL.map(Source::as_str);
        let kinds = NoticeKind::ALL.map(NoticeKind::as_str);
        Ok(Self {
            received: make.pairs(
                "spot_migrator_interruption_notices_total",
                "Notices that came, by their source and what they announce.",
                ("source", sources),
                ("kind", kinds),
            )?,
            ignored: make.pairs(
                "spot_migrator_interruption_notices_ignored_total",
                "Notices and other messages that had no effect, by their source and the reason.",
                ("source", sources),
                ("reason", Ignored::ALL.map(Ignored::as_str)),
            )?,
            drained: make.pairs(
                "spot_migrator_interruption_nodes_drained_total",
                "Nodes drained because of notices, by what was announced and whether they were empty in time.",
                ("kind", kinds),
                ("result", [EMPTIED, NOT_EMPTIED]),
            )?,
            to_cordon: make.histograms(
                "spot_migrator_interruption_notice_to_cordon_seconds",
                "How long after the notice was sent its node was cordoned.",
                "kind",
                kinds,
                &CORDON_SECONDS,
            )?,
            to_empty: make.histograms(
                "spot_migrator_interruption_notice_to_empty_seconds",
                "How long after the notice was sent its node was empty.",
                "kind",
                kinds,
                &EMPTY_SECONDS,
            )?,
            oldest: gauges(
                make,
                "spot_migrator_interruption_oldest_notice_age_seconds",
                "Age of the oldest notice in the source's last answer; 0: there was none.",
            )?,
            last_poll: gauges(
                make,
                "spot_migrator_interruption_last_poll_timestamp_seconds",
                "When the source last answered, in seconds since 1970; 0: not yet.",
            )?,
            held_until: make.kept(Gauge::new(
                "spot_migrator_interruption_held_until_timestamp_seconds",
                "Until when planned work waits, or waited last, in seconds since 1970; 0: it never did.",
            )?)?,
        })
    }

    pub(super) fn observe(&self, at: Timestamp, told: &Told) {
        match told {
            Told::Polled { source, oldest } => {
                self.oldest.with_label_values(&[source.as_str()]).set(oldest.map_or(0.0, |age| age.as_secs_f64()));
                self.last_poll.with_label_values(&[source.as_str()]).set(seconds(at));
            }
            Told::Received { source, kind, instance: _ } => {
                self.received.with_label_values(&[source.as_str(), kind.as_str()]).inc();
            }
            Told::Ignored { source, why, what: _ } => {
                self.ignored.with_label_values(&[source.as_str(), why.as_str()]).inc();
            }
            Told::Cordoned { node: _, kind, after } => took(&self.to_cordon, *kind, *after),
            Told::Emptied { node: _, kind, after } => {
                self.drained.with_label_values(&[kind.as_str(), EMPTIED]).inc();
                took(&self.to_empty, *kind, *after);
            }
            Told::NotEmptied { node: _, kind, why: _ } => {
                self.drained.with_label_values(&[kind.as_str(), NOT_EMPTIED]).inc();
            }
            Told::Held { until } => self.held_until.set(seconds(*until)),
            Told::Softened { node: _ } | Told::Hardened { node: _ } | Told::Returned { node: _, why: _ } => {}
        }
    }
}

/// One for each source.
fn gauges(make: &Maker<'_>, name: &str, help: &str) -> Result<GaugeVec> {
    let gauges = make.kept(GaugeVec::new(Opts::new(name, help), &["source"])?)?;
    for source in Source::ALL {
        gauges.get_metric_with_label_values(&[source.as_str()])?;
    }
    Ok(gauges)
}

fn took(histograms: &HistogramVec, kind: NoticeKind, after: Duration) {
    histograms.with_label_values(&[kind.as_str()]).observe(after.as_secs_f64());
}
