//! How changes of the configuration file went, as numbers.

use prometheus::{IntCounterVec, IntGauge, Result};

use super::maker::Maker;

/// What became of a change of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// It is in force.
    Applied,
    /// What was in force before still is.
    Refused,
}

impl Reloaded {
    /// Everything that may become of one.
    pub const ALL: [Self; 2] = [Self::Applied, Self::Refused];

    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
        }
    }
}

/// The numbers.
#[derive(Clone, Debug)]
pub(super) struct Reloads {
    by_result: IntCounterVec,
    last: IntGauge,
}

impl Reloads {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self> {
        let last = make.kept(IntGauge::new(
            "spot_migrator_config_last_reload_successful",
            "1 when what is in force is what the configuration file says, 0 when that was refused.",
        )?)?;
        last.set(1);
        Ok(Self {
            by_result: make.counters(
                "spot_migrator_config_reloads_total",
                "Changes of the configuration file, by what became of them.",
                "result",
                Reloaded::ALL.map(Reloaded::as_str),
            )?,
            last,
        })
    }

    pub(super) fn reloaded(&self, result: Reloaded) {
        self.by_result.with_label_values(&[result.as_str()]).inc();
        self.last.set(i64::from(result == Reloaded::Applied));
    }

    pub(super) fn goes_by_its_file(&self) {
        self.last.set(1);
    }
}
