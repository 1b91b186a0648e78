//! Failures from the field, each as a small test under its name.

use std::collections::BTreeSet;

use spot_core::capacity::Class;
use spot_core::drain::plan::Loss;
use spot_core::error::ErrorClass;
use spot_core::model::fault::Fault;
use spot_core::model::{
    Allowance, Answer, BudgetSpec, CallRecord, FactRecord, Group, NodeSpec, PodLife, Removal, WorkloadSpec,
    WorldBuilder,
};
use spot_core::node::{ClaimAnnotation, Effect, Taint, key};
use spot_core::pod::UnhealthyPods;
use spot_core::ports::{EvictAnswer, Instant};
use spot_core::progress::{Answered, Outcome, OutcomeKind, Progress, Undo};
use spot_core::reason::ReasonKind;

use super::*;

/// Three on-demand and two spot nodes; nine pods that stop within a second.
fn b0() -> WorldBuilder {
    WorldBuilder::default().on_demand(3).spot(2).deployment("web", 9)
}

#[test]
fn rb_01_a_failed_drain_never_reaches_the_cloud() {
    let model =
        WorldBuilder::default().on_demand(1).spot(1).deployment("a", 1).deployment("b", 1).deployment("c", 1).build();
    model.with(|world| {
        let failing = EvictAnswer::ServerError("webhook: EOF".to_owned());
        world.fault_when(u32::MAX, Fault::Evict(failing), evicting("a-"));
        let denied = EvictAnswer::Denied("pods/eviction is forbidden".to_owned());
        world.fault_when(u32::MAX, Fault::Evict(denied), evicting("c-"));
    });
    let report = once(&model, &settings());
    assert_eq!(calls(&model, is_delete), 0);
    assert_eq!(calls(&model, is_taint), 0, "it was never tainted");
    let [(node, why)] = &report.failed[..] else { panic!("{report:?}") };
    assert_eq!(&*node.name, "od-1");
    assert!(why.contains("default/a-") && why.contains("default/c-") && !why.contains("default/b-"), "{why}");
    assert!(report.has_failures() && report.retired.is_empty() && !report.found_nothing_to_do());
    assert_clean(&model);
    let next = once(&model, &settings());
    let Outcome::NothingEligible(kinds) = &next.outcome else { panic!("{next:?}") };
    assert_eq!(kinds.keys().collect::<Vec<_>>(), [&ReasonKind::BackingOff], "the next run knows of it");
}

#[test]
fn rb_02_a_group_at_its_minimum_is_refused_before_anything_is_evicted() {
    let model = b0().group_floor(3).build();
    let report = once(&model, &settings());
    let Outcome::NothingEligible(kinds) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(kinds.get(&ReasonKind::GroupAtMinimum), Some(&3));
    assert_eq!(calls(&model, |call| matches!(call, Call::WriteNode { .. } | Call::Evict { .. })), 0);
}

#[test]
fn rb_02_a_refusal_after_the_drain_takes_everything_off_again() {
    let model = b0().build();
    model.with(|world| world.fault_when(1, Fault::Fail(ErrorClass::Permanent), is_delete));
    let report = once(&model, &settings());
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert_eq!(names(&report.retired), ["od-2", "od-3"], "the others go");
    assert_clean(&model);
}

#[test]
fn rb_03_the_group_shrinks_by_what_was_removed_and_buys_nothing() {
    let model = b0().build();
    let report = once(&model, &settings());
    assert_eq!(report.retired.len(), 3);
    model.with(|world| {
        let groups: Vec<Group> = world.groups().map(|(_, group)| group).collect();
        assert!(groups.iter().all(|group| group.desired == 0), "{groups:?}");
        let bought = |fact: &Fact| matches!(fact, Fact::NodeJoined { class: Class::OnDemand, .. });
        let later = |record: &&FactRecord| record.at > Instant::default() && bought(&record.fact);
        let bought: Vec<_> = world.facts().iter().filter(later).collect();
        assert!(bought.is_empty(), "{bought:?}");
    });
}

