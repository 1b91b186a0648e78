//! A decision on a node type of one's own: which of these nodes should go first, and did one come back?
//!
//! `cargo run -p spot-core --example own_node_type`

use jiff::Timestamp;
use spot_core::capacity::Class;
use spot_core::node::Taint;
use spot_core::{KnownNodes, Node, Preference, is_control_plane, select_node_for_deletion};

/// What the author's own controller knows of a node.
struct Machine {
    name: &'static str,
    uid: &'static str,
    since: &'static str,
    cordoned: bool,
    control_plane: bool,
}

impl Node for Machine {
    fn name(&self) -> &str {
        self.name
    }
    fn uid(&self) -> &str {
        self.uid
    }
    fn provider_id(&self) -> Option<&str> {
        None
    }
    fn created_at(&self) -> Timestamp {
        self.since.parse().unwrap_or(Timestamp::UNIX_EPOCH)
    }
    fn label(&self, key: &str) -> Option<&str> {
        (self.control_plane && key == spot_core::node::key::CONTROL_PLANE).then_some("")
    }
    fn annotation(&self, _key: &str) -> Option<&str> {
        None
    }
    fn taints(&self) -> &[Taint] {
        &[]
    }
    fn is_unschedulable(&self) -> bool {
        self.cordoned
    }
}

fn machine(name: &'static str, since: &'static str) -> Machine {
    Machine { name, uid: name, since, cordoned: false, control_plane: false }
}

#[expect(clippy::print_stdout, reason = "an example shows what it finds")]
fn main() {
    let mut machines = vec![
        machine("old", "2026-01-01T00:00:00Z"),
        machine("young", "2026-06-01T00:00:00Z"),
        Machine { cordoned: true, ..machine("cordoned", "2026-03-01T00:00:00Z") },
        Machine { control_plane: true, ..machine("control-plane", "2025-01-01T00:00:00Z") },
    ];

    let candidates: Vec<&Machine> = machines.iter().filter(|machine| !is_control_plane(*machine)).collect();
    if let Some(first) = select_node_for_deletion(&candidates, Some("young")) {
        println!("first to go: {} ({:?})", first.name, Preference::of(*first, Some("young")));
    }

    let known = KnownNodes::of(&machines);
    machines.push(machine("newcomer", "2026-07-01T00:00:00Z"));
    let on_demand = |_: &Machine| Class::OnDemand;
    match known.created(&machines, on_demand) {
        Some(node) => println!("came back: {}: spot is exhausted", node.name),
        None => println!("none came back"),
    }
}
