//! What machines cost on spot.

use std::collections::{BTreeMap, BTreeSet};

use spot_core::error::ErrorClass;
use spot_core::ports::Instant;

use crate::double::Fault;
use crate::support::{World, secs};

fn types(kinds: &[&str]) -> BTreeSet<String> {
    kinds.iter().map(|kind| (*kind).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn each_type_has_its_price_in_each_zone_that_sells_it() {
    let world = World::new();
    let prices = world.provider.spot_prices(&types(&["m5.large", "m5.xlarge", "m5.2xlarge"]), Instant(secs(20))).await;
    let key = |kind: &str, zone: &str| (kind.to_owned(), zone.to_owned());
    let expected = [(key("m5.large", "eu-west-1a"), 0.035), (key("m5.xlarge", "eu-west-1b"), 0.0801)];
    assert_eq!(prices.unwrap(), BTreeMap::from(expected));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_for_no_type() {
    let world = World::new();
    assert_eq!(world.provider.spot_prices(&BTreeSet::new(), Instant(secs(20))).await.unwrap(), BTreeMap::new());
    assert!(world.aws.actions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_told() {
    let world = World::new();
    world.aws.fail("ec2:DescribeSpotPriceHistory", Fault::Denied, 1);
    let error = world.provider.spot_prices(&types(&["m5.large"]), Instant(secs(20))).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Denied);
}
