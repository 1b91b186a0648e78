//! What is refused: the place, the reason, the remedy.

use rstest::rstest;

use super::{HEADER, NEEDED, load, load_text};

#[rstest]
// Misspelt, misplaced and duplicate keys.
#[case::unknown("subnet: [subnet-1]", "3:1: subnet: unknown key: did you mean `subnets`?")]
#[case::unknown_below(
    "rootVolume: {kind: gp3}",
    "3:14: rootVolume.kind: unknown key: write `type`, `device`, `encrypted` or `kmsKey`"
)]
#[case::unknown_in_a_list(
    "launchSpecifications: [{instanceType: m5.large}, {instanceType: m5a.large, weigthedCapacity: 2}]",
    "3:76: launchSpecifications[1].weigthedCapacity: unknown key: did you mean `weightedCapacity`?"
)]
#[case::misplaced(
    "terminationDelay: 5m",
    "terminationDelay: unknown key: did you mean `capacityRebalance.terminationDelay`?"
)]
#[case::duplicate(
    "minCapacity: 1\nminCapacity: 2",
    "4:1: minCapacity: duplicate key, first written in line 3: keep one of the two"
)]
#[case::of_another_file("schedule: '@hourly'", "3:1: schedule: unknown key: write `apiVersion`")]
// Types.
#[case::weight_with_a_fraction(
    "launchSpecifications: [{instanceType: m5.large, weightedCapacity: 1.5}]",
    "3:67: launchSpecifications[0].weightedCapacity: found 1.5: write a whole number from 1 to 4294967295"
)]
#[case::weight_in_words(
    "launchSpecifications: [{instanceType: m5.large, weightedCapacity: two}]",
    "launchSpecifications[0].weightedCapacity: found \"two\": write a whole number"
)]
#[case::weight_without_value(
    "launchSpecifications: [{instanceType: m5.large, weightedCapacity: }]",
    "3:49: launchSpecifications[0].weightedCapacity: found nothing: write a whole number"
)]
#[case::negative("targetCapacity: -1", "3:17: targetCapacity: found -1: write a whole number")]
#[case::list_for_one("image: [ami-1]", "3:8: image: found a list: write text")]
#[case::one_for_a_list("subnets: subnet-1", "3:10: subnets: found \"subnet-1\": write a list, which may be empty: []")]
#[case::a_number_for_a_label("labels: {gpu: 1}", "3:15: labels.gpu: found 1: write text, in quotes: \"1\"")]
#[case::true_for_a_tag("tags: {spot: true}", "3:14: tags.spot: found true: write text, in quotes: \"true\"")]
#[case::an_offer_without_keys(
    "launchSpecifications: [m5.large]",
    "3:24: launchSpecifications[0]: found \"m5.large\": write keys below it, of `instanceType`"
)]
#[case::a_section_without_keys("capacityRebalance:", "3:1: capacityRebalance: found nothing: write keys below it")]
#[case::an_optional_number_without_value(
    "unitRootVolumeIops:",
    "3:1: unitRootVolumeIops: found nothing: write a whole number"
)]
#[case::a_delay_without_unit(
    "capacityRebalance: {terminationDelay: 120}",
    "3:39: capacityRebalance.terminationDelay: found 120, which has no unit: write 120s, 120m or 120h"
)]
#[case::a_price_of_another_kind(
    "launchSpecifications: [{instanceType: m5.large, maxPrice: true}]",
    "3:59: launchSpecifications[0].maxPrice: found boolean `true`: write a price in dollars, such as \"0.05\""
)]
// Words.
#[case::strategy(
    "allocationStrategy: cheapest",
    "3:21: allocationStrategy: found \"cheapest\": write `price-capacity-optimized`, `capacity-optimized`, `diversified` or `lowest-price`"
)]
#[case::volume("rootVolume: {type: gp4}", "3:20: rootVolume.type: found \"gp4\": did you mean `gp3`?")]
#[case::effect(
    "taints: [{key: a, effect: noSchedule}]",
    "3:27: taints[0].effect: found \"noSchedule\": did you mean `NoSchedule`?"
)]
// What is missing.
#[case::taint_without_effect(
    "taints: [{key: a, effect: NoSchedule}, {key: b}]",
    "3:40: taints[1].effect: a taint without an effect keeps nothing away: add `effect: NoSchedule`"
)]
#[case::taint_without_key(
    "taints: [{effect: NoSchedule}]",
    "3:10: taints[0].key: the key is missing: add it, as in `key: dedicated`"
)]
#[case::offer_without_type(
    "launchSpecifications: [{instanceType: m5.large}, {weightedCapacity: 2}]",
    "3:50: launchSpecifications[1].instanceType: the key is missing: add it, as in `instanceType: m5.large`"
)]
#[case::no_way_of_user_data(
    "userData: {}",
    "3:11: userData: found none of the ways to give it: write one of `file`, `kubelet`, `nodeadm` and `bottlerocket`"
)]
#[case::two_ways_of_user_data(
    "userData: {file: boot.sh, kubelet: {}}",
    "3:11: userData: found `file` and `kubelet`, but a machine has one user data: keep one of them"
)]
// The files that it names.
#[case::no_file("userData: {file: gone.sh}", "3:18: userData.file: there is no file \"gone.sh\"")]
#[case::no_right("userData: {file: secret.sh}", "3:18: userData.file: the file \"secret.sh\" can't be read (")]
#[case::no_text("userData: {file: boot.gz}", "3:18: userData.file: the file \"boot.gz\" is no text in UTF-8")]
// What is wrong with the pool itself, at its place.
#[case::weight_of_zero(
    "launchSpecifications:\n- instanceType: m5.large\n- instanceType: m5a.large\n  weightedCapacity: 0",
    "6:21: launchSpecifications[1].weightedCapacity: 0: a machine is at least 1 unit"
)]
#[case::target_below_minimum("targetCapacity: 3\nminCapacity: 4", "3:17: targetCapacity: 3 is below `minCapacity`, 4")]
#[case::a_subnet_twice(
    "subnets: [subnet-1, subnet-2, subnet-1]",
    "3:31: subnets[2]: \"subnet-1\" comes twice: keep one of the two"
)]
#[case::no_subnet("subnets: []", "3:10: subnets: empty: name at least one subnet")]
#[case::no_offer("launchSpecifications: []", "3:23: launchSpecifications: empty: name at least one instance type")]
#[case::long_user_data("userData: {file: long.sh}", "3:18: userData.file: ")]
#[case::own_user_data_without_taints("userData: {file: deaf.sh}", "3:18: userData.file: `${NODE_TAINTS}` is missing")]
#[case::no_api_server(
    "userData: {bottlerocket: {certificateAuthority: LS0t}}",
    "3:26: userData.bottlerocket.apiServer: \"\" is no URL of an API server"
)]
#[case::a_reserved_label(
    "labels:\n  kubernetes.io/role: spot",
    "4:23: labels[\"kubernetes.io/role\"]: the kubelet refuses to start with"
)]
#[case::a_tag_of_aws("tags: {'aws:team': data}", "3:20: tags[\"aws:team\"]: `aws:` is AWS' own")]
#[case::a_tag_of_ours("tags: {Name: mine}", "3:14: tags.Name: given by the pool itself")]
#[case::a_price_of_nothing(
    "launchSpecifications: [{instanceType: m5.large, maxPrice: 0}]",
    "3:59: launchSpecifications[0].maxPrice: \"0\" is no price"
)]
#[case::a_negative_price(
    "launchSpecifications: [{instanceType: m5.large, maxPrice: -0.05}]",
    "launchSpecifications[0].maxPrice: \"-0.05\" is no price"
)]
#[case::operations_of_gp2(
    "rootVolume: {type: gp2}\nunitRootVolumeIops: 100",
    "4:21: unitRootVolumeIops: gp2 has no operations to ask for"
)]
#[case::a_name_of_a_pool("name: My_Pool", "3:7: name: \"My_Pool\" is no name of a pool")]
// What it shares with the configuration.
#[case::endpoint("endpointUrl: localhost", "3:14: endpointUrl: found \"localhost\": write a URL")]
#[case::namespace(
    "state: {namespace: a.b}",
    "3:20: state.namespace: found \"a.b\", which can't be the name of a namespace"
)]
#[case::lease(
    "leaderElection: {renewDeadline: 15s}",
    "3:33: leaderElection.renewDeadline: found 15s, but it must be shorter"
)]
#[case::grace_period(
    "drain: {podGracePeriod: 500ms}",
    "3:25: drain.podGracePeriod: found 500ms, but Kubernetes counts"
)]
#[case::timeout("ready: {timeout: 0s}", "3:18: ready.timeout: found \"0s\", but it must be longer than zero")]
fn a_bad_file_is_refused_with_its_place_the_reason_and_the_remedy(#[case] body: &str, #[case] message: &str) {
    let error = load(body).unwrap_err();
    assert_eq!(error.problems().len(), 1, "{error}");
    let error = error.to_string();
    assert!(error.starts_with("the pool file is refused: pool.yaml:"), "{error}");
    assert!(error.contains(message), "wanted: {message}\nfound:  {error}");
}

