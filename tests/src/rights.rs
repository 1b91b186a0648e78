//! What the product may do: exactly what the manifests in `deploy/` say.

use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;

use crate::{
    control_plane::User,
    programs,
    wait::{PATIENCE, until},
    world::World,
};

/// The namespace in which the product keeps its lease and its memory.
pub const NAMESPACE: &str = "spot-migrator";

/// The name of the product's roles in `deploy/`.
const ROLE: &str = "spot-migrator";

/// Gives the product's user what the manifests give its service account.
///
/// # Panics
/// If the API server refuses them.
pub async fn grant(world: &World) {
    grant_role(world, "rbac.yaml", ROLE, User::Migrator).await;
}

/// Gives the user of `spot-fleet` what its manifest gives its service account.
///
/// # Panics
/// If the API server refuses it.
pub async fn grant_fleet(world: &World) {
    grant_role(world, "rbac-fleet.yaml", "spot-fleet", User::Fleet).await;
}

/// Applies a manifest in `deploy/`, and binds its roles of the name `role` to `user`.
async fn grant_role(world: &World, manifest: &str, role: &str, user: User) {
    let (client, create) = (world.client(), PostParams::default());
    let manifest = programs::repository().join("deploy").join(manifest);
    let manifest = manifest.to_str().expect("the path is UTF-8");
    // Strict: a misspelt field of our own manifest is an error here, as it ought to be.
    let _applied: String = world.control_plane().kubectl(&["apply", "--validate=strict", "-f", manifest]);

    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.name()}]);
    let name = format!("world-{}", user.name());
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }))
    .expect("the fields are those of a ClusterRoleBinding");
    Api::all(client.clone()).create(&create, &binding).await.expect("the binding is accepted");
    let roles = Api::<Role>::all(client.clone()).list(&ListParams::default()).await.expect("roles can be listed");
    for found in roles.into_iter().filter(|found| found.name_any() == role) {
        let namespace = found.namespace().expect("a Role has a namespace");
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": subjects,
        }))
        .expect("the fields are those of a RoleBinding");
        Api::namespaced(client.clone(), &namespace).create(&create, &binding).await.expect("the binding is accepted");
    }
    in_force(world, user, ("", "nodes", "list"), true).await;
}

/// Gives the product's user what it needs besides where it answers interruptions.
///
/// # Panics
/// If the API server refuses it.
pub async fn grant_answers(world: &World) {
    let manifest = programs::repository().join("deploy/rbac-interruption.yaml");
    let manifest = manifest.to_str().expect("the path is UTF-8");
    let _applied: String = world.control_plane().kubectl(&["apply", "--validate=strict", "-f", manifest]);
    world.apply(&[json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "world-migrator-interruption"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "spot-migrator-interruption"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": User::Migrator.name()}],
    })]);
    in_force(world, User::Migrator, ("", "pods", "delete"), true).await;
}

/// Takes one right from the product's role, as in `("", "pods/eviction", "create")`. The change is in force
/// once the call returns.
///
/// # Panics
/// If no rule grants it: then a test would prove nothing.
pub async fn revoke(world: &World, group: &str, resource: &str, verb: &str) {
    let roles = Api::<ClusterRole>::all(world.client());
    let mut role = roles.get(ROLE).await.expect("the rights were granted");
    let mut revoked = false;
    for rule in role.rules.iter_mut().flatten() {
        let names = |list: &Option<Vec<String>>, value: &str| list.iter().flatten().any(|one| one == value);
        if names(&rule.api_groups, group) && names(&rule.resources, resource) {
            let before = rule.verbs.len();
            rule.verbs.retain(|one| one != verb);
            revoked |= rule.verbs.len() < before;
        }
    }
    assert!(revoked, "no rule of ClusterRole {ROLE} grants {verb} on {group}/{resource}");
    // A rule without verbs is not a rule.
    role.rules.iter_mut().for_each(|rules| rules.retain(|rule| !rule.verbs.is_empty()));
    roles.replace(ROLE, &PostParams::default(), &role).await.expect("the role can be replaced");
    in_force(world, User::Migrator, (group, resource, verb), false).await;
}

/// Waits until the authorizer knows: it hears of changed roles by a watch.
async fn in_force(world: &World, user: User, (group, resource, verb): (&str, &str, &str), allowed: bool) {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review: SubjectAccessReview = serde_json::from_value(json!({"spec": {
        "user": user.name(),
        "groups": [user.group(), "system:authenticated"],
        "resourceAttributes": {"group": group, "resource": resource, "subresource": subresource, "verb": verb},
    }}))
    .expect("the fields are those of a SubjectAccessReview");
    let reviews = Api::<SubjectAccessReview>::all(world.client());
    until("the changed rights to be in force", PATIENCE, || async {
        let review = reviews.create(&PostParams::default(), &review).await.map_err(|error| error.to_string())?;
        let status = review.status.unwrap_or_default();
        if status.allowed == allowed { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
}
