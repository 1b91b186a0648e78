//! The cluster, and its day from the first node to the report.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;
use spot_tests::{
    Machine, Migrator, Sqs, Witness, Workload, World, aws::REGION, notice, rights, sqs::Queue, wait::until,
};
use tokio::time::{Instant, sleep};

use crate::{
    chance::Chance,
    foreign::{Held, OPTED_OUT, is_cordoned, taints},
    promises::Promises,
    replica::Replica,
    report::Report,
    weather::FORECAST,
};

/// The keys of what the product puts on nodes, and the taint under which they go.
const OURS: &str = "spot-migrator.io/";
pub(crate) const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
pub(crate) const CLAIM: &str = "spot-migrator.io/claim";

/// How many nodes may be retired at once.
pub(crate) const AT_ONCE: usize = 2;

/// What is rolled and scaled.
pub(crate) const DEPLOYMENTS: [&str; 3] = ["web", "api", "shop"];

/// How long something takes to happen, on average.
const PACE: usize = 1_000;

/// How long the cluster may take to come to rest when nothing happens any more.
const REST: Duration = Duration::from_mins(4);

/// A cluster, its migrators, and what has happened so far.
#[derive(Debug)]
pub(crate) struct Day {
    pub(crate) replicas: [Replica; 2],
    pub(crate) person: Migrator,
    witness: Witness,
    pub(crate) queue: Queue,
    _sqs: Sqs,
    pub(crate) world: World,
    pub(crate) chance: Chance,
    pub(crate) began: Instant,
    pub(crate) deeds: usize,
    pub(crate) machines: u32,
    pub(crate) lost: usize,
    pub(crate) paused: bool,
    /// Nodes whose machine was said to go, and when it goes if it has not.
    pub(crate) noticed: Vec<(String, Option<Instant>)>,
    pub(crate) held: Vec<Held>,
}

/// Plays a day of this length, and reports.
///
/// # Panics
/// If the world does not do what it is told.
pub(crate) async fn play(length: Duration, seed: u64) -> Report {
    println!("a day of {} s with seed {seed}", length.as_secs());
    let mut day = Day::begin(seed).await;
    let mut forecast = FORECAST.iter().peekable();
    while day.began.elapsed() < length {
        if let Some((_, weather)) = forecast.next_if(|(part, _)| day.began.elapsed() >= length * *part / 100) {
            println!("{:6.1} s {weather:?}", day.began.elapsed().as_secs_f32());
            day.strike(*weather).await;
        }
        day.replicas.iter_mut().for_each(Replica::keep);
        day.churn().await;
        let pause = u64::try_from(PACE / 2 + day.chance.below(PACE)).expect("it is small");
        sleep(Duration::from_millis(pause)).await;
    }
    day.end().await
}

