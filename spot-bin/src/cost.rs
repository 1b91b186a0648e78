//! What nodes cost a month, and what they would cost on spot. Nothing is guessed: what is not known is counted.

mod ledger;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use serde::{Serialize, Serializer};
use spot_aws::ProviderId;
use spot_aws::prices::Prices;
use spot_core::capacity::Class;
use spot_core::{Node, is_control_plane};

use crate::text;

pub use self::ledger::{Ledger, Totals};

/// Hours of a month, as AWS counts them.
const HOURS: f64 = 730.0;

/// Labels that name the group of nodes that somebody sizes together, whoever that is.
const POOL_LABELS: [&str; 8] = [
    spot_core::node::key::POOL,
    spot_core::node::key::NODE_POOL,
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kops.k8s.io/instancegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "node.cluster.x-k8s.io/pool",
];

/// What is known of prices.
#[derive(Clone, Debug, Default)]
pub struct PriceBook {
    table: Prices,
    /// What the cloud says of spot, by instance type and zone.
    spot: BTreeMap<(String, String), f64>,
}

/// What an hour of a machine like that of a node costs, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodePrice {
    /// On demand.
    pub on_demand: Option<f64>,
    /// On spot.
    pub spot: Option<f64>,
}

/// What nodes cost, by pool and together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bill {
    /// By the name of the pool; nodes of none are under `-`.
    pub pools: BTreeMap<String, Sum>,
    /// All of it.
    pub total: Sum,
}

/// What some nodes cost a month, in dollars. Only on-demand and spot nodes count: others are paid for elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sum {
    /// How many of them are on-demand.
    pub on_demand: usize,
    /// How many of them are spot.
    pub spot: usize,
    /// What those cost whose price is known.
    pub monthly: Dollars,
    /// What would be saved if those on-demand ones were spot of which both prices are known, the control plane aside.
    pub saving: Dollars,
    /// Of how many it is not known what they cost.
    pub unpriced: usize,
    /// How many of the on-demand ones may be spot: all but the control plane.
    pub may_be_spot: usize,
    /// Of how many of those it is not known what they would cost on spot.
    pub without_spot_price: usize,
}

/// An amount, which is written without fractions of cents.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dollars(pub f64);

impl Dollars {
    /// A month of what costs so much an hour.
    #[must_use]
    pub fn monthly(hourly: f64) -> Self {
        Self(hourly * HOURS)
    }
}

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A zero that is added takes the sign off a zero.
        serializer.serialize_f64((self.0 * 100.0).round() / 100.0 + 0.0)
    }
}

impl PriceBook {
    /// The prices that are built in, and before them those of a file.
    ///
    /// # Errors
    /// When the file can't be read, or is no table of prices.
    pub fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self { table: table(file)?, spot: BTreeMap::new() })
    }

    /// With what the cloud says of spot, by instance type and zone. A price of the file counts before it.
    #[must_use]
    pub fn with_spot(self, spot: BTreeMap<(String, String), f64>) -> Self {
        Self { spot, ..self }
    }

    /// What an hour of a machine like this node's costs. All prices are those of Linux.
    #[must_use]
    pub fn of(&self, node: &impl Node) -> NodePrice {
        if is_windows(node) {
            return NodePrice::default();
        }
        let Some(kind) = instance_type(node) else { return NodePrice::default() };
        let of_table = |price: fn(&Prices, &str, &str) -> Option<f64>| price(&self.table, region(node)?, kind);
        let told = || self.spot.get(&(kind.to_owned(), zone(node)?.to_owned())).copied();
        NodePrice { on_demand: of_table(Prices::on_demand), spot: of_table(Prices::spot).or_else(told) }
    }
}

impl NodePrice {
    /// What an hour of a node of this class costs.
    #[must_use]
    pub fn now(self, class: Class) -> Option<f64> {
        match class {
            Class::OnDemand => self.on_demand,
            Class::Spot => self.spot,
            Class::Reserved | Class::Unknown => None,
        }
    }

