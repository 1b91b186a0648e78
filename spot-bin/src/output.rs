//! The one place that prints: results on standard output, notes and failures on standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use anyhow::Context as _;

/// How what is good is written, for those who see colours.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// How what somebody ought to look at is written.
pub(crate) const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
/// How what matters little is written.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// How what matters most is written.
pub(crate) const STRONG: Style = Style::new().bold();

/// Prints a result. Whoever reads it may stop reading: that is no failure. Its colours are left out where nobody sees
/// them (no terminal, `TERM=dumb`), or nobody wants them (`NO_COLOR`).
///
/// # Errors
/// When it could not be written.
pub fn result(text: &str) -> anyhow::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("can't write to standard output"),
    }
}

/// Says something beside the result.
pub fn note(text: impl Display) {
    say(&format!("note: {text}\n"));
}

/// Asks something, on the line on which the answer is given.
pub fn ask(question: &str) {
    say(question);
}

/// Says how far the work is.
pub fn line(text: &str) {
    say(&format!("{text}\n"));
}

/// Says why the process fails: the error and its causes, once, on one line.
pub fn failure(error: &anyhow::Error) {
    say(&format!("error: {}\n", chain(error)));
}

/// Whether standard error is a terminal: somebody watches.
#[must_use]
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// How many characters a line of standard output may have: what the variable `COLUMNS` says, also where that is no
/// terminal, or the terminal's width; no terminal has none.
#[must_use]
pub fn width(columns: Option<&str>) -> Option<usize> {
    let said = columns.and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
    said.or_else(|| terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into()))
}

/// The text, written like this for those who see colours.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

fn say(text: &str) {
    // There is nowhere left to say that standard error is gone.
    let _unheard = io::stderr().lock().write_all(text.as_bytes());
}

/// The error with its causes. A library's error may repeat its cause in its own words; it is said once.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_failure_names_every_cause_once() {
        let error = anyhow!("connection refused").context("request failed: connection refused").context("can't list");
        assert_eq!(chain(&error), "can't list: request failed: connection refused");
    }
}
