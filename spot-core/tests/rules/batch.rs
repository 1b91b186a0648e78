//! Who goes next: how many side by side, in which order, and what is said when nobody goes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::date;
use proptest::prelude::*;
use proptest::sample::select;
use spot_core::NodeSnapshot;
use spot_core::capacity::Class;
use spot_core::claim::{BackOff, ClaimStep, Owner};
use spot_core::cloud::Group;
use spot_core::judge::Verdict;
use spot_core::memory::Retired;
use spot_core::node::{Readiness, key};
use spot_core::pod::BudgetSnapshot;
use spot_core::reason::{Reason, ReasonKind};

use crate::support::build::{annotated, budget, claim, group, node, noon, pod, secs};
use crate::support::generate::nodes;
use crate::support::scene::{Scene, Turn};
use crate::support::{config, samples};

/// How a scene comes about, and the only reason that it gives.
type Row = (fn(&mut Scene), ReasonKind);

/// `od-1`, `od-2` and so on, the first the oldest, and one spot node.
fn on_demand(count: u64) -> Scene {
    let mut scene = Scene::empty();
    for at in 1..=count {
        let plain = node(&format!("od-{at}"));
        scene.put(NodeSnapshot { created_at: plain.created_at + secs(at), ..plain }, Class::OnDemand);
    }
    scene.put(node("sp-1"), Class::Spot);
    scene
}

/// One on-demand node, one spot node.
fn last_one() -> Scene {
    on_demand(1)
}

fn wait(kind: ReasonKind) -> Turn {
    Turn::Wait(vec![("od-1".to_owned(), kind)])
}

fn nobody(kind: ReasonKind) -> Turn {
    Turn::Nobody(BTreeMap::from([(kind, 1)]))
}

#[test]
fn as_many_go_side_by_side_as_are_allowed_best_first() {
    let mut scene = on_demand(4);
    scene.node("od-4").unschedulable = true;
    for (at_once, expected) in [(1, vec!["od-4"]), (2, vec!["od-4", "od-1"]), (9, vec!["od-4", "od-1", "od-2", "od-3"])]
    {
        scene.policy.budgets.at_once = at_once;
        assert_eq!(scene.batch(), expected, "{at_once} at once");
    }
}

#[test]
fn one_goes_alone_while_no_spot_node_is_known() {
    let mut scene = on_demand(4);
    scene.policy.budgets.at_once = 3;
    scene.fact("sp-1").class = Class::Unknown;
    assert_eq!(scene.batch(), ["od-1"]);
}

#[test]
fn as_many_go_as_are_allowed_while_fleets_still_launch_spot_though_none_is_known() {
    let mut scene = on_demand(4);
    scene.policy.budgets.at_once = 3;
    scene.fact("sp-1").class = Class::Unknown;
    scene.pending_spot = 1;
    assert_eq!(scene.batch(), ["od-1", "od-2", "od-3"]);
}

#[test]
fn a_claim_that_is_open_holds_its_place() {
    let mut scene = on_demand(5);
    scene.policy.budgets.at_once = 3;
    let mut hold = |name: &str, step, owner| {
        let claim = spot_core::claim::Claim { owner, ..claim(name, step) };
        scene.node(name).claim = annotated(claim);
        scene.batch()
    };
    assert_eq!(hold("od-5", ClaimStep::Draining, Owner::Migrator), ["od-1", "od-2", "od-5"], "it is taken up again");
    assert_eq!(hold("od-4", ClaimStep::Deleting, Owner::Migrator), ["od-1", "od-2", "od-5"], "a departing one is none");
    assert_eq!(hold("od-3", ClaimStep::Draining, Owner::Interruption), ["od-1", "od-2", "od-5"], "of another owner");

    // One that may not be taken up keeps its place all the same.
    scene.node("od-5").annotations.insert(key::DO_NOT_MIGRATE.to_owned(), "true".to_owned());
    assert_eq!(scene.batch(), ["od-1", "od-2"]);
}

#[test]
fn a_claimed_node_is_taken_up_though_better_ones_must_wait_for_its_place() {
    let mut scene = on_demand(2);
    scene.node("od-1").labels.insert(key::SELECTED.to_owned(), "true".to_owned());
    scene.node("od-2").claim = annotated(claim("od-2", ClaimStep::Draining));
    assert_eq!(scene.batch(), ["od-2"]);
}

