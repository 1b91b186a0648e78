//! Which node goes first, which one is new, which ones are never touched.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;
use proptest::sample::select;
use spot_core::capacity::Class;
use spot_core::decision::{is_marked, opt_out};
use spot_core::node::{Effect, Node, Readiness, Taint, Uid, key};
use spot_core::{KnownNodes, NodeSnapshot, Preference, is_control_plane, select_node_for_deletion};

use crate::support::build::{labelled, node, noon, secs, uid};
use crate::support::generate::{OWN_NODE, in_two_orders, nodes};
use crate::support::{config, samples};

fn tainted(name: &str, key: &str, effect: Effect) -> NodeSnapshot {
    NodeSnapshot { taints: vec![Taint::new(key, "1770000000", effect)], ..node(name) }
}

fn cordoned(name: &str) -> NodeSnapshot {
    NodeSnapshot { unschedulable: true, ..node(name) }
}

fn marked(name: &str) -> NodeSnapshot {
    labelled(node(name), key::SELECTED, "true")
}

fn selected<'n>(nodes: &'n [NodeSnapshot], own_node: Option<&str>) -> Option<&'n str> {
    select_node_for_deletion(nodes, own_node).map(|node| &*node.name)
}

/// The choice, which must be the same in every order of three or fewer nodes.
fn choice(nodes: &[NodeSnapshot]) -> String {
    let first = selected(nodes, None).unwrap().to_owned();
    for turn in 0..nodes.len() {
        let mut turned = nodes.to_vec();
        turned.rotate_left(turn);
        assert_eq!(selected(&turned, None), Some(&*first));
        turned.reverse();
        assert_eq!(selected(&turned, None), Some(&*first));
    }
    first
}

#[test]
fn rb_70_soft_hints_that_are_stale_or_have_another_effect() {
    let od_1 = labelled(tainted("od-1", key::TO_BE_DELETED, Effect::NoExecute), key::SELECTED, "false");
    let od_2 = tainted("od-2", key::DELETION_CANDIDATE, Effect::NoSchedule);
    let od_3 = tainted("od-3", key::DELETION_CANDIDATE, Effect::PreferNoSchedule);
    assert_eq!(choice(&[od_1.clone(), od_2.clone(), od_3.clone()]), "od-3");

    let od_2_marked = labelled(od_2.clone(), key::SELECTED, "true");
    assert_eq!(choice(&[od_1.clone(), od_2_marked, od_3.clone()]), "od-2");

    let od_1_cordoned = NodeSnapshot { unschedulable: true, ..od_1 };
    assert_eq!(choice(&[od_1_cordoned, od_2, od_3]), "od-1");
}

#[test]
fn a_better_preference_wins_over_age_and_uid_for_every_pair() {
    let one_of_each = [
        (Preference::AlreadySelected, marked("m")),
        (Preference::Unschedulable, cordoned("m")),
        (Preference::ToBeDeleted, tainted("m", key::TO_BE_DELETED, Effect::NoSchedule)),
        (Preference::DeletionCandidate, tainted("m", key::DELETION_CANDIDATE, Effect::PreferNoSchedule)),
        (Preference::Ordinary, node("m")),
        (Preference::HostsMigrator, node("own")),
    ];
    assert_eq!(one_of_each.clone().map(|(preference, _)| preference), Preference::ALL);
    for (at, (preference, better)) in one_of_each.iter().enumerate() {
        assert_eq!(Preference::of(better, Some("own")), *preference);
        for (_, worse) in &one_of_each[at + 1..] {
            let better = NodeSnapshot { uid: uid("z"), created_at: noon(), ..better.clone() };
            let worse = NodeSnapshot { uid: uid("a"), created_at: noon() - secs(9), ..worse.clone() };
            for pair in [[better.clone(), worse.clone()], [worse, better]] {
                let chosen = select_node_for_deletion(&pair, Some("own")).unwrap();
                assert_eq!(chosen.uid, uid("z"), "{preference:?} against {pair:?}");
            }
        }
    }
}

#[test]
fn each_preference_has_its_word_in_reports() {
    let words = "already_selected unschedulable to_be_deleted deletion_candidate ordinary hosts_migrator";
    assert_eq!(Preference::ALL.map(Preference::as_str).to_vec(), words.split(' ').collect::<Vec<_>>());
}

