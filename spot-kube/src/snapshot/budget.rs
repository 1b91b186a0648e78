//! Pod disruption budgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use spot_core::pod::{BudgetSnapshot, UnhealthyPods};
use spot_core::selector::{LabelSelector, Operator, Requirement};

use super::{Metadata, Subject, Unreadable};

/// A PodDisruptionBudget of `policy/v1`, as far as it is read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Budget {
    pub(super) metadata: Option<Metadata>,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    selector: Option<SelectorText>,
    unhealthy_pod_eviction_policy: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectorText {
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<Expression>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Expression {
    key: String,
    operator: String,
    values: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    observed_generation: Option<i64>,
    disruptions_allowed: Option<i32>,
    current_healthy: Option<i32>,
    desired_healthy: Option<i32>,
    expected_pods: Option<i32>,
    disrupted_pods: Option<BTreeMap<String, Value>>,
}

/// The snapshot of a budget.
pub(crate) fn budget(budget: Budget) -> Result<BudgetSnapshot, Unreadable> {
    let metadata = budget.metadata.unwrap_or_default();
    let spec = budget.spec.unwrap_or_default();
    let status = budget.status.unwrap_or_default();
    let subject = Subject::of("poddisruptionbudget", &metadata);
    Ok(BudgetSnapshot {
        namespace: Arc::from(subject.required("namespace", metadata.namespace.as_ref())?),
        name: Arc::from(subject.required("name", metadata.name.as_ref())?),
        selector: selector(&subject, spec.selector)?,
        unhealthy_pods: match spec.unhealthy_pod_eviction_policy.as_deref() {
            Some("AlwaysAllow") => UnhealthyPods::AlwaysAllow,
            // Kubernetes asks clients to take policies that they don't know for the strict default.
            Some(_) | None => UnhealthyPods::IfHealthyBudget,
        },
        current: status.observed_generation.is_some_and(|seen| seen >= metadata.generation.unwrap_or(0)),
        disruptions_allowed: status.disruptions_allowed.unwrap_or(0),
        current_healthy: status.current_healthy.unwrap_or(0),
        desired_healthy: status.desired_healthy.unwrap_or(0),
        expected_pods: status.expected_pods.unwrap_or(0),
        disrupted_pods: status.disrupted_pods.unwrap_or_default().into_keys().collect(),
        resource_version: metadata.resource_version.unwrap_or_default(),
    })
}

/// In `policy/v1` no selector matches nothing, and an empty one everything.
fn selector(subject: &Subject, text: Option<SelectorText>) -> Result<LabelSelector, Unreadable> {
    let Some(text) = text else {
        return Ok(LabelSelector::new([Requirement::new("", Operator::In, [""; 0])]));
    };
    let labels =
        text.match_labels.unwrap_or_default().into_iter().map(|(key, value)| Ok(Requirement::equals(key, value)));
    let expressions = text.match_expressions.unwrap_or_default().into_iter().map(|expression| {
        let operator = expression.operator.parse::<Operator>();
        let operator = operator.map_err(|error| subject.unreadable(format!("has an unreadable selector: {error}")))?;
        Ok(Requirement::new(expression.key, operator, expression.values.unwrap_or_default()))
    });
    Ok(LabelSelector::new(labels.chain(expressions).collect::<Result<Vec<_>, _>>()?))
}
