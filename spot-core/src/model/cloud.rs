//! The cloud: machines, the groups that keep them, load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::capacity::Class;
use crate::claim::{FleetBefore, InstanceId, Machine};
use crate::cloud::{CloudFact, CloudFacts, Deletion, Freshness, Group as CloudGroup, GroupKind, InstanceState};
use crate::error::{ErrorClass, PortError};
use crate::node::{Effect, Node as _, NodeRef, NodeSnapshot, key};
use crate::ports::{CloudProvider, Instant, Write};
use crate::reason::{Reason, ReasonKind};
use crate::retire::RetiredNode;

use super::process::{Process, ProcessId};
use super::record::{Answer, Call, Fact};
use super::settings::MachineKind;
use super::spec::NodeSpec;
use super::world::{Event, NodeId, PodId, World, later};

/// Where a machine stands in the world's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InstanceNo(pub(super) usize);

/// Where a machine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    ShuttingDown,
    Gone,
}

/// A machine.
pub(super) struct Instance {
    pub(super) id: InstanceId,
    pub(super) node_name: Arc<str>,
    /// What its kubelet writes on its Node.
    pub(super) provider_id: String,
    pub(super) class: Class,
    pub(super) spec: NodeSpec,
    pub(super) life: Life,
    pub(super) launched: Timestamp,
    pub(super) boots: u32,
    /// Pods on a running machine without a Node object.
    pub(super) orphans: BTreeSet<PodId>,
    pub(super) refusals: Vec<Reason>,
    /// Whether nobody can tell how it goes.
    pub(super) stays: bool,
    /// Whether it goes with its Node object, though nothing on that says so.
    pub(super) follows: bool,
    deleted_at: Option<Instant>,
    /// The process that had it deleted.
    asked_by: Option<ProcessId>,
}

impl Instance {
    pub(super) fn boot_id(&self) -> String {
        format!("{}-boot-{}", self.id, self.boots)
    }
}

/// A group that keeps a number of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The capacity that it keeps.
    pub desired: u32,
    /// The capacity below which it refuses to go.
    pub floor: u32,
    /// Whether it is a fleet.
    pub is_fleet: bool,
}

impl World {
    /// Starts a machine; its kubelet registers at once.
    pub(super) fn launch(&mut self, spec: NodeSpec, ready: bool) -> Option<NodeId> {
        let name: Arc<str> = match &spec.name {
            Some(name) => name.as_str().into(),
            None => self.free_names.pop_first().unwrap_or_else(|| self.next_name(spec.class)),
        };
        if self.node_names.contains_key(&name) {
            // two objects can't bear one name
            return None;
        }
        let age = spec.age;
        let no = self.new_instance(spec, name);
        self.register(no, ready, age)
    }

    pub(super) fn new_instance(&mut self, spec: NodeSpec, node_name: Arc<str>) -> InstanceNo {
        let no = InstanceNo(self.instances.len());
        let numbered = [String::new(), "-x".to_owned()].map(|end| InstanceId::new(format!("i-{:08}{end}", no.0)));
        let free = numbered.iter().find(|id| !self.instance_ids.contains_key(*id));
        let id = free.unwrap_or(&numbered[0]).clone();
        let provider_id = match self.settings.machines {
            MachineKind::Instance => format!("model:///{id}"),
            MachineKind::WithNode => format!("kwok://{node_name}"),
        };
        self.add_instance(spec, node_name, id, provider_id)
    }

    pub(super) fn add_instance(
        &mut self,
        spec: NodeSpec,
        node_name: Arc<str>,
        id: InstanceId,
        provider_id: String,
    ) -> InstanceNo {
        let no = InstanceNo(self.instances.len());
        self.instance_ids.entry(id.clone()).or_insert(no);
        if let Some(group) = spec.group.as_ref().filter(|group| !self.fleets.has(group)) {
            self.groups.entry(group.clone()).or_default().desired += 1;
        }
        self.instances.push(Instance {
            id,
            node_name,
            provider_id,
            class: spec.class,
            spec,
            life: Life::Running,
            launched: self.wall(),
            boots: 1,
            orphans: BTreeSet::new(),
            refusals: Vec::new(),
            stays: false,
            follows: false,
            deleted_at: None,
            asked_by: None,
        });
        no
    }

