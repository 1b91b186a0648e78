//! What exists of a pool, and what is other than its file asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::hash::hex;
use super::pool::Pool;
use super::request::{Launch, Machine, Request, Version};
use super::tag;

/// What bears a pool's tags, or its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Existing {
    /// The launch template of its name.
    pub template: Option<ExistingTemplate>,
    /// Its fleets, ended ones too, as long as EC2 tells of them.
    pub fleets: Vec<ExistingFleet>,
}

/// A launch template that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct ExistingTemplate {
    /// Its ID.
    pub id: String,
    /// Whether it bears the pool's tags.
    pub ours: bool,
    /// Its versions.
    pub versions: Vec<ExistingVersion>,
}

/// A version of a launch template that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct ExistingVersion {
    /// Its number.
    pub number: u64,
    /// By this it is found again.
    pub description: String,
    /// What it launches; none: not known.
    pub machine: Option<Machine>,
}

/// A fleet that exists, or existed.
#[derive(Clone, Debug, PartialEq)]
pub struct ExistingFleet {
    /// Its ID.
    pub id: String,
    /// Whether it bears the pool's tags.
    pub ours: bool,
    /// Its state, in EC2's words.
    pub state: String,
    /// What the pool's file asked for when the fleet was asked for; empty: not known.
    pub hash: String,
    /// The units that it wants.
    pub target: u32,
    /// The units that it has.
    pub fulfilled: u32,
    /// The weight of the lightest machine that it could do without; none: not known, for it has no more than it wants.
    pub lightest: Option<u32>,
    /// The units that the pool as a whole wanted when the fleet was asked for.
    pub capacity: Option<u32>,
    /// When it was asked for.
    pub created: Timestamp,
    /// Whether it launches nothing any more.
    pub has_ended: bool,
    /// How it fares, in EC2's words.
    pub activity: Option<String>,
    /// Whether it can be changed: not while a change of it is under way.
    pub is_settled: bool,
    /// What it was asked for; none: not known.
    pub request: Option<Request>,
}

impl Existing {
    /// The fleet that is what the file asks for: of several, the first.
    #[must_use]
    pub fn current(&self, hash: &str) -> Option<&ExistingFleet> {
        let same = self.fleets.iter().filter(|fleet| fleet.ours && !fleet.has_ended && fleet.hash == hash);
        same.min_by_key(|fleet| (fleet.created, &fleet.id))
    }

    /// The youngest fleet that was what the file asks for and has ended: what a client [token](Launch::token) is of.
    #[must_use]
    pub fn ended(&self, hash: &str) -> Option<&str> {
        let same = self.fleets.iter().filter(|fleet| fleet.ours && fleet.has_ended && fleet.hash == hash);
        same.max_by_key(|fleet| (fleet.created, &fleet.id)).map(|fleet| fleet.id.as_str())
    }

    /// What is of the pool's name, but not the pool's. A fleet that has ended hinders nobody.
    fn foreign(&self) -> Vec<Change> {
        let template =
            self.template.iter().filter(|template| !template.ours).map(|template| ("launch template", &template.id));
        let fleets =
            self.fleets.iter().filter(|fleet| !fleet.ours && !fleet.has_ended).map(|fleet| ("fleet", &fleet.id));
        template.chain(fleets).map(|(what, id)| Change::Foreign { what, id: id.clone() }).collect()
    }

    fn shape(&self, fleet: &ExistingFleet) -> Option<Shape> {
        shape(fleet.request.as_ref()?, |description| self.template.as_ref()?.version(description)?.machine.as_ref())
    }
}

impl ExistingTemplate {
    /// The version with this description: of several, the first.
    #[must_use]
    pub fn version(&self, description: &str) -> Option<&ExistingVersion> {
        let same = self.versions.iter().filter(|version| version.description == description);
        same.min_by_key(|version| version.number)
    }
}

impl ExistingFleet {
    /// Whether it neither has nor launches machines any more.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.has_ended && self.fulfilled == 0
    }

    /// The units beyond what it wants, if a machine fits into them: where none does, it has as much as weights allow.
    #[must_use]
    pub fn excess(&self) -> u32 {
        let beyond = self.fulfilled.saturating_sub(self.target);
        if self.lightest.is_some_and(|weight| weight <= beyond) { beyond } else { 0 }
    }
}

