//! The numbers as Prometheus scrapes them: what is there from the start, what grows, and what a failure looks like.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use spot_bin::metrics::Metrics;
use spot_core::Node as _;
use spot_core::capacity::Class;
use spot_core::claim::InstanceId;
use spot_core::cloud::{CloudFacts, Deletion, Freshness, InstanceState};
use spot_core::error::{ErrorClass, PortError};
use spot_core::interruption::{
    Announcement, Hold, Ignored, InterruptionSettings, Interruptions, NoticeKind, Reclaim, Source, Told,
};
use spot_core::migrator::{Migrator, Settings};
use spot_core::model::{self, WorldBuilder};
use spot_core::node::{NodeRef, NodeSnapshot, Uid};
use spot_core::pod::PodRef;
use spot_core::ports::{Clock, CloudProvider, Instant, Observer as _, Ports, Write};
use spot_core::progress::{Answered, Outcome, Progress, Report, Step, Undo};
use spot_core::retire::RetiredNode;
use spot_core::schedule::Schedule;
use spot_core::stop::Stop;

fn metrics() -> Metrics {
    Metrics::new().expect("names are distinct")
}

/// All series but those that the system tells of the process, with their values.
fn series(metrics: &Metrics) -> BTreeMap<String, String> {
    let text = metrics.text().expect("it is text");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("process_"));
    let parse = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a series has a value");
        (name.to_owned(), value.to_owned())
    };
    lines.map(parse).collect()
}

/// A value without what comes after the point.
fn whole(series: &BTreeMap<String, String>, name: &str) -> u64 {
    series[name].split('.').next().unwrap_or_default().parse().expect("the value is a number")
}

/// The name of a series' family, which its HELP and TYPE tell of.
fn family(series: &str) -> &str {
    let name = series.split('{').next().unwrap_or_default();
    let part = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
    part.filter(|name| name.ends_with("_seconds")).unwrap_or(name)
}

#[test]
fn rb_61_every_series_is_there_at_0_before_anything_happens_and_says_what_it_is() {
    let metrics = metrics();
    let text = metrics.text().expect("it is text");
    let mut helped = BTreeSet::new();
    let mut typed = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(help)) => {
                assert!(help.len() > 10 && helped.insert(name.to_owned()), "{line}");
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(kind != "counter" || name.ends_with("_total"), "{line}");
                assert!(helped.contains(name) && typed.insert(name.to_owned()), "{line}");
            }
            _series => {}
        }
    }
    let series = series(&metrics);
    for (name, value) in &series {
        assert!(typed.contains(family(name)), "{name} has no TYPE");
        let is_one =
            name.starts_with("spot_migrator_build_info{") || name == "spot_migrator_config_last_reload_successful";
        assert_eq!(value, if is_one { "1" } else { "0" }, "{name}");
    }
    let families: BTreeSet<_> = series.keys().map(|name| family(name)).collect();
    for name in [
        "spot_migrator_operation_success_total",
        "spot_migrator_operation_failure_total",
        "cost_manager_spot_migrator_operation_success_total",
        "cost_manager_spot_migrator_operation_failure_total",
        "spot_migrator_nodes",
        "spot_migrator_nodes_refused",
        "spot_migrator_step_duration_seconds",
        "spot_migrator_evictions_total",
        "spot_migrator_pods_moved_total",
        "spot_migrator_last_success_timestamp_seconds",
        "spot_migrator_next_run_timestamp_seconds",
        "spot_migrator_leader",
        "spot_migrator_feature_disabled",
    ] {
        assert!(families.contains(name), "{name} is missing among {families:#?}");
    }
    for source in Source::ALL.map(Source::as_str) {
        for kind in NoticeKind::ALL {
            let name = format!("spot_migrator_interruption_notices_total{{kind=\"{kind}\",source=\"{source}\"}}");
            assert!(series.contains_key(&name), "{name} is missing");
        }
        for why in Ignored::ALL {
            let name = "spot_migrator_interruption_notices_ignored_total";
            assert!(series.contains_key(&format!("{name}{{reason=\"{why}\",source=\"{source}\"}}")), "{why}, {source}");
        }
        for name in ["oldest_notice_age_seconds", "last_poll_timestamp_seconds"] {
            let name = format!("spot_migrator_interruption_{name}{{source=\"{source}\"}}");
            assert!(series.contains_key(&name), "{name} is missing");
        }
    }
    for kind in NoticeKind::ALL {
        for result in ["emptied", "not_emptied"] {
            let name = "spot_migrator_interruption_nodes_drained_total";
            assert!(series.contains_key(&format!("{name}{{kind=\"{kind}\",result=\"{result}\"}}")), "{kind}, {result}");
        }
        for (name, bound) in [("cordon", "0.25"), ("cordon", "1"), ("empty", "120")] {
            let name = format!("spot_migrator_interruption_notice_to_{name}_seconds_bucket");
            assert!(
                series.contains_key(&format!("{name}{{kind=\"{kind}\",le=\"{bound}\"}}")),
                "{name}, {kind}, {bound}"
            );
        }
    }
    assert!(series.contains_key("spot_migrator_interruption_held_until_timestamp_seconds"));
    // A follower never has more than that, and a leader has the same.
    let names: Vec<_> = series.into_keys().collect();
    metrics.leads(true);
    assert_eq!(self::series(&metrics).into_keys().collect::<Vec<_>>(), names);
}

