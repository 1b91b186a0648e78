//! What disagrees between a pool's file, its fleets, their machines and the Nodes; each with what helps. What only takes
//! its time, as a machine that boots or a node that is being retired, disagrees with nothing.

use spot_aws::fleet::{Launch, difference};
use spot_core::node::{ClaimAnnotation, Readiness};

use super::FleetRow;
use super::seen::{Seen, instance};
use crate::fleet::plan;

/// All of it, in words.
pub(super) fn disagreements(seen: &Seen<'_>, fleets: &[FleetRow]) -> Vec<String> {
    let mut found = foreign(seen);
    found.extend(of_fleets(seen, fleets));
    found.extend(of_machines(seen));
    found.extend(of_nodes(seen));
    found
}

fn foreign(seen: &Seen<'_>) -> Vec<String> {
    let template = seen.existing.template.iter().filter(|template| !template.ours);
    let fleets = seen.existing.fleets.iter().filter(|fleet| !fleet.ours && !fleet.is_gone());
    let ids = template.map(|template| &template.id).chain(fleets.map(|fleet| &fleet.id));
    ids.map(|id| format!("{id} bears the pool's name, but not its tags: delete it, or give the pool another name"))
        .collect()
}

fn of_fleets(seen: &Seen<'_>, fleets: &[FleetRow]) -> Vec<String> {
    let pool = &seen.file.pool;
    let wanted = pool.target_capacity;
    let mut found = Vec::new();
    if plan::is_orphaned(&difference(pool, &Launch::of(pool, ""), seen.existing)) {
        found.push(plan::ORPHANED.to_string());
    }
    if !fleets.iter().any(|fleet| fleet.current) {
        found.push("no fleet is what the file asks for: `spot-fleet plan` says what would change".to_owned());
    }
    let is_alone = fleets.len() == 1;
    for FleetRow { id, target, fulfilled, excess, current, .. } in fleets {
        if !current {
            found.push(format!("fleet {id} is not what the file asks for: `spot-fleet roll` takes its place"));
            continue;
        }
        if is_alone && *target != wanted {
            found.push(format!(
                "fleet {id} wants {target} units, and the file {wanted}: somebody scaled it; `spot-fleet scale`, or the \
                 file, makes them agree"
            ));
        }
        if *excess > 0 {
            found.push(format!(
                "fleet {id} has {excess} units more than it wants: `spot-fleet scale` retires them, as far as weights \
                 allow"
            ));
        } else if fulfilled < target {
            found.push(format!("fleet {id} lacks {} units that it wants", target - fulfilled));
        }
    }
    let settling = seen.existing.fleets.iter().filter(|fleet| fleet.ours && !fleet.has_ended && !fleet.is_settled);
    found.extend(settling.map(|fleet| format!("fleet {} is being changed: wait", fleet.id)));
    found
}

/// A machine has `ready.timeout` to become a Ready node. Nothing is said of what was not seen.
fn of_machines(seen: &Seen<'_>) -> Vec<String> {
    if seen.nodes.is_none() {
        return Vec::new();
    }
    let words =
        seen.members.iter().filter(|member| seen.is_late(member)).filter_map(|member| match seen.node(member) {
            None => Some(format!(
                "{} ({}, launched {}) is no Node: look at its user data, its role's mapping and its security groups",
                member.instance, member.state, member.launched
            )),
            Some(node) if node.readiness != Readiness::Ready && matches!(node.claim, ClaimAnnotation::Absent) => {
                Some(format!("node {} is not Ready: `kubectl describe node {}` says why", node.name, node.name))
            }
            Some(_) => None,
        });
    words.collect()
}

fn of_nodes(seen: &Seen<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for node in seen.labelled() {
        let name = &node.name;
        let instance = instance(node);
        let is_member = |instance: &String| seen.members.iter().any(|member| member.instance == *instance);
        match &instance {
            Some(instance) if is_member(instance) => {}
            // It goes after its machine.
            Some(_) if matches!(node.claim, ClaimAnnotation::Valid(_)) => {}
            Some(instance) => found.push(format!(
                "node {name} says to be the pool's, and its machine {instance} is none of the pool's: it is gone, or was \
                 labelled by hand"
            )),
            None => found.push(format!("node {name} says to be the pool's, and names no machine")),
        }
        match &node.claim {
            ClaimAnnotation::Valid(claim) => {
                found.push(format!("node {name} is being retired by {} since {}", claim.owner, claim.since));
            }
            ClaimAnnotation::Unreadable(why) => {
                found.push(format!(
                    "node {name} bears a record that can't be read ({why}): `spot-migrator release {name}`"
                ));
            }
            ClaimAnnotation::Absent => {}
        }
    }
    found
}
