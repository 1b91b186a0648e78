//! Auto Scaling groups of a test, and what is in them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

/// An Auto Scaling group, as a test wants it.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) name: String,
    pub(super) market: Option<Value>,
    pub(super) fields: Value,
}

/// An instance, as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// `i-…`
    pub id: String,
    /// `running`, `shutting-down`, `terminated` …
    pub state: String,
    /// Whether it is a spot instance.
    pub spot: bool,
    /// As in `m5.large`.
    pub instance_type: String,
    /// Its subnet.
    pub subnet: String,
    /// Its zone.
    pub zone: String,
    /// Its private DNS name, which is its Node's name; empty once it is terminated.
    pub private_dns_name: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// An instance, as its group describes it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase")]
pub struct Member {
    /// `i-…`
    pub instance_id: String,
    /// `InService`, `Terminating:Wait` …
    pub lifecycle_state: String,
}

impl Group {
    /// A group of `desired` on-demand instances that may become empty.
    #[must_use]
    pub fn on_demand(name: &str, desired: u32) -> Self {
        let fields = json!({"DesiredCapacity": desired, "MinSize": 0, "MaxSize": 20});
        Self { name: name.to_owned(), market: None, fields }
    }

    /// A group of `desired` spot instances that may become empty.
    #[must_use]
    pub fn spot(name: &str, desired: u32) -> Self {
        Self { market: Some(json!({"MarketType": "spot"})), ..Self::on_demand(name, desired) }
    }

    /// The same with a minimum.
    #[must_use]
    pub fn minimum(self, minimum: u32) -> Self {
        self.field("MinSize", json!(minimum))
    }

    /// The same with another field of `CreateAutoScalingGroup`.
    #[must_use]
    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.fields[name] = value;
        self
    }

    /// The same with a mixed policy: so many on-demand instances, and spot instances above that.
    #[must_use]
    pub fn mixed(self, on_demand_base: u32) -> Self {
        let specification = json!({"LaunchTemplateName": self.template()});
        self.field(
            "MixedInstancesPolicy",
            json!({
                "LaunchTemplate": {"LaunchTemplateSpecification": specification},
                "InstancesDistribution": {
                    "OnDemandBaseCapacity": on_demand_base,
                    "OnDemandPercentageAboveBaseCapacity": 0,
                },
            }),
        )
    }

    pub(super) fn template(&self) -> String {
        format!("template-{}", self.name)
    }
}

impl Instance {
    /// The instances of an answer of `DescribeInstances`.
    pub(super) fn all_of(answer: &Value) -> Vec<Self> {
        let reservations = answer["Reservations"].as_array().into_iter().flatten();
        reservations.filter_map(|reservation| reservation["Instances"].as_array()).flatten().map(Self::of).collect()
    }

    /// One instance of an answer of EC2.
    #[must_use]
    pub fn of(described: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let tags = described["Tags"].as_array().into_iter().flatten();
        Self {
            id: text(&described["InstanceId"]),
            state: text(&described["State"]["Name"]),
            spot: described["InstanceLifecycle"] == "spot",
            instance_type: text(&described["InstanceType"]),
            subnet: text(&described["SubnetId"]),
            zone: text(&described["Placement"]["AvailabilityZone"]),
            private_dns_name: text(&described["PrivateDnsName"]),
            tags: tags.map(|tag| (text(&tag["Key"]), text(&tag["Value"]))).collect(),
        }
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == "running"
    }

    /// The Auto Scaling group that it is, or was, a member of.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.tags.get("aws:autoscaling:groupName").map(String::as_str)
    }

    /// As its Node names it.
    #[must_use]
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }
}
