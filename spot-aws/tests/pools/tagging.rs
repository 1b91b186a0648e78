//! Tags of machines, volumes, template and fleets.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spot_aws::fleet::{Launch, Pool};

use crate::support::{map, pool};

fn of(pool: &Pool) -> Launch {
    Launch::of(pool, "/dev/xvda")
}

#[test]
fn whatever_is_made_bears_the_clusters_and_the_pools_tags_and_the_users() {
    let launch = of(&pool());
    let expected = map(&[
        ("KubernetesCluster", "prod"),
        ("Name", "prod-spot"),
        ("kubernetes.io/cluster/prod", "owned"),
        ("spot-migrator.io/pool", "spot"),
        ("spot-migrator.io/pool-hash", &launch.hash),
        ("team", "a"),
    ]);
    assert_eq!(launch.template.tags, expected);
    assert_eq!(launch.request.tags, expected);
    assert!(launch.template.versions.iter().all(|version| version.machine.tags == expected));
}

/// Five of ours on every machine, and the capacity on the request.
#[test]
fn so_many_tags_as_ec2_takes_are_taken_and_no_more() {
    let tags = |count: u32| -> BTreeMap<_, _> { (0..count).map(|at| (format!("tag-{at}"), String::new())).collect() };
    let most = Pool { tags: tags(44), ..pool() };
    assert_eq!(most.faults(), []);
    assert_eq!(of(&most).request.tags.len() + 1, 50);
    let [fault] = &Pool { tags: tags(45), ..pool() }.faults()[..] else { panic!() };
    assert_eq!(
        fault.to_string(),
        "tags: 45, and with those that every pool has over the 50 that EC2 takes: at most 44"
    );
}

proptest! {
    #[test]
    fn no_limit_of_tags_is_passed_unnoticed(
        tags in prop::collection::btree_map("(aws:|AWS:|Name|é|[a-z]{1,4}|[a-z]{120,132})", "([a-z]{0,4}|é{250,260})", 0..60),
    ) {
        let pool = Pool { tags, ..pool() };
        let request = of(&pool).request.tags;
        let is_taken = |(key, value): (&String, &String)| {
            (1..=128).contains(&key.chars().count())
                && value.chars().count() <= 256
                && !key.to_lowercase().starts_with("aws:")
        };
        let kept = pool.tags.iter().all(|(key, value)| request.get(key) == Some(value));
        let sound = request.iter().all(is_taken) && request.len() < 50 && kept;
        prop_assert_eq!(pool.faults().is_empty(), sound, "{:?}", pool.faults());
    }
}
