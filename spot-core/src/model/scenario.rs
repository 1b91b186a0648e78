//! Worlds to begin with: a builder, and the scenarios that `simulate` shows.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::capacity::Class;
use crate::node::{Effect, Taint, key};
use crate::pod::PodPhase;

use super::Model;
use super::autoscaler::ON_DEMAND_GROUP;
use super::fleets::FleetSpec;
use super::random::SplitMix64;
use super::settings::Settings;
use super::spec::{Allowance, BudgetSpec, NodeSpec, PodLife, WorkloadKind, WorkloadSpec};
use super::world::{NodeId, PodId, World};

/// Where the pods are at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// On the on-demand nodes, and on the others only what does not fit there.
    #[default]
    OnDemandFirst,
    /// On all nodes alike.
    Everywhere,
}

/// Puts a world together.
#[derive(Clone, Debug, Default)]
pub struct WorldBuilder {
    settings: Settings,
    nodes: Vec<NodeSpec>,
    workloads: Vec<WorkloadSpec>,
    budgets: Vec<BudgetSpec>,
    spread: Spread,
    group_floor: u32,
    fleets: Vec<FleetSpec>,
}

impl WorldBuilder {
    /// An empty world that behaves so.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Changes how the world behaves.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// So many control-plane nodes, which are on-demand, with a mirror pod each.
    #[must_use]
    pub fn control_plane(mut self, nodes: u32) -> Self {
        for number in 1..=nodes {
            let spec = NodeSpec::new(Class::OnDemand)
                .named(&format!("cp-{number}"))
                .label(key::CONTROL_PLANE, "")
                .taint(Taint::new(key::CONTROL_PLANE, "", Effect::NoSchedule));
            self.nodes.push(spec);
        }
        self
    }

    /// So many on-demand nodes, kept by one group.
    #[must_use]
    pub fn on_demand(self, nodes: u32) -> Self {
        self.many(nodes, &NodeSpec::new(Class::OnDemand).group(ON_DEMAND_GROUP))
    }

    /// So many spot nodes.
    #[must_use]
    pub fn spot(self, nodes: u32) -> Self {
        self.many(nodes, &NodeSpec::new(Class::Spot))
    }

    /// So many reserved nodes.
    #[must_use]
    pub fn reserved(self, nodes: u32) -> Self {
        self.many(nodes, &NodeSpec::new(Class::Reserved))
    }

    /// So many nodes whose class nobody can tell.
    #[must_use]
    pub fn unknown(self, nodes: u32) -> Self {
        self.many(nodes, &NodeSpec::new(Class::Unknown))
    }

    fn many(mut self, nodes: u32, spec: &NodeSpec) -> Self {
        // a minute between two of a kind, so that their age tells them apart
        for number in 0..nodes {
            let age = spec.age.saturating_sub(Duration::from_mins(u64::from(number)));
            let name = spec.name.as_ref().map(|name| format!("{name}-{}", number + 1));
            self.nodes.push(NodeSpec { name, age, ..spec.clone() });
        }
        self
    }

    /// This node.
    #[must_use]
    pub fn node(mut self, spec: NodeSpec) -> Self {
        self.nodes.push(spec);
        self
    }

    /// A Deployment of so many pods.
    #[must_use]
    pub fn deployment(self, name: &str, replicas: u32) -> Self {
        self.workload(WorkloadSpec::deployment(name, replicas))
    }

    /// A Deployment of which so many pods may be missing.
    #[must_use]
    pub fn guarded(self, name: &str, replicas: u32, max_unavailable: u32) -> Self {
        self.workload(WorkloadSpec::deployment(name, replicas).budget(Allowance::MaxUnavailable(max_unavailable)))
    }

    /// A StatefulSet of so many pods.
    #[must_use]
    pub fn stateful_set(self, name: &str, replicas: u32) -> Self {
        self.workload(WorkloadSpec::stateful_set(name, replicas))
    }

    /// A DaemonSet.
    #[must_use]
    pub fn daemon_set(self, name: &str) -> Self {
        self.workload(WorkloadSpec::daemon_set(name))
    }

    /// So many pods that nobody brings back.
    #[must_use]
    pub fn bare(self, name: &str, pods: u32) -> Self {
        self.workload(WorkloadSpec::bare(name, pods))
    }