#[test]
fn rb_04_a_node_that_can_never_be_drained_does_not_starve_the_others() {
    let model = b0().workload(WorkloadSpec::deployment("alone", 1).budget(Allowance::MinAvailable(1))).build();
    let report = once(&model, &settings());
    assert_eq!(report.retired.len(), 2, "{report:?}");
    let Outcome::NothingEligible(kinds) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(kinds.keys().collect::<Vec<_>>(), [&ReasonKind::BudgetAllowsNone]);
    assert_clean(&model);
}

#[test]
fn rb_04_a_drain_that_blocks_at_last_is_released_and_left_alone_for_longer_each_time() {
    let model = WorldBuilder::default().on_demand(2).spot(2).deployment("web", 2).build();
    model.with(|world| {
        let webhook = EvictAnswer::Webhook("moving data".to_owned());
        world.fault_when(u32::MAX, Fault::Evict(webhook), evicting("web-"));
    });
    let mut settings = settings();
    settings.retire.drain_timeout = 10 * MINUTE;
    let first = once(&model, &settings);
    assert_eq!(first.failed.len(), 2, "both were tried: {first:?}");
    assert_clean(&model);
    let back_off = || model.with(|world| world.node("od-1").unwrap().back_off.unwrap());
    assert_eq!(back_off().count, 1);
    let second = once(&model, &settings);
    assert_eq!(outcome(&second), OutcomeKind::NothingEligible, "backing off");
    let left = back_off().until.duration_since(model.with(|world| world.wall()));
    model.run_until(model.with(|world| world.now()) + Duration::try_from(left).unwrap() + MINUTE).unwrap();
    assert_eq!(once(&model, &settings).failed.len(), 2);
    let again = back_off();
    assert_eq!(again.count, 2);
    let wait = again.until.duration_since(model.with(|world| world.wall()));
    assert!(wait.as_hours() >= 1, "twice as long: {wait}");
}

/// The budget comes when the node is claimed already. Its node is the oldest, and goes first.
#[test]
fn rb_04_a_node_that_blocks_once_it_is_claimed_is_given_back_and_the_others_go() {
    let alone = WorkloadSpec::deployment("alone", 1).selects("own", "od-1");
    let tolerant = NodeSpec::new(Class::Spot).label("own", "od-1");
    let old = NodeSpec { age: Duration::from_hours(9), ..NodeSpec::new(Class::OnDemand).named("od-1") };
    let model = WorldBuilder::default()
        .node(old.label("own", "od-1"))
        .on_demand(2)
        .node(tolerant)
        .spot(1)
        .workload(alone)
        .deployment("web", 9)
        .build();
    let most = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&most);
    model.with(|world| {
        let blocked = EvictAnswer::Budget { budget: None, retry_after: None };
        world.fault_when(1, Fault::Evict(blocked), evicting("alone"));
        world.later(Duration::from_millis(20), |world| {
            world.add_budget(&BudgetSpec {
                namespace: "default".to_owned(),
                name: "always-one".to_owned(),
                app: "alone".to_owned(),
                allowance: Allowance::MinAvailable(1),
                unhealthy_pods: UnhealthyPods::IfHealthyBudget,
            });
        });
        world.after_each_call(move |world, _| {
            let cordoned = world.view().nodes().iter().filter(|node| node.unschedulable).count();
            let mut most = seen.lock().unwrap();
            *most = cordoned.max(*most);
        });
    });
    let mut settings = settings();
    settings.retire.drain_timeout = 10 * MINUTE;
    let report = once(&model, &settings);
    let [(node, why)] = &report.failed[..] else { panic!("{report:?}") };
    assert_eq!(&*node.name, "od-1");
    for words in ["budget_allows_none", "default/alone-", "default/always-one"] {
        assert!(why.contains(words), "{words} is not named in {why}");
    }
    assert_eq!(report.retired.len(), 2, "{report:?}");
    assert_eq!(*most.lock().unwrap(), 1, "at no moment more than one");
    assert_eq!(calls(&model, |call| matches!(call, Call::DeletePod { .. })), 0);
    assert_clean(&model);
    let next = once(&model, &settings);
    let asked =
        calls(&model, |call| matches!(call, Call::WriteNode { node, .. } if &*node.name == "od-1" && is_claim(call)));
    assert_eq!(asked, 1, "it is left alone: {next:?}");
}