/// Everything that can be told of one node, under a name that nothing else has.
fn history(number: u32) -> Vec<Progress> {
    let node = NodeRef {
        name: format!("ip-10-0-{number}").into(),
        uid: Uid::new(format!("uid-{number}")),
        resource_version: None,
    };
    let pod = PodRef { namespace: "default".into(), name: format!("web-{number}").into(), uid: node.uid.clone() };
    let why = format!("told of {number}");
    let report = Report {
        outcome: Outcome::SpotExhausted(node.clone()),
        retired: vec![node.clone()],
        failed: vec![(node.clone(), why.clone())],
        undone: Vec::new(),
        departing: vec![node.clone()],
        evictions: 1,
    };
    let mut events = vec![
        Progress::WouldRetire { node: node.clone() },
        Progress::Retired { node: node.clone() },
        Progress::Undone { node: node.clone(), undo: Undo::Uncordoned },
        Progress::Departing { node: node.clone(), why: why.clone() },
        Progress::Created { node: node.clone() },
        Progress::RunEnded { report },
    ];
    events.extend(Answered::ALL.map(|answered| Progress::Evicted {
        node: node.clone(),
        pod: pod.clone(),
        loses: None,
        answered,
    }));
    for step in Step::ALL {
        let took = Duration::from_secs(u64::from(number));
        events.push(Progress::StepStarted { node: node.clone(), step });
        events.push(Progress::StepDone { node: node.clone(), step, took });
        events.push(Progress::Released { node: node.clone(), step, why: why.clone() });
    }
    events.extend(told(number, &node).map(Progress::Interruption));
    let problem = |class| Progress::Problem { node: Some(node.clone()), class, what: why.clone() };
    events.extend(ErrorClass::ALL.map(problem));
    events
}

