//! What is there, and what time and AWS' own processes make of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::iam::Iam;
use super::network::Network;
use super::pools::{self, Asked, Market};
use super::templates::{Made, Template};

/// How long a group or fleet takes to launch another instance.
const LAUNCH: Duration = Duration::from_mins(1);
/// How long an instance takes to shut down.
const SHUT_DOWN: Duration = Duration::from_secs(40);
/// How long a fleet is being modified.
const MODIFY: Duration = Duration::from_secs(5);

/// An instance.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) lifecycle: Option<&'static str>,
    pub(crate) state: &'static str,
    /// What it was before, and until when that is told.
    pub(crate) before: Option<(&'static str, Instant)>,
    pub(crate) since: Instant,
    pub(crate) launched: Timestamp,
    pub(crate) dns: String,
    pub(crate) address: String,
    pub(crate) kind: String,
    pub(crate) zone: String,
    /// Its subnet; empty: not told.
    pub(crate) subnet: String,
    pub(crate) reservation: Option<String>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) protected: bool,
    /// EC2's code and words for why it ended.
    pub(crate) reason: Option<(&'static str, &'static str)>,
}

impl Instance {
    pub(crate) fn is_alive(&self) -> bool {
        self.state == "running" || self.state == "pending"
    }
}

/// A member of a group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) state: &'static str,
    pub(crate) protected: bool,
    pub(crate) weight: Option<u32>,
}

impl Default for Member {
    fn default() -> Self {
        Self { state: "InService", protected: false, weight: None }
    }
}

/// An Auto Scaling group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) min: u32,
    pub(crate) desired: u32,
    pub(crate) zones: Vec<String>,
    pub(crate) members: BTreeMap<String, Member>,
    /// On-demand base, and percentage above it.
    pub(crate) mix: Option<(u32, u32)>,
    pub(crate) suspended: Vec<String>,
    pub(crate) capacity_rebalance: bool,
    pub(crate) refresh: Option<&'static str>,
    pub(crate) target_groups: Vec<String>,
    pub(crate) classic: Vec<String>,
    pub(crate) tags: BTreeMap<String, String>,
    /// Hooks that hold instances which are being terminated.
    pub(crate) hooks: Vec<String>,
    pub(crate) unit: Option<String>,
    /// Since when it has less than it wants.
    pub(crate) short_since: Option<Instant>,
}

/// A fleet of either kind.
#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    pub(crate) kind: &'static str,
    pub(crate) target: u32,
    pub(crate) on_demand: u32,
    pub(crate) terminates_excess: bool,
    pub(crate) members: BTreeSet<String>,
    /// Weight by instance type, as text.
    pub(crate) weights: BTreeMap<String, String>,
    pub(crate) modified: Option<Instant>,
    /// Its state, if it is another one than it is by itself.
    pub(crate) ended: Option<&'static str>,
    pub(crate) short_since: Option<Instant>,
    /// Its tags.
    pub(crate) tags: BTreeMap<String, String>,
    /// Where a Spot Fleet registers what it launches.
    pub(crate) target_groups: Vec<String>,
    pub(crate) classic: Vec<String>,
    /// What a Spot Fleet says of how it fares.
    pub(crate) activity: Option<&'static str>,
    /// What the fleet of a pool was asked for.
    pub(crate) asked: Option<Asked>,
}

impl Fleet {
    /// One that maintains, as yet without members.
    pub(crate) fn maintaining() -> Self {
        Self {
            kind: "maintain",
            target: 0,
            on_demand: 0,
            terminates_excess: true,
            members: BTreeSet::new(),
            weights: BTreeMap::new(),
            modified: None,
            ended: None,
            short_since: None,
            tags: BTreeMap::new(),
            target_groups: Vec::new(),
            classic: Vec::new(),
            activity: None,
            asked: None,
        }
    }

    pub(crate) fn state(&self) -> &'static str {
        if let Some(state) = self.ended {
            return state;
        }
        if self.modified.is_some_and(|at| at.elapsed() < MODIFY) { "modifying" } else { "active" }
    }

    /// How much its living members are, and how much of that is on demand.
    pub(crate) fn fulfilled(&self, instances: &BTreeMap<String, Instance>) -> (u32, u32) {
        let alive = self.members.iter().filter_map(|member| instances.get(member)).filter(|one| one.is_alive());
        alive.fold((0, 0), |(there, on_demand), one| {
            let weight = self.weight(one);
            (there + weight, on_demand + if one.lifecycle.is_none() { weight } else { 0 })
        })
    }

    fn weight(&self, instance: &Instance) -> u32 {
        let whole = |weight: &String| weight.split('.').next().unwrap().parse().unwrap();
        self.weights.get(&instance.kind).map_or(1, whole)
    }
}

/// What describes still tell of things that have changed since, by name; each for a while.
#[derive(Debug)]
pub(crate) struct Late<T>(BTreeMap<String, Vec<(T, Instant)>>);

