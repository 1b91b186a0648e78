//! Whether spot could run a pod: its demands against nodes and shapes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use spot_core::NodeSnapshot;
use spot_core::capacity::Class;
use spot_core::memory::Memory;
use spot_core::node::{Effect, Taint, key};
use spot_core::placement::{Demand, MOST_SHAPES, Needs, Shape, Term, Terms, Toleration};
use spot_core::pod::PodSnapshot;
use spot_core::reason::{Reason, ReasonKind};
use spot_core::selector::{Operator, Requirement};

use crate::support::build::{labelled, node, pod, pod_ref, secs, uid};
use crate::support::config;
use crate::support::scene::{Scene, Turn};

const ZONE: &str = "topology.kubernetes.io/zone";

fn label(key: &str, operator: Operator, values: &[&str]) -> Demand {
    Demand::Label(Requirement::new(key, operator, values.iter().copied()))
}

fn affine(terms: &[&[Demand]]) -> Option<Needs> {
    let terms = terms.iter().map(|demands| Term::new(demands.iter().cloned()));
    Needs::new([], Some(Terms::new(terms)), [])
}

fn selects(key: &str, value: &str) -> Option<Needs> {
    Needs::new([Requirement::equals(key, value)], None, [])
}

fn tolerates(key: Option<&str>, value: Option<&str>, effect: Option<Effect>) -> Option<Needs> {
    let toleration = Toleration { key: key.map(str::to_owned), value: value.map(str::to_owned), effect };
    Needs::new([], None, [toleration])
}

fn needing(needs: Option<Needs>) -> PodSnapshot {
    PodSnapshot { needs: needs.map(Arc::new), ..pod("web-1", "web", "od-1") }
}

/// A spot node of zone `a` with eight cores.
fn sp() -> NodeSnapshot {
    labelled(labelled(node("sp-9"), ZONE, "a"), "cores", "8")
}

fn tainted(node: NodeSnapshot, key: &str, effect: Effect) -> NodeSnapshot {
    NodeSnapshot { taints: vec![Taint::new(key, "yes", effect)], ..node }
}

/// One on-demand node, and this spot node.
fn scene(spot: NodeSnapshot) -> Scene {
    let mut scene = Scene::empty();
    scene.put(node("od-1"), Class::OnDemand);
    scene.put(spot, Class::Spot);
    scene
}

