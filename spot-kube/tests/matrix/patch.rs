//! The one patch of a node, read strictly: ours are few fields, and any other is an error.

use jiff::Timestamp;
use serde_json::{Map, Value};
use spot_core::node::{Effect, NodeRef, Taint, Uid, key};
use spot_core::ports::{Edit, NodeChange};

use crate::annotation;
use crate::request::nothing_in;

/// Which node a merge patch is for, and what it changes.
pub(crate) fn node(name: &str, mut patch: Map<String, Value>) -> Result<(NodeRef, NodeChange), String> {
    let mut metadata = part(&mut patch, "metadata")?;
    let uid = text(&mut metadata, "uid")?.ok_or("a patch without the UID")?;
    let resource_version = text(&mut metadata, "resourceVersion")?;
    let mut labels = part(&mut metadata, "labels")?;
    let mut annotations = part(&mut metadata, "annotations")?;
    let mut spec = part(&mut patch, "spec")?;
    let change =
        NodeChange {
            mark: edit(&mut labels, key::SELECTED, |value| {
                if value == "true" { Ok(()) } else { Err("a mark is `true`".into()) }
            })?,
            remove_old_mark: match edit(&mut labels, key::COST_MANAGER_SELECTED, |_| Ok(()))? {
                Edit::Keep => false,
                Edit::Remove => true,
                Edit::Set(()) => return Err("the old mark is never written".to_owned()),
            },
            claim: edit(&mut annotations, key::CLAIM, annotation::claim)?,
            back_off: edit(&mut annotations, key::BACK_OFF, annotation::back_off)?,
            unschedulable: match spec.remove("unschedulable") {
                None => None,
                Some(Value::Null) => Some(false),
                Some(Value::Bool(true)) => Some(true),
                Some(other) => return Err(format!("a cordon is not {other}")),
            },
            taints: match spec.remove("taints") {
                None => None,
                Some(Value::Null) => Some(Vec::new()),
                Some(Value::Array(taints)) => Some(taints.into_iter().map(taint).collect::<Result<_, _>>()?),
                Some(other) => return Err(format!("taints are not {other}")),
            },
        };
    for rest in [&patch, &metadata, &labels, &annotations, &spec] {
        nothing_in(rest)?;
    }
    if change == NodeChange::default() {
        return Err("a patch that changes nothing".to_owned());
    }
    if change.taints.is_some() && resource_version.is_none() {
        return Err("the list of taints is one value: it is written on a version".to_owned());
    }
    Ok((NodeRef { name: name.into(), uid: Uid::new(uid), resource_version }, change))
}

fn taint(value: Value) -> Result<Taint, String> {
    let Value::Object(mut fields) = value else { return Err(format!("a taint is not {value}")) };
    let key = text(&mut fields, "key")?.ok_or("a taint without a key")?;
    let value = text(&mut fields, "value")?.unwrap_or_default();
    let effect =
        text(&mut fields, "effect")?.and_then(|word| Effect::parse(&word)).ok_or("a taint without an effect")?;
    let time = text(&mut fields, "timeAdded")?.map(|time| time.parse::<Timestamp>()).transpose();
    let time_added = time.map_err(|error| error.to_string())?;
    nothing_in(&fields)?;
    Ok(Taint { time_added, ..Taint::new(key, value, effect) })
}

/// An object in an object, which may be missing but not empty.
fn part(fields: &mut Map<String, Value>, field: &str) -> Result<Map<String, Value>, String> {
    match fields.remove(field) {
        None => Ok(Map::new()),
        Some(Value::Object(part)) if !part.is_empty() => Ok(part),
        Some(other) => Err(format!("`{field}` is {other}")),
    }
}

fn text(fields: &mut Map<String, Value>, field: &str) -> Result<Option<String>, String> {
    match fields.remove(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("`{field}` is {other}")),
    }
}

/// What is done to one value.
fn edit<T>(
    fields: &mut Map<String, Value>,
    key: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Edit<T>, String> {
    match fields.remove(key) {
        None => Ok(Edit::Keep),
        Some(Value::Null) => Ok(Edit::Remove),
        Some(Value::String(text)) => read(&text).map(Edit::Set),
        Some(other) => Err(format!("`{key}` is {other}")),
    }
}
