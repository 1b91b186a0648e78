//! What a pool asks EC2 for.

use spot_aws::fleet::{Launch, Launches, Pool, Rebalance, RebalanceStrategy, UserData};

use crate::support::{bottlerocket, full, nodeadm, pool, texts};

#[test]
fn a_pool_asks_for_a_template_and_a_fleet() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&Launch::of(&pool(), "/dev/xvda")).unwrap());
}

#[test]
fn a_pool_asks_for_everything_that_it_has() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&Launch::of(&full(), "/dev/sda1")).unwrap());
}

#[test]
fn that_a_fleet_terminates_machines_undrained_by_itself_is_noted() {
    let notes = |strategy| {
        let rebalance = Some(Rebalance { strategy, termination_delay: None });
        Launch::of(&Pool { rebalance, ..pool() }, "/dev/xvda").notes.concat()
    };
    assert!(notes(RebalanceStrategy::LaunchBeforeTerminate).contains("`interruption.rebalanceRecommendation: drain`"));
    assert_eq!(notes(RebalanceStrategy::Launch), "");
}

#[test]
fn user_data_of_a_plain_kubelet() {
    let mut pool = pool();
    let UserData::Kubelet(kubelet) = &mut pool.user_data else { panic!() };
    kubelet.arguments = texts(&["--max-pods=58", "--system-reserved=cpu=100m,memory=1Gi"]);
    kubelet.before = "apt-get install --yes kubelet\n".to_owned();
    insta::assert_snapshot!(user_data(&pool));
}

#[test]
fn user_data_of_nodeadm() {
    insta::assert_snapshot!(user_data(&Pool { user_data: nodeadm(), ..pool() }));
}

#[test]
fn user_data_of_bottlerocket() {
    insta::assert_snapshot!(user_data(&Pool { user_data: bottlerocket(), ..pool() }));
}

#[test]
fn own_user_data_is_filled_in_where_the_pool_has_something_to_say() {
    let text = "a ${CLUSTER}/${POOL} ${NODE_LABELS} ${NODE_TAINTS} $${NODE_LABELS} ${HOME} $$ $1 €$";
    let text = user_data(&Pool { user_data: UserData::Own(text.to_owned()), ..pool() });
    let labels = "example.com/team=a,node.kubernetes.io/lifecycle=spot,spot-migrator.io/pool=spot";
    let taints = "example.com/spot=true:NoSchedule";
    assert_eq!(text, format!("a prod/spot {labels} {taints} ${{NODE_LABELS}} ${{HOME}} $$ $1 €$"));
}

#[test]
fn offers_of_one_root_volume_share_a_version() {
    let mut pool = pool();
    pool.offers[2].root_volume.size = Some(20);
    let launch = Launch::of(&pool, "/dev/xvda");
    let types = |launches: &Launches| -> Vec<(String, String)> {
        let pairs = launches.overrides.iter().map(|one| (one.instance_type.clone(), one.subnet.clone()));
        pairs.collect()
    };
    let pairs = |types: [&str; 2]| -> Vec<(String, String)> {
        let pairs = types.into_iter().flat_map(|name| ["subnet-0a", "subnet-0b"].map(|subnet| (name, subnet)));
        pairs.map(|(name, subnet)| (name.to_owned(), subnet.to_owned())).collect()
    };
    let [small, large] = &launch.request.launches[..] else { panic!("{launch:?}") };
    assert_eq!(types(small), pairs(["m5.large", "r5.2xlarge"]));
    assert_eq!(types(large), pairs(["m5.xlarge", "m5.xlarge"])[..2]);
    let described: Vec<_> = launch.template.versions.iter().map(|version| version.description.as_str()).collect();
    assert_eq!(described, [small.version.as_str(), large.version.as_str()]);
}

fn user_data(pool: &Pool) -> String {
    assert_eq!(pool.faults(), []);
    Launch::of(pool, "/dev/xvda").template.versions.remove(0).machine.user_data
}
