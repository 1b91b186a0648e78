//! The pool file through its public face: text in, typed values or a list of problems out.

mod examples;
mod problem;
mod property;
mod values;

use std::io;
use std::path::Path;

use super::PoolFile;
use crate::config::ConfigError;

const HEADER: &str = "apiVersion: spot-migrator.io/v1alpha1\nkind: SpotFleetNodePool\n";

/// What every pool needs.
const NEEDED: [(&str, &str); 9] = [
    ("cluster", "prod"),
    ("name", "batch"),
    ("targetCapacity", "6"),
    ("subnets", "[subnet-0a1b2c3d4e5f60718, subnet-1a1b2c3d4e5f60718]"),
    ("securityGroups", "[sg-0a1b2c3d4e5f60718]"),
    ("instanceProfile", "kubernetes-node"),
    ("image", "ami-0a1b2c3d4e5f60718"),
    ("userData", "{kubelet: {}}"),
    ("launchSpecifications", "[{instanceType: m5.large}]"),
];

const OWN: &str = "#!/bin/sh\nrun --labels=${NODE_LABELS} --taints=${NODE_TAINTS}\n";

/// The files beside the pool file.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    match path.to_str().unwrap() {
        "boot.sh" => Ok(OWN.into()),
        "long.sh" => Ok(format!("{OWN}# {}\n", "x".repeat(16 * 1024)).into()),
        "deaf.sh" => Ok(b"#!/bin/sh\nrun --labels=${NODE_LABELS} --taints='$${NODE_TAINTS}'\n".into()),
        "boot.gz" => Ok(vec![0x1f, 0x8b, 8, 0xff]),
        "secret.sh" => Err(io::ErrorKind::PermissionDenied.into()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Loads a file of these lines, and of what every pool needs but they do not have.
fn load(body: &str) -> Result<PoolFile, ConfigError> {
    let lacks = |key: &str| !body.lines().any(|line| line.starts_with(&format!("{key}:")));
    let needed = NEEDED.iter().filter(|(key, _)| lacks(key)).map(|(key, value)| format!("{key}: {value}\n"));
    load_text(&format!("{HEADER}{body}\n{}", needed.collect::<String>()))
}

fn load_text(text: &str) -> Result<PoolFile, ConfigError> {
    PoolFile::parse("pool.yaml", text, &read_file)
}
