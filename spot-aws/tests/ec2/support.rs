//! Nodes, instances and groups in few words.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_ec2::config::{Credentials, SharedCredentialsProvider};
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use jiff::Timestamp;
use spot_aws::{AwsSettings, Identity};
use spot_core::capacity::CapacityLabels;
use spot_core::claim::{Claim, ClaimStep, FleetBefore, InstanceId, Machine, Owner};
use spot_core::cloud::{CloudFact, CloudFacts, Deletion, Freshness};
use spot_core::error::{ErrorClass, PortError};
use spot_core::labels::Labels;
use spot_core::node::{ClaimAnnotation, NodeSnapshot, Readiness, Uid};
use spot_core::ports::{Alone, Clock, CloudProvider, Instant, Leadership, Write};
use spot_core::reason::ReasonKind;
use spot_core::retire::RetiredNode;

use crate::double::{self, Group, Instance, Member};

/// Tokio's time, virtual or not, as the core's clock.
#[derive(Debug)]
pub(crate) struct Time(tokio::time::Instant);

impl Time {
    pub(crate) fn starting() -> Self {
        Self(tokio::time::Instant::now())
    }
}

#[async_trait]
impl Clock for Time {
    fn now(&self) -> Timestamp {
        noon() + self.0.elapsed()
    }
    fn instant(&self) -> Instant {
        Instant(self.0.elapsed())
    }
    async fn sleep_until(&self, at: Instant) {
        tokio::time::sleep_until(self.0 + at.0).await;
    }
}

pub(crate) fn noon() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn id(number: u32) -> String {
    format!("i-{number:017x}")
}

pub(crate) fn config(aws: &double::Aws) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("eu-west-1"))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new("key", "secret", None, None, "test")))
        .http_client(aws.client())
        .retry_config(RetryConfig::standard())
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .build()
}

pub(crate) fn settings() -> AwsSettings {
    AwsSettings {
        region: None,
        endpoint_url: None,
        cluster_name: "prod".to_owned(),
        require_cluster_tag: true,
        identity: Identity::Name,
        labels: CapacityLabels::default(),
        load_balancer: (secs(60), secs(600)),
        instance_metadata: false,
    }
}