#[test]
fn only_the_value_true_of_a_mark_counts_and_only_as_a_label() {
    for key in [key::SELECTED, key::COST_MANAGER_SELECTED] {
        for (value, counts) in [("true", true), ("false", false), ("True", false), ("1", false), ("", false)] {
            let node = labelled(node("od-1"), key, value);
            assert_eq!(is_marked(&node), counts, "{key}={value}");
            assert_eq!(Preference::of(&node, None) == Preference::AlreadySelected, counts, "{key}={value}");
        }
        let mut annotated = node("od-1");
        annotated.annotations.insert(key.to_owned(), "true".to_owned());
        assert!(!is_marked(&annotated), "{key} as an annotation");
    }
}

#[test]
fn a_hint_counts_with_its_own_effect_alone() {
    for effect in Effect::ALL {
        let deleted = Preference::of(&tainted("od-1", key::TO_BE_DELETED, effect), None);
        let candidate = Preference::of(&tainted("od-1", key::DELETION_CANDIDATE, effect), None);
        let expected = match effect {
            Effect::NoSchedule => (Preference::ToBeDeleted, Preference::Ordinary),
            Effect::PreferNoSchedule => (Preference::Ordinary, Preference::DeletionCandidate),
            Effect::NoExecute => (Preference::Ordinary, Preference::Ordinary),
        };
        assert_eq!((deleted, candidate), expected, "{effect:?}");
    }
}

#[test]
fn the_own_node_goes_last_unless_something_else_is_said_of_it() {
    assert_eq!(
        selected(&[node("own"), NodeSnapshot { created_at: noon(), ..node("od-2") }], Some("own")),
        Some("od-2")
    );
    assert_eq!(selected(&[node("own")], Some("own")), Some("own"));
    assert_eq!(Preference::of(&cordoned("own"), Some("own")), Preference::Unschedulable);
    assert_eq!(Preference::of(&marked("own"), Some("own")), Preference::AlreadySelected);
    assert_eq!(Preference::of(&node("own"), None), Preference::Ordinary);
}

#[test]
fn ties_go_to_the_older_node_and_then_to_the_lower_uid_never_by_name() {
    let older = NodeSnapshot { uid: uid("z"), created_at: noon() - secs(1), ..node("z") };
    let younger = NodeSnapshot { uid: uid("a"), created_at: noon(), ..node("a") };
    assert_eq!(choice(&[older.clone(), younger.clone()]), "z");

    let same_age = NodeSnapshot { uid: uid("b"), created_at: older.created_at, ..node("zz") };
    assert_eq!(choice(&[older, same_age, younger]), "zz");
    assert_eq!(selected(&[], None), None);
}

#[test]
fn rb_18_control_plane_nodes_are_recognised_by_label_or_taint_whatever_the_value() {
    let spot_worker = labelled(node("worker"), "node-role.kubernetes.io/spot-worker", "");
    let worker = labelled(spot_worker, "node-role.kubernetes.io/worker", "true");
    let annotated = {
        let mut node = node("annotated");
        node.annotations.insert(key::CONTROL_PLANE.to_owned(), "true".to_owned());
        node
    };
    let table = [
        (labelled(node("empty"), key::CONTROL_PLANE, ""), true),
        (labelled(node("true"), key::CONTROL_PLANE, "true"), true),
        (labelled(node("false"), key::CONTROL_PLANE, "false"), true),
        (labelled(node("legacy"), key::MASTER, ""), true),
        (tainted("taint", key::CONTROL_PLANE, Effect::NoSchedule), true),
        (tainted("soft-taint", key::CONTROL_PLANE, Effect::PreferNoSchedule), true),
        (tainted("legacy-taint", key::MASTER, Effect::NoExecute), true),
        (node("plain"), false),
        (worker, false),
        (annotated, false),
        (tainted("dedicated", "dedicated", Effect::NoSchedule), false),
    ];
    for (node, expected) in table {
        assert_eq!(is_control_plane(&node), expected, "{}", node.name);
    }
}

