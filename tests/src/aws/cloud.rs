//! AWS as the cloud of a cluster.

use std::{collections::BTreeMap, process::Command, sync::Arc};

use serde_json::{Value, json};

use super::{
    Aws, Group, Instance, Member, REGION, Refusal,
    kubelets::{Kubelets, is_initialised},
};
use crate::{
    control_plane::User,
    process::Process,
    programs,
    wait::{PATIENCE, until},
    world::World,
};

/// The name by which AWS knows the cluster: `kubernetes.io/cluster/<name>` is a tag of all that belongs to it.
pub const CLUSTER: &str = "test";

/// The zones that have subnets.
const ZONES: [&str; 2] = ["a", "b"];

/// The access key of the cloud controller manager.
pub const CONTROLLER: &str = "CLOUD-CONTROLLER";

/// The cloud that a cluster runs in: its network, its groups, and the two that bring Nodes and take them away.
#[derive(Debug)]
pub struct Cloud {
    // Dropped in this order: AWS last, because the others ask it.
    kubelets: Kubelets,
    controller: Process,
    vpc: String,
    subnets: Vec<String>,
    aws: Arc<Aws>,
}

impl Cloud {
    /// Starts AWS with a network and without instances, and makes it the cloud of `world`.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(world: &World) -> Self {
        let folder = world.control_plane().folder();
        let aws = Arc::new(Aws::start(folder).await);
        let (vpc, subnets) = network(&aws).await;
        let configuration = folder.join("cloud.conf");
        let zone = format!("{REGION}{}", ZONES[0]);
        let subnet = &subnets[0];
        std::fs::write(
            &configuration,
            format!("[Global]\nZone={zone}\nVPC={vpc}\nSubnetID={subnet}\nKubernetesClusterID={CLUSTER}\n"),
        )
        .expect("the folder is writable");
        let mut command = Command::new(programs::path("ccm"));
        command.envs(aws.environment_of_the_world(CONTROLLER)).args([
            format!("--kubeconfig={}", world.control_plane().kubeconfig(User::CloudController).display()),
            "--cloud-provider=aws".to_owned(),
            format!("--cloud-config={}", configuration.display()),
            "--controllers=cloud-node-controller,cloud-node-lifecycle-controller".to_owned(),
            "--node-monitor-period=1s".to_owned(),
            "--allocate-node-cidrs=false".to_owned(),
            "--configure-cloud-routes=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
        ]);
        let controller = Process::start("cloud-controller-manager", &mut command, folder);
        let kubelets = Kubelets::start(aws.clone(), world.client());
        Self { kubelets, controller, vpc, subnets, aws }
    }

    /// AWS itself.
    #[must_use]
    pub fn aws(&self) -> &Aws {
        &self.aws
    }

    /// The network of the cluster.
    #[must_use]
    pub fn vpc(&self) -> &str {
        &self.vpc
    }

    /// Its subnets, one in each zone.
    #[must_use]
    pub fn subnets(&self) -> &[String] {
        &self.subnets
    }

    /// Everything that the cloud controller manager has printed so far.
    #[must_use]
    pub fn controller_output(&self) -> String {
        self.controller.output()
    }

    /// Creates groups, and waits until each of their instances is in service and a Node that takes pods.
    ///
    /// # Panics
    /// If they don't come.
    pub async fn create(&self, world: &World, groups: &[Group]) {
        for group in groups {
            self.aws.create_group(group, &self.subnets).await;
        }
        self.settled(world).await;
    }

    /// Waits until the groups have what they want, each of their instances is a ready Node with the addresses that the
    /// cloud controller manager gave it, and no Node is left of any other instance.
    ///
    /// # Panics
    /// If that does not come.
    pub async fn settled(&self, world: &World) {
        until("the groups and the Nodes to agree", PATIENCE, || async {
            self.kubelets.check();
            let answer = self.aws.call("autoscaling", "DescribeAutoScalingGroups", json!({})).await;
            for group in answer["AutoScalingGroups"].as_array().into_iter().flatten() {
                let members = members_of(group);
                let in_service = members.iter().filter(|member| member.lifecycle_state == "InService").count();
                if group["DesiredCapacity"] != json!(in_service) || members.len() != in_service {
                    return Err(format!("{}: {members:?}", group["AutoScalingGroupName"]));
                }
            }
            let running: Vec<_> = self.instances().await.into_values().filter(Instance::is_running).collect();
            let nodes = world.nodes().await;
            if nodes.len() != running.len() {
                return Err(format!("{} instances run, and there are {} Nodes", running.len(), nodes.len()));
            }
            for instance in running {
                let node = nodes.get(&instance.private_dns_name).ok_or_else(|| format!("no Node of {instance:?}"))?;
                if !is_initialised(node) {
                    return Err(format!("{} is not ready: {:?}", instance.private_dns_name, node.spec));
                }
            }
            Ok(())
        })
        .await;
    }

    /// All instances of the cluster, also those that have ended, by ID.
    ///
    /// # Panics
    /// If AWS does not tell.
    pub async fn instances(&self) -> BTreeMap<String, Instance> {
        self.aws.instances().await.into_iter().map(|instance| (instance.id.clone(), instance)).collect()
    }
}

