//! The nodes of a pool as candidates: which they are, whatever their class, and how much of them may go.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use spot_core::NodeSnapshot;
use spot_core::capacity::Class;
use spot_core::claim::{BackOff, Claim, ClaimStep, InstanceId, Owner};
use spot_core::drain::plan::Force;
use spot_core::judge::{Candidates, Others, PoolCandidates, Verdict};
use spot_core::memory::{Exhaustion, Memory};
use spot_core::node::{ClaimAnnotation, Readiness, key};
use spot_core::placement::{HOSTNAME, Needs, Shape};
use spot_core::pod::PodSnapshot;
use spot_core::reason::{Reason, ReasonKind};
use spot_core::selector::Requirement;

use crate::support::build::{annotated, budget, claim, group, labelled, node, noon, pod, secs, uid};
use crate::support::generate::nodes;
use crate::support::scene::{Scene, Turn};
use crate::support::{config, samples};

const POOL: &str = "web";

fn pool(scene: &mut Scene) -> &mut PoolCandidates {
    match &mut scene.policy.candidates {
        Candidates::Pool(pool) => pool,
        Candidates::OnDemand => panic!("it is a pool's scene"),
    }
}

/// A node of the pool, with that weight.
fn put(scene: &mut Scene, node: NodeSnapshot, weight: u32) {
    let instance = InstanceId::new(format!("i-{}", node.name));
    pool(scene).machines.insert(instance, weight);
    scene.put(node, Class::Spot);
}

fn pool_of(room: u32, others: Others) -> Scene {
    let machines = BTreeMap::new();
    let mut scene = Scene::b0();
    scene.policy.own_node = None;
    scene.policy.candidates =
        Candidates::Pool(PoolCandidates { pool: POOL.to_owned(), machines, room, others, force: Force::Planned });
    scene
}

/// The cluster of other tests, and a pool of three nodes of weights 1, 2 and 3, of which `p-1` is the oldest.
fn pool_scene(room: u32, others: Others) -> Scene {
    let mut scene = pool_of(room, others);
    for weight in 1..=3 {
        let plain = node(&format!("p-{weight}"));
        put(&mut scene, NodeSnapshot { created_at: plain.created_at + secs(weight.into()), ..plain }, weight);
    }
    scene
}

fn claimed(mut node: NodeSnapshot, owner: Owner, step: ClaimStep) -> NodeSnapshot {
    let uid = node.uid.clone();
    node.claim = annotated(Claim { owner, node: uid, ..claim(&node.name, step) });
    node
}

fn needing(app: &str, on: &str, label: &str) -> PodSnapshot {
    let (key, value) = label.split_once('=').unwrap();
    let needs = Needs::new([Requirement::equals(key, value)], None, []).unwrap();
    PodSnapshot { needs: Some(Arc::new(needs)), ..pod(&format!("{app}-1"), app, on) }
}

#[test]
fn the_nodes_of_the_pools_machines_are_candidates_whatever_their_class_and_no_others_are() {
    let mut scene = pool_scene(9, Others::Stay);
    for (name, class) in [("p-1", Class::OnDemand), ("p-2", Class::Reserved), ("p-3", Class::Unknown)] {
        scene.fact(name).class = class;
    }
    scene.put(node("stranger"), Class::Spot);
    for name in ["p-1", "p-2", "p-3"] {
        assert_eq!(scene.verdict(name), Verdict::Eligible, "{name}");
    }
    for name in ["cp-1", "od-1", "od-2", "sp-1", "stranger"] {
        assert_eq!(scene.verdict(name), Verdict::NotACandidate, "{name}");
    }
    scene.fact("p-2").machine = None;
    assert_eq!(scene.verdict("p-2"), Verdict::NotACandidate, "nobody can tell which machine it is");
}

#[test]
fn a_control_plane_node_is_no_candidate_though_a_fleet_of_the_pool_keeps_it() {
    let mut scene = pool_scene(9, Others::Stay);
    put(&mut scene, labelled(node("p-4"), key::CONTROL_PLANE, ""), 1);
    assert_eq!(scene.verdict("p-4"), Verdict::NotACandidate);
}

