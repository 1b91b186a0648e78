//! What the core reports, as numbers for Prometheus.
//!
//! Every series is there from the start, at 0, and labels come from closed lists only: an alert never misses a series
//! that has not begun, and no node's name makes a new one.

mod costs;
mod interruption;
mod maker;
mod notifications;
mod reloads;
mod standing;

use jiff::Timestamp;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder as _, Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use spot_core::capacity::Class;
use spot_core::error::ErrorClass;
use spot_core::ports::Observer;
use spot_core::progress::{Answered, Halted, Outcome, OutcomeKind, Progress, Report, Step};
use spot_core::reason::ReasonKind;

use self::costs::Costs;
use self::interruption::Interruptions;
use self::maker::{Maker, Twice};
use self::notifications::Notifications;
pub use self::notifications::Told;
pub use self::reloads::Reloaded;
use self::reloads::Reloads;
use self::standing::Standing;
use crate::cost::Totals;
use crate::feature::Feature;

/// From a patch to the longest drain of the defaults.
const STEP_SECONDS: [f64; 12] = [0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1200.0, 1800.0, 3600.0];

/// The numbers, and the registry that hands them out.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    success: Twice,
    failure: Twice,
    nodes: IntGaugeVec,
    eligible: IntGauge,
    refused: IntGaugeVec,
    steps: HistogramVec,
    step_failures: IntCounterVec,
    evictions: IntCounterVec,
    pods_moved: IntCounter,
    retired: IntCounter,
    runs: IntCounterVec,
    run_failures: IntCounterVec,
    problems: IntCounterVec,
    last_success: Gauge,
    next_run: Gauge,
    standing: Standing,
    interruptions: Interruptions,
    costs: Costs,
    reloads: Reloads,
    notifications: Notifications,
    #[cfg(feature = "aws")]
    aws_calls: IntCounterVec,
}

