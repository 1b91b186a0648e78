//! What the product promises, held against the audit log and what a witness saw.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use serde_json::Value;
use spot_tests::{AuditLog, Entry, Verb, Witness, control_plane::User};

use crate::{
    foreign::{Held, version},
    report::Report,
    scene::{AT_ONCE, CLAIM, TO_BE_DELETED, is_control_plane, is_opted_out, is_spot},
};

/// How long a request may have been on its way: no call of the product takes longer.
const ON_THE_WIRE: SignedDuration = SignedDuration::from_secs(4);

/// Everything that is known of the day.
#[derive(Debug)]
pub(crate) struct Promises {
    pub(crate) audit: AuditLog,
    pub(crate) witness: Witness,
    pub(crate) held: Vec<Held>,
    /// The nodes whose machine was said to go.
    pub(crate) noticed: BTreeSet<String>,
}

impl Promises {
    pub(crate) fn report(&self) -> Report {
        let mut report = Report::default();
        report.count("requests of migrators", self.audit.by(User::Migrator).count());
        self.pods_are_evicted(&mut report);
        self.nodes_go_in_order(&mut report);
        self.claims_are_allowed(&mut report);
        self.what_is_foreign_stays(&mut report);
        self.only_the_leader_writes(&mut report);
        report
    }

    /// Each eviction names its pod's UID, and no pod is deleted but on a machine that was said to go.
    fn pods_are_evicted(&self, report: &mut Report) {
        let evictions: Vec<_> = self.audit.evictions_by(User::Migrator).collect();
        for entry in evictions.iter().filter(|entry| was_read(entry) && entry.uid_precondition().is_none()) {
            report.violation(format!("an eviction without a UID: {entry}"));
        }
        report.count("evictions asked for", evictions.len());
        report.count("evictions accepted", evictions.iter().filter(|entry| entry.succeeded()).count());
        let hosts: BTreeMap<_, _> =
            self.witness.pod_states(|_| true).iter().map(|pod| (pod.uid(), host(pod).to_owned())).collect();
        let deletes =
            self.audit.writes_by(User::Migrator).filter(|entry| is_delete(entry) && entry.resource != "nodes");
        let deletes: Vec<_> = deletes.collect();
        for entry in &deletes {
            let on = hosts.get(&entry.uid_precondition().map(str::to_owned));
            if entry.resource != "pods" || !on.is_some_and(|on| self.noticed.contains(on)) {
                report.violation(format!("on {on:?} was deleted: {entry}"));
            }
        }
        report.count("pods deleted on machines about to go", deletes.len());
    }

    /// Each node that is deleted is named by its UID, was tainted, and listed empty after that.
    fn nodes_go_in_order(&self, report: &mut Report) {
        let gone = self.witness.nodes_gone();
        let pods = self.witness.pods_gone();
        let mut retired = 0;
        for entry in self.audit.deletes_by(User::Migrator, "nodes").filter(|entry| was_read(entry)) {
            let Some(uid) = entry.uid_precondition() else {
                report.violation(format!("a Node was deleted without its UID: {entry}"));
                continue;
            };
            if !entry.succeeded() {
                continue;
            }
            retired += 1;
            let name = entry.name.as_str();
            let Some(node) = gone.iter().find(|node| node.uid().as_deref() == Some(uid)) else {
                report.violation(format!("a Node was deleted, and none was there: {entry}"));
                continue;
            };
            if is_spot(node) || is_control_plane(node) || !is_claimed(node) {
                report.violation(format!("{name} was deleted with {:?}", node.metadata));
            }
            if !self.was_looked_at(entry) {
                report.violation(format!("{name} was deleted without a last look: {entry}"));
            }
            let late = pods.iter().filter(|pod| host(pod) == name && version(*pod) > version(node) && has_to_go(pod));
            let late: Vec<_> = late.map(ResourceExt::name_any).collect();
            if !late.is_empty() {
                report.violation(format!("{name} was deleted before {late:?} had gone"));
            }
        }
        report.count("nodes retired", retired);
    }

