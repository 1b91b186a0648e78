//! A file that is changed in every way while the process runs.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::str::FromStr;

use axum::Router;
use jiff::Timestamp;
use spot_core::cloud::Freshness;
use spot_core::ports::{Clock, CloudProvider as _};
use spot_kube::TokioClock;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::config::Notifications;
use crate::cost::PriceBook;
use crate::feature::Feature;
use crate::notify::{self, Listener};
use crate::provider::Provider;
use crate::sample::snapshot;
use crate::telemetry::Lines;

const HEAD: &str = "apiVersion: spot-migrator.io/v1alpha1\nkind: SpotMigratorConfiguration\n\
                    cloudProvider: {name: node-object}\n";

/// A process that goes by the file, and the folder of that.
struct Scene {
    folder: tempfile::TempDir,
    path: PathBuf,
    metrics: Metrics,
    ledger: Ledger,
    lines: Lines,
    audience: Audience,
    _kept: Box<dyn Any>,
    given: Given,
}

fn write(path: &Path, body: &str) {
    fs::write(path, format!("{HEAD}{body}")).expect("it is writable");
}

fn scene() -> Scene {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("spot.yaml");
    write(&path, "");
    let keys = [("cloudProvider.name".to_owned(), "node-object".to_owned())].into();
    let config = Config::load(None, [], &keys).expect("it is right");
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let metrics = Metrics::new().expect("names are distinct");
    let prices = PriceBook::read(None).expect("they are built in");
    let ledger = Ledger::new(Provider::node_object(&config, &clock), prices, clock, metrics.clone());
    let (lines, kept) = Lines::unheard();
    let (_, _, audience) = notify::notifier(None, &metrics, Box::new(|| 0.0));
    Scene { folder, path, metrics, ledger, lines, audience, _kept: Box::new(kept), given: Given::default() }
}

impl Scene {
    /// Does this to the file and looks at it. Returns what was in force in the end.
    async fn meanwhile(&self, script: impl AsyncFnOnce(&mut Looks<'_>)) -> Config {
        let text = fs::read_to_string(&self.path).expect("it is there");
        let config = Config::load(Some(("spot.yaml", &text)), [], &self.given.overrides).expect("it is right");
        let current = watch::Sender::new(Arc::new(config));
        let in_force = current.subscribe();
        let reload = Reload {
            path: Some(&self.path),
            given: Arc::new(self.given.clone()),
            metrics: &self.metrics,
            ledger: &self.ledger,
            lines: &self.lines,
            audience: &self.audience,
            named: Named::of(&in_force.borrow()),
            current,
        };
        script(&mut Looks { reload: &reload, past: reload.past() }).await;
        let config = in_force.borrow();
        Config::clone(&config)
    }

    /// Changes applied and refused, and whether the last one was applied.
    fn counts(&self) -> (u64, u64, bool) {
        let of = |result: &str| self.value(&format!("spot_migrator_config_reloads_total{{result=\"{result}\"}}"));
        (of("applied"), of("refused"), self.value::<u64>("spot_migrator_config_last_reload_successful") == 1)
    }

    fn value<N: FromStr<Err: Debug>>(&self, series: &str) -> N {
        let text = self.metrics.text().expect("it is text");
        let line = text.lines().find_map(|line| line.strip_prefix(series)).expect("it is there");
        line.trim().parse().expect("it is a number")
    }

    /// What an hour of one node costs by the prices that are in force.
    async fn costs(&self) -> f64 {
        let mut node = snapshot("node-1");
        let labels = [
            ("node.kubernetes.io/instance-type", "m5.large"),
            ("topology.kubernetes.io/region", "eu-west-1"),
            ("node.kubernetes.io/lifecycle", "on-demand"),
        ];
        node.labels.extend(labels.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let by = TokioClock::new().instant() + Duration::from_secs(10);
        let surveyed = self.ledger.survey(&[Arc::new(node)], &[], Freshness::Now, by).await;
        let _facts = surveyed.expect("labels tell");
        self.value("spot_migrator_cost_dollars_per_hour{class=\"on-demand\"}")
    }
}

/// What looks at the file.
struct Looks<'a> {
    reload: &'a Reload<'a>,
    past: Past,
}

impl Looks<'_> {
    /// By itself.
    async fn look(&mut self) {
        self.reload.look(&mut self.past, false).await;
    }