    /// What an hour of an on-demand node costs more than on spot.
    #[must_use]
    pub fn saving(self) -> Option<f64> {
        Some(self.on_demand? - self.spot?)
    }
}

impl Bill {
    /// What these nodes cost.
    pub fn of<'n, N: Node + 'n>(nodes: impl IntoIterator<Item = (&'n N, Class)>, prices: &PriceBook) -> Self {
        let mut bill = Self::default();
        for (node, class) in nodes {
            let price = prices.of(node);
            bill.total.add(node, class, price);
            bill.pools.entry(pool(node).unwrap_or("-").to_owned()).or_default().add(node, class, price);
        }
        bill.pools.retain(|_, sum| sum.on_demand + sum.spot > 0);
        bill
    }

    /// Whether any price is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.total.is_priced()
    }
}

impl Sum {
    /// Whether a price of any of them is known.
    #[must_use]
    pub fn is_priced(&self) -> bool {
        self.unpriced < self.on_demand + self.spot
    }

    /// Whether of any that may be spot both prices are known.
    #[must_use]
    pub fn is_compared(&self) -> bool {
        self.without_spot_price < self.may_be_spot
    }

    fn add(&mut self, node: &impl Node, class: Class, price: NodePrice) {
        match class {
            Class::OnDemand => self.on_demand += 1,
            Class::Spot => self.spot += 1,
            Class::Reserved | Class::Unknown => return,
        }
        match price.now(class) {
            Some(hourly) => self.monthly.0 += hourly * HOURS,
            None => self.unpriced += 1,
        }
        if may_be_spot(node, class) {
            self.may_be_spot += 1;
            match price.saving() {
                Some(hourly) => self.saving.0 += hourly * HOURS,
                None => self.without_spot_price += 1,
            }
        }
    }
}

/// Whether a node is one that would be less dear on spot. Control-plane nodes stay what they are.
fn may_be_spot(node: &impl Node, class: Class) -> bool {
    class == Class::OnDemand && !is_control_plane(node)
}

/// The prices that are built in, with those of a file before them.
///
/// # Errors
/// When the file can't be read, or is no table of prices.
pub(crate) fn table(file: Option<&Path>) -> anyhow::Result<Prices> {
    let shipped = Prices::shipped();
    let Some(path) = file else { return Ok(shipped) };
    let name = path.display();
    let text =
        text::read(path).with_context(|| format!("can't read the prices {name}: name a file of text that exists"))?;
    let own = Prices::parse(&text).with_context(|| format!("the prices {name} are refused"))?;
    Ok(shipped.overridden_by(own))
}

/// Where prices come from, in a sentence.
pub(crate) fn built_in() -> String {
    let day = Prices::shipped_as_of();
    format!("Built in are on-demand prices of us-east-1 of {day}; `--prices FILE` adds others.")
}

/// As in `m5.large`.
pub fn instance_type(node: &impl Node) -> Option<&str> {
    node.label("node.kubernetes.io/instance-type").or_else(|| node.label("beta.kubernetes.io/instance-type"))
}

/// As in `eu-west-1a`.
pub fn zone(node: &impl Node) -> Option<&str> {
    node.label("topology.kubernetes.io/zone").or_else(|| node.label("failure-domain.beta.kubernetes.io/zone"))
}

/// The group of nodes that it belongs to.
pub fn pool(node: &impl Node) -> Option<&str> {
    POOL_LABELS.iter().find_map(|label| node.label(label))
}

/// The instance types of those of these nodes that are machines of EC2. It would refuse a call that asks for others.
pub fn instance_types<'n, N: Node + 'n>(nodes: impl IntoIterator<Item = &'n N>) -> BTreeSet<String> {
    let is_of_ec2 = |node: &&N| node.provider_id().is_some_and(|id| ProviderId::parse(id).is_ok());
    nodes.into_iter().filter(is_of_ec2).filter_map(|node| instance_type(node)).map(str::to_owned).collect()
}