impl Day {
    async fn begin(seed: u64) -> Self {
        let world = World::start().await;
        let sqs = Sqs::start().await;
        let queue = sqs.queue("interruptions");
        let spot = |number| Machine::spot(&format!("spot-{number}")).instance(&notice::instance(number));
        let on_demand = |number| Machine::on_demand(&format!("on-demand-{number}"));
        let machines = [Machine::control_plane("control-plane"), on_demand(1), on_demand(2), spot(3), spot(4), spot(5)];
        world.join(&machines).await;
        let deployments = DEPLOYMENTS.map(|name| Workload::deployment(name, 6).max_unavailable(2).stop_after("1s"));
        world.run(&deployments).await;
        let db = Workload::stateful_set("db", 3).max_unavailable(1).ready_after("1s");
        world.run(&[db, Workload::daemon_set("node-agent")]).await;
        let migrator = Migrator::install(
            &world,
            json!({
                "schedule": "@every 5s",
                "cloudProvider": {"aws": {"region": REGION, "endpointUrl": sqs.endpoint()}},
                "interruption": {"queueUrl": queue.url(), "deleteBlockedPodsAfter": "5s", "pauseMigrationFor": "3s"},
                "leaderElection": {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"},
                "selection": {"nodesAtOnce": AT_ONCE},
                "drain": {"timeout": "30s"},
                "settle": {"timeout": "15s"},
                "nodeGone": {"timeout": "30s"},
                "backOff": {"initial": "1s", "max": "2s"},
                "exhaustion": {"backOff": {"initial": "1s", "max": "2s"}},
                "shutdown": {"gracePeriod": "10s"},
                "log": {"format": "json"},
            }),
        )
        .await;
        rights::grant_answers(&world).await;
        let migrator = migrator.with_environment(sqs.environment("PRODUCT"));
        let witness = world.witness_through_restarts().await;
        let replicas = Replica::both(&world, &migrator);
        Self {
            replicas,
            person: migrator.as_administrator(&world),
            witness,
            queue,
            _sqs: sqs,
            world,
            chance: Chance::new(seed),
            began: Instant::now(),
            deeds: 0,
            machines: 5,
            lost: 0,
            paused: false,
            noticed: Vec::new(),
            held: Vec::new(),
        }
    }

    /// The churn stops, the cluster comes to rest, and the migrators end.
    async fn end(mut self) -> Report {
        self.calm().await;
        println!("{:6.1} s calm", self.began.elapsed().as_secs_f32());
        let mut violations = Vec::new();
        let calm = Instant::now();
        let mut unrest = self.unrest().await;
        while !unrest.is_empty() && calm.elapsed() < REST {
            self.replicas.iter_mut().for_each(Replica::keep);
            sleep(Duration::from_millis(200)).await;
            unrest = self.unrest().await;
        }
        violations.extend(unrest.into_iter().map(|what| format!("after {REST:?} of calm: {what}")));
        let rest = calm.elapsed();
        self.still_runs().await;
        for replica in &mut self.replicas {
            replica.serves().await;
        }
        let leader = self.leads(None).await;
        if self.replicas[leader].counted() == 0 {
            violations.push("who leads has counted no run".to_owned());
        }
        self.replicas[1 - leader].counted();

        let starts = self.replicas.iter().map(|replica| replica.starts).sum();
        let mut logs = Vec::new();
        for replica in self.replicas {
            let name = replica.name;
            let (log, wrong) = replica.end().await;
            violations.extend(wrong);
            violations.extend(log.violations(name));
            logs.push(log);
        }
        self.witness.caught_up().await;
        let audit = self.world.audit().await;
        let noticed = self.noticed.into_iter().map(|(node, _)| node).collect();
        let promises = Promises { audit, witness: self.witness, held: self.held, noticed };
        let mut report = promises.report();
        report.violations.extend(violations);
        report.count("deeds", self.deeds);
        report.count("spot nodes lost", self.lost);
        report.count("starts of migrators", starts);
        report.count("runs", logs.iter().map(crate::log::Log::ended).sum());
        let longest = logs.iter().map(crate::log::Log::longest).max().unwrap_or_default();
        report.count("seconds of the longest run", usize::try_from(longest.as_secs()).unwrap_or(usize::MAX));
        report.count("seconds until rest", usize::try_from(rest.as_secs()).unwrap_or(usize::MAX));
        report
    }

    /// What is still to be done, or of ours, in the cluster.
    async fn unrest(&self) -> Vec<String> {
        let mut unrest = Vec::new();
        for (name, node) in self.world.nodes().await {
            if !is_spot(&node) && !is_control_plane(&node) {
                unrest.push(format!("{name} is there"));
            }
            let keys = node.labels().keys().chain(node.annotations().keys());
            let ours = keys.chain(taints(&node).map(|taint| &taint.key));
            unrest.extend(
                ours.filter(|key| key.starts_with(OURS) || *key == TO_BE_DELETED)
                    .map(|key| format!("{name} has {key}")),
            );
            if is_cordoned(&node) {
                unrest.push(format!("{name} is cordoned"));
            }
        }
        unrest
    }

    /// Waits until the schedule has fired twice more.
    async fn still_runs(&mut self) {
        let count = |replicas: &[Replica; 2]| replicas.iter().map(|replica| replica.log().ended()).sum::<usize>();
        let before = count(&self.replicas);
        until("the schedule to go on", REST, || {
            let runs = count(&self.replicas) - before;
            async move { if runs >= 2 { Ok(()) } else { Err(format!("{runs} runs more")) } }
        })
        .await;
    }
}

pub(crate) fn is_spot(node: &Node) -> bool {
    node.labels().get("node.kubernetes.io/lifecycle").is_some_and(|class| class == "spot")
}

pub(crate) fn is_control_plane(node: &Node) -> bool {
    node.labels().contains_key("node-role.kubernetes.io/control-plane")
}

pub(crate) fn is_opted_out(node: &Node) -> bool {
    node.labels().contains_key(OPTED_OUT)
}