#[test]
fn rb_05_a_pod_that_was_replaced_under_its_name_is_not_evicted_again() {
    let model = WorldBuilder::default().on_demand(1).spot(1).stateful_set("db", 1).build();
    let (pod, uid) = model.with(|world| {
        let pod = world.pod_named("default", "db-0").unwrap();
        (pod.reference(), pod.uid.clone())
    });
    model.with(|world| {
        let blocked = EvictAnswer::Budget { budget: None, retry_after: None };
        world.fault_when(2, Fault::Evict(blocked), evicting("db-0"));
        world.later(Duration::from_secs(5), move |world| world.delete_pod(&pod));
    });
    let report = once(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::AllSpot);
    model.with(|world| {
        let asked = world.calls().iter().filter_map(|record| match &record.call {
            Call::Evict { pod, .. } => Some(pod.uid.clone()),
            _other => None,
        });
        assert!(asked.into_iter().all(|asked| asked == uid), "only the old pod was ever asked for");
        assert_ne!(world.pod_named("default", "db-0").unwrap().uid, uid, "the new one runs");
    });
}

#[test]
fn rb_06_a_machine_is_deleted_only_when_its_slowest_pod_is_gone() {
    let grace = Duration::from_secs(90);
    let slow = WorkloadSpec { grace, ..WorkloadSpec::deployment("q", 1).stop(Duration::from_secs(80)) };
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(slow).build();
    model.with(|world| {
        world.fault_when(1, Fault::Evict(EvictAnswer::ServerError("once".to_owned())), evicting("q-"));
    });
    let report = once(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::AllSpot);
    model.with(|world| {
        let lost = |fact: &Fact| matches!(fact, Fact::PodGone { removal: Removal::NodeLost, movable: true, .. });
        assert!(!world.facts().iter().any(|record| lost(&record.fact)));
        let graces = world.calls().iter().filter(|record| matches!(record.call, Call::Evict { grace: Some(_), .. }));
        assert_eq!(graces.count(), 0, "each pod has its own grace period");
        let deleted = world.calls().iter().find(|record| is_delete(&record.call)).unwrap().sent;
        assert!(deleted.since(Instant::default()) >= Duration::from_secs(80), "{deleted:?}");
    });
}

/// Right before the deletion the node's pods are read once more, and that fails for a moment.
#[test]
fn rb_06_pods_that_can_not_be_read_for_a_moment_end_in_no_deletion_without_looking() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("q", 2).build();
    model.with(|world| {
        world.fault_when(1, Fault::Fail(ErrorClass::Transient), |call| matches!(call, Call::LatestPods(_)));
    });
    let _first = once(&model, &settings());
    model.run_until(model.with(|world| world.now()) + Duration::from_hours(2)).unwrap();
    let _second = once(&model, &settings());
    model.with(|world| {
        let looked =
            |record: &CallRecord| matches!((&record.call, &record.answer), (Call::LatestPods(_), Answer::Pods(_)));
        let looked = world.calls().iter().position(looked).expect("it was looked at");
        let deleted = world.calls().iter().position(|record| is_delete(&record.call)).expect("it goes in the end");
        assert!(looked < deleted);
    });
    assert_eq!(nodes(&model).iter().filter(|name| name.starts_with("od-")).count(), 0);
}

#[test]
fn rb_06_unreadable_pods_are_not_gone() {
    let model = b0().build();
    model.with(|world| {
        world.fault_when(u32::MAX, Fault::Fail(ErrorClass::Denied), |call| matches!(call, Call::LatestPods(_)));
    });
    let report = once(&model, &settings());
    assert_eq!(calls(&model, is_delete), 0);
    assert_eq!(report.failed.len(), 3, "{report:?}");
    assert_clean(&model);
}

