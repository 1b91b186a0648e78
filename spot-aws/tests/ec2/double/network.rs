//! What a pool names, and dry runs. What is described by its ID and is not there fails the whole call, as with EC2; what is
//! filtered for is absent.

use std::collections::{BTreeMap, BTreeSet};

use super::state::State;
use super::wire::{Answer, Refusal, Request, list, tag};

/// An AMI, as far as it is not like the others.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) state: &'static str,
    pub(crate) architecture: &'static str,
    pub(crate) root: &'static str,
    pub(crate) root_kind: &'static str,
    /// Of its root volume, in GiB.
    pub(crate) size: u32,
    /// Another volume, and its size.
    pub(crate) second: Option<(&'static str, u32)>,
}

impl Default for Image {
    fn default() -> Self {
        Self { state: "available", architecture: "x86_64", root: "/dev/xvda", root_kind: "ebs", size: 8, second: None }
    }
}

impl Image {
    /// As Bottlerocket is made: the system on the root volume, and containers on another.
    pub(crate) fn bottlerocket() -> Self {
        Self { size: 2, second: Some(("/dev/xvdb", 20)), ..Self::default() }
    }
}

/// An instance type, as far as it is not like the others.
#[derive(Clone, Debug)]
pub(crate) struct InstanceType {
    pub(crate) architectures: Vec<&'static str>,
    pub(crate) classes: Vec<&'static str>,
}

impl Default for InstanceType {
    fn default() -> Self {
        Self { architectures: vec!["i386", "x86_64"], classes: vec!["on-demand", "spot"] }
    }
}

/// What is said of things that are there by [`Market`](super::pools::Market).
#[derive(Debug)]
pub(crate) struct Network {
    /// States of subnets, and how many addresses are free.
    pub(crate) subnets: BTreeMap<String, (&'static str, u32)>,
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) types: BTreeMap<String, InstanceType>,
    pub(crate) keys: BTreeSet<String>,
    /// The roles that instance profiles hold.
    pub(crate) profiles: BTreeMap<String, Vec<String>>,
    /// What dry runs are refused with, by action: status, code and words.
    pub(crate) refuses: BTreeMap<&'static str, (u16, &'static str, &'static str)>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            subnets: BTreeMap::new(),
            images: BTreeMap::new(),
            types: BTreeMap::new(),
            keys: ["admin".to_owned()].into(),
            profiles: [("node".to_owned(), vec!["node".to_owned()])].into(),
            refuses: BTreeMap::new(),
        }
    }
}

pub(crate) fn answer(state: &State, request: &Request) -> Option<Result<Answer, Refusal>> {
    Some(match request.name.as_str() {
        "DescribeSubnets" => subnets(state, request),
        "DescribeSecurityGroups" => groups(state, request),
        "DescribeImages" => images(state, request),
        "DescribeInstanceTypes" => types(state, request),
        "DescribeKeyPairs" => keys(state, request),
        "RunInstances" => Err(rehearsed(state, request)),
        "RequestSpotFleet" if request.params.get("DryRun") == "true" => Err(rehearsed(state, request)),
        _ => return None,
    })
}

pub(crate) fn answer_iam(state: &State, request: &Request) -> Option<Result<Answer, Refusal>> {
    (request.name == "GetInstanceProfile").then(|| {
        let name = request.params.get("InstanceProfileName");
        let words = format!("Instance Profile {name} cannot be found.");
        let unknown = || Refusal::new(404, "NoSuchEntity", words);
        let roles = state.network.profiles.get(name).ok_or_else(unknown)?;
        let entity = |kind: &str, name: &str| {
            let arn = tag("Arn", format!("arn:aws:iam::123456789012:{kind}/{name}"));
            arn + &tag("Path", "/") + &tag("CreateDate", "2026-01-01T00:00:00Z")
        };
        let roles = roles.iter().map(|role| tag("RoleName", role) + &tag("RoleId", "AROA1") + &entity("role", role));
        let profile = tag("InstanceProfileName", name) + &tag("InstanceProfileId", "AIPA1");
        let profile = profile + &entity("instance-profile", name) + &list("Roles", "member", roles);
        Ok(request.query(&tag("InstanceProfile", profile)))
    })
}