    /// So many pods that have run to their end.
    #[must_use]
    pub fn finished(self, name: &str, pods: u32) -> Self {
        self.workload(WorkloadSpec::bare(name, pods).life(PodLife::Finished))
    }

    /// This workload.
    #[must_use]
    pub fn workload(mut self, spec: WorkloadSpec) -> Self {
        self.workloads.push(spec);
        self
    }

    /// This budget, beside those that workloads have of their own.
    #[must_use]
    pub fn budget(mut self, spec: BudgetSpec) -> Self {
        self.budgets.push(spec);
        self
    }

    /// Where the pods are at the beginning.
    #[must_use]
    pub const fn spread(mut self, spread: Spread) -> Self {
        self.spread = spread;
        self
    }

    /// The capacity below which the on-demand machines' group refuses to go.
    #[must_use]
    pub const fn group_floor(mut self, floor: u32) -> Self {
        self.group_floor = floor;
        self
    }

    /// A fleet of the world's pool, with its members ready.
    #[must_use]
    pub fn fleet(mut self, spec: FleetSpec) -> Self {
        self.fleets.push(spec);
        self
    }

    /// The world, with all its pods running and ready, and every budget's status up to date.
    #[must_use]
    pub fn build(self) -> Model {
        self.build_after(|_| {})
    }

    /// The same, having done this to the world while it was empty.
    #[must_use]
    pub fn build_after(self, first: impl FnOnce(&mut World)) -> Model {
        let model = Model::new(self.settings.clone());
        model.with(|world| {
            first(world);
            self.fill(world);
        });
        model
    }

    fn fill(self, world: &mut World) {
        for spec in self.nodes {
            if spec.labels.iter().any(|(label, _)| label == key::CONTROL_PLANE) {
                let mirror = WorkloadSpec::bare("kube-apiserver", 1).life(PodLife::Mirror);
                let namespace = "kube-system".to_owned();
                let owner = world.new_workload(&WorkloadSpec { namespace, ..mirror });
                let node = world.launch(spec, true);
                let pods = world.create_missing(owner);
                pods.into_iter().zip(node).for_each(|((pod, _), node)| world.settle(pod, node));
            } else {
                world.launch(spec, true);
            }
        }
        self.fleets.into_iter().for_each(|fleet| world.add_fleet(fleet));
        if self.group_floor > 0 {
            world.set_group_floor(ON_DEMAND_GROUP, self.group_floor);
        }
        let mut places = Places::new(world, self.spread);
        for spec in &self.workloads {
            let owner = world.new_workload(spec);
            for (pod, node) in world.create_missing(owner) {
                if let Some(node) = node.or_else(|| places.next(world, spec)) {
                    world.settle(pod, node);
                }
            }
        }
        self.budgets.iter().for_each(|budget| world.add_budget(budget));
        world.refresh_budgets();
    }
}

/// Nodes with room, taken in turn.
struct Places {
    first: Vec<NodeId>,
    rest: Vec<NodeId>,
    turn: usize,
}

impl Places {
    fn new(world: &World, spread: Spread) -> Self {
        let (first, rest) = world.existing_nodes().into_iter().partition(|node| match spread {
            Spread::Everywhere => true,
            Spread::OnDemandFirst => world.node_entry(*node).is_some_and(|node| node.class == Class::OnDemand),
        });
        Self { first, rest, turn: 0 }
    }

    fn next(&mut self, world: &World, spec: &WorkloadSpec) -> Option<NodeId> {
        for nodes in [&self.first, &self.rest] {
            for step in 0..nodes.len() {
                let at = (self.turn + step) % nodes.len();
                if let Some(node) = nodes.get(at).filter(|node| world.could_run(spec, **node)) {
                    self.turn = at + 1;
                    return Some(*node);
                }
            }
        }
        None
    }
}

impl World {
    /// Puts a new pod on a node, where it has been running for a while.
    fn settle(&mut self, pod: PodId, node: NodeId) {
        self.bind(pod, node);
        let finished = self
            .pod(pod)
            .and_then(|pod| self.workloads.get(pod.workload.0))
            .is_some_and(|w| w.spec.life == PodLife::Finished);
        self.update_pod(pod, |pod| {
            pod.phase = if finished { PodPhase::Succeeded } else { PodPhase::Running };
            pod.ready = !finished;
        });
    }
}

