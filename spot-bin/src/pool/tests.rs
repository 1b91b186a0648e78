//! The pool file through its public face: text in, typed values or a list of problems out.

use std::io;
use std::path::Path;

use super::PoolFile;
use crate::config::ConfigError;

const HEADER: &str = "apiVersion: spot-migrator.io/v1alpha1\nkind: SpotFleetNodePool\n";

/// What every pool needs.
const NEEDED: &str = "\
cluster: prod
name: batch
targetCapacity: 6
subnets: [subnet-0a1b2c3d4e5f60718, subnet-1a1b2c3d4e5f60718]
securityGroups: [sg-0a1b2c3d4e5f60718]
instanceProfile: kubernetes-node
image: ami-0a1b2c3d4e5f60718
userData: {kubelet: {}}
launchSpecifications: [{instanceType: m5.large}, {instanceType: m5.xlarge, weightedCapacity: 2}]
";

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    match path.to_str() {
        Some("boot.sh") => Ok(b"#!/bin/sh\nrun --labels=${NODE_LABELS} --taints=${NODE_TAINTS}\n".to_vec()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn load(body: &str) -> Result<PoolFile, ConfigError> {
    PoolFile::parse("pool.yaml", &format!("{HEADER}{body}"), &read_file)
}

#[test]
fn a_pool_needs_little() {
    let file = load(NEEDED).unwrap();
    assert_eq!(file.pool.name, "batch");
    assert_eq!(file.lease_name(), "spot-migrator-fleet-batch");
    assert_eq!(PoolFile::parse("pool.yaml", &file.to_yaml(), &read_file).unwrap(), file);
}
