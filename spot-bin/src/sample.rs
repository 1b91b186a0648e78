//! Values that the unit tests share.

use jiff::Timestamp;
use spot_core::labels::Labels;
use spot_core::node::{ClaimAnnotation, NodeRef, NodeSnapshot, Readiness, Uid};
use spot_core::progress::{Outcome, Report};

use crate::cli::Environment;

/// An environment of these variables.
pub(crate) fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A node.
pub(crate) fn node() -> NodeRef {
    NodeRef { name: "node-1".into(), uid: Uid::new("1"), resource_version: None }
}

/// A node as it is seen, ready and with nothing on it.
pub(crate) fn snapshot(name: &str) -> NodeSnapshot {
    NodeSnapshot {
        name: name.into(),
        uid: Uid::new(name),
        resource_version: "1".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
        provider_id: String::new(),
        labels: Labels::default(),
        annotations: Labels::default(),
        taints: Vec::new(),
        unschedulable: false,
        readiness: Readiness::Ready,
        ready_since: None,
        boot_id: String::new(),
        internal_addresses: Vec::new(),
        deleting_since: None,
        finalizers: Vec::new(),
        claim: ClaimAnnotation::Absent,
        back_off: None,
    }
}

/// The report of a run that did nothing and ended like this.
pub(crate) fn report(outcome: Outcome) -> Report {
    Report { outcome, retired: Vec::new(), failed: Vec::new(), undone: Vec::new(), departing: Vec::new(), evictions: 0 }
}

#[cfg(feature = "aws")]
pub(crate) use self::pool::{at, fleet, member, pool_file, pool_report};

/// Of pools.
#[cfg(feature = "aws")]
mod pool {
    use jiff::Timestamp;
    use spot_aws::fleet::{ExistingFleet, PoolMember};
    use spot_core::pool::{Outcome, Report};

    use crate::pool::PoolFile;

    /// The file of a pool of three units, with these lines more, or other values in their place.
    pub(crate) fn pool_file(more: &str) -> PoolFile {
        let key = |line: &str| line.split(':').next().map(str::to_owned);
        let kept = POOL.lines().filter(|line| !more.lines().any(|other| key(other) == key(line)));
        let text = kept.chain(more.lines()).collect::<Vec<_>>().join("\n");
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = folder.path().join("pool.yaml");
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
        PoolFile::read(&path).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The report of work on a pool that did nothing and ended like this.
    pub(crate) fn pool_report(outcome: Outcome) -> Report {
        Report { outcome, retired: vec![], failed: vec![], undone: vec![], departing: vec![], evictions: 0 }
    }

    /// A moment.
    pub(crate) fn at() -> Timestamp {
        Timestamp::constant(1_767_574_800, 0)
    }

    /// A fleet of the pool that wants and has so much.
    pub(crate) fn fleet(id: &str, hash: &str, (target, fulfilled): (u32, u32)) -> ExistingFleet {
        ExistingFleet {
            id: id.to_owned(),
            ours: true,
            state: "active".to_owned(),
            hash: hash.to_owned(),
            target,
            fulfilled,
            lightest: Some(1),
            capacity: None,
            created: at(),
            has_ended: false,
            activity: Some("fulfilled".to_owned()),
            is_settled: true,
            request: None,
        }
    }

    /// A machine of the pool that is so much.
    pub(crate) fn member(instance: &str, weight: u32) -> PoolMember {
        PoolMember {
            instance: instance.to_owned(),
            fleet: "sfr-1".to_owned(),
            instance_type: "m5.large".to_owned(),
            zone: "eu-west-1a".to_owned(),
            weight: Some(weight),
            state: "running".to_owned(),
            launched: at(),
            price: None,
        }
    }

    const POOL: &str = "apiVersion: spot-migrator.io/v1alpha1
kind: SpotFleetNodePool
cluster: prod
name: workers
targetCapacity: 3
minCapacity: 1
region: eu-west-1
subnets: [subnet-0123456789abcdef0]
securityGroups: [sg-0123456789abcdef0]
instanceProfile: node
image: ami-0123456789abcdef0
userData: {kubelet: {}}
launchSpecifications: [{instanceType: m5.large}, {instanceType: m5.xlarge, weightedCapacity: 2}]
";
}
