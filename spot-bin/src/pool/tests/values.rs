//! What is in force where nothing is said, and what is said as typed values.

use std::collections::BTreeMap;
use std::time::Duration;

use spot_aws::fleet::{
    Allocation, Bottlerocket, Kubelet, Nodeadm, Offer, Pool, Rebalance, RebalanceStrategy, RootVolume, UserData,
    VolumeKind, VolumeSize,
};
use spot_core::node::{Effect, Taint};

use super::super::PoolFile;
use super::{OWN, load};

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_pool_needs_little_and_has_the_documented_defaults() {
    let file = load("").unwrap();
    let expected = Pool {
        cluster: "prod".to_owned(),
        name: "batch".to_owned(),
        target_capacity: 6,
        min_capacity: 0,
        allocation: Allocation::PriceCapacityOptimized,
        rebalance: None,
        fleet_role: "aws-ec2-spot-fleet-tagging-role".to_owned(),
        subnets: texts(&["subnet-0a1b2c3d4e5f60718", "subnet-1a1b2c3d4e5f60718"]),
        security_groups: texts(&["sg-0a1b2c3d4e5f60718"]),
        instance_profile: "kubernetes-node".to_owned(),
        image: "ami-0a1b2c3d4e5f60718".to_owned(),
        ssh_key: None,
        user_data: UserData::Kubelet(Kubelet::default()),
        offers: vec![Offer {
            instance_type: "m5.large".to_owned(),
            weight: 1,
            max_price: None,
            root_volume: VolumeSize::default(),
        }],
        root_volume: RootVolume {
            kind: VolumeKind::Gp3,
            unit_size: 20,
            unit_iops: None,
            device: None,
            encrypted: true,
            kms_key: None,
        },
        labels: BTreeMap::new(),
        taints: Vec::new(),
        tags: BTreeMap::new(),
        load_balancers: Vec::new(),
        target_groups: Vec::new(),
    };
    assert_eq!(file.pool, expected);
    assert_eq!((&file.region, &file.endpoint_url), (&None, &None));
    assert_eq!(file.ready_timeout, Duration::from_mins(15));
    assert_eq!(file.drain.timeout, Duration::from_hours(1));
    assert_eq!(file.load_balancer.drain_max, Duration::from_mins(10));
    assert_eq!(file.settle_timeout, Duration::from_mins(25));
    assert!(file.node_gone.delete_node_object);
    assert_eq!(file.state.namespace.as_deref(), Some("kube-system"));
    assert_eq!(file.state.config_map, "spot-migrator");
    assert_eq!(file.lease_name(), "spot-migrator-fleet-batch");
}

#[test]
fn values_arrive_as_types() {
    let file = load(
        "region: eu-west-1\nendpointUrl: https://example.org\ntargetCapacity: 12\nminCapacity: 4\n\
         allocationStrategy: lowest-price\ncapacityRebalance: {strategy: launch-before-terminate, terminationDelay: 10m}\n\
         fleetRole: fleet\nsshKey: ops\nuserData: {kubelet: {arguments: [--v=2], before: \"true\"}}\n\
         unitRootVolumeSize: 30\nunitRootVolumeIops: 100\n\
         rootVolume: {type: io2, device: /dev/xvdb, kmsKey: alias/nodes}\n\
         launchSpecifications: [{instanceType: m5.xlarge, weightedCapacity: 2, maxPrice: \"0.05\", \
         rootVolume: {size: 50, iops: 500}}]\n\
         labels: {tier: batch}\ntaints: [{key: batch, effect: NoSchedule}, {key: a, value: b, effect: NoExecute}]\n\
         tags: {team: data}\nloadBalancers: [ingress]\n\
         targetGroups: ['arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/a/0a1b2c3d4e5f6071']\n\
         ready: {timeout: 5m}\ndrain: {timeout: 2h}\nstate: {namespace: spot}\nleaderElection: {leaseName: own}",
    )
    .unwrap();
    let pool = &file.pool;
    assert_eq!(
        (file.region.as_deref(), file.endpoint_url.as_deref()),
        (Some("eu-west-1"), Some("https://example.org"))
    );
    assert_eq!((pool.target_capacity, pool.min_capacity, pool.allocation), (12, 4, Allocation::LowestPrice));
    let (strategy, termination_delay) = (RebalanceStrategy::LaunchBeforeTerminate, Some(Duration::from_mins(10)));
    assert_eq!(pool.rebalance, Some(Rebalance { strategy, termination_delay }));
    assert_eq!((&*pool.fleet_role, pool.ssh_key.as_deref()), ("fleet", Some("ops")));
    let user_data = Kubelet { arguments: texts(&["--v=2"]), before: "true".to_owned() };
    assert_eq!(pool.user_data, UserData::Kubelet(user_data));
    let root_volume = RootVolume {
        kind: VolumeKind::Io2,
        unit_size: 30,
        unit_iops: Some(100),
        device: Some("/dev/xvdb".to_owned()),
        encrypted: true,
        kms_key: Some("alias/nodes".to_owned()),
    };
    assert_eq!(pool.root_volume, root_volume);
    let offer = Offer {
        instance_type: "m5.xlarge".to_owned(),
        weight: 2,
        max_price: Some("0.05".to_owned()),
        root_volume: VolumeSize { size: Some(50), iops: Some(500), throughput: None },
    };
    assert_eq!(pool.offers, [offer]);
    assert_eq!((&pool.labels, &pool.tags), (&map(&[("tier", "batch")]), &map(&[("team", "data")])));
    let taint = |key: &str, value: &str, effect| Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect,
        time_added: None,
    };
    assert_eq!(pool.taints, [taint("batch", "", Effect::NoSchedule), taint("a", "b", Effect::NoExecute)]);
    assert_eq!((pool.load_balancers.len(), pool.target_groups.len()), (1, 1));
    assert_eq!((file.ready_timeout, file.drain.timeout), (Duration::from_mins(5), Duration::from_hours(2)));
    assert_eq!((file.state.namespace.as_deref(), &*file.lease_name()), (Some("spot"), "own-fleet-batch"));
}

