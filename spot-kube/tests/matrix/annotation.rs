//! The two annotations of ours, read and written by hand: the world keeps what they say, not their text.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use spot_core::claim::{BackOff, Claim, ClaimStep, FleetBefore, InstanceId, Machine, Owner};
use spot_core::node::Uid;

/// The claim that a text holds, exactly.
pub(crate) fn claim(text: &str) -> Result<Claim, String> {
    let mut fields = Fields::of(text)?;
    let machine = match fields.take("machine")? {
        Value::String(word) if word == "withNode" => Machine::WithNode,
        Value::Object(machine) => match machine.get("instance").and_then(Value::as_str) {
            Some(id) if machine.len() == 1 => Machine::Instance(InstanceId::new(id)),
            _ => return Err(format!("a machine is not {machine:?}")),
        },
        other => return Err(format!("a machine is not {other}")),
    };
    let claim = Claim {
        owner: Owner::parse(&fields.text("owner")?).ok_or("an unknown owner")?,
        node: Uid::new(fields.text("node")?),
        machine,
        boot_id: fields.text("bootId")?,
        step: ClaimStep::parse(&fields.text("step")?).ok_or("an unknown step")?,
        cordoned: fields.flag("cordoned")?,
        taint: if fields.has("taint") { Some(fields.text("taint")?) } else { None },
        since: fields.time("since")?,
        own_pod_left: fields.flag("ownPodLeft")?,
        restored: fields.has("restored") && fields.flag("restored")?,
        until: if fields.has("until") { Some(fields.time("until")?) } else { None },
        fleet_before: if fields.has("fleetBefore") { Some(fleet(&fields.take("fleetBefore")?)?) } else { None },
    };
    fields.end().map(|()| claim)
}

fn fleet(text: &Value) -> Result<FleetBefore, String> {
    let number = |field: &str| text[field].as_u64().and_then(|number| u32::try_from(number).ok());
    match (text["fleet"].as_str(), number("target"), number("onDemand")) {
        (Some(fleet), Some(target), Some(on_demand)) => Ok(FleetBefore { fleet: fleet.to_owned(), target, on_demand }),
        _ => Err(format!("a fleet is not {text}")),
    }
}

/// The back-off that a text holds, exactly.
pub(crate) fn back_off(text: &str) -> Result<BackOff, String> {
    let mut fields = Fields::of(text)?;
    let count = fields.take("count")?.as_u64().and_then(|count| u32::try_from(count).ok());
    let back_off = BackOff { until: fields.time("until")?, count: count.ok_or("`count` is no number")? };
    fields.end().map(|()| back_off)
}

/// The text of a claim.
pub(crate) fn claim_text(claim: &Claim) -> String {
    let machine = match &claim.machine {
        Machine::WithNode => json!("withNode"),
        Machine::Instance(instance) => json!({"instance": instance.as_str()}),
    };
    let mut text = json!({
        "owner": claim.owner.to_string(), "node": claim.node.as_str(), "machine": machine, "bootId": claim.boot_id,
        "step": claim.step.as_str(), "cordoned": claim.cordoned, "since": claim.since.to_string(),
        "ownPodLeft": claim.own_pod_left,
    });
    if let Some(taint) = &claim.taint {
        text["taint"] = json!(taint);
    }
    if claim.restored {
        text["restored"] = json!(true);
    }
    if let Some(until) = claim.until {
        text["until"] = json!(until.to_string());
    }
    if let Some(FleetBefore { fleet, target, on_demand }) = &claim.fleet_before {
        text["fleetBefore"] = json!({"fleet": fleet, "target": target, "onDemand": on_demand});
    }
    text.to_string()
}

/// The text of a back-off.
pub(crate) fn back_off_text(back_off: BackOff) -> String {
    json!({"until": back_off.until.to_string(), "count": back_off.count}).to_string()
}

/// Fields of an object that must all be taken.
struct Fields(Map<String, Value>);

impl Fields {
    fn of(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map(Self).map_err(|error| error.to_string())
    }

    fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    fn take(&mut self, field: &str) -> Result<Value, String> {
        self.0.remove(field).ok_or_else(|| format!("`{field}` is missing"))
    }

    fn text(&mut self, field: &str) -> Result<String, String> {
        match self.take(field)? {
            Value::String(text) => Ok(text),
            other => Err(format!("`{field}` is {other}")),
        }
    }

    fn flag(&mut self, field: &str) -> Result<bool, String> {
        self.take(field)?.as_bool().ok_or_else(|| format!("`{field}` is neither true nor false"))
    }

    fn time(&mut self, field: &str) -> Result<Timestamp, String> {
        self.text(field)?.parse().map_err(|_| format!("`{field}` is not a time"))
    }

    fn end(self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("unknown: {:?}", self.0)) }
    }
}
