//! Large clusters, long times: what grows, and what must not.

use std::collections::BTreeSet;

use spot_core::capacity::Class;
use spot_core::claim::BackOff;
use spot_core::model::fault::Fault;
use spot_core::model::{NodeSpec, WorkloadSpec, WorldBuilder};
use spot_core::node::key;
use spot_core::ports::EvictAnswer;
use spot_core::progress::Outcome;
use spot_core::reason::{Reason, ReasonKind};

use super::*;

/// Two hundred nodes: a quarter is free, the others are blocked in five ways. Each has pods of its own.
#[test]
fn rb_04_of_two_hundred_nodes_the_fifty_free_ones_go_in_the_first_run_and_no_other_is_touched() {
    let ways = ["free", "opted-out", "pod-opted-out", "elsewhere", "bare", "backing-off"];
    let mut builder = WorldBuilder::default().spot(10);
    for number in 0..200 {
        let way = if number < 50 { "free" } else { ways[1 + number % 5] };
        let name = format!("{way}-{number}");
        let opted_out = (key::DO_NOT_MIGRATE.to_owned(), "true".to_owned());
        let annotations = if way == "opted-out" { vec![opted_out] } else { Vec::new() };
        builder =
            builder.node(NodeSpec { annotations, ..NodeSpec::new(Class::OnDemand).named(&name).label("own", &name) });
        let bound = vec![("own".to_owned(), name.clone())];
        let spec = WorkloadSpec::deployment(&name, 3);
        builder = builder.workload(match way {
            "free" => spec,
            "pod-opted-out" => WorkloadSpec { opted_out: Some(key::DO_NOT_EVICT), node_selector: bound, ..spec },
            "bare" => WorkloadSpec { node_selector: bound, ..WorkloadSpec::bare(&name, 3) },
            _other => WorkloadSpec { node_selector: bound, ..spec },
        });
    }
    let model = builder.build();
    model.with(|world| {
        let until = world.wall() + Duration::from_hours(24);
        let held: Vec<_> = world.view().nodes().iter().map(|node| node.name.to_string()).collect();
        for name in held.iter().filter(|name| name.starts_with("backing-off")) {
            world.edit_node(name, |node| node.back_off = Some(BackOff { until, count: 1 }));
        }
    });
    let touched = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&touched);
    model.with(|world| {
        world.after_each_call(move |_, record| {
            if let Call::WriteNode { node, .. } = &record.call {
                seen.lock().unwrap().insert(node.name.to_string());
            }
        });
    });
    let report = once(&model, &settings());
    assert_eq!(report.retired.len(), 50, "{:?}", report.outcome);
    let Outcome::NothingEligible(kinds) = &report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(kinds.values().sum::<usize>(), 150, "{kinds:?}");
    for kind in [
        ReasonKind::OptedOut,
        ReasonKind::PodOptedOut,
        ReasonKind::NoSpotPlacement,
        ReasonKind::UnmanagedPod,
        ReasonKind::BackingOff,
    ] {
        assert_eq!(kinds.get(&kind), Some(&30), "{kinds:?}");
    }
    let blocked: Vec<_> = touched.lock().unwrap().iter().filter(|name| !name.starts_with("free")).cloned().collect();
    assert!(blocked.is_empty(), "written: {blocked:?}");
}

/// The cloud tells of termination protection only where it is asked about that very node.
fn protect(model: &Model, names: &[String]) {
    model.with(|world| {
        for name in names {
            world.set_refusals(name, vec![Reason::Plain(ReasonKind::TerminationProtected)]);
        }
    });
}

/// The nodes that anything was written on.
fn written(model: &Model) -> BTreeSet<String> {
    model.with(|world| {
        let written = world.calls().iter().filter_map(|record| match &record.call {
            Call::WriteNode { node, .. } => Some(node.name.to_string()),
            _other => None,
        });
        written.collect()
    })
}