    /// Long enough.
    async fn twice(&mut self) {
        self.look().await;
        self.look().await;
    }

    /// At a signal.
    async fn told(&mut self) {
        self.reload.look(&mut self.past, true).await;
    }
}

#[tokio::test]
async fn a_change_comes_into_force_by_itself_and_a_wrong_one_never_does() {
    let scene = scene();
    let config = scene
        .meanwhile(async |looks| {
            looks.twice().await;
            assert_eq!(scene.counts(), (0, 0, true), "nothing changed");
            write(&scene.path, "schedule: 0 3 * * *\nlog: {level: debug}\n");
            looks.twice().await;
            assert_eq!(looks.reload.current.borrow().schedule.to_string(), "0 3 * * *");
            assert_eq!(scene.counts(), (1, 0, true));
            assert!(scene.lines.current().contains("spot_=debug"), "{}", scene.lines.current());
            write(&scene.path, "shedule: 0 4 * * *\n");
            looks.twice().await;
            assert_eq!(scene.counts(), (1, 1, false));
            looks.twice().await;
            assert_eq!(scene.counts(), (1, 1, false), "it is said once");
        })
        .await;
    assert_eq!(config.schedule.to_string(), "0 3 * * *");
}

#[tokio::test]
async fn what_may_not_change_is_refused_with_all_that_came_with_it_until_it_is_taken_back() {
    let scene = scene();
    let config = scene
        .meanwhile(async |looks| {
            write(&scene.path, "schedule: 0 3 * * *\nserver: {address: \"127.0.0.1:1\"}\n");
            looks.twice().await;
            assert_eq!(scene.counts(), (0, 1, false));
            write(&scene.path, "");
            looks.twice().await;
            assert_eq!(scene.counts(), (0, 1, true), "what is in force is what the file says");
        })
        .await;
    assert_eq!(config.schedule.to_string(), "@hourly");
}

#[tokio::test]
async fn prices_that_cannot_be_read_refuse_the_whole_change_until_they_can() {
    let scene = scene();
    let prices = scene.folder.path().join("prices");
    let body = format!("schedule: 0 3 * * *\nprices: {}\n", prices.display());
    let config = scene
        .meanwhile(async |looks| {
            write(&scene.path, &body);
            looks.twice().await;
            assert_eq!((scene.counts(), looks.reload.current.borrow().prices.clone()), ((0, 1, false), None));
            looks.twice().await;
            assert_eq!(scene.counts(), (0, 1, false), "it is said once");
            fs::write(&prices, "eu-west-1,m5.large,0.1\n").expect("it is writable");
            looks.twice().await;
        })
        .await;
    assert_eq!((scene.counts(), config.prices), ((1, 1, true), Some(prices.clone())));
}

#[tokio::test]
async fn a_webhook_whose_address_comes_late_is_told_from_then_on() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let scene = scene();
    let url = scene.folder.path().join("url");
    let config = scene
        .meanwhile(async |looks| {
            write(&scene.path, &format!("notifications: {{webhookUrlFile: {}}}\n", url.display()));
            looks.twice().await;
            assert_eq!(scene.counts(), (0, 1, false));
            fs::write(&url, "https://hooks.example.org/s3cret").expect("it is writable");
            looks.twice().await;
            assert!(!format!("{:?}", looks.past.sight).contains("s3cret"), "it is not kept");
        })
        .await;
    assert_eq!((scene.counts(), config.notifications.webhook_url_file), ((1, 1, true), Some(url)));
}

