//! The examples that are shipped.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::PoolFile;

#[test]
fn the_examples_are_accepted_and_show_every_way_that_machines_join() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/pools");
    let mut ways = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = PoolFile::read(&path).unwrap_or_else(|error| panic!("{error}"));
        let user_data = file.to_json()["userData"].as_object().unwrap().keys().next().unwrap().clone();
        assert_eq!(path.file_name().unwrap().to_str().unwrap().replace("eks", "nodeadm"), format!("{user_data}.yaml"));
        ways.insert(user_data);
    }
    assert_eq!(ways.iter().map(String::as_str).collect::<Vec<_>>(), ["bottlerocket", "kubelet", "nodeadm"]);
}
