//! What exists, against what a pool asks for.

use spot_aws::fleet::{Existing, ExistingFleet, ExistingTemplate, ExistingVersion, Launch, Pool, difference};

use crate::support::{offer, pool};

fn launch(pool: &Pool) -> Launch {
    Launch::of(pool, "/dev/xvda")
}

fn template(launch: &Launch) -> ExistingTemplate {
    let versions = (1..).zip(&launch.template.versions).map(|(number, version)| ExistingVersion {
        number,
        description: version.description.clone(),
        machine: Some(version.machine.clone()),
    });
    ExistingTemplate { id: "lt-1".to_owned(), ours: true, versions: versions.collect() }
}

/// That has what it wants.
fn fleet(id: &str, launch: &Launch, target: u32, hour: u32) -> ExistingFleet {
    ExistingFleet {
        id: id.to_owned(),
        ours: true,
        state: "active".to_owned(),
        hash: launch.hash.clone(),
        target,
        fulfilled: target,
        lightest: Some(1),
        capacity: Some(target),
        created: format!("2026-03-01T{hour:02}:00:00Z").parse().unwrap(),
        has_ended: false,
        activity: Some("fulfilled".to_owned()),
        is_settled: true,
        request: Some(launch.request.clone()),
    }
}

/// Just as the pool asks for.
fn existing(pool: &Pool) -> Existing {
    let launch = launch(pool);
    Existing { template: Some(template(&launch)), fleets: vec![fleet("sfr-1", &launch, pool.target_capacity, 1)] }
}

fn told(pool: &Pool, existing: &Existing) -> Vec<String> {
    difference(pool, &launch(pool), existing).iter().map(ToString::to_string).collect()
}

#[test]
fn where_nothing_is_a_template_and_a_fleet_are_missing() {
    let told = told(&pool(), &Existing::default());
    assert_eq!(told, ["create launch template prod-spot with 3 versions", "request a fleet of 6 units"]);
}

#[test]
fn what_is_as_it_was_asked_for_needs_nothing() {
    assert_eq!(told(&pool(), &existing(&pool())), [""; 0]);
}

#[test]
fn a_killed_create_goes_on_where_it_was() {
    let mut existing = existing(&pool());
    existing.fleets.clear();
    existing.template.as_mut().unwrap().versions.truncate(2);
    let hash = pool().hash();
    let missing = format!("add a version to launch template lt-1: {hash}: 60 GiB gp3");
    assert_eq!(told(&pool(), &existing), [missing.as_str(), "request a fleet of 6 units"]);
}

#[test]
fn another_capacity_scales_the_fleet() {
    let mut existing = existing(&pool());
    existing.fleets[0].target = 4;
    assert_eq!(told(&pool(), &existing), ["scale fleet sfr-1 from 4 to 6 units"]);
    existing.fleets[0].target = 9;
    assert_eq!(told(&pool(), &existing), ["scale fleet sfr-1 from 9 to 6 units"]);
}

#[test]
fn machines_beyond_the_target_are_told() {
    let mut existing = existing(&pool());
    existing.fleets[0].fulfilled = 7;
    assert_eq!(told(&pool(), &existing), ["retire nodes of fleet sfr-1, which has 7 units and wants 6"]);
    existing.fleets[0].fulfilled = 5;
    assert_eq!(told(&pool(), &existing), [""; 0], "the fleet launches the rest by itself");
}

#[test]
fn a_fleet_has_as_much_as_weights_allow_where_no_machine_fits_into_what_is_beyond_the_target() {
    let mut existing = existing(&pool());
    existing.fleets[0].fulfilled = 7;
    for heavy in [Some(2), None] {
        existing.fleets[0].lightest = heavy;
        assert_eq!(told(&pool(), &existing), [""; 0], "{heavy:?}");
    }
    existing.fleets[0].fulfilled = 8;
    existing.fleets[0].lightest = Some(2);
    assert_eq!(told(&pool(), &existing), ["retire nodes of fleet sfr-1, which has 8 units and wants 6"]);
}

#[test]
fn a_changed_file_replaces_the_fleet_and_says_for_what() {
    let mut changed = pool();
    changed.image = "ami-0fedcba9876543210".to_owned();
    changed.labels.clear();
    changed.offers[0].weight = 2;
    changed.offers[1].max_price = Some("0.05".to_owned());
    changed.offers[2] = offer("r6i.2xlarge", 3);
    changed.ssh_key = Some("admin".to_owned());
    changed.subnets.pop();
    let told = told(&changed, &existing(&pool()));
    insta::assert_snapshot!(told.join("\n").replace(&changed.hash(), "HASH"));
}