#[test]
fn rb_11_a_refused_deletion_leaves_no_taint_and_an_overloaded_one_is_asked_again() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| world.fault_when(1, Fault::Fail(ErrorClass::Denied), is_delete));
    let refused = once(&model, &settings());
    assert_eq!(refused.failed.len(), 1);
    assert_clean(&model);

    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| world.fault_when(2, Fault::Fail(ErrorClass::Transient), is_delete));
    let retried = once(&model, &settings());
    assert_eq!(names(&retried.retired), ["od-1"]);
}

#[test]
fn rb_11_the_autoscalers_own_taint_is_left_where_it_is() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| {
        world.taint_node("od-1", Taint::new(key::TO_BE_DELETED, "1767571100", Effect::NoSchedule));
        world.fault_when(1, Fault::Fail(ErrorClass::Denied), is_delete);
    });
    let report = once(&model, &settings());
    assert_eq!(report.failed.len(), 1, "{report:?}");
    let taints = model.with(|world| world.node("od-1").unwrap().taints.clone());
    assert!(taints.iter().any(|taint| taint.value == "1767571100"), "{taints:?}");
}

#[test]
fn rb_12_a_taint_that_somebody_else_adds_meanwhile_survives() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).build();
    model.with(|world| {
        world.later(Duration::from_millis(1), |world| {
            world.taint_node("od-1", Taint::new("gpu", "installing", Effect::NoSchedule));
        });
        world.fault_when(1, Fault::Fail(ErrorClass::Denied), is_delete);
    });
    let _report = once(&model, &settings());
    // Kubernetes takes its own taint for the cordon off a little later
    model.run_until(model.with(|world| world.now()) + MINUTE).unwrap();
    let taints = model.with(|world| world.node("od-1").unwrap().taints.clone());
    assert_eq!(taints.iter().map(|taint| &*taint.key).collect::<Vec<_>>(), ["gpu"]);
}

#[test]
fn rb_14_pods_that_need_on_demand_do_not_churn_every_hour() {
    let pinned = WorkloadSpec::deployment("pinned", 4).spot_never();
    let model = WorldBuilder::default().on_demand(2).spot(1).workload(pinned).build();
    let notes = Notes::default();
    let migrator = Migrator::new(model.ports(Arc::new(notes.clone())), settings());
    let stop = Stop::default();
    let asked = stop.clone();
    model.with(|world| world.later(Duration::from_hours(24), move |_| asked.set()));
    model::block_on(&model, async { migrator.run(&stop).await }).unwrap().unwrap();
    let exhausted = |event: &Progress| matches!(event, Progress::RunEnded { report } if outcome(report) == OutcomeKind::SpotExhausted);
    let stopped = notes.all().iter().filter(|event| exhausted(event)).count();
    assert!((1..=6).contains(&stopped), "{stopped} runs evicted the same pods: back-off 1, 2, 4, 6, 6 h");
}

/// Both pods of an application crash, and its budget holds back what is dead anyway.
#[test]
fn rb_28_pods_of_a_dead_application_hold_their_node_unless_their_budget_lets_them_go() {
    for (unhealthy_pods, retired) in [(UnhealthyPods::IfHealthyBudget, 0), (UnhealthyPods::AlwaysAllow, 1)] {
        let crashing = WorkloadSpec::deployment("dead", 2).life(PodLife::Crashing);
        let model = WorldBuilder::default().on_demand(1).spot(1).workload(crashing).build();
        model.with(|world| {
            let pods: Vec<_> = world.view().pods().map(|pod| pod.reference()).collect();
            for pod in pods {
                world.set_pod_ready(&pod, false);
            }
            world.add_budget(&BudgetSpec {
                namespace: "default".to_owned(),
                name: "dead".to_owned(),
                app: "dead".to_owned(),
                allowance: Allowance::MaxUnavailable(1),
                unhealthy_pods,
            });
        });
        model.run_until(model.with(|world| world.now()) + MINUTE).unwrap();
        let mut settings = settings();
        settings.retire.drain_timeout = 10 * MINUTE;
        let report = once(&model, &settings);
        assert_eq!(report.retired.len(), retired, "{unhealthy_pods:?}: {report:?}");
        assert_eq!(calls(&model, |call| matches!(call, Call::DeletePod { .. })), 0);
        assert!(model.with(|world| world.now()).0 < Duration::from_hours(1), "{unhealthy_pods:?}: it ends");
        if retired == 0 {
            let Outcome::NothingEligible(kinds) = &report.outcome else { panic!("{report:?}") };
            assert_eq!(kinds.keys().collect::<Vec<_>>(), [&ReasonKind::BudgetAllowsNone]);
            assert_clean(&model);
        }
    }
}

