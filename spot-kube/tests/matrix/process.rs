//! A process of ours, from its start to its end: the real run loop on the real adapter, under the world's time.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use jiff::tz::TimeZone;
use spot_core::Migrator;
use spot_core::capacity::{CapacityLabels, Class};
use spot_core::error::RunError;
use spot_core::migrator;
use spot_core::model::{Halt, Model};
use spot_core::ports::{Alone, Clock, Ports, Silent};
use spot_core::progress::Report;
use spot_core::schedule::Schedule;
use spot_core::stop::Stop;
use spot_kube::{KubeCluster, NodeObject, Settings};

use crate::request::MEMORY;
use crate::server::{ApiServer, Connection};

/// How a process ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Its run ended so.
    Ran(Report),
    /// Its run could not be made, or not to its end.
    Failed(RunError),
    /// It was killed.
    Killed,
}

/// A new process makes one run.
pub(crate) fn once(server: &ApiServer) -> Result<Ended, Halt> {
    in_its_time(&server.model, run(server))
}

async fn run(server: &ApiServer) -> Ended {
    let process = server.model.process();
    let connection = Connection::of(server, &process).await;
    let clock: Arc<dyn Clock> = Arc::new(process);
    let settings =
        Settings { namespace: MEMORY.0.to_owned(), config_map: MEMORY.1.to_owned(), clock: Arc::clone(&clock) };
    let drain = server.model.with(|world| world.settings().load_balancer_drain);
    let labels = CapacityLabels::new([], Class::Unknown);
    let ports = Ports {
        cluster: Arc::new(KubeCluster::new(connection.client(), settings)),
        cloud: Arc::new(NodeObject::new(labels, drain, Arc::clone(&clock))),
        clock,
        observer: Arc::new(Silent),
        leadership: Arc::new(Alone),
    };
    let schedule = Schedule::parse("@hourly", &TimeZone::UTC).unwrap();
    let migrator = Migrator::new(ports, migrator::Settings::new(schedule));
    let stop = Stop::default();
    match select(pin!(migrator.once(&stop)), pin!(connection.killed())).await {
        Either::Left((Ok(report), _)) => Ended::Ran(report),
        Either::Left((Err(error), _)) => Ended::Failed(error),
        Either::Right(((), _)) => Ended::Killed,
    }
}

/// Runs work in a runtime of its own in which the only time is the world's.
///
/// Nothing in it but the loop below waits for tokio's clock, which is paused: it moves on when everything else waits,
/// and so tells that the world is to jump to what is due next.
pub(crate) fn in_its_time<T>(model: &Model, work: impl Future<Output = T>) -> Result<T, Halt> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let time = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if let Err(halt) = model.jump() {
                return halt;
            }
        }
    };
    runtime.block_on(async {
        match select(pin!(work), pin!(time)).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right((halt, _)) => Err(halt),
        }
    })
}
