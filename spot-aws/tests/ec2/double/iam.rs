//! Roles of IAM, which tells of changes late.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::state::State;
use super::wire::{Answer, Refusal, Request, list, tag};

/// What AWS wrote for Spot Fleet.
pub(crate) const POLICY: &str = "iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole";

/// The roles of an account.
#[derive(Debug)]
pub(crate) struct Iam {
    pub(crate) partition: &'static str,
    pub(crate) roles: BTreeMap<String, Role>,
    /// How late it tells of a role or a policy.
    pub(crate) lag: Duration,
}

/// A role.
#[derive(Clone, Debug, Default)]
pub(crate) struct Role {
    /// Where it is: `/` or `/aws-service-role/…/`.
    pub(crate) path: String,
    /// Whom it trusts, as it was given.
    pub(crate) trust: String,
    /// ARNs of its policies, and from when on they are told.
    pub(crate) policies: BTreeMap<String, Option<Instant>>,
    /// Names of policies that are its own.
    pub(crate) own_policies: Vec<&'static str>,
    pub(crate) told_from: Option<Instant>,
}

impl Default for Iam {
    /// An account in which somebody used Spot Fleet before.
    fn default() -> Self {
        let fleet = Role::trusting("spotfleet.amazonaws.com");
        let mut roles = BTreeMap::from([("fleet".to_owned(), fleet.with_policy(&format!("arn:aws:{POLICY}")))]);
        for service in ["spot", "spotfleet"] {
            let (name, role) = service_linked(&format!("{service}.amazonaws.com")).unwrap();
            roles.insert(name.to_owned(), role);
        }
        Self { partition: "aws", roles, lag: Duration::ZERO }
    }
}

impl Role {
    /// One that this service may act by.
    pub(crate) fn trusting(service: &str) -> Self {
        let trust = format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Sid":"","Effect":"Allow","Principal":{{"Service":"{service}"}},"Action":"sts:AssumeRole"}}]}}"#
        );
        Self { path: "/".to_owned(), trust, ..Self::default() }
    }

    pub(crate) fn with_policy(mut self, arn: &str) -> Self {
        self.policies.insert(arn.to_owned(), None);
        self
    }
}

fn service_linked(service: &str) -> Option<(&'static str, Role)> {
    let name = match service {
        "spot.amazonaws.com" => "AWSServiceRoleForEC2Spot",
        "spotfleet.amazonaws.com" => "AWSServiceRoleForEC2SpotFleet",
        _ => return None,
    };
    Some((name, Role { path: format!("/aws-service-role/{service}/"), ..Role::trusting(service) }))
}

pub(crate) fn answer(state: &mut State, request: &Request) -> Option<Result<Answer, Refusal>> {
    let iam = &mut state.iam;
    Some(match request.name.as_str() {
        "GetRole" => iam.told(request).map(|role| request.query(&tag("Role", iam.described(name(request), role)))),
        "ListAttachedRolePolicies" => iam.policies(request),
        "ListRolePolicies" => iam.own_policies(request),
        "CreateRole" => iam.create(request),
        "AttachRolePolicy" => iam.attach(request),
        "CreateServiceLinkedRole" => iam.create_service_linked(request),
        _ => return None,
    })
}

fn name(request: &Request) -> &str {
    request.params.get("RoleName")
}

fn is_told(from: Option<Instant>) -> bool {
    from.is_none_or(|from| from <= Instant::now())
}

fn unknown(name: &str) -> Refusal {
    Refusal::new(404, "NoSuchEntity", format!("The role with name {name} cannot be found."))
}

impl Iam {
    fn told(&self, request: &Request) -> Result<&Role, Refusal> {
        let name = name(request);
        let sound = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(sound) {
            return Err(Refusal::new(400, "ValidationError", "The specified value for roleName is invalid."));
        }
        self.roles.get(name).filter(|role| is_told(role.told_from)).ok_or_else(|| unknown(name))
    }

