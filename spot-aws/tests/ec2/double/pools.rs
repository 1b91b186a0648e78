//! Spot Fleet requests of pools. Stricter than EC2, which finds out much of this only when it launches: what a request
//! names has to be there when it is made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::network::one_subnet_a_zone;
use super::state::{Fleet, Instance, State};
use super::templates::{remember, repeated};
use super::wire::{Answer, Params, Refusal, Request, list, tag};

impl Asked {
    /// Has EC2 forget it, but not the token that it was asked for with.
    pub(crate) fn forget(&mut self) {
        self.told_from = Instant::now() + Duration::from_hours(48);
    }
}

/// What can be had.
#[derive(Debug)]
pub(crate) struct Market {
    pub(crate) types: BTreeSet<String>,
    pub(crate) images: BTreeSet<String>,
    /// Zones and networks by subnet.
    pub(crate) subnets: BTreeMap<String, (String, String)>,
    /// Networks by security group.
    pub(crate) groups: BTreeMap<String, String>,
    pub(crate) roles: BTreeSet<String>,
    /// The most fleets.
    pub(crate) fleets: usize,
    /// Whether the caller may hand over the role.
    pub(crate) passes_role: bool,
    /// What an hour costs, by type and zone.
    pub(crate) prices: BTreeMap<(String, String), String>,
}

impl Default for Market {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let subnet = |name: &str, zone: &str, vpc: &str| (name.to_owned(), (zone.to_owned(), vpc.to_owned()));
        let prices = [(("m5.large", "eu-west-1a"), "0.035"), (("m5.xlarge", "eu-west-1b"), "0.0801")];
        Self {
            types: names(&["m5.large", "m5.xlarge", "c5.2xlarge"]),
            images: names(&["ami-00000000000000001", "ami-00000000000000002"]),
            subnets: [
                subnet("subnet-a", "eu-west-1a", "vpc-1"),
                subnet("subnet-b", "eu-west-1b", "vpc-1"),
                subnet("subnet-b2", "eu-west-1b", "vpc-1"),
                subnet("subnet-x", "eu-west-1a", "vpc-2"),
            ]
            .into(),
            groups: [("sg-1".to_owned(), "vpc-1".to_owned())].into(),
            roles: names(&["arn:aws:iam::123456789012:role/fleet"]),
            fleets: 100,
            passes_role: true,
            prices: prices.map(|((kind, zone), price)| ((kind.to_owned(), zone.to_owned()), price.to_owned())).into(),
        }
    }
}

/// What a fleet was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    params: Params,
    created: Timestamp,
    pub(crate) told_from: Instant,
    pub(crate) events: Vec<Event>,
}

/// What a fleet says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: Timestamp,
    pub(crate) kind: &'static str,
    pub(crate) subtype: &'static str,
    pub(crate) words: String,
}

pub(crate) fn answer(state: &mut State, request: &Request) -> Option<Result<Answer, Refusal>> {
    Some(match request.name.as_str() {
        "RequestSpotFleet" => ask(state, request),
        "CancelSpotFleetRequests" => Ok(cancel(state, request)),
        "DescribeSpotFleetRequestHistory" => history(state, request),
        "DescribeSpotPriceHistory" => Ok(prices(state, request)),
        _ => return None,
    })
}

const CONFIG: &str = "SpotFleetRequestConfig";

/// What a request offers: type, subnet, weight, and the template and version behind it.
fn offers(params: &Params) -> Vec<[String; 5]> {
    let mut offers = Vec::new();
    for config in 1.. {
        let template = format!("{CONFIG}.LaunchTemplateConfigs.{config}.LaunchTemplateSpecification");
        let get = |name: &str| params.get(&format!("{template}.{name}")).to_owned();
        if get("LaunchTemplateId").is_empty() {
            return offers;
        }
        for at in 1.. {
            let part = |name: &str| {
                params.get(&format!("{CONFIG}.LaunchTemplateConfigs.{config}.Overrides.{at}.{name}")).to_owned()
            };
            if part("InstanceType").is_empty() {
                break;
            }
            let weight = part("WeightedCapacity");
            offers.push([part("InstanceType"), part("SubnetId"), weight, get("LaunchTemplateId"), get("Version")]);
        }
    }
    offers
}