/// A pipe into which nobody writes is a file that hangs.
#[tokio::test]
async fn a_file_that_hangs_holds_up_nothing_else() {
    let scene = scene();
    let config = scene
        .meanwhile(async |looks| {
            fs::remove_file(&scene.path).expect("it is there");
            let made = std::process::Command::new("mkfifo").arg(&scene.path).status().expect("it is on every system");
            assert!(made.success());
            let (tell, told) = std::sync::mpsc::channel();
            let pipe = scene.path.clone();
            let writer = std::thread::spawn(move || {
                // If everything is held up, it is let go in the end.
                let is_free = told.recv_timeout(Duration::from_secs(20)).is_ok();
                write(&pipe, "schedule: 0 3 * * *\n");
                is_free
            });
            let meanwhile = async { tell.send(()).expect("somebody waits for it") };
            tokio::join!(looks.told(), meanwhile);
            assert!(writer.join().expect("it ends"), "nothing else went on");
        })
        .await;
    assert_eq!((config.schedule.to_string().as_str(), scene.counts()), ("0 3 * * *", (1, 0, true)));
}

#[tokio::test]
async fn a_webhook_without_an_address_refuses_the_whole_change_and_says_nothing_of_it() {
    let scene = scene();
    let url = scene.folder.path().join("url");
    fs::write(&url, "http://hooks.example.org/s3cret").expect("it is writable");
    let body = format!("schedule: 0 3 * * *\nnotifications: {{webhookUrlFile: {}}}\n", url.display());
    let config = scene
        .meanwhile(async |looks| {
            write(&scene.path, &body);
            looks.twice().await;
            let text = format!("{HEAD}{body}");
            let refused = looks.reload.judge(&scene.path, &text, &looks.past.named).await.expect_err("it is refused");
            assert!(!format!("{refused:#}").contains("hooks"), "{refused:#}");
        })
        .await;
    assert_eq!((config.schedule.to_string().as_str(), scene.counts()), ("@hourly", (0, 1, false)));
}

#[tokio::test]
async fn a_signal_has_it_read_at_once() {
    let scene = scene();
    let config = scene
        .meanwhile(async |looks| {
            write(&scene.path, "schedule: 0 3 * * *\n");
            looks.told().await;
            assert_eq!(looks.reload.current.borrow().schedule.to_string(), "0 3 * * *");
            // Twice the same is once.
            looks.told().await;
            looks.twice().await;
        })
        .await;
    assert_eq!((config.schedule.to_string().as_str(), scene.counts()), ("0 3 * * *", (1, 0, true)));
}

/// As the kubelet does it: the file is a link to one in a folder that is a link that is swapped.
#[tokio::test]
async fn a_config_map_whose_link_is_swapped_twice_ends_at_the_last_one() {
    let mut scene = scene();
    let folder = scene.folder.path().to_owned();
    for (name, body) in [("a", ""), ("b", "schedule: 0 3 * * *\n"), ("c", "schedule: 0 4 * * *\n")] {
        fs::create_dir(folder.join(name)).expect("it is new");
        write(&folder.join(name).join("config.yaml"), body);
    }
    let swap = |to: &str| {
        symlink(to, folder.join("..new")).expect("it is new");
        fs::rename(folder.join("..new"), folder.join("..data")).expect("it is there");
    };
    swap("a");
    scene.path = folder.join("config.yaml");
    symlink("..data/config.yaml", &scene.path).expect("it is new");
    let config = scene
        .meanwhile(async |looks| {
            swap("b");
            looks.look().await;
            swap("c");
            fs::remove_dir_all(folder.join("b")).expect("it is there");
            looks.twice().await;
        })
        .await;
    assert_eq!((config.schedule.to_string().as_str(), scene.counts()), ("0 4 * * *", (1, 0, true)));
}

#[tokio::test]
async fn a_file_that_is_gone_or_a_folder_or_no_text_changes_nothing() {
    let scene = scene();
    let config = scene
        .meanwhile(async |looks| {
            fs::remove_file(&scene.path).expect("it is there");
            looks.twice().await;
            assert_eq!(scene.counts(), (0, 1, false));
            fs::create_dir(&scene.path).expect("it is new");
            looks.twice().await;
            assert_eq!(scene.counts(), (0, 2, false));
            looks.told().await;
            assert_eq!(scene.counts(), (0, 3, false), "who asks is answered");
            fs::remove_dir(&scene.path).expect("it is there");
            fs::write(&scene.path, [0xff, 0xfe]).expect("it is writable");
            looks.twice().await;
            assert_eq!(scene.counts(), (0, 4, false));
            write(&scene.path, "");
            looks.twice().await;
        })
        .await;
    assert_eq!((config.schedule.to_string().as_str(), scene.counts()), ("@hourly", (0, 4, true)));
}