impl Metrics {
    /// All of them, at 0, in a registry of their own.
    ///
    /// # Errors
    /// When two have the same name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let make = Maker::new(&registry);
        let metrics = Self {
            success: make.twice(
                "spot_migrator_operation_success_total",
                "Nodes retired, and runs that found nothing left to do.",
            )?,
            failure: make.twice(
                "spot_migrator_operation_failure_total",
                "Runs in which a node failed, or that could not read the cluster or the cloud.",
            )?,
            nodes: make.gauges(
                "spot_migrator_nodes",
                "Nodes by class, as the last run found them.",
                "class",
                Class::ALL.map(Class::as_str),
            )?,
            eligible: make.kept(IntGauge::new(
                "spot_migrator_nodes_eligible",
                "Nodes that may be retired, as the last run judged them.",
            )?)?,
            refused: make.gauges(
                "spot_migrator_nodes_refused",
                "Candidates that may not be retired, by their first reason, as the last run judged them.",
                "reason",
                ReasonKind::ALL.map(ReasonKind::as_str),
            )?,
            steps: make.histograms(
                "spot_migrator_step_duration_seconds",
                "How long the steps of a retirement took that ended well.",
                "step",
                Step::ALL.map(Step::as_str),
                &STEP_SECONDS,
            )?,
            step_failures: make.counters(
                "spot_migrator_step_failures_total",
                "Steps that failed. One that a person, a pause or a signal ended is none.",
                "step",
                Step::ALL.map(Step::as_str),
            )?,
            evictions: make.counters(
                "spot_migrator_evictions_total",
                "Evictions asked for, by the answer.",
                "answer",
                Answered::ALL.map(Answered::as_str),
            )?,
            pods_moved: make
                .kept(IntCounter::new("spot_migrator_pods_moved_total", "Pods whose eviction was accepted.")?)?,
            retired: make.kept(IntCounter::new(
                "spot_migrator_nodes_retired_total",
                "Nodes that are gone with their machines.",
            )?)?,
            runs: make.counters(
                "spot_migrator_runs_total",
                "Runs that ended, by their outcome.",
                "outcome",
                OutcomeKind::ALL.map(OutcomeKind::as_str),
            )?,
            run_failures: make.counters(
                "spot_migrator_run_failures_total",
                "Runs that could not go on, by class.",
                "class",
                ErrorClass::ALL.map(ErrorClass::as_str),
            )?,
            problems: make.counters(
                "spot_migrator_problems_total",
                "Calls that failed without ending the run, by class.",
                "class",
                ErrorClass::ALL.map(ErrorClass::as_str),
            )?,
            last_success: make.kept(Gauge::new(
                "spot_migrator_last_success_timestamp_seconds",
                "When a run last got to its work and ended without a failure, in seconds since 1970; 0: not yet.",
            )?)?,
            next_run: make.kept(Gauge::new(
                "spot_migrator_next_run_timestamp_seconds",
                "When the next run begins, in seconds since 1970; 0: not known yet.",
            )?)?,
            standing: Standing::new(&make)?,
            interruptions: Interruptions::new(&make)?,
            costs: Costs::new(&make)?,
            reloads: Reloads::new(&make)?,
            notifications: Notifications::new(&make)?,
            #[cfg(feature = "aws")]
            aws_calls: make.pairs(
                "spot_migrator_aws_calls_total",
                "Calls of AWS, by the right that each needs and how it ended.",
                ("operation", spot_aws::Action::ALL.iter().map(|action| action.right())),
                ("result", spot_aws::CallResult::ALL.map(spot_aws::CallResult::as_str)),
            )?,
            registry: registry.clone(),
        };
        of_the_process(&make)?;
        Ok(metrics)
    }

    /// Whether this process may write.
    pub fn leads(&self, leads: bool) {
        self.standing.leader.set(i64::from(leads));
    }

    /// Whether nothing is ever written.
    pub fn runs_dry(&self, dry_run: bool) {
        self.standing.dry_run.set(i64::from(dry_run));
    }

    /// The process goes on without something that its configuration asks for.
    pub fn goes_without(&self, feature: Feature) {
        self.standing.goes_without(feature);
    }

    /// A message for the webhook, and what became of it.
    pub fn notified(&self, told: Told) {
        self.notifications.count(told);
    }

    /// The configuration file changed, and what became of that.
    pub fn reloaded(&self, result: Reloaded) {
        self.reloads.reloaded(result);
    }

    /// What is in force is what the configuration file says.
    pub fn goes_by_its_file(&self) {
        self.reloads.goes_by_its_file();
    }

    /// What the nodes cost an hour.
    pub fn cost(&self, totals: Totals) {
        self.costs.seen(totals);
    }

    /// What an hour of a node that was retired cost more than on spot.
    pub fn saved(&self, hourly: f64) {
        self.costs.saved(hourly);
    }

    /// Counts calls of AWS by operation and result.
    #[cfg(feature = "aws")]
    #[must_use]
    pub fn aws_calls(&self) -> spot_aws::CallObserver {
        let calls = self.aws_calls.clone();
        std::sync::Arc::new(move |action, result| {
            calls.with_label_values(&[action.right(), result.as_str()]).inc();
        })
    }

    /// Everything, as Prometheus reads it.
    ///
    /// # Errors
    /// When it can't be written as text.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// What there is to say of the process itself.
fn of_the_process(make: &Maker<'_>) -> Result<(), prometheus::Error> {
    let version = Opts::new("spot_migrator_build_info", "1, with the version as a label.")
        .const_label("version", env!("CARGO_PKG_VERSION"));
    make.kept(IntGauge::with_opts(version)?)?.set(1);
    make.process(ProcessCollector::for_self())
}

