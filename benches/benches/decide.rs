//! The decisions at 10, 1,000 and 100,000 nodes, and a schedule's next time.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use jiff::tz::TimeZone;
use spot_benches::Cluster;
use spot_benches::cluster::{NOW, Nodes};
use spot_core::node::NodeSnapshot;
use spot_core::{KnownNodes, Schedule, judge, select_node_for_deletion};

const SIZES: [u32; 3] = [10, 1_000, 100_000];

fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    for size in SIZES {
        group.throughput(Throughput::Elements(u64::from(size)));
        let cluster = Cluster::new(size, Nodes::Eligible);
        group.bench_with_input(BenchmarkId::new("select_node_for_deletion", size), &cluster, |bencher, cluster| {
            let own_node = cluster.policy().own_node.as_deref();
            bencher.iter(|| black_box(select_node_for_deletion(cluster.nodes(), own_node).is_some()));
        });
        group.bench_with_input(BenchmarkId::new("judge_batch", size), &cluster, judge_batch);
        let backing_off = Cluster::new(size, Nodes::BackingOff);
        group.bench_with_input(BenchmarkId::new("judge_batch_all_refused", size), &backing_off, judge_batch);
        drop(backing_off);
        group.bench_with_input(BenchmarkId::new("known_nodes_of", size), &cluster, |bencher, cluster| {
            bencher.iter_with_large_drop(|| KnownNodes::of(cluster.nodes()));
        });
        group.bench_with_input(BenchmarkId::new("known_nodes_compare", size), &cluster, |bencher, cluster| {
            let class = |node: &Arc<NodeSnapshot>| cluster.class(node);
            let mut known = KnownNodes::of(cluster.nodes());
            // As a run does it, again and again with the same set: one pass finds the strangers, here none, and only
            // they are looked at.
            bencher.iter(|| {
                let strangers: Vec<_> = known.strangers(cluster.nodes()).collect();
                black_box(known.created(&strangers, |node| class(node)).is_some());
                known.learn(&strangers, |node| class(node));
            });
        });
    }
    group.finish();
}

fn judge_batch(bencher: &mut criterion::Bencher<'_>, cluster: &Cluster) {
    bencher.iter(|| judge(cluster.nodes(), &cluster.facts(), cluster.policy(), NOW).batch());
}

fn schedule(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("schedule_next_after");
    let zones = [("UTC", TimeZone::UTC), ("London", TimeZone::get("Europe/London").unwrap_or(TimeZone::UTC))];
    for (zone_name, zone) in zones {
        for expression in ["@hourly", "30 4 * * mon", "0 0 29 2 *", "@every 1h30m"] {
            // A schedule that does not parse would be a mistake in the line above, and is left out.
            let Ok(schedule) = Schedule::parse(expression, &zone) else { continue };
            group.bench_function(BenchmarkId::new(expression, zone_name), |bencher| {
                bencher.iter(|| schedule.next_after(black_box(NOW)));
            });
        }
    }
    group.finish();
}

criterion_group!(decisions, decide, schedule);
criterion_main!(decisions);
