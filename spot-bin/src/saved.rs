//! A cluster as files hold it that `kubectl get … -o yaml` wrote.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use spot_core::cloud::CloudFacts;
use spot_core::view::{Known, View};
use spot_kube::saved::{self, SAVE, SavedFile};

use crate::config::{CloudProvider, Config};
use crate::exit::Fault;
use crate::provider;
use crate::text;

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
    let (name, bytes) = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("can't read standard input")?;
        ("standard input".to_owned(), bytes)
    } else {
        let name = path.display().to_string();
        if path.is_dir() {
            return Err(anyhow!("can't read {name}: it is a folder: name the files in it"));
        }
        let bytes = std::fs::read(path);
        let bytes = bytes.with_context(|| format!("can't read {name}: name a file that exists; {SAVE}"))?;
        (name, bytes)
    };
    let text = text::utf8(bytes).with_context(|| format!("can't read {name}"))?;
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
    fn what_is_no_text_is_told_from_what_is_not_there() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("it is writable");
            path
        };
        let refusal = |path: &Path| format!("{:#}", read(path).expect_err("it is refused"));
        assert!(refusal(folder.path()).ends_with("it is a folder: name the files in it"));
        assert!(refusal(&folder.path().join("gone")).contains("name a file that exists"));
        assert!(refusal(&file("wide", b"\xff\xfek\0i\0n\0d\0\xd8\xd8")).contains("Out-File -Encoding utf8"));
        assert!(refusal(&file("odd", b"kind: Node\nname: \xe9\n")).contains("line 2 is not UTF-8"));
        assert_eq!(read(&file("text", b"kind: Node")).expect("it is text").1, "kind: Node");
    }

    #[test]
    fn kinds_that_are_missing_are_said_in_one_line() {
        let known = Known { budgets: false, daemon_sets: false, ..Known::default() };
        let said = unknown(known).expect("two are missing");
        assert!(said.starts_with("the files hold no PodDisruptionBudgets, no DaemonSets: "), "{said}");
        assert_eq!(unknown(Known::default()), None);
    }
}
