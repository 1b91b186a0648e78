//! Volumes: where they let pods go, and what is still attached.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use spot_core::capacity::Class;
use spot_core::placement::{Demand, Needs, Term, Terms, Toleration};
use spot_core::pod::PodSnapshot;
use spot_core::reason::{Reason, ReasonKind};
use spot_core::selector::{Operator, Requirement};
use spot_core::view::{Change, View};
use spot_core::volume::{
    AttachmentSnapshot, PodClaim, Reach, VolumeChange, VolumeClaimRef, VolumeClaimSnapshot, VolumeSnapshot,
};

use crate::support::build::{SHOP, daemon_pod, labelled, node, pod, pod_ref, uid};
use crate::support::config;
use crate::support::scene::Scene;

const ZONE: &str = "topology.kubernetes.io/zone";

fn zone(zone: &str) -> Reach {
    let demand = Demand::Label(Requirement::new(ZONE, Operator::In, [zone]));
    Reach::Nodes(Arc::new(Terms::new([Term::new([demand])])))
}

fn claimed(claim: &str, volume: Option<&str>) -> Change {
    let claim = VolumeClaimRef { namespace: SHOP.into(), name: claim.into() };
    Change::Volume(VolumeChange::Claim(Arc::new(VolumeClaimSnapshot { claim, volume: volume.map(Into::into) })))
}

fn volume(name: &str, reach: Reach) -> Change {
    Change::Volume(VolumeChange::Volume(Arc::new(VolumeSnapshot { name: name.into(), reach })))
}

fn attached(name: &str, node: &str, volume: Option<&str>) -> Change {
    let volume = volume.map(Into::into);
    let attachment = AttachmentSnapshot { name: name.into(), node: node.into(), volume };
    Change::Volume(VolumeChange::Attached(Arc::new(attachment)))
}

fn with_claims(pod: PodSnapshot, claims: &[&str]) -> PodSnapshot {
    let claims = claims.iter().map(|name| PodClaim { name: (*name).into(), ephemeral: false }).collect();
    PodSnapshot { claims: Some(claims), ..pod }
}

/// An on-demand node with a pod that has these claims, and spot nodes in zones `a` and `b`.
fn scene(claims: &[&str]) -> Scene {
    let mut scene = Scene::empty();
    scene.put(node("od-1"), Class::OnDemand);
    scene.put(labelled(node("sp-1"), ZONE, "a"), Class::Spot);
    scene.put(labelled(node("sp-2"), ZONE, "b"), Class::Spot);
    scene.pod(with_claims(pod("db-0", "db", "od-1"), claims));
    scene
}

#[test]
fn rb_42_a_volume_binds_its_pod_to_where_it_can_be_used() {
    let local = || Some(Reason::LocalVolume(pod_ref("db-0"), "pv-1".into()));
    let nowhere = || Some(Reason::NoSpotPlacement(pod_ref("db-0")));
    for (what, first, second, expected) in [
        ("anywhere", Reach::Anywhere, None, None),
        ("a zone with spot", zone("b"), None, None),
        ("a zone without", zone("c"), None, nowhere()),
        ("the disk of this host", Reach::Host, None, local()),
        ("two in one zone", zone("a"), Some(zone("a")), None),
        ("two in two zones with spot", zone("a"), Some(zone("b")), nowhere()),
        ("one of two without spot", zone("a"), Some(zone("c")), nowhere()),
        ("one of two on this host", Reach::Host, Some(zone("c")), local()),
    ] {
        let mut scene = scene(&["data", "log"]);
        scene.view.apply(claimed("data", Some("pv-1")));
        scene.view.apply(volume("pv-1", first));
        if let Some(second) = second {
            scene.view.apply(claimed("log", Some("pv-2")));
            scene.view.apply(volume("pv-2", second));
        }
        assert_eq!(scene.reasons("od-1"), expected.into_iter().collect::<Vec<_>>(), "{what}");
    }
}

/// What one pod was told must not be told to the next, whose volume is elsewhere.
#[test]
fn pods_of_one_kind_are_told_apart_by_their_volumes() {
    let needs = Needs::new([], None, [Toleration { key: Some("gpu".to_owned()), value: None, effect: None }]);
    let needs = needs.map(Arc::new);
    for needs in [None, needs] {
        for (first, second) in [("b", "c"), ("c", "b"), ("c", "c"), ("b", "b")] {
            let mut scene = scene(&[]);
            let mut expected = Vec::new();
            for (at, zoned) in [first, second].into_iter().enumerate() {
                let (name, claim, pv) = (format!("db-{at}"), format!("data-{at}"), format!("pv-{at}"));
                scene.view.apply(claimed(&claim, Some(&pv)));
                scene.view.apply(volume(&pv, zone(zoned)));
                let needs = needs.clone();
                scene.pod(with_claims(PodSnapshot { needs, ..pod(&name, "db", "od-1") }, &[&claim]));
                expected.extend((zoned == "c").then(|| Reason::NoSpotPlacement(pod_ref(&name))));
            }
            scene.pod(pod("web-1", "web", "od-1"));
            assert_eq!(scene.reasons("od-1"), expected, "{first} and {second}");
        }
    }
}

