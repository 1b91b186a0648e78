//! Do the decisions grow with the number of nodes, or faster?
//!
//! Prints, for growing clusters, how long each decision takes. The last columns are the time a node of selecting one and
//! of comparing with what was known, and how that grew against the size before: 1 is linear. Where the nodes no longer
//! fit the processor's caches, each is a few reads of main memory, and the time a node grows until they all are.

#![expect(clippy::print_stdout, reason = "what a bench is for")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use spot_benches::Cluster;
use spot_benches::cluster::{NOW, Nodes};
use spot_core::node::Node;
use spot_core::{KnownNodes, judge, select_node_for_deletion};

const SIZES: [u32; 5] = [10, 100, 1_000, 10_000, 100_000];

/// The fastest of so many is printed: whatever else the machine does can only slow one down.
const ROUNDS: usize = 30;

/// What must be reached at 100,000 nodes, for selecting and comparing together.
const LIMIT: Duration = Duration::from_millis(50);

fn main() {
    println!("a plain slice of snapshots");
    table(|cluster, decisions| decisions.of(cluster, &cluster.plain()));
    println!("\nthe nodes of a view, each allocated by itself");
    table(|cluster, decisions| decisions.of(cluster, cluster.nodes()));
}

/// How long the decisions take on one cluster.
#[derive(Default)]
struct Decisions {
    select: Duration,
    judge: Duration,
    created: Duration,
    learn: Duration,
    first_view: Duration,
}

impl Decisions {
    fn of<N: Node>(&mut self, cluster: &Cluster, nodes: &[N]) {
        let class = |node: &N| cluster.class(node);
        let own_node = cluster.policy().own_node.as_deref();
        let mut known = KnownNodes::of(nodes);
        self.select = fastest(|| select_node_for_deletion(nodes, own_node).is_some());
        self.judge = fastest(|| judge(nodes, &cluster.facts(), cluster.policy(), NOW).batch());
        self.created = fastest(|| known.created(nodes, class).is_some());
        self.learn = fastest(|| known.learn(nodes, class));
        self.first_view = fastest(|| KnownNodes::of(nodes));
    }
}

fn table(measure: impl Fn(&Cluster, &mut Decisions)) {
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>12} {:>9} {:>6}",
        "nodes", "select", "judge", "created", "learn", "first view", "sel+created", "per node", "growth"
    );
    let mut before: Option<f64> = None;
    let mut all = Duration::ZERO;
    for size in SIZES {
        let mut took = Decisions::default();
        measure(&Cluster::new(size, Nodes::Eligible), &mut took);
        let Decisions { select, judge, created, learn, first_view } = took;
        all = select + created;
        let per_node = all.as_secs_f64() / f64::from(size);
        let growth = before.map_or_else(String::new, |before| format!("{:.2}", per_node / before));
        println!(
            "{size:>8} {select:>10.2?} {judge:>10.2?} {created:>10.2?} {learn:>10.2?} {first_view:>10.2?} {all:>12.2?} {:>6.0} ns {growth:>6}",
            per_node * 1e9
        );
        before = Some(per_node);
    }
    let reached = if all < LIMIT { "reached" } else { "MISSED" };
    println!("{} nodes selected and compared in {all:.2?} (under {LIMIT:?}: {reached})", SIZES[SIZES.len() - 1]);
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn fastest<T>(mut work: impl FnMut() -> T) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let made = black_box(work());
        best = best.min(start.elapsed());
        drop(made);
    }
    best
}
