//! Whatever is accepted is shown in a way that is accepted again, as the same.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::load_text;

/// Texts that YAML would take for something else, or that need care in quotes, beside plain ones.
fn text() -> impl Strategy<Value = String> {
    let odd = [
        "",
        "true",
        "null",
        "~",
        "yes",
        "on",
        "1",
        "0x1f",
        "1e3",
        ".5",
        "12:30",
        "2020-01-01",
        "a: b",
        "@a",
        "=",
        "+ -",
    ];
    prop_oneof![prop::sample::select(odd.to_vec()).prop_map(str::to_owned), "[A-Za-z0-9 +=._:/@-]{0,20}"]
}

/// Shell, of any shape.
fn shell() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~\n\té“]{0,60}", "( {0,3}[a-z#$'\"\\\\:-]{1,8}\n{0,2}){0,5}"]
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(&["", "true", "null", "yes", "1", "0x1f", "1e3", "1.0", "no"][..]).prop_map(str::to_owned),
        "[A-Za-z0-9]([A-Za-z0-9_.-]{0,8}[A-Za-z0-9])?"
    ]
}

fn offer(at: usize) -> impl Strategy<Value = Value> {
    let price =
        prop_oneof![Just(json!("0.05")), (1_u32..200).prop_map(|n| json!(f64::from(n) / 100.0)), Just(json!(1))];
    let size = prop::option::of(1_u32..200);
    (prop::option::of(1_u32..4), prop::option::of(price), size).prop_map(move |(weight, price, size)| {
        let mut offer = json!({ "instanceType": format!("m5.{at}xlarge") });
        let more = [
            ("weightedCapacity", weight.map(Value::from)),
            ("maxPrice", price),
            ("rootVolume", size.map(|size| json!({ "size": size }))),
        ];
        for (key, value) in more {
            if let Some(value) = value {
                offer[key] = value;
            }
        }
        offer
    })
}

fn user_data() -> impl Strategy<Value = Value> {
    let known = json!({ "apiServer": "https://api.example.org", "certificateAuthority": "LS0t" });
    let mut nodeadm = known.clone();
    nodeadm["serviceCidr"] = json!("10.100.0.0/16");
    prop_oneof![
        Just(json!({ "file": "boot.sh" })),
        shell().prop_map(|before| json!({ "kubelet": { "before": before, "arguments": ["--v=2", "--x=a, b"] } })),
        Just(json!({ "nodeadm": nodeadm })),
        Just(json!({ "bottlerocket": known })),
    ]
}

/// Keys that may be left out, each there or not.
fn optional() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let key =
        |name: &'static str, value: BoxedStrategy<Value>| prop::option::of(value.prop_map(move |value| (name, value)));
    let map = |key: &'static str, value: BoxedStrategy<String>| {
        prop::collection::btree_map(key, value, 0..4).prop_map(|map| json!(map)).boxed()
    };
    let words = |words: &'static [&'static str]| prop::sample::select(words).prop_map(Value::from).boxed();
    let rebalance = prop_oneof![
        Just(json!({})),
        Just(json!({ "strategy": "launch" })),
        (2_u32..120)
            .prop_map(|m| json!({ "strategy": "launch-before-terminate", "terminationDelay": format!("{m}m") })),
    ];
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let taint = ("[a-z]{1,8}", label(), prop::sample::select(effects.to_vec()))
        .prop_map(|(key, value, effect)| json!({ "key": key, "value": value, "effect": effect }));
    let taints = prop::collection::vec(taint, 0..3).prop_map(|taints| json!(taints));
    [
        key("region", text().prop_map(Value::from).boxed()),
        key("minCapacity", (0_u32..8).prop_map(Value::from).boxed()),
        key("allocationStrategy", words(&["capacity-optimized", "diversified", "lowest-price"])),
        key("capacityRebalance", rebalance.boxed()),
        key("fleetRole", text().prop_map(Value::from).boxed()),
        key("sshKey", text().prop_map(Value::from).boxed()),
        key("unitRootVolumeSize", (0_u32..100).prop_map(Value::from).boxed()),
        key("unitRootVolumeIops", (1_u32..9000).prop_map(Value::from).boxed()),
        key("rootVolume", words(&["gp3", "io1", "io2"]).prop_map(|kind| json!({ "type": kind })).boxed()),
        key("labels", map("[a-z]{1,8}|true|null|1|1e3", label().boxed())),
        key("taints", taints.boxed()),
        key("tags", map("[a-z][A-Za-z0-9 +=._:/@-]{0,12}", text().boxed())),
        key("loadBalancers", prop::collection::vec(label(), 0..2).prop_map(|names| json!(names)).boxed()),
        key("drain", text().prop_map(|_| json!({ "podGracePeriod": "30s" })).boxed()),
        key("state", label().prop_map(|name| json!({ "namespace": name })).boxed()),
    ]
    .prop_map(|keys: [_; 15]| keys.into_iter().flatten().collect())
}

prop_compose! {
    fn file()(
        optional in optional(),
        user_data in user_data(),
        offers in (1_usize..4).prop_flat_map(|count| (0..count).map(offer).collect::<Vec<_>>()),
        target in 0_u32..20,
    ) -> Value {
        let mut file = json!({
            "apiVersion": "spot-migrator.io/v1alpha1",
            "kind": "SpotFleetNodePool",
            "cluster": "prod",
            "name": "batch",
            "targetCapacity": target,
            "subnets": ["subnet-1", "subnet-2"],
            "securityGroups": ["sg-1"],
            "instanceProfile": "node",
            "image": "ami-1",
            "userData": user_data,
            "launchSpecifications": offers,
        });
        for (key, value) in optional {
            file[key] = value;
        }
        file
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shown_of_an_accepted_file_is_accepted_as_the_same(file in file()) {
        // JSON is YAML.
        let read = load_text(&file.to_string());
        prop_assume!(read.is_ok());
        let read = read.unwrap();
        let shown = read.to_yaml();
        let again = load_text(&shown);
        prop_assert!(again.is_ok(), "{}\n{}", again.unwrap_err(), shown);
        let again = again.unwrap();
        prop_assert_eq!(&again.pool, &read.pool, "{}", shown);
        prop_assert_eq!(&again, &read, "{}", shown);
        prop_assert_eq!(again.to_yaml(), shown);
        prop_assert_eq!(load_text(&read.to_json().to_string()).unwrap(), read);
    }
}
