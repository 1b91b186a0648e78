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
    /// Two subnets of one zone.
    SameZone: "a Spot Fleet has one subnet in each zone, and two of `subnets` are in the same one: keep one of them";
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
    TemplateGone: "the launch template of the pool's fleet, or a version of it, is gone, and the fleet launches nothing any \
                   more: add a tag to `tags` in the pool's file, and run `spot-fleet roll`; where no fleet is there yet, run \
                   `spot-fleet create` again";
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
    /// A machine did not live.
    Died: "machines end by themselves as they start: see EC2's words, and what the user data and the AMI do";
    /// The fleet gives up for a while.
    Refused: "EC2 refused to launch again and again, and the fleet pauses: see its words for which instance type and why";
}

/// What EC2 says in its code, or within its words, in lower case: it writes the same in several ways.
const CODES: [(&str, Cause); 55] = [
    ("insufficientinstancecapacity", Cause::NoCapacity),
    ("unfulfillablecapacity", Cause::NoCapacity),
    ("no spot capacity available", Cause::NoCapacity),
    ("do not have sufficient", Cause::NoCapacity),
    ("spotmaxpricetoolow", Cause::PriceTooLow),
    ("max price too low", Cause::PriceTooLow),
    ("price is too low", Cause::PriceTooLow),
    ("less than spot market price", Cause::PriceTooLow),
    ("fulfillment price", Cause::PriceTooLow),
    ("maxspotfleetrequestcountexceeded", Cause::FleetQuota),
    ("maxspotinstancecountexceeded", Cause::SpotQuota),
    ("max spot instance count exceeded", Cause::SpotQuota),
    ("spot max instance count exceeded", Cause::SpotQuota),
    ("vcpulimitexceeded", Cause::SpotQuota),
    ("instancelimitexceeded", Cause::SpotQuota),
    ("invalidinstancetype", Cause::UnknownType),
    ("for instancetype", Cause::UnknownType),
    ("instancetype is invalid", Cause::UnknownType),
    ("not supported in your requested availability zone", Cause::NotInZone),
    ("not supported in the requested availability zone", Cause::NotInZone),
    ("same availability zone", Cause::SameZone),
    ("duplicate instance pools", Cause::SameZone),
    ("invalidsubnetid", Cause::UnknownSubnet),
    ("subnet id", Cause::UnknownSubnet),
    ("different networks", Cause::OtherNetwork),
    ("different vpc", Cause::OtherNetwork),
    ("not in the same vpc", Cause::OtherNetwork),
    ("invalidgroup", Cause::UnknownGroup),
    ("invalidsecuritygroupid", Cause::UnknownGroup),
    ("insufficientfreeaddressesinsubnet", Cause::SubnetFull),
    ("insufficient free addresses", Cause::SubnetFull),
    ("invalidamiid", Cause::UnknownImage),
    ("does not match the architecture", Cause::WrongArchitecture),
    ("invalidkeypair", Cause::UnknownKey),
    ("invalid iam instance profile", Cause::UnknownProfile),
    ("iaminstanceprofile", Cause::UnknownProfile),
    ("iamfleetrole", Cause::Role),
    ("fleet role", Cause::Role),
    ("iam:passrole", Cause::PassRole),
    ("servicelinkedrolecreationnotpermitted", Cause::ServiceRole),
    ("service-linked role", Cause::ServiceRole),
    ("volumelimitexceeded", Cause::VolumeQuota),
    ("maxiopslimitexceeded", Cause::VolumeQuota),
    ("invalidkmskey", Cause::VolumeKey),
    ("kmskey", Cause::VolumeKey),
    // EC2 does not say more of a machine whose encrypted volume could not be opened.
    ("client.internalerror", Cause::VolumeKey),
    ("client error on launch", Cause::VolumeKey),
    ("invalidlaunchtemplatename.alreadyexists", Cause::NameTaken),
    ("invalidlaunchtemplate", Cause::TemplateGone),
    ("idempotentparametermismatch", Cause::OtherParameters),
    ("invalidspotfleetrequestconfig", Cause::Configuration),
    ("invalidparameter", Cause::Configuration),
    ("invalidloadbalancer", Cause::Balancer),
    ("unauthorizedoperation", Cause::Denied),
    ("accessdenied", Cause::Denied),
];

/// Why EC2 ends a machine that nothing is wrong with: it was asked to, or takes it back.
const ORDERLY: [&str; 3] =
    ["client.userinitiatedshutdown", "server.spotinstancetermination", "server.spotinstanceshutdown"];

impl Cause {
    /// The cause that a code or words of EC2 name.
    #[must_use]
    pub fn named_in(text: &str) -> Option<Self> {
        let text = text.to_lowercase();
        CODES.iter().find(|(part, _)| text.contains(part)).map(|(_, cause)| *cause)
    }

    /// Why a machine has ended, by EC2's code and words for it; none: nothing is wrong.
    #[must_use]
    pub fn of_end(code: &str, words: &str) -> Option<Self> {
        let is_orderly = code.is_empty() || ORDERLY.contains(&code.to_lowercase().as_str());
        (!is_orderly).then(|| Self::named_in(&format!("{code}: {words}")).unwrap_or(Self::Died))
    }

    /// What one of a fleet's own events is about.
    #[must_use]
    pub fn of_event(kind: &str, subtype: &str, words: &str) -> Option<Self> {
        let named = Self::named_in(words);
        match subtype {
            "iamFleetRoleInvalid" => Some(Self::Role),
            "spotInstanceCountLimitExceeded" => Some(Self::SpotQuota),
            "launchSpecUnusable" | "fleetProgressHalted" => Some(named.unwrap_or(Self::PriceTooLow)),
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