#[test]
fn a_node_is_opted_out_by_each_key_where_its_owner_writes_it() {
    let table = [
        (key::DO_NOT_MIGRATE, true, "true", true),
        (key::DO_NOT_MIGRATE, false, "true", true),
        (key::DO_NOT_MIGRATE, true, "false", false),
        (key::DO_NOT_MIGRATE, false, "", false),
        (key::SCALE_DOWN_DISABLED, false, "true", true),
        (key::SCALE_DOWN_DISABLED, false, "false", false),
        (key::SCALE_DOWN_DISABLED, true, "true", false),
        (key::DO_NOT_DISRUPT, false, "true", true),
        (key::DO_NOT_DISRUPT, false, "1", false),
        (key::DO_NOT_DISRUPT, true, "true", false),
    ];
    for (key, as_label, value, expected) in table {
        let mut node = node("od-1");
        let place = if as_label { &mut node.labels } else { &mut node.annotations };
        place.insert(key.to_owned(), value.to_owned());
        assert_eq!(opt_out(&node), expected.then_some(key), "{key}={value}, label: {as_label}");
    }
    assert_eq!(opt_out(&node("od-1")), None);
}

/// A node type of somebody else's, with no more than it must have.
#[derive(Debug)]
struct Bare {
    name: &'static str,
    cordoned: bool,
}

impl Node for Bare {
    fn name(&self) -> &str {
        self.name
    }
    fn uid(&self) -> &str {
        self.name
    }
    fn provider_id(&self) -> Option<&str> {
        Some("")
    }
    fn created_at(&self) -> Timestamp {
        noon()
    }
    fn label(&self, _key: &str) -> Option<&str> {
        None
    }
    fn annotation(&self, _key: &str) -> Option<&str> {
        None
    }
    fn taints(&self) -> &[Taint] {
        &[]
    }
    fn is_unschedulable(&self) -> bool {
        self.cordoned
    }
}

#[test]
fn the_decisions_work_on_a_node_type_of_ones_own() {
    let on_demand = [Bare { name: "a", cordoned: false }, Bare { name: "b", cordoned: true }];
    assert_eq!(select_node_for_deletion(&on_demand, None).unwrap().name, "b");
    assert_eq!(select_node_for_deletion(&[&on_demand[0]], None).unwrap().name, "a");
    assert_eq!(on_demand[0].readiness(), Readiness::Ready);

    let known = KnownNodes::of(&on_demand[..1]);
    assert_eq!(known.created(&on_demand, |_| Class::OnDemand).unwrap().name, "b");
}

fn created<'n>(known: &KnownNodes, nodes: &'n [NodeSnapshot], classes: &[(&str, Class)]) -> Option<&'n str> {
    known.created(nodes, |node| class_in(classes, node)).map(|node| &*node.name)
}

fn class_in(classes: &[(&str, Class)], node: &NodeSnapshot) -> Class {
    classes.iter().find(|(name, _)| *name == &*node.name).map_or(Class::OnDemand, |(_, class)| *class)
}

#[test]
fn rb_20_a_node_that_registers_again_is_not_new_and_one_that_came_late_is() {
    let known = KnownNodes::of(&[node("od-1"), node("od-2")]);
    let again = NodeSnapshot { uid: uid("again"), ..node("od-2") };
    assert_eq!(created(&known, &[node("od-1"), again.clone()], &[]), None);
    assert_eq!(created(&known, &[again, node("od-4")], &[]), Some("od-4"));
}

#[test]
fn rb_08_a_name_is_no_identity_when_a_node_is_new() {
    let known = KnownNodes::of(&[node("od-1")]);
    let reused = NodeSnapshot { uid: uid("n2"), provider_id: "aws:///eu-west-1a/i-n2".to_owned(), ..node("od-1") };
    assert_eq!(created(&known, std::slice::from_ref(&reused), &[]), Some("od-1"));
    assert_eq!(created(&known, &[reused], &[("od-1", Class::Spot)]), None, "a spot node under the old name");
}

#[test]
fn an_empty_provider_id_equals_nothing() {
    let without = |name| NodeSnapshot { provider_id: String::new(), ..node(name) };
    let known = KnownNodes::of(&[without("od-1")]);
    assert_eq!(created(&known, &[without("od-1"), without("od-4")], &[]), Some("od-4"));
    assert_eq!(created(&known, &[without("od-1")], &[]), None);
}

