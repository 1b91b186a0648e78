//! What can be found out about a pool before it is created, without any effect.

mod balancers;
mod machine;
mod network;
mod rehearsal;
mod roles;

use std::collections::BTreeMap;

use aws_sdk_ec2::types::Filter;
use futures::future;
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::Instant;
use thiserror::Error;

use super::node_pool::NodePool;
use crate::error::{CallError, Kind};

/// The most values of a filter.
const VALUES: usize = 200;

/// What was found out about one thing that a pool needs.
#[derive(Debug)]
pub struct Finding {
    /// The thing: `subnet subnet-1`.
    pub what: String,
    /// Whether it is as the pool needs it.
    pub outcome: Result<(), Trouble>,
}

/// Why a pool can't have something, or why that could not be found out.
#[derive(Debug, Error)]
#[error("{why}: {remedy}")]
pub struct Trouble {
    /// The reason.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
    /// AWS' own words behind it.
    #[source]
    pub cause: Option<PortError>,
    is_certain: bool,
}

impl Finding {
    fn new(what: impl Into<String>, outcome: Result<(), Trouble>) -> Self {
        Self { what: what.into(), outcome }
    }
}

impl Trouble {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: remedy.into(), cause: None, is_certain: true }
    }

    /// What may do as it is, and ought to be known.
    fn advice(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { is_certain: false, ..Self::new(why, remedy) }
    }

    fn caused_by(self, error: CallError) -> Self {
        Self { cause: Some(error.into()), ..self }
    }

    /// That AWS did not answer the question.
    fn unanswered(error: CallError) -> Self {
        let (right, policy) = (error.action.right(), error.action.policy());
        let is_certain = error.kind == Kind::Refused;
        let trouble = match error.kind {
            Kind::Denied => Self::new(
                format!("it could not be asked for, as the right {right} is missing"),
                format!("attach {policy} to the role or user that runs this"),
            ),
            Kind::Credentials => Self::new(
                "it could not be asked for without valid credentials",
                "see that the environment or the profile has some that have not expired",
            ),
            Kind::Throttled | Kind::Unavailable | Kind::Timeout => {
                Self::new("AWS did not say in time", "run it again in a minute")
            }
            Kind::Refused => Self::new("AWS would not say", "see its own words"),
        };
        Self { is_certain, ..trouble.caused_by(error) }
    }

    /// Whether it is certain that the pool can't be as it is, and not just unknown or unwise.
    #[must_use]
    pub const fn is_certain(&self) -> bool {
        self.is_certain
    }
}

impl NodePool {
    /// Everything that can be found out about the pool without any effect: that all it names is there and fits together,
    /// and that EC2 would do what it is going to be asked for, by its own dry runs.
    ///
    /// What a dry run says of a pool that can't be is the same once more, and is left out; a right that is missing is not.
    pub async fn check(&self, by: Instant) -> Vec<Finding> {
        // What AWS does not answer leaves time for the dry runs.
        let now = self.api().clock.instant();
        let half = now + by.since(now) / 2;
        let (mut findings, (machine, image), network) =
            future::join3(self.check_roles(half), self.check_machine(half), self.check_network(half)).await;
        findings.extend(machine.into_iter().chain(network));
        let Some(image) = image else { return findings };
        let is_sound = !findings.iter().any(|finding| finding.outcome.as_ref().is_err_and(Trouble::is_certain));
        let is_refused =
            |trouble: &Trouble| trouble.cause.as_ref().is_some_and(|cause| cause.class == ErrorClass::Permanent);
        let rehearsed = self.rehearse(&image, by).await.into_iter();
        findings.extend(rehearsed.filter(|finding| is_sound || !finding.outcome.as_ref().is_err_and(is_refused)));
        findings
    }

    fn region(&self) -> &str {
        self.api().ec2.config().region().map_or("none", |region| region.as_ref())
    }
}

/// A finding on each of these, by the answer to one question about all of them.
fn each<'a, T>(
    kind: &str,
    names: impl IntoIterator<Item = &'a String>,
    answer: &Result<BTreeMap<String, T>, CallError>,
    judge: impl Fn(&str, Option<&T>) -> Result<(), Trouble>,
) -> Vec<Finding> {
    let outcome = |name: &str| match answer {
        Ok(found) => judge(name, found.get(name)),
        Err(error) => Err(Trouble::unanswered(error.clone())),
    };
    names.into_iter().map(|name| Finding::new(format!("{kind} {name}"), outcome(name))).collect()
}

/// By a filter, what is not there fails nothing.
fn filter<'a>(name: &str, values: impl IntoIterator<Item = &'a String>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.into_iter().cloned().collect())).build()
}
