//! What pods and volumes demand of nodes.

use std::collections::BTreeMap;

use serde::Deserialize;
use spot_core::node::Effect;
use spot_core::placement::{Demand, Needs, Term, Terms, Toleration};
use spot_core::selector::{Operator, Requirement};

/// A `NodeSelector`: terms of which one must be met.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeSelector {
    node_selector_terms: Option<Vec<TermText>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TermText {
    match_expressions: Option<Vec<DemandText>>,
    match_fields: Option<Vec<DemandText>>,
}

#[derive(Clone, Debug, Deserialize)]
struct DemandText {
    key: Option<String>,
    operator: Option<String>,
    values: Option<Vec<String>>,
}

/// The affinity of a pod. What is only preferred is not read: it rules no node out.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Affinity {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct TolerationText {
    key: Option<String>,
    operator: Option<String>,
    value: Option<String>,
    effect: Option<String>,
}

/// What a pod with these fields demands of its node; none: nothing.
pub(super) fn needs(
    selector: Option<BTreeMap<String, String>>,
    affinity: Option<Affinity>,
    tolerations: Option<Vec<TolerationText>>,
) -> Option<Needs> {
    let selector = selector.unwrap_or_default().into_iter().map(|(key, value)| Requirement::equals(key, value));
    let required = affinity.and_then(|affinity| affinity.node_affinity).and_then(|affinity| affinity.required);
    Needs::new(selector, required.map(terms), tolerations.unwrap_or_default().into_iter().map(toleration))
}

/// The terms of a `NodeSelector`.
pub(super) fn terms(selector: NodeSelector) -> Terms {
    Terms::new(selector.node_selector_terms.unwrap_or_default().into_iter().map(term))
}

fn term(text: TermText) -> Term {
    let fields = text.match_fields.unwrap_or_default().into_iter().map(field);
    Term::new(text.match_expressions.unwrap_or_default().into_iter().map(expression).chain(fields))
}

/// A demand on a label. The API server validated it: what we do not understand came with a later Kubernetes.
fn expression(text: DemandText) -> Demand {
    let key = text.key.clone().unwrap_or_default();
    let bound = || text.values.as_deref().unwrap_or_default().first().and_then(|value| value.parse().ok());
    match text.operator.as_deref() {
        Some("Gt") => bound().map_or(Demand::Unknown, |bound| Demand::Above(key, bound)),
        Some("Lt") => bound().map_or(Demand::Unknown, |bound| Demand::Below(key, bound)),
        Some(_) | None => requirement(text).map_or(Demand::Unknown, Demand::Label),
    }
}

/// A demand on a field, of which Kubernetes knows only the name.
fn field(text: DemandText) -> Demand {
    if text.key.as_deref() != Some("metadata.name") {
        return Demand::Unknown;
    }
    requirement(text).map_or(Demand::Unknown, Demand::Name)
}

fn requirement(text: DemandText) -> Option<Requirement> {
    let operator = match text.operator.as_deref()? {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    Some(Requirement::new(text.key?, operator, text.values.unwrap_or_default()))
}

fn toleration(text: TolerationText) -> Toleration {
    let value = match text.operator.as_deref() {
        None | Some("" | "Equal") => Some(text.value.unwrap_or_default()),
        // `Exists`, and what a later Kubernetes compares with: it may tolerate any value.
        Some(_) => None,
    };
    let effect = text.effect.as_deref().and_then(Effect::parse);
    Toleration { key: text.key.filter(|key| !key.is_empty()), value, effect }
}