    fn next_name(&self, class: Class) -> Arc<str> {
        let word = match class {
            Class::OnDemand => "od",
            Class::Spot => "spot",
            Class::Reserved => "reserved",
            Class::Unknown => "unknown",
        };
        let before = self.instances.iter().filter(|instance| instance.class == class).count();
        let free = (before + 1..).map(|number| format!("{word}-{number}"));
        let taken = |name: &String| self.instances.iter().any(|instance| *instance.node_name == **name);
        free.into_iter().find(|name| !taken(name)).unwrap_or_default().into()
    }

    /// The machine that a provider ID names.
    fn machine_named(&self, provider_id: &str) -> Option<InstanceNo> {
        if let Some(name) = provider_id.strip_prefix("kwok://") {
            return self.node_named(name).and_then(|node| self.node_entry(node)).map(|entry| entry.instance);
        }
        self.instance_no(&InstanceId::new(provider_id.strip_prefix("model:///")?))
    }

    /// The machine of a node.
    fn own_machine(&self, node: &NodeSnapshot) -> Option<InstanceNo> {
        let own = self.node_uids.get(&node.uid).and_then(|id| self.node_entry(*id)).map(|entry| entry.instance);
        let registered =
            |no: &InstanceNo| self.instances.get(no.0).is_some_and(|instance| instance.provider_id == node.provider_id);
        own.filter(registered).or_else(|| self.machine_named(&node.provider_id))
    }

    pub(super) fn instance_no(&self, id: &InstanceId) -> Option<InstanceNo> {
        self.instance_ids.get(id).copied()
    }

    /// What the cloud says of these nodes.
    fn facts_of(&self, nodes: &[Arc<NodeSnapshot>], chosen: &[NodeRef]) -> CloudFacts {
        let machines: Vec<Option<InstanceNo>> = nodes.iter().map(|node| self.own_machine(node)).collect();
        let mut claims: BTreeMap<InstanceNo, u32> = BTreeMap::new();
        for machine in machines.iter().flatten() {
            *claims.entry(*machine).or_default() += 1;
        }
        let facts = nodes.iter().zip(machines).filter_map(|(node, machine)| {
            let machine = machine.filter(|machine| self.is_described(*machine, node))?;
            let chosen = chosen.iter().any(|chosen| chosen.uid == node.uid);
            let fact = self.fact_of(node, machine, claims.get(&machine).is_some_and(|nodes| *nodes > 1), chosen)?;
            Some((node.uid.clone(), fact))
        });
        facts.collect()
    }

    /// Whether the cloud can tell the class of a machine already.
    fn is_described(&self, no: InstanceNo, node: &NodeSnapshot) -> bool {
        if self.settings.class_lag.is_zero() {
            return true;
        }
        let entry = self.node_uids.get(&node.uid).and_then(|id| self.node_entry(*id));
        entry.is_none_or(|entry| entry.instance != no || self.now().since(entry.registered) >= self.settings.class_lag)
    }

