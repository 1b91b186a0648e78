//! A world like a cluster that was seen: its nodes, pods, controllers, budgets and volumes as far as a view knows them,
//! and stated assumptions for the rest.

mod assumptions;
mod pods;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::capacity::{CapacityLabels, Class};
use crate::claim::{InstanceId, Machine};
use crate::cloud::CloudFacts;
use crate::decision::is_control_plane;
use crate::node::{Node as _, NodeSnapshot, Readiness};
use crate::placement::Shape;
use crate::reason::{Reason, ReasonKind};
use crate::view::{Change, View};

use super::Model;
use super::autoscaler::{Make, Makes};
use super::nodes::NodeEntry;
use super::scenario::Scenario;
use super::settings::{MachineKind, Settings};
use super::spec::NodeSpec;
use super::world::{NodeId, World};

/// The label of a node's make of machine.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// How many makes of machines of each class can be bought.
const MOST_MAKES: usize = 64;
/// A run of thousands of nodes, one by one, takes weeks.
const HORIZON: Duration = Duration::from_hours(365 * 24);

/// A cluster that was seen.
#[derive(Clone, Debug)]
pub struct Seen<'v> {
    /// All objects.
    pub view: &'v View,
    /// What is known of the machines.
    pub cloud: &'v CloudFacts,
    /// What all chance comes from.
    pub seed: u64,
    /// The world's first moment.
    pub start: Timestamp,
    /// How long load balancers go on sending traffic after the taint.
    pub load_balancer_drain: Duration,
}

/// A world that is like a cluster that was seen.
#[derive(Clone, Debug)]
pub struct Likeness {
    /// The world.
    pub model: Model,
    /// What nobody could tell of the cluster, and what is assumed instead, in words.
    pub assumptions: Vec<String>,
}

impl Seen<'_> {
    /// The latest moment that a view names as past: about when it was seen.
    #[must_use]
    pub fn moment(view: &View) -> Option<Timestamp> {
        let nodes = view.nodes().iter().flat_map(|node| {
            let turned = match node.readiness {
                Readiness::Ready => node.ready_since,
                Readiness::NotReady { since } | Readiness::Unreachable { since } => Some(since),
            };
            [Some(node.created_at), turned, node.deleting_since]
        });
        nodes.flatten().chain(view.pods().map(|pod| pod.created_at)).max()
    }
}

impl Scenario {
    /// A world like this cluster, in which this happens.
    #[must_use]
    pub fn like(self, seen: &Seen<'_>) -> Likeness {
        let mut view = seen.view.clone();
        if self == Self::BlockedByBudget
            && let Some(budget) = pods::allowing_none(&view, seen.cloud)
        {
            view.apply(Change::Budget(Arc::new(budget)));
        }
        let candidates = workers(&view).filter(|node| seen.cloud.class(node.uid()) == Class::OnDemand).count();
        let room = Room::of(&view);
        let mut settings = Settings {
            seed: seen.seed,
            start: seen.start,
            jitter_seconds: 2,
            load_balancer_drain: seen.load_balancer_drain,
            machines: kind_of_machines(&view, seen.cloud),
            horizon: HORIZON,
            ..Settings::default()
        };
        settings.autoscaler.slots = room.fullest();
        if self == Self::SpotExhausted {
            // enough for the first third
            settings.autoscaler.spot_left = u32::try_from(candidates / 3).unwrap_or(u32::MAX);
        }
        let model = Model::new(settings);
        let seen_at = Seen::moment(&view).unwrap_or(seen.start);
        let told = model.with(|world| world.resemble(&view, seen.cloud, &room, seen_at));
        let assumptions = model.with(|world| assumptions::words(self, &view, &room, &told, world.settings()));
        Likeness { model, assumptions }
    }
}

/// How many pods fit on nodes, told by how many are there.
#[derive(Debug)]
struct Room {
    by_type: BTreeMap<String, u32>,
}

impl Room {
    fn of(view: &View) -> Self {
        let mut by_type = BTreeMap::new();
        for node in workers(view) {
            let pods = view.pods_on(node.name()).filter(|pod| pod.is_movable()).count();
            let most: &mut u32 = by_type.entry(instance_type(node.label(INSTANCE_TYPE))).or_default();
            *most = (*most).max(u32::try_from(pods).unwrap_or(u32::MAX));
        }
        Self { by_type }
    }

    /// How many pods fit on a node of this type.
    fn on(&self, instance_type: &str) -> u32 {
        self.by_type.get(instance_type).copied().unwrap_or_default()
    }

    fn fullest(&self) -> u32 {
        self.by_type.values().copied().max().unwrap_or_default().max(1)
    }
}

/// What turned out while a world was made.
#[derive(Debug, Default)]
struct Told {
    /// Whether new spot machines are like on-demand ones, because there is none to be like.
    spot_is_a_guess: bool,
    /// Pods that have not been ready for long.
    stuck: usize,
    /// Kinds of controllers that Kubernetes does not know.
    foreign_kinds: BTreeSet<Arc<str>>,
    has_volumes: bool,
}

fn workers(view: &View) -> impl Iterator<Item = &Arc<NodeSnapshot>> {
    view.nodes().iter().filter(|node| !is_control_plane(*node))
}

fn instance_type(label: Option<&str>) -> String {
    label.unwrap_or_default().to_owned()
}

