//! A namespace is being deleted, and its pods are still there: nobody can evict them, and they go by themselves.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::json;
use spot_tests::{
    Machine, Migrator, World,
    control_plane::User,
    wait::{PATIENCE, until},
};

use crate::{RUN, asked, assert_no_pod_deleted, settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_a_terminating_namespace_is_waited_for_and_the_drain_goes_on_when_it_is_gone() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("on-demand-1")]).await;
    let metadata = json!({"name": "leaving", "namespace": "leaving"});
    let labels = json!({"app": "leaving"});
    world.apply(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "leaving"}}),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "containers": [{"name": "main", "image": "nothing"}],
                },
            }},
        }),
        // Keeps the namespace from emptying itself, for as long as the test wants.
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "pods-stay"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"],
                }]},
                "validations": [{
                    "expression": "request.namespace != 'leaving' || request.userInfo.username != 'controllers'",
                    "message": "pods stay",
                }],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "pods-stay"},
            "spec": {"policyName": "pods-stay", "validationActions": ["Deny"]},
        }),
    ]);
    let pods: Api<Pod> = Api::namespaced(world.client(), "leaving");
    let pod = until("the pod to be there", PATIENCE, || async {
        let pods = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let running = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        let found = pods.items.iter().find(|pod| running(pod)).map(ResourceExt::name_any);
        found.ok_or_else(|| format!("{} pods", pods.items.len()))
    })
    .await;
    let controllers: Api<Pod> = Api::namespaced(world.control_plane().client_of(User::Controllers), "leaving");
    until("the policy to be in force", PATIENCE, || async {
        match controllers.delete(&pod, &DeleteParams { dry_run: true, ..DeleteParams::default() }).await {
            Err(kube::Error::Api(status)) if status.message.contains("pods stay") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let namespaces: Api<Namespace> = Api::all(world.client());
    namespaces.delete("leaving", &DeleteParams::default()).await.expect("the namespace can be deleted");
    world.join(&[Machine::spot("spot-1")]).await;

    let migrator = Migrator::install(&world, settings("60s")).await;
    let witness = world.witness().await;
    let running = migrator.run(&["--once"]);
    asked(&world, &running, "two evictions to be refused", |audit| {
        let refused = audit.evictions_by(User::Migrator).filter(|entry| entry.code == 403 && entry.name == pod);
        (refused.count() >= 2).then_some(())
    })
    .await;
    assert_eq!(witness.gone(), Vec::<String>::new(), "a pod is on it");
    pods.delete(&pod, &DeleteParams::default()).await.expect("the pod can be deleted");

    running.ended(RUN).await.assert_code(0);
    witness.caught_up().await;
    assert_eq!(witness.gone(), ["on-demand-1"]);
    let audit = world.audit().await;
    assert!(audit.evictions_by(User::Migrator).all(|entry| entry.code == 403), "no eviction was possible");
    assert_no_pod_deleted(&audit);
}
