//! The cluster as seen: nodes, pods by node and by controller, budgets by namespace.
//!
//! One `apply` keeps it up to date; adapters and the model share it. What a change does not touch is shared between
//! the old view and the new one, so a view can be handed out at every change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::node::{NodeSnapshot, Uid, key};
use crate::pod::{BudgetRef, BudgetSnapshot, PodSnapshot};
use crate::selector::Operator;
use crate::volume::{AttachmentSnapshot, VolumeChange, VolumeSnapshot, Volumes};

/// Counts the changes of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Change {
    /// A node as it is now.
    Node(Arc<NodeSnapshot>),
    /// The node with this identity is gone.
    NodeGone(Uid),
    /// A pod as it is now.
    Pod(Arc<PodSnapshot>),
    /// A pod is gone; its last state.
    PodGone(Arc<PodSnapshot>),
    /// A budget as it is now.
    Budget(Arc<BudgetSnapshot>),
    /// A budget is gone.
    BudgetGone(BudgetRef),
    /// A DaemonSet exists.
    DaemonSet(Uid),
    /// A DaemonSet is gone.
    DaemonSetGone(Uid),
    /// Something happened to volumes.
    Volume(VolumeChange),
    /// Whether a person paused us.
    Paused(bool),
}

/// Which kinds of objects a view was told of. One made from files may lack some: unknown is not "none".
#[expect(clippy::struct_excessive_bools, reason = "one for each kind")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Pods.
    pub pods: bool,
    /// PodDisruptionBudgets.
    pub budgets: bool,
    /// DaemonSets.
    pub daemon_sets: bool,
    /// PersistentVolumeClaims.
    pub claims: bool,
    /// PersistentVolumes.
    pub volumes: bool,
}

impl Default for Known {
    fn default() -> Self {
        Self { pods: true, budgets: true, daemon_sets: true, claims: true, volumes: true }
    }
}

type Pods = BTreeMap<Uid, Arc<PodSnapshot>>;

/// What a controller's pods are doing.
#[derive(Clone, Debug)]
pub struct Tally {
    pods: usize,
    active: usize,
    newest: Timestamp,
    unready: Pods,
}

impl Default for Tally {
    fn default() -> Self {
        Self { pods: 0, active: 0, newest: Timestamp::MIN, unready: Pods::new() }
    }
}

impl Tally {
    /// How many take part: neither finished nor on their way out.
    #[must_use]
    pub const fn active(&self) -> usize {
        self.active
    }

    /// How many take part and are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.active.saturating_sub(self.unready.len())
    }

    /// When the newest was created that was seen since the controller last had none.
    #[must_use]
    pub const fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Those that take part, but have no node or are not ready.
    pub fn unready(&self) -> impl Iterator<Item = &Arc<PodSnapshot>> {
        self.unready.values()
    }
}

/// The budgets of a namespace, found by a label that their pods must have: looking through all of them for each pod
/// would cost their number times the pods'.
#[derive(Clone, Debug, Default)]
struct Budgets {
    by_name: BTreeMap<Arc<str>, Arc<BudgetSnapshot>>,
    /// Names by key and value of one label that the selector demands.
    by_label: BTreeMap<String, BTreeMap<String, BTreeSet<Arc<str>>>>,
    /// Names of those that demand no label of one value.
    others: BTreeSet<Arc<str>>,
}

impl Budgets {
    fn put(&mut self, budget: Arc<BudgetSnapshot>) {
        let known = self.by_name.get(&budget.name);
        if known.is_none_or(|known| known.selector != budget.selector) {
            self.remove(&Arc::clone(&budget.name));
            let name = Arc::clone(&budget.name);
            match demanded(&budget) {
                Some((key, value)) => {
                    self.by_label.entry(key.to_owned()).or_default().entry(value.to_owned()).or_default().insert(name)
                }
                None => self.others.insert(name),
            };
        }
        self.by_name.insert(Arc::clone(&budget.name), budget);
    }

