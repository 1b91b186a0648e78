//! Every scenario through the real migrator, and what is printed of it.

mod saved;

use rstest::rstest;
use serde_json::Value;

use super::*;
use crate::cli::ConfigArgs;

fn args(scenario: ScenarioName, seed: u64) -> SimulateArgs {
    let config = ConfigArgs { config: None };
    SimulateArgs { config, files: Vec::new(), seed, nodes: 6, pods: 60, scenario, output: SimulateOutput::Text }
}

fn told(args: &SimulateArgs, keys: &[(&str, &str)]) -> Story {
    let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let stage = Stage::of(args, &keys, &Environment::default()).unwrap_or_else(|fault| panic!("{:#}", fault.error));
    Story::of(args, stage, false).expect("the simulation ends")
}

fn story(scenario: ScenarioName, seed: u64) -> Story {
    told(&args(scenario, seed), &[])
}

#[rstest]
#[case(ScenarioName::SpotAvailable)]
#[case(ScenarioName::SpotExhausted)]
#[case(ScenarioName::BlockedByBudget)]
#[case(ScenarioName::KilledHalfway)]
fn the_same_seed_gives_the_same_bytes_and_another_one_others(#[case] scenario: ScenarioName) {
    let both = |seed| {
        let story = story(scenario, seed);
        (timeline::text(&story), story.json().expect("it is JSON"))
    };
    assert_eq!(both(7), both(7));
    assert_ne!(both(7), both(8));
}

#[test]
fn while_spot_has_room_all_on_demand_nodes_go() {
    for seed in 0..20 {
        let story = story(ScenarioName::SpotAvailable, seed);
        assert_eq!((story.outcome, story.retired), ("all_spot", 6), "seed {seed}");
        assert!(story.evictions >= 60, "seed {seed}: every pod moves");
    }
}

#[test]
fn a_run_stops_at_the_first_on_demand_node_that_comes() {
    for seed in 0..20 {
        let story = story(ScenarioName::SpotExhausted, seed);
        assert_eq!(story.outcome, "spot_exhausted", "seed {seed}");
        assert!((1..6).contains(&story.retired), "seed {seed}: {} retired", story.retired);
        let created = story.timeline.iter().filter(|entry| matches!(entry.what, recorder::What::Created { .. }));
        assert_eq!(created.count(), 1, "seed {seed}");
    }
}

#[test]
fn nodes_whose_pods_a_budget_holds_stay_untouched() {
    for seed in 0..20 {
        let story = story(ScenarioName::BlockedByBudget, seed);
        assert_eq!(story.outcome, "nothing_eligible", "seed {seed}");
        assert!(story.retired < 6, "seed {seed}: {} retired", story.retired);
        let text = timeline::text(&story);
        assert!(text.contains("budget_allows_none") && !text.contains("released"), "seed {seed}:\n{text}");
    }
}

#[test]
fn a_killed_process_is_followed_by_one_that_finishes_its_node_first() {
    for seed in 0..20 {
        let story = story(ScenarioName::KilledHalfway, seed);
        assert_eq!((story.outcome, story.retired), ("all_spot", 6), "seed {seed}");
        let killed = story.timeline.iter().position(|entry| matches!(entry.what, recorder::What::Killed { .. }));
        let killed = killed.expect("it is killed");
        let node = story.timeline[killed].what.node().expect("on a node");
        let gone = story.timeline[killed..].iter().find_map(|entry| match &entry.what {
            recorder::What::Retired { node } => Some(node),
            _ => None,
        });
        assert_eq!(gone, Some(node), "seed {seed}: the half-done node is the next to go");
    }
}

#[test]
fn json_is_one_document_with_the_promised_keys() {
    let story = story(ScenarioName::SpotAvailable, 1);
    let document: Value = serde_json::from_str(&story.json().expect("it is JSON")).expect("it is one document");
    assert_eq!((&document["outcome"], &document["retired"]), (&Value::from("all_spot"), &Value::from(6)));
    assert!(document["evictions"].as_u64() >= Some(60));
    assert!(document["virtualSeconds"].as_f64() > Some(360.0), "six nodes wait a minute each for load balancers");
    let timeline = document["timeline"].as_array().expect("it is a list");
    assert!(timeline.iter().all(|entry| entry["seconds"].is_number() && entry["event"].is_string()));
    assert!(timeline.is_sorted_by_key(|entry| entry["seconds"].as_f64()));
}

#[test]
fn many_nodes_are_not_told_one_by_one() {
    let many = SimulateArgs { nodes: 40, pods: 80, ..args(ScenarioName::SpotAvailable, 0) };
    let text = timeline::text(&told(&many, &[]));
    assert!(text.contains("and so on: 35 more nodes"), "{text}");
    assert!(text.contains("nodes retired  40 of 40"), "{text}");
    assert!(text.lines().count() < 40, "{text}");
}

#[rstest]
#[case(ScenarioName::SpotAvailable)]
#[case(ScenarioName::SpotExhausted)]
#[case(ScenarioName::BlockedByBudget)]
#[case(ScenarioName::KilledHalfway)]
fn a_cluster_without_pods_is_no_problem(#[case] scenario: ScenarioName) {
    let none = SimulateArgs { nodes: 1, pods: 0, ..args(scenario, 0) };
    let story = told(&none, &[]);
    assert_eq!((story.outcome, story.retired), ("all_spot", 1));
}
