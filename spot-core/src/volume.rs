//! Persistent volumes: which pods have which, where they can go, and where they are attached.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::placement::Terms;

/// A PersistentVolumeClaim as a pod names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodClaim {
    /// Its name, in the pod's namespace.
    pub name: Arc<str>,
    /// It is made with the pod and goes with it: its volume binds no successor to a place.
    pub ephemeral: bool,
}

/// Which PersistentVolumeClaim is meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeClaimRef {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl fmt::Display for VolumeClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A PersistentVolumeClaim as an adapter saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeClaimSnapshot {
    /// Which object this is.
    pub claim: VolumeClaimRef,
    /// The name of the volume that it is bound to.
    pub volume: Option<Arc<str>>,
}

/// Where a volume can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// On any node.
    #[default]
    Anywhere,
    /// On nodes that meet one of these terms: those of a zone, mostly.
    Nodes(Arc<Terms>),
    /// On one host only: the data is on its disk.
    Host,
}

impl Reach {
    /// Where a volume can be used whose node affinity demands this.
    #[must_use]
    pub fn of(terms: Arc<Terms>) -> Self {
        if terms.bind_to_a_host() { Self::Host } else { Self::Nodes(terms) }
    }
}

/// A PersistentVolume as an adapter saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// Its name.
    pub name: Arc<str>,
    /// Where it can be used.
    pub reach: Reach,
}

/// A VolumeAttachment as an adapter saw it. It exists until the volume is detached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentSnapshot {
    /// Its name.
    pub name: Arc<str>,
    /// The name of the node.
    pub node: Arc<str>,
    /// The name of the volume; none: it has no PersistentVolume.
    pub volume: Option<Arc<str>>,
}

/// One thing that happened to volumes.
#[derive(Clone, Debug)]
pub enum VolumeChange {
    /// A claim as it is now.
    Claim(Arc<VolumeClaimSnapshot>),
    /// A claim is gone.
    ClaimGone(VolumeClaimRef),
    /// A volume as it is now.
    Volume(Arc<VolumeSnapshot>),
    /// The volume of this name is gone.
    VolumeGone(Arc<str>),
    /// An attachment as it is now.
    Attached(Arc<AttachmentSnapshot>),
    /// The attachment of this name is gone.
    Detached(Arc<str>),
}

type Claims = BTreeMap<Arc<str>, Arc<VolumeClaimSnapshot>>;

/// The volumes of a cluster. Clones share what they have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volumes {
    /// Claims by namespace and name.
    claims: Arc<BTreeMap<Arc<str>, Claims>>,
    /// Volumes by name.
    by_name: Arc<BTreeMap<Arc<str>, Arc<VolumeSnapshot>>>,
    attachments: Arc<BTreeMap<Arc<str>, Arc<AttachmentSnapshot>>>,
    /// Names of attachments by node.
    by_node: Arc<BTreeMap<Arc<str>, BTreeSet<Arc<str>>>>,
}

impl Volumes {
    pub(crate) fn apply(&mut self, change: VolumeChange) {
        match change {
            VolumeChange::Claim(claim) => {
                let VolumeClaimRef { namespace, name } = &claim.claim;
                let of_namespace = Arc::make_mut(&mut self.claims).entry(Arc::clone(namespace)).or_default();
                of_namespace.insert(Arc::clone(name), claim);
            }
            VolumeChange::ClaimGone(claim) => {
                let claims = Arc::make_mut(&mut self.claims);
                let Some(of_namespace) = claims.get_mut(&claim.namespace) else { return };
                of_namespace.remove(&claim.name);
                if of_namespace.is_empty() {
                    claims.remove(&claim.namespace);
                }
            }
            VolumeChange::Volume(volume) => {
                Arc::make_mut(&mut self.by_name).insert(Arc::clone(&volume.name), volume);
            }
            VolumeChange::VolumeGone(name) => {
                Arc::make_mut(&mut self.by_name).remove(&name);
            }
            VolumeChange::Attached(attachment) => {
                self.detach(&attachment.name);
                let of_node = Arc::make_mut(&mut self.by_node).entry(Arc::clone(&attachment.node)).or_default();
                of_node.insert(Arc::clone(&attachment.name));
                Arc::make_mut(&mut self.attachments).insert(Arc::clone(&attachment.name), attachment);
            }
            VolumeChange::Detached(name) => self.detach(&name),
        }
    }

    fn detach(&mut self, name: &Arc<str>) {
        if !self.attachments.contains_key(name) {
            return;
        }
        let Some(attachment) = Arc::make_mut(&mut self.attachments).remove(name) else { return };
        let by_node = Arc::make_mut(&mut self.by_node);
        let Some(of_node) = by_node.get_mut(&attachment.node) else { return };
        of_node.remove(name);
        if of_node.is_empty() {
            by_node.remove(&attachment.node);
        }
    }

    /// The name of the volume that a claim is bound to.
    pub(crate) fn bound(&self, namespace: &str, claim: &str) -> Option<&Arc<str>> {
        self.claims.get(namespace)?.get(claim)?.volume.as_ref()
    }

    pub(crate) fn volume(&self, name: &str) -> Option<&Arc<VolumeSnapshot>> {
        self.by_name.get(name)
    }

    pub(crate) fn attached_to(&self, node: &str) -> impl Iterator<Item = &Arc<AttachmentSnapshot>> {
        self.by_node.get(node).into_iter().flatten().filter_map(|name| self.attachments.get(name))
    }
}
