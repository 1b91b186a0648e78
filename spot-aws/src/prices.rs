//! What instances cost, on demand and on spot, so that both can be set against each other. A table: nobody is asked.

use std::collections::BTreeMap;

use thiserror::Error;

/// The table that is shipped; its head says of which regions, when and from where it is.
const SHIPPED: &str = include_str!("prices/on_demand.tsv");

/// Prices of Linux instances with shared tenancy, in dollars an hour, by region and instance type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices(BTreeMap<(String, String), Price>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Price {
    on_demand: f64,
    spot: Option<f64>,
}

/// A table that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PricesError {
    /// A line is no entry.
    #[error(
        "line {line} has {found} columns: write region, instance type and dollars an hour, and the price on spot behind \
         them if it is known, separated by commas or tabs, and begin a line with # that is no entry"
    )]
    Columns {
        /// Its number, from 1.
        line: usize,
        /// How many it has.
        found: usize,
    },
    /// A name is none of a region or instance type.
    #[error("line {line}: {name:?} is no {what}: write one as in {example:?}")]
    Name {
        /// Its number, from 1.
        line: usize,
        /// What is there.
        name: String,
        /// What belongs there.
        what: &'static str,
        /// How that looks.
        example: &'static str,
    },
    /// What is to be a price is none.
    #[error("line {line}: {text:?} is no price: write dollars an hour, more than none, as in \"0.096\"")]
    Price {
        /// Its number, from 1.
        line: usize,
        /// What is there.
        text: String,
    },
    /// A price is given twice.
    #[error("line {line} gives a price of {instance_type} in {region} that was given before: leave one of them")]
    Twice {
        /// Its number, from 1.
        line: usize,
        /// The region.
        region: String,
        /// The instance type.
        instance_type: String,
    },
}

impl Prices {
    /// The table that is shipped: on demand only. It grows old, and has few regions.
    #[must_use]
    pub fn shipped() -> Self {
        // That each line of it can be read is for a test to show.
        Self(entries(SHIPPED).flatten().map(|(_, key, price)| (key, price)).collect())
    }

    /// The day of which the shipped table is, as in `2026-07-20`.
    #[must_use]
    pub fn shipped_as_of() -> &'static str {
        let day = SHIPPED.lines().find_map(|line| line.strip_prefix("# As of: "));
        day.map_or("", |day| day.trim_end_matches('.'))
    }

    /// Reads a table: a line for each instance type, `region,instance type,dollars an hour`, with a fourth column where
    /// the price on spot is known, or the same with tabs. Empty lines and lines that begin with `#` are left out.
    ///
    /// # Example
    /// ```
    /// let prices = spot_aws::prices::Prices::parse("# ours\neu-west-1,m5.large,0.107\n")?;
    /// assert_eq!(prices.on_demand("eu-west-1", "m5.large"), Some(0.107));
    /// assert_eq!(prices.on_demand("eu-west-2", "m5.large"), None);
    /// # Ok::<(), spot_aws::prices::PricesError>(())
    /// ```
    ///
    /// # Errors
    /// When a line is no such entry, or gives a price that was given before.
    pub fn parse(text: &str) -> Result<Self, PricesError> {
        let mut prices = BTreeMap::new();
        for entry in entries(text) {
            let (line, key, price) = entry?;
            if prices.contains_key(&key) {
                let (region, instance_type) = key;
                return Err(PricesError::Twice { line, region, instance_type });
            }
            prices.insert(key, price);
        }
        Ok(Self(prices))
    }

    /// Dollars an hour, if the table has it. The price of one region is no guess at that of another.
    #[must_use]
    pub fn on_demand(&self, region: &str, instance_type: &str) -> Option<f64> {
        Some(self.of(region, instance_type)?.on_demand)
    }

    /// Dollars an hour on spot, if the table has it.
    #[must_use]
    pub fn spot(&self, region: &str, instance_type: &str) -> Option<f64> {
        self.of(region, instance_type)?.spot
    }

    /// The same, where `other` has no entry.
    #[must_use]
    pub fn overridden_by(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    fn of(&self, region: &str, instance_type: &str) -> Option<Price> {
        self.0.get(&(region.to_owned(), instance_type.to_owned())).copied()
    }
}

/// An entry: the number of its line, region and instance type, and the price.
type Entry = (usize, (String, String), Price);

fn entries(text: &str) -> impl Iterator<Item = Result<Entry, PricesError>> {
    // Spreadsheets write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(str::trim).zip(1..);
    lines.filter(|(text, _)| !text.is_empty() && !text.starts_with('#')).map(|(text, line)| entry(text, line))
}

fn entry(text: &str, line: usize) -> Result<Entry, PricesError> {
    let columns: Vec<_> = text.split(if text.contains('\t') { '\t' } else { ',' }).map(str::trim).collect();
    let (region, instance_type, on_demand, spot) = match columns[..] {
        [region, instance_type, on_demand] => (region, instance_type, on_demand, None),
        [region, instance_type, on_demand, spot] => (region, instance_type, on_demand, Some(spot)),
        _ => return Err(PricesError::Columns { line, found: columns.len() }),
    };
    let name = |name: &str, what, mark, example| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let sound = name.contains(mark) && name.bytes().all(plain);
        let wrong = || PricesError::Name { line, name: name.to_owned(), what, example };
        if sound { Ok(name.to_owned()) } else { Err(wrong()) }
    };
    let key = (name(region, "region", '-', "eu-west-1")?, name(instance_type, "instance type", '.', "m5.large")?);
    let price = Price { on_demand: dollars(on_demand, line)?, spot: spot.map(|spot| dollars(spot, line)).transpose()? };
    Ok((line, key, price))
}

fn dollars(text: &str, line: usize) -> Result<f64, PricesError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let dollars = text.parse().ok().filter(|dollars: &f64| digits && dollars.is_finite() && *dollars > 0.0);
    dollars.ok_or_else(|| PricesError::Price { line, text: text.to_owned() })
}
