//! Evictions, budgets, and the controllers that bring pods back.

use std::time::Duration;

use super::{SECOND, Tester, pods_of, ready, refs};
use crate::model::spec::PodLife;
use crate::model::{Allowance, BudgetSpec, Fact, Model, WorkloadSpec, WorldBuilder, block_on};
use crate::pod::{BudgetRef, PodRef, UnhealthyPods};
use crate::ports::EvictAnswer;

fn evict(tester: &Tester, pod: &PodRef) -> EvictAnswer {
    let write = tester.write();
    block_on(&tester.model, tester.ports.cluster.evict(pod, None, &write)).unwrap().unwrap()
}

fn is_blocked(answer: &EvictAnswer) -> bool {
    matches!(answer, EvictAnswer::Budget { .. })
}

fn of(allowance: Allowance, replicas: u32) -> Model {
    WorldBuilder::default().on_demand(2).workload(WorkloadSpec::deployment("web", replicas).budget(allowance)).build()
}

fn overruns(model: &Model) -> usize {
    model.with(|world| world.facts().iter().filter(|record| matches!(record.fact, Fact::BudgetOverrun { .. })).count())
}

#[test]
fn a_budget_lets_as_many_go_as_it_says_and_then_waits_for_replacements() {
    for (allowance, replicas, allowed) in [
        (Allowance::MaxUnavailable(1), 5, 1),
        (Allowance::MaxUnavailable(0), 5, 0),
        (Allowance::MaxUnavailablePercent(30), 5, 2),
        (Allowance::MinAvailable(3), 5, 2),
        (Allowance::MinAvailable(9), 5, 0),
        (Allowance::MinAvailablePercent(50), 5, 2),
    ] {
        let model = of(allowance, replicas);
        let tester = Tester::of(&model);
        let answers: Vec<_> = refs(&model, "web").iter().map(|pod| evict(&tester, pod)).collect();
        let accepted = answers.iter().filter(|answer| **answer == EvictAnswer::Accepted).count();
        assert_eq!(accepted, allowed, "{allowance:?}");
        assert!(answers.iter().skip(allowed).all(is_blocked), "{allowance:?}: {answers:?}");
        assert_eq!(overruns(&model), 0);
        tester.pass(10 * SECOND);
        assert_eq!(ready(&model, "web"), 5, "{allowance:?}");
        if allowed > 0 {
            assert_eq!(evict(&tester, &refs(&model, "web")[0]), EvictAnswer::Accepted);
        }
    }
}

#[test]
fn an_accepted_eviction_shows_in_the_status_at_once_and_its_pod_as_disrupted() {
    let model = of(Allowance::MaxUnavailable(2), 4);
    let tester = Tester::of(&model);
    let pod = &refs(&model, "web")[0];
    assert_eq!(evict(&tester, pod), EvictAnswer::Accepted);
    let budget = BudgetRef { namespace: "default".into(), name: "web".into() };
    model.with(|world| {
        let status = world.view().budget(&budget).unwrap();
        assert_eq!((status.disruptions_allowed, status.current_healthy), (1, 4));
        assert_eq!(status.disrupted_pods, [pod.name.to_string()]);
    });
    tester.pass(SECOND / 2);
    model.with(|world| {
        let status = world.view().budget(&budget).unwrap();
        assert_eq!((status.disruptions_allowed, status.current_healthy, status.desired_healthy), (1, 3, 2));
        assert!(status.disrupted_pods.is_empty());
    });
}

#[test]
fn two_budgets_for_one_pod_refuse_it_for_good() {
    let second = BudgetSpec {
        namespace: "default".to_owned(),
        name: "second".to_owned(),
        app: "web".to_owned(),
        allowance: Allowance::MaxUnavailable(1),
        unhealthy_pods: UnhealthyPods::default(),
    };
    let web = WorkloadSpec::deployment("web", 2).budget(Allowance::MaxUnavailable(1));
    let model = WorldBuilder::default().on_demand(1).workload(web).budget(second).build();
    let tester = Tester::of(&model);
    let pod = &refs(&model, "web")[0];
    assert_eq!(evict(&tester, pod), EvictAnswer::MultipleBudgets);
    model.with(|world| world.remove_budget("default", "second"));
    assert_eq!(evict(&tester, pod), EvictAnswer::Accepted);
}

#[test]
fn pending_pods_are_never_held_back() {
    let web = WorkloadSpec::deployment("web", 2).budget(Allowance::MaxUnavailable(0));
    let model = WorldBuilder::default().on_demand(1).workload(web).build();
    let tester = Tester::of(&model);
    model.with(|world| {
        world.cordon("od-1", true);
        world.set_spot_left(0);
        world.scale_workload("web", 3);
    });
    tester.pass(SECOND);
    let pending = model.with(|world| world.view().unbound_pods().next().unwrap().reference());
    assert_eq!(evict(&tester, &pending), EvictAnswer::Accepted);
    assert_eq!(evict(&tester, &pending), EvictAnswer::Gone);
}

