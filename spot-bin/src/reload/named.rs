//! The files that a configuration names, which are read again as it is itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::sight::Content;
use crate::config::Config;
use crate::text;

/// What is in them, by the key that names each. The webhook's address is none of them: it is a secret, and is read
/// before each message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named(BTreeMap<&'static str, Content>);

impl Named {
    /// That of a configuration's.
    pub(crate) fn of(config: &Config) -> Self {
        Self::read(&Self::files(config))
    }

    /// Which they are, by their keys.
    pub(super) fn files(config: &Config) -> BTreeMap<&'static str, PathBuf> {
        let files = [("notifications.templateFile", &config.notifications.template_file), ("prices", &config.prices)];
        files.into_iter().filter_map(|(key, path)| Some((key, path.clone()?))).collect()
    }

    pub(super) fn read(files: &BTreeMap<&'static str, PathBuf>) -> Self {
        let read = |path: &Path| text::read(path).map_err(|error| format!("{error:#}"));
        Self(files.iter().map(|(key, path)| (*key, read(path))).collect())
    }

    /// The keys of those that were another before.
    pub(super) fn changed_since(&self, before: &Self) -> Vec<String> {
        let changed =
            self.0.iter().filter(|(key, content)| before.0.get(*key).is_some_and(|before| before != *content));
        changed.map(|(key, _)| (*key).to_owned()).collect()
    }
}
