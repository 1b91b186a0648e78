//! Who may be retired, and for which reason not: a table for each reason.

use std::collections::BTreeSet;

use jiff::civil::date;
use spot_core::capacity::Class;
use spot_core::claim::{BackOff, ClaimStep, Owner};
use spot_core::judge::{ProvisionedNodes, Verdict};
use spot_core::memory::{Exhaustion, Memory, Retired};
use spot_core::node::{ClaimAnnotation, Readiness, key};
use spot_core::pod::PodSnapshot;
use spot_core::reason::{Reason, ReasonKind, Span};
use spot_core::selector::LabelSelector;
use spot_core::view::Change;
use spot_core::{NodeSnapshot, schedule::time_zone};

use crate::support::build::{annotated, at, claim, group, labelled, node, noon, pod, secs, uid};
use crate::support::scene::Scene;

/// What is special about a scene, how it comes about, and why `od-1` may not go then.
pub(crate) type Row<'r> = (&'r str, fn(&mut Scene), &'r [ReasonKind]);

/// Each cause gives `od-1` exactly these reasons, and `od-2` none.
pub(crate) fn refuses_od_1_alone(rows: &[Row<'_>]) {
    for (what, arrange, expected) in rows {
        let mut scene = Scene::b0();
        arrange(&mut scene);
        assert_eq!(scene.kinds("od-1"), *expected, "{what}");
        assert_eq!(scene.kinds("od-2"), [], "{what}, the next node");
    }
}

/// Each cause gives every candidate exactly these reasons.
fn refuses_all(rows: &[Row<'_>]) {
    for (what, arrange, expected) in rows {
        let mut scene = Scene::b0();
        arrange(&mut scene);
        for name in ["od-1", "od-2", "od-3"] {
            assert_eq!(scene.kinds(name), *expected, "{what}: {name}");
        }
    }
}

#[test]
fn on_demand_nodes_are_eligible_and_others_are_no_candidates() {
    let mut scene = Scene::b0();
    scene.put(node("reserved"), Class::Reserved);
    scene.put(node("unknown"), Class::Unknown);
    scene.put(labelled(node("legacy"), key::MASTER, "true"), Class::Unknown);
    for name in ["od-1", "od-2", "od-3"] {
        assert_eq!(scene.verdict(name), Verdict::Eligible, "{name}");
    }
    for name in ["cp-1", "sp-1", "sp-2", "reserved", "legacy"] {
        assert_eq!(scene.verdict(name), Verdict::NotACandidate, "{name}");
    }
    assert_eq!(scene.kinds("unknown"), [ReasonKind::UnknownCapacity]);
}

#[test]
fn a_mark_makes_no_candidate_of_a_control_plane_or_spot_node() {
    let mut scene = Scene::b0();
    for name in ["cp-1", "sp-1"] {
        let node = scene.node(name);
        node.labels.insert(key::SELECTED.to_owned(), "true".to_owned());
        node.unschedulable = true;
        assert_eq!(scene.verdict(name), Verdict::NotACandidate, "{name}");
    }
}

#[test]
fn the_node_selector_limits_candidates() {
    let mut scene = Scene::b0();
    scene.node("od-2").labels.insert("pool".to_owned(), "batch".to_owned());
    scene.policy.node_selector = LabelSelector::parse("pool in (batch, ci)").unwrap();
    assert_eq!(scene.verdict("od-1"), Verdict::NotACandidate);
    assert_eq!(scene.verdict("od-2"), Verdict::Eligible);
}

#[test]
fn rb_07_a_node_whose_class_nobody_can_tell_is_refused_and_spoils_no_other() {
    refuses_od_1_alone(&[
        ("the cloud's class is unknown", |s| s.fact("od-1").class = Class::Unknown, &[ReasonKind::UnknownCapacity]),
        ("the cloud never heard of it", |s| drop(s.cloud.remove(&uid("od-1"))), &[ReasonKind::UnknownCapacity]),
    ]);
}

#[test]
fn a_node_is_refused_for_each_opt_out_that_it_carries_and_also_when_it_is_marked() {
    fn annotate(scene: &mut Scene, key: &str) {
        scene.node("od-1").annotations.insert(key.to_owned(), "true".to_owned());
    }
    fn mark(scene: &mut Scene) {
        let node = scene.node("od-1");
        node.labels.insert(key::SELECTED.to_owned(), "true".to_owned());
        node.claim = annotated(claim("od-1", ClaimStep::Draining));
        node.unschedulable = true;
    }
    let opted_out = &[ReasonKind::OptedOut];
    refuses_od_1_alone(&[
        ("a mark and a claim alone", mark, &[]),
        ("our annotation", |s| annotate(s, key::DO_NOT_MIGRATE), opted_out),
        ("cluster-autoscaler's annotation", |s| annotate(s, key::SCALE_DOWN_DISABLED), opted_out),
        ("Karpenter's annotation", |s| annotate(s, key::DO_NOT_DISRUPT), opted_out),
        (
            "our label",
            |s| drop(s.node("od-1").labels.insert(key::DO_NOT_MIGRATE.to_owned(), "true".to_owned())),
            opted_out,
        ),
        (
            "our annotation and a mark",
            |s| {
                mark(s);
                annotate(s, key::DO_NOT_MIGRATE);
            },
            opted_out,
        ),
        (
            "Karpenter's annotation and a mark",
            |s| {
                mark(s);
                annotate(s, key::DO_NOT_DISRUPT);
            },
            opted_out,
        ),
    ]);
}

#[test]
fn rb_51_an_opt_out_wins_over_the_cordon_that_a_person_set() {
    let mut scene = Scene::b0();
    let held = scene.node("od-3");
    held.unschedulable = true;
    held.annotations.insert(key::DO_NOT_MIGRATE.to_owned(), "true".to_owned());
    scene.node("od-2").readiness = Readiness::NotReady { since: noon() - secs(60) };
    scene.node("od-1").deleting_since = Some(noon());
    assert_eq!(scene.kinds("od-3"), [ReasonKind::OptedOut]);
    assert_eq!(scene.kinds("od-2"), [ReasonKind::NotReady]);
    assert_eq!(scene.kinds("od-1"), [ReasonKind::Departing]);
    assert_eq!(scene.batch(), [] as [&str; 0]);
}

#[test]
fn a_node_of_another_provisioner_is_skipped_unless_it_is_to_be_migrated() {
    fn of_karpenter(scene: &mut Scene) {
        scene.node("od-1").labels.insert(key::NODE_POOL.to_owned(), "default".to_owned());
    }
    refuses_od_1_alone(&[
        ("skip", of_karpenter, &[ReasonKind::ProvisionedByOther]),
        (
            "migrate",
            |s| {
                of_karpenter(s);
                s.policy.provisioned_nodes = ProvisionedNodes::Migrate;
            },
            &[],
        ),
    ]);
}

#[test]
fn what_the_cloud_refuses_is_passed_through_in_its_own_words() {
    let words = [
        Reason::Cloud(ReasonKind::ScaleInProtected, "instance i-1 is protected".to_owned()),
        Reason::Plain(ReasonKind::InstanceInTransition),
    ];
    let mut scene = Scene::b0();
    scene.fact("od-1").refusals = words.to_vec();
    assert_eq!(scene.reasons("od-1"), words);
    assert_eq!(scene.reasons("od-2"), []);
}

#[test]
fn rb_24_one_odd_provider_id_is_refused_and_the_others_go() {
    let mut scene = Scene::b0();
    for (name, odd) in [("fargate", "aws:///eu-west-1b/0123/fargate-ip-10-0-0-1"), ("kind", "kind://x/y"), ("no", "")] {
        scene.put(NodeSnapshot { provider_id: odd.to_owned(), ..node(name) }, Class::Unknown);
        scene.fact(name).refusals.push(Reason::Cloud(ReasonKind::UnsupportedProviderId, odd.to_owned()));
        assert_eq!(scene.kinds(name), [ReasonKind::UnknownCapacity, ReasonKind::UnsupportedProviderId], "{name}");
    }
    assert_eq!(scene.batch(), ["od-1"]);
}

#[test]
fn a_node_that_is_not_ready_is_refused_for_five_minutes() {
    fn since(scene: &mut Scene, seconds: u64) {
        scene.node("od-1").readiness = Readiness::NotReady { since: noon() - secs(seconds) };
    }
    refuses_od_1_alone(&[
        ("a second ago", |s| since(s, 1), &[ReasonKind::NotReady]),
        ("a second short of five minutes ago", |s| since(s, 299), &[ReasonKind::NotReady]),
        ("five minutes ago", |s| since(s, 300), &[]),
        ("a day ago", |s| since(s, 86_400), &[]),
        (
            "in the future, by another clock",
            |s| s.node("od-1").readiness = Readiness::NotReady { since: noon() + secs(60) },
            &[ReasonKind::NotReady],
        ),
    ]);
}

#[test]
fn a_node_that_failed_is_left_alone_in_its_run_and_until_its_back_off_ends() {
    fn until(scene: &mut Scene, seconds: u64) {
        scene.node("od-1").back_off = Some(BackOff { until: noon() + secs(seconds), count: 1 });
    }
    let refused = &[ReasonKind::BackingOff];
    refuses_od_1_alone(&[
        ("a second more", |s| until(s, 1), refused),
        ("its end is now", |s| until(s, 0), &[]),
        ("failed in this run", |s| s.run.failed = BTreeSet::from(["uid-od-1".to_owned()]), refused),
        (
            "failed in this run, and the back-off is over already",
            |s| {
                until(s, 0);
                s.run.failed = BTreeSet::from(["uid-od-1".to_owned()]);
            },
            refused,
        ),
    ]);
    let mut scene = Scene::b0();
    until(&mut scene, 60);
    assert_eq!(scene.reasons("od-1"), [Reason::BackingOff(Some(noon() + secs(60)))]);
}

#[test]
fn a_node_that_goes_without_us_is_departing() {
    fn claimed(scene: &mut Scene, step: ClaimStep, owner: Owner) {
        scene.node("od-1").claim = annotated(spot_core::claim::Claim { owner, ..claim("od-1", step) });
    }
    let refused = &[ReasonKind::Departing];
    refuses_od_1_alone(&[
        ("claimed by us, draining", |s| claimed(s, ClaimStep::Draining, Owner::Migrator), &[]),
        ("claimed by us, tainted", |s| claimed(s, ClaimStep::Tainted, Owner::Migrator), &[]),
        ("its deletion was asked for", |s| claimed(s, ClaimStep::Deleting, Owner::Migrator), refused),
        ("an interruption", |s| claimed(s, ClaimStep::Draining, Owner::Interruption), refused),
        ("a pool", |s| claimed(s, ClaimStep::Draining, Owner::Fleet("p".to_owned())), refused),
        ("its object is being deleted", |s| s.node("od-1").deleting_since = Some(noon()), refused),
        (
            "the record of another node was copied here",
            |s| s.node("od-1").claim = annotated(claim("od-9", ClaimStep::Deleting)),
            &[],
        ),
        ("the record can't be read", |s| s.node("od-1").claim = ClaimAnnotation::Unreadable("no JSON".to_owned()), &[]),
    ]);
}

#[test]
fn a_group_at_its_minimum_refuses_before_anything_is_evicted() {
    fn of(scene: &mut Scene, desired: u32, floor: u32, weight: u32) {
        let group = spot_core::cloud::Group { weight, ..group("od", desired, floor) };
        scene.fact("od-1").group = Some(group);
    }
    let refused = &[ReasonKind::GroupAtMinimum];
    refuses_od_1_alone(&[
        ("room for one", |s| of(s, 3, 2, 1), &[]),
        ("no room", |s| of(s, 3, 3, 1), refused),
        ("below its floor already", |s| of(s, 2, 3, 1), refused),
        ("room for less than its weight", |s| of(s, 3, 2, 2), refused),
        ("room for its weight", |s| of(s, 4, 2, 2), &[]),
    ]);
}

#[test]
fn rb_37_too_few_other_nodes_refuse_every_node_that_still_counts() {
    // Usable are od-1, od-2, od-3, sp-1 and sp-2; the control plane takes no pods.
    let mut scene = Scene::b0();
    scene.policy.budgets.min_remaining = 4;
    assert_eq!(scene.batch(), ["od-1"]);
    scene.policy.budgets.min_remaining = 5;
    for name in ["od-1", "od-2", "od-3"] {
        assert_eq!(scene.kinds(name), [ReasonKind::TooFewNodes], "{name}");
    }
    // A cordoned node is none of the others already: its going takes nothing away.
    scene.policy.budgets.min_remaining = 4;
    scene.node("od-1").unschedulable = true;
    assert_eq!(scene.kinds("od-1"), []);
    assert_eq!(scene.kinds("od-2"), [ReasonKind::TooFewNodes]);
    assert_eq!(scene.batch(), ["od-1"]);

    let unusable: [fn(&mut NodeSnapshot); 3] = [
        |node| node.unschedulable = true,
        |node| node.readiness = Readiness::NotReady { since: noon() },
        |node| node.deleting_since = Some(noon()),
    ];
    for change in unusable {
        let mut scene = Scene::b0();
        scene.policy.budgets.min_remaining = 4;
        change(scene.node("sp-2"));
        assert_eq!(scene.kinds("od-1"), [ReasonKind::TooFewNodes]);
    }
}

#[test]
fn a_pause_refuses_all_wherever_it_was_seen() {
    refuses_all(&[
        ("in the memory", |s| s.memory.paused = true, &[ReasonKind::Paused]),
        ("in the view", |s| s.view.apply(Change::Paused(true)), &[ReasonKind::Paused]),
        ("by the run itself", |s| s.run.paused = true, &[ReasonKind::Paused]),
        (
            "taken back",
            |s| {
                s.view.apply(Change::Paused(true));
                s.view.apply(Change::Paused(false));
            },
            &[],
        ),
    ]);
}

#[test]
fn outside_every_window_no_node_may_be_begun() {
    fn window(scene: &mut Scene, start: i8) {
        scene.policy.budgets.windows.push(spot_core::budget::Window {
            days: Vec::new(),
            start: jiff::civil::time(start, 0, 0, 0),
            duration: secs(3_600),
            time_zone: time_zone("UTC").unwrap(),
        });
    }
    refuses_all(&[
        ("open", |s| window(s, 12), &[]),
        ("over", |s| window(s, 11), &[ReasonKind::OutsideWindow]),
        ("to come", |s| window(s, 13), &[ReasonKind::OutsideWindow]),
        (
            "one of two is open",
            |s| {
                window(s, 3);
                window(s, 12);
            },
            &[],
        ),
    ]);
}

#[test]
fn limits_of_run_and_day_refuse_all_once_they_are_reached() {
    fn day(scene: &mut Scene, day: i8, nodes: u32) {
        scene.policy.budgets.per_day = Some(3);
        scene.memory.retired = Some(Retired { day: date(2026, 3, day), nodes });
    }
    refuses_all(&[
        (
            "fewer than the run may begin",
            |s| {
                s.policy.budgets.per_run = Some(2);
                s.run.begun = 1;
            },
            &[],
        ),
        (
            "as many as the run may begin",
            |s| {
                s.policy.budgets.per_run = Some(2);
                s.run.begun = 2;
            },
            &[ReasonKind::RunLimit],
        ),
        ("fewer than the day may see", |s| day(s, 2, 2), &[]),
        ("as many as the day may see", |s| day(s, 2, 3), &[ReasonKind::DayLimit]),
        (
            "as many as the day may see with those of this run",
            |s| {
                day(s, 2, 2);
                s.run.retired = 1;
            },
            &[ReasonKind::DayLimit],
        ),
        ("as many, but yesterday", |s| day(s, 1, 3), &[]),
        (
            "yesterday in UTC is today in the schedule's time zone",
            |s| {
                day(s, 1, 3);
                s.now = at("2026-03-02T03:00:00Z");
                s.policy.budgets.time_zone = time_zone("America/New_York").unwrap();
            },
            &[ReasonKind::DayLimit],
        ),
    ]);
}

#[test]
fn a_shortage_refuses_all_until_it_is_over_or_a_newer_spot_node_comes() {
    fn short(scene: &mut Scene, until: u64) {
        let back_off = BackOff { until: noon() + secs(until), count: 1 };
        scene.memory =
            Memory { exhausted: Some(Exhaustion { since: noon() - secs(600), back_off }), ..Memory::default() };
    }
    fn born(scene: &mut Scene, name: &str, ago: u64) {
        scene.node(name).created_at = noon() - secs(ago);
    }
    let refused = &[ReasonKind::Exhausted];
    refuses_all(&[
        ("a second more", |s| short(s, 1), refused),
        ("its end is now", |s| short(s, 0), &[]),
        (
            "a spot node came since",
            |s| {
                short(s, 60);
                born(s, "sp-2", 599);
            },
            &[],
        ),
        (
            "a spot node came at that very moment",
            |s| {
                short(s, 60);
                born(s, "sp-2", 600);
            },
            refused,
        ),
        (
            "an on-demand node came since",
            |s| {
                short(s, 60);
                born(s, "od-3", 10);
            },
            refused,
        ),
    ]);
    let mut scene = Scene::b0();
    short(&mut scene, 60);
    assert_eq!(scene.reasons("od-1"), [Reason::Exhausted(noon() + secs(60))]);
}

#[test]
fn all_reasons_of_a_node_are_told_together() {
    let mut scene = Scene::b0();
    scene.memory.paused = true;
    scene.node("od-1").annotations.insert(key::DO_NOT_DISRUPT.to_owned(), "true".to_owned());
    scene.node("od-1").readiness = Readiness::NotReady { since: noon() };
    scene.pod(PodSnapshot { controller: None, ..pod("bare", "bare", "od-1") });
    let told: BTreeSet<_> = scene.kinds("od-1").into_iter().collect();
    let all = [ReasonKind::OptedOut, ReasonKind::NotReady, ReasonKind::Paused, ReasonKind::UnmanagedPod];
    assert_eq!(told, BTreeSet::from(all));
}

#[test]
fn the_list_of_reasons_is_closed_and_each_has_its_word_and_remedy() {
    let words = "control_plane paused opted_out pod_opted_out provisioned_by_other unknown_capacity no_machine_owner \
                 unmanaged_pod empty_dir budget_allows_none multiple_budgets no_spot_placement local_volume \
                 grace_exceeds_timeout not_ready backing_off outside_window run_limit day_limit too_few_nodes departing \
                 exhausted group_at_minimum scale_in_protected termination_protected instance_in_transition \
                 mixed_on_demand_base zone_rebalance group_refreshing identity_mismatch wrong_cluster claimed_twice \
                 unsupported_provider_id fractional_weight cloud_unreachable";
    assert_eq!(ReasonKind::ALL.map(ReasonKind::as_str).to_vec(), words.split_whitespace().collect::<Vec<_>>());
    for kind in ReasonKind::ALL {
        assert!(kind.remedy().len() > 10, "{kind}");
        assert_eq!(Reason::Plain(kind).span(), kind.span(), "{kind}");
    }
    let transient: Vec<_> = ReasonKind::ALL.into_iter().filter(|kind| kind.span() == Span::Transient).collect();
    assert_eq!(
        transient.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(),
        [
            "budget_allows_none",
            "not_ready",
            "too_few_nodes",
            "departing",
            "instance_in_transition",
            "group_refreshing",
            "cloud_unreachable",
        ]
    );
}