    fn described(&self, name: &str, role: &Role) -> String {
        let encoded: String = form_urlencoded::byte_serialize(role.trust.as_bytes()).collect();
        tag("RoleName", name)
            + &tag("RoleId", "AROA1")
            + &tag("Path", &role.path)
            + &tag("Arn", format!("arn:{}:iam::123456789012:role{}{name}", self.partition, role.path))
            + &tag("CreateDate", "2026-01-01T00:00:00Z")
            // IAM has a space as `%20`.
            + &tag("AssumeRolePolicyDocument", encoded.replace('+', "%20"))
    }

    /// One a page.
    fn policies(&self, request: &Request) -> Result<Answer, Refusal> {
        let told = self.told(request)?.policies.iter().filter(|(_, from)| is_told(**from));
        let from: usize = request.params.get("Marker").parse().unwrap_or_default();
        let mut rest = told.skip(from);
        let page = rest.next().map(|(arn, _)| tag("PolicyName", "P") + &tag("PolicyArn", arn));
        let more = rest.next().is_some();
        let marker = if more { tag("Marker", from + 1) } else { String::new() };
        Ok(request.query(&(list("AttachedPolicies", "member", page) + &tag("IsTruncated", more) + &marker)))
    }

    fn own_policies(&self, request: &Request) -> Result<Answer, Refusal> {
        let names = self.told(request)?.own_policies.iter().map(|name| (*name).to_owned());
        Ok(request.query(&(list("PolicyNames", "member", names) + &tag("IsTruncated", false))))
    }

    fn create(&mut self, request: &Request) -> Result<Answer, Refusal> {
        let (name, trust) = (name(request), request.params.get("AssumeRolePolicyDocument"));
        let document: serde_json::Value = serde_json::from_str(trust)
            .map_err(|_| Refusal::new(400, "MalformedPolicyDocument", "This policy contains invalid Json"))?;
        if document["Version"] != "2012-10-17" || document["Statement"][0]["Principal"].is_null() {
            let words = "AssumeRole policy must contain resources and principals";
            return Err(Refusal::new(400, "MalformedPolicyDocument", words));
        }
        if self.roles.contains_key(name) {
            let words = format!("Role with name {name} already exists.");
            return Err(Refusal::new(409, "EntityAlreadyExists", words));
        }
        let told_from = Some(Instant::now() + self.lag);
        let role = Role { path: "/".to_owned(), trust: trust.to_owned(), told_from, ..Role::default() };
        let described = self.described(name, &role);
        self.roles.insert(name.to_owned(), role);
        Ok(request.query(&tag("Role", described)))
    }

    fn attach(&mut self, request: &Request) -> Result<Answer, Refusal> {
        let (name, arn) = (name(request), request.params.get("PolicyArn"));
        self.told(request)?;
        if arn != format!("arn:{}:{POLICY}", self.partition) {
            let words = format!("Policy {arn} does not exist or is not attachable.");
            return Err(Refusal::new(404, "NoSuchEntity", words));
        }
        let told_from = Instant::now() + self.lag;
        let role = self.roles.get_mut(name).ok_or_else(|| unknown(name))?;
        role.policies.entry(arn.to_owned()).or_insert(Some(told_from));
        Ok(request.query(""))
    }

    fn create_service_linked(&mut self, request: &Request) -> Result<Answer, Refusal> {
        let service = request.params.get("AWSServiceName");
        let invalid = |words: String| Refusal::new(400, "InvalidInput", words);
        let (name, role) = service_linked(service)
            .ok_or_else(|| invalid(format!("Service Linked Role template for {service} does not exist")))?;
        if self.roles.contains_key(name) {
            let words = "has been taken in this account, please try a different suffix.";
            return Err(invalid(format!("Service role name {name} {words}")));
        }
        let role = Role { told_from: Some(Instant::now() + self.lag), ..role };
        let described = self.described(name, &role);
        self.roles.insert(name.to_owned(), role);
        Ok(request.query(&tag("Role", described)))
    }
}
