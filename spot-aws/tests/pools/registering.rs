//! Labels, taints and arguments reach the kubelet, whatever is in them, by every template.

use proptest::prelude::*;
use spot_aws::fleet::{Kubelet, Launch, Pool, UserData};

use crate::reading::{self, Registration};
use crate::support::{bottlerocket, labels, nodeadm, pool, taints, texts};

/// What shells, systemd, YAML and TOML each read in their own way.
const HARD: [&str; 12] = [
    "--plain=1",
    "--spaces=a  b",
    "--single='a'",
    "--double=\"a\"",
    "--backslash=\\a\\\\\"\\",
    "--dollar=$HOME ${HOME} $(false) `false`",
    "--percent=%n%%",
    "--hash=#a: b # c",
    "--lines=a\nb\r\tc",
    "--unicode=é€\u{2028}\u{85}\u{feff}\u{1f600}",
    "--control=\u{1}\u{7f}",
    "",
];

fn user_data(pool: &Pool) -> String {
    Launch::of(pool, "/dev/xvda").template.versions.remove(0).machine.user_data
}

/// What every kubelet of the pool registers with.
fn expected(pool: &Pool, others: &[String]) -> Registration {
    let mut labels = pool.labels.clone();
    labels.insert("node.kubernetes.io/lifecycle".to_owned(), "spot".to_owned());
    labels.insert("spot-migrator.io/pool".to_owned(), pool.name.clone());
    let written = |taint: &spot_core::node::Taint| format!("{}={}:{:?}", taint.key, taint.value, taint.effect);
    Registration { labels, taints: pool.taints.iter().map(written).collect(), others: others.to_vec() }
}

fn with(user_data: UserData, arguments: &[String]) -> UserData {
    match user_data {
        UserData::Kubelet(kubelet) => UserData::Kubelet(Kubelet { arguments: arguments.to_vec(), ..kubelet }),
        UserData::Nodeadm(mut nodeadm) => {
            nodeadm.kubelet_arguments = arguments.to_vec();
            UserData::Nodeadm(nodeadm)
        }
        other @ (UserData::Own(_) | UserData::Bottlerocket(_)) => other,
    }
}

#[test]
fn a_real_shell_leaves_every_argument_as_it_is() {
    let arguments = texts(&HARD);
    let pool = Pool { user_data: with(pool().user_data, &arguments), ..pool() };
    assert_eq!(reading::of_script(&user_data(&pool)), expected(&pool, &arguments));
}

#[test]
fn yaml_leaves_every_argument_as_it_is() {
    let arguments = texts(&HARD);
    let pool = Pool { user_data: with(nodeadm(), &arguments), ..pool() };
    assert_eq!(reading::of_node_config(&user_data(&pool)).0, expected(&pool, &arguments));
}

#[test]
fn toml_leaves_every_value_as_it_is() {
    for hard in HARD {
        let mut settings = bottlerocket();
        let UserData::Bottlerocket(bottlerocket) = &mut settings else { panic!() };
        bottlerocket.api_server = hard.to_owned();
        let pool = Pool { user_data: settings, ..pool() };
        let (found, cluster) = reading::of_settings(&user_data(&pool));
        assert_eq!(found, expected(&pool, &[]));
        assert_eq!(cluster["api-server"], hard);
        assert_eq!(cluster["cluster-name"], "prod");
        assert_eq!(cluster["cluster-dns-ip"], "10.100.0.10");
    }
}

#[test]
fn nodeadm_hears_of_the_cluster() {
    let (_, cluster) = reading::of_node_config(&user_data(&Pool { user_data: nodeadm(), ..pool() }));
    let expected = serde_json::json!({
        "name": "prod",
        "apiServerEndpoint": "https://api.example.com",
        "certificateAuthority": "Y2VydGlmaWNhdGU=",
        "cidr": "10.100.0.0/16",
    });
    assert_eq!(cluster, expected);
}

#[test]
fn the_users_commands_come_after_the_arguments_were_written_and_before_the_kubelet_starts() {
    let kubelet = Kubelet { before: "echo first\nexit 7".to_owned(), ..Kubelet::default() };
    let script = user_data(&Pool { user_data: UserData::Kubelet(kubelet), ..pool() });
    let at = |text: &str| script.find(text).unwrap();
    assert!(at("KUBELET_EXTRA_ARGS") < at("daemon-reload"));
    assert!(at("daemon-reload") < at("echo first\nexit 7\n"));
    assert!(at("exit 7\n") < at("restart kubelet"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn labels_and_taints_survive_every_template(labels in labels(), taints in taints()) {
        let arguments = texts(&["--max-pods=58"]);
        for user_data in [pool().user_data, nodeadm(), bottlerocket()] {
            let user_data = with(user_data, &arguments);
            let pool = Pool { labels: labels.clone(), taints: taints.clone(), user_data, ..pool() };
            prop_assert_eq!(pool.faults(), []);
            let text = self::user_data(&pool);
            let (found, others) = match &pool.user_data {
                UserData::Kubelet(_) => (reading::of_script(&text), &arguments[..]),
                UserData::Nodeadm(_) => (reading::of_node_config(&text).0, &arguments[..]),
                UserData::Bottlerocket(_) => (reading::of_settings(&text).0, &[][..]),
                UserData::Own(_) => unreachable!("none of the three"),
            };
            prop_assert_eq!(found, expected(&pool, others));
        }
    }

    #[test]
    fn any_argument_survives_a_shell_and_yaml(argument in "--[a-z]+=\\PC{0,20}", more in "[ '\"\\\\$`\n]{0,12}") {
        let arguments = [argument, more];
        let script = Pool { user_data: with(pool().user_data, &arguments), ..pool() };
        prop_assert_eq!(reading::of_script(&user_data(&script)), expected(&script, &arguments));
        let config = Pool { user_data: with(nodeadm(), &arguments), ..pool() };
        prop_assert_eq!(reading::of_node_config(&user_data(&config)).0, expected(&config, &arguments));
    }
}