#[test]
fn a_node_whose_weight_does_not_fit_into_the_room_is_refused_whatever_its_group_says() {
    let mut scene = pool_scene(2, Others::Stay);
    for name in ["p-1", "p-2", "p-3"] {
        scene.fact(name).group = Some(group("sfr-1", 6, 6));
    }
    assert_eq!((scene.kinds("p-1"), scene.kinds("p-2")), (vec![], vec![]));
    let Reason::Cloud(ReasonKind::GroupAtMinimum, words) = scene.reasons("p-3").remove(0) else { panic!() };
    assert_eq!(words, "pool web may lose 2 now, and the node is 3 of it");
}

#[test]
fn a_batch_never_takes_more_than_the_room_and_takes_what_fits_beside_those_before() {
    let mut scene = pool_scene(4, Others::Stay);
    scene.policy.budgets.at_once = 3;
    assert_eq!(scene.batch(), ["p-1", "p-2"], "3 does not fit beside 1 and 2");
    pool(&mut scene).room = 6;
    assert_eq!(scene.batch(), ["p-1", "p-2", "p-3"]);
    pool(&mut scene).room = 0;
    assert_eq!(scene.turn(), Turn::Nobody(BTreeMap::from([(ReasonKind::GroupAtMinimum, 3)])));
    pool(&mut scene).machines.values_mut().for_each(|weight| *weight = 0);
    assert_eq!(scene.batch(), ["p-1", "p-2", "p-3"], "what takes no room goes though there is none");
}

#[test]
fn as_many_go_at_once_as_are_allowed_though_no_other_node_is_known() {
    let mut scene = pool_of(9, Others::Go);
    scene.nodes.clear();
    scene.cloud.clear();
    for name in ["p-1", "p-2", "p-3"] {
        put(&mut scene, node(name), 1);
    }
    scene.policy.budgets.at_once = 2;
    assert_eq!(scene.batch(), ["p-1", "p-2"]);
}

#[test]
fn that_spot_is_exhausted_does_not_hold_a_pool() {
    let mut scene = pool_scene(9, Others::Stay);
    let back_off = BackOff { until: noon() + secs(60), count: 1 };
    scene.memory = Memory { exhausted: Some(Exhaustion { since: noon(), back_off }), ..Memory::default() };
    assert_eq!(scene.kinds("p-1"), []);
}

#[test]
fn what_failed_before_does_not_hold_a_pool_since_a_person_asks_again() {
    let mut scene = pool_scene(9, Others::Stay);
    scene.node("p-1").back_off = Some(BackOff { until: noon() + secs(9), count: 1 });
    assert_eq!(scene.kinds("p-1"), []);
}

#[test]
fn everything_else_that_holds_a_node_holds_one_of_a_pool() {
    type Cause = (fn(&mut Scene), ReasonKind);
    let causes: [Cause; 10] = [
        (
            |scene| drop(scene.node("p-1").annotations.insert(key::DO_NOT_DISRUPT.into(), "true".into())),
            ReasonKind::OptedOut,
        ),
        (|scene| scene.node("p-1").readiness = Readiness::NotReady { since: noon() }, ReasonKind::NotReady),
        (|scene| scene.run.failed.extend([uid("p-1").to_string()]), ReasonKind::BackingOff),
        (|scene| scene.node("p-1").deleting_since = Some(noon()), ReasonKind::Departing),
        (
            |scene| scene.fact("p-1").refusals.push(Reason::Plain(ReasonKind::TerminationProtected)),
            ReasonKind::TerminationProtected,
        ),
        (|scene| scene.pod(PodSnapshot { controller: None, ..pod("bare", "bare", "p-1") }), ReasonKind::UnmanagedPod),
        (
            |scene| scene.pod(PodSnapshot { opted_out: Some(key::DO_NOT_DISRUPT), ..pod("kept", "kept", "p-1") }),
            ReasonKind::PodOptedOut,
        ),
        (
            |scene| {
                scene.pod(pod("shy-1", "shy", "p-1"));
                scene.budget(budget("shy", 0));
            },
            ReasonKind::BudgetAllowsNone,
        ),
        (|scene| scene.pod(needing("zonal", "p-1", "zone=mars")), ReasonKind::NoSpotPlacement),
        (|scene| scene.policy.drain_timeout = Some(secs(1)), ReasonKind::GraceExceedsTimeout),
    ];
    for (at, (cause, kind)) in causes.into_iter().enumerate() {
        let mut scene = pool_scene(9, Others::Stay);
        scene.pod(pod("plain-1", "plain", "p-1"));
        assert_eq!(scene.kinds("p-1"), [], "{at}");
        cause(&mut scene);
        assert_eq!(scene.kinds("p-1"), [kind], "{at}");
        assert_eq!(scene.kinds("p-2"), [], "{at}: the next node");
    }
    let mut scene = pool_scene(9, Others::Stay);
    scene.run.paused = true;
    assert_eq!(scene.kinds("p-1"), [ReasonKind::Paused]);
    let mut scene = pool_scene(9, Others::Stay);
    scene.policy.budgets.min_remaining = 8;
    assert_eq!(scene.kinds("p-1"), [ReasonKind::TooFewNodes]);
}

