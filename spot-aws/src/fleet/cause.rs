//! Why EC2 or a fleet doesn't do what was asked for: a closed list, each with what helps.

use std::fmt;

use spot_core::error::PortError;

use crate::error::{CallError, Kind};

macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident: $said:literal;)*) => {
        /// Why EC2 or a fleet doesn't do what was asked for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause { $($(#[$doc])* $cause,)* }

        impl Cause {
            /// Every cause.
            pub const ALL: [Self; [$(Self::$cause),*].len()] = [$(Self::$cause),*];

            /// The reason, a colon, and the remedy.
            #[must_use]
            pub const fn said(self) -> &'static str {
                match self { $(Self::$cause => $said,)* }
            }
        }
    };
}

causes! {
    /// There is no room on spot.
    NoCapacity: "EC2 has no spot capacity for these instance types in these subnets: wait, or add instance types to \
                 `launchSpecifications`, or subnets in other zones";
    /// The price is too low.
    PriceTooLow: "the spot price is above `maxPrice`: raise it, or leave it out to pay up to the on-demand price";
    /// The quota of spot machines.
    SpotQuota: "the account's quota of spot instances in this region is used up: ask for more at Service Quotas (All \
                Standard Spot Instance Requests), or lower `targetCapacity`";
    /// The quota of fleets.
    FleetQuota: "the account's quota of Spot Fleets, or of what they all may want together, is used up in this region: \
                 delete fleets that are not needed, lower `targetCapacity`, or ask for more at Service Quotas";
    /// No such type.
    UnknownType: "EC2 has no instance type of this name in this region: correct `instanceType` in `launchSpecifications`";
    /// Not in this zone.
    NotInZone: "a zone doesn't have this instance type: take it out of `launchSpecifications`, or the zone's subnet out of \
                `subnets`";
    /// No such subnet.
    UnknownSubnet: "there is no such subnet in this region: correct `subnets`";
    /// More than one network.
    OtherNetwork: "subnets and security groups are not all of one VPC: correct `subnets` and `securityGroups`";
    /// No such group.
    UnknownGroup: "there is no such security group: correct `securityGroups`";
    /// Too many machines.
    SubnetFull: "a subnet has no free addresses left: add another subnet to `subnets`";
    /// No such image.
    UnknownImage: "there is no such AMI for this account in this region: correct `image`, or share it";
    /// Image and type don't fit.
    WrongArchitecture: "the AMI is of another architecture than an instance type: correct `image` or `instanceType`";
    /// No such key.
    UnknownKey: "there is no SSH key of this name in this region: correct `sshKey`, or leave it out";
    /// No such profile.
    UnknownProfile: "there is no such instance profile: correct `instanceProfile`, or create it";
    /// The role is missing, or trusts others.
    Role: "the fleet's role, by which Spot Fleet launches and tags instances for this account, is missing, does not trust \
           Spot Fleet, or has not the rights that it needs: run `spot-fleet create-role`, or correct `fleetRole`";
    /// The role may not be given.
    PassRole: "you may not hand the fleet's role or the instances' role to EC2 (iam:PassRole): attach \
               deploy/iam/spot-fleet.json, which allows it, with the names of both roles";
    /// The role of EC2 itself.
    ServiceRole: "the role that EC2 itself needs for spot instances is missing in this account, and you may not create it: \
                  run `spot-fleet create-role` with the right iam:CreateServiceLinkedRole";
    /// The user may not.
    Denied: "a right is missing: attach deploy/iam/spot-fleet.json and deploy/iam/spot-migrator.json to the role or user \
             that runs this";
    /// Quota of volumes.
    VolumeQuota: "the account's quota of EBS storage or IOPS in this region is used up: ask for more at Service Quotas, or \
                  lower `unitRootVolumeSize` or `unitRootVolumeIops`";
    /// The key of the volumes.
    VolumeKey: "the KMS key of the root volumes is missing, disabled, or not shared with the role \
                AWSServiceRoleForEC2SpotFleet: correct `rootVolume.kmsKey` or the key's policy";
    /// Somebody deleted it.
    TemplateGone: "the launch template or a version of it is gone: run `spot-fleet create` again";
    /// Its name is taken.
    NameTaken: "there is a launch template of the pool's name, and EC2 does not tell of it: where it was made a moment ago, \
                wait a minute, and run it again; where it is somebody else's, give the pool another name";
    /// The same token for something else.
    OtherParameters: "the same was asked for a moment ago with other parameters, and EC2 does not tell of it yet: wait a \
                      minute, and run it again";
    /// Not registered.
    Balancer: "instances could not be registered with a load balancer: see that those of `loadBalancers` and `targetGroups` \
               are there and in the same VPC, and that the fleet's role may register instances";
    /// Whatever else EC2 does not like.
    Configuration: "EC2 doesn't accept the pool's configuration: see its words, and run `spot-fleet plan` for what is asked";
    /// The fleet gives up for a while.
    Refused: "EC2 refused to launch again and again, and the fleet pauses: see its words for which instance type and why";
}