    fn fact_of(&self, node: &NodeSnapshot, no: InstanceNo, twice: bool, chosen: bool) -> Option<CloudFact> {
        let instance = self.instances.get(no.0)?;
        let mut refusals: Vec<Reason> = instance.refusals.clone();
        // one call for each instance: it is asked for chosen nodes only
        refusals.retain(|refusal| chosen || refusal.kind() != ReasonKind::TerminationProtected);
        let mut refuse = |kind, words: &str| refusals.push(Reason::Cloud(kind, words.to_owned()));
        if *instance.node_name != *node.name {
            refuse(ReasonKind::IdentityMismatch, &format!("{} is the machine of {}", instance.id, instance.node_name));
        }
        if twice {
            refuse(ReasonKind::ClaimedTwice, &format!("two nodes claim {}", instance.id));
        }
        if self.seen_state(instance) != InstanceState::Running {
            refuse(ReasonKind::InstanceInTransition, &format!("{} is on its way out", instance.id));
        }
        let group = instance.spec.group.as_ref().filter(|id| !self.fleets.has_ended(id));
        let group = group.and_then(|id| Some((id, self.groups.get(id)?)));
        if let Some((kind, words)) = group.and_then(|(id, _)| self.fleet_refuses(id, chosen)) {
            refuse(kind, &words);
        }
        let is_pool = group.is_some_and(|(id, _)| self.fleets.has(id));
        if !is_pool && group.is_some_and(|(_, group)| group.desired <= group.floor) {
            refuse(ReasonKind::GroupAtMinimum, "the group is at its minimum size");
        }
        let machine = match self.settings.machines {
            MachineKind::Instance => Machine::Instance(instance.id.clone()),
            MachineKind::WithNode => Machine::WithNode,
        };
        let group = group.map(|(id, group)| CloudGroup {
            id: id.clone(),
            desired: group.desired,
            floor: group.floor,
            weight: instance.spec.weight,
            kind: match (group.is_fleet, is_pool) {
                (false, _) => GroupKind::Group,
                (true, false) => GroupKind::Fleet { on_demand: group.desired },
                (true, true) => GroupKind::Fleet { on_demand: 0 },
            },
        });
        Some(CloudFact { class: instance.class, machine: (!instance.stays).then_some(machine), group, refusals })
    }

    pub(super) fn seen_state(&self, instance: &Instance) -> InstanceState {
        let hidden = instance.deleted_at.is_some_and(|at| self.now() < at + self.settings.describe_lag);
        match instance.life {
            _ if hidden => InstanceState::Running,
            Life::Running => InstanceState::Running,
            Life::ShuttingDown => self.settings.hook.clone().map_or(InstanceState::ShuttingDown, InstanceState::Held),
            Life::Gone => InstanceState::Gone,
        }
    }