/// One node has a pod that nobody brings back, one has local data, and one is free.
#[test]
fn rb_35_pods_and_data_that_would_be_lost_are_seen_before_the_cordon_and_the_next_node_is_tried() {
    let on = |name: &str| NodeSpec::new(Class::OnDemand).named(name).label("own", name);
    let pet = WorkloadSpec::bare("pet", 1).selects("own", "od-1");
    let cache = WorkloadSpec { empty_dir: true, ..WorkloadSpec::deployment("cache", 1) }.selects("own", "od-2");
    let spot = NodeSpec::new(Class::Spot);
    let model = WorldBuilder::default()
        .node(on("od-1"))
        .node(on("od-2"))
        .node(on("od-3"))
        .node(spot.clone().label("own", "od-1"))
        .node(spot.label("own", "od-2"))
        .workload(pet)
        .workload(cache)
        .deployment("web", 3)
        .build();
    let mut careful = settings();
    careful.policy.drain.delete_empty_dir_data = false;
    let report = once(&model, &careful);
    assert_eq!(names(&report.retired), ["od-3"], "{report:?}");
    let Outcome::NothingEligible(kinds) = &report.outcome else { panic!("{report:?}") };
    assert_eq!(kinds.keys().collect::<Vec<_>>(), [&ReasonKind::UnmanagedPod, &ReasonKind::EmptyDir]);
    let touched = |call: &Call| matches!(call, Call::WriteNode { node, .. } if &*node.name != "od-3" && is_claim(call));
    assert_eq!(calls(&model, touched), 0);
    let mut forced = settings();
    forced.policy.drain.force = true;
    let notes = Notes::default();
    let migrator = Migrator::new(model.process().ports_alone(Arc::new(notes.clone())), forced);
    let report = model::block_on(&model, async { migrator.once(&Stop::default()).await }).expect("it ends");
    assert_eq!(outcome(&report.expect("it goes")), OutcomeKind::AllSpot);
    let lost = |event: &Progress| match event {
        Progress::Evicted { pod, loses, answered: Answered::Accepted, .. } => {
            loses.map(|lost| (pod.name.to_string(), lost))
        }
        _other => None,
    };
    let lost: BTreeSet<_> = notes.all().iter().filter_map(lost).collect();
    let expected = [("cache-00000", Loss::LocalData), ("pet-00000", Loss::Pod)];
    assert_eq!(lost, expected.map(|(pod, lost)| (pod.to_owned(), lost)).into());
}

#[test]
fn rb_37_leftovers_are_finished_one_at_a_time() {
    let model = b0().build();
    model.with(|world| {
        for name in ["od-1", "od-2", "od-3"] {
            world.cordon(name, true);
            world.label_node(name, key::COST_MANAGER_SELECTED, Some("true"));
        }
    });
    let claimed = Arc::new(Mutex::new(0));
    let most = Arc::clone(&claimed);
    model.with(|world| {
        world.after_each_call(move |world, _| {
            let open = world.view().nodes().iter().filter(|node| node.claim != ClaimAnnotation::Absent).count();
            let mut most = most.lock().unwrap();
            *most = open.max(*most);
        });
    });
    let report = once(&model, &settings());
    assert_eq!(outcome(&report), OutcomeKind::Recovered);
    assert_eq!(report.retired.len(), 3, "{report:?}");
    assert_eq!(*claimed.lock().unwrap(), 1);
}

#[test]
fn rb_38_a_pod_that_lands_late_is_moved_too() {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("web", 2).deployment("late", 1).build();
    model.with(|world| {
        world.later(Duration::from_secs(5), |world| {
            world.land_pod("late", "late-comer", "od-1");
        });
    });
    let report = once(&model, &settings());
    assert_eq!(names(&report.retired), ["od-1"]);
    model.with(|world| {
        let lost = |fact: &Fact| matches!(fact, Fact::PodGone { removal: Removal::NodeLost, movable: true, .. });
        assert!(!world.facts().iter().any(|record| lost(&record.fact)));
    });
}

