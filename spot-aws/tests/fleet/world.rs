//! A pool in few words.

use std::collections::BTreeMap;
use std::sync::Arc;

use spot_aws::fleet::{
    Allocation, Ensured, Kubelet, Launch, NodePool, Offer, Pool, RootVolume, UserData, VolumeKind, VolumeSize,
};
use spot_core::claim::InstanceId;
use spot_core::error::{ErrorClass, PortError, chain};
use spot_core::pool::{Fleet, PoolCapacity};
use spot_core::ports::{Alone, Clock, Instant, Write};

use crate::double;
use crate::support::{Time, config, secs, settings};

/// The role of the double's fleets.
pub(crate) const ROLE: &str = "arn:aws:iam::123456789012:role/fleet";

/// Six units over two subnets, in machines of one and two units with root volumes of different sizes.
pub(crate) fn pool() -> Pool {
    let offer = |kind: &str, weight| Offer {
        instance_type: kind.to_owned(),
        weight,
        max_price: None,
        root_volume: VolumeSize::default(),
    };
    Pool {
        cluster: "prod".to_owned(),
        name: "workers".to_owned(),
        target_capacity: 6,
        min_capacity: 0,
        allocation: Allocation::default(),
        rebalance: None,
        fleet_role: ROLE.to_owned(),
        subnets: vec!["subnet-a".to_owned(), "subnet-b".to_owned()],
        security_groups: vec!["sg-1".to_owned()],
        instance_profile: "node".to_owned(),
        image: "ami-00000000000000001".to_owned(),
        ssh_key: None,
        user_data: UserData::Kubelet(Kubelet::default()),
        offers: vec![offer("m5.large", 1), offer("m5.xlarge", 2)],
        root_volume: RootVolume {
            kind: VolumeKind::Gp3,
            unit_size: 20,
            unit_iops: None,
            device: Some("/dev/xvda".to_owned()),
            encrypted: true,
            kms_key: None,
        },
        labels: BTreeMap::new(),
        taints: Vec::new(),
        tags: BTreeMap::new(),
        load_balancers: Vec::new(),
        target_groups: Vec::new(),
    }
}

/// The double, and the pool before it.
pub(crate) struct World {
    pub(crate) aws: double::Aws,
    pub(crate) clock: Arc<Time>,
    pub(crate) pool: NodePool,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(pool())
    }

    pub(crate) fn of(pool: Pool) -> Self {
        Self::before(&double::Aws::default(), &Arc::new(Time::starting()), pool)
    }

    fn before(aws: &double::Aws, clock: &Arc<Time>, pool: Pool) -> Self {
        let provider = spot_aws::Aws::new(settings(), &config(aws), Arc::clone(clock) as Arc<dyn Clock>, None);
        Self { aws: aws.clone(), clock: Arc::clone(clock), pool: NodePool::new(Arc::new(provider), pool) }
    }

    /// The same before another process, which remembers nothing.
    pub(crate) fn restarted(&self) -> Self {
        Self::before(&self.aws, &self.clock, self.pool.pool().clone())
    }

    /// The same with another file.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Pool)) -> Self {
        let mut pool = self.pool.pool().clone();
        change(&mut pool);
        Self::before(&self.aws, &self.clock, pool)
    }

    pub(crate) fn by(&self, seconds: u64) -> Instant {
        self.clock.instant() + secs(seconds)
    }

    pub(crate) fn write(&self, seconds: u64) -> Write {
        Write::assume(self.by(seconds), Arc::new(Alone))
    }

    pub(crate) fn launch(&self) -> Launch {
        Launch::of(self.pool.pool(), "/dev/xvda")
    }

    /// Makes what is missing, for a fleet of six.
    pub(crate) async fn ensure(&self) -> Result<Ensured, PortError> {
        self.pool.ensure(&self.launch(), 6, 6, &self.write(120)).await
    }

    /// One whose fleet has all its members.
    pub(crate) async fn fulfilled() -> (Self, String) {
        let world = Self::new();
        let fleet = world.ensure().await.unwrap().fleet;
        world.pass(600).await;
        (world, fleet)
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, seconds: u64) {
        for _ in 0..seconds.div_ceil(5) {
            tokio::time::advance(secs(5)).await;
            drop(self.aws.state());
        }
    }

    pub(crate) async fn fleets(&self) -> Vec<Fleet> {
        self.pool.fleets(self.by(60)).await.unwrap()
    }

    pub(crate) async fn resize(&self, fleet: &str, from: u32, to: u32) -> Result<(), PortError> {
        self.pool.resize(fleet, from, to, &self.write(60)).await
    }

    pub(crate) async fn terminate(&self, fleet: &str, instance: &InstanceId) -> Result<(), PortError> {
        self.pool.terminate(fleet, instance, &self.write(120)).await
    }

    pub(crate) async fn cancel(&self, fleet: &str) -> Result<(), PortError> {
        self.pool.cancel(fleet, &self.write(60)).await
    }

    /// What a fleet wants, by the double's own word.
    pub(crate) fn target(&self, fleet: &str) -> u32 {
        self.aws.state().fleets[fleet].target
    }

    /// The fleets that are there, by the double's own word.
    pub(crate) fn alive(&self) -> Vec<String> {
        let state = self.aws.state();
        state.fleets.iter().filter(|(_, fleet)| fleet.ended.is_none()).map(|(id, _)| id.clone()).collect()
    }
}

/// An error's class, and all that it says.
pub(crate) fn said<T: std::fmt::Debug>(answer: Result<T, PortError>) -> (ErrorClass, String) {
    let error = answer.expect_err("an error");
    (error.class, chain(&error))
}
