//! What is printed in the end.

use std::fmt;

/// Counts, and what was promised and not kept.
#[derive(Debug, Default)]
pub(crate) struct Report {
    counts: Vec<(&'static str, usize)>,
    pub(crate) violations: Vec<String>,
}

impl Report {
    pub(crate) fn count(&mut self, what: &'static str, times: usize) {
        self.counts.push((what, times));
    }

    pub(crate) fn violation(&mut self, what: impl fmt::Display) {
        self.violations.push(what.to_string());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, times) in &self.counts {
            writeln!(formatter, "{times:8} {what}")?;
        }
        for violation in &self.violations {
            writeln!(formatter, "VIOLATION {violation}")?;
        }
        write!(formatter, "{} violations", self.violations.len())
    }
}
