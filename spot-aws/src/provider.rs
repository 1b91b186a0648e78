//! The provider `aws`.

mod cache;
mod check;
pub(crate) mod describe;
mod fleets;
mod group;
pub(crate) mod instance;
mod load_balancer;
pub(crate) mod maintain;
mod nodeless;
mod rebalancing;
mod spot_prices;
mod survey;
pub(crate) mod terminate;
mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use aws_config::SdkConfig;
use futures::future;
use jiff::Timestamp;
use spot_core::capacity::{CapacityLabels, Class};
use spot_core::claim::{InstanceId, Machine};
use spot_core::cloud::{CloudFacts, Deletion, Freshness, InstanceState};
use spot_core::error::{ErrorClass, PortError};
use spot_core::node::{Effect, Node, NodeRef, NodeSnapshot, Uid, key};
#[cfg(feature = "queue")]
use spot_core::ports::Observer;
use spot_core::ports::{Clock, CloudProvider, Instant, Write};
use spot_core::reason::{Reason, ReasonKind};
use spot_core::retire::RetiredNode;

use self::cache::Cache;
use self::instance::Keeper;
use self::load_balancer::Balancing;
#[cfg(feature = "fleet")]
pub(crate) use self::load_balancer::is_of;
use self::nodeless::Nodeless;
use self::survey::{Contradiction, Known, Rules, Survey};
use self::terminate::Terminated;
use crate::ProviderId;
use crate::client::{self, Api, CallObserver};
use crate::error::CallError;
#[cfg(feature = "queue")]
use crate::interruption::queue::{Queue, QueueSettings};
pub(crate) use crate::lock;

/// How old the answers of a survey may be. Those on nodes that are about to be claimed are never older than the survey.
const CACHED: Duration = Duration::from_mins(5);
/// The most instances in one call: the most values of a filter.
const BATCH: usize = 200;

/// By what a machine is known to be a node's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// EC2's private DNS name, or the instance ID, is the node's name.
    #[default]
    Name,
    /// That, or EC2's private address is among the node's internal ones: for node names of one's own. It trusts whoever
    /// wrote those, which may be the kubelet.
    Address,
}

/// What the provider has to know.
#[derive(Clone, Debug)]
pub struct AwsSettings {
    /// The region; none: as environment or profile say.
    pub region: Option<String>,
    /// Where all AWS APIs are, if not where AWS has them.
    pub endpoint_url: Option<String>,
    /// The cluster's name as its machines are tagged.
    pub cluster_name: String,
    /// Whether a machine without that tag is refused.
    pub require_cluster_tag: bool,
    /// By what a machine is known to be a node's own.
    pub identity: Identity,
    /// The labels that tell a class where EC2 can't.
    pub labels: CapacityLabels,
    /// How long the taint is on before a machine goes, and how long load balancers are waited for after that.
    pub load_balancer: (Duration, Duration),
    /// Whether the instance metadata service may be asked for region and credentials.
    pub instance_metadata: bool,
}

/// The provider `aws`: EC2's own word on every node, and the way on which its instance goes.
///
/// A future of it may be dropped at any time. What a call that was under way has changed is found out by the next.
#[derive(Debug)]
pub struct Aws {
    pub(crate) api: Arc<Api>,
    pub(crate) rules: Rules,
    pub(crate) load_balancer: (Duration, Duration),
    cache: Mutex<Cache>,
    /// Which nodes the last survey saw claim an instance.
    claimants: Mutex<BTreeMap<String, BTreeSet<Uid>>>,
    /// Nodes whose labels were reported to contradict EC2.
    reported: Mutex<BTreeSet<Uid>>,
    pub(crate) nodeless: Mutex<Nodeless>,
    pub(crate) balancing: Balancing,
    /// One fleet's target is lowered at a time.
    pub(crate) terminated: futures::lock::Mutex<Terminated>,
}

impl Aws {
    /// One with region and credentials as the SDK's own chain finds them: environment, profile, web identity (IRSA) and
    /// pod identity; the metadata service only if the settings say so. No AWS API is called.
    ///
    /// # Errors
    /// When no region is found.
    pub async fn connect(
        settings: AwsSettings,
        clock: Arc<dyn Clock>,
        observer: Option<CallObserver>,
    ) -> Result<Self, PortError> {
        let AwsSettings { region, endpoint_url, instance_metadata, .. } = &settings;
        let config = client::discover(region.clone(), endpoint_url.as_deref(), *instance_metadata, &clock).await?;
        Ok(Self::new(settings, &config, clock, observer))
    }