    fn remove(&mut self, name: &Arc<str>) {
        let Some(budget) = self.by_name.remove(name) else { return };
        let Some((key, value)) = demanded(&budget) else {
            self.others.remove(name);
            return;
        };
        let Some(values) = self.by_label.get_mut(key) else { return };
        if let Some(names) = values.get_mut(value) {
            names.remove(name);
            if names.is_empty() {
                values.remove(value);
            }
        }
        if values.is_empty() {
            self.by_label.remove(key);
        }
    }

    /// The budgets that select these labels, by name.
    fn of(&self, labels: &BTreeMap<String, String>) -> Vec<&Arc<BudgetSnapshot>> {
        let demanding = self.by_label.iter().filter_map(|(key, values)| values.get(labels.get(key)?));
        let mut budgets: Vec<_> = demanding
            .flatten()
            .chain(&self.others)
            .filter_map(|name| self.by_name.get(name))
            .filter(|budget| budget.selector.matches(|key| labels.get(key).map(String::as_str)))
            .collect();
        budgets.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        budgets
    }
}

/// A label and its only value without which no pod is selected.
fn demanded(budget: &BudgetSnapshot) -> Option<(&str, &str)> {
    budget.selector.requirements().iter().find_map(|requirement| {
        let mut values = requirement.values();
        match (requirement.operator(), values.next(), values.next()) {
            (Operator::In, Some(value), None) => Some((requirement.key(), value)),
            (Operator::In | Operator::NotIn | Operator::Exists | Operator::DoesNotExist, _, _) => None,
        }
    })
}

/// The cluster as seen at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    revision: Revision,
    machines: Revision,
    known: Known,
    paused: bool,
    nodes: Arc<Vec<Arc<NodeSnapshot>>>,
    by_node: BTreeMap<Arc<str>, Arc<Pods>>,
    unbound: Arc<Pods>,
    by_controller: BTreeMap<Uid, Arc<Tally>>,
    budgets: BTreeMap<Arc<str>, Arc<Budgets>>,
    daemon_sets: Arc<BTreeSet<Uid>>,
    volumes: Volumes,
}

impl View {
    /// An empty view that is told only of these kinds.
    #[must_use]
    pub fn knowing(known: Known) -> Self {
        Self { known, ..Self::default() }
    }

    /// How many changes it has seen.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The revision at which a node last came, went, or changed in what tells its machine: provider ID, labels (our
    /// mark aside) or finalizers.
    #[must_use]
    pub const fn machines(&self) -> Revision {
        self.machines
    }

    /// Which kinds it is told of.
    #[must_use]
    pub const fn known(&self) -> Known {
        self.known
    }

    /// Whether a person paused us.
    #[must_use]
    pub const fn paused(&self) -> bool {
        self.paused
    }

    /// All nodes, by identity.
    #[must_use]
    pub fn nodes(&self) -> &[Arc<NodeSnapshot>] {
        &self.nodes
    }

    /// The node with this identity.
    #[must_use]
    pub fn node(&self, uid: &str) -> Option<&Arc<NodeSnapshot>> {
        self.position(uid).ok().and_then(|at| self.nodes.get(at))
    }

