//! An hour, and four, with a pod that nobody lets go: how many requests, log lines and Events that costs.
//!
//! The time is the model's, and so are the requests. The log lines and the Events are those of the product: what the
//! run reports is told to the very observers that a process has.

#![expect(clippy::print_stdout, reason = "what a bench is for")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{Request, Response};
use jiff::tz::TimeZone;
use kube::Client;
use kube::client::Body;
use spot_bin::log::Log;
use spot_bin::observers::Observers;
use spot_core::Migrator;
use spot_core::migrator::Settings;
use spot_core::model::fault::Fault;
use spot_core::model::{self, Call, Model, WorldBuilder};
use spot_core::ports::EvictAnswer;
use spot_core::schedule::Schedule;
use spot_core::stop::Stop;
use spot_kube::{Events, TokioClock};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Pods on the node, one of which is in the way.
const PODS: u32 = 12;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // Cargo's own argument; a filter that names another bench asks for nothing here.
    let filter: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if !filter.is_empty() && !filter.iter().any(|word| "blocked".contains(word.as_str())) {
        return Ok(());
    }
    println!("\na node with {PODS} pods, one of which a webhook refuses to let go until the drain's time is over");
    for hours in [1, 4] {
        println!("  {hours} h");
        for (what, count) in costs(hours).await? {
            println!("    {count:>6}  {what}");
        }
    }
    Ok(())
}

/// What a run costs in which the blocked pod holds a drain up for so many hours, by kind.
async fn costs(hours: u64) -> Result<BTreeMap<String, usize>> {
    let model = WorldBuilder::default().on_demand(1).spot(1).deployment("stuck", 1).deployment("web", PODS - 1).build();
    model.with(|world| {
        let webhook = EvictAnswer::Webhook("not now".to_owned());
        let of_stuck = |call: &Call| matches!(call, Call::Evict { pod, .. } if pod.name.starts_with("stuck"));
        world.fault_when(u32::MAX, Fault::Evict(webhook), of_stuck);
    });
    let posted = Arc::new(AtomicUsize::new(0));
    let (events, worker) = Events::new(counting(&posted), Arc::new(TokioClock::new()), "spot-migrator-0");
    let (events, lines) = (Arc::new(events), Lines::default());
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(tracing::Level::DEBUG);
    let logging = subscriber.with_writer(lines.clone()).set_default();
    run(&model, Observers::default().and(Arc::new(Log::default())).and(Arc::clone(&events) as _), hours)?;
    drop(logging);
    ensure!(events.dropped() == 0, "{} Events were dropped", events.dropped());
    drop(Arc::into_inner(events).context("the run still reports")?);
    worker.run().await;

    let mut costs = lines.by_level()?;
    costs.insert("Events".to_owned(), posted.load(Ordering::Relaxed));
    model.with(|world| {
        for record in world.calls() {
            *costs.entry(format!("requests: {}", record.call.name())).or_default() += 1;
        }
    });
    Ok(costs)
}

fn run(model: &Model, observers: Observers, hours: u64) -> Result<()> {
    let mut settings = Settings::new(Schedule::parse("@hourly", &TimeZone::UTC)?);
    settings.retire.drain_timeout = Duration::from_hours(hours);
    settings.policy.drain_timeout = Some(settings.retire.drain_timeout);
    let migrator = Migrator::new(model.ports(Arc::new(observers)), settings);
    let stop = Stop::default();
    let report = model::block_on(model, async { migrator.once(&stop).await })??;
    ensure!(report.failed.len() == 1, "the pod was let go: {report:?}");
    Ok(())
}

/// A client whose API server takes whatever it is sent, and counts.
fn counting(posted: &Arc<AtomicUsize>) -> Client {
    let posted = Arc::clone(posted);
    let server = tower::service_fn(move |_: Request<Body>| {
        posted.fetch_add(1, Ordering::Relaxed);
        async {
            let mut created = Response::new(Body::from(b"{}".to_vec()));
            *created.status_mut() = http::StatusCode::CREATED;
            Ok::<_, Infallible>(created)
        }
    });
    Client::new(server, "default")
}

/// What was logged, as JSON.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn by_level(&self) -> Result<BTreeMap<String, usize>> {
        let text = String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())?;
        let mut levels = BTreeMap::new();
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line)?;
            let level = line["level"].as_str().context("a line without a level")?;
            *levels.entry(format!("log lines: {}", level.to_lowercase())).or_default() += 1;
        }
        Ok(levels)
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