    /// One with region, credentials, endpoint and HTTP client of `config`.
    #[must_use]
    pub fn new(
        settings: AwsSettings,
        config: &SdkConfig,
        clock: Arc<dyn Clock>,
        observer: Option<CallObserver>,
    ) -> Self {
        let AwsSettings { cluster_name, require_cluster_tag, identity, labels, load_balancer, .. } = settings;
        Self {
            api: Arc::new(Api::new(config, clock, observer)),
            rules: Rules { cluster_name, require_cluster_tag, identity, labels },
            load_balancer,
            cache: Mutex::default(),
            claimants: Mutex::default(),
            reported: Mutex::default(),
            nodeless: Mutex::default(),
            balancing: Balancing::default(),
            terminated: futures::lock::Mutex::default(),
        }
    }

    /// A queue in the same region, over the same clients.
    ///
    /// # Errors
    /// When the URL is none of a queue, or the queue is in another region.
    #[cfg(feature = "queue")]
    pub fn queue(&self, settings: QueueSettings, observer: Arc<dyn Observer>) -> Result<Queue, PortError> {
        Queue::over(settings, Arc::clone(&self.api), observer)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        lock(&self.cache)
    }

    /// Learns what a survey of these nodes needs; of the chosen ones everything, and anew.
    pub(crate) async fn learn(
        &self,
        nodes: &[Arc<NodeSnapshot>],
        chosen: &[NodeRef],
        since: Instant,
        by: Instant,
    ) -> Result<Known, CallError> {
        let id = |node: &Arc<NodeSnapshot>| Some(ProviderId::parse(&node.provider_id).ok()?.instance_id().to_owned());
        let wanted: BTreeSet<String> = nodes.iter().filter_map(id).collect();
        // Nodes of other provisioners go without their instances being asked for.
        let ours = nodes.iter().filter(|node| node.label(key::NODE_POOL).is_none());
        let is_chosen = |node: &&Arc<NodeSnapshot>| chosen.iter().any(|chosen| chosen.uid == node.uid);
        let chosen: BTreeSet<String> = ours.clone().filter(is_chosen).filter_map(id).collect();
        let ours: BTreeSet<String> = ours.filter_map(id).collect();
        self.learn_of(&wanted, &ours, &chosen, since, by).await
    }

    /// Learns of these instances; of what keeps `ours` too, and of the chosen ones everything, and anew.
    pub(crate) async fn learn_of(
        &self,
        wanted: &BTreeSet<String>,
        ours: &BTreeSet<String>,
        chosen: &BTreeSet<String>,
        since: Instant,
        by: Instant,
    ) -> Result<Known, CallError> {
        let mut known = Known::default();
        self.learn_instances(wanted, chosen, since, by, &mut known).await?;
        self.learn_memberships(chosen, by, &mut known).await;
        self.learn_groups(chosen, since, by, &mut known).await;
        self.learn_fleets(ours, chosen, since, by, &mut known).await;
        self.learn_fleet_members(chosen, by, &mut known).await;
        self.learn_members(wanted, by, &mut known).await;
        for id in chosen {
            match self.api.is_termination_protected(id, by).await {
                Ok(false) => {}
                Ok(true) => {
                    let words = format!("{id} is protected from termination");
                    let refusal = Reason::Cloud(ReasonKind::TerminationProtected, words);
                    known.of_instance.entry(id.clone()).or_default().push(refusal);
                }
                Err(error) => known.doubt_instance(id, &error),
            }
        }
        Ok(known)
    }

    async fn learn_instances(
        &self,
        wanted: &BTreeSet<String>,
        chosen: &BTreeSet<String>,
        since: Instant,
        by: Instant,
        known: &mut Known,
    ) -> Result<(), CallError> {
        let at = self.api.clock.instant();
        let mut missing = self.cache().instances.missing(wanted, since);
        missing.extend(chosen.iter().cloned());
        let missing: Vec<_> = missing.into_iter().collect();
        let (mut answered, mut failed) = (missing.is_empty(), None);
        for batch in missing.chunks(BATCH) {
            let ids: Vec<_> = batch.iter().map(String::as_str).collect();
            match self.api.instances(&ids, by).await {
                Ok(answers) => {
                    answered = true;
                    self.cache().instances.take_in(&batch.iter().cloned().collect(), at, answers);
                }
                Err(error) => {
                    for id in batch {
                        known.doubt_instance(id, &error);
                    }
                    failed = Some(error);
                }
            }
        }
        known.instances = self.cache().instances.give(wanted);
        match failed {
            Some(error) if !answered => Err(error),
            Some(_) | None => Ok(()),
        }
    }

    async fn learn_memberships(&self, chosen: &BTreeSet<String>, by: Instant, known: &mut Known) {
        if chosen.is_empty() {
            return;
        }
        let ids: Vec<_> = chosen.iter().map(String::as_str).collect();
        match self.api.memberships(&ids, by).await {
            Ok(memberships) => {
                known.memberships = memberships;
                known.asked.clone_from(chosen);
            }
            Err(error) => {
                for id in chosen {
                    known.doubt_instance(id, &error);
                }
            }
        }
    }

