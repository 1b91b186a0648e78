//! What files propose, seen and judged. All of it reads files, and is for where that may take long.

use std::collections::BTreeMap;
use std::path::Path;

use super::change::Change;
use super::named::Named;
use super::sight::Content;
use crate::cli::Environment;
use crate::config::Config;
use crate::cost::PriceBook;
use crate::notify::Listener;
use crate::settings;
use crate::text;

/// What makes a configuration of a file: variables and flags, which win over it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) environment: Environment,
    pub(crate) overrides: BTreeMap<String, String>,
}

/// What a look shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) file: Content,
    /// What is in the files that it names, or those in force where it is none to go by: one that comes late is seen.
    named: Named,
}

/// A configuration that may be put in force, with all that belongs to it.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) config: Config,
    /// What is another than before.
    pub(super) change: Change,
    pub(super) named: Named,
    /// None: as they are.
    pub(super) prices: Option<PriceBook>,
    pub(super) notifications: Notifications,
}

/// Who is told from then on.
#[derive(Debug)]
pub(super) enum Notifications {
    /// The same.
    AsTheyAre,
    /// Another, or nobody.
    To(Option<Box<Listener>>),
}

impl Given {
    fn load(&self, path: &Path, text: &str) -> anyhow::Result<Config> {
        let name = path.display().to_string();
        Ok(Config::load(Some((&name, text)), self.environment.all(), &self.overrides)?)
    }
}

impl Seen {
    pub(super) fn at(path: &Path, given: &Given, current: &Config) -> Self {
        let file = text::read(path);
        let file = file.map_err(|error| format!("can't read the configuration {}: {error:#}", path.display()));
        let proposed = file.as_ref().ok().and_then(|text| given.load(path, text).ok());
        let named = Named::of(proposed.as_ref().unwrap_or(current));
        Self { file, named }
    }
}

impl Proposal {
    /// What this text proposes.
    ///
    /// # Errors
    /// When anything in it, or in a file that it names, can't be gone by.
    pub(super) fn of(
        path: &Path,
        text: &str,
        given: &Given,
        current: &Config,
        in_force: &Named,
    ) -> anyhow::Result<Self> {
        let config = given.load(path, text)?;
        settings::supported(&config)?;
        let mut change = Change::between(current, &config)?;
        let named = Named::of(&config);
        change.add(named.changed_since(in_force));
        let prices = change.touches("prices").then(|| PriceBook::read(config.prices.as_deref())).transpose()?;
        let notifications = if change.touches("notifications") {
            Notifications::To(Listener::of(&config.notifications)?.map(Box::new))
        } else {
            Notifications::AsTheyAre
        };
        Ok(Self { config, change, named, prices, notifications })
    }
}
