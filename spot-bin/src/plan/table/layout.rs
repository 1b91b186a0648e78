//! Columns and paragraphs that are no wider than a terminal. Words are never broken.

use std::mem;
use std::ops::Range;

use anstyle::Style;

use crate::output::{STRONG, styled};

/// Between two columns.
const GAP: usize = 2;
/// Where columns begin that have no room beside the others: on lines below them.
const BELOW: usize = 6;
/// Sentences in a narrower column than this are hard to read.
const READABLE: usize = 32;

/// The title of a column, and at which side its words begin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Column {
    Left(&'static str),
    Right(&'static str),
}

/// Rows of words in columns. The last column may have sentences.
pub(super) struct Grid {
    indent: usize,
    columns: Vec<Column>,
    rows: Vec<(Style, Vec<String>)>,
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Left(title) | Self::Right(title) => title,
        }
    }

    fn padded(self, word: &str, width: usize) -> String {
        match self {
            Self::Left(_) => format!("{word:<width$}"),
            Self::Right(_) => format!("{word:>width$}"),
        }
    }
}

impl Grid {
    pub(super) fn new(indent: usize, columns: impl IntoIterator<Item = Column>) -> Self {
        Self { indent, columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row, with a cell for each column; `-` is one without anything.
    pub(super) fn row(&mut self, style: Style, cells: impl IntoIterator<Item = String>) {
        self.rows.push((style, cells.into_iter().collect()));
    }

    /// The titles and the rows. Columns that have no room beside the others stand below them.
    pub(super) fn lines(&self, width: usize) -> Vec<String> {
        let widths = self.widths();
        let bands = self.bands(&widths, width);
        let titles = self.columns.iter().map(|column| column.title().to_owned()).collect();
        let head = (STRONG, titles);
        let mut lines = Vec::new();
        for (style, cells) in [&head].into_iter().chain(&self.rows) {
            for band in &bands {
                let is_empty = cells[band.clone()].iter().all(|cell| cell == "-");
                if band.start == 0 || !is_empty {
                    let band = self.band(band.clone(), cells, &widths, width);
                    lines.extend(band.iter().map(|line| styled(*style, line)));
                }
            }
        }
        lines
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        let of_rows = self.rows.iter().filter_map(move |(_, cells)| cells.get(column)).map(String::as_str);
        of_rows.chain(self.columns.get(column).map(|column| column.title()))
    }

    fn widths(&self) -> Vec<usize> {
        (0..self.columns.len()).map(|column| self.cells(column).map(length).max().unwrap_or_default()).collect()
    }

    /// How much room the sentences of the last column need.
    fn needed(&self, column: usize, width: usize) -> usize {
        let word = self.cells(column).flat_map(str::split_whitespace).map(length).max().unwrap_or_default();
        width.min(word.max(READABLE))
    }

    /// Which columns stand side by side.
    fn bands(&self, widths: &[usize], width: usize) -> Vec<Range<usize>> {
        let mut bands = Vec::new();
        let (mut begun, mut end) = (0, self.indent);
        for (at, own) in widths.iter().copied().enumerate() {
            let needed = if at + 1 == widths.len() { self.needed(at, own) } else { own };
            let gap = if at == begun { 0 } else { GAP };
            if at > begun && end + gap + needed > width {
                bands.push(begun..at);
                (begun, end) = (at, BELOW + own);
            } else {
                end += gap + own;
            }
        }
        bands.push(begun..widths.len());
        bands
    }

    /// What a row has in these columns.
    fn band(&self, band: Range<usize>, cells: &[String], widths: &[usize], width: usize) -> Vec<String> {
        let mut line = " ".repeat(if band.start == 0 { self.indent } else { BELOW });
        let last = self.columns.len().saturating_sub(1);
        for at in band.clone() {
            if at > band.start {
                line.push_str(&" ".repeat(GAP));
            }
            match self.columns[at] {
                Column::Left(_) if at == last => return paragraph(line.clone(), length(&line), &cells[at], width),
                column @ (Column::Left(_) | Column::Right(_)) => line.push_str(&column.padded(&cells[at], widths[at])),
            }
        }
        vec![line.trim_end().to_owned()]
    }
}

/// The words of a text behind what the first line begins with; further lines begin with spaces.
pub(super) fn paragraph(first: String, hanging: usize, text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut is_begun) = (first, false);
    for word in text.split_whitespace() {
        if is_begun && length(&line) + 1 + length(word) > width {
            lines.push(mem::replace(&mut line, " ".repeat(hanging)));
        } else if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    lines.push(line);
    lines
}

fn length(text: &str) -> usize {
    text.chars().count()
}