impl<T> Default for Late<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Clone> Late<T> {
    /// Has this told on, for as long as describes are late.
    pub(crate) fn note(&mut self, name: &str, before: &T, lag: Duration) {
        if !lag.is_zero() {
            self.0.entry(name.to_owned()).or_default().push((before.clone(), Instant::now() + lag));
        }
    }

    /// What is told of it, being `now`.
    pub(crate) fn told<'a>(&'a self, name: &str, now: &'a T) -> &'a T {
        let mut before = self.0.get(name).into_iter().flatten();
        before.find(|(_, until)| Instant::now() < *until).map_or(now, |(before, _)| before)
    }
}

/// An instance's place in a load balancer.
#[derive(Clone, Debug)]
pub(crate) enum Registration {
    Serving,
    DrainingUntil(Instant),
}

impl Registration {
    fn is_there(&self) -> bool {
        match self {
            Self::Serving => true,
            Self::DrainingUntil(until) => Instant::now() < *until,
        }
    }

    /// Lets what is under way end.
    pub(crate) fn drain(&mut self, draining: Duration) {
        if matches!(self, Self::Serving) {
            *self = Self::DrainingUntil(Instant::now() + draining);
        }
    }
}

/// A target group or classic load balancer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Balancer {
    pub(crate) of_addresses: bool,
    pub(crate) tags: BTreeMap<String, String>,
    /// Instances on its own port.
    pub(crate) registered: BTreeMap<String, Registration>,
    /// Those of a target group on another port.
    pub(crate) elsewhere: BTreeMap<(String, u16), Registration>,
    /// How long it drains.
    pub(crate) draining: Duration,
    /// In which VPC it is, if it says so.
    pub(crate) vpc: String,
    /// Whether it answers about an instance that it does not know, instead of refusing.
    pub(crate) lenient: bool,
}

/// All that is there.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) instances: BTreeMap<String, Instance>,
    pub(crate) groups: BTreeMap<String, Group>,
    pub(crate) fleets: BTreeMap<String, Fleet>,
    pub(crate) target_groups: BTreeMap<String, Balancer>,
    pub(crate) classic: BTreeMap<String, Balancer>,
    pub(crate) node_groups: BTreeMap<(String, String), &'static str>,
    /// How late describes tell of a change.
    pub(crate) lag: Duration,
    pub(crate) late_groups: Late<Group>,
    pub(crate) late_fleets: Late<Fleet>,
    /// Instances that a group or fleet launched by itself.
    pub(crate) launched: Vec<String>,
    /// Instances that a group or fleet terminated by itself.
    pub(crate) victims: Vec<String>,
    /// How often a group's desired capacity was lowered.
    pub(crate) decrements: u32,
    /// The largest page that is answered; zero: whatever was asked for.
    pub(crate) page: usize,
    pub(crate) templates: BTreeMap<String, Template>,
    /// How many templates were ever made.
    pub(crate) made: usize,
    /// Requests by their tokens.
    pub(crate) tokens: BTreeMap<String, Made>,
    pub(crate) market: Market,
    pub(crate) network: Network,
    pub(crate) iam: Iam,
}

