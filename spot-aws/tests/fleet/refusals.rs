//! What EC2 refuses, in words that help.

use spot_aws::fleet::{Cause, Pool};
use spot_core::error::ErrorClass;

use crate::double::Fault;
use crate::double::pools::Market;
use crate::world::{World, said};

/// What is said of a pool that EC2 does not make: its class, the sentence on top, and the whole chain.
async fn refused(change: impl FnOnce(&mut Pool), market: impl FnOnce(&mut Market)) -> (ErrorClass, String) {
    let world = World::new().with(change);
    market(&mut world.aws.state().market);
    let answer = world.ensure().await;
    assert!(world.alive().is_empty());
    said(answer)
}

/// That it is said what is wrong and what helps, with EC2's own words behind.
#[track_caller]
fn assert_says((class, words): (ErrorClass, String), cause: Cause, behind: &str) {
    assert_ne!(class, ErrorClass::Transient, "{words}");
    assert!(words.starts_with(cause.said()), "{words}");
    assert!(words[cause.said().len()..].contains(behind), "{words}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_type_that_is_not_there() {
    let answer = refused(|pool| pool.offers[0].instance_type = "m9.mega".to_owned(), |_| {}).await;
    assert_says(answer, Cause::UnknownType, "m9.mega");
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_not_there() {
    let answer = refused(|pool| pool.image = "ami-00000000000000009".to_owned(), |_| {}).await;
    assert_says(answer, Cause::UnknownImage, "InvalidAMIID.NotFound");
}

#[tokio::test(start_paused = true)]
async fn a_subnet_of_another_network_or_of_none() {
    let answer = refused(|pool| pool.subnets[1] = "subnet-x".to_owned(), |_| {}).await;
    assert_says(answer, Cause::OtherNetwork, "different networks");
    let answer = refused(|pool| pool.subnets[1] = "subnet-z".to_owned(), |_| {}).await;
    assert_says(answer, Cause::UnknownSubnet, "subnet-z");
    let answer = refused(|pool| pool.security_groups = vec!["sg-9".to_owned()], |_| {}).await;
    assert_says(answer, Cause::UnknownGroup, "sg-9");
}

#[tokio::test(start_paused = true)]
async fn a_role_that_is_missing_or_may_not_be_handed_over() {
    let answer = refused(|_| {}, |market| market.roles.clear()).await;
    assert_says(answer, Cause::Role, "IamFleetRole is invalid");
    assert!(Cause::Role.said().contains("spot-fleet create-role"));
    let answer = refused(|_| {}, |market| market.passes_role = false).await;
    assert_eq!(answer.0, ErrorClass::Denied);
    assert_says(answer, Cause::PassRole, "iam:PassRole on resource");
}

#[tokio::test(start_paused = true)]
async fn a_role_by_its_name_is_looked_up_and_said_to_be_missing() {
    let (class, words) = refused(|pool| pool.fleet_role = "nobody".to_owned(), |_| {}).await;
    assert_eq!(class, ErrorClass::Permanent);
    assert!(words.starts_with("role nobody is missing") && words.contains("spot-fleet create-role"), "{words}");
    assert!(words.contains("NoSuchEntity"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_used_up() {
    let answer = refused(|_| {}, |market| market.fleets = 0).await;
    assert_says(answer, Cause::FleetQuota, "MaxSpotFleetRequestCountExceeded");
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing() {
    let world = World::new();
    world.aws.fail("ec2:CreateLaunchTemplate", Fault::Denied, u32::MAX);
    assert_says(said(world.ensure().await), Cause::Denied, "ec2:CreateLaunchTemplate");
}

#[test]
fn every_refusal_that_ec2_has_for_a_pool_has_its_cause() {
    for (code, words, cause) in [
        ("MaxSpotFleetRequestCountExceeded", "", Cause::FleetQuota),
        ("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded", Cause::SpotQuota),
        ("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit", Cause::SpotQuota),
        ("InsufficientInstanceCapacity", "", Cause::NoCapacity),
        ("UnfulfillableCapacity", "", Cause::NoCapacity),
        ("SpotMaxPriceTooLow", "Your Spot request price of 0.01 is lower", Cause::PriceTooLow),
        (
            "SpotMaxPriceTooLow",
            "Your Spot request price of 0.01 is lower than the minimum required Spot request fulfillment price of 0.03.",
            Cause::PriceTooLow,
        ),
        ("InvalidParameterValue", "Invalid value 'm9.mega' for InstanceType.", Cause::UnknownType),
        (
            "Unsupported",
            "Your requested instance type (m9.mega) is not supported in your requested Availability Zone (eu-west-1c).",
            Cause::NotInZone,
        ),
        (
            "InvalidSpotFleetRequestConfig",
            "A Spot Fleet request can't span different subnets from the same Availability Zone.",
            Cause::SameZone,
        ),
        ("InvalidParameterValue", "The request contains duplicate instance pools.", Cause::SameZone),
        ("InvalidInstanceType", "", Cause::UnknownType),
        ("InvalidSubnetID.NotFound", "The subnet ID 'subnet-1' does not exist", Cause::UnknownSubnet),
        (
            "InvalidParameter",
            "Security group sg-1 and subnet subnet-1 belong to different networks.",
            Cause::OtherNetwork,
        ),
        ("InsufficientFreeAddressesInSubnet", "", Cause::SubnetFull),
        ("InvalidKeyPair.NotFound", "The key pair 'ops' does not exist", Cause::UnknownKey),
        (
            "InvalidParameterValue",
            "Value (node) for parameter iamInstanceProfile.name is invalid.",
            Cause::UnknownProfile,
        ),
        ("InvalidSpotFleetRequestConfig", "Parameter: SpotFleetRequestConfig.IamFleetRole is invalid.", Cause::Role),
        (
            "InvalidSpotFleetRequestConfig",
            "Parameter: SpotFleetRequestConfig.ValidUntil is invalid.",
            Cause::Configuration,
        ),
        ("UnauthorizedOperation", "is not authorized to perform: iam:PassRole on resource: x", Cause::PassRole),
        ("UnauthorizedOperation", "is not authorized to perform: ec2:RequestSpotFleet", Cause::Denied),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "", Cause::ServiceRole),
        ("IdempotentParameterMismatch", "", Cause::OtherParameters),
    ] {
        assert_eq!(Cause::named_in(&format!("{code}: {words}")), Some(cause), "{code}: {words}");
    }
    assert_eq!(Cause::named_in("RequestLimitExceeded: Request limit exceeded."), None);
}

#[test]
fn every_event_that_tells_of_a_failure_has_its_cause_and_no_other() {
    let no_room = "m5.large, ami-1, Linux/UNIX (Amazon VPC), eu-west-1a while attempting to launch. Error message: There \
                   is no Spot capacity available that matches your request. (Error Code: InsufficientInstanceCapacity)";
    let no_room_yet = "m5.large, ami-1, Linux/UNIX, eu-west-1a: We currently do not have sufficient p2.xlarge capacity in the \
                       Availability Zone you requested (eu-west-1a).";
    let cheaper = "m3.medium, ami-1, Linux/UNIX (Amazon VPC), eu-west-1a, Spot bid price is less than Spot market price \
                   $0.0090";
    let elsewhere = "m9.mega, ami-1, Linux/UNIX, eu-west-1c, The requested instance type is not supported in the requested \
                     Availability Zone.";
    for (kind, subtype, words, cause) in [
        ("error", "spotFleetRequestConfigurationInvalid", no_room_yet, Some(Cause::NoCapacity)),
        ("error", "spotFleetRequestConfigurationInvalid", "Spot Max Instance Count Exceeded", Some(Cause::SpotQuota)),
        ("information", "launchSpecUnusable", cheaper, Some(Cause::PriceTooLow)),
        ("information", "launchSpecUnusable", elsewhere, Some(Cause::NotInZone)),
        ("error", "iamFleetRoleInvalid", "", Some(Cause::Role)),
        ("error", "allLaunchSpecsTemporarilyBlacklisted", no_room, Some(Cause::NoCapacity)),
        ("error", "spotInstanceCountLimitExceeded", "", Some(Cause::SpotQuota)),
        ("error", "spotFleetRequestConfigurationInvalid", "InvalidAMIID.NotFound", Some(Cause::UnknownImage)),
        ("error", "spotFleetRequestConfigurationInvalid", "", Some(Cause::Configuration)),
        ("error", "somethingNew", "", Some(Cause::Configuration)),
        ("information", "launchSpecTemporarilyBlacklisted", no_room, Some(Cause::NoCapacity)),
        ("information", "launchSpecTemporarilyBlacklisted", "", Some(Cause::Refused)),
        ("information", "launchSpecUnusable", "", Some(Cause::PriceTooLow)),
        ("information", "fleetProgressHalted", "", Some(Cause::PriceTooLow)),
        ("information", "registerWithLoadBalancersFailed", "", Some(Cause::Balancer)),
        ("information", "somethingNew", "", None),
        ("instanceChange", "launched", "", None),
        ("instanceChange", "terminated", "", None),
        ("instanceChange", "termination_notified", "", None),
        ("fleetRequestChange", "active", "", None),
        ("fleetRequestChange", "modify_in_progress", "", None),
    ] {
        assert_eq!(Cause::of_event(kind, subtype, words), cause, "{kind} {subtype} {words}");
    }
}

#[test]
fn a_machine_that_ends_by_itself_has_its_cause_and_one_that_was_told_to_none() {
    for (code, words, cause) in [
        ("Client.InternalError", "Client.InternalError: Client error on launch", Some(Cause::VolumeKey)),
        ("Client.InvalidKMSKey.InvalidState", "", Some(Cause::VolumeKey)),
        ("Client.VolumeLimitExceeded", "Volume limit exceeded", Some(Cause::VolumeQuota)),
        ("Server.InsufficientInstanceCapacity", "", Some(Cause::NoCapacity)),
        ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown", Some(Cause::Died)),
        ("Server.InternalError", "Internal error on launch", Some(Cause::Died)),
        ("Client.UserInitiatedShutdown", "User initiated shutdown", None),
        ("Server.SpotInstanceTermination", "Spot instance termination", None),
        ("", "", None),
    ] {
        assert_eq!(Cause::of_end(code, words), cause, "{code}: {words}");
    }
}

#[test]
fn every_cause_says_a_reason_and_a_remedy_in_one_sentence() {
    for cause in Cause::ALL {
        let (reason, remedy) = cause.said().split_once(": ").unwrap_or_else(|| panic!("{cause}"));
        assert!(!reason.is_empty() && !remedy.is_empty() && !cause.said().ends_with('.'), "{cause}");
        assert!(!cause.said().contains("  "), "{cause}");
    }
}
