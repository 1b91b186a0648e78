//! The roles of fleets: found, missing, made once.

use std::sync::Arc;

use spot_aws::fleet::{Missing, Roles, ServiceLinked};
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::{Alone, Clock, Instant, Write};

use crate::double::iam::{POLICY, Role};
use crate::double::{self, Fault};
use crate::support::{Time, config, secs, settings};
use crate::world::said;

struct Account {
    aws: double::Aws,
    clock: Arc<Time>,
}

impl Account {
    /// In which everything is there.
    fn used() -> Self {
        Self { aws: double::Aws::default(), clock: Arc::new(Time::starting()) }
    }

    /// In which nobody used spot instances yet.
    fn fresh() -> Self {
        let account = Self::used();
        account.aws.state().iam.roles.clear();
        account
    }

    fn with(self, name: &str, role: Role) -> Self {
        self.aws.state().iam.roles.insert(name.to_owned(), role);
        self
    }

    fn roles(&self, role: &str) -> Roles {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        Roles::new(Arc::new(spot_aws::Aws::new(settings(), &config(&self.aws), clock, None)), role)
    }

    fn by(&self, seconds: u64) -> Instant {
        self.clock.instant() + secs(seconds)
    }

    async fn missing(&self, role: &str) -> Vec<Missing> {
        self.roles(role).missing(self.by(60)).await.unwrap()
    }

    async fn create(&self, seconds: u64) -> Result<Vec<Missing>, PortError> {
        self.roles("fleet").create(&Write::assume(self.by(seconds), Arc::new(Alone))).await
    }

    fn writes(&self) -> Vec<String> {
        let reads = ["iam:GetRole", "iam:ListAttachedRolePolicies", "iam:ListRolePolicies"];
        let calls = self.aws.calls().into_iter().map(|call| call.action);
        calls.filter(|action| !reads.contains(&action.as_str())).collect()
    }
}

fn all() -> Vec<Missing> {
    let name = || "fleet".to_owned();
    let own = [Missing::Role { name: name() }, Missing::Policy { name: name() }];
    own.into_iter().chain(ServiceLinked::ALL.map(Missing::ServiceLinked)).collect()
}

fn unknown_rights() -> [Missing; 1] {
    [Missing::Rights { name: "fleet".to_owned() }]
}

fn policy(partition: &str) -> String {
    format!("arn:{partition}:{POLICY}")
}

