//! What a call's failure means: throttled, unreachable, timed out, denied, or refused.

use std::error::Error as StdError;
use std::fmt;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_runtime_api::http::Response;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use spot_core::error::{ErrorClass, PortError, chain};

use crate::action::Action;

/// What helps where credentials are not accepted.
const RENEW: &str = "sign in again, or name another profile with `AWS_PROFILE`";
/// What may help where no credentials are found at all.
const METADATA: &str = "sign in, or name a profile with `AWS_PROFILE`; those of the machine's own role are used only with `AWS_EC2_METADATA_DISABLED=false` in the \
                        environment";

/// Codes of requests that came too fast.
const THROTTLED: [&str; 12] = [
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "TooManyRequestsException",
    "RequestLimitExceeded",
    "EC2ThrottledException",
    "BandwidthLimitExceeded",
    "SlowDown",
    "KmsThrottled",
    "KMS.ThrottlingException",
];
/// Codes of requests that meet another activity, and may be made again later.
const BUSY: [&str; 5] = [
    "ScalingActivityInProgress",
    "ResourceContention",
    "ResourceInUseException",
    "FleetNotInModifiableState",
    "OverLimit",
];
const DENIED: [&str; 5] =
    ["UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "KmsAccessDenied", "KMS.AccessDeniedException"];
/// Codes of credentials that are missing, wrong or worn out, or of a clock that is wrong.
const CREDENTIALS: [&str; 12] = [
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "InvalidToken",
    "OptInRequired",
];
const UNAVAILABLE: [&str; 5] =
    ["InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "Unavailable"];

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// AWS wants fewer requests, or another activity to end first: nothing happened.
    Throttled,
    /// AWS fails or can't be reached: whether it took effect is unknown.
    Unavailable,
    /// No answer in time: whether it took effect is unknown.
    Timeout,
    /// The right is missing.
    Denied,
    /// The credentials are missing or not accepted.
    Credentials,
    /// AWS will not.
    Refused,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub(crate) struct CallError {
    pub(crate) action: Action,
    pub(crate) kind: Kind,
    /// AWS' code; empty where AWS did not answer.
    pub(crate) code: String,
    /// AWS' words, or those of whoever failed on the way to it.
    pub(crate) words: String,
}

impl CallError {
    pub(crate) fn timeout(action: Action) -> Self {
        let words = "no answer within the deadline".to_owned();
        Self { action, kind: Kind::Timeout, code: String::new(), words }
    }

    pub(crate) fn of<E>(action: Action, error: &SdkError<E, Response>) -> Self
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        let without_code = |kind| Self { action, kind, code: String::new(), words: one_line(&chain(error)) };
        match error {
            SdkError::TimeoutError(_) => without_code(Kind::Timeout),
            _ if let Some(kind) = of_credentials(error) => without_code(kind),
            SdkError::ConstructionFailure(_) => without_code(Kind::Refused),
            SdkError::DispatchFailure(failure) if failure.is_timeout() => without_code(Kind::Timeout),
            // Half an answer, that was to say yes.
            SdkError::ServiceError(answer) if answer.raw().status().is_success() => without_code(Kind::Unavailable),
            SdkError::ServiceError(answer) => {
                let status = answer.raw().status().as_u16();
                let code = answer.err().code().unwrap_or_default();
                // EC2 once said in the code whose fault it is.
                let code = code.strip_prefix("Client.").or_else(|| code.strip_prefix("Server.")).unwrap_or(code);
                let words = one_line(answer.err().message().unwrap_or_default());
                Self { action, kind: kind(code, status), code: code.to_owned(), words }
            }
            // Broken off, or an answer that can't be read.
            _ => without_code(Kind::Unavailable),
        }
    }

    /// The same where nobody answered, with the place that was asked, and what helps if that is a wrong one.
    pub(crate) fn at(mut self, place: &str) -> Self {
        if self.code.is_empty() && matches!(self.kind, Kind::Unavailable | Kind::Timeout) {
            self.words = format!("{} ({place}; see that this is right, and that it can be reached)", self.words);
        }
        self
    }

    /// Whether the call may be made again.
    #[cfg(feature = "ec2")]
    pub(crate) const fn may_pass(&self) -> bool {
        match self.kind {
            Kind::Throttled | Kind::Unavailable | Kind::Timeout => true,
            Kind::Denied | Kind::Credentials | Kind::Refused => false,
        }
    }

    /// Whether it certainly had no effect.
    #[cfg(feature = "ec2")]
    pub(crate) const fn had_no_effect(&self) -> bool {
        match self.kind {
            Kind::Throttled | Kind::Denied | Kind::Credentials | Kind::Refused => true,
            Kind::Unavailable | Kind::Timeout => false,
        }
    }

    /// Whether what was asked for is not there.
    #[cfg(feature = "ec2")]
    pub(crate) fn is_not_found(&self) -> bool {
        self.kind == Kind::Refused && (self.code.contains("NotFound") || self.code == "InvalidInstance")
    }
}

fn kind(code: &str, status: u16) -> Kind {
    if THROTTLED.contains(&code) || BUSY.contains(&code) || status == 429 {
        Kind::Throttled
    } else if DENIED.contains(&code) {
        Kind::Denied
    } else if CREDENTIALS.contains(&code) {
        Kind::Credentials
    } else if UNAVAILABLE.contains(&code) || status >= 500 {
        Kind::Unavailable
    } else {
        Kind::Refused
    }
}

/// What it means that there are no credentials, if that is what went wrong. Whoever hands them out may not have
/// answered: then they come later.
fn of_credentials(error: &(dyn StdError + 'static)) -> Option<Kind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref() {
            return Some(match error {
                CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_) => {
                    Kind::Credentials
                }
                CredentialsError::ProviderTimedOut(_) => Kind::Timeout,
                _ => Kind::Unavailable,
            });
        }
        next = error.source();
    }
    None
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, kind, code, words } = self;
        match kind {
            Kind::Throttled => write!(f, "{action} is throttled")?,
            Kind::Unavailable => write!(f, "{action} fails")?,
            Kind::Timeout => write!(f, "{action} takes too long")?,
            Kind::Denied => write!(f, "not allowed to call {action}, see {}", action.policy())?,
            Kind::Credentials => write!(f, "no valid credentials to call {action}")?,
            Kind::Refused => write!(f, "{action} is refused")?,
        }
        if !words.is_empty() {
            write!(f, ": {words}")?;
        }
        if !code.is_empty() {
            write!(f, " ({code})")?;
        }
        match kind {
            Kind::Credentials if code.is_empty() => write!(f, "; {METADATA}"),
            Kind::Credentials => write!(f, "; {RENEW}"),
            Kind::Throttled | Kind::Unavailable | Kind::Timeout | Kind::Denied | Kind::Refused => Ok(()),
        }
    }
}