    async fn learn_groups(&self, chosen: &BTreeSet<String>, since: Instant, by: Instant, known: &mut Known) {
        let tagged = |id: &String| match &known.instances.get(id)?.keeper {
            Keeper::Group(name) => Some(name.clone()),
            Keeper::Fleet(_) | Keeper::Nobody => None,
        };
        let members = known.memberships.values().map(|membership| membership.group.clone());
        let of_chosen: BTreeSet<String> = members.chain(chosen.iter().filter_map(tagged)).collect();
        let mut wanted: BTreeSet<String> = known.instances.keys().filter_map(tagged).collect();
        wanted.extend(of_chosen.iter().cloned());
        let at = self.api.clock.instant();
        let mut missing = self.cache().groups.missing(&wanted, since);
        missing.extend(of_chosen.iter().cloned());
        // A group that does not list one of its own may have been asked for before that one came.
        let cached = self.cache().groups.give(&wanted);
        let joined = known.instances.keys().filter_map(|id| Some((id, tagged(id)?)));
        let unlisted =
            joined.filter(|(id, name)| cached.get(name).is_some_and(|group| !group.members.contains_key(*id)));
        missing.extend(unlisted.map(|(_, name)| name));
        if !missing.is_empty() {
            match self.api.groups(&missing, by).await {
                Ok(answers) => self.cache().groups.take_in(&missing, at, answers),
                Err(error) => {
                    for name in missing {
                        known.doubt_keeper(&name, &error);
                    }
                }
            }
        }
        known.groups = self.cache().groups.give(&wanted);
        for name in of_chosen {
            self.learn_rolling(&name, by, known).await;
        }
    }

    /// Learns whether a group is being rolled, by itself or as a managed node group.
    async fn learn_rolling(&self, name: &str, by: Instant, known: &mut Known) {
        let Some(group) = known.groups.get(name) else { return };
        let managed = group.managed.clone();
        let mut answers = vec![(format!("the instance refresh of group {name}"), self.api.refreshing(name, by).await)];
        if let Some(managed) = managed {
            answers.push((format!("node group {}", managed.name), self.api.updating(&managed, by).await));
        }
        for (what, answer) in answers {
            match answer {
                Ok(None) => {}
                Ok(Some(status)) => {
                    let refusal = Reason::Cloud(ReasonKind::GroupRefreshing, format!("{what} is {status}"));
                    known.of_keeper.entry(name.to_owned()).or_default().push(refusal);
                }
                Err(error) => known.doubt_keeper(name, &error),
            }
        }
    }

    /// Learns the classes of members without a node, where a group keeps a proportion of classes. One whose class stays
    /// unknown counts as none that is on demand: rather a refusal too many.
    async fn learn_members(&self, wanted: &BTreeSet<String>, by: Instant, known: &mut Known) {
        let mixed = known.groups.values().filter(|group| group.is_mixed());
        let strangers = mixed.flat_map(|group| group.members.keys()).filter(|id| !wanted.contains(*id));
        let strangers: BTreeSet<_> = strangers.cloned().collect();
        let at = self.api.clock.instant();
        // A class never changes: any answer will do.
        let missing: Vec<_> = self.cache().instances.missing(&strangers, Instant::default()).into_iter().collect();
        for batch in missing.chunks(BATCH) {
            let ids: Vec<_> = batch.iter().map(String::as_str).collect();
            match self.api.instances(&ids, by).await {
                Ok(answers) => self.cache().instances.take_in(&batch.iter().cloned().collect(), at, answers),
                Err(error) => tracing::warn!(%error, "members of mixed groups could not be asked for"),
            }
        }
        known.instances.extend(self.cache().instances.give(&strangers));
    }

    /// The time of the oldest answer that need not be asked for again.
    fn cached_since(&self) -> Instant {
        Instant(self.api.clock.instant().0.saturating_sub(CACHED))
    }

    /// Warns once of each node whose labels say something else than EC2.
    fn report(&self, contradictions: Vec<Contradiction>) {
        let mut reported = lock(&self.reported);
        reported.retain(|uid| contradictions.iter().any(|contradiction| contradiction.node.uid == *uid));
        for Contradiction { node, labels, cloud } in contradictions {
            if reported.insert(node.uid.clone()) {
                let labels = labels.map_or("different things", Class::as_str);
                tracing::warn!(node = %node, labels, ec2 = %cloud, "the node's labels contradict EC2, which is believed");
            }
        }
    }