#[test]
fn pods_that_are_not_ready_go_by_the_budgets_policy() {
    for (policy, healthy, goes) in [
        (UnhealthyPods::IfHealthyBudget, 2, true),
        (UnhealthyPods::IfHealthyBudget, 1, false),
        (UnhealthyPods::AlwaysAllow, 1, true),
    ] {
        let budget = BudgetSpec {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            app: "web".to_owned(),
            allowance: Allowance::MinAvailable(2),
            unhealthy_pods: policy,
        };
        let model = WorldBuilder::default().on_demand(1).deployment("web", 3).budget(budget).build();
        let tester = Tester::of(&model);
        let pods = refs(&model, "web");
        model.with(|world| pods[healthy..].iter().for_each(|pod| world.set_pod_ready(pod, false)));
        tester.pass(SECOND);
        let answer = evict(&tester, &pods[2]);
        assert_eq!(answer == EvictAnswer::Accepted, goes, "{policy:?}, {healthy} healthy: {answer:?}");
    }
}

#[test]
fn a_stale_status_refuses_with_the_time_to_ask_again() {
    let model = of(Allowance::MaxUnavailable(1), 3);
    let tester = Tester::of(&model);
    model.with(|world| {
        world.change_budget("default", "web", Allowance::MaxUnavailable(2));
        world.settings.latency = Duration::ZERO;
    });
    let answer = evict(&tester, &refs(&model, "web")[0]);
    assert!(matches!(answer, EvictAnswer::Budget { retry_after: Some(_), .. }), "{answer:?}");
    tester.pass(SECOND);
    let pods = refs(&model, "web");
    assert_eq!(evict(&tester, &pods[0]), EvictAnswer::Accepted);
    assert_eq!(evict(&tester, &pods[1]), EvictAnswer::Accepted);
    let answer = evict(&tester, &pods[2]);
    assert!(is_blocked(&answer), "{answer:?}");
}

#[test]
fn a_pod_under_the_same_name_is_another_pod() {
    let model = WorldBuilder::default().on_demand(1).stateful_set("db", 1).build();
    let tester = Tester::of(&model);
    let before = refs(&model, "db").remove(0);
    assert_eq!(evict(&tester, &before), EvictAnswer::Accepted);
    model.with(|world| assert_eq!(pods_of(world, "db").len(), 1, "its replacement waits for it"));
    tester.pass(10 * SECOND);
    let after = refs(&model, "db").remove(0);
    assert_eq!(after.name, before.name);
    assert_ne!(after.uid, before.uid);
    assert_eq!(evict(&tester, &before), EvictAnswer::Gone);
    assert_eq!(ready(&model, "db"), 1);
}

#[test]
fn a_deployment_replaces_a_pod_while_it_is_still_on_its_way_out() {
    let web = WorkloadSpec::deployment("web", 1).stop(60 * SECOND);
    let model = WorldBuilder::default().on_demand(1).workload(web).build();
    let tester = Tester::of(&model);
    assert_eq!(evict(&tester, &refs(&model, "web")[0]), EvictAnswer::Accepted);
    tester.pass(10 * SECOND);
    assert_eq!(refs(&model, "web").len(), 2);
    assert_eq!(ready(&model, "web"), 1);
    tester.pass(60 * SECOND);
    assert_eq!(refs(&model, "web").len(), 1);
}

#[test]
fn a_daemon_set_comes_back_where_it_was_and_nobody_brings_bare_pods_back() {
    let model = WorldBuilder::default().on_demand(2).daemon_set("logs").bare("alone", 1).build();
    let tester = Tester::of(&model);
    model.with(|world| world.cordon("od-1", true));
    let pods = [refs(&model, "logs"), refs(&model, "alone")].concat();
    assert_eq!(pods.len(), 3);
    for pod in &pods {
        assert_eq!(evict(&tester, pod), EvictAnswer::Accepted);
    }
    tester.pass(60 * SECOND);
    let mut nodes = super::nodes_of(&model, "logs");
    nodes.sort_unstable();
    assert_eq!(nodes, ["od-1", "od-2"]);
    assert!(refs(&model, "alone").is_empty());
}

#[test]
fn a_held_pod_stays_until_its_finalizer_is_done() {
    let web = WorkloadSpec::deployment("web", 1).life(PodLife::Held);
    let model = WorldBuilder::default().on_demand(1).workload(web).build();
    let tester = Tester::of(&model);
    let pod = refs(&model, "web").remove(0);
    assert_eq!(evict(&tester, &pod), EvictAnswer::Accepted);
    tester.pass(Duration::from_hours(1));
    let is_there = || refs(&model, "web").iter().any(|other| other.uid == pod.uid);
    assert!(is_there());
    model.with(|world| world.let_go("web"));
    assert!(!is_there());
}