#[tokio::test(start_paused = true)]
async fn where_everything_is_there_nothing_is_missing_and_nothing_is_made() {
    let account = Account::used();
    assert_eq!(account.missing("fleet").await, []);
    assert_eq!(account.missing("arn:aws:iam::123456789012:role/fleet").await, []);
    assert_eq!(account.create(60).await.unwrap(), []);
    assert_eq!(account.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_told_with_why_it_is_needed_and_what_makes_it() {
    let account = Account::fresh();
    let missing = account.missing("fleet").await;
    assert_eq!(missing, all());
    assert_eq!(account.writes(), [""; 0]);
    let told = |of: fn(&Missing) -> String| missing.iter().map(of).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!("missing", told(ToString::to_string));
    insta::assert_snapshot!("steps", told(Missing::step));
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_made_once() {
    let account = Account::fresh();
    assert_eq!(account.create(60).await.unwrap(), all());
    let made = ["iam:CreateRole", "iam:AttachRolePolicy", "iam:CreateServiceLinkedRole", "iam:CreateServiceLinkedRole"];
    assert_eq!(account.writes(), made);
    assert_eq!(account.missing("fleet").await, []);
    assert_eq!(account.create(60).await.unwrap(), []);
    assert_eq!(account.writes(), made, "nothing twice");
}

#[tokio::test(start_paused = true)]
async fn only_what_is_missing_is_made() {
    let account = Account::used().with("fleet", Role::trusting("spotfleet.amazonaws.com"));
    account.aws.state().iam.roles.remove("AWSServiceRoleForEC2Spot");
    let made = [Missing::Policy { name: "fleet".to_owned() }, Missing::ServiceLinked(ServiceLinked::Spot)];
    assert_eq!(account.create(60).await.unwrap(), made);
    assert_eq!(account.writes(), ["iam:AttachRolePolicy", "iam:CreateServiceLinkedRole"]);
}

#[tokio::test(start_paused = true)]
async fn a_role_with_rights_of_its_owners_choice_is_left_as_it_is_and_holds_up_nothing() {
    let role = || Role::trusting("spotfleet.amazonaws.com");
    let attached = role().with_policy("arn:aws:iam::123456789012:policy/own");
    let written_into_it = Role { own_policies: vec!["launch"], ..role() };
    for role in [attached, written_into_it] {
        let account = Account::used().with("fleet", role);
        let missing = account.missing("fleet").await;
        assert_eq!(missing, unknown_rights());
        assert!(!missing[0].is_certain() && missing[0].to_string().contains("AmazonEC2SpotFleetTaggingRole"));
        account.aws.state().iam.roles.remove("AWSServiceRoleForEC2Spot");
        assert_eq!(account.create(60).await.unwrap(), [Missing::ServiceLinked(ServiceLinked::Spot)]);
        assert_eq!(account.writes(), ["iam:CreateServiceLinkedRole"], "nothing is attached");
    }
}

#[tokio::test(start_paused = true)]
async fn rights_that_may_not_be_read_hold_up_nothing() {
    let account = Account::used();
    account.aws.fail("iam:ListAttachedRolePolicies", Fault::Denied, u32::MAX);
    assert_eq!(account.missing("fleet").await, unknown_rights());
    assert_eq!(account.create(60).await.unwrap(), []);
    assert_eq!(account.writes(), [""; 0]);
    let account = Account::used().with("fleet", Role::trusting("spotfleet.amazonaws.com"));
    account.aws.fail("iam:ListRolePolicies", Fault::Denied, u32::MAX);
    assert_eq!(account.missing("fleet").await, unknown_rights());
    let account = Account::fresh();
    account.aws.fail("iam:ListAttachedRolePolicies", Fault::Denied, u32::MAX);
    assert_eq!(account.create(60).await.unwrap(), all(), "a role that was made just now has its rights attached");
    assert!(account.aws.state().iam.roles["fleet"].policies.contains_key(&policy("aws")));
}

#[tokio::test(start_paused = true)]
async fn roles_that_are_told_late_are_waited_for() {
    let account = Account::fresh();
    account.aws.state().iam.lag = secs(15);
    assert_eq!(account.create(120).await.unwrap(), all());
    assert_eq!(account.missing("fleet").await, [], "what was made is told");
}

#[tokio::test(start_paused = true)]
async fn roles_that_are_there_but_not_told_yet_are_nobodys_work() {
    let account = Account::fresh();
    account.aws.state().iam.lag = secs(15);
    let (one, other) = tokio::join!(account.create(120), account.create(120));
    let mut made: Vec<_> = one.unwrap().into_iter().chain(other.unwrap()).collect();
    made.retain(|one| !matches!(one, Missing::Policy { .. }));
    assert_eq!(made.len(), 3, "each by one of the two: {made:?}");
    assert_eq!(account.missing("fleet").await, []);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_what_is_told_late_ends_with_the_deadline() {
    let account = Account::fresh();
    account.aws.state().iam.lag = secs(600);
    let (class, words) = said(account.create(60).await);
    assert_eq!(class, ErrorClass::Timeout, "{words}");
    assert!(words.contains("run it again"), "{words}");
    assert!(account.clock.instant() <= Instant(secs(61)));
}

#[tokio::test(start_paused = true)]
async fn passing_faults_are_passed_and_what_their_lost_answers_made_is_counted() {
    for action in ["iam:CreateRole", "iam:AttachRolePolicy", "iam:CreateServiceLinkedRole", "iam:GetRole"] {
        for fault in Fault::PASSING {
            let account = Account::fresh();
            account.aws.fail(action, fault, 1);
            assert_eq!(account.create(300).await.unwrap(), all(), "{action} {fault:?}");
            assert_eq!(account.missing("fleet").await, [], "{action} {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_told_with_the_policy_that_has_it() {
    for action in ["iam:GetRole", "iam:CreateRole", "iam:CreateServiceLinkedRole"] {
        let account = Account::fresh();
        account.aws.fail(action, Fault::Denied, 9);
        let (class, words) = said(account.create(60).await);
        assert_eq!(class, ErrorClass::Denied, "{words}");
        assert!(words.contains(action) && words.contains("deploy/iam/spot-fleet.json"), "{words}");
    }
}

#[tokio::test(start_paused = true)]
async fn whom_a_role_trusts_is_not_changed() {
    let other = Role::trusting("ec2.amazonaws.com").with_policy(&policy("aws"));
    let account = Account::used().with("fleet", other);
    account.aws.state().iam.roles.remove("AWSServiceRoleForEC2Spot");
    let expected = [Missing::Trust { name: "fleet".to_owned() }, Missing::ServiceLinked(ServiceLinked::Spot)];
    assert_eq!(account.missing("fleet").await, expected);
    let (class, words) = said(account.create(60).await);
    assert_eq!(class, ErrorClass::Permanent);
    assert!(words.contains("does not trust spotfleet.amazonaws.com") && words.contains("`fleetRole`"), "{words}");
    assert_eq!(account.writes(), [""; 0], "nothing is made beside it");
}

#[tokio::test(start_paused = true)]
async fn a_role_of_another_account_is_not_the_one_of_its_name_here() {
    let account = Account::used();
    let (wanted, found) = ("arn:aws:iam::210987654321:role/fleet", "arn:aws:iam::123456789012:role/fleet");
    let expected = [Missing::Other { wanted: wanted.to_owned(), found: found.to_owned() }];
    assert_eq!(account.missing(wanted).await, expected);
    assert!(!expected[0].can_be_made());
}

#[tokio::test(start_paused = true)]
async fn the_policy_is_that_of_the_roles_own_partition() {
    let account = Account::fresh();
    account.aws.state().iam.partition = "aws-cn";
    assert_eq!(account.create(60).await.unwrap(), all());
    let attached: Vec<_> = account.aws.state().iam.roles["fleet"].policies.keys().cloned().collect();
    assert_eq!(attached, [policy("aws-cn")]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_among_many_is_found() {
    let role = Role::trusting("spotfleet.amazonaws.com").with_policy("arn:aws:iam::123456789012:policy/another");
    let account = Account::used().with("fleet", role.clone());
    assert_eq!(account.missing("fleet").await, unknown_rights());
    let account = account.with("fleet", role.with_policy(&policy("aws")).with_policy("arn:aws:iam::aws:policy/last"));
    assert_eq!(account.missing("fleet").await, []);
}

#[tokio::test(start_paused = true)]
async fn trust_is_read_as_iam_writes_it() {
    let document = |statement: &str| format!(r#"{{"Version":"2012-10-17","Statement":{statement}}}"#);
    let trusting = [
        r#"{"Effect":"Allow","Principal":{"Service":["ec2.amazonaws.com","spotfleet.amazonaws.com"]},"Action":["sts:AssumeRole"]}"#,
        r#"[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"},{"Effect":"Allow","Principal":{"Service":"spotfleet.amazonaws.com"},"Action":"sts:AssumeRole"}]"#,
        r#"{"Effect":"Allow","Principal":{"Service":"spotfleet.amazonaws.com.cn"},"Action":"sts:*"}"#,
    ];
    let others = [
        r#"{"Effect":"Deny","Principal":{"Service":"spotfleet.amazonaws.com"},"Action":"sts:AssumeRole"}"#,
        r#"{"Effect":"Allow","Principal":{"Service":"spotfleet.amazonaws.com"},"Action":"sts:TagSession"}"#,
        r#"{"Effect":"Allow","Principal":{"AWS":"spotfleet.amazonaws.com"},"Action":"sts:AssumeRole"}"#,
        "[]",
        "no JSON",
    ];
    for (statement, trusts) in trusting.map(|one| (one, true)).into_iter().chain(others.map(|one| (one, false))) {
        let mut role = Role::trusting("").with_policy(&policy("aws"));
        role.trust = document(statement);
        let account = Account::used().with("fleet", role);
        assert_eq!(account.missing("fleet").await.is_empty(), trusts, "{statement}");
    }
}
