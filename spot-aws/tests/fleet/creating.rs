//! What a pool asks for comes about, once.

use std::collections::BTreeSet;

use spot_aws::fleet::{Change, difference};
use spot_core::error::ErrorClass;

use crate::double::templates::Template;
use crate::double::{Fault, Fleet};
use crate::support::secs;
use crate::world::{World, pool, said};

#[tokio::test(start_paused = true)]
async fn a_pool_is_made_as_its_file_asks_and_then_nothing_is_different() {
    let world = World::new();
    let ensured = world.ensure().await.unwrap();
    assert!(ensured.created && world.alive() == [ensured.fleet.as_str()]);
    let existing = world.pool.existing(world.by(60)).await.unwrap();
    assert_eq!(difference(&pool(), &world.launch(), &existing), Vec::<Change>::new());
    let [fleet] = &existing.fleets[..] else { panic!("{existing:?}") };
    assert_eq!((fleet.target, fleet.capacity, fleet.hash.as_str()), (6, Some(6), world.launch().hash.as_str()));
    assert_eq!(fleet.request.as_ref(), Some(&world.launch().request), "read back as it was asked for");
    let asked: Vec<_> = world.launch().template.versions.into_iter().map(|version| Some(version.machine)).collect();
    let made: Vec<_> = existing.template.unwrap().versions.into_iter().map(|version| version.machine).collect();
    assert_eq!(made, asked, "read back as they were asked for");
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_not_made_again() {
    let world = World::new();
    let first = world.ensure().await.unwrap();
    let writes = world.aws.writes().len();
    let again = world.restarted().ensure().await.unwrap();
    assert!(!again.created && again.fleet == first.fleet);
    assert_eq!(world.aws.writes().len(), writes);
}

#[tokio::test(start_paused = true)]
async fn what_is_told_late_is_not_made_again() {
    let world = World::new();
    world.aws.state().lag = secs(30);
    let ensured = world.ensure().await.unwrap();
    assert!(ensured.created);
    assert_eq!(world.alive(), [ensured.fleet]);
    assert_eq!(world.aws.count("ec2:RequestSpotFleet"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_has_a_fleet_of_its_own_beside_the_old_one() {
    let old = World::new();
    let first = old.ensure().await.unwrap();
    let new = old.with(|pool| pool.image = "ami-00000000000000002".to_owned());
    let second = new.ensure().await.unwrap();
    assert!(second.created && second.fleet != first.fleet);
    let fleets = new.fleets().await;
    let current: Vec<_> = fleets.iter().map(|fleet| (fleet.id.as_str(), fleet.is_current)).collect();
    assert_eq!(current, [(first.fleet.as_str(), false), (second.fleet.as_str(), true)]);
    assert_eq!(new.aws.state().templates.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_was_deleted_can_be_made_again() {
    let world = World::new();
    let mut fleets = BTreeSet::new();
    for _ in 0..3 {
        let ensured = world.ensure().await.unwrap();
        assert!(ensured.created && fleets.insert(ensured.fleet.clone()));
        world.resize(&ensured.fleet, 6, 0).await.unwrap();
        world.cancel(&ensured.fleet).await.unwrap();
        world.pool.clean_up(&BTreeSet::new(), &world.write(60)).await.unwrap();
        assert!(world.alive().is_empty() && world.aws.state().templates.is_empty());
    }
    // EC2 forgets ended fleets sooner than tokens.
    world.aws.state().fleets.retain(|_, fleet| {
        fleet.asked.as_mut().unwrap().told_from = tokio::time::Instant::now() + secs(5);
        true
    });
    let ensured = world.ensure().await.unwrap();
    assert!(ensured.created && fleets.insert(ensured.fleet));
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_ended_fleets_are_forgotten_is_made_again_and_once() {
    let world = World::new();
    let mut fleets = BTreeSet::new();
    for _ in 0..3 {
        let ensured = world.restarted().pool.ensure(&world.launch(), 6, 6, &world.write(300)).await.unwrap();
        assert!(ensured.created && fleets.insert(ensured.fleet.clone()), "{fleets:?}");
        let again = world.restarted().ensure().await.unwrap();
        assert!(!again.created && again.fleet == ensured.fleet);
        assert_eq!(world.alive(), [ensured.fleet.as_str()]);
        world.resize(&ensured.fleet, 6, 0).await.unwrap();
        world.cancel(&ensured.fleet).await.unwrap();
        world.pass(120).await;
        world.aws.state().fleets.get_mut(&ensured.fleet).unwrap().asked.as_mut().unwrap().forget();
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_that_is_killed_while_it_waits_for_a_forgotten_fleet_buys_once() {
    for seconds in [3, 30, 59, 61, 63, 66] {
        let world = World::new();
        let first = world.ensure().await.unwrap().fleet;
        world.resize(&first, 6, 0).await.unwrap();
        world.cancel(&first).await.unwrap();
        world.aws.state().fleets.get_mut(&first).unwrap().asked.as_mut().unwrap().forget();
        drop(tokio::time::timeout(secs(seconds), world.restarted().ensure()).await);
        let ensured = world.restarted().ensure().await.unwrap();
        assert_eq!(world.alive(), [ensured.fleet], "killed after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_version_was_deleted_is_not_hidden_by_another_one_that_would_not_help_it() {
    let world = World::new();
    let fleet = world.ensure().await.unwrap().fleet;
    let deleted = {
        let mut state = world.aws.state();
        let template = state.templates.values_mut().next().unwrap();
        template.versions.pop_last().unwrap().1.description
    };
    let ensured = world.restarted().ensure().await.unwrap();
    assert!(!ensured.created && ensured.fleet == fleet);
    let existing = world.pool.existing(world.by(60)).await.unwrap();
    let template = existing.template.as_ref().unwrap();
    assert!(template.version(&deleted).is_none());
    let lacks = Change::AddVersion { template: template.id.clone(), description: deleted };
    assert_eq!(difference(&pool(), &world.launch(), &existing), [lacks]);
}

#[tokio::test(start_paused = true)]
async fn the_same_for_another_capacity_is_found_when_it_is_told() {
    let world = World::new();
    world.aws.state().lag = secs(30);
    drop(tokio::time::timeout(secs(3), world.ensure()).await);
    assert_eq!(world.alive().len(), 1, "killed after the fleet was asked for");
    let ensured = world.restarted().pool.ensure(&world.launch(), 8, 8, &world.write(120)).await.unwrap();
    assert_eq!((world.alive(), world.target(&ensured.fleet)), (vec![ensured.fleet], 6));
    let other = World::new();
    let ensured = other.ensure().await.unwrap();
    let untold = tokio::time::Instant::now() + secs(300);
    other.aws.state().fleets.get_mut(&ensured.fleet).unwrap().asked.as_mut().unwrap().told_from = untold;
    let (class, words) = said(other.restarted().pool.ensure(&other.launch(), 8, 8, &other.write(60)).await);
    assert!(class == ErrorClass::Permanent && words.contains("other parameters"), "{words}");
    assert_eq!(other.alive().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_not_told_of_is_waited_for_and_then_said() {
    let world = World::new();
    world.aws.state().lag = secs(300);
    drop(tokio::time::timeout(secs(1), world.ensure()).await);
    let (class, words) = said(world.restarted().ensure().await);
    assert!(
        class == ErrorClass::Permanent && words.contains("there is a launch template of the pool's name"),
        "{words}"
    );
    world.pass(300).await;
    assert!(world.restarted().ensure().await.is_ok());
    assert_eq!((world.alive().len(), world.aws.state().templates.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_bears_the_pools_name_and_is_somebody_elses_is_refused_and_left_alone() {
    let foreign = [("Name", "prod-workers"), ("spot-migrator.io/pool", "workers")];
    let world = World::new();
    let tags = foreign.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let fleet = Fleet { target: 3, tags, ..Fleet::maintaining() };
    world.aws.state().fleets.insert("sfr-by-hand".to_owned(), fleet);
    let (class, words) = said(world.ensure().await);
    assert!(
        class == ErrorClass::Permanent && words.contains("fleet sfr-by-hand bears the name prod-workers"),
        "{words}"
    );
    for answer in [world.resize("sfr-by-hand", 3, 0).await, world.cancel("sfr-by-hand").await] {
        assert!(said(answer).1.contains("sfr-by-hand"));
    }
    assert!(world.fleets().await.is_empty());
    assert!(world.aws.writes().is_empty());

    let world = World::new();
    world.aws.state().templates.insert("lt-by-hand".to_owned(), Template::named("prod-workers", &foreign));
    let (class, words) = said(world.ensure().await);
    assert!(class == ErrorClass::Permanent && words.contains("launch template lt-by-hand"), "{words}");
    world.pool.clean_up(&BTreeSet::new(), &world.write(60)).await.unwrap();
    assert!(world.aws.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_fleets_and_versions_are_read_page_by_page() {
    let world = World::new();
    let state = || world.aws.state();
    state().page = 1;
    for number in 0..3 {
        state().fleets.insert(format!("sfr-other-{number}"), Fleet::maintaining());
    }
    let ensured = world.ensure().await.unwrap();
    let existing = world.pool.existing(world.by(60)).await.unwrap();
    assert_eq!(existing.template.unwrap().versions.len(), 2);
    assert!(existing.fleets.iter().map(|fleet| &fleet.id).eq([&ensured.fleet]));
}

#[tokio::test(start_paused = true)]
async fn versions_that_no_fleet_launches_are_removed_and_those_that_are_stay() {
    let old = World::new();
    assert!(old.ensure().await.unwrap().created);
    let mut worlds = vec![old];
    for image in ["ami-00000000000000002", "ami-00000000000000001"] {
        let next = worlds[0].with(|pool| {
            pool.image = image.to_owned();
            pool.labels.insert("turn".to_owned(), worlds.len().to_string());
        });
        assert!(next.ensure().await.unwrap().created);
        worlds.push(next);
    }
    let [first, second, third] = &worlds[..] else { panic!() };
    let hashes = || {
        let state = first.aws.state();
        let versions = state.templates.values().flat_map(|template| template.versions.values());
        let hashes = versions.map(|version| version.description.split(':').next().unwrap().to_owned());
        hashes.collect::<Vec<_>>()
    };
    let hash = |world: &World| world.launch().hash;
    let end = |world: &World| {
        let (hash, mut state) = (hash(world), world.aws.state());
        let is = |fleet: &&mut Fleet| fleet.tags["spot-migrator.io/pool-hash"] == hash;
        state.fleets.values_mut().find(is).unwrap().ended = Some("cancelled");
    };
    third.pool.clean_up(&BTreeSet::new(), &third.write(60)).await.unwrap();
    assert_eq!(hashes().len(), 6, "each is launched by a fleet");
    end(first);
    end(second);
    third.pool.clean_up(&[hash(second)].into(), &third.write(60)).await.unwrap();
    assert_eq!(hashes(), [hash(first), hash(second), hash(second), hash(third), hash(third)], "and the default one");
    end(third);
    third.aws.fail("ec2:DeleteLaunchTemplate", Fault::LostAnswer, 1);
    drop(third.pool.clean_up(&BTreeSet::new(), &third.write(60)).await);
    third.pool.clean_up(&BTreeSet::new(), &third.write(60)).await.unwrap();
    assert!(third.aws.state().templates.is_empty());
}

#[tokio::test(start_paused = true)]
async fn versions_that_a_person_added_to_the_template_stay() {
    let world = World::new();
    assert!(world.ensure().await.unwrap().created);
    let by_hand = ["", "by hand", "tried: 20 GiB gp3", "0123456789abcdef"];
    {
        let mut state = world.aws.state();
        let template = state.templates.values_mut().next().unwrap();
        for (number, description) in (10..).zip(by_hand) {
            let mut version = template.versions[&1].clone();
            description.clone_into(&mut version.description);
            template.versions.insert(number, version);
        }
        let mut unused = template.versions[&1].clone();
        unused.description = "0123456789abcdef: 20 GiB gp3".to_owned();
        template.versions.insert(20, unused);
    }
    world.pool.clean_up(&BTreeSet::new(), &world.write(60)).await.unwrap();
    let state = world.aws.state();
    let left: Vec<_> = state.templates.values().flat_map(|template| template.versions.keys().copied()).collect();
    assert_eq!(left, [1, 2, 10, 11, 12, 13]);
}