#[test]
fn a_forced_removal_heeds_neither_pods_nor_a_back_off_but_a_nodes_opt_out_and_the_cloud() {
    let mut scene = pool_scene(9, Others::Go);
    pool(&mut scene).force = Force::Forced;
    scene.pod(PodSnapshot { controller: None, ..pod("bare", "bare", "p-1") });
    scene.pod(PodSnapshot { opted_out: Some(key::DO_NOT_DISRUPT), ..pod("kept", "kept", "p-1") });
    scene.pod(pod("shy-1", "shy", "p-1"));
    scene.pod(needing("zonal", "p-1", "zone=mars"));
    scene.budget(budget("shy", 0));
    let (not_ready, back_off) = (Readiness::NotReady { since: noon() }, BackOff { until: noon() + secs(9), count: 1 });
    (scene.node("p-1").readiness, scene.node("p-1").back_off) = (not_ready, Some(back_off));
    assert_eq!(scene.kinds("p-1"), []);

    scene.fact("p-1").refusals.push(Reason::Plain(ReasonKind::TerminationProtected));
    scene.node("p-2").annotations.insert(key::SCALE_DOWN_DISABLED.to_owned(), "true".to_owned());
    scene.run.failed.insert(uid("p-3").to_string());
    assert_eq!(scene.kinds("p-1"), [ReasonKind::TerminationProtected]);
    assert_eq!(scene.kinds("p-2"), [ReasonKind::OptedOut]);
    assert_eq!(scene.kinds("p-3"), [ReasonKind::BackingOff], "it failed in this very removal");
}

#[test]
fn claims_of_the_pool_are_taken_up_and_those_of_others_are_not() {
    let mut scene = pool_of(9, Others::Stay);
    put(&mut scene, claimed(node("mine"), Owner::Fleet(POOL.to_owned()), ClaimStep::Tainted), 1);
    put(&mut scene, claimed(node("other"), Owner::Fleet("batch".to_owned()), ClaimStep::Draining), 1);
    put(&mut scene, claimed(node("moved"), Owner::Migrator, ClaimStep::Draining), 1);
    put(&mut scene, claimed(node("going"), Owner::Fleet(POOL.to_owned()), ClaimStep::Deleting), 1);
    put(&mut scene, node("fresh"), 1);
    scene.node("mine").created_at = noon();
    assert_eq!(scene.kinds("mine"), []);
    for name in ["other", "moved", "going"] {
        assert_eq!(scene.kinds(name), [ReasonKind::Departing], "{name}");
    }
    assert_eq!(scene.batch(), ["mine"], "what is claimed holds its place");
    scene.policy.candidates = Candidates::OnDemand;
    scene.fact("mine").class = Class::OnDemand;
    assert_eq!(scene.kinds("mine"), [ReasonKind::Departing], "to a migration it is somebody else's");
}