/// Which of these were asked for: by ID, where one that is not there is an error, or by a filter.
fn asked<'a, T>(
    all: impl IntoIterator<Item = (&'a String, T)>,
    request: &Request,
    (id, filter, code): (&str, &str, &str),
) -> Result<Vec<(&'a String, T)>, Refusal> {
    let mut all: BTreeMap<_, _> = all.into_iter().collect();
    let ids = request.params.list(id);
    if let Some(unknown) = ids.iter().find(|id| !all.contains_key(id)) {
        return Err(Refusal::new(400, code, format!("The ID '{unknown}' does not exist")));
    }
    let name = request.params.get("Filter.1.Name");
    assert!(name.is_empty() || name == filter, "no filter that is known here: {name}");
    let values = request.params.list("Filter.1.Value");
    assert!(!(ids.is_empty() && values.is_empty()), "all there are, of all who share them");
    if values.len() > 200 {
        return Err(Refusal::new(400, "FilterLimitExceeded", "The maximum number of filter values is 200"));
    }
    all.retain(|name, _| ids.contains(name) || values.contains(name));
    Ok(all.into_iter().collect())
}

/// One page of what was asked for.
fn page(state: &State, request: &Request, name: &str, all: impl IntoIterator<Item = String>) -> Answer {
    let all: Vec<_> = all.into_iter().collect();
    let size = if state.page == 0 { 100 } else { state.page };
    let from: usize = request.params.get("NextToken").parse().unwrap_or_default();
    let mut content = list(name, "item", all.iter().skip(from).take(size).cloned());
    if from + size < all.len() {
        content += &tag("nextToken", from + size);
    }
    request.ec2(&content)
}

fn subnets(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let found = asked(&state.market.subnets, request, ("SubnetId", "subnet-id", "InvalidSubnetID.NotFound"))?;
    let one = |(id, (zone, vpc)): (&String, &(String, String))| {
        let (told, free) = state.network.subnets.get(id).copied().unwrap_or(("available", 251));
        let place = tag("availabilityZone", zone) + &tag("vpcId", vpc);
        tag("subnetId", id) + &place + &tag("state", told) + &tag("availableIpAddressCount", free)
    };
    Ok(page(state, request, "subnetSet", found.into_iter().map(one)))
}

fn groups(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let found = asked(&state.market.groups, request, ("GroupId", "group-id", "InvalidGroup.NotFound"))?;
    let one = |(id, vpc): (&String, &String)| tag("groupId", id) + &tag("vpcId", vpc);
    Ok(page(state, request, "securityGroupInfo", found.into_iter().map(one)))
}

fn images(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let all = state.market.images.iter().map(|id| (id, ()));
    if request.params.list("ImageId").iter().any(|id| !id.starts_with("ami-")) {
        return Err(Refusal::new(400, "InvalidAMIID.Malformed", "Invalid id"));
    }
    let found = asked(all, request, ("ImageId", "image-id", "InvalidAMIID.NotFound"))?;
    let one = |(id, ()): (&String, ())| {
        let image = state.network.images.get(id).cloned().unwrap_or_default();
        let volume = |(device, size): (&str, u32)| tag("deviceName", device) + &tag("ebs", tag("volumeSize", size));
        let root = (image.root_kind == "ebs").then_some((image.root, image.size));
        let mapping = list("blockDeviceMapping", "item", root.into_iter().chain(image.second).map(volume));
        let root = tag("rootDeviceType", image.root_kind) + &tag("rootDeviceName", image.root);
        tag("imageId", id)
            + &tag("imageState", image.state)
            + &tag("architecture", image.architecture)
            + &root
            + &mapping
    };
    Ok(page(state, request, "imagesSet", found.into_iter().map(one)))
}

