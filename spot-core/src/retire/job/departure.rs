//! Awaits that a machine whose deletion was accepted is gone, and its Node object with it.

use std::sync::Arc;
use std::time::Duration;

use super::Job;
use crate::claim::{InstanceId, Machine};
use crate::cloud::InstanceState;
use crate::error::{ErrorClass, PortError, chain};
use crate::ports::{Erased, Instant};
use crate::progress::Step;
use crate::retire::permit::DeletableNode;
use crate::retire::{CONFLICTS, Halt, record};
use crate::wait::{self, REQUEST, within};

impl Job<'_> {
    /// Awaits the end of a node that an earlier process had deleted.
    pub(in crate::retire) async fn follow(&mut self) -> Result<(), Halt> {
        // Counted from the taint, which was put on shortly before: each run must not wait as long again.
        let settings = self.retirer.settings;
        let clock = &self.retirer.ports.clock;
        let waited = record::tainted_at(&self.node)
            .map_or(Duration::ZERO, |at| Duration::try_from(clock.now().duration_since(at)).unwrap_or(Duration::ZERO));
        let (load_balancer, _) = settings.load_balancer;
        let until = clock.instant() + (load_balancer + settings.node_gone_timeout).saturating_sub(waited);
        self.stage(Step::AwaitGone).ends(self.await_gone(until)).await
    }

    /// Waits until the Node object is gone, as long again if a lifecycle hook holds its machine. Past the deadline the
    /// cloud's word decides.
    pub(super) async fn await_gone(&mut self, until: Instant) -> Result<(), Halt> {
        if self.gone_by(until).await? {
            return Ok(());
        }
        let Machine::Instance(instance) = self.machine.clone() else {
            let holding = self.node.finalizers.join(", ");
            return Err(Halt::Departing(format!(
                "node_object_stuck: its Node object does not go; finalizers: {holding}"
            )));
        };
        let mut state = self.state_of(&instance).await;
        if matches!(state, Ok(InstanceState::Held(_))) {
            let until = self.retirer.ports.clock.instant() + self.retirer.settings.node_gone_timeout;
            if self.gone_by(until).await? {
                return Ok(());
            }
            state = self.state_of(&instance).await;
        }
        match state {
            Ok(InstanceState::Gone) if self.retirer.settings.delete_node_object => {}
            Ok(InstanceState::Gone) => {
                let why = format!("node_object_stuck: instance {instance} is gone, but its Node object is not");
                return Err(Halt::Departing(why));
            }
            Ok(InstanceState::Held(hooks)) => {
                return Err(Halt::Departing(format!("instance {instance} is held by lifecycle hook {hooks}")));
            }
            Ok(InstanceState::ShuttingDown) => {
                return Err(Halt::Departing(format!("instance {instance} is still shutting down")));
            }
            Ok(InstanceState::Running) => {
                return Err(Halt::Departing(format!(
                    "instance {instance} still runs, though its deletion was accepted"
                )));
            }
            Err(error) if error.class == ErrorClass::NotLeader => return Err(Halt::NotLeader),
            Err(error) => {
                return Err(Halt::Departing(format!("instance {instance} can't be asked for: {}", chain(&error))));
            }
        }
        self.erase().await
    }

    async fn state_of(&self, instance: &InstanceId) -> Result<InstanceState, PortError> {
        wait::instance_state(self.retirer.ports, instance, REQUEST).await
    }

    /// Deletes a Node object whose machine is gone, unless another machine has taken it over.
    async fn erase(&mut self) -> Result<(), Halt> {
        let ports = self.retirer.ports;
        for _conflict in 0..CONFLICTS {
            if self.claim.as_ref().is_some_and(|claim| claim.boot_id != self.node.boot_id) {
                return Err(Halt::Departing("another machine has taken its Node object over".to_owned()));
            }
            let (by, write) = self.retirer.write(self.purpose.lane());
            let node = DeletableNode::without_machine(self.node.at_version());
            match within(ports, by, "deleting the Node object", ports.cluster.delete_node(&node, &write)).await {
                Ok(Erased::Changed(now)) => self.node = now,
                Ok(Erased::Gone) if self.gone_by(ports.clock.instant() + REQUEST).await? => return Ok(()),
                Ok(Erased::Gone) => break,
                Err(error) if error.class == ErrorClass::NotLeader => return Err(Halt::NotLeader),
                Err(error) => return Err(Halt::Departing(format!("node_object_stuck: {}", chain(&error)))),
            }
        }
        Err(Halt::Departing("node_object_stuck: its Node object was deleted, but does not go".to_owned()))
    }

    async fn gone_by(&mut self, until: Instant) -> Result<bool, Halt> {
        let ports = self.retirer.ports;
        loop {
            let view = self.retirer.live.view();
            let revision = view.revision();
            let Some(node) = view.node(self.node.uid.as_str()) else { return Ok(true) };
            self.node = Arc::clone(node);
            drop(view);
            if self.retirer.stop.is_set() {
                return Err(Halt::Stopped);
            }
            if ports.clock.instant() >= until {
                return Ok(false);
            }
            if let Err(error) = wait::change(ports, self.retirer.live, self.retirer.stop, revision, until).await {
                // The deletion is accepted; that we can't watch it end is no reason to take anything back.
                return Err(Halt::Departing(format!("it can't be watched any more: {}", chain(&error))));
            }
        }
    }
}