/// How the machines of these nodes go: all of a provider's go alike.
fn kind_of_machines(view: &View, cloud: &CloudFacts) -> MachineKind {
    let machines = view.nodes().iter().filter_map(|node| cloud.of(node.uid())?.machine.as_ref());
    let mut with_node = machines.map(|machine| *machine == Machine::WithNode);
    if with_node.any(|with_node| with_node) { MachineKind::WithNode } else { MachineKind::Instance }
}

impl World {
    /// Becomes like this cluster.
    fn resemble(&mut self, view: &View, cloud: &CloudFacts, room: &Room, seen_at: Timestamp) -> Told {
        let mut told = Told::default();
        self.truth = Arc::new(view.clone());
        for node in view.nodes() {
            let slots = if is_control_plane(node) { 0 } else { room.on(&instance_type(node.label(INSTANCE_TYPE))) };
            self.adopt_node(node, cloud, slots);
        }
        self.makes = makes(view, cloud, room, &mut told);
        self.adopt_pods(view, seen_at, &mut told);
        self.refresh_budgets();
        let leaving = self.nodes.iter().filter(|node| node.snapshot.deleting_since.is_some());
        let machines: Vec<_> = leaving.map(|node| node.instance).collect();
        for machine in machines {
            self.end_machine(machine);
        }
        self.request_schedule();
        told
    }

    fn adopt_node(&mut self, node: &Arc<NodeSnapshot>, cloud: &CloudFacts, slots: u32) {
        let fact = cloud.of(node.uid());
        let class = fact.map_or(Class::Unknown, |fact| fact.class);
        let machine = fact.and_then(|fact| fact.machine.as_ref());
        let spec = NodeSpec {
            name: Some(node.name.to_string()),
            labels: node.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            taints: node.taints.clone(),
            ..NodeSpec::new(class).slots(slots)
        };
        let mut refusals = fact.map(|fact| fact.refusals.clone()).unwrap_or_default();
        let id = match machine {
            Some(Machine::Instance(id)) => id.clone(),
            Some(Machine::WithNode) | None => InstanceId::new(format!("machine-of-{}", node.uid)),
        };
        if let Some(first) = self.instance_ids.get(&id).copied() {
            let twice = || Reason::Cloud(ReasonKind::ClaimedTwice, format!("two nodes claim {id}"));
            refusals.push(twice());
            if let Some(first) = self.instances.get_mut(first.0) {
                first.refusals.push(twice());
            }
        }
        let no = self.add_instance(spec, Arc::clone(&node.name), id, node.provider_id.clone());
        if let Some(instance) = self.instances.get_mut(no.0) {
            instance.refusals = refusals;
            instance.stays = machine.is_none();
            instance.follows = machine == Some(&Machine::WithNode) && node.finalizers.is_empty();
        }
        let snapshot = Arc::new(NodeSnapshot { resource_version: self.next_version(), ..NodeSnapshot::clone(node) });
        let id = NodeId(self.nodes.len());
        self.nodes.push(NodeEntry {
            snapshot: Arc::clone(&snapshot),
            instance: no,
            class,
            slots,
            used: 0,
            pods: BTreeSet::new(),
            exists: true,
            alive: !matches!(snapshot.readiness, Readiness::Unreachable { .. }),
            coming: None,
            registered: self.now(),
            open: None,
        });
        self.node_names.entry(Arc::clone(&node.name)).or_insert(id);
        self.node_uids.insert(node.uid.clone(), id);
        self.emit(Change::Node(snapshot));
        self.refresh_open(id);
    }
}

/// What can be bought: machines like those that are there, the commonest first.
fn makes(view: &View, cloud: &CloudFacts, room: &Room, told: &mut Told) -> Makes {
    let shapes = |class| {
        let mut shapes: BTreeMap<Shape, usize> = BTreeMap::new();
        for node in workers(view).filter(|node| cloud.class(node.uid()) == class) {
            *shapes.entry(Shape::of(node, node.labels.iter())).or_default() += 1;
        }
        let mut shapes: Vec<_> = shapes.into_iter().collect();
        shapes.sort_by_key(|(_, nodes)| Reverse(*nodes));
        shapes.into_iter().map(|(shape, _)| shape).take(MOST_MAKES).collect::<Vec<Shape>>()
    };
    let (mut spot, on_demand) = (shapes(Class::Spot), shapes(Class::OnDemand));
    told.spot_is_a_guess = spot.is_empty();
    if spot.is_empty() {
        spot = on_demand.iter().map(on_spot).collect();
    }
    let make = |class| {
        move |shape: Shape| {
            let slots = room.on(&instance_type(shape.labels().get(INSTANCE_TYPE).map(String::as_str)));
            Make::new(class, slots, shape)
        }
    };
    Makes {
        spot: spot.into_iter().map(make(Class::Spot)).collect(),
        on_demand: on_demand.into_iter().map(make(Class::OnDemand)).collect(),
    }
}

/// The same shape, with labels that say spot where they said on-demand.
fn on_spot(shape: &Shape) -> Shape {
    let known = CapacityLabels::default();
    let labels = shape.labels().iter().filter_map(|(key, value)| match known.class_of(key, value) {
        Some(Class::OnDemand) => Some((key.clone(), known.value_of(key, Class::Spot)?.to_owned())),
        Some(Class::Spot | Class::Reserved | Class::Unknown) | None => Some((key.clone(), value.clone())),
    });
    Shape::new(labels, shape.taints().iter().cloned())
}
