//! The manual of the pool file, in Markdown, and the test that keeps it and the JSON Schema up to date.

use super::file::{File, LaunchSpecification, Price, Taint, VolumeSize, keys};
use crate::config::key::{Key, keys_of, schema};
use crate::config::manual::{assert_up_to_date, tables};

const PREFACE: &str = "\
# The pool file

<!-- Made from the source: `UPDATE=1 cargo test -p spot-bin --features aws pool` writes this page anew. -->

A pool of spot nodes is one YAML file, which `spot-fleet` reads. It is read strictly: an unknown, misspelt or duplicate \
key, a key without a value and a value of another type are refused, and so is what can't be a pool, each with its place \
and the way to write it, before any call. All problems are reported at once; the exit code is 2. \
[`deploy/pool.schema.json`](../deploy/pool.schema.json) is the JSON Schema for editors. `spot-fleet plan` shows the \
file with all defaults.

```yaml
";

const MEANING: &str = "\
```

[`deploy/pools`](../deploy/pools) has this example, one for EKS and one for Bottlerocket.

## What becomes of it on AWS

| of the file | on AWS |
|---|---|
| the whole, but for the two capacities | the **hash** that everything made from it is tagged with, user data by its content: another hash is another pool, and `roll` replaces its nodes |
| `cluster`, `name` | the launch template `<cluster>-<name>`, and the tags that all that belongs to the pool has: `kubernetes.io/cluster/<cluster>=owned`, `KubernetesCluster`, `Name`, `spot-migrator.io/pool` and `spot-migrator.io/pool-hash`. What lacks them is nobody's business of ours, whatever its name |
| `targetCapacity` | the target of the Spot Fleet that `create` asks for; `scale` changes it. The fleet is of type `maintain`: it replaces what EC2 takes back. It terminates nothing by itself when its target falls (`noTermination`): its nodes are drained first, by `scale` |
| `minCapacity` | nothing: `scale` refuses to go below it |
| `launchSpecifications`, `subnets` | an override of the launch template for each type in each subnet, with its weight and its highest price |
| `unitRootVolumeSize`, `unitRootVolumeIops`, `rootVolume` | a version of the launch template for each root volume that differs: unit × weight, within what the kind of volume allows (`plan` says where that differs) |
| `image`, `sshKey`, `instanceProfile`, `securityGroups`, `userData` | the launch template. Machines answer metadata requests only with a token (IMDSv2), and none from pods (a hop limit of 1) |
| `labels`, `taints` | a part of the user data: the kubelet registers with them, so that no pod comes first. Every node has `node.kubernetes.io/lifecycle=spot` and `spot-migrator.io/pool=<name>`, and no taint that the file does not name |
| `tags` | tags of fleet, launch template, machines and volumes, from their first moment |
| `loadBalancers`, `targetGroups` | the fleet registers its machines with them; before a machine goes it is deregistered, and `loadBalancer` says how long it is waited for. They have to bear the cluster's tag, or a name that begins with `<cluster>-`: else [the rights](../deploy/iam/README.md#node-pools) do not suffice to take a machine out of them |
| `fleetRole` | the role by which the fleet launches and tags; `spot-fleet create-role` makes it where it is missing |
| `allocationStrategy` | of the fleet |
| `capacityRebalance` | of the fleet. With `launch-before-terminate` it terminates the old machine by itself when `terminationDelay` is over, whether its node was drained or not: nodes are empty by then only if the migrator's `interruption.rebalanceRecommendation` is `drain`. With `launch` it terminates none |

The other keys are not AWS's business: how nodes are emptied and waited for, with the same words and defaults as in the \
migrator's [configuration](configuration.md).

## User data

With `kubelet`, `nodeadm` and `bottlerocket` the labels and taints are put where they belong. A `file` of your own (a \
shell script, cloud-init, any text) has to hold `${NODE_LABELS}` and `${NODE_TAINTS}`, which become the values of the \
kubelet's `--node-labels` and `--register-with-taints`, and may hold `${CLUSTER}` and `${POOL}`; `$${` becomes `${`, and \
any other `$` is left alone. Its path is relative to the pool file. The whole is at most 16 KiB.

**Durations** are whole numbers with their units, the larger first: `250ms`, `60s`, `25m`, `1h30m`.
";

fn page() -> String {
    let example = include_str!("../../../deploy/pools/kubelet.yaml");
    // With every key that may be left out.
    let offer = LaunchSpecification {
        max_price: Some(Price(String::new())),
        root_volume: VolumeSize { size: Some(0), iops: Some(0), throughput: Some(0) },
        ..LaunchSpecification::default()
    };
    let items = [table("launchSpecifications", keys_of(&offer)), table("taints", keys_of(&Taint::default()))];
    format!("{PREFACE}{example}{MEANING}{}{}", tables(keys()), items.concat())
}

/// The table of the items of a list.
fn table(list: &str, keys: Vec<Key>) -> String {
    let keys: Vec<_> = keys.into_iter().map(|key| Key { path: format!("{list}[].{}", key.path), ..key }).collect();
    tables(&keys)
}

#[test]
fn the_schema_is_up_to_date() {
    assert_up_to_date("deploy/pool.schema.json", &format!("{:#}\n", schema::<File>()));
}

#[test]
fn the_manual_is_up_to_date() {
    assert_up_to_date("docs/pool.md", &page());
}