impl Launch {
    fn shape(&self) -> Option<Shape> {
        shape(&self.request, |description| {
            let version = self.template.versions.iter().find(|version| version.description == description)?;
            Some(&version.machine)
        })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign { what, id } => write!(
                f,
                "{what} {id} bears the pool's name, but not its tags, and is left alone: delete it, or give the pool \
                 another name"
            ),
            Self::CreateTemplate { name, versions } => {
                let plural = if *versions == 1 { "" } else { "s" };
                write!(f, "create launch template {name} with {versions} version{plural}")
            }
            Self::AddVersion { template, description } => {
                write!(f, "add a version to launch template {template}: {description}")
            }
            Self::RequestFleet { target } => write!(f, "request a fleet of {target} units"),
            Self::Replace { fleet, because } => {
                write!(f, "replace fleet {fleet}")?;
                for (at, change) in because.iter().enumerate() {
                    write!(f, "{} {change}", if at == 0 { ":" } else { ";" })?;
                }
                Ok(())
            }
            Self::Scale { fleet, from, to } => write!(f, "scale fleet {fleet} from {from} to {to} units"),
            Self::Retire { fleet, there, wanted } => {
                write!(f, "retire nodes of fleet {fleet}, which has {there} units and wants {wanted}")
            }
        }
    }
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, from, to } = self;
        match (from, to) {
            (Some(from), Some(to)) => write!(f, "{field} from {from} to {to}"),
            (Some(from), None) => write!(f, "{field} no longer {from}"),
            (None, Some(to)) => write!(f, "{field} now {to}"),
            (None, None) => f.write_str(field),
        }
    }
}

/// A thing that is other than a pool's file asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "change")]
pub enum Change {
    /// It is of the pool's name, but does not bear its tags: nothing is done beside it.
    Foreign {
        /// What it is: a launch template, or a fleet.
        what: &'static str,
        /// Its ID.
        id: String,
    },
    /// There is no launch template yet.
    CreateTemplate {
        /// Its name.
        name: String,
        /// With so many versions.
        versions: usize,
    },
    /// A version of the launch template is missing.
    AddVersion {
        /// The template.
        template: String,
        /// The version.
        description: String,
    },
    /// There is no fleet that is what the file asks for.
    RequestFleet {
        /// The units that it is to want.
        target: u32,
    },
    /// A fleet is not what the file asks for: its nodes go, and then itself.
    Replace {
        /// The fleet.
        fleet: String,
        /// What is other; empty where that can't be told.
        because: Vec<FieldChange>,
    },
    /// The fleet wants more or less than the file.
    Scale {
        /// The fleet.
        fleet: String,
        /// What it wants.
        from: u32,
        /// What the file wants.
        to: u32,
    },
    /// The fleet has more than the file wants, and a machine fits into that.
    Retire {
        /// The fleet.
        fleet: String,
        /// What it has.
        there: u32,
        /// What the file wants.
        wanted: u32,
    },
}

/// A value that is other than it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// Which one.
    pub field: String,
    /// As it is; none: not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// As the file wants it; none: not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// What is other than `pool`, which is `launch`, in the order in which it would be changed; empty: nothing.
#[must_use]
pub fn difference(pool: &Pool, launch: &Launch, existing: &Existing) -> Vec<Change> {
    let foreign = existing.foreign();
    if !foreign.is_empty() {
        return foreign;
    }
    let mut changes = of_template(launch, existing);
    let current = existing.current(&launch.hash);
    let is_old =
        |fleet: &&ExistingFleet| current.is_none_or(|current| current.id != fleet.id) && fleet.ours && !fleet.is_gone();
    let old: Vec<_> = existing.fleets.iter().filter(is_old).collect();
    match current {
        None => changes.push(Change::RequestFleet { target: pool.target_capacity }),
        // While others still have a part of the capacity, it wants less than all of it.
        Some(current) if old.is_empty() => changes.extend(of_capacity(pool, current)),
        Some(_) => {}
    }
    let wanted = launch.shape();
    changes.extend(old.into_iter().map(|fleet| {
        let found = existing.shape(fleet);
        let mut because = found.zip(wanted.as_ref()).map(|(found, wanted)| changed(&found, wanted));
        if let Some(because) = &mut because
            && because.is_empty()
            && fleet.hash != launch.hash
        {
            because.push(FieldChange {
                field: format!("nothing that EC2 tells, but {}", tag::HASH),
                from: Some(fleet.hash.clone()),
                to: Some(launch.hash.clone()),
            });
        }
        let because = because.unwrap_or_default();
        Change::Replace { fleet: fleet.id.clone(), because }
    }));
    changes
}

