//! A Prometheus that scrapes the product and evaluates the alerts that are shipped.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    control_plane::free_port,
    migrator::{Running, get},
    process::Process,
    programs::{self, repository},
    wait::{PATIENCE, until},
};

/// The alerts, as they are shipped.
const ALERTS: &str = "deploy/monitoring/alerts.yaml";

/// A running Prometheus. Dropping it ends it.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    address: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Starts one that scrapes this process and evaluates the shipped alerts, both each second. An alert fires at once
    /// that would wait for a while otherwise, so that a test need not: nothing else of them is changed.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(scraped: &Running) -> Self {
        let folder = tempfile::tempdir().expect("temporary folders can be made");
        let text = std::fs::read_to_string(repository().join(ALERTS)).expect("the alerts are there");
        let mut rules: Value = serde_saphyr::from_str(&text).expect("they are YAML");
        for group in rules["groups"].as_array_mut().expect("there are groups") {
            for rule in group["rules"].as_array_mut().expect("a group has rules") {
                rule["for"] = json!("0s");
            }
        }
        let configuration = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.json"],
            "scrape_configs": [{
                "job_name": "spot-migrator",
                "static_configs": [{"targets": [scraped.address()]}],
            }],
        });
        let path = |name: &str| folder.path().join(name);
        // JSON is YAML.
        std::fs::write(path("alerts.json"), rules.to_string()).expect("the folder is writable");
        std::fs::write(path("prometheus.yml"), configuration.to_string()).expect("the folder is writable");
        let address = format!("127.0.0.1:{}", free_port());
        // It does not end with its standard input, as the programs of the world do.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(programs::path("prometheus"))
            .arg(format!("--config.file={}", path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address={address}"));
        let process = Process::start("prometheus", &mut command, folder.path());
        let prometheus = Self { process, address, _folder: folder };
        // It listens before it can answer.
        let ready = || async {
            let answer = get(&prometheus.address, "/-/ready").map_err(|error| error.to_string())?;
            if answer.contains("is Ready") { Ok(()) } else { Err(answer) }
        };
        until("Prometheus to be ready", PATIENCE, ready).await;
        prometheus
    }

    /// The names of the alerts that fire.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn firing(&self) -> BTreeSet<String> {
        let answer = get(&self.address, "/api/v1/alerts").expect("it answers");
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
        let alerts = answer["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.filter_map(|alert| alert["labels"]["alertname"].as_str().map(str::to_owned)).collect()
    }

    /// Waits until this alert fires, or does not fire any more.
    ///
    /// # Panics
    /// If it does not come to that.
    pub async fn fires(&self, alert: &str, fires: bool, patience: Duration) {
        let what = format!("{alert} {}", if fires { "to fire" } else { "to be over" });
        until(&what, patience, || async {
            let firing = self.firing();
            if firing.contains(alert) == fires {
                Ok(())
            } else {
                Err(format!("{firing:?} fire; {}", self.process.output().lines().last().unwrap_or_default()))
            }
        })
        .await;
    }
}

/// Runs promtool to its end in the folder of the alerts, and returns what it printed.
///
/// # Errors
/// When it finds something, with what it printed.
///
/// # Panics
/// If it does not start.
pub fn promtool(arguments: &[&str]) -> Result<String, String> {
    let folder = repository().join(ALERTS);
    let folder = folder.parent().expect("it is in a folder");
    let output = Command::new(programs::path("promtool"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("promtool starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(said) } else { Err(said) }
}