fn ask(state: &mut State, request: &Request) -> Result<Answer, Refusal> {
    let params = &request.params;
    let get = |name: &str| params.get(&format!("{CONFIG}.{name}"));
    let refuse = |code: &str, words: String| Err(Refusal::new(400, code, words));
    let token = get("ClientToken");
    if let Some(id) = repeated(state, token, &params.0)? {
        return Ok(request.ec2(&tag("spotFleetRequestId", id)));
    }
    assert_eq!((get("Type"), get("ExcessCapacityTerminationPolicy")), ("maintain", "noTermination"));
    assert_eq!(get("ReplaceUnhealthyInstances"), "false");
    let tags = params.tags(&format!("{CONFIG}.TagSpecification"), "spot-fleet-request");
    for key in ["spot-migrator.io/pool", "spot-migrator.io/pool-hash", "spot-migrator.io/capacity", "Name"] {
        assert!(tags.contains_key(key), "{key}: {tags:?}");
    }
    if !state.market.passes_role {
        let words = "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/ops is not \
                     authorized to perform: iam:PassRole on resource";
        return Err(Refusal::new(403, "UnauthorizedOperation", words));
    }
    if !state.market.roles.contains(get("IamFleetRole")) {
        let words = "Parameter: SpotFleetRequestConfig.IamFleetRole is invalid.".to_owned();
        return refuse("InvalidSpotFleetRequestConfig", words);
    }
    let alive = |fleet: &&Fleet| fleet.ended.is_none();
    if state.fleets.values().filter(alive).count() >= state.market.fleets {
        return refuse("MaxSpotFleetRequestCountExceeded", "Max spot fleet request count exceeded".to_owned());
    }
    let offers = offers(params);
    assert!(!offers.is_empty());
    let mut networks: BTreeSet<&String> = BTreeSet::new();
    for [kind, subnet, weight, template, version] in &offers {
        if !state.market.types.contains(kind) {
            return refuse("InvalidParameterValue", format!("Invalid value '{kind}' for InstanceType."));
        }
        let Some((_, network)) = state.market.subnets.get(subnet) else {
            return refuse("InvalidSubnetID.NotFound", format!("The subnet ID '{subnet}' does not exist"));
        };
        networks.insert(network);
        assert!(weight.parse::<f64>().is_ok_and(|weight| weight >= 1.0 && weight.fract() == 0.0), "{weight}");
        let version = state.templates.get(template).and_then(|one| one.versions.get(&version.parse().ok()?));
        let Some(version) = version else {
            return refuse("InvalidLaunchTemplateId.VersionNotFound", format!("Could not find {template}"));
        };
        for group in version.data.list("LaunchTemplateData.SecurityGroupId") {
            let Some(network) = state.market.groups.get(&group) else {
                return refuse("InvalidGroup.NotFound", format!("The security group '{group}' does not exist"));
            };
            networks.insert(network);
        }
    }
    if networks.len() > 1 {
        return refuse("InvalidParameter", "Security group and subnet belong to different networks.".to_owned());
    }
    let subnets: Vec<_> = offers.iter().map(|[_, subnet, ..]| subnet.clone()).collect();
    if let Some(refusal) = one_subnet_a_zone(state, &subnets) {
        return Err(refusal);
    }
    let number = state.fleets.len();
    let created = "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + Duration::from_secs(number as u64);
    let id = format!("sfr-{number:08x}-0000-4000-8000-000000000000");
    let weights = offers.iter().map(|[kind, _, weight, ..]| (kind.clone(), weight.clone())).collect();
    let event = Event { at: created, kind: "fleetRequestChange", subtype: "submitted", words: String::new() };
    let told_from = Instant::now() + state.lag;
    let asked = Asked { params: params.clone(), created, told_from, events: vec![event] };
    let target = get("TargetCapacity").parse().unwrap();
    let fleet = Fleet { target, terminates_excess: false, weights, tags, asked: Some(asked), ..Fleet::maintaining() };
    state.fleets.insert(id.clone(), fleet);
    remember(state, token, &params.0, &id);
    Ok(request.ec2(&tag("spotFleetRequestId", id)))
}

/// The part of a fleet's description that says what it was asked for.
pub(super) fn described(asked: &Asked) -> String {
    let told = |name: &str| asked.params.get(&format!("{CONFIG}.{name}")).to_owned();
    tag("launchTemplateConfigs", asked.params.told(&format!("{CONFIG}.LaunchTemplateConfigs"), ""))
        + &tag("iamFleetRole", told("IamFleetRole"))
        + &tag("allocationStrategy", told("AllocationStrategy"))
        + &tag("instanceInterruptionBehavior", told("InstanceInterruptionBehavior"))
        + &tag("replaceUnhealthyInstances", told("ReplaceUnhealthyInstances"))
}

