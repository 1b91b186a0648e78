//! What is found out about a pool before anything is made of it.

mod advice;

use std::collections::BTreeSet;

use spot_aws::fleet::{Finding, Offer, Pool};
use spot_core::error::{ErrorClass, chain};

use crate::double::iam::{self, Role};
use crate::double::network::{Image, InstanceType};
use crate::double::{Balancer, Fault, State};
use crate::world::{World, pool, said};

/// What is other than it should be, in the pool and around it, and what is said of it.
type Case = (&'static str, fn(&mut Pool), fn(&mut State), &'static str, &'static str);

const TARGET_GROUP: &str = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/web/1";

/// A pool that names all that a pool can, and all of that is there.
fn full() -> World {
    let world = World::of(Pool {
        ssh_key: Some("admin".to_owned()),
        load_balancers: vec!["web".to_owned()],
        target_groups: vec![TARGET_GROUP.to_owned()],
        ..pool()
    });
    let tags = [("kubernetes.io/cluster/prod".to_owned(), "shared".to_owned())];
    let balancer = || Balancer { vpc: "vpc-1".to_owned(), tags: tags.clone().into(), ..Balancer::default() };
    let mut state = world.aws.state();
    state.classic.insert("web".to_owned(), balancer());
    state.target_groups.insert(TARGET_GROUP.to_owned(), balancer());
    drop(state);
    world
}

async fn check(world: &World) -> Vec<Finding> {
    let findings = world.pool.check(world.by(60)).await;
    assert_eq!(world.aws.writes(), [], "nothing is changed");
    findings
}

/// What is wrong: the thing, the reason with its remedy, and the whole chain.
fn troubles(findings: &[Finding]) -> Vec<(String, String, String)> {
    let trouble = |finding: &Finding| {
        let trouble = finding.outcome.as_ref().err()?;
        Some((finding.what.clone(), trouble.to_string(), chain(trouble)))
    };
    findings.iter().filter_map(trouble).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_can_be_is_found_to_be_sound_in_every_part() {
    let findings = check(&full()).await;
    assert_eq!(troubles(&findings), []);
    let what: BTreeSet<_> = findings.iter().map(|finding| finding.what.as_str()).collect();
    let target_group = format!("target group {TARGET_GROUP}");
    for part in [
        "fleet role arn:aws:iam::123456789012:role/fleet",
        "service-linked role AWSServiceRoleForEC2Spot",
        "service-linked role AWSServiceRoleForEC2SpotFleet",
        "instance profile node",
        "AMI ami-00000000000000001",
        "instance type m5.large",
        "instance type m5.xlarge",
        "SSH key admin",
        "subnet subnet-a",
        "subnet subnet-b",
        "security group sg-1",
        "load balancer web",
        target_group.as_str(),
        "the fleet, by a dry run",
        "a machine, by a dry run",
    ] {
        assert!(what.contains(part), "{part}: {what:?}");
    }
    assert_eq!(what.len(), findings.len(), "each once");
}

/// Each is one thing that is wrong, and is said in one sentence with its remedy, and in AWS' words only behind it.
const CASES: [Case; 37] = [
    (
        "fleet role arn:aws:iam::123456789012:role/fleet",
        |_| {},
        |state| drop(state.iam.roles.remove("fleet")),
        "role fleet is missing, by which Spot Fleet launches",
        "run `spot-fleet create-role --name fleet`",
    ),
    (
        "fleet role arn:aws:iam::123456789012:role/fleet",
        |_| {},
        |state| {
            let role = Role::trusting("ec2.amazonaws.com").with_policy(&policy());
            state.iam.roles.insert("fleet".to_owned(), role);
        },
        "role fleet does not trust spotfleet.amazonaws.com",
        "add that service to its trust policy",
    ),
    (
        "fleet role arn:aws:iam::123456789012:role/fleet",
        |_| {},
        |state| state.iam.roles.get_mut("fleet").unwrap().policies.clear(),
        "role fleet lacks AWS' policy AmazonEC2SpotFleetTaggingRole",
        "run `spot-fleet create-role --name fleet`",
    ),
    (
        "service-linked role AWSServiceRoleForEC2SpotFleet",
        |_| {},
        |state| drop(state.iam.roles.remove("AWSServiceRoleForEC2SpotFleet")),
        "role AWSServiceRoleForEC2SpotFleet is missing in this account",
        "run `spot-fleet create-role`",
    ),
    (
        "subnet subnet-9",
        |pool| pool.subnets.push("subnet-9".to_owned()),
        |_| {},
        "there is no subnet subnet-9 for this account in region eu-west-1",
        "correct `subnets`, or `region`",
    ),
    (
        "subnet subnet-x",
        |pool| pool.subnets.push("subnet-x".to_owned()),
        |_| {},
        "subnet subnet-x is in vpc-2, and subnet subnet-a in vpc-1",
        "name only what is in one VPC in `subnets`",
    ),
    (
        "subnet subnet-b",
        |_| {},
        |state| subnet(state, ("pending", 251)),
        "subnet subnet-b is pending",
        "wait until it is available, or take it out of `subnets`",
    ),
    (
        "subnet subnet-b",
        |_| {},
        |state| subnet(state, ("available", 0)),
        "subnet subnet-b has no free addresses",
        "machines are launched in the others",
    ),
    (
        "subnet subnet-b2",
        |pool| pool.subnets.push("subnet-b2".to_owned()),
        |_| {},
        "subnets subnet-b and subnet-b2 are both in zone eu-west-1b, and a fleet takes one of each zone",
        "keep one of the two in `subnets`",
    ),
    (
        "security group sg-9",
        |pool| pool.security_groups.push("sg-9".to_owned()),
        |_| {},
        "there is no security group sg-9 for this account in region eu-west-1",
        "correct `securityGroups`, or `region`",
    ),
    (
        "security group sg-1",
        |_| {},
        |state| drop(state.market.groups.insert("sg-1".to_owned(), "vpc-2".to_owned())),
        "security group sg-1 is in vpc-2, and subnet subnet-a in vpc-1",
        "name only what is in one VPC in `subnets` and `securityGroups`",
    ),
    (
        "AMI ami-00000000000000009",
        |pool| pool.image = "ami-00000000000000009".into(),
        |_| {},
        "there is no AMI ami-00000000000000009 for this account in region eu-west-1",
        "have it shared with this account",
    ),
    (
        "AMI latest",
        |pool| pool.image = "latest".into(),
        |_| {},
        "there is no AMI latest for this account",
        "correct `image`",
    ),
    (
        "AMI ami-00000000000000001",
        |_| {},
        |state| image(state, Image { state: "disabled", ..Image::default() }),
        "AMI ami-00000000000000001 is disabled",
        "name one that is available in `image`",
    ),
    (
        "AMI ami-00000000000000001",
        |_| {},
        |state| image(state, Image { root_kind: "instance-store", ..Image::default() }),
        "the root device of AMI ami-00000000000000001 is no EBS volume",
        "name one with an EBS root volume",
    ),
    (
        "AMI ami-00000000000000001",
        |_| {},
        |state| image(state, Image { root: "/dev/sda1", ..Image::default() }),
        "has no volume at /dev/xvda, which `rootVolume.device` says, but at /dev/sda1",
        "leave `rootVolume.device` out",
    ),
    (
        "AMI ami-00000000000000001",
        |pool| pool.root_volume.device = Some("/dev/xvdc".to_owned()),
        |state| image(state, Image::bottlerocket()),
        "has no volume at /dev/xvdc, which `rootVolume.device` says, but at /dev/xvda, /dev/xvdb",
        "leave `rootVolume.device` out",
    ),
    (
        "instance type m5.large",
        |pool| {
            pool.root_volume.device = Some("/dev/xvdb".to_owned());
            pool.root_volume.unit_size = 19;
        },
        |state| image(state, Image::bottlerocket()),
        "the root volume of m5.large has 19 GiB, and AMI ami-00000000000000001 needs 20",
        "raise `unitRootVolumeSize`",
    ),
    (
        "instance type m9.large",
        |pool| pool.offers[0].instance_type = "m9.large".into(),
        |_| {},
        "there is no instance type m9.large for this account in region eu-west-1",
        "correct `launchSpecifications`, or `region`",
    ),
    (
        "instance type m5.xlarge",
        |_| {},
        |state| kind(state, InstanceType { architectures: vec!["arm64"], ..InstanceType::default() }),
        "m5.xlarge is arm64, and AMI ami-00000000000000001 is x86_64",
        "name an AMI for it in `image`, or another instance type",
    ),
    (
        "instance type m5.xlarge",
        |_| {},
        |state| kind(state, InstanceType { classes: vec!["on-demand"], ..InstanceType::default() }),
        "EC2 has no m5.xlarge on spot",
        "name another one in `launchSpecifications`",
    ),
    (
        "instance type m5.large",
        |_| {},
        |state| image(state, Image { size: 30, ..Image::default() }),
        "the root volume of m5.large has 20 GiB, and AMI ami-00000000000000001 needs 30",
        "raise `unitRootVolumeSize`",
    ),
    (
        "SSH key root",
        |pool| pool.ssh_key = Some("root".to_owned()),
        |_| {},
        "there is no SSH key root for this account in region eu-west-1",
        "correct `sshKey`, or leave it out",
    ),
    (
        "instance profile nodes",
        |pool| pool.instance_profile = "nodes".into(),
        |_| {},
        "there is no instance profile nodes in this account",
        "correct `instanceProfile`, or create one",
    ),
    (
        "instance profile node",
        |_| {},
        |state| state.network.profiles.values_mut().for_each(Vec::clear),
        "instance profile node holds no role",
        "aws iam add-role-to-instance-profile --instance-profile-name node --role-name ROLE",
    ),
    (
        "instance profile arn:aws:iam::999999999999:instance-profile/node",
        |pool| pool.instance_profile = "arn:aws:iam::999999999999:instance-profile/node".into(),
        |_| {},
        "instance profile node of this account is arn:aws:iam::123456789012:instance-profile/node",
        "correct `instanceProfile`",
    ),
    (
        "load balancer old",
        |pool| pool.load_balancers.push("old".to_owned()),
        |_| {},
        "there is no classic load balancer old for this account in region eu-west-1",
        "correct `loadBalancers`, or `region`",
    ),
    (
        "load balancer web",
        |_| {},
        |state| state.classic.get_mut("web").unwrap().vpc = "vpc-2".into(),
        "load balancer web is in vpc-2, and subnet subnet-a in vpc-1",
        "name only what is in one VPC in `subnets` and `loadBalancers`",
    ),
    (
        "target group none",
        |pool| pool.target_groups.push("none".to_owned()),
        |_| {},
        "there is no target group none for this account in region eu-west-1",
        "correct `targetGroups`, or `region`",
    ),
    (
        "target group arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/web/1",
        |_| {},
        |state| state.target_groups.get_mut(TARGET_GROUP).unwrap().of_addresses = true,
        "is of target type ip, and Spot Fleet registers instances",
        "name one of target type instance in `targetGroups`",
    ),
    (
        "target group arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/web/1",
        |_| {},
        |state| state.target_groups.get_mut(TARGET_GROUP).unwrap().vpc = "vpc-2".into(),
        "is in vpc-2, and subnet subnet-a in vpc-1",
        "name only what is in one VPC in `subnets` and `targetGroups`",
    ),
    (
        "load balancer web",
        |_| {},
        |state| state.classic.get_mut("web").unwrap().tags.clear(),
        "load balancer web bears no tag of the cluster, nor does its name begin with `prod-`",
        "tag it `kubernetes.io/cluster/prod` with `owned` or `shared`",
    ),
    (
        "target group arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/web/1",
        |_| {},
        |state| {
            let tags = &mut state.target_groups.get_mut(TARGET_GROUP).unwrap().tags;
            *tags = [("kubernetes.io/cluster/test".to_owned(), "owned".to_owned())].into();
        },
        "targetgroup/web/1 bears no tag of the cluster",
        "tag it `kubernetes.io/cluster/prod` with `owned` or `shared`",
    ),
    (
        "the fleet, by a dry run",
        |_| {},
        |state| refuse(state, FLEET, (403, "UnauthorizedOperation", PASS_ROLE)),
        "the right iam:PassRole on arn:aws:iam::123456789012:role/fleet is missing",
        "attach deploy/iam/spot-fleet.json to the role or user that runs this, with the names of both roles",
    ),
    (
        "a machine, by a dry run",
        |_| {},
        |state| refuse(state, MACHINE, (403, "UnauthorizedOperation", "You are not authorized. Encoded: x")),
        "the right ec2:RunInstances is missing",
        "attach deploy/iam/spot-fleet.json",
    ),
    (
        "a machine, by a dry run",
        |_| {},
        |state| refuse(state, MACHINE, (403, "UnauthorizedOperation", FORBIDDEN)),
        "ec2:RunInstances is forbidden by a service control policy",
        "deploy/iam/spot-fleet.json does not help, ask whoever keeps that one",
    ),
    (
        "the fleet, by a dry run",
        |_| {},
        |state| refuse(state, FLEET, (400, "MaxSpotFleetRequestCountExceeded", "Max count exceeded")),
        "the account's quota of Spot Fleets",
        "ask for more at Service Quotas",
    ),
];

const FLEET: &str = "ec2:RequestSpotFleet";
const MACHINE: &str = "ec2:RunInstances";
const PASS_ROLE: &str = "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/ops is not \
                         authorized to perform: iam:PassRole on resource: arn:aws:iam::123456789012:role/fleet because no \
                         identity-based policy allows the iam:PassRole action";

const FORBIDDEN: &str = "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/ops is not \
                         authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:eu-west-1:123456789012:instance/* \
                         with an explicit deny in a service control policy. Encoded authorization failure message: x";

fn policy() -> String {
    format!("arn:aws:{}", iam::POLICY)
}

fn subnet(state: &mut State, told: (&'static str, u32)) {
    state.network.subnets.insert("subnet-b".to_owned(), told);
}

fn image(state: &mut State, image: Image) {
    state.network.images.insert("ami-00000000000000001".to_owned(), image);
}

fn kind(state: &mut State, kind: InstanceType) {
    state.network.types.insert("m5.xlarge".to_owned(), kind);
}

fn refuse(state: &mut State, action: &'static str, refusal: (u16, &'static str, &'static str)) {
    state.network.refuses.insert(action, refusal);
}

#[tokio::test(start_paused = true)]
async fn each_thing_that_is_wrong_is_said_once_with_its_remedy() {
    for (what, of_pool, of_aws, why, remedy) in CASES {
        let world = full().with(of_pool);
        of_aws(&mut world.aws.state());
        let troubles = troubles(&check(&world).await);
        let [(thing, said, _)] = &troubles[..] else { panic!("{what}: {why}: {troubles:#?}") };
        assert_eq!(thing, what);
        assert!(said.contains(why) && said.contains(remedy), "{said}");
        let foreign = ["NotFound", "NoSuchEntity", "Unauthorized", "Exceeded", "does not exist", "Encoded"];
        assert!(!foreign.iter().any(|word| said.contains(word)), "AWS' words are no answer: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn aws_words_are_behind_what_is_said_of_its_refusals() {
    let world = full();
    refuse(&mut world.aws.state(), FLEET, (403, "UnauthorizedOperation", PASS_ROLE));
    let troubles = troubles(&check(&world).await);
    assert!(troubles[0].2.contains("no identity-based policy allows"), "{troubles:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_at_once_is_told_of_at_once() {
    let world = full().with(|pool| {
        pool.subnets = vec!["subnet-9".to_owned(), "subnet-a".to_owned()];
        pool.ssh_key = Some("root".to_owned());
    });
    refuse(&mut world.aws.state(), MACHINE, (403, "UnauthorizedOperation", PASS_ROLE));
    let findings = check(&world).await;
    let what: Vec<_> = troubles(&findings).into_iter().map(|(what, ..)| what).collect();
    assert_eq!(what, ["SSH key root", "subnet subnet-9", "a machine, by a dry run"], "a missing right too");
    assert!(findings.iter().all(|finding| finding.what != "the fleet, by a dry run"), "refused for what was told");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_asked_is_no_certain_trouble() {
    let asked = [
        ("ec2:DescribeSubnets", 2),
        ("ec2:DescribeSecurityGroups", 1),
        ("ec2:DescribeImages", 1),
        ("ec2:DescribeInstanceTypes", 2),
        ("ec2:DescribeKeyPairs", 1),
        ("iam:GetInstanceProfile", 1),
        ("iam:GetRole", 1),
        ("iam:ListAttachedRolePolicies", 1),
        ("elasticloadbalancing:DescribeLoadBalancers", 1),
        ("elasticloadbalancing:DescribeTargetGroups", 1),
        ("elasticloadbalancing:DescribeTags", 2),
        (FLEET, 1),
        (MACHINE, 1),
    ];
    for (action, things) in asked {
        for (fault, word) in [(Fault::Denied, action), (Fault::Expired, "credentials"), (Fault::Hang, "in time")] {
            let world = full();
            world.aws.fail(action, fault, u32::MAX);
            let findings = check(&world).await;
            let troubles = troubles(&findings);
            assert_eq!(troubles.len(), things, "{action}: {troubles:?}");
            assert!(troubles.iter().all(|(.., all)| all.contains(word)), "{action} {fault:?}: {troubles:?}");
            let certain = findings.iter().filter_map(|finding| finding.outcome.as_ref().err());
            // Who may not ask for it dry may not ask for it either.
            let is_certain = [FLEET, MACHINE].contains(&action) && matches!(fault, Fault::Denied);
            assert!(certain.into_iter().all(|trouble| trouble.is_certain() == is_certain), "{action} {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_pages_are_read() {
    let world = full();
    world.aws.state().page = 1;
    assert_eq!(troubles(&check(&world).await), []);
}

#[tokio::test(start_paused = true)]
async fn the_amis_own_root_device_will_do() {
    let world = full().with(|pool| pool.root_volume.device = None);
    image(&mut world.aws.state(), Image { root: "/dev/sda1", ..Image::default() });
    assert_eq!(troubles(&check(&world).await), []);
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_bottlerocket_has_its_containers_on_the_second_volume_as_the_example_says() {
    let example = include_str!("../../../deploy/pools/bottlerocket.yaml");
    let device = example.lines().find_map(|line| line.trim().strip_prefix("device: ")?.split_whitespace().next());
    let world = full().with(|pool| pool.root_volume.device = device.map(str::to_owned));
    image(&mut world.aws.state(), Image::bottlerocket());
    assert_eq!((device, troubles(&check(&world).await)), (Some("/dev/xvdb"), vec![]));
    let launch = world.pool.launch(world.by(60)).await.unwrap();
    assert_eq!(launch.template.versions[0].machine.root_volume.device, "/dev/xvdb");
}

#[tokio::test(start_paused = true)]
async fn more_types_than_a_filter_takes_are_asked_for_in_several() {
    let kinds: Vec<_> = (0..201).map(|at| format!("m{at}.large")).collect();
    let world = full().with(|pool| {
        let offer = pool.offers[0].clone();
        pool.offers = kinds.iter().map(|kind| Offer { instance_type: kind.clone(), ..offer.clone() }).collect();
    });
    world.aws.state().market.types.extend(kinds);
    assert_eq!(troubles(&check(&world).await), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_found_of_two_subnets_in_one_zone_is_what_ec2_refuses() {
    let world = full().with(|pool| pool.subnets.push("subnet-b2".to_owned()));
    let (class, words) = said(world.ensure().await);
    assert_eq!(class, ErrorClass::Permanent);
    assert!(words.contains("`subnets`") && words.contains("duplicate instance pools"), "{words}");
}