    /// The pods that are bound to the node of this name.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<PodSnapshot>> + use<'_> {
        self.by_node.get(node).into_iter().flat_map(|pods| pods.values())
    }

    /// The pods that no node was found for yet.
    pub fn unbound_pods(&self) -> impl Iterator<Item = &Arc<PodSnapshot>> {
        self.unbound.values()
    }

    /// What the pods of this controller are doing; none: it has no pods.
    #[must_use]
    pub fn tally(&self, controller: &Uid) -> Option<&Tally> {
        self.by_controller.get(controller).map(|tally| &**tally)
    }

    /// All pods.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<PodSnapshot>> {
        self.unbound.values().chain(self.by_node.values().flat_map(|pods| pods.values()))
    }

    /// The budgets that protect this pod, by name.
    pub fn budgets_of(&self, pod: &PodSnapshot) -> impl Iterator<Item = &Arc<BudgetSnapshot>> + use<'_> {
        let budgets = self.budgets.get(&pod.namespace).map(|budgets| budgets.of(&pod.labels));
        budgets.unwrap_or_default().into_iter()
    }

    /// The budget of this name.
    #[must_use]
    pub fn budget(&self, budget: &BudgetRef) -> Option<&Arc<BudgetSnapshot>> {
        self.budgets.get(&budget.namespace)?.by_name.get(&budget.name)
    }

    /// All budgets, by namespace and name.
    pub fn budgets(&self) -> impl Iterator<Item = &Arc<BudgetSnapshot>> {
        self.budgets.values().flat_map(|budgets| budgets.by_name.values())
    }

    /// Whether the DaemonSet with this identity exists.
    #[must_use]
    pub fn daemon_set_exists(&self, uid: &Uid) -> bool {
        self.daemon_sets.contains(uid)
    }

    /// The volumes that this pod's successor needs too, as far as they are known.
    pub fn volumes_of(&self, pod: &PodSnapshot) -> impl Iterator<Item = &Arc<VolumeSnapshot>> {
        let lasting = pod.claims.iter().flat_map(|claims| claims.iter()).filter(|claim| !claim.ephemeral);
        lasting.filter_map(|claim| self.volumes.volume(self.volumes.bound(&pod.namespace, &claim.name)?))
    }

    /// The volumes that are attached to the node of this name though no pod on it has them: they are being detached.
    pub fn detaching_from(&self, node: &str) -> impl Iterator<Item = &Arc<AttachmentSnapshot>> {
        let claimed = |pod: &Arc<PodSnapshot>| {
            let claims = pod.claims.iter().flat_map(|claims| claims.iter());
            claims.filter_map(|claim| self.volumes.bound(&pod.namespace, &claim.name)).collect::<Vec<_>>()
        };
        let mut attached = self.volumes.attached_to(node).filter(|one| one.volume.is_some()).peekable();
        let in_use: BTreeSet<&Arc<str>> = match attached.peek() {
            Some(_) => self.pods_on(node).flat_map(claimed).collect(),
            None => BTreeSet::new(),
        };
        attached.filter(move |one| one.volume.as_ref().is_some_and(|volume| !in_use.contains(volume)))
    }

    /// Takes in one change. Applying the same change twice is harmless.
    pub fn apply(&mut self, change: Change) {
        self.revision.0 += 1;
        match change {
            Change::Node(node) => self.put_node(node),
            Change::NodeGone(uid) => {
                if let Ok(at) = self.position(uid.as_str()) {
                    Arc::make_mut(&mut self.nodes).remove(at);
                    self.machines = self.revision;
                }
            }
            Change::Pod(pod) => self.put_pod(&pod),
            Change::PodGone(pod) => self.remove_pod(&pod),
            Change::Budget(budget) => {
                let budgets = self.budgets.entry(Arc::clone(&budget.namespace)).or_default();
                Arc::make_mut(budgets).put(budget);
            }
            Change::BudgetGone(budget) => {
                if let Some(budgets) = self.budgets.get_mut(&budget.namespace) {
                    Arc::make_mut(budgets).remove(&budget.name);
                }
            }
            Change::DaemonSet(uid) => {
                Arc::make_mut(&mut self.daemon_sets).insert(uid);
            }
            Change::DaemonSetGone(uid) => {
                Arc::make_mut(&mut self.daemon_sets).remove(&uid);
            }
            Change::Volume(change) => self.volumes.apply(change),
            Change::Paused(paused) => self.paused = paused,
        }
    }

    fn position(&self, uid: &str) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.uid.as_str().cmp(uid))
    }

    fn put_node(&mut self, node: Arc<NodeSnapshot>) {
        match self.position(node.uid.as_str()) {
            Ok(at) => {
                if let Some(place) = Arc::make_mut(&mut self.nodes).get_mut(at) {
                    if !same_machine(place, &node) {
                        self.machines = self.revision;
                    }
                    *place = node;
                }
            }
            Err(at) => {
                Arc::make_mut(&mut self.nodes).insert(at, node);
                self.machines = self.revision;
            }
        }
    }

    fn put_pod(&mut self, pod: &Arc<PodSnapshot>) {
        let before = self.take_pod(pod);
        let place = match &pod.node {
            Some(node) => self.by_node.entry(Arc::clone(node)).or_default(),
            None => &mut self.unbound,
        };
        Arc::make_mut(place).insert(pod.uid.clone(), Arc::clone(pod));
        if let Some(controller) = &pod.controller {
            let tally = Arc::make_mut(self.by_controller.entry(controller.uid.clone()).or_default());
            tally.pods += 1;
            tally.newest = tally.newest.max(pod.created_at);
            if pod.is_active() {
                tally.active += 1;
                if !pod.ready {
                    tally.unready.insert(pod.uid.clone(), Arc::clone(pod));
                }
            }
        }
        // Only now: a controller that keeps its only pod keeps its tally.
        self.forget_controller(before.as_deref());
    }

    fn remove_pod(&mut self, pod: &PodSnapshot) {
        let before = self.take_pod(pod);
        self.forget_controller(before.as_deref());
    }

    /// Takes a pod out as it was known: it may have been unbound, and it may have been in another state.
    fn take_pod(&mut self, pod: &PodSnapshot) -> Option<Arc<PodSnapshot>> {
        let known = match &pod.node {
            Some(node) => remove(&mut self.by_node, node, &pod.uid),
            None => None,
        };
        let known = known.or_else(|| {
            self.unbound.contains_key(&pod.uid).then(|| Arc::make_mut(&mut self.unbound).remove(&pod.uid))?
        })?;
        if let Some(controller) = &known.controller
            && let Some(tally) = self.by_controller.get_mut(&controller.uid)
        {
            let tally = Arc::make_mut(tally);
            tally.pods = tally.pods.saturating_sub(1);
            if known.is_active() {
                tally.active = tally.active.saturating_sub(1);
                tally.unready.remove(&known.uid);
            }
        }
        Some(known)
    }

    /// Forgets the controller of this pod if it was its last: jobs come and go for as long as the process lives.
    fn forget_controller(&mut self, last: Option<&PodSnapshot>) {
        let Some(controller) = last.and_then(|pod| pod.controller.as_ref()) else { return };
        if self.by_controller.get(&controller.uid).is_some_and(|tally| tally.pods == 0) {
            self.by_controller.remove(&controller.uid);
        }
    }
}

/// Whether all that tells a node's machine is the same.
fn same_machine(before: &NodeSnapshot, now: &NodeSnapshot) -> bool {
    let labels = |node: &'_ NodeSnapshot| node.labels.len() - usize::from(node.labels.contains_key(key::SELECTED));
    let told = |(label, value): (&String, &String)| label == key::SELECTED || now.labels.get(label) == Some(value);
    before.provider_id == now.provider_id
        && before.finalizers == now.finalizers
        && labels(before) == labels(now)
        && before.labels.iter().all(told)
}

/// Takes a pod out of the pods of a node, and the node with it when it was the last.
fn remove(by_node: &mut BTreeMap<Arc<str>, Arc<Pods>>, node: &Arc<str>, pod: &Uid) -> Option<Arc<PodSnapshot>> {
    let pods = by_node.get_mut(node)?;
    let known = Arc::make_mut(pods).remove(pod);
    if pods.is_empty() {
        by_node.remove(node);
    }
    known
}
