//! Spot Fleets as pools request them.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use spot_tests::aws::{FleetRequest, Instance, REGION, cloud::network, fleet::ROLE};

use super::{Region, STILL, strings};

/// A region with what a pool names: a launch template with two versions, a security group, an instance profile, a key.
struct Pool {
    region: Region,
    template: String,
    group: String,
}

impl Pool {
    async fn start() -> Self {
        let region = Region::start().await;
        region.aws.create_fleet_roles().await;
        region.aws.call("iam", "CreateInstanceProfile", json!({"InstanceProfileName": "nodes"})).await;
        region.aws.call("ec2", "CreateKeyPair", json!({"KeyName": "key"})).await;
        let group = security_group(&region, &region.vpc, "nodes").await;
        let tags = json!([{"Key": "kubernetes.io/cluster/test", "Value": "owned"}, {"Key": "pool", "Value": "one"}]);
        let volume = json!({"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 33, "VolumeType": "gp3"}});
        let mut data = json!({
            "ImageId": region.aws.image().await,
            "KeyName": "key",
            "IamInstanceProfile": {"Name": "nodes"},
            "SecurityGroupIds": [group],
            "UserData": k8s_openapi::ByteString(b"one".to_vec()),
            "BlockDeviceMappings": [volume],
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": tags},
                {"ResourceType": "volume", "Tags": tags},
            ],
        });
        let create = json!({"LaunchTemplateName": "pool", "LaunchTemplateData": data});
        let answer = region.aws.call("ec2", "CreateLaunchTemplate", create).await;
        let template = answer["LaunchTemplate"]["LaunchTemplateId"].as_str().expect("it has an ID").to_owned();
        data["UserData"] = json!(k8s_openapi::ByteString(b"two".to_vec()));
        data["TagSpecifications"][0]["Tags"][1]["Value"] = json!("two");
        let version = json!({"LaunchTemplateId": template, "LaunchTemplateData": data});
        region.aws.call("ec2", "CreateLaunchTemplateVersion", version).await;
        Self { region, template, group }
    }

    /// Six units of weights 1, 2 and 3 in both subnets, of version 2.
    fn config(&self) -> Value {
        let offers = [("m5.large", 1), ("m5.xlarge", 2), ("m5.2xlarge", 3)];
        let pairs = offers.iter().flat_map(|offer| self.region.subnets.iter().map(move |subnet| (offer, subnet)));
        let overrides = pairs.map(
            |((kind, weight), subnet)| json!({"InstanceType": kind, "SubnetId": subnet, "WeightedCapacity": weight}),
        );
        json!({
            "ClientToken": "token",
            "Type": "maintain",
            "TargetCapacity": 6,
            "IamFleetRole": format!("arn:aws:iam::123456789012:role/{ROLE}"),
            "ExcessCapacityTerminationPolicy": "noTermination",
            "TagSpecifications": [{"ResourceType": "spot-fleet-request", "Tags": [{"Key": "pool", "Value": "one"}]}],
            "LaunchTemplateConfigs": [{
                "LaunchTemplateSpecification": {"LaunchTemplateId": self.template, "Version": "2"},
                "Overrides": overrides.collect::<Vec<_>>(),
            }],
        })
    }

    async fn request(&self, config: &Value) -> String {
        let request = json!({"SpotFleetRequestConfig": config});
        let answer = self.region.aws.call("ec2", "RequestSpotFleet", request).await;
        answer["SpotFleetRequestId"].as_str().expect("it has an ID").to_owned()
    }

    /// The code of the refusal.
    async fn refused(&self, config: Value) -> String {
        self.region.refused("ec2", "RequestSpotFleet", json!({"SpotFleetRequestConfig": config})).await.code
    }

    async fn fleet(&self) -> FleetRequest {
        self.region.aws.spot_fleets().await.remove(0)
    }

    async fn running(&self) -> Vec<Instance> {
        self.region.aws.instances().await.into_iter().filter(Instance::is_running).collect()
    }

    /// The kinds of what the fleet's history tells, but for changes of the request.
    async fn told(&self, fleet: &str) -> Vec<String> {
        let request = json!({"SpotFleetRequestId": fleet, "StartTime": "2020-01-01T00:00:00Z"});
        let answer = self.region.aws.call("ec2", "DescribeSpotFleetRequestHistory", request).await;
        let records = answer["HistoryRecords"].as_array().into_iter().flatten();
        let records = records.filter(|record| record["EventType"] != "fleetRequestChange");
        records.map(|record| record["EventInformation"]["EventSubType"].as_str().expect("a kind").to_owned()).collect()
    }

    async fn modify(&self, fleet: &str, target: u32) {
        let request = json!({"SpotFleetRequestId": fleet, "TargetCapacity": target});
        self.region.aws.call("ec2", "ModifySpotFleetRequest", request).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_spreads_over_types_and_subnets_and_its_machines_are_as_the_version_says() {
    let pool = Pool::start().await;
    let id = pool.request(&pool.config()).await;
    let fleet = pool.fleet().await;
    assert_eq!((fleet.state.as_str(), fleet.target, fleet.fulfilled), ("active", 6, 6));
    assert_eq!(fleet.tags.into_iter().collect::<Vec<_>>(), [("pool".to_owned(), "one".to_owned())]);
    let machines = pool.running().await;
    let types: Vec<_> = machines.iter().map(|machine| machine.instance_type.as_str()).collect();
    assert_eq!(types, ["m5.large", "m5.xlarge", "m5.2xlarge"]);
    assert_eq!(machines.iter().map(|machine| &machine.subnet).collect::<BTreeSet<_>>().len(), 2);
    for machine in &machines {
        assert!(machine.spot);
        assert_eq!(machine.tags["pool"], "two");
        assert_eq!(machine.tags["aws:ec2spot:fleet-request-id"], id);
        assert_eq!(machine.tags["aws:ec2launchtemplate:version"], "2");
        assert_eq!(pool.region.aws.user_data(&machine.id).await, "two");
    }
    let ids = json!({"InstanceIds": [machines[0].id]});
    let answer = pool.region.aws.call("ec2", "DescribeInstances", ids).await;
    let described = &answer["Reservations"][0]["Instances"][0];
    assert_eq!(described["SecurityGroups"][0]["GroupId"], json!(pool.group));
    assert_eq!(described["KeyName"], json!("key"));
    assert!(described["IamInstanceProfile"]["Arn"].as_str().is_some_and(|arn| arn.ends_with("/nodes")), "{described}");
    let volume = &described["BlockDeviceMappings"][0]["Ebs"]["VolumeId"];
    let volume = pool.region.aws.call("ec2", "DescribeVolumes", json!({"VolumeIds": [volume]})).await;
    assert_eq!(volume["Volumes"][0]["Size"], json!(33));
    assert!(strings(&volume["Volumes"][0]["Tags"], "Key").contains(&"pool"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_token_requests_one_fleet_and_with_other_parameters_none() {
    let pool = Pool::start().await;
    let id = pool.request(&pool.config()).await;
    assert_eq!(pool.request(&pool.config()).await, id);
    let mut other = pool.config();
    other["TargetCapacity"] = json!(7);
    assert_eq!(pool.refused(other.clone()).await, "IdempotentParameterMismatch");
    assert_eq!(pool.region.aws.spot_fleets().await.len(), 1);
    assert_eq!(pool.running().await.len(), 3);
    other["ClientToken"] = json!("another");
    assert_ne!(pool.request(&other).await, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_may_want_nothing_and_grow_later() {
    let pool = Pool::start().await;
    let mut config = pool.config();
    config["TargetCapacity"] = json!(0);
    let id = pool.request(&config).await;
    assert!(pool.running().await.is_empty());
    pool.modify(&id, 1).await;
    assert_eq!(pool.fleet().await.fulfilled, 1);
    config["Type"] = json!("request");
    config["ClientToken"] = json!("another");
    assert_eq!(pool.refused(config).await, "InvalidSpotFleetRequestConfig");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_or_belong_together_is_refused_and_buys_nothing() {
    let pool = Pool::start().await;
    let region = &pool.region;
    let (elsewhere, subnets) = network(&region.aws).await;
    let stranger = security_group(region, &elsewhere, "stranger").await;
    let untrusted = region.aws.create_role("untrusted", "ec2.amazonaws.com").await;
    let request = json!({"VpcId": region.vpc, "CidrBlock": "10.1.9.0/24", "AvailabilityZone": format!("{REGION}a")});
    let beside = region.aws.call("ec2", "CreateSubnet", request).await["Subnet"]["SubnetId"].take();
    let first = "/LaunchTemplateConfigs/0/Overrides/0";
    for (path, value, code) in [
        ("/IamFleetRole", json!("arn:aws:iam::123456789012:role/none"), "InvalidSpotFleetRequestConfig"),
        ("/IamFleetRole", json!(untrusted), "InvalidSpotFleetRequestConfig"),
        ("/TargetCapacity", json!(10_001), "InvalidSpotFleetRequestConfig"),
        ("/ExcessCapacityTerminationPolicy", json!("never"), "InvalidParameterValue"),
        ("/TagSpecifications/0/ResourceType", json!("instance"), "InvalidParameterValue"),
        (&format!("{first}/InstanceType"), json!("m5.tiny"), "InvalidInstanceType"),
        (&format!("{first}/SubnetId"), json!("subnet-0123456789abcdef0"), "InvalidSubnetID.NotFound"),
        (&format!("{first}/SubnetId"), json!(subnets[0]), "InvalidParameter"),
        (&format!("{first}/SubnetId"), json!(region.subnets[1]), "InvalidSpotFleetRequestConfig"),
        (&format!("{first}/SubnetId"), beside, "InvalidSpotFleetRequestConfig"),
        (&format!("{first}/WeightedCapacity"), json!(0), "InvalidSpotFleetRequestConfig"),
    ] {
        let mut config = pool.config();
        *config.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
        assert_eq!(pool.refused(config).await, code, "{path}");
    }
    for (number, field, value, code) in [
        (3, "ImageId", json!("ami-0123456789abcdef0"), "InvalidAMIID.NotFound"),
        (4, "KeyName", json!("none"), "InvalidKeyPair.NotFound"),
        (5, "IamInstanceProfile", json!({"Name": "none"}), "InvalidParameterValue"),
        (6, "SecurityGroupIds", json!(["sg-0123456789abcdef0"]), "InvalidGroup.NotFound"),
        (7, "SecurityGroupIds", json!([stranger]), "InvalidParameter"),
    ] {
        let data = json!({"ImageId": region.aws.image().await, field: value});
        let version = json!({"LaunchTemplateId": pool.template, "LaunchTemplateData": data});
        region.aws.call("ec2", "CreateLaunchTemplateVersion", version).await;
        let mut config = pool.config();
        config["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["Version"] = json!(number.to_string());
        assert_eq!(pool.refused(config).await, code, "{field}");
    }
    region.aws.call("iam", "DeleteServiceLinkedRole", json!({"RoleName": "AWSServiceRoleForEC2SpotFleet"})).await;
    let code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
    assert_eq!(pool.refused(pool.config()).await, code);
    assert!(pool.running().await.is_empty());
    assert!(region.aws.spot_fleets().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_requests_nothing() {
    let pool = Pool::start().await;
    let dry = json!({"SpotFleetRequestConfig": pool.config(), "DryRun": true});
    assert_eq!(pool.region.refused("ec2", "RequestSpotFleet", dry).await.code, "DryRunOperation");
    assert!(pool.region.aws.spot_fleets().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_run_out_or_costs_too_much_or_is_over_the_quota_is_told_and_comes_later() {
    let pool = Pool::start().await;
    let mut config = pool.config();
    for offer in config["LaunchTemplateConfigs"][0]["Overrides"].as_array_mut().expect("a list") {
        offer["SpotPrice"] = json!("0.05");
    }
    let expensive = json!({"m5.xlarge": 0.11, "m5.2xlarge": 0.14});
    pool.region.aws.market(json!({"exhausted": ["m5.large"], "prices": expensive, "instances": 1})).await;
    let id = pool.request(&config).await;
    // 0.14 for 3 units is less than 0.05 each, and 0.11 for 2 is more.
    let types = |machines: &[Instance]| machines.iter().map(|one| one.instance_type.clone()).collect::<Vec<_>>();
    assert_eq!(types(&pool.running().await), ["m5.2xlarge"]);
    let told: BTreeSet<_> = pool.told(&id).await.into_iter().collect();
    let expected =
        ["launchSpecTemporarilyBlacklisted", "launchSpecUnusable", "launched", "spotInstanceCountLimitExceeded"];
    assert_eq!(told.iter().map(String::as_str).collect::<Vec<_>>(), expected);

    pool.region.aws.market(json!({"exhausted": ["m5.large", "m5.xlarge", "m5.2xlarge"]})).await;
    assert_eq!(pool.fleet().await.fulfilled, 3);
    assert!(pool.told(&id).await.contains(&"allLaunchSpecsTemporarilyBlacklisted".to_owned()));
    pool.region.aws.market(json!({})).await;
    assert_eq!(pool.fleet().await.fulfilled, 6);

    pool.region.aws.market(json!({"fleets": 1})).await;
    config["ClientToken"] = json!("another");
    assert_eq!(pool.refused(config).await, "MaxSpotFleetRequestCountExceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_whose_role_may_nothing_launches_nothing_and_says_so() {
    let pool = Pool::start().await;
    let mut config = pool.config();
    config["IamFleetRole"] = json!(pool.region.aws.create_role("poor", "spotfleet.amazonaws.com").await);
    let id = pool.request(&config).await;
    assert!(pool.running().await.is_empty());
    assert_eq!(pool.told(&id).await, ["iamFleetRoleInvalid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_registered_once_when_they_run_and_leave_when_they_end() {
    let pool = Pool::start().await;
    let region = &pool.region;
    let listener = json!({"Protocol": "HTTP", "LoadBalancerPort": 80, "InstanceProtocol": "HTTP", "InstancePort": 80});
    let classic = json!({"LoadBalancerName": "classic", "Listeners": [listener], "Subnets": region.subnets});
    region.aws.call("elb", "CreateLoadBalancer", classic).await;
    let web = json!({"Name": "web", "Protocol": "HTTP", "Port": 80, "VpcId": region.vpc});
    let answer = region.aws.call("elbv2", "CreateTargetGroup", web).await;
    let arn = answer["TargetGroups"][0]["TargetGroupArn"].clone();
    let mut config = pool.config();
    config["LoadBalancersConfig"] = json!({
        "ClassicLoadBalancersConfig": {"ClassicLoadBalancers": [{"Name": "classic"}, {"Name": "none"}]},
        "TargetGroupsConfig": {"TargetGroups": [{"Arn": arn}]},
    });
    let id = pool.request(&config).await;
    let registered = async || {
        let classic = region.aws.call("elb", "DescribeLoadBalancers", json!({})).await;
        let classic = strings(&classic["LoadBalancerDescriptions"][0]["Instances"], "InstanceId").join(" ");
        let group = region.aws.call("elbv2", "DescribeTargetHealth", json!({"TargetGroupArn": arn})).await;
        let states = group["TargetHealthDescriptions"].as_array().cloned().unwrap_or_default();
        let healthy = states.iter().filter(|state| state["TargetHealth"]["State"] == "healthy");
        let group: Vec<_> = healthy.filter_map(|state| state["Target"]["Id"].as_str()).collect();
        (classic, group.join(" "))
    };
    let machines = pool.running().await;
    let ids: Vec<_> = machines.iter().map(|machine| machine.id.as_str()).collect();
    let sorted = |text: String| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    let expected: BTreeSet<_> = ids.iter().map(|id| (*id).to_owned()).collect();
    let (classic, group) = registered().await;
    assert_eq!((sorted(classic), sorted(group)), (expected.clone(), expected));
    assert!(pool.told(&id).await.contains(&"registerWithLoadBalancersFailed".to_owned()));

    // What somebody takes out stays out.
    let out = json!({"TargetGroupArn": arn, "Targets": [{"Id": ids[0]}]});
    region.aws.call("elbv2", "DeregisterTargets", out).await;
    pool.modify(&id, 3).await;
    region.aws.call("ec2", "TerminateInstances", json!({"InstanceIds": [ids[2]]})).await;
    let (classic, group) = registered().await;
    assert_eq!(sorted(classic), ids[..2].iter().map(|id| (*id).to_owned()).collect());
    assert_eq!(group, ids[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_fleet_launches_nothing_and_keeps_or_ends_what_it_has() {
    for terminate in [false, true] {
        let pool = Pool::start().await;
        let id = pool.request(&pool.config()).await;
        pool.region.aws.pace(STILL).await;
        let request = json!({"SpotFleetRequestIds": [id, "sfr-none"], "TerminateInstances": terminate});
        let answer = pool.region.aws.call("ec2", "CancelSpotFleetRequests", request.clone()).await;
        assert_eq!(strings(&answer["SuccessfulFleetRequests"], "SpotFleetRequestId"), [id.as_str()]);
        let error = &answer["UnsuccessfulFleetRequests"][0]["Error"]["Code"];
        assert_eq!(error, &json!("fleetRequestIdDoesNotExist"));
        let (state, left) = if terminate { ("cancelled_terminating", 0) } else { ("cancelled_running", 3) };
        if !terminate {
            assert_eq!(pool.fleet().await.state, state);
        }
        let running = pool.running().await;
        assert_eq!(running.len(), left);
        pool.region.aws.pace(Duration::ZERO).await;
        if let Some(one) = running.first() {
            pool.region.aws.call("ec2", "TerminateInstances", json!({"InstanceIds": [one.id]})).await;
            assert_eq!(pool.running().await.len(), 2, "nothing is bought in its place");
            let rest: Vec<_> = running[1..].iter().map(|machine| &machine.id).collect();
            pool.region.aws.call("ec2", "TerminateInstances", json!({"InstanceIds": rest})).await;
        }
        let fleet = pool.fleet().await;
        assert_eq!((fleet.state.as_str(), fleet.has_ended()), ("cancelled", true));
        let modify = json!({"SpotFleetRequestId": id, "TargetCapacity": 1});
        assert_eq!(
            pool.region.refused("ec2", "ModifySpotFleetRequest", modify).await.code,
            "FleetNotInModifiableState"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn history_tells_what_was_launched_and_what_ended_since_a_moment() {
    let pool = Pool::start().await;
    let id = pool.request(&pool.config()).await;
    assert_eq!(pool.told(&id).await, ["launched"; 3]);
    pool.modify(&id, 4).await;
    let ended = pool.running().await.into_iter().find(|one| one.instance_type == "m5.xlarge").expect("there is one");
    pool.region.aws.call("ec2", "TerminateInstances", json!({"InstanceIds": [ended.id]})).await;
    assert_eq!(pool.told(&id).await, ["launched", "launched", "launched", "terminated"]);
    let since = json!({"SpotFleetRequestId": id, "StartTime": "2099-01-01T00:00:00Z"});
    let answer = pool.region.aws.call("ec2", "DescribeSpotFleetRequestHistory", since).await;
    assert_eq!(answer["HistoryRecords"], json!([]));
    let unknown = json!({"SpotFleetRequestId": "sfr-none", "StartTime": "2020-01-01T00:00:00Z"});
    let refusal = pool.region.refused("ec2", "DescribeSpotFleetRequestHistory", unknown).await;
    assert_eq!(refusal.code, "InvalidSpotFleetRequestId.NotFound");
}

#[tokio::test(flavor = "multi_thread")]
async fn prices_are_told_by_type_and_zone() {
    let pool = Pool::start().await;
    pool.region.aws.market(json!({"prices": {"m5.large": 0.123}})).await;
    let request = json!({"InstanceTypes": ["m5.large"], "ProductDescriptions": ["Linux/UNIX"]});
    let answer = pool.region.aws.call("ec2", "DescribeSpotPriceHistory", request).await;
    assert_eq!(strings(&answer["SpotPriceHistory"], "AvailabilityZone"), ["eu-west-1a", "eu-west-1b", "eu-west-1c"]);
    assert_eq!(strings(&answer["SpotPriceHistory"], "SpotPrice"), ["0.123000"; 3]);
}

async fn security_group(region: &Region, vpc: &str, name: &str) -> String {
    let request = json!({"GroupName": name, "Description": name, "VpcId": vpc});
    let answer = region.aws.call("ec2", "CreateSecurityGroup", request).await;
    answer["GroupId"].as_str().expect("it has an ID").to_owned()
}