    /// Whether the last survey saw another node claim this instance too.
    ///
    /// That can be as old as the drain was long, as only a survey is given all nodes. The deletion does not rest on it:
    /// right before the call, EC2's name for the instance is this node's once more, and no two nodes have one name. So a
    /// claimant that came in the meantime has not that machine, unless the machine joined a second time under its other
    /// name, that is its ID: the next survey refuses both. With [`Identity::Address`](crate::Identity::Address) the
    /// addresses are trusted as far as that.
    pub(crate) fn is_claimed_by_another(&self, id: &str, uid: &Uid) -> bool {
        lock(&self.claimants).get(id).is_some_and(|claimants| claimants.iter().any(|other| other != uid))
    }

    /// Has an instance and its group, if it has one, asked for again: both have changed.
    pub(crate) fn forget(&self, id: &str, group: Option<&str>) {
        let mut cache = self.cache();
        cache.instances.forget(&id.to_owned());
        if let Some(group) = group {
            cache.groups.forget(&group.to_owned());
        }
    }
}

#[async_trait]
impl CloudProvider for Aws {
    async fn survey(
        &self,
        nodes: &[Arc<NodeSnapshot>],
        chosen: &[NodeRef],
        freshness: Freshness,
        by: Instant,
    ) -> Result<CloudFacts, PortError> {
        let now = self.api.clock.instant();
        let since = match freshness {
            Freshness::Now => now,
            Freshness::Cached => self.cached_since(),
        };
        let known = self.learn(nodes, chosen, since, by).await?;
        self.cache().keep_only(&known);
        let mut claimants: BTreeMap<String, BTreeSet<Uid>> = BTreeMap::new();
        for node in nodes {
            if let Ok(id) = ProviderId::parse(&node.provider_id) {
                claimants.entry(id.instance_id().to_owned()).or_default().insert(node.uid.clone());
            }
        }
        let is_tainted = |node: &&Arc<NodeSnapshot>| {
            node.taints.iter().any(|taint| taint.is(key::TO_BE_DELETED, Effect::NoSchedule))
        };
        let tainted: BTreeSet<_> = nodes.iter().filter(is_tainted).map(|node| &node.uid).collect();
        self.balancing.keep_only(&claimants, &tainted);
        *lock(&self.claimants) = claimants;
        let survey = Survey::new(nodes, None, &self.rules, &known);
        self.report(survey.contradictions(nodes));
        let facts = survey.facts(nodes, chosen);
        if chosen.is_empty() {
            self.look_for_pending(since, by).await;
            self.look_for_nodeless(nodes, by).await;
        }
        Ok(facts.with_pending_spot(self.pending_spot()))
    }

    async fn detach(&self, node: &NodeSnapshot, tainted_at: Option<Timestamp>, write: &Write) -> Result<(), PortError> {
        self.take_out(node, tainted_at, write).await
    }

    async fn attach(&self, node: &NodeSnapshot, write: &Write) -> Result<(), PortError> {
        match ProviderId::parse(&node.provider_id) {
            Ok(id) => {
                let id = id.instance_id();
                let (put_back, raised) =
                    future::join(self.put_back(id, write), self.raise_recorded(node, id, write)).await;
                put_back.and(raised)
            }
            Err(_no_instance) => Ok(()),
        }
    }

    async fn delete_instance(&self, node: &RetiredNode, write: &Write) -> Result<Deletion, PortError> {
        match &node.claim().machine {
            Machine::Instance(id) => self.terminate(node, id, write).await,
            Machine::WithNode => Self::with_node(node.node()),
        }
    }

    async fn instance_state(&self, instance: &InstanceId, by: Instant) -> Result<InstanceState, PortError> {
        let id = instance.as_str();
        let Some(described) = self.api.instance(id, by).await? else { return Ok(InstanceState::Gone) };
        let life = described.life();
        if life != InstanceState::Running {
            return Ok(life);
        }
        // A hook holds an instance that runs on until it lets go.
        let Some(membership) = self.api.memberships(&[id], by).await?.remove(id) else { return Ok(life) };
        if !group::is_leaving(&membership.state) {
            return Ok(life);
        }
        if !membership.state.ends_with(":Wait") {
            return Ok(InstanceState::ShuttingDown);
        }
        let hooks = self.api.termination_hooks(&membership.group, by).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the names of the hooks are not known");
            Vec::new()
        });
        Ok(InstanceState::Held(format!("{} of group {}", hooks.join(", "), membership.group)))
    }
}

impl Aws {
    /// A node of another provisioner: its machine goes with it.
    fn with_node(node: &NodeSnapshot) -> Result<Deletion, PortError> {
        let owned = node.takes_its_machine_along();
        if node.label(key::NODE_POOL).is_some() && owned {
            return Ok(Deletion::WithNode);
        }
        let why = format!("nothing would remove the machine of node {} when its Node is deleted", node.name);
        Err(PortError::new(ErrorClass::Permanent, why))
    }
}
