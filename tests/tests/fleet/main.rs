//! Pools of Spot Fleets, end to end: from a file to nodes, and to nothing again.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "clippy's allowance for tests does not reach their helper functions"
)]

mod at_once;
mod input;
mod killed;
mod life;
mod migration;
mod refusals;
mod status;

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use spot_tests::{
    SpotFleet, Workload, World,
    aws::{Call, Cloud, FleetRequest, Instance},
    fleet::{CLIENT, Ground},
    wait::{PATIENCE, until},
};

/// How long a command may take.
const COMMAND: Duration = Duration::from_mins(5);

/// Long enough that nothing moves on while a test looks.
const STILL: Duration = Duration::from_hours(1);

/// The tag by which an instance names its fleet.
const MEMBER_OF: &str = "aws:ec2spot:fleet-request-id";

/// A cluster on AWS without nodes, and a pool's file. The roles of fleets are there.
struct Scene {
    // Dropped in this order: the world last.
    fleet: SpotFleet,
    ground: Ground,
    cloud: Cloud,
    world: World,
}

impl Scene {
    async fn start(changes: Value) -> Self {
        let scene = Self::without_roles(changes).await;
        scene.cloud.aws().create_fleet_roles().await;
        scene
    }

    async fn without_roles(changes: Value) -> Self {
        let world = World::start().await;
        let cloud = Cloud::start(&world).await;
        let (fleet, ground) = SpotFleet::install(&world, &cloud, changes).await;
        Self { fleet, ground, cloud, world }
    }

    /// Creates the pool, and waits until AWS, cluster and load balancers agree.
    async fn created(&self) {
        self.fleet.run("create", &[], COMMAND).await.assert_code(0);
        self.cloud.settled(&self.world).await;
    }

    /// Waits until the fleets have `units` at least, and AWS and cluster agree.
    async fn launched(&self, units: u64) {
        until("the units to be launched", PATIENCE, || async {
            let there = weights(&self.machines().await);
            if there >= units { Ok(()) } else { Err(format!("{there} of {units}")) }
        })
        .await;
        self.cloud.settled(&self.world).await;
    }

    /// The machines of the pool that run.
    async fn machines(&self) -> Vec<Instance> {
        let all = self.cloud.instances().await.into_values();
        all.filter(|instance| instance.is_running() && instance.tags.contains_key(MEMBER_OF)).collect()
    }

    /// The fleets that have not ended.
    async fn fleets(&self) -> Vec<FleetRequest> {
        self.cloud.aws().spot_fleets().await.into_iter().filter(|fleet| !fleet.has_ended()).collect()
    }

    /// The only fleet that has not ended.
    async fn only_fleet(&self) -> FleetRequest {
        let mut fleets = self.fleets().await;
        assert_eq!(fleets.len(), 1, "{fleets:?}");
        fleets.remove(0)
    }

    /// What `spot-fleet` asked for so far.
    async fn calls(&self) -> Vec<Call> {
        self.cloud.aws().calls_of(CLIENT).await
    }

    /// The changes that `spot-fleet` asked for so far.
    async fn changes(&self) -> Vec<Call> {
        let mut calls = self.calls().await;
        calls.retain(Call::changes);
        calls
    }

    /// Waits until `spot-fleet` has asked for `action` more often than it had before the call.
    async fn asked(&self, action: &str) {
        let count = async || self.calls().await.iter().filter(|call| call.action == action).count();
        let before = count().await;
        until(action, COMMAND, || async {
            let now = count().await;
            if now > before { Ok(()) } else { Err(format!("{now} calls")) }
        })
        .await;
    }

    /// Waits until load balancers of both kinds serve exactly the machines that run.
    async fn balanced(&self) {
        until("the load balancers to serve the machines", PATIENCE, || async {
            let mut machines: Vec<_> = self.machines().await.into_iter().map(|machine| machine.id).collect();
            machines.sort();
            let (classic, group) = self.cloud.aws().registered(&self.ground).await;
            if classic == machines && group == machines {
                Ok(())
            } else {
                Err(format!("{machines:?} run, and {classic:?} and {group:?} are served"))
            }
        })
        .await;
    }
}

/// Pods that run on the pool, and on nothing else.
fn on_the_pool(workload: Workload) -> Workload {
    workload
        .spec("nodeSelector", json!({"example.org/workload": "batch"}))
        .spec("tolerations", json!([{"key": "example.org/batch", "operator": "Exists"}]))
}

/// How much of the pool a machine is.
fn weight(machine: &Instance) -> u64 {
    match machine.instance_type.as_str() {
        "m5.large" => 1,
        "m5.xlarge" => 2,
        "m5.2xlarge" => 3,
        other => panic!("the pool has no {other}"),
    }
}

fn weights<'a>(machines: impl IntoIterator<Item = &'a Instance>) -> u64 {
    machines.into_iter().map(weight).sum()
}

/// Fails the test unless the target of each fleet fell by exactly the weight of what was terminated, machine by machine,
/// and nothing was terminated that it had not fallen for.
fn assert_fell_by_what_went(calls: &[Call], machines: &BTreeMap<String, Instance>, start: &BTreeMap<String, u64>) {
    let (mut targets, mut fallen) = (start.clone(), BTreeMap::<String, u64>::new());
    let text = |call: &Call, name: &str| call.parameters.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut ended: Vec<String> = Vec::new();
    for call in calls.iter().filter(|call| call.succeeded()) {
        match call.action.as_str() {
            "ModifySpotFleetRequest" => {
                let fleet = text(call, "SpotFleetRequestId").expect("it names a fleet");
                let to: u64 = text(call, "TargetCapacity").and_then(|to| to.parse().ok()).expect("it names a target");
                assert_eq!(text(call, "ExcessCapacityTerminationPolicy").as_deref(), Some("noTermination"), "{call:?}");
                let from = targets.insert(fleet.clone(), to).unwrap_or(0);
                let fallen = fallen.entry(fleet).or_default();
                // Raised again: what it had fallen for stays.
                *fallen = (*fallen + from).saturating_sub(to);
            }
            "TerminateInstances" => {
                let ids = call.parameters.iter().filter(|(name, _)| name.starts_with("InstanceId"));
                for id in ids.filter_map(|(_, id)| id.as_str()).map(str::to_owned) {
                    let machine = machines.get(&id).unwrap_or_else(|| panic!("{id} is none of the pool"));
                    if ended.contains(&id) {
                        continue;
                    }
                    let fleet = machine.tags[MEMBER_OF].clone();
                    let left = fallen.get_mut(&fleet).and_then(|fallen| {
                        *fallen = fallen.checked_sub(weight(machine))?;
                        Some(*fallen)
                    });
                    assert!(left.is_some(), "{id} went, and the target of {fleet} had not fallen for it: {calls:?}");
                    ended.push(id);
                }
            }
            _ => {}
        }
    }
    fallen.retain(|_, left| *left > 0);
    assert_eq!(fallen, BTreeMap::new(), "a target fell by more than what went");
}