#[test]
fn enough_other_nodes_are_left_by_the_whole_batch() {
    let mut scene = on_demand(4);
    scene.policy.budgets.at_once = 9;
    for (min_remaining, expected) in [(1, 4), (2, 3), (4, 1), (5, 0)] {
        scene.policy.budgets.min_remaining = min_remaining;
        assert_eq!(scene.batch().len(), expected, "{min_remaining} of 5 must remain");
    }
    // A node that takes no pods costs nothing.
    scene.policy.budgets.min_remaining = 4;
    scene.node("od-4").readiness = Readiness::NotReady { since: noon() - secs(3_600) };
    assert_eq!(scene.batch(), ["od-4"]);
    scene.policy.budgets.min_remaining = 3;
    assert_eq!(scene.batch(), ["od-1", "od-4"]);
}

#[test]
fn limits_of_run_and_day_cut_the_batch_short() {
    let mut scene = on_demand(9);
    scene.policy.budgets.at_once = 5;
    scene.policy.budgets.per_run = Some(6);
    scene.run.begun = 2;
    assert_eq!(scene.batch().len(), 4);

    scene.policy.budgets.per_day = Some(7);
    scene.memory.retired = Some(Retired { day: date(2026, 3, 2), nodes: 3 });
    assert_eq!(scene.batch().len(), 4, "the day leaves as many as the run");
    scene.run.retired = 1;
    assert_eq!(scene.batch().len(), 3, "this run counts too");
    scene.memory.retired = Some(Retired { day: date(2026, 3, 1), nodes: 3 });
    assert_eq!(scene.batch().len(), 4, "yesterday does not");
}

#[test]
fn a_groups_room_is_that_of_the_whole_batch() {
    let mut scene = on_demand(5);
    scene.policy.budgets.at_once = 9;
    for name in ["od-1", "od-2", "od-3"] {
        scene.fact(name).group = Some(group("a", 5, 3));
    }
    scene.fact("od-4").group = Some(group("b", 1, 0));
    assert_eq!(scene.batch(), ["od-1", "od-2", "od-4", "od-5"]);

    scene.fact("od-1").group = Some(Group { weight: 2, ..group("a", 5, 3) });
    assert_eq!(scene.batch(), ["od-1", "od-4", "od-5"], "a heavy machine takes the room of two");
}

#[test]
fn without_candidates_all_is_spot() {
    assert_eq!(on_demand(0).turn(), Turn::AllSpot);
    let mut scene = on_demand(0);
    scene.put(node("reserved"), Class::Reserved);
    scene.memory.paused = true;
    assert_eq!(scene.turn(), Turn::AllSpot);
    scene.put(node("unknown"), Class::Unknown);
    assert_eq!(scene.turn(), nobody_of(&[(ReasonKind::UnknownCapacity, 1)]));
}

fn nobody_of(kinds: &[(ReasonKind, usize)]) -> Turn {
    Turn::Nobody(kinds.iter().copied().collect())
}

#[test]
fn a_run_waits_for_what_may_pass_by_itself() {
    let table: &[Row] = &[
        (
            |s| {
                s.pod(pod("web-1", "web", "od-1"));
                s.budget(budget("web", 0));
            },
            ReasonKind::BudgetAllowsNone,
        ),
        (|s| s.node("od-1").readiness = Readiness::NotReady { since: noon() }, ReasonKind::NotReady),
        (|s| s.node("od-1").deleting_since = Some(noon()), ReasonKind::Departing),
        (|s| s.policy.budgets.min_remaining = 2, ReasonKind::TooFewNodes),
        (|s| s.fact("od-1").refusals.push(Reason::Plain(ReasonKind::CloudUnreachable)), ReasonKind::CloudUnreachable),
        (
            |s| s.fact("od-1").refusals.push(Reason::Cloud(ReasonKind::GroupRefreshing, "od".to_owned())),
            ReasonKind::GroupRefreshing,
        ),
    ];
    for (arrange, kind) in table {
        let mut scene = last_one();
        arrange(&mut scene);
        assert_eq!(scene.turn(), wait(*kind));
    }
}

#[test]
fn a_run_ends_when_only_lasting_reasons_are_left() {
    let table: &[Row] = &[
        // All pods of the budget are healthy, and none may go even so.
        (
            |s| {
                s.pod(pod("web-1", "web", "od-1"));
                s.budget(BudgetSnapshot { current_healthy: 3, desired_healthy: 3, ..budget("web", 0) });
            },
            ReasonKind::BudgetAllowsNone,
        ),
        (|s| s.memory.paused = true, ReasonKind::Paused),
        (|s| s.policy.budgets.per_run = Some(0), ReasonKind::RunLimit),
        (|s| s.fact("od-1").group = Some(group("od", 1, 1)), ReasonKind::GroupAtMinimum),
        (|s| s.fact("od-1").class = Class::Unknown, ReasonKind::UnknownCapacity),
        (|s| s.node("od-1").back_off = Some(BackOff { until: noon() + secs(60), count: 1 }), ReasonKind::BackingOff),
        (
            |s| drop(s.node("od-1").annotations.insert(key::DO_NOT_DISRUPT.to_owned(), "true".to_owned())),
            ReasonKind::OptedOut,
        ),
    ];
    for (arrange, kind) in table {
        let mut scene = last_one();
        arrange(&mut scene);
        assert_eq!(scene.turn(), nobody(*kind));
    }
}