/// The labels that tell a class.
pub(super) fn class_labels(class: Class) -> BTreeMap<String, String> {
    let label = match class {
        Class::OnDemand => Some(("node.kubernetes.io/lifecycle", "on-demand")),
        Class::Spot => Some(("node.kubernetes.io/lifecycle", "spot")),
        Class::Reserved => Some(("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK")),
        Class::Unknown => None,
    };
    label.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// A scenario that `simulate` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// There is spot capacity for everything: all on-demand nodes go.
    SpotAvailable,
    /// Spot runs out on the way: an on-demand node comes, and the run stops.
    SpotExhausted,
    /// A budget allows no disruption of an application: nodes with its pods stay.
    BlockedByBudget,
    /// As [`Scenario::SpotAvailable`]; whoever runs it kills the process on the way.
    KilledHalfway,
}

impl Scenario {
    /// Every scenario.
    pub const ALL: [Self; 4] = [Self::SpotAvailable, Self::SpotExhausted, Self::BlockedByBudget, Self::KilledHalfway];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SpotAvailable => "spot-available",
            Self::SpotExhausted => "spot-exhausted",
            Self::BlockedByBudget => "blocked-by-budget",
            Self::KilledHalfway => "killed-halfway",
        }
    }

    /// The scenario of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.as_str() == name)
    }

    /// A world of one control-plane node, so many on-demand nodes with so many pods on them, and a few spot nodes.
    #[must_use]
    pub fn build(self, seed: u64, nodes: u32, pods: u32) -> Model {
        let slots = pods.div_ceil(nodes.max(1)).max(1) + 4;
        let mut settings = Settings { seed, jitter_seconds: 2, ..Settings::default() };
        settings.autoscaler.slots = slots;
        if self == Self::SpotExhausted {
            // enough for the first third
            settings.autoscaler.spot_left = nodes / 3;
        }
        let spot = match self {
            Self::SpotExhausted => 1,
            Self::SpotAvailable | Self::BlockedByBudget | Self::KilledHalfway => nodes.div_ceil(3).max(1),
        };
        let mut builder = WorldBuilder::new(settings)
            .control_plane(1)
            .many(nodes, &NodeSpec::new(Class::OnDemand).named("od").group(ON_DEMAND_GROUP).slots(slots))
            .many(spot, &NodeSpec::new(Class::Spot).named("spot").slots(slots))
            .daemon_set("node-exporter");
        for spec in applications(seed, pods, self == Self::BlockedByBudget) {
            builder = builder.workload(spec);
        }
        builder.build()
    }
}

/// Applications of so many pods together, of different sizes and speeds.
fn applications(seed: u64, pods: u32, blocked: bool) -> Vec<WorkloadSpec> {
    const NAMES: [&str; 8] = ["web", "api", "cart", "search", "mail", "report", "queue", "auth"];
    let mut random = SplitMix64::new(seed);
    let (mut left, mut applications) = (pods, Vec::new());
    while left > 0 {
        let number = applications.len();
        let replicas = u32::try_from(2 + random.below(19)).unwrap_or(2).min(left);
        left -= replicas;
        let name = match NAMES.get(number) {
            Some(name) => (*name).to_owned(),
            None => format!("{}-{}", NAMES.get(number % NAMES.len()).unwrap_or(&"app"), number / NAMES.len() + 1),
        };
        let mut spec = match random.below(5) {
            0 => WorkloadSpec::stateful_set(&name, replicas),
            _ => WorkloadSpec::deployment(&name, replicas),
        };
        spec = spec.start_up(Duration::from_secs(2 + random.below(9))).stop(Duration::from_secs(1 + random.below(10)));
        if number == 0 && blocked {
            spec = spec.budget(Allowance::MaxUnavailable(0));
        } else if spec.kind == WorkloadKind::StatefulSet || random.below(2) == 0 {
            spec = spec.budget(Allowance::MaxUnavailable(replicas.div_ceil(4)));
        }
        applications.push(spec);
    }
    applications
}