type Case = (&'static str, NodeSnapshot, Option<Needs>, bool);

fn cases() -> Vec<Case> {
    use Operator::{DoesNotExist, Exists, In, NotIn};
    let pool = || tainted(sp(), "spot", Effect::NoSchedule);
    let name = |operator, value: &str| Demand::Name(Requirement::new("metadata.name", operator, [value]));
    vec![
        ("it demands nothing", sp(), None, true),
        ("its selector matches", sp(), selects(ZONE, "a"), true),
        ("its selector wants another value", sp(), selects(ZONE, "b"), false),
        ("its selector wants another label", sp(), selects("disk", "ssd"), false),
        ("In holds the value", sp(), affine(&[&[label(ZONE, In, &["b", "a"])]]), true),
        ("In lacks it", sp(), affine(&[&[label(ZONE, In, &["b", "c"])]]), false),
        ("NotIn holds the value", sp(), affine(&[&[label(ZONE, NotIn, &["a"])]]), false),
        ("NotIn of an absent label", sp(), affine(&[&[label("disk", NotIn, &["hdd"])]]), true),
        ("Exists, and it does", sp(), affine(&[&[label(ZONE, Exists, &[])]]), true),
        ("Exists, and it does not", sp(), affine(&[&[label("disk", Exists, &[])]]), false),
        ("DoesNotExist, but it does", sp(), affine(&[&[label(ZONE, DoesNotExist, &[])]]), false),
        ("DoesNotExist, and it does not", sp(), affine(&[&[label("disk", DoesNotExist, &[])]]), true),
        ("Gt, and it is", sp(), affine(&[&[Demand::Above("cores".to_owned(), 7)]]), true),
        ("Gt, and it is equal", sp(), affine(&[&[Demand::Above("cores".to_owned(), 8)]]), false),
        ("Lt, and it is", sp(), affine(&[&[Demand::Below("cores".to_owned(), 9)]]), true),
        ("Lt, and it is equal", sp(), affine(&[&[Demand::Below("cores".to_owned(), 8)]]), false),
        ("Lt of what is no number", sp(), affine(&[&[Demand::Below(ZONE.to_owned(), 9)]]), false),
        ("Gt of an absent label", sp(), affine(&[&[Demand::Above("disk".to_owned(), -9)]]), false),
        ("the name is this one", sp(), affine(&[&[name(In, "sp-9")]]), true),
        ("the name is another", sp(), affine(&[&[name(In, "od-1")]]), false),
        ("any name but this one", sp(), affine(&[&[name(NotIn, "sp-9")]]), false),
        ("one of two terms holds", sp(), affine(&[&[label(ZONE, In, &["b"])], &[label(ZONE, In, &["a"])]]), true),
        ("half of a term holds", sp(), affine(&[&[label(ZONE, In, &["a"]), label("disk", Exists, &[])]]), false),
        ("a term is empty", sp(), affine(&[&[]]), false),
        ("there are no terms", sp(), affine(&[]), false),
        ("we do not understand it", sp(), affine(&[&[Demand::Unknown]]), true),
        ("the pool is tainted", pool(), None, false),
        ("the pool repels running pods", tainted(sp(), "spot", Effect::NoExecute), None, false),
        ("the pool only asks", tainted(sp(), "spot", Effect::PreferNoSchedule), None, true),
        ("it tolerates the key", pool(), tolerates(Some("spot"), None, None), true),
        ("it tolerates another key", pool(), tolerates(Some("gpu"), None, None), false),
        ("it tolerates everything", pool(), tolerates(None, None, None), true),
        ("it tolerates the value", pool(), tolerates(Some("spot"), Some("yes"), None), true),
        ("it tolerates another value", pool(), tolerates(Some("spot"), Some("no"), None), false),
        ("it tolerates the effect", pool(), tolerates(Some("spot"), None, Some(Effect::NoSchedule)), true),
        ("it tolerates another effect", pool(), tolerates(Some("spot"), None, Some(Effect::NoExecute)), false),
        ("the node is cordoned", tainted(sp(), "node.kubernetes.io/unschedulable", Effect::NoSchedule), None, true),
        ("the node is not ready", tainted(sp(), "node.kubernetes.io/not-ready", Effect::NoExecute), None, true),
        ("the node is leaving", tainted(sp(), key::LEAVING, Effect::NoSchedule), None, true),
        ("the node is being deleted", tainted(sp(), key::TO_BE_DELETED, Effect::NoSchedule), None, true),
        ("its agent is not there yet", tainted(sp(), "ebs.csi.aws.com/agent-not-ready", Effect::NoExecute), None, true),
    ]
}

#[test]
fn a_pod_that_no_spot_node_could_take_refuses_its_node() {
    for (what, spot, needs, fits) in cases() {
        let mut scene = scene(spot);
        scene.pod(needing(needs));
        let expected = if fits { Vec::new() } else { vec![Reason::NoSpotPlacement(pod_ref("web-1"))] };
        assert_eq!(scene.reasons("od-1"), expected, "{what}");
    }
}

#[test]
fn a_shape_that_was_seen_lately_is_as_good_as_a_node() {
    for (what, spot, needs, fits) in cases() {
        // Names are not remembered: nobody bears them any more.
        let fits = fits && what != "the name is this one" || what == "any name but this one";
        let mut scene = Scene::empty();
        scene.put(node("od-1"), Class::OnDemand);
        scene.put(node("od-2"), Class::OnDemand);
        scene.memory.shapes = vec![Shape::of(&spot, spot.labels.iter())];
        scene.pod(needing(needs));
        assert_eq!(scene.kinds("od-1").is_empty(), fits, "{what}");
    }
}

#[test]
fn rb_14_where_no_spot_node_was_ever_seen_placement_is_unknown_and_refuses_nothing() {
    for (what, spot, needs, _) in cases() {
        let mut scene = scene(spot);
        scene.fact("sp-9").class = Class::Reserved;
        scene.put(node("od-2"), Class::OnDemand);
        scene.pod(needing(needs));
        assert_eq!(scene.reasons("od-1"), [], "{what}");
    }
}

#[test]
fn one_spot_node_that_fits_among_many_is_enough() {
    let mut scene = scene(node("sp-1"));
    scene.put(sp(), Class::Spot);
    scene.put(tainted(node("sp-2"), "gpu", Effect::NoSchedule), Class::Spot);
    scene.pod(needing(selects(ZONE, "a")));
    assert_eq!(scene.reasons("od-1"), []);
    // a selector met by one and a taint of another are not met together
    let mut scene = self::scene(tainted(sp(), "gpu", Effect::NoSchedule));
    scene.put(labelled(node("sp-1"), ZONE, "b"), Class::Spot);
    scene.pod(needing(selects(ZONE, "a")));
    assert_eq!(scene.kinds("od-1"), [ReasonKind::NoSpotPlacement]);
}

#[test]
fn only_pods_that_are_to_be_moved_count() {
    let bound = || needing(selects(ZONE, "b"));
    for (what, pod) in [
        (
            "a DaemonSet's",
            PodSnapshot { controller: crate::support::build::daemon_pod("d", "d", "x").controller, ..bound() },
        ),
        ("a mirror pod", PodSnapshot { mirror: true, ..bound() }),
        ("one that has ended", PodSnapshot { phase: spot_core::pod::PodPhase::Succeeded, ..bound() }),
        ("one that is going", PodSnapshot { deletion: Some(crate::support::build::noon()), ..bound() }),
        ("one on another node", PodSnapshot { node: Some("sp-9".into()), ..bound() }),
    ] {
        let mut scene = scene(sp());
        scene.view.apply(spot_core::view::Change::DaemonSet(uid("d")));
        scene.pod(pod);
        assert_eq!(scene.reasons("od-1"), [], "{what}");
    }
}

#[test]
fn the_migrators_own_pod_has_to_fit_too() {
    let mut scene = scene(sp());
    scene.policy.own_pod = Some(uid("web-1"));
    scene.pod(needing(selects(ZONE, "b")));
    assert_eq!(scene.kinds("od-1"), [ReasonKind::NoSpotPlacement]);
}

#[test]
fn tolerations_that_say_nothing_of_a_pool_are_not_kept() {
    assert_eq!(tolerates(Some("node.kubernetes.io/not-ready"), None, Some(Effect::NoExecute)), None);
    assert_eq!(tolerates(Some("spot"), None, Some(Effect::PreferNoSchedule)), None);
    assert_eq!(tolerates(Some(key::LEAVING), None, None), None);
    assert!(tolerates(Some("spot"), None, Some(Effect::NoExecute)).is_some());
    assert!(tolerates(None, None, None).is_some());
}

#[test]
fn terms_bind_to_a_host_if_each_of_them_names_one() {
    use Operator::{In, NotIn};
    let host = || label("kubernetes.io/hostname", In, &["od-1"]);
    let name = |operator| Demand::Name(Requirement::new("metadata.name", operator, ["od-1"]));
    let zone = || label(ZONE, In, &["a"]);
    let cases: [(&[&[Demand]], bool); 8] = [
        (&[&[host()]], true),
        (&[&[zone(), host()]], true),
        (&[&[host()], &[name(In)]], true),
        (&[&[host()], &[zone()]], false),
        (&[&[zone()]], false),
        (&[&[label("kubernetes.io/hostname", NotIn, &["od-1"])]], false),
        (&[&[name(NotIn)]], false),
        (&[], false),
    ];
    for (terms, expected) in cases {
        let terms = Terms::new(terms.iter().map(|demands| Term::new(demands.iter().cloned())));
        assert_eq!(terms.bind_to_a_host(), expected, "{terms:?}");
    }
}

#[test]
fn a_lasting_reason_is_named_before_a_budget_that_may_pass() {
    let mut scene = scene(sp());
    scene.budget(crate::support::build::budget("web", 0));
    scene.pod(needing(selects(ZONE, "b")));
    assert_eq!(scene.kinds("od-1"), [ReasonKind::NoSpotPlacement]);
    assert_eq!(scene.turn(), Turn::Nobody(BTreeMap::from([(ReasonKind::NoSpotPlacement, 1)])));
}

#[test]
fn a_grace_period_that_no_drain_could_wait_for_refuses() {
    let graceful = |seconds| PodSnapshot { grace: secs(seconds), ..pod("web-1", "web", "od-1") };
    for (what, timeout, own, of_all, refused) in [
        ("as long as the drain", Some(600), 600, None, None),
        ("longer", Some(600), 601, None, Some(601)),
        ("overridden by a shorter one", Some(600), 601, Some(30), None),
        ("overridden by a longer one", Some(600), 30, Some(700), Some(700)),
        ("no limit is known", None, 90_000, None, None),
    ] {
        let mut scene = scene(sp());
        scene.policy.drain_timeout = timeout.map(secs);
        scene.policy.drain.pod_grace = of_all.map(secs);
        scene.pod(graceful(own));
        let expected: Vec<_> =
            refused.into_iter().map(|grace| Reason::GraceExceedsTimeout(pod_ref("web-1"), secs(grace))).collect();
        assert_eq!(scene.reasons("od-1"), expected, "{what}");
    }
}

#[test]
fn a_shape_is_what_nodes_of_a_pool_have_in_common() {
    let of = |name: &str| {
        let mut node = labelled(labelled(node(name), ZONE, "a"), "kubernetes.io/hostname", name);
        node = labelled(labelled(node, "example.com/instance", &format!("i-{name}")), key::SELECTED, "true");
        node = labelled(labelled(node, "example.com/called", name), "alpha.eksctl.io/instance-id", name);
        node.taints = vec![
            Taint::new("spot", "yes", Effect::NoSchedule),
            Taint::new("node.kubernetes.io/not-ready", name, Effect::NoSchedule),
            Taint::new(key::LEAVING, name, Effect::PreferNoSchedule),
        ];
        Shape::of(&node, node.labels.iter())
    };
    assert_eq!(of("sp-1"), of("sp-2"));
    let expected =
        Shape::new([(ZONE.to_owned(), "a".to_owned())], [("spot".to_owned(), "yes".to_owned(), Effect::NoSchedule)]);
    assert_eq!(of("sp-1"), expected);
}

fn shape(number: usize) -> Shape {
    Shape::new([("number".to_owned(), format!("{number:04}"))], [])
}

#[test]
fn a_shape_too_large_for_the_memory_is_not_remembered() {
    let huge = Shape::new((0..1_000).map(|number| (format!("label-{number}"), "x".repeat(60))), []);
    let memory = Memory::default().with_shapes(&BTreeSet::from([huge, shape(1)]));
    assert_eq!(memory.shapes, [shape(1)]);
}

proptest! {
    #![proptest_config(config(256))]

    /// Bounded, without doubles, nothing that is there is forgotten while it fits, and once all is known nothing
    /// changes any more.
    #[test]
    fn shapes_are_remembered_up_to_a_bound_and_the_oldest_go_first(
        runs in prop::collection::vec(prop::collection::btree_set(0..60_usize, 0..40), 1..8),
    ) {
        let mut memory = Memory::default();
        for present in runs {
            let present: BTreeSet<Shape> = present.into_iter().map(shape).collect();
            let before = memory.clone();
            memory = memory.with_shapes(&present);
            prop_assert!(memory.shapes.len() <= MOST_SHAPES);
            prop_assert_eq!(memory.shapes.iter().collect::<BTreeSet<_>>().len(), memory.shapes.len());
            let kept = present.iter().filter(|shape| memory.shapes.contains(shape)).count();
            prop_assert_eq!(kept, present.len().min(MOST_SHAPES));
            prop_assert_eq!(&memory.with_shapes(&present), &memory, "the second time changes nothing");
            // Whoever went was older than whoever stayed.
            let stayed: Vec<_> = before.shapes.iter().filter(|shape| !present.contains(shape)).collect();
            let first = stayed.iter().position(|shape| memory.shapes.contains(shape)).unwrap_or(stayed.len());
            prop_assert!(stayed[first..].iter().all(|shape| memory.shapes.contains(shape)));
        }
    }

    /// The judgement, which looks each demand up once, says what asking node by node says.
    #[test]
    fn the_judgement_agrees_with_asking_each_spot_node(
        zones in prop::collection::vec(select(vec!["a", "b", "c"]), 0..4),
        dedicated in prop::collection::vec(any::<bool>(), 4),
        pods in prop::collection::vec(
            (prop::option::of(select(vec!["a", "b", "c", "d"])), any::<bool>(), any::<bool>()), 1..8),
        remembered in prop::option::of(select(vec!["a", "d"])),
    ) {
        let mut scene = Scene::empty();
        scene.put(node("od-1"), Class::OnDemand);
        scene.put(node("od-2"), Class::OnDemand);
        let mut places: Vec<(String, bool)> = Vec::new();
        for (at, zone) in zones.iter().enumerate() {
            let spot = labelled(node(&format!("sp-{at}")), ZONE, zone);
            let spot = if dedicated[at] { tainted(spot, "spot", Effect::NoSchedule) } else { spot };
            scene.put(spot, Class::Spot);
            places.push(((*zone).to_owned(), dedicated[at]));
        }
        if let Some(zone) = remembered {
            scene.memory.shapes = vec![Shape::new([(ZONE.to_owned(), zone.to_owned())], [])];
            places.push((zone.to_owned(), false));
        }
        let mut homeless = BTreeSet::new();
        let mut shared: BTreeMap<_, Option<Arc<Needs>>> = BTreeMap::new();
        for (at, (zone, tolerant, interned)) in pods.into_iter().enumerate() {
            let name = format!("web-{at}");
            let build = || {
                let selector = zone.map(|zone| Requirement::equals(ZONE, zone));
                let toleration = Toleration { key: Some("spot".to_owned()), value: None, effect: None };
                Needs::new(selector, None, tolerant.then_some(toleration)).map(Arc::new)
            };
            let needs = if interned { shared.entry((zone, tolerant)).or_insert_with(build).clone() } else { build() };
            scene.pod(PodSnapshot { needs, ..pod(&name, "web", "od-1") });
            let fits = |(there, tainted): &(String, bool)| zone.is_none_or(|zone| zone == there) && (tolerant || !tainted);
            if !places.is_empty() && !places.iter().any(fits) {
                homeless.insert(Reason::NoSpotPlacement(pod_ref(&name)).to_string());
            }
        }
        let said: BTreeSet<_> = scene.reasons("od-1").iter().map(ToString::to_string).collect();
        prop_assert_eq!(said, homeless);
    }
}