/// When it was asked for.
pub(super) fn created(asked: &Asked) -> String {
    tag("createTime", asked.created)
}

/// Makes an instance that a fleet launches what the fleet was asked for: of its offers, the next.
pub(super) fn shape(state: &State, asked: &Asked, launched: usize, instance: &mut Instance) {
    let offers = offers(&asked.params);
    let [kind, subnet, _, template, version] = &offers[launched % offers.len()];
    instance.kind.clone_from(kind);
    instance.subnet.clone_from(subnet);
    instance.zone.clone_from(&state.market.subnets[subnet].0);
    instance.lifecycle = Some("spot");
    instance.launched = asked.created + Duration::from_secs(launched as u64);
    let data = &state.templates[template].versions[&version.parse().unwrap()].data;
    instance.tags.extend(data.tags("LaunchTemplateData.TagSpecification", "instance"));
}

fn cancel(state: &mut State, request: &Request) -> Answer {
    assert_eq!(request.params.get("TerminateInstances"), "true", "nothing is left behind");
    let (mut ended, mut refused) = (Vec::new(), Vec::new());
    for id in request.params.list("SpotFleetRequestId") {
        let refusal =
            |code: &str| tag("spotFleetRequestId", &id) + &tag("error", tag("code", code) + &tag("message", code));
        let lag = state.lag;
        match state.fleets.get_mut(&id) {
            None => refused.push(refusal("fleetRequestIdDoesNotExist")),
            Some(fleet) if fleet.ended.is_some() || fleet.state() == "modifying" => {
                refused.push(refusal("fleetRequestNotInCancellableState"));
            }
            Some(fleet) => {
                state.late_fleets.note(&id, fleet, lag);
                fleet.ended = Some("cancelled_terminating");
                let alive = |id: &&String| state.instances.get(*id).is_some_and(Instance::is_alive);
                for member in fleet.members.iter().filter(alive).cloned().collect::<Vec<_>>() {
                    state.victims.push(member.clone());
                    state.shut_down(&member);
                }
                ended.push(
                    tag("spotFleetRequestId", &id) + &tag("currentSpotFleetRequestState", "cancelled_terminating"),
                );
            }
        }
    }
    let content =
        list("successfulFleetRequestSet", "item", ended) + &list("unsuccessfulFleetRequestSet", "item", refused);
    request.ec2(&content)
}

fn history(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let id = request.params.get("SpotFleetRequestId");
    let asked = state.fleets.get(id).and_then(|fleet| fleet.asked.as_ref());
    let unknown = || Refusal::new(400, "InvalidSpotFleetRequestId.NotFound", format!("'{id}' does not exist"));
    let since: Timestamp = request.params.get("StartTime").parse().unwrap();
    let is_told = |asked: &&Asked| Instant::now() >= asked.told_from;
    let events = &asked.filter(is_told).ok_or_else(unknown)?.events;
    let events: Vec<_> = events.iter().filter(|event| event.at >= since).collect();
    let size = if state.page == 0 { 1000 } else { state.page };
    let from: usize = request.params.get("NextToken").parse().unwrap_or_default();
    let told = events.iter().skip(from).take(size).map(|event| {
        let about = tag("eventSubType", event.subtype) + &tag("eventDescription", &event.words);
        tag("eventType", event.kind) + &tag("timestamp", event.at) + &tag("eventInformation", about)
    });
    let mut content = list("historyRecordSet", "item", told);
    if from + size < events.len() {
        content += &tag("nextToken", from + size);
    }
    Ok(request.ec2(&content))
}

fn prices(state: &State, request: &Request) -> Answer {
    assert_eq!(request.params.get("StartTime"), request.params.get("EndTime"), "of now");
    assert_eq!(request.params.list("ProductDescription"), ["Linux/UNIX"]);
    let types = request.params.list("InstanceType");
    assert!(!types.is_empty());
    let prices = state.market.prices.iter().filter(|((kind, _), _)| types.contains(kind));
    let prices = prices.map(|((kind, zone), price)| {
        tag("instanceType", kind) + &tag("availabilityZone", zone) + &tag("spotPrice", price)
    });
    request.ec2(&list("spotPriceHistorySet", "item", prices))
}
