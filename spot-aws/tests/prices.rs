//! On-demand prices: what is shipped, what is read, and what is not guessed.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spot_aws::prices::{Prices, PricesError};

/// The table that is shipped, as a text.
const SHIPPED: &str = include_str!("../src/prices/on_demand.tsv");

#[test]
fn every_line_of_the_shipped_table_is_read() {
    assert_eq!(Prices::parse(SHIPPED), Ok(Prices::shipped()));
    let lines: Vec<_> = SHIPPED.lines().filter(|line| !line.starts_with('#')).collect();
    for line in &lines {
        let [region, kind, price] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let dollars: f64 = price.parse().unwrap();
        assert_eq!(Prices::shipped().on_demand(region, kind), Some(dollars), "{line}");
        assert!(dollars < 1_000.0, "{line}");
    }
    assert!(lines.len() > 500 && lines.is_sorted(), "{} lines", lines.len());
}

#[test]
fn the_shipped_table_says_of_where_and_when_it_is_and_whose() {
    let head: Vec<_> = SHIPPED.lines().take_while(|line| line.starts_with('#')).collect();
    assert!(head.contains(&format!("# As of: {}.", Prices::shipped_as_of()).as_str()), "{}", Prices::shipped_as_of());
    for word in ["Linux", "shared tenancy", "dollars an hour", "Region: us-east-1", "As of: 20", "Source: ", "https://"]
    {
        assert!(head.iter().any(|line| line.contains(word)), "{word}");
    }
}

#[test]
fn common_types_have_their_price_where_the_table_has_the_region_and_none_elsewhere() {
    let prices = Prices::shipped();
    for (kind, dollars) in [("m5.large", 0.096), ("c5.xlarge", 0.17), ("r5.2xlarge", 0.504), ("t3.medium", 0.0416)] {
        assert_eq!(prices.on_demand("us-east-1", kind), Some(dollars), "{kind}");
        assert_eq!(prices.on_demand("eu-west-1", kind), None, "{kind}");
    }
    assert_eq!(prices.on_demand("us-east-1", "m99.large"), None);
    assert_eq!(prices.on_demand("", ""), None);
}

#[test]
fn a_table_is_read_with_commas_and_with_tabs() {
    let text = "\u{feff}# ours\r\n\r\neu-west-1,m5.large, 0.107\r\n  eu-west-1\tc5.large\t0.096 \n  # more\nus-gov-west-1,m5.metal,5";
    let prices = Prices::parse(text).unwrap();
    assert_eq!(prices.on_demand("eu-west-1", "m5.large"), Some(0.107));
    assert_eq!(prices.on_demand("eu-west-1", "c5.large"), Some(0.096));
    assert_eq!(prices.on_demand("us-gov-west-1", "m5.metal"), Some(5.0));
    assert_eq!(Prices::parse(""), Ok(Prices::default()));
}

#[test]
fn a_price_on_spot_stands_behind_that_on_demand_where_it_is_known() {
    let prices = Prices::parse("eu-west-1,m5.large,0.107,0.04\neu-west-1,m5.xlarge,0.214").unwrap();
    assert_eq!(prices.spot("eu-west-1", "m5.large"), Some(0.04));
    assert_eq!(prices.spot("eu-west-1", "m5.xlarge"), None);
    assert_eq!(prices.spot("eu-west-2", "m5.large"), None);
}

#[test]
fn a_fourth_column_that_is_empty_is_no_price_on_spot_and_an_empty_row_is_none() {
    let text = "us-east-1,m5.large,0.1,\nus-east-1,m5.xlarge,0.2, \nus-east-1\tc5.large\t0.3\t\nus-east-1,c5.xlarge,0.4,0.1\n,,,\n";
    let prices = Prices::parse(text).unwrap();
    let of = |kind| (prices.on_demand("us-east-1", kind), prices.spot("us-east-1", kind));
    assert_eq!(of("m5.large"), (Some(0.1), None));
    assert_eq!(of("m5.xlarge"), (Some(0.2), None));
    assert_eq!(of("c5.large"), (Some(0.3), None));
    assert_eq!(of("c5.xlarge"), (Some(0.4), Some(0.1)));
}

#[test]
fn a_price_on_spot_may_be_above_that_on_demand_but_not_far() {
    let spot = |dollars: &str| Prices::parse(&format!("us-gov-west-1,m5.large,0.5,{dollars}"));
    assert_eq!(spot("5").unwrap().spot("us-gov-west-1", "m5.large"), Some(5.0));
    let error = spot("5.01").unwrap_err().to_string();
    assert!(error.starts_with("line 1: 5.01 dollars on spot are more than 10 times the 0.5 on demand"), "{error}");
}

