//! What instances cost, on demand and on spot, so that both can be set against each other. A table: nobody is asked.

use std::collections::BTreeMap;

use thiserror::Error;

/// The table that is shipped; its head says of which regions, when and from where it is.
const SHIPPED: &str = include_str!("prices/on_demand.tsv");
/// The most dollars that an hour may cost. The dearest machine that is shipped costs 361.
const MOST: f64 = 10_000.0;
/// How many times the price on demand that on spot may be: EC2 takes no bid above that.
const MOST_ON_SPOT: f64 = 10.0;

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
    /// A zone is given for a region.
    #[error("line {line}: {zone:?} is a zone: write its region, {region:?}, of which a price is")]
    Zone {
        /// Its number, from 1.
        line: usize,
        /// What is there.
        zone: String,
        /// The region that it is in.
        region: String,
    },
    /// What is to be a price is none.
    #[error(
        "line {line}: {text:?} is no price: write dollars an hour, more than none and no more than {MOST}, with a point \
         and no comma, as in \"0.096\""
    )]
    Price {
        /// Its number, from 1.
        line: usize,
        /// What is there.
        text: String,
    },
    /// The price on spot is far above that on demand.
    #[error(
        "line {line}: {spot} dollars on spot are more than {MOST_ON_SPOT} times the {on_demand} on demand: write that on \
         demand first, both with a point and no comma, as in \"0.096,0.035\""
    )]
    Spot {
        /// Its number, from 1.
        line: usize,
        /// The price on demand, as it is there.
        on_demand: String,
        /// The price on spot, as it is there.
        spot: String,
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
    /// the price on spot is known, or the same with tabs. Empty lines, also those of a spreadsheet, and lines that begin
    /// with `#` are left out.
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
    let is_entry = |text: &str| !text.starts_with('#') && text.contains(|letter| letter != ',');
    lines.filter(move |(text, _)| is_entry(text)).map(|(text, line)| entry(text, line))
}

fn entry(text: &str, line: usize) -> Result<Entry, PricesError> {
    let columns: Vec<_> = text.split(if text.contains('\t') { '\t' } else { ',' }).map(str::trim).collect();
    let (region, instance_type, on_demand, spot) = match columns[..] {
        // Where some rows have a fourth column, spreadsheets write it in all.
        [region, instance_type, on_demand] | [region, instance_type, on_demand, ""] => {
            (region, instance_type, on_demand, None)
        }
        [region, instance_type, on_demand, spot] => (region, instance_type, on_demand, Some(spot)),
        _ => return Err(PricesError::Columns { line, found: columns.len() }),
    };
    let no = |what, name: &str, example| PricesError::Name { line, name: name.to_owned(), what, example };
    if !is_region(region) {
        let of_zone = region.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
        if is_region(of_zone) {
            return Err(PricesError::Zone { line, zone: region.to_owned(), region: of_zone.to_owned() });
        }
        return Err(no("region", region, "eu-west-1"));
    }
    if !is_instance_type(instance_type) {
        return Err(no("instance type", instance_type, "m5.large"));
    }
    let price = Price { on_demand: dollars(on_demand, line)?, spot: spot.map(|spot| dollars(spot, line)).transpose()? };
    if let Some(spot) = spot
        && price.spot > Some(price.on_demand * MOST_ON_SPOT)
    {
        return Err(PricesError::Spot { line, on_demand: on_demand.to_owned(), spot: spot.to_owned() });
    }
    Ok((line, (region.to_owned(), instance_type.to_owned()), price))
}

/// As in `eu-west-1`: zones, local ones too, have letters behind the number.
fn is_region(name: &str) -> bool {
    let place = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let is_word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
    place != name && place.strip_suffix('-').is_some_and(|place| place.split('-').all(is_word))
}

/// As in `m5.large`.
fn is_instance_type(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_plain);
    name.split_once('.').is_some_and(|(family, size)| is_part(family) && is_part(size))
}

fn dollars(text: &str, line: usize) -> Result<f64, PricesError> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let dollars = text.parse().ok().filter(|dollars: &f64| digits && *dollars > 0.0 && *dollars <= MOST);
    dollars.ok_or_else(|| PricesError::Price { line, text: text.to_owned() })
}
