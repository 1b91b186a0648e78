//! What machines cost on spot, as EC2 tells.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::InstanceType;
use aws_smithy_types::DateTime;
use spot_core::error::PortError;
use spot_core::ports::Instant;

use super::Aws;
use super::describe::more;
use crate::action::Action;
use crate::error::CallError;

/// What runs on the machines. Windows costs more.
const LINUX: &str = "Linux/UNIX";
/// The most instance types in one call.
const TYPES: usize = 100;

impl Aws {
    /// Dollars that an hour costs on spot now, by instance type and zone: of each of these types, in every zone that has
    /// it. A type that EC2 does not know fails the call.
    ///
    /// # Errors
    /// When EC2 could not be asked by then, or refuses.
    pub async fn spot_prices(
        &self,
        types: &BTreeSet<String>,
        by: Instant,
    ) -> Result<BTreeMap<(String, String), f64>, PortError> {
        Ok(self.prices(types.iter().map(String::as_str).collect(), by).await?)
    }

    pub(crate) async fn prices(
        &self,
        types: BTreeSet<&str>,
        by: Instant,
    ) -> Result<BTreeMap<(String, String), f64>, CallError> {
        let mut prices = BTreeMap::new();
        let now = DateTime::from_secs(self.api.clock.now().as_second());
        let types: Vec<_> = types.into_iter().map(InstanceType::from).collect();
        for types in types.chunks(TYPES) {
            let mut token = None;
            loop {
                let request = self.api.ec2.describe_spot_price_history().set_instance_types(Some(types.to_vec()));
                let request = request.product_descriptions(LINUX).start_time(now).end_time(now).set_next_token(token);
                let page = self.api.call(Action::DescribeSpotPriceHistory, by, request.send()).await?;
                for price in page.spot_price_history() {
                    let (kind, zone) = (price.instance_type().map(InstanceType::as_str), price.availability_zone());
                    let dollars = price.spot_price().and_then(|dollars| dollars.parse().ok());
                    if let (Some(kind), Some(zone), Some(dollars)) = (kind, zone, dollars) {
                        prices.insert((kind.to_owned(), zone.to_owned()), dollars);
                    }
                }
                token = more(page.next_token());
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(prices)
    }
}