    fn delete_instance(&mut self, retired: &RetiredNode, process: ProcessId) -> Result<Option<Deletion>, PortError> {
        let node = retired.node();
        let refused = |why: String| Err(PortError::new(ErrorClass::Permanent, why));
        let no = match (retired.instance(), self.settings.machines) {
            (None, MachineKind::WithNode) => {
                return match self.node_of(&node.reference()) {
                    None => Ok(Some(Deletion::WithNode)),
                    Some(id) if self.goes_with_object(id, node) => Ok(Some(Deletion::WithNode)),
                    Some(_) => refused(format!("nobody would remove the machine of node {}", node.name)),
                };
            }
            (None, MachineKind::Instance) => {
                return refused(format!("the claim on node {} names no instance", node.name));
            }
            (Some(id), MachineKind::WithNode) => {
                return refused(format!("{id} goes with its Node object, not by itself"));
            }
            // forgotten, as instances are some time after their end
            (Some(id), MachineKind::Instance) => match self.instance_no(id) {
                None => return Ok(Some(Deletion::Accepted)),
                Some(no) => no,
            },
        };
        let Some(instance) = self.instances.get(no.0) else { return Ok(Some(Deletion::Accepted)) };
        // what the object says now counts, not what the caller saw of it
        let current = self.node_of(&node.reference()).and_then(|id| self.node_entry(id));
        let current_node = current.map_or(node, |entry| &entry.snapshot);
        if self.own_machine(current_node) != Some(no) || *instance.node_name != *node.name {
            return refused(format!("{} is not the machine of node {}", instance.id, node.name));
        }
        let claimed_by = self.truth.nodes().iter().filter(|other| self.own_machine(other) == Some(no));
        if claimed_by.count() > 1 {
            return refused(format!("two nodes claim {}", instance.id));
        }
        if instance.life != Life::Running {
            // a process that has asked knows it; another one is told late, and its request lowers the group once more
            let asked_twice = self.seen_state(instance) == InstanceState::Running && instance.asked_by != Some(process);
            let group = instance.spec.group.clone().filter(|group| asked_twice && !self.fleets.has(group));
            if let Some(group) = group.and_then(|group| self.groups.get_mut(&group)) {
                group.desired = group.desired.saturating_sub(1);
            }
            return Ok(Some(Deletion::Accepted));
        }
        if let Some(refusal) = instance.refusals.first() {
            return refused(format!("the cloud refuses to delete {}: {refusal}", instance.id));
        }
        let group = instance.spec.group.as_ref().and_then(|group| self.groups.get(group));
        let pool = instance.spec.group.clone().filter(|group| self.fleets.has(group));
        if let Some((_, words)) = pool.as_deref().and_then(|fleet| self.fleet_refuses(fleet, true)) {
            return refused(words);
        }
        if pool.is_none() && group.is_some_and(|group| group.desired <= group.floor) {
            return refused(format!("ValidationError: the group of {} is at its minimum size", instance.id));
        }
        // what a process that died here has lowered already could not be told otherwise
        let fleet = instance.spec.group.as_ref().zip(group);
        let fleet = fleet.filter(|(id, group)| group.is_fleet && !self.fleets.has_ended(id));
        let recorded = current.and_then(|entry| entry.snapshot.claim().of(node.uid.as_str())?.fleet_before.clone());
        if let Some((id, group)) = fleet {
            let lowered = |other: &Instance| other.spec.group.as_ref() == Some(id) && other.asked_by == Some(process);
            let knows = self.instances.iter().any(lowered);
            let weight = if pool.is_some() { instance.spec.weight } else { 0 };
            let wanted = group.desired..=group.desired.saturating_add(weight);
            let holds = |before: FleetBefore| {
                before.fleet == *id && (knows || before.target == *wanted.start() || before.target == *wanted.end())
            };
            if !recorded.is_some_and(holds) {
                return refused(format!("the fleet of {} wants something else than is recorded", instance.id));
            }
        }
        if let Some(instance) = self.instances.get_mut(no.0) {
            instance.asked_by = Some(process);
        }
        if self.lower_fleet(no) {
            // that is a change of its own, and has to come to its end
            return Ok(None);
        }
        self.end_machine(no);
        Ok(Some(Deletion::Accepted))
    }

    /// Whether the machine of this node ends when its object is deleted.
    fn goes_with_object(&self, id: NodeId, node: &NodeSnapshot) -> bool {
        let instance = self.node_entry(id).and_then(|entry| self.instances.get(entry.instance.0));
        node.takes_its_machine_along() || instance.is_some_and(|instance| instance.follows)
    }

    /// A machine is to end.
    pub(super) fn end_machine(&mut self, no: InstanceNo) {
        let now = self.now();
        let Some(instance) = self.instances.get_mut(no.0).filter(|instance| instance.life == Life::Running) else {
            return;
        };
        instance.life = Life::ShuttingDown;
        instance.deleted_at = Some(now);
        let (id, name) = (instance.id.clone(), Arc::clone(&instance.node_name));
        let group = instance.spec.group.clone();
        self.let_go_of_a_machine(group.as_deref());
        let node = self.node_named(&name).filter(|node| self.node_entry(*node).is_some_and(|n| n.instance == no));
        if let Some(entry) = node.and_then(|node| self.node_entry(node)) {
            let node = entry.snapshot.reference();
            let pods = self.movable_pods_on(&node);
            let tainted_for = tainted_since(&entry.snapshot)
                .map(|since| Duration::try_from(self.wall().duration_since(since)).unwrap_or_default());
            self.note(Fact::MachineDeleted { instance: id, node, pods, tainted_for });
        }
        self.after(self.settings.machine_gone, Event::MachineGone(no));
    }

    /// A group wants no other in place of a machine that goes; a fleet of the pool does.
    pub(super) fn let_go_of_a_machine(&mut self, group: Option<&str>) {
        let Some(id) = group else { return };
        if self.fleets.has(id) {
            self.look_after(id);
        } else if let Some(group) = self.groups.get_mut(id) {
            group.desired = group.desired.saturating_sub(1);
        }
    }