#[test]
fn a_volume_on_this_host_refuses_even_where_no_spot_node_is_known() {
    let mut scene = scene(&["data"]);
    scene.nodes.retain(|node| &*node.name == "od-1");
    scene.put(node("od-2"), Class::OnDemand);
    scene.view.apply(claimed("data", Some("pv-1")));
    scene.view.apply(volume("pv-1", Reach::Host));
    assert_eq!(scene.kinds("od-1"), [ReasonKind::LocalVolume]);
    scene.view.apply(volume("pv-1", zone("c")));
    assert_eq!(scene.kinds("od-1"), [], "a zone without spot is unknown then");
}

#[test]
fn what_is_unknown_of_a_volume_refuses_nothing() {
    let mut scene = scene(&["data"]);
    assert_eq!(scene.reasons("od-1"), [], "no claim of that name");
    scene.view.apply(claimed("data", None));
    assert_eq!(scene.reasons("od-1"), [], "a claim without a volume");
    scene.view.apply(claimed("data", Some("pv-1")));
    assert_eq!(scene.reasons("od-1"), [], "a volume that is not there");
    scene.view.apply(volume("pv-1", Reach::Host));
    assert_eq!(scene.kinds("od-1"), [ReasonKind::LocalVolume]);
    scene.view.apply(Change::Volume(VolumeChange::VolumeGone("pv-1".into())));
    assert_eq!(scene.reasons("od-1"), [], "the volume went");
    scene.view.apply(volume("pv-1", Reach::Host));
    let claim = VolumeClaimRef { namespace: SHOP.into(), name: "data".into() };
    scene.view.apply(Change::Volume(VolumeChange::ClaimGone(claim)));
    assert_eq!(scene.reasons("od-1"), [], "the claim went");
    // the same name in another namespace is another claim
    let claim = VolumeClaimRef { namespace: "elsewhere".into(), name: "data".into() };
    let snapshot = VolumeClaimSnapshot { claim, volume: Some("pv-1".into()) };
    scene.view.apply(Change::Volume(VolumeChange::Claim(Arc::new(snapshot))));
    assert_eq!(scene.reasons("od-1"), []);
}

#[test]
fn a_claim_that_is_made_anew_with_each_pod_binds_nobody() {
    let mut scene = scene(&[]);
    let ephemeral = PodClaim { name: "scratch".into(), ephemeral: true };
    scene.pod(PodSnapshot { claims: Some([ephemeral].into()), ..pod("db-0", "db", "od-1") });
    scene.view.apply(claimed("scratch", Some("pv-1")));
    for reach in [Reach::Host, zone("c")] {
        scene.view.apply(volume("pv-1", reach));
        assert_eq!(scene.reasons("od-1"), []);
    }
}

fn detaching(view: &View, node: &str) -> Vec<String> {
    view.detaching_from(node).map(|attachment| attachment.name.to_string()).collect()
}

#[test]
fn rb_42_volumes_of_pods_that_are_still_there_are_not_waited_for() {
    let mut view = View::default();
    view.apply(Change::DaemonSet(uid("agent")));
    view.apply(Change::Pod(Arc::new(with_claims(daemon_pod("agent-1", "agent", "od-1"), &["cache"]))));
    let db = Arc::new(with_claims(pod("db-0", "db", "od-1"), &["data"]));
    view.apply(Change::Pod(Arc::clone(&db)));
    view.apply(claimed("cache", Some("pv-cache")));
    view.apply(claimed("data", Some("pv-data")));
    view.apply(attached("a-cache", "od-1", Some("pv-cache")));
    view.apply(attached("a-data", "od-1", Some("pv-data")));
    view.apply(attached("a-inline", "od-1", None));
    view.apply(attached("a-other", "od-2", Some("pv-other")));
    assert_eq!(detaching(&view, "od-1"), [""; 0], "all of them are in use");
    view.apply(Change::PodGone(db));
    assert_eq!(detaching(&view, "od-1"), ["a-data"], "not the DaemonSet's, nor another node's");
    view.apply(Change::Volume(VolumeChange::Detached("a-data".into())));
    assert_eq!(detaching(&view, "od-1"), [""; 0]);
    assert_eq!(detaching(&view, "od-2"), ["a-other"]);
}

proptest! {
    #![proptest_config(config(256))]

    /// Attachments come, move and go in any order, some of it twice: the view shows what a plain map does.
    #[test]
    fn attachments_are_found_by_node_whatever_happens(
        steps in prop::collection::vec(
            (select(vec!["x", "y", "z"]), prop::option::of(select(vec!["od-1", "od-2"]))), 0..20),
    ) {
        let mut view = View::default();
        let mut plain: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, node) in steps {
            if let Some(node) = node {
                view.apply(attached(name, node, Some(name)));
                plain.insert(name, node);
            } else {
                view.apply(Change::Volume(VolumeChange::Detached(name.into())));
                plain.remove(name);
            }
            for node in ["od-1", "od-2"] {
                let expected: Vec<_> = plain.iter().filter(|(_, on)| **on == node).map(|(name, _)| *name).collect();
                prop_assert_eq!(detaching(&view, node), expected);
            }
        }
    }
}
