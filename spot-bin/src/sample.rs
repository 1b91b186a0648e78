//! Values that the unit tests share.

use spot_core::node::{NodeRef, Uid};
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

/// The report of a run that did nothing and ended like this.
pub(crate) fn report(outcome: Outcome) -> Report {
    Report { outcome, retired: Vec::new(), failed: Vec::new(), undone: Vec::new(), departing: Vec::new(), evictions: 0 }
}

/// The file of a pool of three units, with these lines more.
#[cfg(feature = "aws")]
pub(crate) fn pool_file(more: &str) -> crate::pool::PoolFile {
    let text = format!("{POOL}{more}");
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("pool.yaml");
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
    crate::pool::PoolFile::read(&path).unwrap_or_else(|error| panic!("{error}"))
}

#[cfg(feature = "aws")]
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
launchSpecifications:
- {instanceType: m5.large}
- {instanceType: m5.xlarge, weightedCapacity: 2}
";
