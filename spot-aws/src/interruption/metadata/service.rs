//! The metadata service, asked for one document at a time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_config::imds::client::error::ImdsError;
use aws_config::imds::client::{Builder, Client};
use aws_config::provider_config::ProviderConfig;
use spot_core::error::{ErrorClass, PortError, chain};

/// How long one answer may take, with the token that it may need. The service is a neighbour of the machine: one that is
/// well answers in milliseconds, and one that hangs is to cost one poll.
const ATTEMPT: Duration = Duration::from_secs(1);

/// The service, with a session's token.
#[derive(Debug)]
pub(super) struct Service {
    endpoint: String,
    builder: Builder,
    client: Mutex<Client>,
}

impl Service {
    /// Nothing is sent yet.
    pub(super) fn new(endpoint: &str) -> Result<Self, PortError> {
        // Without TLS, which the service does not speak, and without a proxy, which would answer for its own machine.
        let http = aws_smithy_http_client::Builder::new().build_http();
        let builder = Client::builder()
            .configure(&ProviderConfig::default().with_http_client(http))
            // What fails is asked for again in two seconds anyway, and by then with what is true then.
            .max_attempts(1)
            .operation_timeout(ATTEMPT)
            .endpoint(endpoint)
            .map_err(|error| {
                let what = format!("{endpoint:?} is not the address of a metadata service");
                PortError::new(ErrorClass::Permanent, what).caused_by(error)
            })?;
        let client = Mutex::new(builder.clone().build());
        Ok(Self { endpoint: endpoint.to_owned(), builder, client })
    }

    /// A document of the machine's; none: there is none.
    ///
    /// # Errors
    /// When the service does not answer, or not as it ought to.
    pub(super) async fn get(&self, path: &str) -> Result<Option<String>, PortError> {
        let mut answer = self.client().get(at(path)).await;
        if answer.as_ref().is_err_and(|error| status(error) == Some(401)) {
            // The client keeps a token until it expires by the clock; the service forgets it when it starts anew.
            let renewed = self.builder.clone().build();
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = renewed.clone();
            answer = renewed.get(at(path)).await;
        }
        match answer {
            Ok(text) => Ok(Some(text.into())),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(self.failed(path, &error)),
        }
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn failed(&self, path: &str, error: &ImdsError) -> PortError {
        let endpoint = &self.endpoint;
        let why = match status(error) {
            Some(code) => format!("it answers {code}"),
            None => chain(error),
        };
        PortError::new(
            ErrorClass::Transient,
            format!("could not read {path} of the metadata service at {endpoint}: {why}"),
        )
    }
}

fn at(path: &str) -> String {
    format!("/latest/meta-data/{path}")
}

/// The status of an answer that is none.
fn status(error: &ImdsError) -> Option<u16> {
    match error {
        ImdsError::ErrorResponse(answer) => Some(answer.response().status().as_u16()),
        _ => None,
    }
}
