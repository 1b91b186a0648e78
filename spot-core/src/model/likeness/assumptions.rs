//! What nobody could tell of a cluster that was seen, and what is assumed instead.

use crate::view::View;

use super::super::scenario::Scenario;
use super::super::settings::Settings;
use super::super::volumes::DETACH;
use super::pods::{PATIENCE, PULL, START_UP, STOP};
use super::{Room, Told};

/// So many types of machines are told by their names.
const MOST_TYPES: usize = 4;

/// All of them, in words.
pub(super) fn words(scenario: Scenario, view: &View, room: &Room, told: &Told, settings: &Settings) -> Vec<String> {
    let autoscaler = &settings.autoscaler;
    let mut words = vec![room_in_words(room)];
    let like = if told.spot_is_a_guess {
        "There is no spot node to be like: new spot machines are like the on-demand nodes, with labels that say spot."
    } else {
        "New spot machines are like the spot nodes that are there, the commonest kind that would do first."
    };
    words.push(like.to_owned());
    let (comes, instead) = (autoscaler.spot_delay.as_secs(), autoscaler.fallback.unwrap_or_default().as_secs() / 60);
    words.push(match scenario {
        Scenario::SpotExhausted => format!(
            "A spot machine comes {comes} s after it is asked for, {} of them at most; from then on an on-demand \
             machine comes instead, after {instead} minutes.",
            autoscaler.spot_left,
        ),
        Scenario::SpotAvailable | Scenario::BlockedByBudget | Scenario::KilledHalfway => {
            format!("A spot machine comes {comes} s after it is asked for, and there is always another one.")
        }
    });
    words.push(format!(
        "New pods start {} s after their placement and are ready {} s later; old ones end within {} s, or their grace \
         period.",
        PULL.as_secs(),
        START_UP.as_secs(),
        STOP.as_secs(),
    ));
    words.push("Every controller keeps as many pods as it has now.".to_owned());
    if !told.foreign_kinds.is_empty() {
        let kinds: Vec<&str> = told.foreign_kinds.iter().take(MOST_TYPES).map(|kind| &**kind).collect();
        let more = if told.foreign_kinds.len() > MOST_TYPES { " and others" } else { "" };
        words.push(format!("Controllers of the kinds {}{more} bring pods back as ReplicaSets do.", kinds.join(", ")));
    }
    if told.stuck > 0 {
        let minutes = PATIENCE.as_mins();
        words.push(format!(
            "Pods that were not ready after {minutes} minutes stay so ({} are there), and so do those that follow where \
             no pod of a controller is ready.",
            told.stuck,
        ));
    }
    if view.budgets().next().is_some() {
        words.push("Every budget goes on demanding as many healthy pods as its status says now.".to_owned());
    }
    if told.has_volumes {
        words.push(format!("Volumes are attached elsewhere {} s after their pod is gone.", DETACH.as_secs()));
    }
    words.push("DaemonSets take no room, and start nothing on new machines.".to_owned());
    words.push("No group of machines is at its minimum, and nothing is remembered of earlier runs.".to_owned());
    words
}

fn room_in_words(room: &Room) -> String {
    let types = room.by_type.iter().filter(|(name, _)| !name.is_empty());
    let named: Vec<_> = types.clone().take(MOST_TYPES).map(|(name, pods)| format!("{name}: {pods}")).collect();
    let more = if types.count() > MOST_TYPES { ", …" } else { "" };
    let listed = if named.is_empty() { room.fullest().to_string() } else { format!("{}{more}", named.join(", ")) };
    format!(
        "A node has room for as many pods as the fullest of its instance type has now ({listed}), DaemonSets aside: \
         what pods ask for, and what nodes have, is not read."
    )
}
