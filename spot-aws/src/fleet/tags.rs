//! The tags of a pool's machines, volumes, launch template and fleets.

use std::collections::BTreeMap;

use super::pool::Pool;
use crate::provider::instance::CLUSTER_TAG;

/// Keys of our tags.
pub mod tag {
    use crate::provider::instance::CLUSTER_TAG;

    /// The pool.
    pub const POOL: &str = spot_core::node::key::POOL;
    /// What its file asked for.
    pub const HASH: &str = "spot-migrator.io/pool-hash";
    /// Of a fleet: the units that the pool as a whole wanted when the fleet was asked for.
    pub const CAPACITY: &str = "spot-migrator.io/capacity";
    /// What a person sees.
    pub const NAME: &str = "Name";
    /// The legacy tag of a cluster's machines.
    pub const CLUSTER: &str = "KubernetesCluster";

    /// The tag of a cluster's machines: without it, or the legacy one, the cloud controller doesn't know them.
    #[must_use]
    pub fn cluster(name: &str) -> String {
        format!("{CLUSTER_TAG}{name}")
    }
}

/// The value of the cluster's [tag](tag::cluster) on what lives and goes with the cluster.
pub(crate) const OWNED: &str = "owned";

/// Ours, and the user's.
pub(super) fn own(pool: &Pool, hash: &str) -> BTreeMap<String, String> {
    let mut tags = pool.tags.clone();
    tags.extend(ours(pool, hash));
    tags
}

fn ours(pool: &Pool, hash: &str) -> [(String, String); 5] {
    [
        (tag::cluster(&pool.cluster), OWNED.to_owned()),
        (tag::CLUSTER.to_owned(), pool.cluster.clone()),
        (tag::NAME.to_owned(), pool.full_name()),
        (tag::POOL.to_owned(), pool.name.clone()),
        (tag::HASH.to_owned(), hash.to_owned()),
    ]
}

/// The most that a resource may have. <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions>
pub(super) const LIMIT: usize = 50;
/// Characters of a key, and of a value.
const LENGTHS: (usize, usize) = (128, 256);

/// How many a fleet's request has: it has one more than its machines, and AWS' own do not count.
pub(super) fn count(pool: &Pool) -> usize {
    own(pool, "").len() + 1
}

/// What is wrong with a tag of the user's.
pub(super) fn fault(pool: &Pool, key: &str, value: &str) -> Option<String> {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '+' | '-' | '=' | '.' | '_' | ':' | '/' | '@');
    let (keys, values) = LENGTHS;
    if key.is_empty() || key.chars().count() > keys {
        Some(format!("a key of {} characters: EC2 takes 1 to {keys}", key.chars().count()))
    } else if value.chars().count() > values {
        Some(format!("a value of {} characters: EC2 takes {values}", value.chars().count()))
    } else if key.to_lowercase().starts_with("aws:") {
        Some("`aws:` is AWS' own: choose another prefix".to_owned())
    } else if is_ours(pool, key) {
        Some("given by the pool itself: leave it out".to_owned())
    } else if let Some(cluster) = key.strip_prefix(CLUSTER_TAG) {
        Some(format!("the machines are not those of cluster {cluster:?}: leave it out"))
    } else if !key.chars().chain(value.chars()).all(allowed) {
        Some("holds what EC2 does not take: letters, digits, spaces and `+-=._:/@`".to_owned())
    } else {
        None
    }
}

fn is_ours(pool: &Pool, key: &str) -> bool {
    key.starts_with("spot-migrator.io/") || ours(pool, "").iter().any(|(ours, _)| ours == key)
}