impl Observer for Metrics {
    fn observe(&self, at: Timestamp, event: &Progress) {
        match event {
            Progress::RunStarted { nodes } => {
                for class in Class::ALL {
                    self.nodes.with_label_values(&[class.as_str()]).set(count(nodes.get(&class)));
                }
            }
            Progress::Judged { eligible, refused } => {
                self.eligible.set(count(Some(eligible)));
                for kind in ReasonKind::ALL {
                    self.refused.with_label_values(&[kind.as_str()]).set(count(refused.get(&kind)));
                }
            }
            Progress::StepDone { node: _, step, took } => {
                self.step(*step).observe(took.as_secs_f64());
            }
            Progress::Evicted { node: _, pod: _, loses: _, answered } => {
                self.evictions.with_label_values(&[answered.as_str()]).inc();
                if *answered == Answered::Accepted {
                    self.pods_moved.inc();
                }
            }
            Progress::Retired { node: _ } => {
                self.retired.inc();
                self.success.inc();
            }
            Progress::StepHalted { node: _, step, halted: Halted::Failed, took: _ } => {
                self.step_failures.with_label_values(&[step.as_str()]).inc();
            }
            Progress::Problem { node: _, class, what: _ } => {
                self.problems.with_label_values(&[class.as_str()]).inc();
            }
            Progress::RunEnded { report } => {
                self.runs.with_label_values(&[report.outcome.kind().as_str()]).inc();
                if report.found_nothing_to_do() {
                    self.success.inc();
                }
                if report.has_failures() {
                    self.failure.inc();
                } else if succeeded(report) {
                    self.last_success.set(seconds(at));
                }
            }
            Progress::RunFailed { class, why: _ } => {
                self.run_failures.with_label_values(&[class.as_str()]).inc();
                // Another process goes on with it.
                if *class != ErrorClass::NotLeader {
                    self.failure.inc();
                }
            }
            Progress::NextRun { at } => self.next_run.set(seconds(*at)),
            Progress::Interruption(told) => self.interruptions.observe(at, told),
            Progress::WouldRetire { .. }
            | Progress::Pool(_)
            | Progress::Refused { .. }
            | Progress::Waiting { .. }
            | Progress::Exposed { .. }
            | Progress::StepStarted { .. }
            | Progress::StepHalted { .. }
            | Progress::PodBlocked { .. }
            | Progress::Released { .. }
            | Progress::Postponed { .. }
            | Progress::Undone { .. }
            | Progress::Departing { .. }
            | Progress::Created { .. } => {}
        }
    }
}

/// Whether a run without failures did what it is for. One that only tidied up, or was told to end, did not get to it.
const fn succeeded(report: &Report) -> bool {
    match report.outcome {
        Outcome::Recovered => !report.retired.is_empty(),
        Outcome::Stopped => false,
        Outcome::AllSpot
        | Outcome::NothingEligible(_)
        | Outcome::SpotExhausted(_)
        | Outcome::NotSettled(_)
        | Outcome::DryRun(_) => true,
    }
}

impl Metrics {
    fn step(&self, step: Step) -> Histogram {
        self.steps.with_label_values(&[step.as_str()])
    }
}

fn count(nodes: Option<&usize>) -> i64 {
    nodes.map_or(0, |nodes| i64::try_from(*nodes).unwrap_or(i64::MAX))
}

fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::sample::{node, report};

    fn metrics() -> Metrics {
        Metrics::new().expect("names are distinct")
    }

    /// Our own series and their values; those of the process come from the system.
    fn series(metrics: &Metrics) -> BTreeMap<String, String> {
        let text = metrics.text().expect("it is text");
        let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains("spot_migrator"));
        lines
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').expect("a series has a value");
                (name.to_owned(), value.to_owned())
            })
            .collect()
    }

    #[test]
    fn every_series_is_there_at_0_from_the_start() {
        let series = series(&metrics());
        let mut expected = vec![
            "spot_migrator_operation_success_total".to_owned(),
            "spot_migrator_operation_failure_total".to_owned(),
            "cost_manager_spot_migrator_operation_success_total".to_owned(),
            "cost_manager_spot_migrator_operation_failure_total".to_owned(),
            "spot_migrator_last_success_timestamp_seconds".to_owned(),
            "spot_migrator_next_run_timestamp_seconds".to_owned(),
            "spot_migrator_leader".to_owned(),
            "spot_migrator_dry_run".to_owned(),
            "spot_migrator_pods_moved_total".to_owned(),
        ];
        expected
            .extend(Feature::ALL.map(|one| format!("spot_migrator_feature_disabled{{feature=\"{}\"}}", one.as_str())));
        let word = |name: &str, label: &str, value: &str| format!("spot_migrator_{name}{{{label}=\"{value}\"}}");
        expected.extend(Class::ALL.map(|class| word("nodes", "class", class.as_str())));
        expected.extend(ReasonKind::ALL.map(|kind| word("nodes_refused", "reason", kind.as_str())));
        expected.extend(Step::ALL.map(|step| word("step_duration_seconds_count", "step", step.as_str())));
        expected.extend(Answered::ALL.map(|answer| word("evictions_total", "answer", answer.as_str())));
        expected.extend(OutcomeKind::ALL.map(|kind| word("runs_total", "outcome", kind.as_str())));
        expected.extend(ErrorClass::ALL.map(|class| word("run_failures_total", "class", class.as_str())));
        expected.extend(ErrorClass::ALL.map(|class| word("problems_total", "class", class.as_str())));
        expected.extend(Told::ALL.map(|told| word("notifications_total", "result", told.as_str())));
        expected.extend(Reloaded::ALL.map(|result| word("config_reloads_total", "result", result.as_str())));
        for name in expected {
            assert_eq!(series.get(&name).map(String::as_str), Some("0"), "{name}");
        }
        let moved: Vec<_> = series.iter().filter(|(_, value)| *value != "0").map(|(name, _)| name.as_str()).collect();
        let [build, "spot_migrator_config_last_reload_successful"] = moved[..] else { panic!("{moved:?} are not 0") };
        assert!(build.starts_with("spot_migrator_build_info{"), "{build}");
    }

    #[test]
    fn nothing_that_happens_makes_a_new_series() {
        let metrics = metrics();
        let before: Vec<_> = series(&metrics).into_keys().collect();
        let events = [
            Progress::Retired { node: node() },
            Progress::StepDone { node: node(), step: Step::Drain, took: Duration::from_secs(7) },
            Progress::StepHalted { node: node(), step: Step::Drain, halted: Halted::Failed, took: Duration::ZERO },
            Progress::Released { node: node(), step: Step::Drain, why: "a budget".to_owned() },
            Progress::Problem { node: None, class: ErrorClass::Timeout, what: "no answer".to_owned() },
            Progress::RunEnded { report: report(Outcome::AllSpot) },
            Progress::RunFailed { class: ErrorClass::Denied, why: "no right".to_owned() },
        ];
        for event in events {
            metrics.observe(Timestamp::UNIX_EPOCH, &event);
        }
        assert_eq!(series(&metrics).into_keys().collect::<Vec<_>>(), before);
    }

    #[test]
    fn success_counts_retired_nodes_and_runs_with_nothing_left_to_do_under_both_names() {
        let metrics = metrics();
        let now = Timestamp::from_second(1_000).expect("it is a time");
        metrics.observe(now, &Progress::Retired { node: node() });
        metrics.observe(now, &Progress::RunEnded { report: report(Outcome::AllSpot) });
        metrics.observe(now, &Progress::RunEnded { report: report(Outcome::SpotExhausted(node())) });
        let series = series(&metrics);
        assert_eq!(series["spot_migrator_operation_success_total"], "2");
        assert_eq!(series["cost_manager_spot_migrator_operation_success_total"], "2");
        assert_eq!(series["spot_migrator_operation_failure_total"], "0");
        assert_eq!(series["spot_migrator_last_success_timestamp_seconds"], "1000");
    }

    #[test]
    fn a_run_that_did_not_get_to_its_work_leaves_the_last_success_as_it_was() {
        let metrics = metrics();
        let observe = |second, report| {
            let at = Timestamp::from_second(second).expect("it is a time");
            metrics.observe(at, &Progress::RunEnded { report });
            series(&metrics)["spot_migrator_last_success_timestamp_seconds"].clone()
        };
        assert_eq!(observe(1, report(Outcome::AllSpot)), "1");
        assert_eq!(observe(2, report(Outcome::Stopped)), "1");
        assert_eq!(observe(3, report(Outcome::Recovered)), "1");
        assert_eq!(observe(4, Report { retired: vec![node()], ..report(Outcome::Recovered) }), "4");
    }

    #[test]
    fn failure_counts_runs_with_a_failed_node_and_runs_that_could_not_go_on() {
        let metrics = metrics();
        let failed = Report { failed: vec![(node(), "a budget".to_owned())], ..report(Outcome::AllSpot) };
        metrics.observe(Timestamp::UNIX_EPOCH, &Progress::RunEnded { report: failed });
        let fails = |class| {
            let why = "no answer".to_owned();
            metrics.observe(Timestamp::UNIX_EPOCH, &Progress::RunFailed { class, why });
        };
        fails(ErrorClass::Timeout);
        fails(ErrorClass::NotLeader);
        let series = series(&metrics);
        assert_eq!(series["spot_migrator_run_failures_total{class=\"timeout\"}"], "1");
        assert_eq!(series["spot_migrator_run_failures_total{class=\"not_leader\"}"], "1", "another process goes on");
        assert_eq!(series["spot_migrator_operation_failure_total"], "2");
        assert_eq!(series["cost_manager_spot_migrator_operation_failure_total"], "2");
        assert_eq!(series["spot_migrator_operation_success_total"], "0");
    }

    #[test]
    fn a_step_that_fails_is_counted_and_one_that_was_ended_is_not() {
        let metrics = metrics();
        for halted in [Halted::Failed, Halted::Paused, Halted::Undone, Halted::Stopped] {
            let event = Progress::StepHalted { node: node(), step: Step::Settle, halted, took: Duration::ZERO };
            metrics.observe(Timestamp::UNIX_EPOCH, &event);
        }
        let series = series(&metrics);
        assert_eq!(series["spot_migrator_step_failures_total{step=\"settle\"}"], "1");
        assert_eq!(series["spot_migrator_step_duration_seconds_count{step=\"settle\"}"], "0");
    }

    #[cfg(feature = "aws")]
    #[test]
    fn calls_of_aws_are_counted_by_operation_and_result() {
        let metrics = metrics();
        let name = "spot_migrator_aws_calls_total{operation=\"ec2:DescribeInstances\",result=\"throttled\"}";
        assert_eq!(series(&metrics)[name], "0");
        metrics.aws_calls()(spot_aws::Action::DescribeInstances, spot_aws::CallResult::Throttled);
        assert_eq!(series(&metrics)[name], "1");
    }

    #[test]
    fn a_new_judgement_replaces_the_one_before() {
        let metrics = metrics();
        let judged = |kind| Progress::Judged { eligible: 1, refused: BTreeMap::from([(kind, 2)]) };
        metrics.observe(Timestamp::UNIX_EPOCH, &judged(ReasonKind::EmptyDir));
        metrics.observe(Timestamp::UNIX_EPOCH, &judged(ReasonKind::NotReady));
        let series = series(&metrics);
        assert_eq!(series["spot_migrator_nodes_refused{reason=\"empty_dir\"}"], "0");
        assert_eq!(series["spot_migrator_nodes_refused{reason=\"not_ready\"}"], "2");
        assert_eq!(series["spot_migrator_nodes_eligible"], "1");
    }
}
