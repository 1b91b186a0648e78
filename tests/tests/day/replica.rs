//! One of the two migrators, and what a kubelet does for it: start it again when it has ended.

use std::{net::TcpStream, time::Duration};

use spot_tests::{
    Migrator, World,
    control_plane::REPLICAS,
    migrator::Running,
    wait::{PATIENCE, until},
};

use crate::log::Log;

/// How long a process may take to end.
const END: Duration = Duration::from_mins(1);

/// The exit code of who has lost the leadership.
const LEADERSHIP_LOST: i32 = 4;

/// One of them.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) name: &'static str,
    migrator: Migrator,
    running: Running,
    pub(crate) starts: usize,
    /// What it did that it must not do.
    pub(crate) violations: Vec<String>,
}

impl Replica {
    pub(crate) fn both(world: &World, migrator: &Migrator) -> [Self; 2] {
        REPLICAS.map(|name| {
            let migrator = migrator.replica(world, name);
            let running = migrator.run(&[]);
            Self { name, migrator, running, starts: 1, violations: Vec::new() }
        })
    }

    /// Starts it again if it has ended, which it may only because it has lost the leadership.
    pub(crate) fn keep(&mut self) {
        if let Some(exit) = self.running.exit() {
            if exit.code() != Some(LEADERSHIP_LOST) {
                self.violations.push(format!("replica {} ended by itself: {exit}", self.name));
            }
            self.start();
        }
    }

    /// Ends it on the spot, and starts it again.
    pub(crate) async fn crash(&mut self) {
        let fresh = self.migrator.run(&[]);
        std::mem::replace(&mut self.running, fresh).kill();
        self.starts += 1;
        self.running.serves().await;
    }

    pub(crate) fn freeze(&self) {
        self.running.process().freeze();
    }

    /// Lets it go on, which it must not do: others lead.
    pub(crate) async fn thaw_to_end(&mut self) {
        self.running.process().thaw();
        until("who was frozen to end", PATIENCE, || {
            let ended = self.running.exit().map(drop).ok_or_else(|| "it goes on".to_owned());
            async move { ended }
        })
        .await;
        self.keep();
    }

    /// Whether it leads, as its metrics tell.
    pub(crate) fn leads(&self) -> bool {
        TcpStream::connect(self.running.address()).is_ok() && self.running.metric("spot_migrator_leader", &[]) == 1
    }

    pub(crate) async fn serves(&self) {
        self.running.serves().await;
    }

    /// The runs that it counted, well or badly ended; both names of each counter have to say the same.
    pub(crate) fn counted(&mut self) -> u64 {
        let mut sum = 0;
        for ended in ["success", "failure"] {
            let [new, old] = ["", "cost_manager_"]
                .map(|prefix| self.running.metric(&format!("{prefix}spot_migrator_operation_{ended}_total"), &[]));
            if new != old {
                self.violations.push(format!("replica {} counts {new} and {old} times {ended}", self.name));
            }
            sum += new;
        }
        sum
    }

    pub(crate) fn log(&self) -> Log {
        Log::read(&self.running.process().output())
    }

    /// Tells it to end; returns its log and what it did wrong.
    pub(crate) async fn end(mut self) -> (Log, Vec<String>) {
        self.keep();
        let ended = self.running.terminate(END).await;
        if ended.code != Some(0) {
            self.violations.push(format!("replica {} ended with {:?} when told to", self.name, ended.code));
        }
        (Log::read(&ended.output), self.violations)
    }

    fn start(&mut self) {
        self.running = self.migrator.run(&[]);
        self.starts += 1;
    }
}
