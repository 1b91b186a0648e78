//! An adapter for a cloud of one's own: four questions to answer, and the run loop does the rest.
//!
//! The cluster is the model's here, so that it runs anywhere; a real one is `spot_kube::KubeCluster`.
//!
//! `cargo run -p spot-core --example own_cloud --features model`

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use spot_core::Migrator;
use spot_core::capacity::CapacityLabels;
use spot_core::claim::{InstanceId, Machine};
use spot_core::cloud::{CloudFact, CloudFacts, Deletion, Freshness, InstanceState};
use spot_core::error::{ErrorClass, PortError};
use spot_core::migrator::Settings;
use spot_core::model::{self, MachineKind, WorldBuilder};
use spot_core::node::{NodeRef, NodeSnapshot};
use spot_core::ports::{CloudProvider, Instant, Ports, Silent, Write};
use spot_core::retire::RetiredNode;
use spot_core::schedule::Schedule;
use spot_core::stop::Stop;

/// A cloud whose machines go when their Node objects are deleted.
#[derive(Default)]
struct OwnCloud {
    labels: CapacityLabels,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl CloudProvider for OwnCloud {
    async fn survey(
        &self,
        nodes: &[Arc<NodeSnapshot>],
        _chosen: &[NodeRef],
        _freshness: Freshness,
        _by: Instant,
    ) -> Result<CloudFacts, PortError> {
        let fact = |node: &NodeSnapshot| CloudFact {
            class: self.labels.classify(node),
            machine: Some(Machine::WithNode),
            group: None,
            refusals: Vec::new(),
        };
        Ok(nodes.iter().map(|node| (node.uid.clone(), fact(node))).collect())
    }

    async fn detach(&self, _node: &NodeSnapshot, _tainted: Option<Timestamp>, _write: &Write) -> Result<(), PortError> {
        Ok(())
    }

    async fn delete_instance(&self, node: &RetiredNode, _write: &Write) -> Result<Deletion, PortError> {
        self.asked
            .lock()
            .map_err(|_| PortError::new(ErrorClass::Permanent, "poisoned"))?
            .push(node.node().name.to_string());
        Ok(Deletion::WithNode)
    }

    async fn instance_state(&self, instance: &InstanceId, _by: Instant) -> Result<InstanceState, PortError> {
        Err(PortError::new(ErrorClass::Permanent, format!("no machine is named {instance} here")))
    }
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = WorldBuilder::default()
        .settings(|settings| settings.machines = MachineKind::WithNode)
        .control_plane(1)
        .on_demand(3)
        .spot(2)
        .guarded("web", 12, 1)
        .build();
    let cloud = Arc::new(OwnCloud::default());
    let ports = Ports { cloud: Arc::clone(&cloud) as _, ..world.ports(Arc::new(Silent)) };
    let schedule = Schedule::parse("@hourly", &TimeZone::UTC)?;
    let migrator = Migrator::new(ports, Settings::new(schedule));

    let stop = Stop::default();
    let report = model::block_on(&world, async { migrator.once(&stop).await })??;
    println!(
        "{}: {} nodes retired, {} evictions",
        report.outcome.kind().as_str(),
        report.retired.len(),
        report.evictions
    );
    println!("the cloud was asked for {:?}", cloud.asked.lock().map_err(|_| "poisoned")?);
    Ok(())
}