    /// Whether who deleted the node had it tainted, and then listed its pods from the store itself.
    fn was_looked_at(&self, delete: &Entry) -> bool {
        let before = || self.audit.by(User::Migrator).filter(|entry| entry.at <= delete.at && entry.succeeded());
        let is_taint = |entry: &&Entry| {
            let taints = entry.body["spec"]["taints"].as_array();
            entry.resource == "nodes"
                && entry.name == delete.name
                && taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == TO_BE_DELETED))
        };
        let Some(tainted) = before().find(is_taint).map(|entry| entry.at) else { return false };
        before().any(|entry| {
            (entry.verb, entry.resource.as_str()) == (Verb::List, "pods")
                && entry.uid == delete.uid
                && entry.at >= tainted
                && entry.uri.contains("fieldSelector=")
                && entry.uri.contains(&delete.name)
                && !entry.uri.contains("resourceVersion=")
        })
    }

    /// No node is claimed that must not be, and never too many at once.
    fn claims_are_allowed(&self, report: &mut Report) {
        let most = self.witness.most_nodes(|node| is_claimed(node) && !is_departing(node));
        if most > AT_ONCE {
            report.violation(format!("{most} nodes were claimed at once"));
        }
        report.count("nodes claimed at once", most);
        let mut claimed = BTreeMap::new();
        let mut claims = 0;
        for node in self.witness.node_states() {
            let was = claimed.insert(node.uid(), is_claimed(&node)).unwrap_or(false);
            if was || !is_claimed(&node) {
                continue;
            }
            claims += 1;
            if is_spot(&node) || is_control_plane(&node) || is_opted_out(&node) {
                report.violation(format!("{} was claimed with {:?}", node.name_any(), node.metadata.labels));
            }
        }
        report.count("claims", claims);
    }

    /// What a person put on is there until a person takes it off.
    fn what_is_foreign_stays(&self, report: &mut Report) {
        let mut states = BTreeMap::<_, Vec<_>>::new();
        for node in self.witness.node_states() {
            states.entry(node.name_any()).or_default().push(node);
        }
        for Held { node, thing, from, to } in &self.held {
            let during = |state: &&Node| version(*state) >= *from && to.is_none_or(|to| version(*state) < to);
            let without = states.get(node).into_iter().flatten().filter(during).find(|state| !thing.is_on(state));
            if let Some(state) = without {
                let at = self.audit.writes_by(User::Migrator).filter(|entry| entry.name == *node);
                let writes: Vec<_> = at.map(ToString::to_string).collect();
                let when = version(state);
                report.violation(format!("{thing:?} was taken off {node} in {from}..{to:?} at {when}: {writes:#?}"));
            }
        }
        report.count("things put on nodes by people", self.held.len());
    }

    /// Who writes holds the lease when the request comes in. One that comes in after the lease has changed hands must
    /// be refused, and may come only as late as a request takes. Events are told afterwards, and asking for one's own
    /// rights changes nothing.
    fn only_the_leader_writes(&self, report: &mut Report) {
        let aside = ["events", "selfsubjectaccessreviews"];
        let mut writes: Vec<_> =
            self.audit.writes_by(User::Migrator).filter(|entry| !aside.contains(&entry.resource.as_str())).collect();
        writes.sort_by_key(|entry| entry.at);
        let mut holder = None::<&Entry>;
        let (mut changes, mut checked, mut late) = (0, 0, 0);
        for entry in writes {
            let holds = holder.is_some_and(|holder| is_held(holder) && holder.uid == entry.uid);
            if entry.resource == "leases" {
                if entry.succeeded() {
                    changes += usize::from(is_held(entry) && !holds);
                    holder = Some(entry);
                }
                continue;
            }
            checked += 1;
            if holds {
                continue;
            }
            late += 1;
            let after = holder.map(|holder| entry.at.duration_since(holder.at));
            if entry.succeeded() || after.is_none_or(|after| after > ON_THE_WIRE) {
                report.violation(format!("replica {} wrote {after:?} after another: {entry}", entry.uid));
            }
        }
        report.count("writes of who leads", checked);
        report.count("writes refused after the lease changed hands", late);
        report.count("changes of leadership", changes);
    }
}

/// Claimed by the migration, not by the answer to a notice.
fn is_claimed(node: &Node) -> bool {
    claim(node).is_some_and(|claim| claim["owner"] == "migrator")
}

fn is_departing(node: &Node) -> bool {
    claim(node).is_some_and(|claim| claim["step"] == "deleting")
}

fn claim(node: &Node) -> Option<Value> {
    node.annotations().get(CLAIM).and_then(|claim| serde_json::from_str(claim).ok())
}

fn is_held(lease: &Entry) -> bool {
    lease.body["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty())
}

/// Whether the API server read what was sent. One that has just been started refuses before that: it does not know yet
/// who may do what.
fn was_read(entry: &Entry) -> bool {
    entry.succeeded() || !entry.body.is_null()
}

fn is_delete(entry: &Entry) -> bool {
    matches!(entry.verb, Verb::Delete | Verb::DeleteCollection)
}

/// Whether the pod is one that moves.
fn has_to_go(pod: &Pod) -> bool {
    pod.owner_references().iter().all(|owner| owner.kind != "DaemonSet")
}

fn host(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}
