//! Where log lines go: standard error, as text for people and as JSON for machines.

use anyhow::Context as _;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::config::{Log, LogFormat, LogLevel};
use crate::output;

/// The lines that are written from now on.
#[derive(Clone, Debug)]
pub struct Lines(reload::Handle<Targets, Registry>);

impl Lines {
    /// Writes those of another level from now on.
    pub fn filter(&self, level: LogLevel) {
        // It fails only when the process does not log any more.
        if let Err(error) = self.0.reload(filter(level)) {
            tracing::warn!(%error, "can't change the level of lines");
        }
    }
}

#[cfg(test)]
impl Lines {
    /// Those of a process that does not log, which end with what comes with them.
    pub(crate) fn unheard() -> (Self, impl Sized + 'static) {
        let (layer, handle) = reload::Layer::<Targets, Registry>::new(filter(LogLevel::Info));
        (Self(handle), layer)
    }

    /// Which are written.
    pub(crate) fn current(&self) -> String {
        self.0.with_current(ToString::to_string).unwrap_or_default()
    }
}

/// Begins to log, for the rest of the process.
///
/// # Errors
/// When the process logs already.
pub fn start(log: Log) -> anyhow::Result<Lines> {
    let watched = output::is_watched();
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(watched);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = if is_text(log.format, watched) {
        lines.with_target(false).boxed()
    } else {
        lines.json().flatten_event(true).boxed()
    };
    let (filter, handle) = reload::Layer::new(filter(log.level));
    tracing_subscriber::registry().with(lines.with_filter(filter)).try_init().context("can't begin to log")?;
    Ok(Lines(handle))
}

fn is_text(format: LogFormat, watched: bool) -> bool {
    match format {
        LogFormat::Auto => watched,
        LogFormat::Text => true,
        LogFormat::Json => false,
    }
}

/// Ours at the level asked for; libraries only when they warn, unless everything is wanted. The SDK of AWS never says more:
/// it traces its requests with the tokens in them, and the answers with the keys.
fn filter(level: LogLevel) -> Targets {
    let ours = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    if level == LogLevel::Trace {
        return Targets::new().with_default(Level::TRACE).with_target("aws_", Level::WARN);
    }
    // The client calls every failed request an error, also those that are tried again; ours say what it means.
    Targets::new()
        .with_default(ours.min(Level::WARN))
        .with_target("spot_", ours)
        .with_target("kube_client", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_speak_only_to_warn_unless_everything_is_wanted() {
        let debug = filter(LogLevel::Debug);
        assert!(debug.would_enable("spot_kube::watch", &Level::DEBUG));
        assert!(debug.would_enable("hyper_util", &Level::WARN));
        assert!(!debug.would_enable("hyper_util", &Level::INFO));
        assert!(!filter(LogLevel::Error).would_enable("hyper_util", &Level::WARN));
        assert!(!debug.would_enable("kube_client::client", &Level::ERROR));
        let trace = filter(LogLevel::Trace);
        assert!(trace.would_enable("kube_client", &Level::TRACE));
        assert!(!trace.would_enable("aws_smithy_runtime::client::orchestrator", &Level::DEBUG), "it holds tokens");
    }

    #[test]
    fn lines_are_text_for_people_and_json_for_machines_unless_chosen() {
        assert!(is_text(LogFormat::Auto, true) && !is_text(LogFormat::Auto, false));
        assert!(is_text(LogFormat::Text, false) && !is_text(LogFormat::Json, true));
    }
}
