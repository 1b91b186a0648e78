//! Commands that are killed, and started again.

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use serde_json::json;
use spot_tests::{SpotFleet, Witness, Workload, wait::until};

use super::{COMMAND, MEMBER_OF, Scene, assert_fell_by_what_went, on_the_pool, weights};

/// When a command is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// AWS has done this for it once more, and has not answered.
    Asks(&'static str),
    /// One more node is cordoned.
    Cordons,
    /// One more pod is gone.
    Evicts,
}

impl Moment {
    /// Comes when it is that moment, counted from now.
    fn comes<'s>(self, scene: &'s Scene, witness: &'s Witness) -> Pin<Box<dyn Future<Output = ()> + 's>> {
        match self {
            Self::Asks(action) => Box::pin(scene.asked(action)),
            Self::Cordons => Box::pin(more("a node to be cordoned", || witness.cordoned().len())),
            Self::Evicts => Box::pin(more("a pod to be gone", || witness.pods_gone().len())),
        }
    }
}

async fn more(what: &str, count: impl Fn() -> usize) {
    let before = count();
    until(what, COMMAND, || async {
        let now = count();
        if now > before { Ok(()) } else { Err(format!("{now} as before")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_that_is_killed_at_every_step_ends_as_if_it_had_not_been() {
    let scene = Scene::start(json!({})).await;
    scene.created().await;
    let web = on_the_pool(Workload::deployment("web", 12)).max_unavailable(1);
    scene.world.run(std::slice::from_ref(&web)).await;
    let witness = scene.world.witness().await;
    let (fleet, calls) = (scene.only_fleet().await, scene.calls().await.len());

    let moments = [
        Moment::Cordons,
        Moment::Evicts,
        Moment::Asks("DeregisterTargets"),
        Moment::Asks("ModifySpotFleetRequest"),
        Moment::Asks("TerminateInstances"),
    ];
    kill_at_each(&scene, &scene.fleet, ("scale", &["--to", "3"]), &moments, &witness).await;
    scene.cloud.settled(&scene.world).await;
    scene.world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;

    let now = scene.only_fleet().await;
    let (machines, all) = (scene.machines().await, scene.cloud.instances().await);
    assert_eq!((now.id.as_str(), now.target, weights(&machines)), (fleet.id.as_str(), 3, 3));
    assert_eq!(all.len(), 3, "nothing was bought: {all:?}");
    assert_fell_by_what_went(&scene.calls().await[calls..], &all, &BTreeMap::from([(fleet.id, 6)]));
    witness.assert_budget_kept(&web);
    scene.balanced().await;
    assert_none_cordoned(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_is_killed_at_every_step_ends_as_if_it_had_not_been() {
    let scene = Scene::start(json!({})).await;
    scene.created().await;
    let web = on_the_pool(Workload::deployment("web", 12)).max_unavailable(1);
    scene.world.run(std::slice::from_ref(&web)).await;
    let witness = scene.world.witness().await;
    let (old, calls) = (scene.only_fleet().await, scene.calls().await.len());
    let old_machines: Vec<_> = scene.machines().await.into_iter().map(|machine| machine.id).collect();

    let changed = scene.fleet.clone().with_pool(json!({"image": scene.ground.images[1]}));
    let moments = [
        Moment::Asks("CreateLaunchTemplateVersion"),
        Moment::Asks("RequestSpotFleet"),
        Moment::Cordons,
        Moment::Evicts,
        Moment::Asks("DeregisterTargets"),
        Moment::Asks("ModifySpotFleetRequest"),
        Moment::Asks("TerminateInstances"),
        Moment::Asks("CancelSpotFleetRequests"),
    ];
    kill_at_each(&scene, &changed, ("roll", &[]), &moments, &witness).await;
    scene.cloud.settled(&scene.world).await;
    scene.world.settled(std::slice::from_ref(&web)).await;
    witness.caught_up().await;

    let now = scene.only_fleet().await;
    let (machines, all) = (scene.machines().await, scene.cloud.instances().await);
    assert_ne!(now.id, old.id);
    assert_eq!((now.target, weights(&machines)), (6, 6));
    assert!(machines.iter().all(|machine| machine.tags[MEMBER_OF] == now.id), "{machines:?}");
    assert_eq!(all.len(), old_machines.len() + machines.len(), "nothing was bought in vain: {all:?}");
    assert!(old_machines.iter().all(|id| all[id].state == "terminated"));
    assert_fell_by_what_went(&scene.calls().await[calls..], &all, &BTreeMap::from([(old.id, 6)]));
    witness.assert_budget_kept(&web);
    scene.balanced().await;
    assert_none_cordoned(&scene).await;
}

/// Starts the command and kills it at each moment in turn, and then lets it come to its end.
async fn kill_at_each(
    scene: &Scene,
    fleet: &SpotFleet,
    (command, arguments): (&str, &[&str]),
    moments: &[Moment],
    witness: &Witness,
) {
    for moment in moments {
        let held = if let Moment::Asks(action) = moment { Some(*action) } else { None };
        scene.cloud.aws().hold(held).await;
        let comes = moment.comes(scene, witness);
        let ended = fleet.start(command, arguments).killed_at(comes, COMMAND).await;
        assert_eq!(ended, None, "it was not killed at {moment:?}, but ended");
        scene.cloud.aws().hold(None).await;
    }
    // The lease of a killed process runs out.
    let ended = fleet.run(command, arguments, COMMAND + Duration::from_mins(1)).await;
    ended.assert_code(0);
}

async fn assert_none_cordoned(scene: &Scene) {
    for (name, node) in scene.world.nodes().await {
        assert_ne!(node.spec.and_then(|spec| spec.unschedulable), Some(true), "{name} is cordoned");
    }
}
