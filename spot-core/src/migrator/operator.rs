//! What a person asks for by hand: a pause, and everything of ours off a node.

use std::sync::Arc;

use super::{Latest, Migrator, Settings};
use crate::claim::Claim;
use crate::error::{ErrorClass, PortError, RunError};
use crate::judge::Policy;
use crate::memory::Memory;
use crate::node::{Effect, Node, NodeRef, NodeSnapshot, key};
use crate::ports::{Edit, Lane, NodeChange, Write};
use crate::retire::{Retirer, record};
use crate::run::{self, run_error};
use crate::stop::Stop;
use crate::wait::{REQUEST, within};

/// How often the memory is written anew when somebody else wrote it in between.
const TRIES: u32 = 5;

/// Which nodes are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those of these names.
    Named(Vec<String>),
    /// All.
    All,
}

/// What became of a node that was to be released.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Freed {
    /// Everything of ours is off it.
    Released(NodeRef),
    /// Nothing of ours was on it.
    Untouched(NodeRef),
    /// Its machine is on its way out: nothing may be taken back.
    Departing(NodeRef),
    /// It could not be written; what stood in the way was reported.
    Failed(NodeRef),
    /// There is no node of this name.
    Unknown(String),
}

impl Migrator {
    /// Takes everything of ours, the back-off too, off nodes that are not departing, whoever leads. The answer is in
    /// the order of the names.
    ///
    /// # Errors
    /// When the cluster could not be read.
    pub async fn release(&self, which: &Which) -> Result<Vec<Freed>, RunError> {
        let live = run::open(&self.ports).await?;
        let view = live.view();
        let stop = Stop::default();
        let Latest(settings) = self.settings.get();
        let Settings { policy: Policy { drain: rules, own_pod, .. }, retire: settings, .. } = &*settings;
        let (ports, own_pod) = (&self.ports, own_pod.as_ref());
        let retirer = Retirer { ports, live: &*live, settings, rules, own_pod, hold: &self.hold, stop: &stop };
        let mut freed = Vec::new();
        for (name, node) in chosen(view.nodes(), which) {
            let Some(node) = node else {
                freed.push(Freed::Unknown(name));
                continue;
            };
            let reference = node.reference();
            let until = self.ports.clock.instant() + settings.grace_period;
            freed.push(if node.claim().of(node.uid.as_str()).is_some_and(Claim::is_departing) {
                Freed::Departing(reference)
            } else if freeing(node) == NodeChange::default() {
                Freed::Untouched(reference)
            } else if retirer.rewrite(&reference, Lane::Planned, until, freeing).await.is_ok() {
                Freed::Released(reference)
            } else {
                Freed::Failed(reference)
            });
        }
        Ok(freed)
    }

    /// Holds planned work back, or lets it go on: whoever leads sees it before its next destructive step. Returns
    /// whether that was not so before.
    ///
    /// # Errors
    /// When the memory could not be read or written.
    pub async fn pause(&self, paused: bool) -> Result<bool, RunError> {
        let mut tries = 1;
        loop {
            let by = self.ports.clock.instant() + REQUEST;
            let recall = self.ports.cluster.recall(by);
            let memory = within(&self.ports, by, "reading the memory", recall).await.map_err(memory_error)?;
            if memory.paused == paused {
                return Ok(tries > 1);
            }
            let write = Write::new(by, Lane::Planned, Arc::clone(&self.ports.leadership));
            let wanted = Memory { paused, ..memory };
            let remember = self.ports.cluster.remember(&wanted, &write);
            match within(&self.ports, by, "writing the memory", remember).await {
                Ok(_) => return Ok(true),
                Err(error) if error.class == ErrorClass::Transient && tries < TRIES => tries += 1,
                Err(error) => return Err(memory_error(error)),
            }
        }
    }
}

fn memory_error(error: PortError) -> RunError {
    run_error(error, RunError::Memory)
}

fn chosen<'n>(nodes: &'n [Arc<NodeSnapshot>], which: &Which) -> Vec<(String, Option<&'n Arc<NodeSnapshot>>)> {
    let mut chosen: Vec<_> = match which {
        Which::All => nodes.iter().map(|node| (node.name.to_string(), Some(node))).collect(),
        Which::Named(names) => {
            let find = |name: &String| nodes.iter().find(|node| *node.name == **name);
            names.iter().map(|name| (name.clone(), find(name))).collect()
        }
    };
    chosen.sort_by(|(one, _), (other, _)| one.cmp(other));
    chosen
}

/// Everything of ours off a node, unless it is departing by now.
fn freeing(node: &NodeSnapshot) -> NodeChange {
    let claim = node.claim().of(node.uid.as_str());
    if claim.is_some_and(Claim::is_departing) {
        return NodeChange::default();
    }
    let back_off = if node.back_off.is_some() { Edit::Remove } else { Edit::Keep };
    let released = record::releasing(node, claim, None);
    let mut taints = released.taints.clone().unwrap_or_else(|| node.taints.clone());
    taints.retain(|taint| !taint.is(key::REBALANCE, Effect::PreferNoSchedule));
    NodeChange { back_off, taints: (taints.len() != node.taints.len()).then_some(taints), ..released }
}