/// The double, the provider before it, and the nodes.
pub(crate) struct World {
    pub(crate) aws: double::Aws,
    pub(crate) clock: Arc<Time>,
    pub(crate) provider: spot_aws::Aws,
    pub(crate) nodes: Vec<Arc<NodeSnapshot>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(settings())
    }

    pub(crate) fn with(settings: AwsSettings) -> Self {
        let aws = double::Aws::default();
        let clock = Arc::new(Time::starting());
        let provider = spot_aws::Aws::new(settings, &config(&aws), Arc::clone(&clock) as Arc<dyn Clock>, None);
        Self { aws, clock, provider, nodes: Vec::new() }
    }

    /// B0's group `od` of so many on-demand nodes in one zone, numbered from 1, and its minimum.
    pub(crate) fn of_group(members: u32, min: u32) -> Self {
        let mut world = Self::new();
        for number in 1..=members {
            world.on_demand(number);
        }
        world.group("od", &(1..=members).collect::<Vec<_>>(), min);
        world
    }

    /// A running instance and its node.
    pub(crate) fn add(&mut self, number: u32, lifecycle: Option<&'static str>) -> &mut Self {
        self.aws.state().instances.insert(id(number), instance(number, lifecycle));
        self.nodes.push(Arc::new(node(number)));
        self
    }

    pub(crate) fn on_demand(&mut self, number: u32) -> &mut Self {
        self.add(number, None)
    }

    /// A group of these, in the zones in which they are.
    pub(crate) fn group(&mut self, name: &str, numbers: &[u32], min: u32) -> &mut Self {
        {
            let mut state = self.aws.state();
            let mut zones = Vec::new();
            for number in numbers {
                let instance = state.instances.get_mut(&id(*number)).unwrap();
                instance.tags.insert("aws:autoscaling:groupName".to_owned(), name.to_owned());
                zones.push(instance.zone.clone());
            }
            zones.sort_unstable();
            zones.dedup();
            let members = numbers.iter().map(|number| (id(*number), Member::default())).collect();
            let desired = u32::try_from(numbers.len()).unwrap();
            state.groups.insert(name.to_owned(), Group { min, desired, zones, members, ..Group::default() });
        }
        self
    }

    /// Changes a group.
    pub(crate) fn change_group(&self, name: &str, change: impl FnOnce(&mut Group)) {
        change(self.aws.state().groups.get_mut(name).unwrap());
    }

    pub(crate) fn change_instance(&self, number: u32, change: impl FnOnce(&mut Instance)) {
        change(self.aws.state().instances.get_mut(&id(number)).unwrap());
    }

    pub(crate) fn change_node(&mut self, number: u32, change: impl FnOnce(&mut NodeSnapshot)) {
        let uid = uid(number);
        let node = self.nodes.iter_mut().find(|node| node.uid == uid).unwrap();
        change(Arc::make_mut(node));
    }

    pub(crate) fn node(&self, number: u32) -> &Arc<NodeSnapshot> {
        self.nodes.iter().find(|node| node.uid == uid(number)).unwrap()
    }

    pub(crate) fn by(&self, seconds: u64) -> Instant {
        self.clock.instant() + secs(seconds)
    }

    pub(crate) fn clock_at(&self, after: Duration) -> Instant {
        self.clock.instant() + after
    }

    /// Surveys all nodes, these being chosen.
    pub(crate) async fn survey(&self, chosen: &[u32]) -> CloudFacts {
        self.try_survey(chosen, Freshness::Cached).await.unwrap()
    }

    pub(crate) async fn try_survey(&self, chosen: &[u32], freshness: Freshness) -> Result<CloudFacts, PortError> {
        let chosen: Vec<_> = chosen.iter().map(|number| self.node(*number).reference()).collect();
        self.provider.survey(&self.nodes, &chosen, freshness, self.by(120)).await
    }

    /// What is said of a node that is chosen.
    pub(crate) async fn fact(&self, number: u32) -> CloudFact {
        self.survey(&[number]).await.of(uid(number).as_str()).unwrap().clone()
    }

    /// The kinds of refusals of a node that is chosen.
    pub(crate) async fn refusals(&self, number: u32) -> Vec<ReasonKind> {
        kinds(&self.fact(number).await)
    }

    /// Has the instance of a node deleted, as the core would.
    pub(crate) async fn delete(&self, number: u32) -> Result<Deletion, PortError> {
        self.delete_as(number, Arc::new(Alone)).await
    }

    /// The same, with what was recorded that its fleet wanted before.
    pub(crate) async fn delete_recorded(&self, number: u32, before: &FleetBefore) -> Result<Deletion, PortError> {
        let claim = claim(number, Machine::Instance(InstanceId::new(id(number))));
        let claim = Claim { fleet_before: Some(before.clone()), ..claim };
        let retired = RetiredNode::assume(Arc::clone(self.node(number)), claim);
        self.provider.delete_instance(&retired, &Write::assume(self.by(30), Arc::new(Alone))).await
    }

    /// The process dies, and another one begins.
    pub(crate) fn restart(&mut self) {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        self.provider = spot_aws::Aws::new(settings(), &config(&self.aws), clock, None);
    }

    pub(crate) async fn delete_as(&self, number: u32, leadership: Arc<dyn Leadership>) -> Result<Deletion, PortError> {
        let mut node = NodeSnapshot::clone(self.node(number));
        let claim = claim(number, Machine::Instance(InstanceId::new(id(number))));
        node.claim = ClaimAnnotation::Valid(Box::new(claim.clone()));
        let retired = RetiredNode::assume(Arc::new(node), claim);
        self.provider.delete_instance(&retired, &Write::assume(self.by(30), leadership)).await
    }

    /// Has the instance deleted at which a node points, whichever that is.
    pub(crate) async fn delete_pointing(&self, number: u32) -> Result<Deletion, PortError> {
        let node = self.node(number);
        let (_, instance) = node.provider_id.rsplit_once('/').unwrap();
        let claim = claim(number, Machine::Instance(InstanceId::new(instance)));
        let retired = RetiredNode::assume(Arc::clone(node), claim);
        self.provider.delete_instance(&retired, &Write::assume(self.by(30), Arc::new(Alone))).await
    }

    /// Takes the instance of a node out of its load balancers; the taint was put on so many seconds ago.
    pub(crate) async fn detach(&self, number: u32, tainted: Option<i64>) -> Result<(), PortError> {
        let tainted = tainted.map(|ago| self.clock.now() - jiff::SignedDuration::from_secs(ago));
        let write = Write::assume(self.by(60 + 600 + 30), Arc::new(Alone));
        self.provider.detach(self.node(number), tainted, &write).await
    }

    /// The same, interrupted: in what is left of two minutes.
    pub(crate) async fn detach_at_once(&self, number: u32) -> Result<(), PortError> {
        let write = Write::assume(self.by(110), Arc::new(Alone)).forced();
        self.provider.detach(self.node(number), Some(self.clock.now()), &write).await
    }

    /// The instance of a node stays after all.
    pub(crate) async fn attach(&self, number: u32) -> Result<(), PortError> {
        self.provider.attach(self.node(number), &Write::assume(self.by(30), Arc::new(Alone))).await
    }

    /// The same, with what was recorded that its fleet wanted before.
    pub(crate) async fn attach_recorded(&self, number: u32, before: &FleetBefore) -> Result<(), PortError> {
        let mut node = NodeSnapshot::clone(self.node(number));
        let claim = claim(number, Machine::Instance(InstanceId::new(id(number))));
        node.claim = ClaimAnnotation::Valid(Box::new(Claim { fleet_before: Some(before.clone()), ..claim }));
        self.provider.attach(&node, &Write::assume(self.by(30), Arc::new(Alone))).await
    }

    /// The state of an instance.
    pub(crate) fn state_of(&self, number: u32) -> &'static str {
        self.aws.state().instances[&id(number)].state
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, seconds: u64) {
        for _ in 0..seconds.div_ceil(5) {
            tokio::time::advance(secs(5)).await;
            drop(self.aws.state());
        }
    }

    /// That nothing was launched or terminated but what was asked for.
    pub(crate) fn assert_nothing_else_happened(&self) {
        let state = self.aws.state();
        assert_eq!(state.launched, Vec::<String>::new(), "launched in place of what went");
        assert_eq!(state.victims, Vec::<String>::new(), "terminated beside what was to go");
    }
}

