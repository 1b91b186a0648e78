//! Every fault that passes, and a kill at every moment of every call: the same end.

use std::collections::BTreeSet;
use std::time::Duration;

use spot_core::claim::InstanceId;
use spot_core::error::PortError;

use crate::double::Fault;
use crate::support::secs;
use crate::world::World;

/// How far apart kills are: as far as calls, so that each call is once the one that is never made.
const STEP: Duration = Duration::from_millis(20);

/// A life of a pool: made, made smaller, one member taken away, and ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Ensure,
    Resize,
    Terminate,
    Cancel,
}

impl Deed {
    const ALL: [Self; 4] = [Self::Ensure, Self::Resize, Self::Terminate, Self::Cancel];

    /// A world in which it is to be done.
    async fn before(self) -> Scene {
        if self == Self::Ensure {
            return Scene { world: World::new(), fleet: String::new(), member: InstanceId::new("") };
        }
        let (world, fleet) = World::fulfilled().await;
        let member = world.fleets().await[0].members.keys().next_back().unwrap().clone();
        if self == Self::Cancel {
            world.resize(&fleet, 6, 0).await.unwrap();
            let members = world.aws.state().fleets[&fleet].members.clone();
            for member in &members {
                world.aws.state().shut_down(member);
            }
            world.pass(60).await;
        }
        Scene { world, fleet, member }
    }
}

struct Scene {
    world: World,
    fleet: String,
    member: InstanceId,
}

impl Scene {
    async fn act(&self, world: &World, deed: Deed) -> Result<(), PortError> {
        match deed {
            Deed::Ensure => world.ensure().await.map(drop),
            Deed::Resize => world.resize(&self.fleet, 6, 4).await,
            Deed::Terminate => world.terminate(&self.fleet, &self.member).await,
            Deed::Cancel => world.cancel(&self.fleet).await,
        }
    }

    async fn assert_done(&self, deed: Deed, what: &str) {
        let world = &self.world;
        world.aws.state().lag = Duration::ZERO;
        world.pass(if deed == Deed::Ensure { 600 } else { 300 }).await;
        match deed {
            Deed::Ensure => {
                assert_eq!(world.alive().len(), 1, "{what}: fleets");
                let state = world.aws.state();
                assert_eq!(state.fleets.len(), 1, "{what}: fleets");
                assert_eq!(state.templates.values().map(|one| one.versions.len()).collect::<Vec<_>>(), [2], "{what}");
            }
            Deed::Resize => assert_eq!(world.target(&self.fleet), 4, "{what}"),
            Deed::Terminate => {
                assert_eq!(world.target(&self.fleet), 4, "{what}: the member's weight is 2");
                let state = world.aws.state();
                let alive = state.fleets[&self.fleet].members.iter().filter(|id| state.instances[*id].is_alive());
                assert_eq!((alive.count(), state.launched.len()), (3, 4), "{what}: it went, and nothing in its place");
            }
            Deed::Cancel => assert!(world.alive().is_empty(), "{what}"),
        }
        assert!(world.aws.state().victims.is_empty(), "{what}: nothing was terminated beside");
    }

    /// Does it as a process does that is asked again where it failed.
    async fn act_until_done(&self, world: &World, deed: Deed, what: &str) {
        for _ in 0..3 {
            if self.act(world, deed).await.is_ok() {
                return;
            }
        }
        self.act(world, deed).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    }
}

#[tokio::test(start_paused = true)]
async fn any_fault_that_passes_at_any_call_has_the_same_end() {
    for deed in Deed::ALL {
        let fair = deed.before().await;
        let before = fair.world.aws.calls().len();
        fair.act(&fair.world, deed).await.unwrap();
        fair.assert_done(deed, "no fault").await;
        let calls = fair.world.aws.calls();
        let actions: BTreeSet<_> = calls[before..].iter().map(|call| call.action.clone()).collect();
        assert!(actions.len() >= 2, "{deed:?}: {actions:?}");
        for action in actions {
            for fault in Fault::PASSING {
                for times in [1, 2] {
                    let scene = deed.before().await;
                    let what = format!("{deed:?}, {fault:?} at {action}, {times} times");
                    scene.world.aws.fail(&action, fault, times);
                    scene.act_until_done(&scene.world, deed, &what).await;
                    scene.assert_done(deed, &what).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_moment_and_started_again_it_has_the_same_end() {
    for deed in Deed::ALL {
        for lag in [0, 4] {
            let mut kills = 0;
            loop {
                let scene = deed.before().await;
                scene.world.aws.state().lag = secs(lag);
                let after = STEP * kills + STEP / 2;
                let ended = tokio::time::timeout(after, scene.act(&scene.world, deed)).await;
                let what = format!("{deed:?}, killed after {after:?}, told {lag} s late");
                let next = scene.world.restarted();
                scene.act_until_done(&next, deed, &what).await;
                scene.assert_done(deed, &what).await;
                if ended.is_ok() {
                    break;
                }
                // While nothing but waiting happens, kills differ in nothing.
                kills += if after > secs(1) { 50 } else { 1 };
            }
            assert!(kills >= 3, "{deed:?}: {kills}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_at_any_moment_and_asked_again_the_same_process_has_the_same_end() {
    for deed in Deed::ALL {
        for kills in 0..20 {
            let scene = deed.before().await;
            let after = STEP * kills + STEP / 2;
            drop(tokio::time::timeout(after, scene.act(&scene.world, deed)).await);
            let what = format!("{deed:?}, dropped after {after:?}");
            scene.act_until_done(&scene.world, deed, &what).await;
            scene.assert_done(deed, &what).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_ends_each_call_at_once_and_by_its_name() {
    for deed in Deed::ALL {
        let fair = deed.before().await;
        let before = fair.world.aws.calls().len();
        fair.act(&fair.world, deed).await.unwrap();
        let calls = fair.world.aws.calls();
        let actions: BTreeSet<_> = calls[before..].iter().map(|call| call.action.clone()).collect();
        for action in &actions {
            let scene = deed.before().await;
            scene.world.aws.fail(action, Fault::Denied, u32::MAX);
            let began = tokio::time::Instant::now();
            match scene.act(&scene.world, deed).await {
                Ok(()) => panic!("{deed:?} without {action}"),
                Err(error) => {
                    let words = spot_core::error::chain(&error);
                    assert!(words.contains(action), "{deed:?}: {words}");
                    assert!(began.elapsed() < secs(30), "{deed:?} without {action} took {:?}", began.elapsed());
                }
            }
        }
    }
}
