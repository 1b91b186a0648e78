//! The files that a configuration names, which are read again as it is itself.

use std::collections::BTreeMap;
use std::path::Path;

use super::sight::Content;
use crate::config::Config;
use crate::text;

/// What is in them, by the key that names each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named(BTreeMap<&'static str, Content>);

impl Named {
    /// That of a configuration's.
    pub(crate) fn of(config: &Config) -> Self {
        let notifications = &config.notifications;
        let mut named = Self(BTreeMap::new());
        named.read("notifications.templateFile", notifications.template_file.as_deref());
        named.read("notifications.webhookUrlFile", notifications.webhook_url_file.as_deref());
        named.read("prices", config.prices.as_deref());
        // A secret, which is read before each message: here it only matters whether it is there.
        named.0.entry("notifications.webhookUrlFile").and_modify(|content| {
            if let Ok(secret) = content {
                secret.clear();
            }
        });
        named
    }

    fn read(&mut self, key: &'static str, path: Option<&Path>) {
        if let Some(path) = path {
            self.0.insert(key, text::read(path).map_err(|error| format!("{error:#}")));
        }
    }

    /// The keys of those that were another before.
    pub(super) fn changed_since(&self, before: &Self) -> Vec<String> {
        let changed =
            self.0.iter().filter(|(key, content)| before.0.get(*key).is_some_and(|before| before != *content));
        changed.map(|(key, _)| (*key).to_owned()).collect()
    }
}
