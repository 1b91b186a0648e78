//! `spot-fleet`, as a person uses it: a pool's file, a kubeconfig and rights of its own, and one command after another.

use std::{
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    aws::{Aws, Cloud, REGION, cloud::CLUSTER},
    control_plane::User,
    migrator::{Ended, Running, binary, merge, product},
    process::Process,
    rights,
    world::World,
};

/// The name of the pool.
pub const POOL: &str = "workers";

/// The access key of `spot-fleet`.
pub const CLIENT: &str = "SPOT-FLEET";

/// `spot-fleet` with a pool's file, ready to be started as often as a test wants.
#[derive(Clone, Debug)]
pub struct SpotFleet {
    binary: PathBuf,
    pool: Value,
    kubeconfig: PathBuf,
    environment: Vec<(&'static str, String)>,
    folder: PathBuf,
}

/// What a pool names and AWS has: everything but the roles of fleets.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The pool's security group.
    pub security_group: String,
    /// The ARN of its target group, whose targets drain for a second.
    pub target_group: String,
    /// Two images for machines of the same kind.
    pub images: [String; 2],
}

/// The name of the pool's classic load balancer.
pub const BALANCER: &str = "classic";

impl SpotFleet {
    /// Grants the rights of `spot-fleet`, makes on AWS what a pool names, and writes down a pool: six units of weights 1,
    /// 2 and 3 in both subnets, with load balancers of both kinds, a label and a taint, and `changes` merged in.
    ///
    /// # Panics
    /// If world or cloud refuse, or the binary is missing or older than its sources.
    pub async fn install(world: &World, cloud: &Cloud, changes: Value) -> (Self, Ground) {
        rights::grant_fleet(world).await;
        let ground = Ground::prepare(cloud).await;
        let mut pool = json!({
            "apiVersion": "spot-migrator.io/v1alpha1",
            "kind": "SpotFleetNodePool",
            "cluster": CLUSTER,
            "name": POOL,
            "region": REGION,
            "endpointUrl": cloud.aws().endpoint(),
            "targetCapacity": 6,
            "subnets": cloud.subnets(),
            "securityGroups": [ground.security_group],
            "instanceProfile": "nodes",
            "image": ground.images[0],
            "userData": {"kubelet": {}},
            "launchSpecifications": [
                {"instanceType": "m5.large"},
                {"instanceType": "m5.xlarge", "weightedCapacity": 2},
                {"instanceType": "m5.2xlarge", "weightedCapacity": 3},
            ],
            "labels": {"example.org/workload": "batch"},
            "taints": [{"key": "example.org/batch", "value": "yes", "effect": "NoSchedule"}],
            "loadBalancers": [BALANCER],
            "targetGroups": [ground.target_group],
            // No longer than the load balancers themselves take.
            "loadBalancer": {"drain": "0s"},
        });
        merge(&mut pool, changes);
        let control_plane = world.control_plane();
        let fleet = Self {
            binary: binary("spot-fleet"),
            pool,
            kubeconfig: control_plane.kubeconfig(User::Fleet),
            environment: cloud.aws().environment(CLIENT).to_vec(),
            folder: control_plane.folder().to_owned(),
        };
        (fleet, ground)
    }

    /// The same with other values in the pool's file.
    #[must_use]
    pub fn with_pool(mut self, changes: Value) -> Self {
        merge(&mut self.pool, changes);
        self
    }

    /// The same without a key of the pool's file.
    ///
    /// # Panics
    /// Never: the file is a map.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.pool.as_object_mut().expect("it is a map").remove(key);
        self
    }

    /// Starts `spot-fleet COMMAND FILE` with further arguments.
    ///
    /// # Panics
    /// If the file can't be written.
    #[must_use]
    pub fn start(&self, command: &str, arguments: &[&str]) -> Running {
        let file = tempfile::Builder::new().prefix("pool-").suffix(".yaml").tempfile_in(&self.folder);
        let (_, file) = file.expect("the folder is writable").keep().expect("it goes with the folder");
        // JSON is YAML.
        std::fs::write(&file, format!("{:#}", self.pool)).expect("the folder is writable");
        let mut process = self.command(command);
        process.arg(file).args(arguments);
        self.running(command, process)
    }

    /// Runs it to its end.
    pub async fn run(&self, command: &str, arguments: &[&str], patience: Duration) -> Ended {
        self.start(command, arguments).ended(patience).await
    }

    /// Runs `spot-fleet create-role` to its end.
    ///
    /// # Panics
    /// If it does not end.
    pub async fn create_role(&self, arguments: &[&str], patience: Duration) -> Ended {
        let mut process = self.command("create-role");
        let endpoint = self.pool["endpointUrl"].as_str().expect("it was given one");
        process.args(["--region", REGION, "--endpoint-url", endpoint]).args(arguments);
        self.running("create-role", process).ended(patience).await
    }

    fn running(&self, command: &str, mut process: Command) -> Running {
        static STARTED: AtomicU64 = AtomicU64::new(1);
        // A log of its own: what an earlier command printed must not pass for what this one says.
        let name = format!("spot-fleet-{command}-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        Running::new(Process::start(&name, &mut process, &self.folder).shown_whole(), String::new())
    }

    /// The binary with an environment of its own: nothing of the tester's leaks into it.
    fn command(&self, command: &str) -> Command {
        let mut process = product(&self.binary, &self.kubeconfig, &self.folder);
        process.arg(command).envs(self.environment.iter().map(|(name, value)| (name, value)));
        process
    }
}

