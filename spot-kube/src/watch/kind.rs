//! What differs between the kinds that are watched.

use std::fmt::Debug;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use spot_core::node::{NodeSnapshot, Uid};
use spot_core::pod::{BudgetRef, BudgetSnapshot, PodSnapshot};
use spot_core::ports::Scope;
use spot_core::view::Change;
use spot_core::volume::{AttachmentSnapshot, VolumeChange, VolumeClaimRef, VolumeClaimSnapshot, VolumeSnapshot};

use super::PauseAt;
use crate::list::Source;
use crate::memory;
use crate::requests::escaped;
use crate::snapshot::doubt::{self, Doubt};
use crate::snapshot::{self, Interner, Metadata, Object, Unreadable};

/// A kind of objects.
pub(crate) trait Kind: Send + 'static {
    /// An object as it is sent.
    type Raw: DeserializeOwned + Object + Clone + Send;
    /// What identifies one.
    type Key: Ord + Clone + Send;
    /// What is kept of one.
    type Seen: Clone + Debug + Send + Sync;

    /// Where they are.
    fn source(&self) -> Source;
    /// What identifies one, even if the rest of it can't be read.
    fn key(metadata: &Metadata) -> Option<Self::Key>;
    /// Reads one.
    fn read(&mut self, object: Self::Raw) -> Result<(Self::Key, Self::Seen), Unreadable>;
    /// What can't be read on one, though the rest of it can.
    fn doubts(_object: &Self::Raw) -> Vec<Doubt> {
        Vec::new()
    }
    /// What happened to a view that showed `before` and is to show `now`.
    fn changes(before: Option<&Self::Seen>, now: &Self::Seen) -> Vec<Change>;
    /// What happened when it is gone.
    fn gone(key: &Self::Key, last: &Self::Seen) -> Change;
}

/// Nodes: all of them, or the one of this name.
pub(crate) struct Nodes(Option<String>);

impl Nodes {
    pub(crate) fn of(scope: &Scope) -> Self {
        Self(name(scope))
    }
}

impl Kind for Nodes {
    type Raw = snapshot::Node;
    type Key = Uid;
    type Seen = Arc<NodeSnapshot>;

    fn source(&self) -> Source {
        let all = Source::new("nodes", "/api/v1/nodes");
        match &self.0 {
            Some(name) => all.with_field("metadata.name", name),
            None => all,
        }
    }

    fn key(metadata: &Metadata) -> Option<Uid> {
        metadata.uid()
    }

    fn read(&mut self, object: Self::Raw) -> Result<(Uid, Self::Seen), Unreadable> {
        let node = snapshot::node(object)?;
        Ok((node.uid.clone(), Arc::new(node)))
    }

    fn doubts(object: &Self::Raw) -> Vec<Doubt> {
        doubt::of_node(object)
    }

    fn changes(before: Option<&Self::Seen>, now: &Self::Seen) -> Vec<Change> {
        unless_equal(before, now, Change::Node(Arc::clone(now)))
    }

    fn gone(key: &Uid, _last: &Self::Seen) -> Change {
        Change::NodeGone(key.clone())
    }
}

/// Pods: all of them, or those of the node of this name.
pub(crate) struct Pods {
    node: Option<String>,
    texts: Interner,
}

impl Pods {
    pub(crate) fn of(scope: &Scope) -> Self {
        Self { node: name(scope), texts: Interner::default() }
    }
}

impl Kind for Pods {
    type Raw = snapshot::Pod;
    type Key = Uid;
    type Seen = Arc<PodSnapshot>;

    fn source(&self) -> Source {
        let all = Source::new("pods", "/api/v1/pods");
        match &self.node {
            Some(name) => all.with_field("spec.nodeName", name),
            None => all,
        }
    }

    fn key(metadata: &Metadata) -> Option<Uid> {
        metadata.uid()
    }