/// Everything that can be told of a notice about one node.
fn told(number: u32, node: &NodeRef) -> impl Iterator<Item = Told> {
    let node = node.clone();
    let after = Duration::from_millis(u64::from(number));
    let why = format!("told of {number}");
    let of_sources = Source::ALL.into_iter().flat_map({
        let (instance, what) = (InstanceId::new(format!("i-told of {number}")), why.clone());
        move |source| {
            let ignored = Ignored::ALL.map(|why| Told::Ignored { source, why, what: what.clone() });
            let received = NoticeKind::ALL.map(|kind| Told::Received { source, kind, instance: instance.clone() });
            ignored.into_iter().chain(received).chain([Told::Polled { source, oldest: Some(after) }])
        }
    });
    let of_kinds = NoticeKind::ALL.into_iter().flat_map({
        let node = node.clone();
        move |kind| {
            [
                Told::Cordoned { node: node.clone(), kind, after },
                Told::Emptied { node: node.clone(), kind, after },
                Told::NotEmptied { node: node.clone(), kind, why: why.clone() },
            ]
        }
    });
    let until = Timestamp::UNIX_EPOCH;
    of_sources.chain(of_kinds).chain([
        Told::Softened { node: node.clone() },
        Told::Hardened { node: node.clone() },
        Told::Returned { node, why: "it started again" },
        Told::Held { until },
    ])
}

#[test]
fn rb_62_ten_thousand_nodes_with_names_of_their_own_make_no_new_series() {
    let metrics = metrics();
    let before: Vec<_> = series(&metrics).into_keys().collect();
    for number in 0..10_000 {
        for event in history(number) {
            metrics.observe(Timestamp::UNIX_EPOCH, &event);
        }
    }
    let after = series(&metrics);
    assert_eq!(after["spot_migrator_nodes_retired_total"], "10000", "all were told of");
    assert_eq!(
        after["spot_migrator_interruption_nodes_drained_total{kind=\"spot_interruption\",result=\"emptied\"}"],
        "10000"
    );
    assert_eq!(after.into_keys().collect::<Vec<_>>(), before);
    let text = metrics.text().expect("it is text");
    assert!(!text.contains("ip-10-0-") && !text.contains("told of"), "{text}");
}

#[test]
fn labels_are_of_a_closed_list_and_none_of_them_is_a_name() {
    let series = series(&metrics());
    let labels = series.keys().filter_map(|series| series.split_once('{')).flat_map(|(_, labels)| {
        labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('=')).map(|(key, _)| key)
    });
    let labels: BTreeSet<_> = labels.collect();
    let closed = BTreeSet::from([
        "answer",
        "class",
        "feature",
        "kind",
        "le",
        "operation",
        "outcome",
        "reason",
        "result",
        "source",
        "step",
        "version",
    ]);
    // Not every build has the calls to AWS.
    let others: Vec<_> = labels.difference(&closed).collect();
    assert_eq!(others, [&""; 0], "whoever adds one looks whether its values may be known to anybody");
    assert!(labels.contains("reason"), "{labels:?}");
}

#[test]
fn an_answer_of_a_source_sets_the_age_of_its_oldest_notice_and_when_it_came() {
    let metrics = metrics();
    let polled = |second, oldest| {
        let told = Told::Polled { source: Source::Queue, oldest };
        metrics.observe(Timestamp::from_second(second).expect("it is a time"), &Progress::Interruption(told));
        let series = series(&metrics);
        let value = |name| series[&format!("spot_migrator_interruption_{name}{{source=\"queue\"}}")].clone();
        (value("last_poll_timestamp_seconds"), value("oldest_notice_age_seconds"))
    };
    assert_eq!(polled(1_000, Some(Duration::from_millis(2_500))), ("1000".to_owned(), "2.5".to_owned()));
    assert_eq!(polled(1_020, None), ("1020".to_owned(), "0".to_owned()), "nothing waits any more");
    let held = Told::Held { until: Timestamp::from_second(1_900).expect("it is a time") };
    metrics.observe(Timestamp::UNIX_EPOCH, &Progress::Interruption(held));
    let series = series(&metrics);
    assert_eq!(series["spot_migrator_interruption_held_until_timestamp_seconds"], "1900");
    assert_eq!(series["spot_migrator_interruption_last_poll_timestamp_seconds{source=\"metadata\"}"], "0");
}