/// Dollars as people write them: with cents below a hundred.
#[must_use]
pub fn dollars(amount: f64) -> String {
    // What is written as nothing has no sign.
    let (sign, amount) = (if amount <= -0.005 { "-" } else { "" }, amount.abs());
    if amount < 99.995 {
        return format!("{sign}${amount:.2}");
    }
    let whole = format!("{amount:.0}");
    let mut text = String::new();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{sign}${text}")
}

fn is_windows(node: &impl Node) -> bool {
    let os = node.label("kubernetes.io/os").or_else(|| node.label("beta.kubernetes.io/os"));
    os == Some("windows")
}

fn region(node: &impl Node) -> Option<&str> {
    node.label("topology.kubernetes.io/region").or_else(|| node.label("failure-domain.beta.kubernetes.io/region"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;
    use spot_core::node::NodeSnapshot;

    use super::*;

    fn node(labels: &[(&str, &str)]) -> NodeSnapshot {
        let mut node = crate::sample::snapshot("node-1");
        for (key, value) in labels {
            node.labels.insert((*key).to_owned(), (*value).to_owned());
        }
        node
    }

    fn machine(kind: &str, pool: &str) -> NodeSnapshot {
        node(&[
            ("node.kubernetes.io/instance-type", kind),
            ("topology.kubernetes.io/region", "us-east-1"),
            ("topology.kubernetes.io/zone", "us-east-1a"),
            ("eks.amazonaws.com/nodegroup", pool),
        ])
    }

    fn book() -> PriceBook {
        let told = [(("m5.large", "us-east-1a"), 0.046), (("m5.large", "us-east-1b"), 0.01)];
        let told = told.map(|((kind, zone), dollars)| ((kind.to_owned(), zone.to_owned()), dollars));
        PriceBook::read(None).expect("nothing is read").with_spot(told.into())
    }

    #[test]
    fn a_node_costs_what_its_type_costs_in_its_region_and_on_spot_in_its_zone() {
        let price = book().of(&machine("m5.large", "a"));
        assert_eq!(price, NodePrice { on_demand: Some(0.096), spot: Some(0.046) });
        assert_eq!(price.now(Class::OnDemand), Some(0.096));
        assert_eq!(price.now(Class::Spot), Some(0.046));
        assert_eq!(price.now(Class::Reserved), None);
    }

    #[test]
    fn nothing_is_guessed_of_a_node_that_does_not_say_what_it_is() {
        assert_eq!(book().of(&node(&[])), NodePrice::default());
        let nowhere = node(&[("node.kubernetes.io/instance-type", "m5.large")]);
        assert_eq!(book().of(&nowhere), NodePrice::default());
    }

    #[test]
    fn a_windows_node_has_no_price_since_those_of_linux_are_known() {
        for label in ["kubernetes.io/os", "beta.kubernetes.io/os"] {
            let of = |os: &str| {
                let mut machine = machine("m5.large", "a");
                machine.labels.insert(label.to_owned(), os.to_owned());
                machine
            };
            assert_eq!(book().of(&of("windows")), NodePrice::default());
            assert_eq!(book().of(&of("linux")), book().of(&machine("m5.large", "a")));
            let bill = Bill::of([(&of("windows"), Class::OnDemand)], &book());
            assert_eq!((bill.total.unpriced, bill.total.without_spot_price), (1, 1));
        }
    }

    #[test]
    fn nothing_is_compared_where_no_node_that_may_be_spot_has_a_price_on_spot() {
        let mut control_plane = machine("m5.large", "a");
        control_plane.labels.insert("node-role.kubernetes.io/control-plane".to_owned(), String::new());
        let (known, unknown) = (machine("m5.large", "a"), machine("c5.xlarge", "a"));
        let is_compared = |nodes: &[&NodeSnapshot]| {
            let nodes = nodes.iter().map(|node| (*node, Class::OnDemand));
            Bill::of(nodes, &book()).total.is_compared()
        };
        assert!(!is_compared(&[&control_plane]));
        assert!(!is_compared(&[&control_plane, &unknown, &unknown]));
        assert!(is_compared(&[&control_plane, &unknown, &known]));
    }

    #[test]
    fn a_file_counts_before_what_is_built_in_and_before_what_the_cloud_says() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("prices.csv");
        fs::write(&path, "us-east-1,m5.large,0.05,0.02\n").expect("it is writable");
        let book = PriceBook::read(Some(&path)).expect("it is a table").with_spot(book().spot);
        assert_eq!(book.of(&machine("m5.large", "a")), NodePrice { on_demand: Some(0.05), spot: Some(0.02) });
        fs::write(&path, "us-east-1,m5.large\n").expect("it is writable");
        let refused = format!("{:#}", PriceBook::read(Some(&path)).expect_err("it is none"));
        assert!(refused.contains("prices.csv") && refused.contains("line 1"), "{refused}");
        let missing = format!("{:#}", PriceBook::read(Some(folder.path())).expect_err("it is a folder"));
        assert!(missing.contains("name a file"), "{missing}");
    }

    #[test]
    fn a_bill_adds_up_by_pool_and_says_of_how_many_nothing_is_known() {
        let mut control_plane = machine("m5.large", "d");
        control_plane.labels.insert("node-role.kubernetes.io/control-plane".to_owned(), String::new());
        let nodes = [
            (machine("m5.large", "a"), Class::OnDemand),
            (machine("m5.large", "a"), Class::Spot),
            (machine("c5.xlarge", "b"), Class::OnDemand),
            (machine("x99.huge", "b"), Class::OnDemand),
            (machine("m5.large", "c"), Class::Reserved),
            (node(&[]), Class::Spot),
            (control_plane, Class::OnDemand),
        ];
        let bill = Bill::of(nodes.iter().map(|(node, class)| (node, *class)), &book());
        let close = |Dollars(found), hourly: f64| assert!((found - hourly * 730.0).abs() < 1e-6, "{found} of {hourly}");
        assert_eq!(bill.pools.keys().collect::<Vec<_>>(), ["-", "a", "b", "d"]);
        let (a, b) = (&bill.pools["a"], &bill.pools["b"]);
        close(a.monthly, 0.096 + 0.046);
        close(a.saving, 0.096 - 0.046);
        assert_eq!((a.on_demand, a.spot, a.unpriced, a.without_spot_price), (1, 1, 0, 0));
        close(b.monthly, 0.17);
        close(b.saving, 0.0);
        assert_eq!((b.on_demand, b.spot, b.unpriced, b.without_spot_price), (2, 0, 1, 2));
        close(bill.total.monthly, 0.096 + 0.046 + 0.17 + 0.096);
        close(bill.total.saving, 0.096 - 0.046);
        assert_eq!((bill.total.unpriced, bill.total.without_spot_price), (2, 2));
        assert!(bill.is_known() && !Bill::default().is_known());
    }

    #[test]
    fn an_amount_is_written_with_whole_cents_and_nothing_without_a_sign() {
        let written = |amount| serde_json::to_string(&Dollars(amount)).expect("it is a number");
        assert_eq!(written(-1.239), "-1.24");
        assert_eq!(written(-0.001), "0.0");
    }

    #[rstest]
    #[case(0.0, "$0.00")]
    #[case(99.99, "$99.99")]
    #[case(99.999, "$100")]
    #[case(999.5, "$1,000")]
    #[case(1_234_567.0, "$1,234,567")]
    #[case(-5.0, "-$5.00")]
    #[case(-584.0, "-$584")]
    #[case(-1_234.0, "-$1,234")]
    #[case(-0.01, "-$0.01")]
    #[case::nothing_has_no_sign(-0.001, "$0.00")]
    fn dollars_are_written_as_people_do(#[case] amount: f64, #[case] text: &str) {
        assert_eq!(dollars(amount), text);
    }
}
