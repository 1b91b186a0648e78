//! What is wrong with a pool, told before any call: each with its key, its reason and what to do about it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::pool::{Fault, Offer, Pool, RebalanceStrategy, UserData};
use super::tags;
use super::user_data::{self, LIFECYCLE};

mod kubernetes;
mod volume;

/// With it, the cluster's name and a dash are short enough for a launch template, a tag and a label.
const NAME: usize = 40;
/// <https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html>
const CLUSTER: usize = 100;
/// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateLaunchTemplate.html>
const TEMPLATE: usize = 128;
/// Instance types times subnets of one fleet. <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/fleet-quotas.html>
const PLACES: usize = 300;
/// How long the old machine may be left.
/// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_SpotCapacityRebalance.html>
const DELAY: (Duration, Duration) = (Duration::from_mins(2), Duration::from_hours(2));
/// Classic load balancers, and target groups, of one fleet: at least one where there are any.
/// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ClassicLoadBalancersConfig.html>
/// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TargetGroupsConfig.html>
const BALANCERS: usize = 5;
/// Security groups of one network interface.
/// <https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html>
const GROUPS: usize = 16;

/// Faults, as they are found.
struct Faults<'p> {
    pool: &'p Pool,
    found: Vec<Fault>,
}

impl Pool {
    /// Units that one fleet may want. <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/fleet-quotas.html>
    pub const MAX_CAPACITY: u32 = 10_000;

    /// Everything that is wrong with it, in the order of its file; empty: nothing. One that has faults is asked for
    /// nowhere.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Faults { pool: self, found: Vec::new() };
        faults.names();
        faults.capacity();
        faults.references();
        faults.user_data();
        faults.offers();
        faults.labels();
        faults.taints();
        faults.tags();
        faults.balancers();
        faults.found
    }
}

