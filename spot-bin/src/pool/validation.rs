//! What types alone can't tell of a pool file, and the way of its values into a pool.

use std::io;
use std::path::Path;

use spot_aws::fleet::{self, Fault, Pool};
use spot_core::node;

use super::file::{self, File};
use super::{PoolFile, ReadFile};
use crate::config::check::{Check, some};
use crate::config::lapse::Timeout;
use crate::config::problem::Problem;
use crate::config::tree::{Step, Tree, Value, steps, written};

/// Keys without which there is no pool, beside those that tell the format, each with an example.
const REQUIRED: [(&str, &str); 9] = [
    ("cluster", "prod"),
    ("name", "batch"),
    ("targetCapacity", "6"),
    ("subnets", "[subnet-0a1b2c3d4e5f60718]"),
    ("securityGroups", "[sg-0a1b2c3d4e5f60718]"),
    ("instanceProfile", "kubernetes-node"),
    ("image", "ami-0a1b2c3d4e5f60718"),
    ("userData", "{kubelet: {}}"),
    ("launchSpecifications", "[{instanceType: m5.large}]"),
];

/// The typed file, unless `check` has a problem (found before, or here).
pub(super) fn validate(file: File, mut check: Check<'_>, read_file: ReadFile<'_>) -> Result<PoolFile, Vec<Problem>> {
    require(&mut check, "", &REQUIRED);
    check.url("endpointUrl", &file.endpoint_url);
    let user_data = user_data(&mut check, &file.user_data, read_file);
    let taints = taints(&mut check, &file.taints);
    for index in indices(check.tree, "launchSpecifications") {
        require(&mut check, &format!("launchSpecifications[{index}]"), &[("instanceType", "m5.large")]);
    }
    let drain = check.drain(&file.drain);
    let leader_election = check.leader_election(&file.leader_election);
    let state = check.state(&file.state.namespace.0, &file.state.config_map.0);
    let pool = pool(&file, user_data, taints);
    report(&mut check, pool.faults());

    if !check.problems.is_empty() {
        return Err(check.problems);
    }
    Ok(PoolFile {
        pool,
        region: some(&file.region),
        endpoint_url: some(&file.endpoint_url),
        ready_timeout: file.ready.timeout.get(),
        drain,
        load_balancer: (&file.load_balancer).into(),
        settle_timeout: file.settle.timeout.get(),
        node_gone: (&file.node_gone).into(),
        state,
        leader_election,
        effective: file,
    })
}

/// Refuses the mapping that `path` leads to for each of `keys` that it lacks.
fn require(check: &mut Check<'_>, path: &str, keys: &[(&str, &str)]) {
    let tree = check.tree.nearest(path);
    let Value::Map(_) = &tree.value else { return };
    for (name, example) in keys {
        let key = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
        if tree.get(name).is_none() && check.is_sound(&key) {
            let message = format!("the key is missing: add it, as in `{name}: {example}`");
            check.problems.push(Problem { place: tree.place.clone(), key, message });
        }
    }
}

/// The one way in which user data is given, or one that stands for what was refused.
fn user_data(check: &mut Check<'_>, data: &file::UserData, read_file: ReadFile<'_>) -> fleet::UserData {
    let ways = [
        ("file", !data.file.is_empty()),
        ("kubelet", data.kubelet.is_some()),
        ("nodeadm", data.nodeadm.is_some()),
        ("bottlerocket", data.bottlerocket.is_some()),
    ];
    let given: Vec<_> = ways.iter().filter(|(_, is_given)| *is_given).map(|(way, _)| format!("`{way}`")).collect();
    if given.len() != 1 && check.is_sound("userData") {
        let message = if given.is_empty() {
            "found none of the ways to give it: write one of `file`, `kubelet`, `nodeadm` and `bottlerocket`".to_owned()
        } else {
            format!("found {}, but a machine has one user data: keep one of them", given.join(" and "))
        };
        refuse(check, "userData", message);
    }
    if let Some(kubelet) = &data.kubelet {
        return fleet::UserData::Kubelet(fleet::Kubelet {
            arguments: kubelet.arguments.clone(),
            before: kubelet.before.clone(),
        });
    }
    if let Some(nodeadm) = &data.nodeadm {
        return fleet::UserData::Nodeadm(fleet::Nodeadm {
            api_server: nodeadm.api_server.clone(),
            certificate_authority: nodeadm.certificate_authority.clone(),
            service_cidr: nodeadm.service_cidr.clone(),
            kubelet_arguments: nodeadm.kubelet_arguments.clone(),
        });
    }
    if let Some(bottlerocket) = &data.bottlerocket {
        return fleet::UserData::Bottlerocket(fleet::Bottlerocket {
            api_server: bottlerocket.api_server.clone(),
            certificate_authority: bottlerocket.certificate_authority.clone(),
            cluster_dns: bottlerocket.cluster_dns.clone(),
        });
    }
    if data.file.is_empty() {
        return fleet::UserData::Kubelet(fleet::Kubelet::default());
    }
    let text = own(&data.file, read_file).unwrap_or_else(|message| {
        refuse(check, "userData.file", message);
        String::new()
    });
    fleet::UserData::Own(text)
}

