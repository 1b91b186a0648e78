//! The ledger before a cloud that says what it is told to.

use std::{fs, io};

use spot_core::error::ErrorClass;
use spot_core::progress::Outcome;

use super::*;
use crate::config::Config;
use crate::sample::{report, snapshot};

/// A clock that stands until it is set.
#[derive(Debug, Default)]
struct Standing(Mutex<Duration>);

impl Standing {
    fn advance(&self, by: Duration) {
        *self.0.lock().expect("it is whole") += by;
    }
}

#[async_trait]
impl Clock for Standing {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
    fn instant(&self) -> Instant {
        Instant(*self.0.lock().expect("it is whole"))
    }
    async fn sleep_until(&self, _at: Instant) {
        unreachable!("nobody waits")
    }
}

/// A ledger, and what belongs to it.
struct Scene {
    ledger: Ledger,
    metrics: Metrics,
    clock: Arc<Standing>,
    /// What the cloud was asked for.
    asked: Arc<Mutex<Vec<BTreeSet<String>>>>,
    /// What it says that an `m5.large` costs, if it says anything.
    says: Arc<Mutex<Option<f64>>>,
}

impl Scene {
    fn new(prices: &str) -> Self {
        let keys = [("cloudProvider.name".to_owned(), "node-object".to_owned())].into();
        let config = Config::load(None, [], &keys).expect("it is right");
        let clock = Arc::new(Standing::default());
        let port: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let metrics = Metrics::new().expect("names are distinct");
        let provider = Provider::node_object(&config, &port);
        let mut ledger = Ledger::new(provider, book(prices), port, metrics.clone());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let says = Arc::new(Mutex::new(Some(0.04)));
        let (log, answer) = (Arc::clone(&asked), Arc::clone(&says));
        ledger.ask = Box::new(move |types, _by| {
            log.lock().expect("it is whole").push(types);
            let told = *answer.lock().expect("it is whole");
            Box::pin(async move {
                let dollars = told.ok_or_else(|| PortError::new(ErrorClass::Transient, "throttled"))?;
                Ok([(("m5.large".to_owned(), "eu-west-1a".to_owned()), dollars)].into())
            })
        });
        Self { ledger, metrics, clock, asked, says }
    }

    fn cloud_says(&self, dollars: f64) {
        *self.says.lock().expect("it is whole") = Some(dollars);
    }

    fn cloud_is_silent(&self) {
        *self.says.lock().expect("it is whole") = None;
    }

    fn times_asked(&self) -> usize {
        self.asked.lock().expect("it is whole").len()
    }

    /// Looks at these nodes, and has the answer of the cloud arrive that was asked at that.
    async fn look(&self, nodes: &[Arc<NodeSnapshot>]) {
        let by = self.clock.instant() + Duration::from_secs(10);
        let facts = self.ledger.survey(nodes, &[], Freshness::Now, by).await.expect("labels tell");
        assert_eq!(facts.of("a").map(|fact| fact.class), Some(Class::OnDemand), "the provider's word is passed on");
        tokio::task::yield_now().await;
    }

    fn observe(&self, events: &[Progress]) {
        for event in events {
            self.ledger.observe(Timestamp::UNIX_EPOCH, event);
        }
    }

    fn is(&self, series: &str, dollars: f64) {
        let found = value(&self.metrics, &format!("spot_migrator_{series}"));
        assert!((found - dollars).abs() < 1e-9, "{series}: {found}");
    }
}

/// Lines of the log.
#[derive(Clone, Debug, Default)]
struct Warned(Arc<Mutex<Vec<u8>>>);

impl Warned {
    fn times(&self) -> usize {
        let lines = self.0.lock().expect("it is whole");
        String::from_utf8_lossy(&lines).matches("what spot costs is not known").count()
    }
}

