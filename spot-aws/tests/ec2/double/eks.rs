//! EKS: one call.

use super::state::State;
use super::wire::{Answer, Refusal, Request};

pub(crate) fn answer(state: &State, request: &Request) -> Result<Answer, Refusal> {
    let (cluster, name) = (request.params.get("cluster").to_owned(), request.params.get("name").to_owned());
    let Some(status) = state.node_groups.get(&(cluster, name.clone())) else {
        let words = format!("No node group found for name: {name}.");
        return Err(Refusal::new(404, "ResourceNotFoundException", words));
    };
    let body = serde_json::json!({ "nodegroup": { "nodegroupName": name, "status": status } });
    Ok(Answer::ok(body.to_string()))
}