fn own(path: &str, read_file: ReadFile<'_>) -> Result<String, String> {
    let bytes = read_file(Path::new(path)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no file {path:?}: write its path as seen from the folder of the pool file")
        }
        _ => format!("the file {path:?} can't be read ({error}): write one that can"),
    })?;
    String::from_utf8(bytes).map_err(|_| {
        format!("the file {path:?} is no text in UTF-8, in which labels and taints could be put: write text")
    })
}

fn taints(check: &mut Check<'_>, taints: &[file::Taint]) -> Vec<node::Taint> {
    for (index, taint) in indices(check.tree, "taints").into_iter().zip(taints) {
        require(check, &format!("taints[{index}]"), &[("key", "dedicated")]);
        let key = format!("taints[{index}].effect");
        if taint.effect.is_none() && check.is_sound(&key) {
            let message = "a taint without an effect keeps nothing away: add `effect: NoSchedule`, or \
                           `PreferNoSchedule`, or `NoExecute`";
            refuse(check, &key, message.to_owned());
        }
    }
    let made = taints.iter().map(|taint| node::Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: match taint.effect {
            // None was refused above.
            Some(file::Effect::NoSchedule) | None => node::Effect::NoSchedule,
            Some(file::Effect::PreferNoSchedule) => node::Effect::PreferNoSchedule,
            Some(file::Effect::NoExecute) => node::Effect::NoExecute,
        },
        time_added: None,
    });
    made.collect()
}

fn pool(file: &File, user_data: fleet::UserData, taints: Vec<node::Taint>) -> Pool {
    let rebalance = file.capacity_rebalance.as_ref().map(|rebalance| fleet::Rebalance {
        strategy: match rebalance.strategy {
            file::RebalanceStrategy::Launch => fleet::RebalanceStrategy::Launch,
            file::RebalanceStrategy::LaunchBeforeTerminate => fleet::RebalanceStrategy::LaunchBeforeTerminate,
        },
        termination_delay: rebalance.termination_delay.0.map(Timeout::get),
    });
    Pool {
        cluster: file.cluster.clone(),
        name: file.name.clone(),
        target_capacity: file.target_capacity,
        min_capacity: file.min_capacity,
        allocation: match file.allocation_strategy {
            file::Allocation::PriceCapacityOptimized => fleet::Allocation::PriceCapacityOptimized,
            file::Allocation::CapacityOptimized => fleet::Allocation::CapacityOptimized,
            file::Allocation::Diversified => fleet::Allocation::Diversified,
            file::Allocation::LowestPrice => fleet::Allocation::LowestPrice,
        },
        rebalance,
        fleet_role: file.fleet_role.0.clone(),
        subnets: file.subnets.clone(),
        security_groups: file.security_groups.clone(),
        instance_profile: file.instance_profile.clone(),
        image: file.image.clone(),
        ssh_key: some(&file.ssh_key),
        user_data,
        offers: file.launch_specifications.iter().map(offer).collect(),
        root_volume: fleet::RootVolume {
            kind: match file.root_volume.kind {
                file::VolumeKind::Gp3 => fleet::VolumeKind::Gp3,
                file::VolumeKind::Gp2 => fleet::VolumeKind::Gp2,
                file::VolumeKind::Io1 => fleet::VolumeKind::Io1,
                file::VolumeKind::Io2 => fleet::VolumeKind::Io2,
            },
            unit_size: file.unit_root_volume_size.0,
            unit_iops: file.unit_root_volume_iops,
            device: some(&file.root_volume.device),
            encrypted: file.root_volume.encrypted,
            kms_key: some(&file.root_volume.kms_key),
        },
        labels: file.labels.clone(),
        taints,
        tags: file.tags.clone(),
        load_balancers: file.load_balancers.clone(),
        target_groups: file.target_groups.clone(),
    }
}

fn offer(offer: &file::LaunchSpecification) -> fleet::Offer {
    fleet::Offer {
        instance_type: offer.instance_type.clone(),
        weight: offer.weighted_capacity,
        max_price: offer.max_price.as_ref().map(|price| price.0.clone()),
        root_volume: fleet::VolumeSize {
            size: offer.root_volume.size,
            iops: offer.root_volume.iops,
            throughput: offer.root_volume.throughput,
        },
    }
}

/// Notes what is wrong with the pool, but for what may only follow from problems that are known.
fn report(check: &mut Check<'_>, faults: Vec<Fault>) {
    let keys = faults.into_iter().map(|Fault { key, message }| (as_written(check.tree, &key), message));
    let fresh: Vec<_> = keys.filter(|(key, _)| check.is_sound(key)).collect();
    for (key, message) in fresh {
        refuse(check, &key, message);
    }
}

/// The path of a pool's fault with the indices that the file has: items that were refused are not in the pool.
fn as_written(tree: &Tree, path: &str) -> String {
    let mut steps = steps(path);
    for at in 0..steps.len() {
        let Step::Index(index) = steps[at] else { continue };
        if let Some(index) = tree.nearest(&written(&steps[..at])).indices().nth(index) {
            steps[at] = Step::Index(index);
        }
    }
    written(&steps)
}

/// Notes a problem of a key, at the place of what it would be in where nobody wrote it.
fn refuse(check: &mut Check<'_>, key: &str, message: String) {
    let place = check.tree.nearest(key).place.clone();
    check.problems.push(Problem { place, key: key.to_owned(), message });
}

/// The indices of a list's items, as they were written.
fn indices(tree: &Tree, list: &str) -> Vec<usize> {
    tree.get(list).map(|tree| tree.indices().collect()).unwrap_or_default()
}