#[test]
fn no_node_is_touched_before_the_cloud_was_asked_about_that_very_node() {
    for at_once in 1..4 {
        let model = WorldBuilder::default().on_demand(3).spot(2).deployment("web", 9).build();
        protect(&model, &["od-1", "od-2", "od-3"].map(str::to_owned));
        let mut settings = settings();
        settings.policy.budgets.at_once = at_once;
        let report = once(&model, &settings);
        let Outcome::NothingEligible(kinds) = &report.outcome else { panic!("{report:?}") };
        assert_eq!(kinds.get(&ReasonKind::TerminationProtected), Some(&3), "{kinds:?}");
        assert_eq!((written(&model), evictions(&model)), (BTreeSet::new(), 0), "{at_once} at once");
    }
}

#[test]
fn many_nodes_that_the_cloud_refuses_take_few_questions_and_hold_no_other_up() {
    let model = WorldBuilder::default().on_demand(152).spot(2).deployment("web", 4).build();
    let protected: Vec<_> = (1..=152).filter(|number| *number != 151).map(|number| format!("od-{number}")).collect();
    protect(&model, &protected);
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-151"], "{report:?}");
    let Outcome::NothingEligible(kinds) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(kinds.get(&ReasonKind::TerminationProtected), Some(&151), "{kinds:?}");
    assert_eq!(calls(&model, is_claim), 1);
    let questions = calls(&model, |call| matches!(call, Call::Survey { chosen, .. } if !chosen.is_empty()));
    assert!(questions <= 2 * 9, "{questions} questions for two batches");
}

/// A pod that nobody lets go, for an hour: the requests and reports are few, and grow far slower than time.
#[test]
fn rb_63_an_hour_with_a_blocked_pod_costs_a_bounded_number_of_requests_and_reports() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("stuck", 1).deployment("web", 11).build();
    model.with(|world| {
        let webhook = EvictAnswer::Webhook("not now".to_owned());
        world.fault_when(
            u32::MAX,
            Fault::Evict(webhook),
            |call| matches!(call, Call::Evict { pod, .. } if pod.name.starts_with("stuck")),
        );
    });
    let notes = Notes::default();
    let migrator = Migrator::new(model.ports(Arc::new(notes.clone())), settings());
    let stop = Stop::default();
    let report = model::block_on(&model, async { migrator.once(&stop).await }).unwrap().unwrap();
    assert_eq!(report.failed.len(), 1, "{report:?}");
    let asked = evictions(&model);
    assert!((100..150).contains(&asked), "{asked} evictions in an hour: one each half minute, and eleven others");
    let blocked: Vec<_> = notes
        .all()
        .into_iter()
        .filter_map(|event| match event {
            Progress::PodBlocked { pod, since, .. } => Some((pod.name.to_string(), since.as_secs())),
            _other => None,
        })
        .collect();
    assert!((4..8).contains(&blocked.len()), "reported after 1, 2, 4, 8, … minutes: {blocked:?}");
    assert!(blocked.iter().all(|(pod, _)| pod.starts_with("stuck")), "only the pod that is in the way: {blocked:?}");
    assert!((60..70).contains(&blocked[0].1), "within a minute or so: {blocked:?}");
}

/// The retirement of a node costs six requests and one for each pod; the view is watched.
#[test]
fn a_node_costs_at_most_six_requests_and_one_for_each_pod() {
    let model = WorldBuilder::default().on_demand(20).spot(12).deployment("web", 200).build();
    let report = once(&model, &settings());
    assert_eq!(report.retired.len(), 20, "{report:?}");
    let requests = calls(&model, |call| {
        let cloud = matches!(call, Call::Survey { .. } | Call::Detach { .. } | Call::InstanceState(_));
        !cloud && !matches!(call, Call::Open(_) | Call::Recall | Call::Remember(_) | Call::Evict { .. })
    });
    assert!(requests <= 6 * 20, "{requests} requests for 20 nodes");
    assert!(evictions(&model) <= 210, "{} evictions for 200 pods", evictions(&model));
}