fn types(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let all = state.market.types.iter().map(|name| (name, ()));
    let found = asked(all, request, ("InstanceType", "instance-type", "InvalidInstanceType"))?;
    let one = |(name, ()): (&String, ())| {
        let kind = state.network.types.get(name).cloned().unwrap_or_default();
        let texts = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let processor = list("supportedArchitectures", "item", texts(kind.architectures));
        let classes = list("supportedUsageClasses", "item", texts(kind.classes));
        tag("instanceType", name) + &tag("processorInfo", processor) + &classes
    };
    Ok(page(state, request, "instanceTypeSet", found.into_iter().map(one)))
}

fn keys(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let all = state.network.keys.iter().map(|name| (name, ()));
    let found = asked(all, request, ("KeyName", "key-name", "InvalidKeyPair.NotFound"))?;
    let one = |(name, ()): (&String, ())| tag("keyName", name) + &tag("keyPairId", "key-1");
    Ok(page(state, request, "keySet", found.into_iter().map(one)))
}

/// A dry run: an error whatever comes of it. What it names has to be there.
fn rehearsed(state: &State, request: &Request) -> Refusal {
    assert_eq!(request.params.get("DryRun"), "true", "machines are launched by fleets only");
    let action = request.action();
    if let Some((status, code, words)) = state.network.refuses.get(action.as_str()) {
        return Refusal::new(*status, code, *words);
    }
    let values = |end: &str| {
        let values = request.params.0.iter().filter(move |(key, _)| key.ends_with(end)).map(|(_, value)| value.clone());
        values.collect::<Vec<_>>()
    };
    let market = &state.market;
    let known = [
        (values("SubnetId"), market.subnets.keys().cloned().collect::<BTreeSet<_>>(), "InvalidSubnetID.NotFound"),
        (values("ImageId"), market.images.clone(), "InvalidAMIID.NotFound"),
        (values("InstanceType"), market.types.clone(), "InvalidParameterValue"),
        (values("KeyName"), state.network.keys.clone(), "InvalidKeyPair.NotFound"),
        (values("IamFleetRole"), market.roles.clone(), "InvalidSpotFleetRequestConfig"),
    ];
    for (named, there, code) in known {
        if let Some(unknown) = named.iter().find(|name| !there.contains(*name)) {
            return Refusal::new(400, code, format!("'{unknown}' does not exist"));
        }
    }
    assert!(!values("SubnetId").is_empty() && !values("ImageId").is_empty(), "{:?}", request.params);
    if let Some(refusal) = one_subnet_a_zone(state, &values("SubnetId")) {
        return refusal;
    }
    if action == "ec2:RunInstances" {
        // What organisations have policies on.
        assert_eq!(request.params.get("MetadataOptions.HttpTokens"), "required");
        assert_eq!(request.params.get("BlockDeviceMapping.1.Ebs.Encrypted"), "true");
        assert!(!request.params.get("BlockDeviceMapping.1.DeviceName").is_empty(), "{:?}", request.params);
    }
    Refusal::new(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
}

/// What a fleet of these subnets is refused with: it takes one of each zone.
pub(super) fn one_subnet_a_zone(state: &State, subnets: &[String]) -> Option<Refusal> {
    let mut by_zone = BTreeMap::new();
    let mut zones = subnets.iter().filter_map(|subnet| Some((state.market.subnets.get(subnet)?, subnet)));
    let is_second = zones.any(|(zone, subnet)| by_zone.insert(zone, subnet).is_some_and(|first| first != subnet));
    is_second.then(|| {
        let words = "The fleet configuration contains duplicate instance pools. A Spot Fleet request can't span different \
                     subnets from the same Availability Zone.";
        Refusal::new(400, "InvalidSpotFleetRequestConfig", words)
    })
}