#[test]
fn how_long_a_node_waited_for_its_cordon_and_its_emptiness_is_measured_by_kind() {
    let metrics = metrics();
    let kind = NoticeKind::Interruption;
    let node = NodeRef { name: "a".into(), uid: Uid::new("a"), resource_version: None };
    for millis in [100, 251] {
        let after = Duration::from_millis(millis);
        metrics.observe(
            Timestamp::UNIX_EPOCH,
            &Progress::Interruption(Told::Cordoned { node: node.clone(), kind, after }),
        );
    }
    let after = Duration::from_secs(46);
    metrics.observe(Timestamp::UNIX_EPOCH, &Progress::Interruption(Told::Emptied { node: node.clone(), kind, after }));
    let why = "a pod is in the way".to_owned();
    metrics.observe(Timestamp::UNIX_EPOCH, &Progress::Interruption(Told::NotEmptied { node, kind, why }));
    let series = series(&metrics);
    let below = |what, bound| {
        let name = format!("spot_migrator_interruption_notice_to_{what}_seconds_bucket");
        series[&format!("{name}{{kind=\"spot_interruption\",le=\"{bound}\"}}")].clone()
    };
    assert_eq!((below("cordon", "0.25"), below("cordon", "0.5")), ("1".to_owned(), "2".to_owned()));
    assert_eq!((below("empty", "45"), below("empty", "60")), ("0".to_owned(), "1".to_owned()));
    let drained = |result| {
        series[&format!(
            "spot_migrator_interruption_nodes_drained_total{{kind=\"spot_interruption\",result=\"{result}\"}}"
        )]
            .clone()
    };
    assert_eq!((drained("emptied"), drained("not_emptied")), ("1".to_owned(), "1".to_owned()));
}

/// A cloud that is out of reach until a moment.
struct CutOff {
    cloud: Arc<dyn CloudProvider>,
    clock: Arc<dyn Clock>,
    until: Instant,
}

#[async_trait]
impl CloudProvider for CutOff {
    async fn survey(
        &self,
        nodes: &[Arc<NodeSnapshot>],
        chosen: &[NodeRef],
        freshness: Freshness,
        by: Instant,
    ) -> Result<CloudFacts, PortError> {
        if self.clock.instant() < self.until {
            return Err(PortError::new(ErrorClass::Timeout, "the cloud does not answer"));
        }
        self.cloud.survey(nodes, chosen, freshness, by).await
    }
    async fn detach(&self, node: &NodeSnapshot, tainted_at: Option<Timestamp>, write: &Write) -> Result<(), PortError> {
        self.cloud.detach(node, tainted_at, write).await
    }
    async fn delete_instance(&self, node: &RetiredNode, write: &Write) -> Result<Deletion, PortError> {
        self.cloud.delete_instance(node, write).await
    }
    async fn instance_state(&self, instance: &InstanceId, by: Instant) -> Result<InstanceState, PortError> {
        self.cloud.instance_state(instance, by).await
    }
}

/// From midnight on, the numbers of a process that can't reach its cloud for so long, after so many hours.
fn hours_without_cloud(cut_off: Duration, hours: u64) -> BTreeMap<String, String> {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    let metrics = metrics();
    let ports = model.ports(Arc::new(metrics.clone()));
    let cloud = CutOff {
        cloud: Arc::clone(&ports.cloud),
        clock: Arc::clone(&ports.clock),
        until: ports.clock.instant() + cut_off,
    };
    let schedule = Schedule::parse("@hourly", &TimeZone::UTC).expect("it is one");
    let migrator = Migrator::new(Ports { cloud: Arc::new(cloud), ..ports }, Settings::new(schedule));
    let stop = Stop::default();
    let asked = stop.clone();
    let lasts = Duration::from_hours(hours) + Duration::from_mins(30);
    model.with(|world| world.later(lasts, move |_| asked.set()));
    model::block_on(&model, async { migrator.run(&stop).await }).expect("it ends").expect("nobody else leads");
    series(&metrics)
}

