//! Whether a migration went as one without faults does, by what the API server was asked for and what came of it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use spot_tests::{Entry, Verb, World, proxy::Request};

use crate::{
    scene::{Migration, SPOT},
    step::{CLAIM, Call, Step, TO_BE_DELETED},
};

/// The keys of what the product puts on nodes.
const OURS: &str = "spot-migrator.io/";

/// Fails the test unless both nodes went in order, each once and empty, and nothing is left of it.
///
/// # Panics
/// If so.
pub(crate) async fn judge(world: &World, migration: &Migration) {
    the_end_is_the_same(world, migration).await;
    each_node_went_once(migration);
    each_pod_was_evicted_once(migration);
    the_order_was_kept(migration);
    every_node_was_empty(migration);
    every_cordon_was_claimed(migration);
    the_proxy_passed_on_what_it_saw(migration);
}

async fn the_end_is_the_same(world: &World, migration: &Migration) {
    let nodes = world.nodes().await;
    assert_eq!(nodes.keys().collect::<Vec<_>>(), [SPOT]);
    let spot = &nodes[SPOT];
    let spec = spot.spec.as_ref().expect("a Node has a spec");
    let taints: Vec<_> = spec.taints.iter().flatten().collect();
    let marks: Vec<_> =
        spot.labels().keys().chain(spot.annotations().keys()).filter(|key| key.starts_with(OURS)).collect();
    assert!(!is_cordoned(spot) && taints.is_empty() && marks.is_empty(), "{SPOT} has {taints:?} and {marks:?}");
    let pods = world.pods(&migration.workload).await;
    assert!(pods.iter().all(|pod| host(pod) == SPOT), "not all pods are on {SPOT}");
    migration.witness.assert_budget_kept(&migration.workload);
    assert!(migration.witness.most_cordoned() <= 1, "one node at a time");
}

fn each_node_went_once(migration: &Migration) {
    let deleted: Vec<_> = migration.accepted(Step::Delete).map(|entry| (entry.name.clone(), uid(entry))).collect();
    let unique: BTreeMap<_, _> = deleted.iter().cloned().collect();
    assert_eq!(unique, migration.nodes, "exactly these were deleted, by UID");
    assert_eq!(deleted.len(), unique.len(), "each was deleted once: {deleted:?}");
    let gone: BTreeSet<_> = migration.witness.gone().into_iter().collect();
    assert_eq!(gone, migration.nodes.keys().cloned().collect(), "nobody else deleted one");
}

fn each_pod_was_evicted_once(migration: &Migration) {
    let evicted: Vec<_> = migration.accepted(Step::Evict).map(uid).collect();
    let unique: BTreeSet<_> = evicted.iter().cloned().collect();
    assert_eq!(evicted.len(), unique.len(), "each was evicted once: {evicted:?}");
    let gone: BTreeSet<_> = migration.pods_gone().iter().filter_map(ResourceExt::uid).collect();
    assert_eq!(unique, gone, "what went was evicted, and what was evicted went");
    assert!(migration.pods.keys().all(|pod| unique.contains(pod)), "every pod moved");
    let deletes = |entry: &&Entry| matches!(entry.verb, Verb::Delete | Verb::DeleteCollection);
    let others: Vec<_> = migration.answered.iter().filter(deletes).filter(|entry| entry.resource != "nodes").collect();
    assert!(others.is_empty(), "nothing but nodes is ever deleted: {others:?}");
}

/// Claim with its cordon, evictions, taint, deletion.
fn the_order_was_kept(migration: &Migration) {
    for (name, node) in &migration.nodes {
        let of_node = |entry: &Entry| match step(entry) {
            Step::Evict => migration.pods.get(&uid(entry)) == Some(name),
            Step::Claim | Step::Taint | Step::Announce | Step::Delete => entry.name == *name,
            _ => false,
        };
        let done = migration.answered.iter().filter(|entry| entry.succeeded() && of_node(entry));
        let mut steps: Vec<_> = done.map(step).collect();
        // A node that is taken up again is claimed again.
        assert_eq!(steps.first(), Some(&Step::Claim), "{name} ({node}): {steps:?}");
        steps.retain(|step| *step != Step::Claim);
        let in_order = steps.is_sorted() && steps.contains(&Step::Taint) && steps.last() == Some(&Step::Delete);
        assert!(in_order, "{name} ({node}): {steps:?}");
    }
}

fn every_node_was_empty(migration: &Migration) {
    let gone = migration.pods_gone();
    for node in migration.witness.nodes_gone() {
        let name = node.name_any();
        let late: Vec<_> = gone.iter().filter(|pod| host(pod) == name && version(*pod) > version(&node)).collect();
        assert!(late.is_empty(), "{name} went before {late:?}");
    }
}

/// Never cordoned or tainted without a claim that says whose doing it is.
fn every_cordon_was_claimed(migration: &Migration) {
    for name in migration.nodes.keys() {
        for node in migration.witness.states_of(name) {
            let tainted =
                node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == TO_BE_DELETED);
            let claimed = node.annotations().contains_key(CLAIM);
            assert!(claimed || !(is_cordoned(&node) || tainted), "{name} is cordoned or tainted, and nobody says why");
        }
    }
}

/// The count of the proxy and that of the API server agree on all writes but the one that was broken, so nothing went
/// past the proxy, and it made nothing up.
fn the_proxy_passed_on_what_it_saw(migration: &Migration) {
    let count = |requests: &mut dyn Iterator<Item = Call>| {
        requests.fold(BTreeMap::<Call, usize>::new(), |mut counts, call| {
            *counts.entry(call).or_default() += 1;
            counts
        })
    };
    let writes = |call: &Call| call.verb.writes() && call.step != Step::Rights;
    let asked = count(&mut migration.asked.1.iter().map(Call::of).filter(writes));
    let answered = count(&mut migration.answered.iter().map(|entry| Call::of(&Request::from(entry))).filter(writes));
    let on_the_way: usize = asked.iter().map(|(call, count)| count - answered.get(call).copied().unwrap_or(0)).sum();
    // A killed process takes what it had just sent with it.
    let most = if migration.ends.contains(&None) { asked.values().sum() } else { 1 };
    assert!(on_the_way <= most, "{on_the_way} of {asked:?} did not arrive: {answered:?}");
    assert!(
        answered.keys().all(|call| asked.contains_key(call)),
        "{answered:?} went past the proxy, which saw {asked:?}"
    );
}

impl Migration {
    fn accepted(&self, wanted: Step) -> impl Iterator<Item = &Entry> {
        self.answered.iter().filter(move |entry| entry.succeeded() && step(entry) == wanted)
    }

    fn pods_gone(&self) -> Vec<Pod> {
        let mut gone = self.witness.pods_gone();
        gone.retain(|pod| pod.labels().get("app").is_some_and(|app| app == self.workload.name()));
        gone
    }
}

fn step(entry: &Entry) -> Step {
    Call::of(&Request::from(entry)).step
}

/// The UID that an eviction or a deletion names.
fn uid(entry: &Entry) -> String {
    entry.uid_precondition().unwrap_or_else(|| panic!("without a UID: {entry}")).to_owned()
}

fn host(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

/// The version of the store in which this was so, or in which it went.
fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).expect("the store counts its versions")
}