fn of_template(launch: &Launch, existing: &Existing) -> Vec<Change> {
    let versions = &launch.template.versions;
    let Some(template) = &existing.template else {
        return vec![Change::CreateTemplate { name: launch.template.name.clone(), versions: versions.len() }];
    };
    let missing = versions.iter().filter(|wanted| template.version(&wanted.description).is_none());
    let add = |version: &Version| Change::AddVersion {
        template: template.id.clone(),
        description: version.description.clone(),
    };
    missing.map(add).collect()
}

fn of_capacity(pool: &Pool, fleet: &ExistingFleet) -> Option<Change> {
    let (id, wanted) = (fleet.id.clone(), pool.target_capacity);
    if fleet.target != wanted {
        Some(Change::Scale { fleet: id, from: fleet.target, to: wanted })
    } else if fleet.excess() > 0 {
        Some(Change::Retire { fleet: id, there: fleet.fulfilled, wanted })
    } else {
        None
    }
}

/// What shapes a fleet's machines, by names for people.
type Shape = BTreeMap<String, String>;

/// None where a version is not known.
fn shape<'a>(request: &Request, machine: impl Fn(&str) -> Option<&'a Machine>) -> Option<Shape> {
    let mut shape = Shape::new();
    flatten("", &of_request(request), &mut shape);
    for launches in &request.launches {
        let machine = machine(&launches.version)?;
        flatten("", &of_machine(machine), &mut shape);
        for one in &launches.overrides {
            let price = one.max_price.as_ref().map(|price| format!(", max price {price}")).unwrap_or_default();
            let words = format!("weight {}{price}, {}", one.weight, machine.root_volume);
            shape.insert(format!("{} in {}", one.instance_type, one.subnet), words);
        }
    }
    Some(shape)
}

/// What is said of each type and place, and of the user data as a whole, is left out.
fn of_machine(machine: &Machine) -> Value {
    let mut value = serde_json::json!(machine);
    for said in ["/rootVolume/size", "/rootVolume/iops", "/rootVolume/throughput"] {
        remove(&mut value, said);
    }
    remove(&mut value, &format!("/tags/{}", tag::HASH.replace('/', "~1")));
    // It may hold what is not for every eye.
    value["userData"] = format!("{} bytes, SHA-256 {:.12}", machine.user_data.len(), hex(&[&machine.user_data])).into();
    value
}

fn of_request(request: &Request) -> Value {
    let mut value = serde_json::json!(request);
    remove(&mut value, "/launches");
    remove(&mut value, "/tags");
    value
}

fn remove(value: &mut Value, pointer: &str) {
    let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
    if let Some(fields) = value.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.remove(&key.replace("~1", "/"));
    }
}

/// Every value below `value`, by its path.
fn flatten(path: &str, value: &Value, shape: &mut Shape) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&path, value, shape);
            }
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(written).collect();
            if !items.is_empty() {
                shape.insert(path.to_owned(), items.join(", "));
            }
        }
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            shape.insert(path.to_owned(), written(value));
        }
    }
}

fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn changed(from: &Shape, to: &Shape) -> Vec<FieldChange> {
    let names: BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let changes = names.into_iter().filter(|name| from.get(*name) != to.get(*name)).map(|name| FieldChange {
        field: name.clone(),
        from: from.get(name).cloned(),
        to: to.get(name).cloned(),
    });
    changes.collect()
}
