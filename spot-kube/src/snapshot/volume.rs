//! PersistentVolumes, their claims and their attachments.

use std::sync::Arc;

use serde::Deserialize;
use spot_core::volume::{AttachmentSnapshot, Reach, VolumeClaimRef, VolumeClaimSnapshot, VolumeSnapshot};

use super::placement::{NodeSelector, terms};
use super::{Interner, Metadata, Object, Subject, Unreadable};

/// A PersistentVolumeClaim, as far as it is read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct VolumeClaim {
    metadata: Option<Metadata>,
    spec: Option<ClaimSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSpec {
    volume_name: Option<String>,
}

/// A PersistentVolume, as far as it is read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Volume {
    metadata: Option<Metadata>,
    spec: Option<VolumeSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeSpec {
    local: Option<OnDisk>,
    host_path: Option<OnDisk>,
    node_affinity: Option<VolumeAffinity>,
}

/// Its fields are not read: being there is enough.
#[derive(Clone, Debug, Deserialize)]
struct OnDisk {}

#[derive(Clone, Debug, Deserialize)]
struct VolumeAffinity {
    required: Option<NodeSelector>,
}

/// A VolumeAttachment, as far as it is read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Attachment {
    metadata: Option<Metadata>,
    spec: Option<AttachmentSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachmentSpec {
    node_name: Option<String>,
    source: Option<Source>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    persistent_volume_name: Option<String>,
}

impl Object for VolumeClaim {
    fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }
}

impl Object for Volume {
    fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }
}

impl Object for Attachment {
    fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }
}

/// The snapshot of a claim.
pub(crate) fn volume_claim(claim: VolumeClaim, texts: &mut Interner) -> Result<VolumeClaimSnapshot, Unreadable> {
    let metadata = claim.metadata.unwrap_or_default();
    let subject = Subject::of("persistentvolumeclaim", &metadata);
    let namespace = texts.text(subject.required("namespace", metadata.namespace.as_ref())?);
    let name = Arc::from(subject.required("name", metadata.name.as_ref())?);
    let volume = claim.spec.unwrap_or_default().volume_name.filter(|name| !name.is_empty());
    Ok(VolumeClaimSnapshot { claim: VolumeClaimRef { namespace, name }, volume: volume.map(Arc::from) })
}

/// The snapshot of a volume.
pub(crate) fn volume(volume: Volume, texts: &mut Interner) -> Result<VolumeSnapshot, Unreadable> {
    let metadata = volume.metadata.unwrap_or_default();
    let subject = Subject::of("persistentvolume", &metadata);
    let name = Arc::from(subject.required("name", metadata.name.as_ref())?);
    let VolumeSpec { local, host_path, node_affinity } = volume.spec.unwrap_or_default();
    if local.is_some() || host_path.is_some() {
        return Ok(VolumeSnapshot { name, reach: Reach::Host });
    }
    let required = node_affinity.and_then(|affinity| affinity.required);
    let reach = required.map_or(Reach::Anywhere, |required| Reach::of(texts.terms(terms(required))));
    Ok(VolumeSnapshot { name, reach })
}

/// The snapshot of an attachment.
pub(crate) fn attachment(attachment: Attachment, texts: &mut Interner) -> Result<AttachmentSnapshot, Unreadable> {
    let metadata = attachment.metadata.unwrap_or_default();
    let subject = Subject::of("volumeattachment", &metadata);
    let name = Arc::from(subject.required("name", metadata.name.as_ref())?);
    let spec = attachment.spec.unwrap_or_default();
    let volume = spec.source.and_then(|source| source.persistent_volume_name).filter(|name| !name.is_empty());
    let node = texts.text(spec.node_name.as_deref().unwrap_or_default());
    Ok(AttachmentSnapshot { name, node, volume: volume.map(Arc::from) })
}