#[test]
fn user_data_comes_in_four_ways() {
    let user_data = |body: &str| load(&format!("userData: {body}")).unwrap().pool.user_data;
    assert_eq!(user_data("{file: boot.sh}"), UserData::Own(OWN.to_owned()));
    assert_eq!(
        user_data("{kubelet: {before: ls}}"),
        UserData::Kubelet(Kubelet { before: "ls".to_owned(), ..Kubelet::default() })
    );
    let (api_server, certificate_authority) = ("https://api.example.org".to_owned(), "LS0t".to_owned());
    let known = "apiServer: https://api.example.org, certificateAuthority: LS0t";
    assert_eq!(
        user_data(&format!("{{nodeadm: {{{known}, serviceCidr: 10.100.0.0/16, kubeletArguments: [--v=2]}}}}")),
        UserData::Nodeadm(Nodeadm {
            api_server: api_server.clone(),
            certificate_authority: certificate_authority.clone(),
            service_cidr: "10.100.0.0/16".to_owned(),
            kubelet_arguments: texts(&["--v=2"]),
        })
    );
    assert_eq!(
        user_data(&format!("{{bottlerocket: {{{known}, clusterDns: 10.100.0.10}}}}")),
        UserData::Bottlerocket(Bottlerocket {
            api_server,
            certificate_authority,
            cluster_dns: "10.100.0.10".to_owned(),
        })
    );
}

#[test]
fn a_price_may_be_written_as_a_number() {
    for (written, price) in [("0.05", "0.05"), ("'0.050'", "0.050"), ("1", "1"), ("0.00001", "0.00001")] {
        let file = load(&format!("launchSpecifications: [{{instanceType: m5.large, maxPrice: {written}}}]")).unwrap();
        assert_eq!(file.pool.offers[0].max_price.as_deref(), Some(price));
    }
}

#[test]
fn the_effective_file_shows_every_default() {
    insta::assert_snapshot!(load("").unwrap().to_yaml());
}

#[test]
fn user_data_is_read_from_beside_the_pool_file() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, boot) = (folder.path().join("pool.yaml"), folder.path().join("boot.sh"));
    let text = load("userData: {file: boot.sh}").unwrap().to_yaml();
    std::fs::write(&pool, text).unwrap();
    let error = PoolFile::read(&pool).unwrap_err().to_string();
    assert!(error.contains("userData.file: there is no file \"boot.sh\""), "{error}");
    std::fs::write(&boot, OWN).unwrap();
    assert_eq!(PoolFile::read(&pool).unwrap().pool.user_data, UserData::Own(OWN.to_owned()));
}

#[test]
fn a_pool_file_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = PoolFile::read(&folder.path().join("pool.yaml")).unwrap_err().to_string();
    assert!(error.starts_with("the pool file is refused: ") && error.contains("pool.yaml can't be read"), "{error}");
}