    fn read(&mut self, object: Self::Raw) -> Result<(Uid, Self::Seen), Unreadable> {
        let pod = snapshot::pod(object, &mut self.texts)?;
        Ok((pod.uid.clone(), Arc::new(pod)))
    }

    fn doubts(object: &Self::Raw) -> Vec<Doubt> {
        doubt::of_pod(object)
    }

    fn changes(before: Option<&Self::Seen>, now: &Self::Seen) -> Vec<Change> {
        unless_equal(before, now, Change::Pod(Arc::clone(now)))
    }

    fn gone(_key: &Uid, last: &Self::Seen) -> Change {
        Change::PodGone(Arc::clone(last))
    }
}

/// PodDisruptionBudgets.
pub(crate) struct Budgets;

impl Kind for Budgets {
    type Raw = snapshot::Budget;
    type Key = BudgetRef;
    type Seen = Arc<BudgetSnapshot>;

    fn source(&self) -> Source {
        Source::new("poddisruptionbudgets", "/apis/policy/v1/poddisruptionbudgets")
    }

    fn key(metadata: &Metadata) -> Option<BudgetRef> {
        let (namespace, name) = metadata.address()?;
        Some(BudgetRef { namespace: namespace.into(), name: name.into() })
    }

    fn read(&mut self, object: Self::Raw) -> Result<(BudgetRef, Self::Seen), Unreadable> {
        let budget = snapshot::budget(object)?;
        Ok((budget.reference(), Arc::new(budget)))
    }

    fn doubts(object: &Self::Raw) -> Vec<Doubt> {
        doubt::of_budget(object)
    }

    fn changes(before: Option<&Self::Seen>, now: &Self::Seen) -> Vec<Change> {
        unless_equal(before, now, Change::Budget(Arc::clone(now)))
    }

    fn gone(key: &BudgetRef, _last: &Self::Seen) -> Change {
        Change::BudgetGone(key.clone())
    }
}

/// DaemonSets, of which only the existence counts.
pub(crate) struct DaemonSets;

impl Kind for DaemonSets {
    type Raw = snapshot::Named;
    type Key = Uid;
    type Seen = Uid;

    fn source(&self) -> Source {
        Source { metadata_only: true, ..Source::new("daemonsets", "/apis/apps/v1/daemonsets") }
    }

    fn key(metadata: &Metadata) -> Option<Uid> {
        metadata.uid()
    }

    fn read(&mut self, object: Self::Raw) -> Result<(Uid, Uid), Unreadable> {
        let uid = snapshot::daemon_set(&object)?;
        Ok((uid.clone(), uid))
    }

    fn changes(before: Option<&Uid>, now: &Uid) -> Vec<Change> {
        unless_equal(before, now, Change::DaemonSet(now.clone()))
    }

    fn gone(key: &Uid, _last: &Uid) -> Change {
        Change::DaemonSetGone(key.clone())
    }
}

/// PersistentVolumeClaims.
#[derive(Default)]
pub(crate) struct VolumeClaims(Interner);

impl Kind for VolumeClaims {
    type Raw = snapshot::VolumeClaim;
    type Key = VolumeClaimRef;
    type Seen = Arc<VolumeClaimSnapshot>;

    fn source(&self) -> Source {
        Source::new("persistentvolumeclaims", "/api/v1/persistentvolumeclaims")
    }

    fn key(metadata: &Metadata) -> Option<VolumeClaimRef> {
        let (namespace, name) = metadata.address()?;
        Some(VolumeClaimRef { namespace: namespace.into(), name: name.into() })
    }

    fn read(&mut self, object: Self::Raw) -> Result<(VolumeClaimRef, Self::Seen), Unreadable> {
        let claim = snapshot::volume_claim(object, &mut self.0)?;
        Ok((claim.claim.clone(), Arc::new(claim)))
    }

    fn changes(before: Option<&Self::Seen>, now: &Self::Seen) -> Vec<Change> {
        unless_equal(before, now, Change::Volume(VolumeChange::Claim(Arc::clone(now))))
    }

