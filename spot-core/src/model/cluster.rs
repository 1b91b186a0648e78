//! The API server, as a process reaches it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{ErrorClass, PortError};
use crate::memory::Memory;
use crate::node::NodeRef;
use crate::pod::PodRef;
use crate::ports::{Cluster, Erased, EvictAnswer, Instant, Live, NodeChange, Scope, Write, Written};
use crate::retire::{DeletableNode, DoomedPod};
use crate::view::Change;

use super::live::ModelLive;
use super::process::{Fate, Process};
use super::record::{Answer, Call, Removal};
use super::world::World;

#[async_trait]
impl Cluster for Process {
    async fn open(&self, scope: Scope, by: Instant) -> Result<Box<dyn Live>, PortError> {
        let call = Call::Open(scope.clone());
        // the guard that `ModelLive` is must not be dropped while the world is locked
        let live =
            self.call(call, by, |world: &mut World| Ok((ModelLive::open(self, world, scope), Answer::Done))).await?;
        Ok(Box::new(live))
    }

    async fn write_node(&self, node: &NodeRef, change: &NodeChange, write: &Write) -> Result<Written, PortError> {
        write.permit()?;
        let call = Call::WriteNode { node: node.clone(), change: Box::new(change.clone()) };
        let effect = |world: &mut World| {
            let (written, answer) = world.write_node(node, change)?;
            if let Written::Applied(node) | Written::Conflict(node) = &written {
                let node = Arc::clone(node);
                world.show_own(self.id(), &node);
            }
            Ok((written, answer))
        };
        self.call(call, write.by, effect).await
    }

    async fn evict(&self, pod: &PodRef, grace: Option<Duration>, write: &Write) -> Result<EvictAnswer, PortError> {
        write.permit()?;
        let call = Call::Evict { pod: pod.clone(), grace };
        let effect = |world: &mut World| {
            let answer = match &world.fate {
                Fate::Evict(answer) => answer.clone(),
                Fate::Normal | Fate::Fail(_) | Fate::Hang | Fate::LoseAnswer | Fate::KillBefore | Fate::KillAfter => {
                    world.evict(pod, grace)
                }
            };
            Ok((answer.clone(), Answer::Eviction(answer)))
        };
        self.call(call, write.by, effect).await
    }

    async fn delete_pod(&self, pod: &DoomedPod, grace: Duration, write: &Write) -> Result<(), PortError> {
        write.permit()?;
        let call = Call::DeletePod { pod: pod.pod().clone(), grace };
        let effect = |world: &mut World| {
            if let Some(id) = world.pod_of(pod.pod()) {
                world.begin_deletion(id, Some(grace), Removal::Deleted);
            }
            Ok(((), Answer::Done))
        };
        self.call(call, write.by, effect).await
    }

    async fn delete_node(&self, node: &DeletableNode, write: &Write) -> Result<Erased, PortError> {
        write.permit()?;
        let call = Call::DeleteNode(node.node().clone());
        let effect = |world: &mut World| {
            let node = node.node();
            let now = world.node(&node.name).filter(|now| now.uid == node.uid).cloned();
            let other = now.filter(|now| node.resource_version.as_ref().is_some_and(|at| *at != now.resource_version));
            if let Some(now) = other {
                return Ok((Erased::Changed(now), Answer::Conflict));
            }
            world.delete_node(node);
            Ok((Erased::Gone, Answer::Done))
        };
        self.call(call, write.by, effect).await
    }

    async fn recall(&self, by: Instant) -> Result<Memory, PortError> {
        let effect = |world: &mut World| {
            let memory = world.memory.clone();
            Ok((memory.clone(), Answer::Memory(memory.version)))
        };
        self.call(Call::Recall, by, effect).await
    }

    async fn remember(&self, memory: &Memory, write: &Write) -> Result<Memory, PortError> {
        write.permit()?;
        let effect = |world: &mut World| {
            let memory = world.remember(memory)?;
            Ok((memory.clone(), Answer::Memory(memory.version)))
        };
        self.call(Call::Remember(memory.clone()), write.by, effect).await
    }
}

impl World {
    /// Writes the memory, if it is still the one that was read.
    fn remember(&mut self, memory: &Memory) -> Result<Memory, PortError> {
        if memory.version != self.memory.version {
            return Err(PortError::new(ErrorClass::Transient, "somebody else wrote the memory"));
        }
        let version = Some(self.next_version());
        self.set_memory(Memory { version, ..memory.clone() });
        Ok(self.memory.clone())
    }

    pub(super) fn set_memory(&mut self, memory: Memory) {
        let paused = memory.paused;
        let changed = paused != self.memory.paused;
        self.memory = memory;
        if changed {
            self.emit(Change::Paused(paused));
        }
    }
}