#[test]
fn rb_50_runs_that_can_not_ask_the_cloud_are_failures_and_no_success() {
    let cut_off = hours_without_cloud(Duration::from_hours(9), 3);
    assert!(whole(&cut_off, "spot_migrator_operation_failure_total") >= 3, "{cut_off:#?}");
    assert_eq!(
        cut_off["cost_manager_spot_migrator_operation_failure_total"],
        cut_off["spot_migrator_operation_failure_total"]
    );
    assert_eq!(cut_off["spot_migrator_operation_success_total"], "0", "no node was seen, and none is done");
    assert_eq!(cut_off["spot_migrator_last_success_timestamp_seconds"], "0");

    let restored = hours_without_cloud(Duration::from_mins(90), 3);
    assert!(whole(&restored, "spot_migrator_operation_failure_total") >= 1, "{restored:#?}");
    // 2026-01-05, a Monday, at three and at four.
    let (three, four) = (1_767_582_000, 1_767_585_600);
    let last = whole(&restored, "spot_migrator_last_success_timestamp_seconds");
    assert!((three..four).contains(&last), "the run of three found nothing left: {last}");
    assert_eq!(whole(&restored, "spot_migrator_next_run_timestamp_seconds"), four);
    assert_eq!(restored["spot_migrator_nodes_retired_total"], "1");
}

#[test]
fn what_became_of_the_notices_of_a_cluster_is_counted() {
    let model = WorldBuilder::default().on_demand(2).spot(3).deployment("web", 10).build();
    let metrics = metrics();
    let process = model.process();
    let ports = process.ports_alone(Arc::new(metrics.clone()));
    let settings = InterruptionSettings::default();
    let held_for = i64::try_from(settings.pause_migration_for.as_secs()).expect("it fits");
    let interruptions = Interruptions::new(ports, process.notices(), settings, Hold::default());
    let (stop, begun) = (Stop::default(), model.with(|world| world.wall()).as_second());
    let asked = stop.clone();
    model.with(|world| {
        let names = world.view().nodes().iter().map(|node| node.name().to_owned());
        let spot: Vec<_> = names.filter(|name| world.class_of(name) == Some(Class::Spot)).collect();
        for node in spot.iter().take(2) {
            world.interrupt(node, Reclaim::Terminate).expect("it has a machine");
        }
        world.announce(InstanceId::new("i-elsewhere"), Announcement::Rebalance);
        world.later(Duration::from_mins(10), move |_| asked.set());
    });
    model::block_on(&model, async { interruptions.run(&stop).await }).expect("it ends").expect("nobody else leads");

    let series = series(&metrics);
    let count =
        |name: &str| i64::try_from(whole(&series, &format!("spot_migrator_interruption_{name}"))).expect("it fits");
    let of_kind = "kind=\"spot_interruption\"";
    assert_eq!(count(&format!("notices_total{{{of_kind},source=\"queue\"}}")), 2);
    assert_eq!(count(&format!("nodes_drained_total{{{of_kind},result=\"emptied\"}}")), 2);
    assert_eq!(count(&format!("nodes_drained_total{{{of_kind},result=\"not_emptied\"}}")), 0);
    assert_eq!(count("notices_ignored_total{reason=\"unknown_instance\",source=\"queue\"}"), 1);
    for histogram in ["notice_to_cordon_seconds", "notice_to_empty_seconds"] {
        assert_eq!(count(&format!("{histogram}_count{{{of_kind}}}")), 2, "{histogram}");
        assert_eq!(count(&format!("{histogram}_bucket{{{of_kind},le=\"120\"}}")), 2, "{histogram}");
    }
    let now = model.with(|world| world.wall()).as_second();
    let last = count("last_poll_timestamp_seconds{source=\"queue\"}");
    assert!((now - 60..=now).contains(&last), "the last answer came at {last}, and it is {now}");
    let held = count("held_until_timestamp_seconds");
    assert!((begun + held_for..begun + held_for + 10).contains(&held), "held until {held}, told at {begun}");
}
