//! A pool file becomes one validated, typed [`PoolFile`], once.
//!
//! It is read as the configuration is (see [`config`](crate::config)): strictly, into a tree in which each value has its
//! place. What is wrong with the pool itself, [`spot_aws`] tells by the key's path, and is reported at that place.

mod file;
#[cfg(test)]
mod manual;
#[cfg(test)]
mod tests;
mod validation;

use std::io;
use std::path::Path;
use std::time::Duration;

use spot_aws::fleet::Pool;

use self::file::{File, keys};
use crate::config::check::Check;
use crate::config::problem::{ConfigError, Place, Problem};
use crate::config::tree::Tree;
use crate::config::{Drain, LeaderElection, LoadBalancer, NodeGone, State, format_problems, key, reader};
use crate::text;

/// A pool file, validated.
#[derive(Clone, Debug)]
pub struct PoolFile {
    /// The pool.
    pub pool: Pool,
    /// Region; `None`: as the SDK finds it.
    pub region: Option<String>,
    /// Endpoint to call instead of AWS's own.
    pub endpoint_url: Option<String>,
    /// Longest wait for launched machines to be Ready nodes.
    pub ready_timeout: Duration,
    /// How a node is emptied.
    pub drain: Drain,
    /// How long load balancers get.
    pub load_balancer: LoadBalancer,
    /// Longest wait for evicted pods to run elsewhere.
    pub settle_timeout: Duration,
    /// The wait for a deleted node to leave the cluster.
    pub node_gone: NodeGone,
    /// The `ConfigMap` that the migrator keeps, and the namespace of the lease.
    pub state: State,
    /// How one of several commands on the pool is chosen; the pool's lease is [`PoolFile::lease_name`].
    pub leader_election: LeaderElection,
    effective: File,
}

/// Reads a file that the pool file names.
type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

impl PoolFile {
    /// Reads a file, and the user data that it may name relative to itself.
    ///
    /// # Errors
    /// When it can't be read, and everything that is wrong with it, each with its place, the reason and the remedy.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = text::read(path).map_err(|error| {
            let message = format!("{name} can't be read ({error}): name a file of YAML that is there");
            refused(&name, vec![Problem { place: Place::Default, key: String::new(), message }])
        })?;
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        Self::parse(&name, &text, &|file| std::fs::read(folder.join(file)))
    }

    /// The file as `name` for messages, its `text`, and a way to read the user data that it may name.
    fn parse(name: &str, text: &str, read_file: ReadFile<'_>) -> Result<Self, ConfigError> {
        let (mut tree, mut problems) = Tree::parse(text).map_err(|problem| refused(name, vec![problem]))?;
        problems.extend(format_problems(&tree, "SpotFleetNodePool"));
        let (file, mistakes) = reader::read::<File>(&mut tree, |key| key::elsewhere(key, keys()));
        problems.extend(mistakes);
        validation::validate(file, Check { tree: &tree, problems }, read_file)
            .map_err(|problems| refused(name, problems))
    }

    /// The name of the lease that whoever changes the pool has to hold.
    #[must_use]
    pub fn lease_name(&self) -> String {
        format!("{}-fleet-{}", self.leader_election.lease_name, self.pool.name)
    }

    /// The file in force, with every key that has a value, as the YAML of a file that would read as the same.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        // Serializing plain text, numbers and maps into a String has no way to fail.
        serde_saphyr::to_string(&self.effective).unwrap_or_default()
    }

    /// The same as a value of JSON.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        // As above.
        serde_json::to_value(&self.effective).unwrap_or_default()
    }
}

/// Two files are equal when every key is, and the pool that they describe.
impl PartialEq for PoolFile {
    fn eq(&self, other: &Self) -> bool {
        self.effective == other.effective && self.pool == other.pool
    }
}

fn refused(name: &str, problems: Vec<Problem>) -> ConfigError {
    ConfigError::new("pool file", name, problems)
}