impl io::Write for Warned {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("it is whole").write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The shortest time.
const JUST: Duration = Duration::from_nanos(1);
const POSSIBLE: &str = "possible_saving_dollars_per_hour";
const SAVED: &str = "saved_dollars_per_hour_total";

fn book(prices: &str) -> PriceBook {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("prices");
    fs::write(&path, prices).expect("it is writable");
    PriceBook::read(Some(&path)).expect("it is a table")
}

fn started() -> Progress {
    Progress::RunStarted { nodes: BTreeMap::new() }
}

fn retired(name: &str) -> Progress {
    Progress::Retired { node: snapshot(name).reference() }
}

fn ended() -> Progress {
    Progress::RunEnded { report: report(Outcome::AllSpot) }
}

fn node(name: &str, kind: &str, lifecycle: &str) -> Arc<NodeSnapshot> {
    let mut node = snapshot(name);
    node.provider_id = "aws:///eu-west-1a/i-0123456789abcdef0".to_owned();
    for (key, value) in [
        ("node.kubernetes.io/instance-type", kind),
        ("topology.kubernetes.io/region", "eu-west-1"),
        ("topology.kubernetes.io/zone", "eu-west-1a"),
        ("node.kubernetes.io/lifecycle", lifecycle),
    ] {
        node.labels.insert(key.to_owned(), value.to_owned());
    }
    Arc::new(node)
}

fn value(metrics: &Metrics, series: &str) -> f64 {
    let text = metrics.text().expect("it is text");
    let line = text.lines().find_map(|line| line.strip_prefix(series)).expect("it is there");
    line.trim().parse().expect("it is a number")
}

#[tokio::test]
async fn what_nodes_cost_is_a_number_and_so_is_what_their_retirement_saves() {
    let scene = Scene::new("eu-west-1,m5.large,0.1,0.04\neu-west-1,m5.xlarge,0.2\n");
    let nodes = [
        node("a", "m5.large", "on-demand"),
        node("b", "m5.xlarge", "on-demand"),
        node("c", "m5.large", "spot"),
        node("d", "m5.large", "none"),
    ];
    scene.look(&nodes).await;
    scene.is("cost_dollars_per_hour{class=\"on-demand\"}", 0.3);
    scene.is("cost_dollars_per_hour{class=\"spot\"}", 0.04);
    scene.is(POSSIBLE, 0.06);
    scene.observe(&["a", "b", "a", "c"].map(retired));
    scene.observe(&[ended()]);
    scene.is(SAVED, 0.06);
    assert!(lock(&scene.ledger.book).seen.is_empty(), "nothing of a run is kept for ever");
}

#[tokio::test]
async fn what_is_counted_is_what_is_told_of_runs_also_where_some_nodes_are_dearer_on_spot() {
    let scene = Scene::new("eu-west-1,m5.large,0.1,0.04\neu-west-1,m5.xlarge,0.2,0.22\n");
    let nodes = [node("a", "m5.large", "on-demand"), node("b", "m5.xlarge", "on-demand")];
    for (names, run, all) in [(&["a", "b"][..], 0.04, 0.04), (&["b"], -0.02, 0.04), (&["a"], 0.06, 0.1)] {
        scene.observe(&[started()]);
        scene.look(&nodes).await;
        scene.observe(&names.iter().map(|name| retired(name)).collect::<Vec<_>>());
        let failed = Progress::RunFailed { class: ErrorClass::Timeout, why: "no answer".to_owned() };
        scene.observe(&[if all > 0.05 { failed } else { ended() }]);
        assert!((scene.ledger.saved_by_run() - run).abs() < 1e-9, "{names:?}");
        scene.is(SAVED, all);
    }
}

#[tokio::test]
async fn the_cloud_is_asked_once_an_hour_and_what_it_says_counts_from_then_on() {
    let scene = Scene::new("eu-west-1,m5.large,0.1\n");
    let nodes = [node("a", "m5.large", "on-demand")];
    scene.cloud_says(0.04);
    scene.look(&nodes).await;
    scene.is(POSSIBLE, 0.0);
    scene.observe(&[started(), retired("a"), ended()]);
    scene.is(SAVED, 0.06);
    scene.cloud_says(0.03);
    scene.clock.advance(CURRENT.saturating_sub(JUST));
    scene.look(&nodes).await;
    scene.look(&nodes).await;
    scene.is(POSSIBLE, 0.06);
    scene.clock.advance(JUST);
    scene.look(&nodes).await;
    scene.look(&nodes).await;
    scene.is(POSSIBLE, 0.07);
    let asked = scene.asked.lock().expect("it is whole").clone();
    assert_eq!(asked, vec![BTreeSet::from(["m5.large".to_owned()]); 2]);
}

#[tokio::test]
async fn only_machines_of_ec2_are_asked_for() {
    let scene = Scene::new("");
    let mut foreign = NodeSnapshot::clone(&node("a", "m5.large", "on-demand"));
    for provider_id in ["", "eks-hybrid:///eu-west-1/prod/mi-0123456789abcdef0", "gce://project/zone/name"] {
        foreign.provider_id = provider_id.to_owned();
        scene.look(&[Arc::new(foreign.clone())]).await;
    }
    assert_eq!(scene.times_asked(), 0);
    foreign.labels.insert("node.kubernetes.io/instance-type".to_owned(), "e2-medium".to_owned());
    scene.look(&[Arc::new(foreign), node("b", "m5.large", "on-demand")]).await;
    let asked = scene.asked.lock().expect("it is whole").clone();
    assert_eq!(asked, [BTreeSet::from(["m5.large".to_owned()])]);
}

#[tokio::test]
async fn a_cloud_that_does_not_say_is_asked_again_after_a_minute_and_warned_of_once() {
    let warned = Warned::default();
    let writer = warned.clone();
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(lines.finish());
    let scene = Scene::new("eu-west-1,m5.large,0.1\n");
    let nodes = [node("a", "m5.large", "on-demand")];
    scene.cloud_is_silent();
    for times in 1..4 {
        scene.look(&nodes).await;
        scene.clock.advance(AGAIN.saturating_sub(JUST));
        scene.look(&nodes).await;
        assert_eq!(scene.times_asked(), times);
        scene.clock.advance(JUST);
    }
    assert_eq!(warned.times(), 1);
    scene.cloud_says(0.04);
    scene.look(&nodes).await;
    scene.cloud_is_silent();
    scene.clock.advance(CURRENT);
    scene.look(&nodes).await;
    scene.look(&nodes).await;
    scene.is(POSSIBLE, 0.06);
    assert_eq!((scene.times_asked(), warned.times()), (5, 2));
}

#[tokio::test]
async fn a_table_that_is_renewed_counts_at_once_and_keeps_what_the_cloud_said() {
    let scene = Scene::new("eu-west-1,m5.large,0.1\n");
    let nodes = [node("a", "m5.large", "on-demand")];
    scene.cloud_says(0.04);
    scene.look(&nodes).await;
    scene.ledger.renew(book("eu-west-1,m5.large,0.2\n"));
    scene.look(&nodes).await;
    scene.is("cost_dollars_per_hour{class=\"on-demand\"}", 0.2);
    scene.is(POSSIBLE, 0.16);
    scene.ledger.renew(book("eu-west-1,m5.large,0.2,0.1\n"));
    scene.look(&nodes).await;
    scene.is(POSSIBLE, 0.1);
    assert_eq!(scene.times_asked(), 1);
}