    pub(super) fn machine_gone(&mut self, no: InstanceNo) {
        let Some(instance) = self.instances.get_mut(no.0) else { return };
        instance.life = Life::Gone;
        let (id, name) = (instance.id.clone(), Arc::clone(&instance.node_name));
        self.note(Fact::MachineGone(id));
        let node = self.node_named(&name).filter(|node| self.node_entry(*node).is_some_and(|n| n.instance == no));
        if let Some(node) = node {
            self.set_alive(node, false);
            self.after(self.settings.node_gone, Event::ObjectGone(node));
        }
    }
}

/// Since when a node carries the taint that takes it out of load balancers, by the taint's own word.
fn tainted_since(node: &NodeSnapshot) -> Option<Timestamp> {
    let taint = node.taints.iter().find(|taint| taint.is(key::TO_BE_DELETED, Effect::NoSchedule))?;
    Timestamp::from_second(taint.value.parse().ok()?).ok()
}

#[async_trait]
impl CloudProvider for Process {
    async fn survey(
        &self,
        nodes: &[Arc<NodeSnapshot>],
        chosen: &[NodeRef],
        freshness: Freshness,
        by: Instant,
    ) -> Result<CloudFacts, PortError> {
        let call = Call::Survey { nodes: nodes.len(), chosen: chosen.to_vec(), freshness };
        self.call(call, by, |world: &mut World| Ok((world.facts_of(nodes, chosen), Answer::Done))).await
    }

    async fn detach(&self, node: &NodeSnapshot, tainted_at: Option<Timestamp>, write: &Write) -> Result<(), PortError> {
        write.permit()?;
        let call = Call::Detach { node: node.reference(), tainted_at };
        let drained = self.call(call, write.by, |world: &mut World| {
            let (now, drain) = (world.wall(), world.settings().load_balancer_drain);
            // a moment in the future, or none, tells nothing: the full wait
            let since = tainted_at.filter(|at| *at <= now).unwrap_or(now);
            let left = Duration::try_from(later(since, drain).duration_since(now)).unwrap_or_default();
            Ok((world.now() + left, Answer::Done))
        });
        let drained = drained.await?;
        crate::ports::Clock::sleep_until(self, drained.min(write.by)).await;
        if drained > write.by {
            return Err(PortError::new(
                ErrorClass::Timeout,
                format!("load balancers still send traffic to {}", node.name),
            ));
        }
        Ok(())
    }

    async fn attach(&self, node: &NodeSnapshot, write: &Write) -> Result<(), PortError> {
        write.permit()?;
        self.call(Call::Attach { node: node.reference() }, write.by, |_: &mut World| Ok(((), Answer::Done))).await
    }

    async fn delete_instance(&self, node: &RetiredNode, write: &Write) -> Result<Deletion, PortError> {
        write.permit()?;
        let call = Call::DeleteInstance { node: node.node().reference(), instance: node.instance().cloned() };
        loop {
            let settles = self.model.with(|world| world.settles(node.instance()));
            self.until_settled(settles, write.by).await?;
            let effect = |world: &mut World| {
                if world.settles(node.instance()) > world.now() {
                    return Ok((None, Answer::Failed(ErrorClass::Transient, "the fleet is being modified".to_owned())));
                }
                let deletion = world.delete_instance(node, self.id())?;
                let answer = deletion.map_or(Answer::Done, Answer::Deletion);
                Ok((deletion, answer))
            };
            if let Some(deletion) = self.call(call.clone(), write.by, effect).await? {
                return Ok(deletion);
            }
        }
    }

    async fn instance_state(&self, instance: &InstanceId, by: Instant) -> Result<InstanceState, PortError> {
        let call = Call::InstanceState(instance.clone());
        let effect = |world: &mut World| {
            let known = world.instance_no(instance).and_then(|no| world.instances.get(no.0));
            let state = known.map_or(InstanceState::Gone, |instance| world.seen_state(instance));
            Ok((state.clone(), Answer::Instance(state)))
        };
        self.call(call, by, effect).await
    }
}