    fn gone(key: &VolumeClaimRef, _last: &Self::Seen) -> Change {
        Change::Volume(VolumeChange::ClaimGone(key.clone()))
    }
}

/// PersistentVolumes.
#[derive(Default)]
pub(crate) struct Volumes(Interner);

impl Kind for Volumes {
    type Raw = snapshot::Volume;
    type Key = Arc<str>;
    type Seen = Arc<VolumeSnapshot>;

    fn source(&self) -> Source {
        Source::new("persistentvolumes", "/api/v1/persistentvolumes")
    }

    fn key(metadata: &Metadata) -> Option<Arc<str>> {
        metadata.name().map(Arc::from)
    }

    fn read(&mut self, object: Self::Raw) -> Result<(Arc<str>, Self::Seen), Unreadable> {
        let volume = snapshot::volume(object, &mut self.0)?;
        Ok((Arc::clone(&volume.name), Arc::new(volume)))
    }

    fn changes(before: Option<&Self::Seen>, now: &Self::Seen) -> Vec<Change> {
        unless_equal(before, now, Change::Volume(VolumeChange::Volume(Arc::clone(now))))
    }

    fn gone(key: &Arc<str>, _last: &Self::Seen) -> Change {
        Change::Volume(VolumeChange::VolumeGone(Arc::clone(key)))
    }
}

/// VolumeAttachments.
#[derive(Default)]
pub(crate) struct Attachments(Interner);

impl Kind for Attachments {
    type Raw = snapshot::Attachment;
    type Key = Arc<str>;
    type Seen = Arc<AttachmentSnapshot>;

    fn source(&self) -> Source {
        Source::new("volumeattachments", "/apis/storage.k8s.io/v1/volumeattachments")
    }

    fn key(metadata: &Metadata) -> Option<Arc<str>> {
        metadata.name().map(Arc::from)
    }

    fn read(&mut self, object: Self::Raw) -> Result<(Arc<str>, Self::Seen), Unreadable> {
        let attachment = snapshot::attachment(object, &mut self.0)?;
        Ok((Arc::clone(&attachment.name), Arc::new(attachment)))
    }

    fn changes(before: Option<&Self::Seen>, now: &Self::Seen) -> Vec<Change> {
        unless_equal(before, now, Change::Volume(VolumeChange::Attached(Arc::clone(now))))
    }

    fn gone(key: &Arc<str>, _last: &Self::Seen) -> Change {
        Change::Volume(VolumeChange::Detached(Arc::clone(key)))
    }
}

/// The one ConfigMap, of which only the pause counts here.
pub(crate) struct Pause(pub(crate) PauseAt);

impl Kind for Pause {
    type Raw = snapshot::ConfigMap;
    type Key = ();
    type Seen = bool;

    fn source(&self) -> Source {
        let path = format!("/api/v1/namespaces/{}/configmaps", escaped(&self.0.namespace));
        Source::new("configmaps", path).with_field("metadata.name", &self.0.config_map)
    }

    fn key(_metadata: &Metadata) -> Option<()> {
        Some(())
    }

    fn read(&mut self, object: Self::Raw) -> Result<((), bool), Unreadable> {
        Ok(((), memory::paused(&object)))
    }

    fn changes(before: Option<&bool>, now: &bool) -> Vec<Change> {
        unless_equal(before, now, Change::Paused(*now))
    }

    fn gone(_key: &(), _last: &bool) -> Change {
        Change::Paused(false)
    }
}

fn unless_equal<T: PartialEq>(before: Option<&T>, now: &T, change: Change) -> Vec<Change> {
    if before == Some(now) { Vec::new() } else { vec![change] }
}

fn name(scope: &Scope) -> Option<String> {
    match scope {
        Scope::Cluster => None,
        Scope::Node(name) => Some(name.clone()),
    }
}
