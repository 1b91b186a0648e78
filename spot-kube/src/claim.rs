//! The two annotations that hold records of ours, to and from text.
//!
//! A kubelet can write anything there, so reading is strict and bounded: what is not exactly a record is unreadable.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use spot_core::claim::{BackOff, Claim, ClaimStep, FleetBefore, InstanceId, Machine, Owner};
use spot_core::error::plain;
use spot_core::node::{ClaimAnnotation, Uid};

/// The longest record that is read. Ours have some 300 bytes; all annotations of an object may have 256 KiB.
const LONGEST: usize = 4096;
/// As much is said of one that can't be read: the words of it that are repeated are anybody's.
const SAID: usize = 320;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimText {
    owner: String,
    node: String,
    machine: MachineText,
    boot_id: String,
    step: String,
    cordoned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taint: Option<String>,
    since: String,
    #[serde(default)]
    own_pod_left: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    restored: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fleet_before: Option<FleetText>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FleetText {
    fleet: String,
    target: u32,
    on_demand: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum MachineText {
    Instance(String),
    WithNode,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackOffText {
    until: String,
    count: u32,
}

/// The text of a claim.
pub(crate) fn encode(claim: &Claim) -> String {
    let text = ClaimText {
        owner: claim.owner.to_string(),
        node: claim.node.to_string(),
        machine: match &claim.machine {
            Machine::Instance(instance) => MachineText::Instance(instance.to_string()),
            Machine::WithNode => MachineText::WithNode,
        },
        boot_id: claim.boot_id.clone(),
        step: claim.step.as_str().to_owned(),
        cordoned: claim.cordoned,
        taint: claim.taint.clone(),
        since: claim.since.to_string(),
        own_pod_left: claim.own_pod_left,
        restored: claim.restored,
        until: claim.until.map(|until| until.to_string()),
        fleet_before: claim.fleet_before.as_ref().map(|before| FleetText {
            fleet: before.fleet.clone(),
            target: before.target,
            on_demand: before.on_demand,
        }),
    };
    json(&text)
}

/// The claim that an annotation holds.
pub(crate) fn decode(text: Option<&str>) -> ClaimAnnotation {
    match text {
        None => ClaimAnnotation::Absent,
        Some(text) => match read(text) {
            Ok(claim) => ClaimAnnotation::Valid(Box::new(claim)),
            Err(why) => ClaimAnnotation::Unreadable(why),
        },
    }
}

/// The text of a back-off.
pub(crate) fn encode_back_off(back_off: BackOff) -> String {
    json(&BackOffText { until: back_off.until.to_string(), count: back_off.count })
}

/// The back-off that an annotation holds; an unreadable one is none.
pub(crate) fn decode_back_off(text: &str) -> Option<BackOff> {
    let text: BackOffText =
        bounded(text).and_then(|text| serde_json::from_str(text).map_err(|e| e.to_string())).ok()?;
    Some(BackOff { until: text.until.parse().ok()?, count: text.count })
}

fn read(text: &str) -> Result<Claim, String> {
    let text: ClaimText = serde_json::from_str(bounded(text)?)
        .map_err(|error| plain(&error.to_string()).chars().take(SAID).collect::<String>())?;
    Ok(Claim {
        owner: Owner::parse(&text.owner).ok_or("unknown owner")?,
        node: Uid::new(text.node),
        machine: match text.machine {
            MachineText::Instance(instance) => Machine::Instance(InstanceId::new(instance)),
            MachineText::WithNode => Machine::WithNode,
        },
        boot_id: text.boot_id,
        step: ClaimStep::parse(&text.step).ok_or("unknown step")?,
        cordoned: text.cordoned,
        taint: text.taint,
        since: text.since.parse::<Timestamp>().map_err(|_| "`since` is not a time")?,
        own_pod_left: text.own_pod_left,
        restored: text.restored,
        until: text.until.map(|until| until.parse()).transpose().map_err(|_| "`until` is not a time")?,
        fleet_before: text.fleet_before.map(|FleetText { fleet, target, on_demand }| FleetBefore {
            fleet,
            target,
            on_demand,
        }),
    })
}

fn bounded(text: &str) -> Result<&str, String> {
    if text.len() > LONGEST { Err(format!("longer than {LONGEST} bytes")) } else { Ok(text) }
}

/// Writing plain structs of strings and numbers to JSON can't fail.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times() -> impl Strategy<Value = Timestamp> {
        (Timestamp::MIN.as_nanosecond()..=Timestamp::MAX.as_nanosecond())
            .prop_map(|nanosecond| Timestamp::from_nanosecond(nanosecond).unwrap())
    }

    fn claims() -> impl Strategy<Value = Claim> {
        let owner = prop_oneof![
            Just(Owner::Migrator),
            Just(Owner::Interruption),
            any::<[char; 3]>().prop_map(|pool| Owner::Fleet(pool.iter().collect())),
        ];
        let machine = prop_oneof![
            Just(Machine::WithNode),
            any::<[char; 4]>().prop_map(|id| Machine::Instance(InstanceId::new(String::from_iter(id)))),
        ];
        let step = prop::sample::select(ClaimStep::ALL.to_vec());
        let text = || any::<[char; 5]>().prop_map(String::from_iter);
        let until = prop::option::of(times());
        let before = prop::option::of((text(), any::<(u32, u32)>()));
        let flags = any::<(bool, bool, bool)>();
        (owner, text(), machine, text(), step, flags, prop::option::of(text()), times(), until, before).prop_map(
            |(owner, node, machine, boot_id, step, (cordoned, own_pod_left, restored), taint, since, until, before)| {
                Claim {
                    owner,
                    node: Uid::new(node),
                    machine,
                    boot_id,
                    step,
                    cordoned,
                    taint,
                    since,
                    own_pod_left,
                    restored,
                    until,
                    fleet_before: before.map(|(fleet, (target, on_demand))| FleetBefore { fleet, target, on_demand }),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(claim in claims()) {
            prop_assert_eq!(decode(Some(&encode(&claim))), ClaimAnnotation::Valid(Box::new(claim)));
        }

        #[test]
        fn a_back_off_is_read_back(until in times(), count: u32) {
            let back_off = BackOff { until, count };
            prop_assert_eq!(decode_back_off(&encode_back_off(back_off)), Some(back_off));
        }

        #[test]
        fn garbage_is_unreadable_and_never_panics(text: String) {
            prop_assert!(matches!(decode(Some(&text)), ClaimAnnotation::Unreadable(_)));
            prop_assert_eq!(decode_back_off(&text), None);
        }

        #[test]
        fn a_damaged_record_never_panics(claim in claims(), at: prop::sample::Index, put: char) {
            let mut text: Vec<char> = encode(&claim).chars().collect();
            let at = at.index(text.len());
            text[at] = put;
            let damaged = String::from_iter(text);
            prop_assert_ne!(decode(Some(&damaged)), ClaimAnnotation::Absent);
        }
    }

    #[test]
    fn a_record_reads_like_this() {
        let claim = Claim {
            owner: Owner::Fleet("batch".to_owned()),
            node: Uid::new("u1"),
            machine: Machine::Instance(InstanceId::new("i-1")),
            boot_id: "b".to_owned(),
            step: ClaimStep::Tainted,
            cordoned: true,
            taint: Some("1767225600".to_owned()),
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
            own_pod_left: false,
            restored: false,
            until: None,
            fleet_before: None,
        };
        assert_eq!(
            encode(&claim),
            r#"{"owner":"fleet:batch","node":"u1","machine":{"instance":"i-1"},"bootId":"b","step":"tainted","cordoned":true,"taint":"1767225600","since":"2026-01-01T00:00:00Z","ownPodLeft":false}"#
        );
        let with_node = encode(&Claim { machine: Machine::WithNode, taint: None, ..claim });
        assert!(with_node.contains(r#""machine":"withNode""#), "{with_node}");
    }

    #[test]
    fn what_a_record_may_not_hold_makes_it_unreadable() {
        let good = r#"{"owner":"migrator","node":"u","machine":"withNode","bootId":"","step":"draining","cordoned":true,"since":"2026-01-01T00:00:00Z"}"#;
        assert!(matches!(decode(Some(good)), ClaimAnnotation::Valid(_)));
        for (from, to, why) in [
            ("\"migrator\"", "\"somebody\"", "unknown owner"),
            ("\"draining\"", "\"sleeping\"", "unknown step"),
            ("2026-01-01T", "2026-13-01T", "not a time"),
            ("{\"owner\"", "{\"extra\":1,\"owner\"", "unknown field"),
            ("\"withNode\"", "\"other\"", "unknown variant"),
            ("\"node\":\"u\"", &format!("\"node\":\"{}\"", "u".repeat(LONGEST)), "longer than"),
        ] {
            let text = good.replace(from, to);
            let ClaimAnnotation::Unreadable(said) = decode(Some(&text)) else { panic!("{text} was read") };
            assert!(said.contains(why), "{said}");
        }
    }
}
