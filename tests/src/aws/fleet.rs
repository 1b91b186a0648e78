//! What Spot Fleets need of AWS, and what stands in their way.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::Aws;

/// The name of the role that Spot Fleets act by, as its own documentation has it.
pub const ROLE: &str = "aws-ec2-spot-fleet-tagging-role";

/// The policy that lets it.
const POLICY: &str = "arn:aws:iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole";

/// A request for a Spot Fleet, as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRequest {
    /// `sfr-…`
    pub id: String,
    /// `active`, `modifying`, `cancelled_running` …
    pub state: String,
    /// What it wants.
    pub target: u64,
    /// How much of that is there.
    pub fulfilled: u64,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

impl FleetRequest {
    /// Whether it launches nothing any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.state.starts_with("cancelled")
    }
}

impl Aws {
    /// Makes the roles without which no Spot Fleet is accepted, and returns the ARN of the one that fleets act by.
    ///
    /// # Panics
    /// If AWS refuses, as it does a second time.
    pub async fn create_fleet_roles(&self) -> String {
        let role = self.create_role(ROLE, "spotfleet.amazonaws.com").await;
        self.call("iam", "AttachRolePolicy", json!({"RoleName": ROLE, "PolicyArn": POLICY})).await;
        for service in ["spot.amazonaws.com", "spotfleet.amazonaws.com"] {
            self.call("iam", "CreateServiceLinkedRole", json!({"AWSServiceName": service})).await;
        }
        role
    }

    /// Makes a role that `service` may be, without any rights, and returns its ARN.
    ///
    /// # Panics
    /// If AWS refuses.
    pub async fn create_role(&self, name: &str, service: &str) -> String {
        let statement = json!({"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"});
        let trust = json!({"Version": "2012-10-17", "Statement": [statement]}).to_string();
        let request = json!({"RoleName": name, "AssumeRolePolicyDocument": trust});
        let answer = self.call("iam", "CreateRole", request).await;
        answer["Role"]["Arn"].as_str().expect("it has an ARN").to_owned()
    }

    /// Sets what EC2 has to sell from now on: `exhausted` instance types, `prices` by instance type, how many spot
    /// `instances` and how many Spot `fleets` the account may have. What is not named is without limit.
    ///
    /// # Panics
    /// If the double does not answer.
    pub async fn market(&self, market: Value) {
        let _empty: Value = self.door.ask("PUT", "/double/market", &market).await;
    }

    /// Takes these rights from everybody but the test and the world, as in `iam:PassRole`, and gives back all others.
    ///
    /// # Panics
    /// If the double does not answer.
    pub async fn deny(&self, rights: &[&str]) {
        let _empty: Value = self.door.ask("PUT", "/double/denied", &json!({"rights": rights})).await;
    }

    /// Has all instances that are there launched so much earlier.
    ///
    /// # Panics
    /// If the double does not answer.
    pub async fn age(&self, by: Duration) {
        let _empty: Value = self.door.ask("PUT", "/double/aged", &json!({"seconds": by.as_secs_f64()})).await;
    }

    /// Does what calls of this action ask for, and answers none of them until another is named, or none.
    ///
    /// # Panics
    /// If the double does not answer.
    pub async fn hold(&self, action: Option<&str>) {
        let _empty: Value = self.door.ask("PUT", "/double/held", &json!({"action": action})).await;
    }

    /// All Spot Fleets, also those that have ended, in the order of their creation.
    ///
    /// # Panics
    /// If AWS does not tell.
    pub async fn spot_fleets(&self) -> Vec<FleetRequest> {
        let answer = self.call("ec2", "DescribeSpotFleetRequests", json!({})).await;
        let text = |value: &Value| value.as_str().expect("it is text").to_owned();
        let tags = |value: &Value| value.as_array().into_iter().flatten().cloned().collect::<Vec<_>>();
        let all = answer["SpotFleetRequestConfigs"].as_array().into_iter().flatten();
        all.map(|fleet| FleetRequest {
            id: text(&fleet["SpotFleetRequestId"]),
            state: text(&fleet["SpotFleetRequestState"]),
            target: fleet["SpotFleetRequestConfig"]["TargetCapacity"].as_u64().expect("it has a target"),
            fulfilled: whole(&fleet["SpotFleetRequestConfig"]["FulfilledCapacity"]),
            tags: tags(&fleet["Tags"]).iter().map(|tag| (text(&tag["Key"]), text(&tag["Value"]))).collect(),
        })
        .collect()
    }

    /// The user data with which an instance was started, decoded; empty where it has none.
    ///
    /// # Panics
    /// If AWS does not tell, or it is not text in base 64.
    pub async fn user_data(&self, instance: &str) -> String {
        let request = json!({"InstanceId": instance, "Attribute": "userData"});
        let answer = self.call("ec2", "DescribeInstanceAttribute", request).await;
        let encoded = answer["UserData"]["Value"].as_str().unwrap_or_default();
        // A type of Kubernetes that is bytes in base 64: the decoder at hand.
        let bytes: k8s_openapi::ByteString = serde_json::from_value(json!(encoded)).expect("it is base 64");
        String::from_utf8(bytes.0).expect("it is text")
    }
}

/// A number that EC2 writes with a fraction, which weights in whole units never give it.
fn whole(value: &Value) -> u64 {
    value.to_string().trim_end_matches(".0").parse().unwrap_or_else(|error| panic!("{value}: {error}"))
}
