//! What instances cost on demand, so that what spot costs can be set against it. A table: nobody is asked.

use std::collections::BTreeMap;

use thiserror::Error;

/// The table that is shipped; its head says of which regions, when and from where it is.
const SHIPPED: &str = include_str!("prices/on_demand.tsv");

/// On-demand prices of Linux instances with shared tenancy, in dollars an hour, by region and instance type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices(BTreeMap<(String, String), f64>);

/// A table that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PricesError {
    /// A line is no triple.
    #[error(
        "line {line} has {found} columns: write region, instance type and dollars an hour, separated by commas or \
         tabs, and begin a line with # that is no entry"
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
    /// The table that is shipped. It grows old, and has few regions.
    #[must_use]
    pub fn shipped() -> Self {
        // That each line of it can be read is for a test to show.
        Self(entries(SHIPPED).flatten().map(|(_, key, price)| (key, price)).collect())
    }

    /// Reads a table: a line for each price, `region,instance type,dollars an hour`, or the same with tabs. Empty lines
    /// and lines that begin with `#` are left out.
    ///
    /// # Example
    /// ```
    /// let prices = spot_aws::fleet::Prices::parse("# ours\neu-west-1,m5.large,0.107\n")?;
    /// assert_eq!(prices.on_demand("eu-west-1", "m5.large"), Some(0.107));
    /// assert_eq!(prices.on_demand("eu-west-2", "m5.large"), None);
    /// # Ok::<(), spot_aws::fleet::PricesError>(())
    /// ```
    ///
    /// # Errors
    /// When a line is no such triple, or gives a price that was given before.
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
        self.0.get(&(region.to_owned(), instance_type.to_owned())).copied()
    }
}

/// An entry: the number of its line, region and instance type, and the price.
type Entry = (usize, (String, String), f64);

fn entries(text: &str) -> impl Iterator<Item = Result<Entry, PricesError>> {
    // Spreadsheets write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(str::trim).zip(1..);
    lines.filter(|(text, _)| !text.is_empty() && !text.starts_with('#')).map(|(text, line)| entry(text, line))
}

fn entry(text: &str, line: usize) -> Result<Entry, PricesError> {
    let columns: Vec<_> = text.split(if text.contains('\t') { '\t' } else { ',' }).map(str::trim).collect();
    let [region, instance_type, price] = columns[..] else {
        return Err(PricesError::Columns { line, found: columns.len() });
    };
    let name = |name: &str, what, mark, example| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let sound = name.contains(mark) && name.bytes().all(plain);
        let wrong = || PricesError::Name { line, name: name.to_owned(), what, example };
        if sound { Ok(name.to_owned()) } else { Err(wrong()) }
    };
    let key = (name(region, "region", '-', "eu-west-1")?, name(instance_type, "instance type", '.', "m5.large")?);
    let digits = price.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let dollars = price.parse().ok().filter(|dollars: &f64| digits && dollars.is_finite() && *dollars > 0.0);
    let dollars = dollars.ok_or_else(|| PricesError::Price { line, text: price.to_owned() })?;
    Ok((line, key, dollars))
}