impl Aws {
    /// All instances of the cluster, also those that have ended.
    ///
    /// # Panics
    /// If AWS does not tell.
    pub async fn instances(&self) -> Vec<Instance> {
        let ours = json!([{"Name": "tag-key", "Values": [cluster_tag()]}]);
        let answer = self.call("ec2", "DescribeInstances", json!({"Filters": ours, "MaxResults": 1000})).await;
        Instance::all_of(&answer)
    }

    /// The desired capacity of a group, and its members.
    ///
    /// # Panics
    /// If there is no such group.
    pub async fn group(&self, name: &str) -> (u64, Vec<Member>) {
        let of_that_name = json!({"AutoScalingGroupNames": [name]});
        let answer = self.call("autoscaling", "DescribeAutoScalingGroups", of_that_name).await;
        let group = &answer["AutoScalingGroups"][0];
        (group["DesiredCapacity"].as_u64().expect("there is such a group"), members_of(group))
    }

    /// Creates a group in `subnets` whose instances belong to the cluster.
    ///
    /// # Panics
    /// If AWS refuses.
    pub async fn create_group(&self, group: &Group, subnets: &[String]) {
        let mut data = json!({"ImageId": self.image().await, "InstanceType": "m5.large"});
        if let Some(market) = &group.market {
            data["InstanceMarketOptions"] = market.clone();
        }
        let template = group.template();
        self.call("ec2", "CreateLaunchTemplate", json!({"LaunchTemplateName": template, "LaunchTemplateData": data}))
            .await;
        let mut request = json!({
            "AutoScalingGroupName": group.name,
            "VPCZoneIdentifier": subnets.join(","),
            "Tags": [{
                "ResourceId": group.name,
                "ResourceType": "auto-scaling-group",
                "Key": cluster_tag(),
                "Value": "owned",
                "PropagateAtLaunch": true,
            }],
        });
        if group.fields.get("MixedInstancesPolicy").is_none() {
            request["LaunchTemplate"] = json!({"LaunchTemplateName": template});
        }
        for (name, value) in group.fields.as_object().into_iter().flatten() {
            request[name] = value.clone();
        }
        self.call("autoscaling", "CreateAutoScalingGroup", request).await;
    }

    /// Asks the group of `instance` to end it, with or without a lower desired capacity.
    ///
    /// # Errors
    /// With what AWS says.
    pub async fn terminate_in_group(&self, instance: &str, decrement: bool) -> Result<(), Refusal> {
        let request = json!({"InstanceId": instance, "ShouldDecrementDesiredCapacity": decrement});
        self.try_call("autoscaling", "TerminateInstanceInAutoScalingGroup", request).await.map(drop)
    }

    /// The ID of an image that exists.
    ///
    /// # Panics
    /// If there is none.
    pub async fn image(&self) -> String {
        let images = self.call("ec2", "DescribeImages", json!({})).await;
        images["Images"][0]["ImageId"].as_str().expect("there are images").to_owned()
    }
}

/// A network with a subnet in each zone.
///
/// # Panics
/// If AWS refuses.
pub async fn network(aws: &Aws) -> (String, Vec<String>) {
    let vpc = aws.call("ec2", "CreateVpc", json!({"CidrBlock": "10.1.0.0/16"})).await;
    let vpc = vpc["Vpc"]["VpcId"].as_str().expect("it has an ID").to_owned();
    let mut subnets = Vec::new();
    for (number, zone) in ZONES.iter().enumerate() {
        let request = json!({
            "VpcId": vpc,
            "CidrBlock": format!("10.1.{number}.0/24"),
            "AvailabilityZone": format!("{REGION}{zone}"),
        });
        let subnet = aws.call("ec2", "CreateSubnet", request).await;
        subnets.push(subnet["Subnet"]["SubnetId"].as_str().expect("it has an ID").to_owned());
    }
    (vpc, subnets)
}

fn cluster_tag() -> String {
    format!("kubernetes.io/cluster/{CLUSTER}")
}

fn members_of(group: &Value) -> Vec<Member> {
    serde_json::from_value(group["Instances"].clone()).expect("a group has members")
}