#[test]
fn only_a_new_on_demand_node_outside_the_control_plane_is_created_and_the_oldest_is_named() {
    let known = KnownNodes::of(&[node("od-1")]);
    let control_plane = labelled(node("cp-2"), key::CONTROL_PLANE, "");
    for class in Class::ALL {
        let list = [control_plane.clone(), node("x")];
        let found = created(&known, &list, &[("x", class)]);
        assert_eq!(found, (class == Class::OnDemand).then_some("x"), "{class}");
    }
    let late = NodeSnapshot { created_at: noon(), ..node("a-late") };
    assert_eq!(created(&known, &[late.clone(), node("z-early")], &[]), Some("z-early"));
    assert_eq!(created(&known, &[node("z-early"), late], &[]), Some("z-early"));
}

#[test]
fn a_node_stays_unknown_until_its_class_is_told() {
    let mut known = KnownNodes::of(&[node("od-1")]);
    let list = [node("od-1"), node("x")];
    let untold = [("x", Class::Unknown)];
    let unclassified = |known: &KnownNodes, classes: &[(&str, Class)]| {
        known.unclassified(&list, |node| class_in(classes, node)).map(|node| node.name.to_string())
    };
    assert_eq!(unclassified(&known, &untold).as_deref(), Some("x"));
    known.learn(&list, |node| class_in(&untold, node));
    assert_eq!(unclassified(&known, &untold).as_deref(), Some("x"), "learning does not make it known");
    assert_eq!(created(&known, &list, &[]), Some("x"), "it turns out to be on-demand");

    known.learn(&list, |node| class_in(&[("x", Class::Spot)], node));
    assert_eq!(unclassified(&known, &untold), None);
    assert_eq!(created(&known, &list, &[]), None, "it was classified once");
    assert_eq!(KnownNodes::of(&list), known, "the first view is known whatever its class");
}

/// The policy as six passes over the list, each for one kind of node.
fn by_six_passes<'n>(nodes: &'n [NodeSnapshot], own: Option<&str>) -> Option<&'n NodeSnapshot> {
    let has_taint = |node: &NodeSnapshot, key: &str, effect: &str| {
        node.taints.iter().any(|taint| format!("{}:{}", taint.key, taint.effect.as_str()) == format!("{key}:{effect}"))
    };
    for pass in 1..=6 {
        let mut best: Option<&NodeSnapshot> = None;
        for node in nodes {
            let fits = match pass {
                1 => node.labels.iter().any(|(key, value)| {
                    value == "true"
                        && (key == "spot-migrator.io/selected-for-deletion"
                            || key == "cost-manager.io/selected-for-deletion")
                }),
                2 => node.unschedulable,
                3 => has_taint(node, "ToBeDeletedByClusterAutoscaler", "NoSchedule"),
                4 => has_taint(node, "DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"),
                5 => own.is_none_or(|own| *node.name != *own),
                _ => true,
            };
            let better = best.is_none_or(|best| {
                node.created_at < best.created_at
                    || (node.created_at == best.created_at && node.uid.as_str() < best.uid.as_str())
            });
            if fits && better {
                best = Some(node);
            }
        }
        if best.is_some() {
            return best;
        }
    }
    None
}

#[test]
fn the_generated_nodes_reach_every_preference_and_every_one_is_chosen() {
    let mut seen: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for list in samples(nodes(1..6), 2_000) {
        for node in &list {
            seen.entry(Preference::of(node, Some(OWN_NODE)).as_str()).or_default().0 += 1;
        }
        let chosen = select_node_for_deletion(&list, Some(OWN_NODE)).unwrap();
        seen.entry(Preference::of(chosen, Some(OWN_NODE)).as_str()).or_default().1 += 1;
    }
    for preference in Preference::ALL {
        let (generated, chosen) = seen.get(preference.as_str()).copied().unwrap_or_default();
        // The own node goes last: it is chosen only where it is alone, or the others are no better.
        let often = if preference == Preference::HostsMigrator { 0 } else { 50 };
        assert!(generated >= 100 && chosen >= often, "{preference:?}: {generated} generated, {chosen} chosen");
    }
}