#[test]
fn each_key_that_a_pool_needs_is_asked_for_with_an_example() {
    for (missing, _) in NEEDED {
        let others = NEEDED.iter().filter(|(key, _)| *key != missing).map(|(key, value)| format!("{key}: {value}\n"));
        let error = load_text(&format!("{HEADER}{}", others.collect::<String>())).unwrap_err();
        assert_eq!(error.problems().len(), 1, "{error}");
        let message = format!("pool.yaml:1:1: {missing}: the key is missing: add it, as in `{missing}: ");
        assert!(error.to_string().contains(&message), "{error}");
    }
}

#[test]
fn what_is_asked_for_can_be_written() {
    let error = load_text(HEADER).unwrap_err();
    let examples: Vec<_> =
        error.problems().iter().map(|problem| problem.message.rsplit('`').nth(1).unwrap().to_owned() + "\n").collect();
    assert_eq!(examples.len(), NEEDED.len(), "{error}");
    load_text(&format!("{HEADER}{}", examples.concat())).unwrap();
}

#[rstest]
#[case::nothing("", "found nothing: write keys below it")]
#[case::the_migrators(
    "apiVersion: spot-migrator.io/v1alpha1\nkind: SpotMigratorConfiguration",
    "pool.yaml:2:7: kind: found \"SpotMigratorConfiguration\": write `SpotFleetNodePool`"
)]
#[case::no_version(
    "kind: SpotFleetNodePool",
    "apiVersion: the key is missing: add `apiVersion: spot-migrator.io/v1alpha1`"
)]
#[case::no_kind("apiVersion: spot-migrator.io/v1alpha1", "kind: the key is missing: add `kind: SpotFleetNodePool`")]
#[case::no_yaml("cluster: [", "not YAML")]
#[case::two_documents("cluster: a\n---\ncluster: b", "pool.yaml:3:1: a second document begins")]
fn a_file_of_another_kind_is_refused_with_the_right_one(#[case] text: &str, #[case] message: &str) {
    let error = load_text(text).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_file() {
    let error = load(
        "subnet: x\nminCapacity: 9\ntaints: [{key: a}, {key: 'b c', effect: NoExecute}]\nuserData: {file: gone.sh}\n\
         launchSpecifications:\n- m5.large\n- {instanceType: m5a.large, weightedCapacity: 0}\nready: {timeout: soon}\n\
         tags: {'aws:a': b}",
    )
    .unwrap_err();
    let problems: Vec<_> = error.problems().iter().map(|problem| (line(problem), problem.key.as_str())).collect();
    let expected = [
        (3, "subnet"),
        (5, "taints[0].effect"),
        (5, "taints[1].key"),
        (6, "userData.file"),
        (8, "launchSpecifications[0]"),
        (9, "launchSpecifications[1].weightedCapacity"),
        (10, "ready.timeout"),
        (11, "tags[\"aws:a\"]"),
        (14, "targetCapacity"),
    ];
    assert_eq!(problems, expected, "{error}");
    assert!(error.to_string().starts_with("the pool file is refused for 9 reasons\n  pool.yaml:3:1: subnet: "));
}

fn line(problem: &crate::config::Problem) -> u64 {
    match problem.place {
        crate::config::Place::File { line, .. } => line,
        _ => 0,
    }
}

#[rstest]
#[case::target("targetCapacity: six\nminCapacity: 4")]
#[case::subnets("subnets: [1]")]
#[case::offers("launchSpecifications: [m5.large]")]
#[case::user_data("userData: {file: 1}")]
#[case::rebalance("capacityRebalance: {strategy: launch-before-terminate, terminationDelay: 120}")]
fn a_refused_value_makes_no_second_problem(#[case] body: &str) {
    let error = load(body).unwrap_err();
    assert_eq!(error.problems().len(), 1, "{error}");
}
