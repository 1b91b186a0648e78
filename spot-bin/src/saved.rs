//! A cluster as files hold it that `kubectl get … -o yaml` wrote.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use spot_core::cloud::CloudFacts;
use spot_core::view::{Known, View};
use spot_kube::saved::{self, SAVE, SavedFile};

use crate::config::{CloudProvider, Config};
use crate::exit::Fault;
use crate::provider;

/// What is said where only files are read.
const UNASKED: &str = "EC2 was not asked: classes are those of the labels, and no group's limits are known";

/// A cluster in files.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) view: Arc<View>,
    /// What can be said of its machines without asking anybody.
    pub(crate) cloud: CloudFacts,
    /// What the files leave open.
    pub(crate) notes: Vec<String>,
}

impl Saved {
    /// What these files hold; `-` is standard input.
    pub(crate) fn read(files: &[PathBuf], config: &Config) -> Result<Self, Fault> {
        let files: Vec<_> = files.iter().map(|path| read(path)).collect::<Result<_, _>>().map_err(Fault::usage)?;
        let files: Vec<_> = files.iter().map(|(name, text)| SavedFile { name, text }).collect();
        let saved::Read { view, doubts } = saved::read(&files).map_err(Fault::usage)?;
        let mut notes: Vec<_> = unknown(view.known()).into_iter().chain(doubts).collect();
        if matches!(config.cloud_provider, CloudProvider::Aws(_)) {
            notes.push(UNASKED.to_owned());
        }
        let cloud = provider::unasked(config, view.nodes());
        Ok(Self { view: Arc::new(view), cloud, notes })
    }
}

fn read(path: &Path) -> anyhow::Result<(String, String)> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).context("can't read standard input")?;
        return Ok(("standard input".to_owned(), text));
    }
    let name = path.display().to_string();
    let text =
        std::fs::read_to_string(path).with_context(|| format!("can't read {name}: name a file that exists; {SAVE}"))?;
    Ok((name, text))
}

/// What is said of the kinds that no file holds.
fn unknown(known: Known) -> Option<String> {
    let Known { pods, budgets, daemon_sets, claims, volumes } = known;
    let kinds = [
        (pods, "pods"),
        (budgets, "PodDisruptionBudgets"),
        (daemon_sets, "DaemonSets"),
        (claims, "PersistentVolumeClaims"),
        (volumes, "PersistentVolumes"),
    ];
    let missing: Vec<_> = kinds.into_iter().filter(|(known, _)| !known).map(|(_, kind)| kind).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the files hold no {}: what they would say is unknown, and refuses nothing; {SAVE}",
            missing.join(", no ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_missing_are_said_in_one_line() {
        let known = Known { budgets: false, daemon_sets: false, ..Known::default() };
        let said = unknown(known).expect("two are missing");
        assert!(said.starts_with("the files hold no PodDisruptionBudgets, no DaemonSets: "), "{said}");
        assert_eq!(unknown(Known::default()), None);
    }
}