/// What EC2 says in its code, or within its words.
const CODES: [(&str, Cause); 46] = [
    ("InsufficientInstanceCapacity", Cause::NoCapacity),
    ("UnfulfillableCapacity", Cause::NoCapacity),
    ("no Spot capacity available", Cause::NoCapacity),
    ("SpotMaxPriceTooLow", Cause::PriceTooLow),
    ("Max Price too low", Cause::PriceTooLow),
    ("price is too low", Cause::PriceTooLow),
    ("MaxSpotFleetRequestCountExceeded", Cause::FleetQuota),
    ("MaxSpotInstanceCountExceeded", Cause::SpotQuota),
    ("Max spot instance count exceeded", Cause::SpotQuota),
    ("VcpuLimitExceeded", Cause::SpotQuota),
    ("InstanceLimitExceeded", Cause::SpotQuota),
    ("InvalidInstanceType", Cause::UnknownType),
    ("for InstanceType", Cause::UnknownType),
    ("instanceType is invalid", Cause::UnknownType),
    ("not supported in your requested Availability Zone", Cause::NotInZone),
    ("InvalidSubnetID", Cause::UnknownSubnet),
    ("subnet ID", Cause::UnknownSubnet),
    ("different networks", Cause::OtherNetwork),
    ("different VPC", Cause::OtherNetwork),
    ("not in the same VPC", Cause::OtherNetwork),
    ("InvalidGroup", Cause::UnknownGroup),
    ("InvalidSecurityGroupID", Cause::UnknownGroup),
    ("InsufficientFreeAddressesInSubnet", Cause::SubnetFull),
    ("InvalidAMIID", Cause::UnknownImage),
    ("does not match the architecture", Cause::WrongArchitecture),
    ("InvalidKeyPair", Cause::UnknownKey),
    ("Invalid IAM Instance Profile", Cause::UnknownProfile),
    ("iamInstanceProfile", Cause::UnknownProfile),
    ("iamFleetRole", Cause::Role),
    ("IamFleetRole", Cause::Role),
    ("fleet role", Cause::Role),
    ("iam:PassRole", Cause::PassRole),
    ("ServiceLinkedRoleCreationNotPermitted", Cause::ServiceRole),
    ("service-linked role", Cause::ServiceRole),
    ("VolumeLimitExceeded", Cause::VolumeQuota),
    ("MaxIOPSLimitExceeded", Cause::VolumeQuota),
    ("InvalidKMSKey", Cause::VolumeKey),
    ("KmsKey", Cause::VolumeKey),
    ("InvalidLaunchTemplateName.AlreadyExists", Cause::NameTaken),
    ("InvalidLaunchTemplate", Cause::TemplateGone),
    ("IdempotentParameterMismatch", Cause::OtherParameters),
    ("InvalidSpotFleetRequestConfig", Cause::Configuration),
    ("InvalidParameter", Cause::Configuration),
    ("InvalidLoadBalancer", Cause::Balancer),
    ("UnauthorizedOperation", Cause::Denied),
    ("AccessDenied", Cause::Denied),
];

impl Cause {
    /// The cause that a code or words of EC2 name.
    #[must_use]
    pub fn named_in(text: &str) -> Option<Self> {
        CODES.iter().find(|(part, _)| text.contains(part)).map(|(_, cause)| *cause)
    }

    /// What one of a fleet's own events is about.
    #[must_use]
    pub fn of_event(kind: &str, subtype: &str, words: &str) -> Option<Self> {
        let named = Self::named_in(words);
        match subtype {
            "iamFleetRoleInvalid" => Some(Self::Role),
            "spotInstanceCountLimitExceeded" => Some(Self::SpotQuota),
            "launchSpecUnusable" | "fleetProgressHalted" => Some(Self::PriceTooLow),
            "registerWithLoadBalancersFailed" => Some(Self::Balancer),
            "spotFleetRequestConfigurationInvalid" => Some(named.unwrap_or(Self::Configuration)),
            "launchSpecTemporarilyBlacklisted" | "allLaunchSpecsTemporarilyBlacklisted" => {
                Some(named.unwrap_or(Self::Refused))
            }
            _ if kind == "error" => Some(named.unwrap_or(Self::Configuration)),
            _ => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.said())
    }
}

/// A refusal in words that help, with EC2's own behind them.
pub(super) fn explained(error: CallError) -> PortError {
    let cause = match error.kind {
        Kind::Refused | Kind::Denied => Cause::named_in(&format!("{}: {}", error.code, error.words)),
        Kind::Throttled | Kind::Unavailable | Kind::Timeout | Kind::Credentials => None,
    };
    let error = PortError::from(error);
    match cause {
        Some(cause) => PortError::new(error.class, cause.said()).caused_by(error),
        None => error,
    }
}