#[test]
fn an_entry_of_the_other_table_wins_and_the_rest_stays() {
    let other = Prices::parse("us-east-1,m5.large,0.05,0.02").unwrap();
    let prices = Prices::shipped().overridden_by(other);
    assert_eq!(prices.on_demand("us-east-1", "m5.large"), Some(0.05));
    assert_eq!(prices.spot("us-east-1", "m5.large"), Some(0.02));
    assert_eq!(prices.on_demand("us-east-1", "c5.xlarge"), Some(0.17));
}

#[test]
fn what_is_no_price_is_refused_with_its_line_and_the_remedy() {
    let line = "# head\neu-west-1,m5.large,0.107\n";
    for (wrong, said) in [
        ("eu-west-1,m5.xlarge", "line 3 has 2 columns: write region, instance type and dollars an hour"),
        ("eu-west-1;m5.xlarge;0.2", "line 3 has 1 columns"),
        ("eu-west-1,m5.xlarge,,0.2", r#"line 3: "" is no price"#),
        ("eu-west-1,m5.xlarge,0,2", r#"line 3: "0" is no price: write dollars an hour"#),
        (
            "eu-west-1\tm5.xlarge\t1,107",
            r#""1,107" is no price: write dollars an hour, more than none and no more than 10000, with a point and no comma, as in "0.096""#,
        ),
        (
            "eu-west-1,m5.4xlarge,1,107",
            "line 3: 107 dollars on spot are more than 10 times the 1 on demand: write that on demand first, both with a point and no comma",
        ),
        ("us-east-1a,m5.xlarge,0.2", r#"line 3: "us-east-1a" is a zone: write its region, "us-east-1""#),
        ("us-west-2-lax-1a,m5.xlarge,0.2", r#"line 3: "us-west-2-lax-1a" is no region"#),
        ("-1,m5.xlarge,0.2", r#"line 3: "-1" is no region"#),
        ("us-east-+1,m5.xlarge,0.2", r#"line 3: "us-east-+1" is no region"#),
        ("-,m5.xlarge,0.2", r#"line 3: "-" is no region"#),
        ("eu-west-1,m5.,0.2", r#""m5." is no instance type"#),
        ("eu-west-1,db.m5.large,0.2", r#""db.m5.large" is no instance type"#),
        ("eu-west-1,m5.xlarge,0.2,0.1,0.1", "line 3 has 5 columns"),
        ("region,instance type,USD", r#"line 3: "region" is no region: write one as in "eu-west-1""#),
        ("eu-west-1,m5,0.2", r#"line 3: "m5" is no instance type: write one as in "m5.large""#),
        ("eu-west-1,M5.large,0.2", r#""M5.large" is no instance type"#),
        ("eu-west-1,m5.large,0.107", "line 3 gives a price of m5.large in eu-west-1 that was given before"),
    ] {
        let error = Prices::parse(&format!("{line}{wrong}\n")).unwrap_err().to_string();
        assert!(error.contains(said), "{wrong}: {error}");
    }
    let huge = "9".repeat(308);
    for wrong in [&huge, "10000.1", "0", "0.0", "-1", "+1", "$1", "1e3", "inf", "NaN", "", ".", "1.2.3", "0x1"] {
        let error = Prices::parse(&format!("{line}eu-west-1,m5.xlarge,{wrong}")).unwrap_err();
        assert_eq!(error, PricesError::Price { line: 3, text: wrong.to_owned() });
    }
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(
        rows in prop::collection::btree_map(("[a-z]{2}-[a-z]{4}-[1-9]", "[a-z][0-9][a-z]?\\.[a-z0-9]{1,8}"), 1_u32..9_999_999, 0..40),
        tabs in any::<bool>(),
        other in ("[a-z]{2}-[a-z]{4}-[1-9]", "[a-z][0-9]\\.[a-z]{1,8}"),
    ) {
        let rows: BTreeMap<_, _> = rows.into_iter().map(|(key, micros)| (key, f64::from(micros) / 1e6)).collect();
        let mark = if tabs { '\t' } else { ',' };
        let line = |((region, kind), price): (&(String, String), &f64)| format!("{region}{mark}{kind}{mark}{price}\n");
        let prices = Prices::parse(&rows.iter().map(line).collect::<String>()).unwrap();
        for ((region, kind), price) in &rows {
            prop_assert_eq!(prices.on_demand(region, kind), Some(*price));
        }
        prop_assert_eq!(prices.on_demand(&other.0, &other.1), rows.get(&other).copied());
    }

    #[test]
    fn no_text_makes_it_panic_and_an_error_names_a_line_that_is_there(text in "[a-z0-9.,\t\n#-]{0,60}") {
        if let Err(error) = Prices::parse(&text) {
            let said = error.to_string();
            let number = said.trim_start_matches("line ").split([' ', ':']).next().unwrap().parse::<usize>().unwrap();
            prop_assert!((1..=text.lines().count()).contains(&number), "{}", said);
        }
    }
}