#[test]
fn rb_40_a_pod_held_by_a_finalizer_ends_the_drain_at_its_deadline() {
    let held = WorkloadSpec::deployment("f", 1).life(PodLife::Held);
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(held).build();
    let report = once(&model, &settings());
    let [(_, why)] = &report.failed[..] else { panic!("{report:?}") };
    assert!(why.contains("terminating_stuck") && why.contains("default/f-"), "{why}");
    assert_clean(&model);
}

#[test]
fn rb_51_a_node_that_a_person_holds_is_never_taken() {
    let model = b0().build();
    model.with(|world| {
        world.cordon("od-3", true);
        world.annotate_node("od-3", key::DO_NOT_MIGRATE, Some("true"));
        world.label_node("od-3", key::SELECTED, Some("true"));
    });
    let report = once(&model, &settings());
    assert!(!names(&report.retired).contains(&"od-3"));
    assert!(nodes(&model).contains(&"od-3".to_owned()));
}

#[test]
fn a_person_takes_a_node_back_by_uncordoning_it() {
    for (undo, act) in [
        (Undo::Uncordoned, (|world| world.cordon("od-1", false)) as fn(&mut World)),
        (Undo::MarkRemoved, |world| world.label_node("od-1", key::SELECTED, None)),
        (Undo::OptedOut, |world| world.annotate_node("od-1", key::DO_NOT_MIGRATE, Some("true"))),
        (Undo::ClaimRemoved, |world| world.set_claim("od-1", ClaimAnnotation::Absent)),
    ] {
        let slow = WorkloadSpec::deployment("slow", 2).stop(MINUTE);
        let model = WorldBuilder::default().on_demand(1).spot(1).workload(slow).build();
        model.with(|world| world.later(Duration::from_secs(20), act));
        let notes = Notes::default();
        let migrator = Migrator::new(model.ports(Arc::new(notes.clone())), settings());
        let stop = Stop::default();
        let report = model::block_on(&model, async { migrator.once(&stop).await }).unwrap().unwrap();
        assert_eq!(names(&report.undone), ["od-1"], "{undo}: {report:?}");
        assert!(!report.has_failures(), "an undo is no failure");
        assert!(
            notes.all().iter().any(|event| matches!(event, Progress::Undone { undo: seen, .. } if *seen == undo)),
            "{undo}"
        );
        assert_eq!(calls(&model, is_delete), 0);
        model.run_until(model.with(|world| world.now()) + MINUTE).unwrap();
        let clean = model.with(|world| world.node("od-1").unwrap().clone());
        assert!(
            !clean.unschedulable && clean.claim == ClaimAnnotation::Absent && clean.taints.is_empty(),
            "{undo}: {clean:?}"
        );
    }
}

#[test]
fn rb_25_two_budgets_that_come_in_mid_drain_are_both_named_at_its_end() {
    let slow = WorkloadSpec::deployment("p", 1).stop(MINUTE);
    let model = WorldBuilder::default().on_demand(1).spot(1).workload(slow).deployment("q", 1).build();
    model.with(|world| {
        world.fault_when(1, Fault::Evict(EvictAnswer::ServerError("EOF".to_owned())), evicting("q-"));
        world.later(Duration::from_millis(500), |world| {
            for name in ["first", "second"] {
                world.add_budget(&BudgetSpec {
                    namespace: "default".to_owned(),
                    name: name.to_owned(),
                    app: "q".to_owned(),
                    allowance: Allowance::MaxUnavailable(1),
                    unhealthy_pods: UnhealthyPods::IfHealthyBudget,
                });
            }
        });
    });
    let mut settings = settings();
    settings.retire.drain_timeout = 10 * MINUTE;
    let report = once(&model, &settings);
    let [(_, why)] = &report.failed[..] else { panic!("{report:?}") };
    assert!(why.contains("multiple_budgets: default/first and default/second"), "{why}");
    assert_clean(&model);
}