/// Words of others may be lines.
fn one_line(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl StdError for CallError {}

impl From<CallError> for PortError {
    fn from(error: CallError) -> Self {
        let class = match error.kind {
            Kind::Throttled | Kind::Unavailable => ErrorClass::Transient,
            Kind::Timeout => ErrorClass::Timeout,
            Kind::Denied | Kind::Credentials => ErrorClass::Denied,
            Kind::Refused => ErrorClass::Permanent,
        };
        Self::new(class, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_smithy_types::error::ErrorMetadata;

    use super::*;

    fn without_credentials(error: CredentialsError) -> PortError {
        let error = SdkError::<ErrorMetadata, Response>::construction_failure(error);
        CallError::of(Action::DescribeInstances, &error).into()
    }

    #[test]
    fn credentials_that_could_not_be_fetched_may_come_later_and_those_that_are_not_there_will_not() {
        for (error, class) in [
            (CredentialsError::provider_timed_out(Duration::from_secs(5)), ErrorClass::Timeout),
            (CredentialsError::provider_error("no route to STS"), ErrorClass::Transient),
            (CredentialsError::unhandled("half an answer"), ErrorClass::Transient),
            (CredentialsError::not_loaded_no_source(), ErrorClass::Denied),
            (CredentialsError::invalid_configuration("no such profile"), ErrorClass::Denied),
        ] {
            let said = error.to_string();
            assert_eq!(without_credentials(error).class, class, "{said}");
        }
    }

    #[test]
    fn only_who_finds_no_credentials_is_told_of_the_switch_of_the_metadata_service() {
        let names_it = |error: PortError| error.to_string().contains("AWS_EC2_METADATA_DISABLED=false");
        assert!(names_it(without_credentials(CredentialsError::not_loaded_no_source())));
        assert!(!names_it(without_credentials(CredentialsError::provider_error("no route to STS"))));
        assert!(!names_it(expired().into()));
    }

    fn expired() -> CallError {
        let (code, words) = ("ExpiredToken".to_owned(), String::new());
        CallError { action: Action::DescribeInstances, kind: Kind::Credentials, code, words }
    }

    #[test]
    fn whoever_has_no_valid_credentials_is_told_how_to_get_some_on_one_line() {
        let lines = CredentialsError::not_loaded("no file\n  and no variable\n");
        for error in [without_credentials(lines), expired().into()] {
            let said = error.to_string();
            assert!(said.contains("sign in") && said.contains("`AWS_PROFILE`"), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
        let taken_in = without_credentials(CredentialsError::not_loaded("no file\n  and no variable\n")).to_string();
        assert!(taken_in.contains("no file and no variable"), "{taken_in}");
    }

    #[test]
    fn only_where_nobody_answered_it_is_told_who_was_asked_and_what_to_look_at() {
        let place = "region eu-nowhere-1";
        let failure = SdkError::<ErrorMetadata, Response>::timeout_error("no answer");
        let unheard = CallError::of(Action::DescribeInstances, &failure).at(place).to_string();
        assert!(unheard.contains(place) && unheard.contains("see that this is right"), "{unheard}");
        assert!(!expired().at(place).to_string().contains(place));
    }
}