impl State {
    pub(crate) fn shut_down(&mut self, id: &str) {
        let lag = self.lag;
        if let Some(instance) = self.instances.get_mut(id)
            && instance.is_alive()
        {
            let now = Instant::now();
            instance.before = (!lag.is_zero()).then(|| (instance.state, now + lag));
            instance.state = "shutting-down";
            instance.since = now;
        }
        for fleet in self.fleets.values_mut() {
            if fleet.members.contains(id) {
                fleet.short_since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Lets time take its course.
    pub(crate) fn advance(&mut self) {
        for instance in self.instances.values_mut() {
            if instance.state == "shutting-down" && instance.since.elapsed() >= SHUT_DOWN {
                instance.state = "terminated";
            }
        }
        for balancer in self.target_groups.values_mut().chain(self.classic.values_mut()) {
            balancer.registered.retain(|_, registration| registration.is_there());
            balancer.elsewhere.retain(|_, registration| registration.is_there());
        }
        let names: Vec<_> = self.groups.keys().cloned().collect();
        for name in names {
            self.keep_group(&name);
        }
        let ids: Vec<_> = self.fleets.keys().cloned().collect();
        for id in ids {
            self.keep_fleet(&id);
        }
    }

    /// What Auto Scaling does by itself: it replaces what is missing, keeps its mix, and balances its zones.
    fn keep_group(&mut self, name: &str) {
        let instances = &self.instances;
        let group = self.groups.get_mut(name).unwrap();
        group.members.retain(|id, member| {
            let there = instances.get(id).is_some_and(|instance| instance.state != "terminated");
            there || (member.state == "Terminating:Wait" && instances.contains_key(id))
        });
        let in_service = |member: &Member| member.state == "InService";
        let alive: Vec<(String, u32)> = group
            .members
            .iter()
            .filter(|(id, member)| in_service(member) && instances[*id].is_alive())
            .map(|(id, member)| (id.clone(), member.weight.unwrap_or(1)))
            .collect();
        let there: u32 = alive.iter().map(|(_, weight)| weight).sum();
        let on_demand: u32 =
            alive.iter().filter(|(id, _)| instances[id].lifecycle.is_none()).map(|(_, weight)| weight).sum();
        let wanted = group.mix.map_or(0, |(base, percentage)| {
            let above = group.desired.saturating_sub(base);
            base.min(group.desired) + (above * percentage).div_ceil(100)
        });
        let short = there < group.desired || on_demand < wanted;
        if short {
            let since = *group.short_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= LAUNCH {
                group.short_since = None;
                let id = self.launch(Some(name), None);
                self.launched.push(id.clone());
                self.groups.get_mut(name).unwrap().members.insert(id, Member::default());
            }
            return;
        }
        group.short_since = None;
        if group.suspended.iter().any(|process| process == "AZRebalance") {
            return;
        }
        let mut zones: BTreeMap<&str, Vec<&String>> =
            group.zones.iter().map(|zone| (zone.as_str(), Vec::new())).collect();
        for (id, _) in &alive {
            zones.entry(&instances[id].zone).or_default().push(id);
        }
        let most = zones.values().max_by_key(|members| members.len());
        let least = zones.values().map(Vec::len).min().unwrap_or_default();
        if let Some(members) = most.filter(|members| members.len() > least + 1) {
            let victim = (*members[0]).clone();
            self.victims.push(victim.clone());
            self.groups.get_mut(name).unwrap().members.remove(&victim);
            self.shut_down(&victim);
        }
    }

    /// What a fleet does by itself: it replaces what is missing, and terminates what is too much if it may.
    fn keep_fleet(&mut self, id: &str) {
        let instances = &self.instances;
        let fleet = self.fleets.get_mut(id).unwrap();
        if fleet.kind != "maintain" || fleet.ended.is_some() {
            return;
        }
        fleet.members.retain(|member| instances.get(member).is_some_and(|instance| instance.state != "terminated"));
        let alive: Vec<&String> = fleet.members.iter().filter(|member| instances[*member].is_alive()).collect();
        let (there, on_demand) = fleet.fulfilled(instances);
        if there < fleet.target || on_demand < fleet.on_demand {
            let since = *fleet.short_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= LAUNCH {
                fleet.short_since = None;
                let new = self.launch(None, Some(id));
                self.launched.push(new.clone());
                let fleet = self.fleets.get_mut(id).unwrap();
                fleet.members.insert(new.clone());
                let of_fleet = |named: &[String], (name, _): &(&String, &mut Balancer)| named.contains(*name);
                let target_groups = self.target_groups.iter_mut().filter(|one| of_fleet(&fleet.target_groups, one));
                let classic = self.classic.iter_mut().filter(|one| of_fleet(&fleet.classic, one));
                for (_, balancer) in target_groups.chain(classic) {
                    balancer.registered.insert(new.clone(), Registration::Serving);
                }
            }
        } else {
            fleet.short_since = None;
            if fleet.terminates_excess && there > fleet.target {
                // Whichever it likes: the last.
                let victim = alive[alive.len() - 1].clone();
                self.victims.push(victim.clone());
                self.shut_down(&victim);
            }
        }
    }

    fn launch(&mut self, group: Option<&str>, fleet: Option<&str>) -> String {
        let id = format!("i-{:017x}", 0xf_0000 + self.launched.len());
        let mut tags = BTreeMap::from([("kubernetes.io/cluster/prod".to_owned(), "owned".to_owned())]);
        tags.extend(group.map(|name| ("aws:autoscaling:groupName".to_owned(), name.to_owned())));
        tags.extend(fleet.map(|fleet| (fleet_tag(fleet).to_owned(), fleet.to_owned())));
        let kind = "m5.large".to_owned();
        let mut instance = Instance {
            lifecycle: None,
            state: "running",
            before: None,
            since: Instant::now(),
            launched: Timestamp::MAX,
            dns: format!("new-{id}"),
            address: "10.9.9.9".to_owned(),
            kind,
            zone: "eu-west-1a".to_owned(),
            subnet: String::new(),
            reservation: None,
            tags,
            protected: false,
            reason: None,
        };
        if let Some(asked) = fleet.and_then(|fleet| self.fleets[fleet].asked.as_ref()) {
            pools::shape(self, asked, self.launched.len(), &mut instance);
        }
        self.instances.insert(id.clone(), instance);
        id
    }
}

/// With which tag a fleet marks its instances.
pub(crate) fn fleet_tag(id: &str) -> &'static str {
    if id.starts_with("sfr-") { "aws:ec2spot:fleet-request-id" } else { "aws:ec2:fleet-id" }
}