#[tokio::test]
async fn variables_and_flags_go_on_to_win_over_the_file() {
    let mut scene = scene();
    scene.given.overrides = [("schedule".to_owned(), "0 5 * * *".to_owned())].into();
    let config = scene
        .meanwhile(async |looks| {
            write(&scene.path, "schedule: 0 3 * * *\ndrain: {timeout: 7m}\n");
            looks.twice().await;
        })
        .await;
    assert_eq!((config.schedule.to_string().as_str(), config.drain.timeout), ("0 5 * * *", Duration::from_mins(7)));
}

/// Listens as a webhook, and hands out what it is told.
async fn webhook() -> (String, mpsc::UnboundedReceiver<String>) {
    // Another test may have been first.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (tell, told) = mpsc::unbounded_channel();
    let router = Router::new().fallback(async move |body: String| tell.send(body).expect("the test goes on"));
    drop(tokio::spawn(async move { axum::serve(listener, router).await }));
    (format!("http://{address}/"), told)
}

#[tokio::test]
async fn a_file_that_is_named_is_read_again_when_it_changes_and_one_that_became_bad_changes_nothing() {
    let mut scene = scene();
    let (address, mut told) = webhook().await;
    let folder = scene.folder.path().to_owned();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("it is writable");
        path
    };
    let listening = Notifications {
        webhook_url_file: Some(file("url", &address)),
        template_file: Some(file("template", r#"{"one": {{ text }}}"#)),
    };
    let prices = file("prices", "eu-west-1,m5.large,0.1\n");
    let body = |schedule: &str| {
        let [url, template] = ["url", "template"].map(|name| folder.join(name).display().to_string());
        let notifications = format!("notifications: {{webhookUrlFile: {url}, templateFile: {template}}}");
        format!("schedule: {schedule}\nprices: {}\n{notifications}\n", prices.display())
    };
    write(&scene.path, &body("0 3 * * *"));
    let listener = Listener::of(&listening).unwrap_or_else(|error| panic!("{error:#}"));
    let (notifier, worker, audience) = notify::notifier(listener, &scene.metrics, Box::new(|| 0.0));
    scene.audience = audience;
    drop(tokio::spawn(worker.run()));
    let mut tells = async || {
        notifier.without(Timestamp::UNIX_EPOCH, Feature::Migration, "no right".to_owned());
        let body: BTreeMap<String, String> =
            serde_json::from_str(&told.recv().await.expect("it is told")).expect("it is JSON");
        body.into_keys().collect::<String>()
    };
    let config = scene
        .meanwhile(async |looks| {
            looks.twice().await;
            assert_eq!((scene.counts(), tells().await.as_str()), ((0, 0, true), "one"), "nothing changed");

            file("template", r#"{"two": {{ text }}}"#);
            looks.twice().await;
            assert_eq!((scene.counts(), tells().await.as_str()), ((1, 0, true), "two"));
            file("prices", "eu-west-1,m5.large,0.2\n");
            looks.twice().await;
            looks.twice().await;
            assert_eq!(scene.counts(), (2, 0, true), "it is taken once");
            assert!((scene.costs().await - 0.2).abs() < f64::EPSILON);

            file("template", r#"{"three": {{ text }"#);
            looks.twice().await;
            assert_eq!((scene.counts(), tells().await.as_str()), ((2, 1, false), "two"), "the old one stays");
            write(&scene.path, &body("0 4 * * *"));
            looks.twice().await;
            assert_eq!(scene.counts(), (2, 2, false), "nor is anything else taken with it");
            file("template", r#"{"two": {{ text }}}"#);
            looks.twice().await;
            assert_eq!(scene.counts(), (3, 2, true));
            fs::remove_file(folder.join("template")).expect("it is there");
            looks.twice().await;
            assert_eq!((scene.counts(), tells().await.as_str()), ((3, 3, false), "two"));
        })
        .await;
    assert_eq!(config.schedule.to_string(), "0 4 * * *");
}