impl Faults<'_> {
    fn add(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.found.push(Fault { key: key.into(), message: message.into() });
    }

    fn names(&mut self) {
        let Pool { cluster, name, .. } = self.pool;
        if cluster.is_empty() {
            self.add("cluster", "missing: name the cluster as its machines are tagged");
        } else if !is_word(cluster, "-_.") || cluster.len() > CLUSTER {
            let remedy =
                format!("letters, digits, `-`, `_` and `.`, at most {CLUSTER} characters, a letter or digit first");
            self.add("cluster", format!("{cluster:?} is no name of a cluster: {remedy}"));
        }
        if !is_dns_label(name) || name.len() > NAME {
            let remedy = format!("lower-case letters, digits and `-`, at most {NAME} characters, no `-` at the ends");
            self.add("name", format!("{name:?} is no name of a pool: {remedy}"));
        } else if self.pool.full_name().len() > TEMPLATE {
            let all = self.pool.full_name();
            let message =
                format!("the launch template {all:?} would have over {TEMPLATE} characters: shorten the name");
            self.add("name", message);
        }
    }

    fn capacity(&mut self) {
        let Pool { target_capacity, min_capacity, rebalance, .. } = self.pool;
        if *target_capacity > Pool::MAX_CAPACITY {
            let most = Pool::MAX_CAPACITY;
            let message =
                format!("{target_capacity} is over {most}, the most that a fleet may want: make it two pools");
            self.add("targetCapacity", message);
        }
        if target_capacity < min_capacity {
            let message = format!("{target_capacity} is below `minCapacity`, {min_capacity}: raise it, or lower that");
            self.add("targetCapacity", message);
        }
        let Some(rebalance) = rebalance else { return };
        let (min, max) = (DELAY.0.as_secs(), DELAY.1.as_secs());
        match (rebalance.strategy, rebalance.termination_delay) {
            (RebalanceStrategy::Launch, Some(_)) => {
                let remedy = "leave it out, or set `strategy: launch-before-terminate`";
                let message = format!("with strategy `launch`, no machine is terminated: {remedy}");
                self.add("capacityRebalance.terminationDelay", message);
            }
            (RebalanceStrategy::LaunchBeforeTerminate, None) => {
                let message = format!("missing: say how long the old machine is left, {min} s to {max} s");
                self.add("capacityRebalance.terminationDelay", message);
            }
            (RebalanceStrategy::LaunchBeforeTerminate, Some(delay)) if delay < DELAY.0 || delay > DELAY.1 => {
                let message = format!("{} s is not what EC2 waits: {min} s to {max} s", delay.as_secs());
                self.add("capacityRebalance.terminationDelay", message);
            }
            (RebalanceStrategy::LaunchBeforeTerminate, Some(delay)) if delay.subsec_nanos() != 0 => {
                self.add("capacityRebalance.terminationDelay", "a part of a second: EC2 waits whole seconds");
            }
            (RebalanceStrategy::Launch, None) | (RebalanceStrategy::LaunchBeforeTerminate, Some(_)) => {}
        }
    }

    /// What EC2 knows by a name of its own.
    fn references(&mut self) {
        let pool = self.pool;
        self.text("fleetRole", &pool.fleet_role, "the name or ARN of the role that Spot Fleet acts by");
        self.list("subnets", &pool.subnets, Some("subnet-"));
        if pool.subnets.is_empty() {
            self.add("subnets", "empty: name at least one subnet, best one in each zone");
        }
        self.list("securityGroups", &pool.security_groups, Some("sg-"));
        if pool.security_groups.is_empty() {
            self.add("securityGroups", "empty: name at least the group that lets nodes reach the control plane");
        }
        if pool.security_groups.len() > GROUPS {
            let message = format!("over {GROUPS} groups, which no machine may have: leave some out");
            self.add("securityGroups", message);
        }
        self.text("instanceProfile", &pool.instance_profile, "the name or ARN of the machines' instance profile");
        if !is_id(&pool.image, "ami-") {
            let message = format!("{:?} is no ID of an AMI: as in `ami-0123456789abcdef0`", pool.image);
            self.add("image", message);
        }
        if let Some(key) = &pool.ssh_key {
            self.text("sshKey", key, "the name of a key pair of EC2, or leave the key out");
        }
        if let Some(device) = &pool.root_volume.device {
            self.text("rootVolume.device", device, "as the AMI names its root device, or leave the key out");
        }
        if let Some(key) = &pool.root_volume.kms_key {
            self.text("rootVolume.kmsKey", key, "the ID, alias or ARN of a key, or leave the key out");
            if !pool.root_volume.encrypted {
                self.add("rootVolume.kmsKey", "nothing is encrypted by it: set `encrypted: true`, or leave it out");
            }
        }
    }

    fn user_data(&mut self) {
        let pool = self.pool;
        let places = match &pool.user_data {
            UserData::Own(text) => {
                for place in user_data::REQUIRED.into_iter().filter(|place| !user_data::holds(text, place)) {
                    let what = "it is how the pool's labels or taints reach the kubelet before it joins";
                    self.add(
                        "userData.file",
                        format!("`{place}` is missing: write it where the kubelet reads it; {what}"),
                    );
                }
                "userData.file"
            }
            UserData::Kubelet(kubelet) => {
                self.arguments("userData.kubelet.arguments", &kubelet.arguments);
                "userData.kubelet"
            }
            UserData::Nodeadm(nodeadm) => {
                self.api_server("userData.nodeadm", &nodeadm.api_server, &nodeadm.certificate_authority);
                let key = "userData.nodeadm.serviceCidr";
                if !is_cidr(&nodeadm.service_cidr) {
                    let message = format!("{:?} is no range of addresses: as in `10.100.0.0/16`", nodeadm.service_cidr);
                    self.add(key, message);
                }
                self.arguments("userData.nodeadm.kubeletArguments", &nodeadm.kubelet_arguments);
                "userData.nodeadm"
            }
            UserData::Bottlerocket(bottlerocket) => {
                let (server, authority) = (&bottlerocket.api_server, &bottlerocket.certificate_authority);
                self.api_server("userData.bottlerocket", server, authority);
                let dns = &bottlerocket.cluster_dns;
                if !dns.is_empty() && dns.parse::<std::net::IpAddr>().is_err() {
                    let message = format!("{dns:?} is no address: as in `10.100.0.10`, or leave the key out");
                    self.add("userData.bottlerocket.clusterDns", message);
                }
                "userData.bottlerocket"
            }
        };
        let size = user_data::of(pool).len();
        if size > user_data::LIMIT {
            let remedy = "shorten it, or have it fetch what is long";
            let limit = user_data::LIMIT;
            self.add(places, format!("{size} bytes with labels and taints, over the {limit} that EC2 takes: {remedy}"));
        }
    }

    fn api_server(&mut self, section: &str, server: &str, authority: &str) {
        let host = server.strip_prefix("https://").unwrap_or_default();
        if host.is_empty() || server.chars().any(|c| c.is_whitespace() || c.is_control()) {
            let message = format!("{server:?} is no URL of an API server: as in `https://api.example.com`");
            self.add(format!("{section}.apiServer"), message);
        }
        let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        if authority.is_empty() || !authority.bytes().all(base64) {
            let message = "not base 64 in one line: the certificate authority's PEM, through `base64 -w0`";
            self.add(format!("{section}.certificateAuthority"), message);
        }
    }

    fn arguments(&mut self, key: &str, arguments: &[String]) {
        const OURS: [(&str, &str); 2] = [("--node-labels", "labels"), ("--register-with-taints", "taints")];
        for (at, argument) in arguments.iter().enumerate() {
            // The kubelet takes an underscore for a dash.
            let name =
                argument.split(|c: char| c == '=' || c.is_whitespace()).next().unwrap_or_default().replace('_', "-");
            let ours = OURS.iter().find(|(ours, _)| name == *ours);
            let message = if let Some((ours, here)) = ours {
                format!("`{ours}` is given by the pool: use `{here}`")
            } else if !argument.starts_with("--") || argument.chars().any(char::is_control) {
                format!("{argument:?} is no argument of the kubelet: as in `--max-pods=58`, each whole and in one line")
            } else {
                continue;
            };
            self.add(format!("{key}[{at}]"), message);
        }
    }

    fn offers(&mut self) {
        let pool = self.pool;
        if pool.root_volume.unit_size == 0 {
            self.add("unitRootVolumeSize", "0: say how many GiB each unit of weight has");
        }
        self.unit_iops();
        if pool.offers.is_empty() {
            self.add(
                "launchSpecifications",
                "empty: name at least one instance type; several are taken back less often",
            );
        }
        let places = pool.offers.len() * pool.subnets.len();
        if places > PLACES {
            let message =
                format!("{places} pairs of type and subnet, over the {PLACES} that a fleet takes: leave some out");
            self.add("launchSpecifications", message);
        }
        let mut types = BTreeSet::new();
        for (at, offer) in pool.offers.iter().enumerate() {
            let key = format!("launchSpecifications[{at}]");
            self.offer(&key, offer);
            if !types.insert(&offer.instance_type) {
                let message = format!("{:?} comes twice: keep one of the two", offer.instance_type);
                self.add(format!("{key}.instanceType"), message);
            }
        }
    }

    fn offer(&mut self, key: &str, offer: &Offer) {
        let is_type = |name: &str| {
            name.split_once('.').is_some_and(|(family, size)| {
                let word = |text: &str| !text.is_empty() && is_word(text, "-") && text == text.to_lowercase();
                word(family) && word(size)
            })
        };
        if !is_type(&offer.instance_type) {
            let message = format!("{:?} is no instance type: as in `m5.large`", offer.instance_type);
            self.add(format!("{key}.instanceType"), message);
        }
        if offer.weight == 0 {
            let message = "0: a machine is at least 1 unit of capacity; leave the key out for 1";
            self.add(format!("{key}.weightedCapacity"), message);
        } else if offer.weight > Pool::MAX_CAPACITY {
            let (weight, most) = (offer.weight, Pool::MAX_CAPACITY);
            let message = format!("{weight} is over {most}, the most that a fleet may want: choose a larger unit");
            self.add(format!("{key}.weightedCapacity"), message);
        }
        if let Some(price) = &offer.max_price
            && !is_price(price)
        {
            let message =
                format!("{price:?} is no price: dollars for an hour of one unit, as in \"0.05\", or leave it out");
            self.add(format!("{key}.maxPrice"), message);
        }
        self.volume(key, offer);
    }

    fn tags(&mut self) {
        let pool = self.pool;
        for (key, value) in &pool.tags {
            let place = entry("tags", key);
            if let Some(message) = tags::fault(pool, key, value) {
                self.add(place, message);
            }
        }
        let count = tags::count(pool);
        if count > tags::LIMIT {
            let own = pool.tags.len();
            let limit = tags::LIMIT + own - count;
            let message = format!(
                "{own}, and with those that every pool has over the {} that EC2 takes: at most {limit}",
                tags::LIMIT
            );
            self.add("tags", message);
        }
    }

    fn balancers(&mut self) {
        let pool = self.pool;
        self.list("loadBalancers", &pool.load_balancers, None);
        self.list("targetGroups", &pool.target_groups, Some("arn:"));
        for (key, names) in [("loadBalancers", &pool.load_balancers), ("targetGroups", &pool.target_groups)] {
            if names.len() > BALANCERS {
                let message = format!("{}, over the {BALANCERS} that a fleet takes: leave some out", names.len());
                self.add(key, message);
            }
        }
        for (at, arn) in pool.target_groups.iter().enumerate() {
            if arn.starts_with("arn:") && !arn.contains(":targetgroup/") {
                let message =
                    format!("{arn:?} is no target group's ARN: as in `arn:aws:…:targetgroup/name/0123456789abcdef`");
                self.add(format!("targetGroups[{at}]"), message);
            }
        }
    }

    /// Names in a list: none empty, none twice, each with this beginning.
    fn list(&mut self, key: &str, names: &[String], prefix: Option<&str>) {
        let mut seen = BTreeSet::new();
        for (at, name) in names.iter().enumerate() {
            let place = format!("{key}[{at}]");
            let sound = match prefix {
                Some(prefix @ ("subnet-" | "sg-")) => is_id(name, prefix),
                Some(prefix) => name.starts_with(prefix) && is_printable(name),
                None => is_printable(name),
            };
            if !sound {
                let example = match prefix {
                    Some(prefix) => format!("it begins with `{prefix}`"),
                    None => "a name, without spaces".to_owned(),
                };
                self.add(place, format!("{name:?} can't be one: {example}"));
            } else if !seen.insert(name) {
                self.add(place, format!("{name:?} comes twice: keep one of the two"));
            }
        }
    }

    fn text(&mut self, key: &str, text: &str, remedy: &str) {
        if text.is_empty() {
            self.add(key, format!("missing: {remedy}"));
        } else if text.chars().any(char::is_control) || text.trim() != text {
            self.add(key, format!("{text:?} holds what no name does: {remedy}"));
        }
    }
}

/// The key of a map's entry, as people write it.
fn entry(section: &str, key: &str) -> String {
    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if plain { format!("{section}.{key}") } else { format!("{section}[{key:?}]") }
}

fn is_word(text: &str, more: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

fn is_dns_label(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(allowed) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_id(text: &str, prefix: &str) -> bool {
    let digits = text.strip_prefix(prefix).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn is_printable(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic())
}

fn is_price(text: &str) -> bool {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && digits(part) && text.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}