/// Nodes of few UIDs and machines, by which they meet again; the class goes with them.
fn registrations() -> impl Strategy<Value = Vec<(NodeSnapshot, Class)>> {
    let machines = select(vec!["", "aws:///z/i-1", "aws:///z/i-2", "aws:///z/i-3"]);
    let one = (0_u8..6, machines, select(Class::ALL.to_vec()), any::<bool>(), 0_u64..3);
    prop::collection::vec(one, 0..6).prop_map(|list| {
        let mut seen = BTreeSet::new();
        let unique = list.into_iter().filter(|(id, ..)| seen.insert(*id)).collect::<Vec<_>>();
        let build = |(id, machine, class, control_plane, age): (u8, &str, Class, bool, u64)| {
            let plain = node(&format!("n-{id}"));
            let created_at = plain.created_at + secs(age);
            let plain = NodeSnapshot { provider_id: machine.to_owned(), created_at, ..plain };
            let node = if control_plane { labelled(plain, key::CONTROL_PLANE, "") } else { plain };
            (node, class)
        };
        unique.into_iter().map(build).collect()
    })
}

fn only_nodes(list: &[(NodeSnapshot, Class)]) -> Vec<NodeSnapshot> {
    list.iter().map(|(node, _)| node.clone()).collect()
}

fn class_of(list: &[(NodeSnapshot, Class)]) -> impl Fn(&NodeSnapshot) -> Class {
    |node| list.iter().find(|(other, _)| other.uid == node.uid).unwrap().1
}

proptest! {
    #![proptest_config(config(512))]

    #[test]
    fn the_choice_is_that_of_six_passes_over_the_list(list in nodes(0..8), own in any::<bool>()) {
        let own = own.then_some(OWN_NODE);
        prop_assert_eq!(select_node_for_deletion(&list, own), by_six_passes(&list, own));
    }

    #[test]
    fn the_choice_does_not_depend_on_the_order_of_the_list((list, shuffled) in in_two_orders(nodes(0..8))) {
        prop_assert_eq!(
            select_node_for_deletion(&list, Some(OWN_NODE)),
            select_node_for_deletion(&shuffled, Some(OWN_NODE))
        );
    }

    #[test]
    fn removal_is_never_creation(before in registrations(), kept in any::<u8>()) {
        let nodes = only_nodes(&before);
        let known = KnownNodes::of(&nodes);
        let left: Vec<_> =
            nodes.iter().enumerate().filter(|(at, _)| kept & (1 << at) != 0).map(|(_, node)| node.clone()).collect();
        prop_assert_eq!(known.created(&left, class_of(&before)), None);
        prop_assert_eq!(known.unclassified(&left, class_of(&before)), None);
    }

    #[test]
    fn a_node_is_new_exactly_if_neither_its_uid_nor_its_machine_was_seen_with_a_class(
        first in registrations(),
        second in registrations(),
        third in registrations(),
    ) {
        let mut known = KnownNodes::of(&only_nodes(&first));
        known.learn(&only_nodes(&second), class_of(&second));

        // The order of learning counts: what is known by its UID teaches no other machine.
        let mut uids: Vec<&Uid> = first.iter().map(|(node, _)| &node.uid).collect();
        let mut machines: Vec<&str> = first.iter().map(|(node, _)| node.provider_id.as_str()).collect();
        for (node, class) in &second {
            if *class != Class::Unknown && !uids.contains(&&node.uid) {
                uids.push(&node.uid);
                machines.push(&node.provider_id);
            }
        }
        let oldest_stranger = |wanted: Class| {
            let mut oldest: Option<&NodeSnapshot> = None;
            for (node, class) in &third {
                let seen = uids.contains(&&node.uid)
                    || (!node.provider_id.is_empty() && machines.contains(&node.provider_id.as_str()));
                let control_plane = node.labels.contains_key("node-role.kubernetes.io/control-plane");
                if *class == wanted && !seen && !control_plane {
                    let older = oldest.is_none_or(|best| (node.created_at, &node.uid) < (best.created_at, &best.uid));
                    oldest = if older { Some(node) } else { oldest };
                }
            }
            oldest
        };
        let nodes = only_nodes(&third);
        prop_assert_eq!(known.created(&nodes, class_of(&third)), oldest_stranger(Class::OnDemand));
        prop_assert_eq!(known.unclassified(&nodes, class_of(&third)), oldest_stranger(Class::Unknown));
    }
}