impl Ground {
    async fn prepare(cloud: &Cloud) -> Self {
        let (aws, vpc) = (cloud.aws(), cloud.vpc());
        aws.create_role("nodes", "ec2.amazonaws.com").await;
        let profile = json!({"InstanceProfileName": "nodes"});
        aws.call("iam", "CreateInstanceProfile", profile).await;
        let of_nodes = json!({"InstanceProfileName": "nodes", "RoleName": "nodes"});
        aws.call("iam", "AddRoleToInstanceProfile", of_nodes).await;
        let group = json!({"GroupName": "nodes", "Description": "nodes", "VpcId": vpc});
        let group = aws.call("ec2", "CreateSecurityGroup", group).await;
        let listener =
            json!({"Protocol": "TCP", "LoadBalancerPort": 80, "InstanceProtocol": "TCP", "InstancePort": 80});
        let owned = json!([{"Key": format!("kubernetes.io/cluster/{CLUSTER}"), "Value": "owned"}]);
        let classic =
            json!({"LoadBalancerName": BALANCER, "Listeners": [listener], "Subnets": cloud.subnets(), "Tags": owned});
        aws.call("elb", "CreateLoadBalancer", classic).await;
        let web = json!({"Name": "web", "Protocol": "HTTP", "Port": 80, "VpcId": vpc, "Tags": owned});
        let web = aws.call("elbv2", "CreateTargetGroup", web).await;
        let text = |value: &Value| value.as_str().expect("it has an ID").to_owned();
        let target_group = text(&web["TargetGroups"][0]["TargetGroupArn"]);
        let delay = json!({"Key": "deregistration_delay.timeout_seconds", "Value": "1"});
        let modify = json!({"TargetGroupArn": target_group, "Attributes": [delay]});
        aws.call("elbv2", "ModifyTargetGroupAttributes", modify).await;
        let wanted = json!({"Filters": [{"Name": "architecture", "Values": ["x86_64"]}]});
        let images = aws.call("ec2", "DescribeImages", wanted).await;
        let linux = |image: &&Value| image["Platform"] != "windows" && image["State"] == "available";
        let mut images = images["Images"].as_array().into_iter().flatten().filter(linux);
        let mut image = || text(&images.next().expect("there are images")["ImageId"]);
        Self { security_group: text(&group["GroupId"]), target_group, images: [image(), image()] }
    }
}

impl Aws {
    /// The instances that the pool's load balancers serve or drain: of the classic one, and of the target group.
    ///
    /// # Panics
    /// If AWS does not tell.
    pub async fn registered(&self, ground: &Ground) -> (Vec<String>, Vec<String>) {
        let ids = |list: Vec<&Value>| list.into_iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
        let classic = self.call("elb", "DescribeLoadBalancers", json!({"LoadBalancerNames": [BALANCER]})).await;
        let classic = classic["LoadBalancerDescriptions"][0]["Instances"].as_array().cloned().unwrap_or_default();
        let targets = self.call("elbv2", "DescribeTargetHealth", json!({"TargetGroupArn": ground.target_group})).await;
        let targets = targets["TargetHealthDescriptions"].as_array().cloned().unwrap_or_default();
        let mut classic = ids(classic.iter().map(|one| &one["InstanceId"]).collect());
        let mut targets = ids(targets.iter().map(|one| &one["Target"]["Id"]).collect());
        classic.sort();
        targets.sort();
        (classic, targets)
    }
}