#[test]
fn user_data_is_not_told_but_by_its_hash() {
    let mut changed = pool();
    let spot_aws::fleet::UserData::Kubelet(kubelet) = &mut changed.user_data else { panic!() };
    kubelet.before = "export TOKEN=secret".to_owned();
    let told = told(&changed, &existing(&pool())).join("\n");
    assert!(told.contains("userData from ") && !told.contains("secret"), "{told}");
}

#[test]
fn a_fleet_of_which_little_is_known_is_replaced_without_a_reason() {
    let mut existing = existing(&pool());
    existing.template = None;
    existing.fleets[0].hash = "other".to_owned();
    let told = told(&pool(), &existing);
    assert_eq!(told.last().unwrap(), "replace fleet sfr-1");
}

#[test]
fn a_fleet_that_is_other_in_nothing_that_is_told_is_replaced_for_its_hash() {
    let mut existing = existing(&pool());
    existing.fleets[0].hash = "other".to_owned();
    let reason = format!("nothing that EC2 tells, but spot-migrator.io/pool-hash from other to {}", pool().hash());
    assert_eq!(told(&pool(), &existing).last().unwrap(), &format!("replace fleet sfr-1: {reason}"));
}

#[test]
fn of_a_roll_under_way_only_the_old_fleets_are_told() {
    let mut changed = pool();
    changed.image.push('1');
    let (old, new) = (launch(&pool()), launch(&changed));
    let mut template = template(&old);
    template.versions.extend(self::template(&new).versions);
    let fleets = vec![fleet("sfr-1", &old, 4, 1), fleet("sfr-2", &new, 2, 2)];
    let existing = Existing { template: Some(template), fleets };
    let image = "image from ami-0123456789abcdef0 to ami-0123456789abcdef01";
    assert_eq!(told(&changed, &existing), [format!("replace fleet sfr-1: {image}")]);
}

#[test]
fn ended_fleets_count_for_nothing_once_their_machines_are_gone() {
    let mut existing = existing(&pool());
    let mut ended = fleet("sfr-0", &launch(&pool()), 6, 0);
    (ended.has_ended, ended.fulfilled) = (true, 0);
    existing.fleets.push(ended.clone());
    assert_eq!(told(&pool(), &existing), [""; 0]);
    ended.fulfilled = 2;
    existing.fleets = vec![ended];
    assert_eq!(told(&pool(), &existing), ["request a fleet of 6 units", "replace fleet sfr-0"]);
}

#[test]
fn of_two_fleets_for_the_same_the_first_stays() {
    let mut existing = existing(&pool());
    existing.fleets.insert(0, fleet("sfr-2", &launch(&pool()), 6, 2));
    assert_eq!(existing.current(&pool().hash()).unwrap().id, "sfr-1");
    assert_eq!(told(&pool(), &existing), ["replace fleet sfr-2"]);
}

#[test]
fn the_youngest_ended_fleet_of_the_same_hash_is_the_tokens() {
    let launch = launch(&pool());
    let mut fleets: Vec<_> = (1..).zip(["sfr-1", "sfr-3", "sfr-2"]).map(|(at, id)| fleet(id, &launch, 6, at)).collect();
    let existing = |fleets: &[ExistingFleet]| Existing { template: None, fleets: fleets.to_vec() };
    assert_eq!(existing(&fleets).ended(&launch.hash), None, "none has ended");
    for fleet in &mut fleets {
        fleet.has_ended = true;
    }
    assert_eq!(existing(&fleets).ended(&launch.hash), Some("sfr-2"));
    fleets[2].ours = false;
    assert_eq!(existing(&fleets).ended(&launch.hash), Some("sfr-3"));
    fleets[1].hash = "other".to_owned();
    assert_eq!(existing(&fleets).ended(&launch.hash), Some("sfr-1"));
}

#[test]
fn what_bears_the_name_but_not_the_tags_is_told_alone() {
    let mut existing = existing(&pool());
    existing.template.as_mut().unwrap().ours = false;
    let mut foreign = fleet("sfr-9", &launch(&pool()), 6, 3);
    foreign.ours = false;
    existing.fleets.push(foreign);
    let remedy = "bears the pool's name, but not its tags, and is left alone: delete it, or give the pool another name";
    let expected = [format!("launch template lt-1 {remedy}"), format!("fleet sfr-9 {remedy}")];
    assert_eq!(told(&pool(), &existing), expected);
    existing.template.as_mut().unwrap().ours = true;
    existing.fleets[1].has_ended = true;
    assert_eq!(told(&pool(), &existing), [""; 0], "one that has ended hinders nobody");
}

#[test]
fn changes_are_data() {
    let mut existing = existing(&pool());
    existing.fleets[0].target = 4;
    let changes = serde_json::to_value(difference(&pool(), &launch(&pool()), &existing)).unwrap();
    assert_eq!(changes, serde_json::json!([{ "change": "scale", "fleet": "sfr-1", "from": 4, "to": 6 }]));
}
