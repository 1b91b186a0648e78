//! Which node runs on a machine: by provider ID alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::claim::InstanceId;
use crate::node::{NodeSnapshot, Uid};
use crate::ports::NoticeSource;
use crate::view::{Revision, View};

/// The nodes by their machines, as of one view.
#[derive(Debug, Default)]
pub(super) struct Index {
    as_of: Option<Revision>,
    by_instance: BTreeMap<InstanceId, Uid>,
}

impl Index {
    /// The node that runs on this machine. Where two say so, it is the older one: a kubelet writes its own provider ID.
    pub(super) fn node(
        &mut self,
        view: &View,
        source: &dyn NoticeSource,
        instance: &InstanceId,
    ) -> Option<Arc<NodeSnapshot>> {
        if self.as_of != Some(view.machines()) {
            self.rebuild(view, source);
        }
        view.node(self.by_instance.get(instance)?.as_str()).map(Arc::clone)
    }

    fn rebuild(&mut self, view: &View, source: &dyn NoticeSource) {
        let mut nodes: Vec<_> = view.nodes().iter().collect();
        nodes.sort_by_key(|node| std::cmp::Reverse((node.created_at, &node.uid)));
        let machine = |node: &&Arc<NodeSnapshot>| Some((source.instance_of(&node.provider_id)?, node.uid.clone()));
        self.by_instance = nodes.iter().filter_map(machine).collect();
        self.as_of = Some(view.machines());
    }

    /// Forgets everything: another view counts its revisions anew.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
