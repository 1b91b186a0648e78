//! Pod disruption budgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use spot_core::pod::{BudgetSnapshot, UnhealthyPods};
use spot_core::selector::{LabelSelector, Operator, Requirement, SelectorError};

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
    #[serde(default)]
    key: String,
    #[serde(default)]
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

impl Budget {
    /// Why its selector can't be read, if it can't.
    pub(super) fn selector_fault(&self) -> Option<String> {
        self.selector().err()
    }

    /// In `policy/v1` no selector matches nothing, and an empty one everything.
    fn selector(&self) -> Result<LabelSelector, String> {
        let Some(text) = self.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else {
            return Ok(LabelSelector::new([Requirement::new("", Operator::In, [""; 0])]));
        };
        let labels = text.match_labels.iter().flatten().map(|(key, value)| Ok(Requirement::equals(key, value)));
        let expressions = text.match_expressions.iter().flatten().map(requirement);
        let selector = LabelSelector::new(labels.chain(expressions).collect::<Result<Vec<_>, _>>()?);
        // Whatever breaks the rules for keys and values is not read back as what it was.
        match LabelSelector::parse(&selector.to_string()) {
            Ok(read) if read == selector => Ok(selector),
            Ok(_) => Err("an expression that compares with values has none".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The snapshot of a budget. One whose selector can't be read might protect any pod of its namespace, and waiting does
/// not help: it lets none of them go.
pub(crate) fn budget(budget: Budget) -> Result<BudgetSnapshot, Unreadable> {
    let selector = budget.selector();
    let metadata = budget.metadata.unwrap_or_default();
    let spec = budget.spec.unwrap_or_default();
    let status = budget.status.unwrap_or_default();
    let subject = Subject::of("poddisruptionbudget", &metadata);
    let read = BudgetSnapshot {
        namespace: Arc::from(subject.required("namespace", metadata.namespace.as_ref())?),
        name: Arc::from(subject.required("name", metadata.name.as_ref())?),
        selector: LabelSelector::default(),
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
    };
    Ok(match selector {
        Ok(selector) => BudgetSnapshot { selector, ..read },
        Err(_unreadable) => BudgetSnapshot {
            unhealthy_pods: UnhealthyPods::IfHealthyBudget,
            current: true,
            disruptions_allowed: 0,
            current_healthy: 0,
            desired_healthy: 1,
            expected_pods: 0,
            ..read
        },
    })
}

fn requirement(text: &Expression) -> Result<Requirement, String> {
    let operator: Operator = text.operator.parse().map_err(|error: SelectorError| error.to_string())?;
    let values = text.values.iter().flatten();
    match operator {
        Operator::Exists | Operator::DoesNotExist if values.clone().next().is_some() => {
            Err(format!("`{}` compares with no values, and has some", text.operator))
        }
        Operator::In | Operator::NotIn | Operator::Exists | Operator::DoesNotExist => {
            Ok(Requirement::new(&text.key, operator, values))
        }
    }
}