pub(crate) fn kinds(fact: &CloudFact) -> Vec<ReasonKind> {
    fact.refusals.iter().map(spot_core::reason::Reason::kind).collect()
}

pub(crate) fn uid(number: u32) -> Uid {
    Uid::new(format!("uid-{number}"))
}

pub(crate) fn name(number: u32) -> String {
    format!("ip-10-0-0-{number}.eu-west-1.compute.internal")
}

pub(crate) fn node(number: u32) -> NodeSnapshot {
    NodeSnapshot {
        name: name(number).into(),
        uid: uid(number),
        resource_version: "1".to_owned(),
        created_at: noon() - secs(86_400),
        provider_id: format!("aws:///eu-west-1a/{}", id(number)),
        labels: Labels::default(),
        annotations: Labels::default(),
        taints: Vec::new(),
        unschedulable: false,
        readiness: Readiness::Ready,
        ready_since: None,
        boot_id: "boot".to_owned(),
        internal_addresses: Vec::new(),
        deleting_since: None,
        finalizers: Vec::new(),
        claim: ClaimAnnotation::Absent,
        back_off: None,
    }
}

pub(crate) fn claim(number: u32, machine: Machine) -> Claim {
    Claim {
        owner: Owner::Migrator,
        node: uid(number),
        machine,
        boot_id: "boot".to_owned(),
        step: ClaimStep::Deleting,
        cordoned: true,
        taint: None,
        since: noon(),
        own_pod_left: false,
        restored: false,
        until: None,
        fleet_before: None,
    }
}

pub(crate) fn instance(number: u32, lifecycle: Option<&'static str>) -> Instance {
    Instance {
        lifecycle,
        state: "running",
        before: None,
        since: tokio::time::Instant::now(),
        launched: noon() - secs(86_400),
        dns: name(number),
        address: format!("10.0.0.{number}"),
        kind: "m5.large".to_owned(),
        zone: "eu-west-1a".to_owned(),
        subnet: String::new(),
        reservation: None,
        tags: BTreeMap::from([("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned())]),
        protected: false,
        reason: None,
    }
}

/// The class of an error, and that nothing was deleted for it.
pub(crate) fn class<T: std::fmt::Debug>(answer: &Result<T, PortError>) -> ErrorClass {
    answer.as_ref().expect_err("an error").class
}
