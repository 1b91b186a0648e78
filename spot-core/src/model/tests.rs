//! Tests of the world itself, through its public face.

mod budgets;
mod changes;
mod fleets;
mod likeness;
mod machines;
mod processes;
mod promises;

use std::sync::Arc;
use std::time::Duration;

use super::{Model, Process, World};
use crate::claim::{Claim, ClaimStep, Machine, Owner};
use crate::node::{NodeRef, NodeSnapshot};
use crate::pod::{PodRef, PodSnapshot};
use crate::ports::{Alone, Instant, Ports, Silent, Write};

/// A process that is alone, as tests use it.
struct Tester {
    model: Model,
    process: Process,
    ports: Ports,
}

impl Tester {
    fn of(model: &Model) -> Self {
        let process = model.process();
        let ports = process.ports_alone(Arc::new(Silent));
        Self { model: model.clone(), process, ports }
    }

    fn by(&self) -> Instant {
        self.ports.clock.instant() + Duration::from_mins(1)
    }

    fn write(&self) -> Write {
        Write::assume(self.by(), Arc::new(Alone))
    }

    fn pass(&self, time: Duration) {
        let at = self.ports.clock.instant() + time;
        self.model.run_until(at).unwrap();
    }
}

fn node(model: &Model, name: &str) -> Arc<NodeSnapshot> {
    model.with(|world| Arc::clone(world.node(name).unwrap()))
}

fn node_at(model: &Model, name: &str) -> NodeRef {
    node(model, name).at_version()
}

/// A claim of the migrator's on a node whose machine is about to be deleted.
fn claim(model: &Model, name: &str) -> Claim {
    let node = node(model, name);
    let instance = model.with(|world| world.instance_of_uid(node.uid.as_str()).unwrap().clone());
    Claim {
        owner: Owner::Migrator,
        node: node.uid.clone(),
        machine: Machine::Instance(instance),
        boot_id: node.boot_id.clone(),
        step: ClaimStep::Deleting,
        cordoned: true,
        taint: None,
        since: node.created_at,
        own_pod_left: false,
        restored: false,
        until: None,
        fleet_before: None,
    }
}

fn pods_of(world: &World, app: &str) -> Vec<Arc<PodSnapshot>> {
    let pods = world.view().pods().filter(|pod| pod.labels.get("app").is_some_and(|label| label == app));
    let mut pods: Vec<_> = pods.cloned().collect();
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    pods
}

fn refs(model: &Model, app: &str) -> Vec<PodRef> {
    model.with(|world| pods_of(world, app).iter().map(|pod| pod.reference()).collect())
}

fn ready(model: &Model, app: &str) -> usize {
    model.with(|world| pods_of(world, app).iter().filter(|pod| pod.ready && pod.is_active()).count())
}

fn nodes_of(model: &Model, app: &str) -> Vec<String> {
    model
        .with(|world| pods_of(world, app).iter().filter_map(|pod| pod.node.as_ref().map(ToString::to_string)).collect())
}

const SECOND: Duration = Duration::from_secs(1);