#[test]
fn pods_have_to_fit_on_a_usable_node_that_stays() {
    for (others, expected) in [(Others::Stay, &[][..]), (Others::Go, &[ReasonKind::NoSpotPlacement])] {
        let mut scene = pool_scene(9, others);
        scene.node("p-2").labels.insert("disk".to_owned(), "ssd".to_owned());
        scene.pod(needing("db", "p-1", "disk=ssd"));
        assert_eq!(scene.kinds("p-1"), *expected, "{others:?}: only p-2 would do");
        scene.node("p-2").unschedulable = true;
        assert_eq!(scene.kinds("p-1"), [ReasonKind::NoSpotPlacement], "{others:?}: it takes no pods");
        scene.node("od-1").labels.insert("disk".to_owned(), "ssd".to_owned());
        assert_eq!(scene.kinds("p-1"), [], "{others:?}: an on-demand node does, too");
    }
}

#[test]
fn a_node_is_no_place_for_its_own_pods() {
    let mut scene = pool_scene(9, Others::Stay);
    scene.node("p-1").labels.insert("disk".to_owned(), "ssd".to_owned());
    scene.pod(needing("db", "p-1", "disk=ssd"));
    scene.pod(needing("cache", "p-2", "disk=ssd"));
    assert_eq!(scene.kinds("p-1"), [ReasonKind::NoSpotPlacement]);
    assert_eq!(scene.kinds("p-2"), [], "p-1 would do for that one");
}

#[test]
fn nothing_is_known_of_where_pods_may_go_where_no_other_node_stays() {
    for others in [Others::Stay, Others::Go] {
        let mut scene = pool_of(9, others);
        scene.nodes.clear();
        scene.policy.budgets.min_remaining = 0;
        put(&mut scene, node("p-1"), 1);
        scene.pod(needing("db", "p-1", "disk=ssd"));
        let seen = labelled(node("sp-9"), "disk", "hdd");
        scene.memory.shapes = vec![Shape::of(&seen, seen.labels.iter())];
        assert_eq!(scene.kinds("p-1"), [], "{others:?}: and a shape that was seen does not come for a pool");
    }
}

#[test]
fn pods_fit_on_what_follows_a_node_unless_they_want_its_very_host() {
    let mut scene = pool_scene(9, Others::Follow);
    for (name, value) in [("p-1", "ssd"), ("p-2", "hdd")] {
        let labels = [("disk", value), (HOSTNAME, name)].map(|(key, value)| (key.to_owned(), value.to_owned()));
        scene.node(name).labels.extend(labels);
        scene.node(name).unschedulable = true;
    }
    scene.pod(needing("db", "p-1", "disk=ssd"));
    assert_eq!(scene.kinds("p-1"), [], "more of its like comes, though no other does");
    scene.pod(needing("cache", "p-2", "disk=nvme"));
    assert_eq!(scene.kinds("p-2"), [ReasonKind::NoSpotPlacement], "none of the pool has that");
    scene.pod(needing("local", "p-1", &format!("{HOSTNAME}=p-1")));
    assert_eq!(scene.kinds("p-1"), [ReasonKind::NoSpotPlacement], "none that comes is this host");
    pool(&mut scene).others = Others::Go;
    assert_eq!(scene.kinds("p-1"), [ReasonKind::NoSpotPlacement; 2], "nothing comes");
}

