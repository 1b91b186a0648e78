//! What is wrong with a configuration, where, and what to write instead.

use std::fmt;

use spot_core::error::plain;

/// Everything that is wrong with a configuration, or with another file that is read as strictly.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    what: &'static str,
    file: String,
    problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was written.
    pub place: Place,
    /// The full path of the key that it is about, such as `drain.timeout`; empty where it is about the whole.
    pub key: String,
    /// The reason, a colon, and the remedy.
    pub message: String,
}

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// A position in the file, counted from 1.
    File {
        /// The line.
        line: u64,
        /// The column.
        column: u64,
    },
    /// An environment variable.
    Variable(String),
    /// A flag on the command line, with its dashes.
    Flag(String),
    /// Nobody wrote it: the default stands.
    #[default]
    Default,
}

impl ConfigError {
    pub(crate) fn new(what: &'static str, file: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| match problem.place {
            Place::File { line, column } => (0, line, column),
            Place::Variable(_) => (1, 0, 0),
            Place::Flag(_) => (2, 0, 0),
            Place::Default => (3, 0, 0),
        });
        for problem in &mut problems {
            problem.message = plain(&problem.message).into_owned();
        }
        Self { what, file: file.to_owned(), problems }
    }

    /// Every problem found, those of the file first, in its order, then variables, flags, defaults.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = &self.problems[..] {
            write!(f, "the {} is refused: ", self.what)?;
            return problem.write(&self.file, f);
        }
        write!(f, "the {} is refused for {} reasons", self.what, self.problems.len())?;
        for problem in &self.problems {
            f.write_str("\n  ")?;
            problem.write(&self.file, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl Problem {
    fn write(&self, file: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { line, column } => write!(f, "{file}:{line}:{column}: ")?,
            Place::Variable(name) => write!(f, "variable {name}: ")?,
            Place::Flag(name) => write!(f, "flag {name}: ")?,
            Place::Default => {}
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// The one of `known` that `word` was probably meant to be: a slip of a letter or two, or of case and hyphens.
pub(crate) fn meant<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |word: &str| word.replace(['-', '_', '.'], "").to_lowercase();
    let word = plain(word);
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("shedule", Some("schedule"))]
    #[case("scheduel", Some("schedule"))]
    #[case("time-zone", Some("timeZone"))]
    #[case("TIMEZONE", Some("timeZone"))]
    #[case("cron", None)]
    #[case("x", None)]
    fn a_slip_finds_the_word_that_was_meant(#[case] word: &str, #[case] expected: Option<&str>) {
        assert_eq!(meant(word, ["windows", "schedule", "timeZone"]), expected);
    }
}