#[test]
fn a_lasting_reason_beside_a_transient_one_is_not_waited_for() {
    let mut scene = on_demand(2);
    scene.node("od-1").readiness = Readiness::NotReady { since: noon() };
    scene.node("od-1").annotations.insert(key::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    scene.node("od-2").readiness = Readiness::NotReady { since: noon() };
    assert_eq!(scene.turn(), Turn::Wait(vec![("od-2".to_owned(), ReasonKind::NotReady)]));

    scene.fact("od-2").refusals.push(Reason::Plain(ReasonKind::TerminationProtected));
    assert_eq!(scene.turn(), nobody_of(&[(ReasonKind::OptedOut, 1), (ReasonKind::NotReady, 1)]));
}

#[test]
fn nobody_is_waited_for_while_somebody_may_go() {
    let mut scene = on_demand(2);
    scene.node("od-1").readiness = Readiness::NotReady { since: noon() };
    assert_eq!(scene.batch(), ["od-2"]);
}

#[test]
fn a_plan_lists_the_eligible_then_the_refused_then_the_others_each_by_rank() {
    let mut scene = Scene::b0();
    scene.node("od-1").annotations.insert(key::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    scene.node("od-3").unschedulable = true;
    scene.put(node("unknown"), Class::Unknown);
    scene.policy.own_node = Some("od-2".to_owned());
    let verdicts = scene.verdicts();
    let names: Vec<_> = verdicts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["od-3", "od-2", "od-1", "unknown", "cp-1", "sp-1", "sp-2"]);
    let kinds: Vec<_> = verdicts
        .iter()
        .map(|(_, verdict)| match verdict {
            Verdict::Eligible => "eligible",
            Verdict::Refused(_) => "refused",
            Verdict::NotACandidate => "no candidate",
        })
        .collect();
    assert_eq!(kinds[..5], ["eligible", "eligible", "refused", "refused", "no candidate"]);
}

/// A cluster of any kind that a batch can be made of.
fn scenes() -> impl Strategy<Value = Scene> {
    let class = prop_oneof![6 => Just(Class::OnDemand), 1 => select(Class::ALL.to_vec())];
    let step = proptest::option::weighted(0.25, select(ClaimStep::ALL.to_vec()));
    let membership = proptest::option::weighted(0.6, (select(vec!["a", "b"]), 1_u32..3));
    let troubled = prop::bool::weighted(0.15);
    let own = prop_oneof![4 => Just(Owner::Migrator), 1 => Just(Owner::Interruption)];
    let attributes = prop::collection::vec((class, step, own, membership, troubled, troubled), 7);
    let limits = (1_usize..5, proptest::option::of(0_usize..6), proptest::option::of(0_u32..6), 0_usize..4);
    let pending = prop_oneof![2 => Just(0), 1 => 1_u32..9];
    let done = (0_usize..3, 0_u32..3, any::<bool>(), pending, 0_u32..4);
    (nodes(0..=7), attributes, limits, done).prop_map(|(nodes, attributes, limits, done)| {
        let mut scene = Scene::empty();
        let (begun, retired, spot, pending, floor) = done;
        for (mut node, (class, step, owner, of, not_ready, opted_out)) in nodes.into_iter().zip(attributes) {
            if let Some(step) = step {
                let uid = node.uid.clone();
                node.claim = annotated(spot_core::claim::Claim { owner, node: uid, ..claim(&node.name, step) });
            }
            if not_ready {
                node.readiness = Readiness::NotReady { since: noon() - secs(600) };
            }
            if opted_out {
                node.annotations.insert(key::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
            }
            let uid = node.uid.clone();
            scene.put(node, class);
            let member = of.map(|(id, weight)| Group { weight, ..group(id, 4, floor) });
            scene.cloud.get_mut(&uid).unwrap().group = member;
        }
        if spot {
            scene.put(node("sp-1"), Class::Spot);
        }
        scene.pending_spot = pending;
        let budgets = &mut scene.policy.budgets;
        (budgets.at_once, budgets.per_run, budgets.per_day, budgets.min_remaining) = limits;
        scene.run.begun = begun;
        scene.run.retired = retired;
        scene
    })
}

fn is_open(node: &NodeSnapshot) -> bool {
    use spot_core::node::ClaimAnnotation::Valid;
    matches!(&node.claim, Valid(claim) if claim.owner == Owner::Migrator && claim.step != ClaimStep::Deleting)
}

/// Whether these may go side by side, counted afresh.
fn may_go_together(scene: &Scene, names: &[String]) -> bool {
    let budgets = &scene.policy.budgets;
    let chosen: Vec<_> = scene.nodes.iter().filter(|node| names.iter().any(|name| **name == *node.name)).collect();
    let any_spot = scene.cloud.values().any(|fact| fact.class == Class::Spot);
    let at_once = if any_spot || scene.pending_spot > 0 { budgets.at_once } else { 1 };
    let open = scene.nodes.iter().filter(|node| is_open(node)).count();
    let new = chosen.iter().filter(|node| !is_open(node)).count();
    let left = scene.nodes.iter().filter(|node| {
        !node.unschedulable && node.readiness == Readiness::Ready && !names.iter().any(|name| **name == *node.name)
    });
    let groups_fit = ["a", "b"].iter().all(|id| {
        let groups = chosen.iter().filter_map(|node| scene.cloud[&node.uid].group.as_ref());
        let mine: Vec<_> = groups.filter(|group| group.id == *id).collect();
        mine.is_empty() || mine.iter().map(|group| group.weight).sum::<u32>() + mine[0].floor <= mine[0].desired
    });
    chosen.len() <= at_once
        && (new == 0 || new + open <= at_once)
        && budgets.per_run.is_none_or(|limit| chosen.len() + scene.run.begun <= limit)
        && budgets.per_day.is_none_or(|limit| chosen.len() + scene.run.retired as usize <= limit as usize)
        && (chosen.is_empty() || left.count() >= budgets.min_remaining)
        && groups_fit
}

fn eligible(scene: &Scene) -> Vec<String> {
    let verdicts = scene.verdicts().into_iter();
    verdicts.filter(|(_, verdict)| *verdict == Verdict::Eligible).map(|(name, _)| name).collect()
}

#[test]
fn the_generated_scenes_reach_batches_of_every_size_and_each_way_to_have_none() {
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    let mut kinds = BTreeSet::new();
    let (mut all_spot, mut waits, mut resumed, mut skipped) = (0, 0, 0, 0);
    for scene in samples(scenes(), 3_000) {
        match scene.turn() {
            Turn::Nodes(names) => {
                *sizes.entry(names.len()).or_default() += 1;
                let is_resumed = |node: &NodeSnapshot| is_open(node) && names.iter().any(|name| **name == *node.name);
                resumed += usize::from(scene.nodes.iter().any(is_resumed));
                skipped += usize::from(!eligible(&scene).starts_with(&names));
            }
            Turn::Wait(_) => waits += 1,
            Turn::AllSpot => all_spot += 1,
            Turn::Nobody(found) => kinds.extend(found.into_keys()),
        }
    }
    assert!((1..=4).all(|size| sizes.get(&size).is_some_and(|often| *often >= 20)), "{sizes:?}");
    assert!(all_spot >= 50 && waits >= 50 && resumed >= 50 && skipped >= 50, "{all_spot} {waits} {resumed} {skipped}");
    for kind in [ReasonKind::RunLimit, ReasonKind::DayLimit, ReasonKind::OptedOut, ReasonKind::GroupAtMinimum] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
}

proptest! {
    #![proptest_config(config(768))]

    #[test]
    fn the_batch_takes_each_eligible_node_in_order_that_fits_beside_those_before_it(scene in scenes()) {
        let mut expected = Vec::new();
        for name in eligible(&scene) {
            let more = [expected.clone(), vec![name]].concat();
            if may_go_together(&scene, &more) {
                expected = more;
            }
        }
        prop_assert_eq!(scene.batch(), expected);
    }

    #[test]
    fn the_order_of_the_nodes_does_not_matter(
        (scene, shuffled) in scenes().prop_flat_map(|scene| {
            let order = Just(scene.nodes.clone()).prop_shuffle();
            (Just(scene.clone()), order.prop_map(move |nodes| Scene { nodes, ..scene.clone() }))
        }),
    ) {
        prop_assert_eq!(scene.batch(), shuffled.batch());
        prop_assert_eq!(scene.verdicts(), shuffled.verdicts());
    }

    #[test]
    fn a_plan_names_first_the_node_that_a_run_would_take(scene in scenes()) {
        prop_assume!(!scene.nodes.iter().any(is_open));
        let first = eligible(&scene).first().cloned();
        let batch = scene.batch();
        prop_assert_eq!(batch.first(), first.as_ref());
    }

    #[test]
    fn a_node_that_is_not_eligible_never_goes(scene in scenes()) {
        for name in scene.batch() {
            prop_assert_eq!(scene.verdict(&name), Verdict::Eligible);
        }
    }
}