/// Pools of up to seven nodes, some of them held.
fn pools() -> impl Strategy<Value = Scene> {
    let owner = select(vec![Owner::Migrator, Owner::Fleet(POOL.to_owned()), Owner::Fleet("other".to_owned())]);
    let claim_of = proptest::option::weighted(0.3, (owner, select(ClaimStep::ALL.to_vec())));
    let attributes =
        (select(Class::ALL.to_vec()), 0_u32..4, prop::bool::weighted(0.8), claim_of, prop::bool::weighted(0.2));
    let attributes = prop::collection::vec(attributes, 7);
    (nodes(0..=7), attributes, 0_u32..9, 1_usize..5).prop_map(|(nodes, attributes, room, at_once)| {
        let mut scene = pool_of(room, Others::Stay);
        for (node, (class, weight, member, claim, opted_out)) in nodes.into_iter().zip(attributes) {
            let mut node = match claim {
                Some((owner, step)) => claimed(node, owner, step),
                None => node,
            };
            if opted_out {
                node.annotations.insert(key::DO_NOT_MIGRATE.to_owned(), "true".to_owned());
            }
            if member {
                pool(&mut scene).machines.insert(InstanceId::new(format!("i-{}", node.name)), weight);
            }
            scene.put(node, class);
        }
        scene.policy.budgets.at_once = at_once;
        scene
    })
}

fn weight(scene: &Scene, name: &str) -> Option<u32> {
    let Candidates::Pool(pool) = &scene.policy.candidates else { panic!("it is a pool's scene") };
    pool.machines.get(&InstanceId::new(format!("i-{name}"))).copied()
}

fn room(scene: &Scene) -> u32 {
    match &scene.policy.candidates {
        Candidates::Pool(pool) => pool.room,
        Candidates::OnDemand => panic!("it is a pool's scene"),
    }
}

/// Whether these may go side by side, counted afresh.
fn may_go_together(scene: &Scene, names: &[String]) -> bool {
    let chosen = |node: &&NodeSnapshot| names.iter().any(|name| **name == *node.name);
    let open = |node: &&NodeSnapshot| {
        matches!(&node.claim, ClaimAnnotation::Valid(claim)
            if claim.owner == Owner::Fleet(POOL.to_owned()) && claim.step != ClaimStep::Deleting)
    };
    let (at_once, held) = (scene.policy.budgets.at_once, scene.nodes.iter().filter(open).count());
    let new = scene.nodes.iter().filter(chosen).filter(|node| !open(node)).count();
    let taken: u32 = names.iter().map(|name| weight(scene, name).unwrap()).sum();
    names.len() <= at_once && (new == 0 || new + held <= at_once) && taken <= room(scene)
}

#[test]
fn the_generated_pools_reach_full_and_partial_batches_and_nobody() {
    let (mut full, mut partial, mut nobody, mut none) = (0, 0, 0, 0);
    for scene in samples(pools(), 1_000) {
        match scene.turn() {
            Turn::Nodes(names) if names.len() == scene.policy.budgets.at_once => full += 1,
            Turn::Nodes(_) => partial += 1,
            Turn::Wait(_) | Turn::Nobody(_) => nobody += 1,
            Turn::AllSpot => none += 1,
        }
    }
    assert!(full > 50 && partial > 50 && nobody > 20 && none > 20, "{full} {partial} {nobody} {none}");
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn the_batch_takes_each_eligible_node_in_order_that_fits_beside_those_before_it(scene in pools()) {
        let mut expected = Vec::new();
        for (name, verdict) in scene.verdicts() {
            let more = [expected.clone(), vec![name]].concat();
            if verdict == Verdict::Eligible && may_go_together(&scene, &more) {
                expected = more;
            }
        }
        prop_assert_eq!(scene.batch(), expected);
    }

    #[test]
    fn a_node_that_is_too_heavy_for_the_room_is_refused_and_one_that_is_not_is_not_for_that(scene in pools()) {
        for (name, verdict) in scene.verdicts() {
            let Some(weight) = weight(&scene, &name) else { continue };
            let too_heavy = match &verdict {
                Verdict::Refused(reasons) => reasons.iter().any(|reason| reason.kind() == ReasonKind::GroupAtMinimum),
                Verdict::Eligible | Verdict::NotACandidate => false,
            };
            prop_assert_eq!(too_heavy, weight > room(&scene), "{}", name);
        }
    }

    #[test]
    fn a_node_is_a_candidate_exactly_if_its_machine_is_one_of_the_pools(scene in pools()) {
        for (name, verdict) in scene.verdicts() {
            prop_assert_eq!(verdict != Verdict::NotACandidate, weight(&scene, &name).is_some(), "{}", name);
        }
    }
}
