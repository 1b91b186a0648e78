//! Where a message goes. The address is a secret: it is in no error, no log and no debugging output.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use crate::text;

/// How long one try may take.
const TRY: Duration = Duration::from_secs(10);

/// The address of a webhook.
pub(super) struct Address(Uri);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Address(…)")
    }
}

/// How a webhook answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It took the message.
    Taken,
    /// It never will.
    Refused(String),
    /// It may take it later, and may have said when.
    MayPass(String, Option<Duration>),
}

/// What sends messages.
#[derive(Clone)]
pub(super) struct Endpoint(Client<HttpsConnector<HttpConnector>, Full<bytes::Bytes>>);

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endpoint")
    }
}

/// The address in a file.
///
/// # Errors
/// When the file can't be read, or holds something else. The error does not say what.
pub(super) fn read(file: &Path) -> anyhow::Result<Address> {
    let name = file.display();
    let text = text::read(file).with_context(|| format!("can't read `notifications.webhookUrlFile`: {name}"))?;
    let wrong = |what: &str| anyhow!("`notifications.webhookUrlFile`: {name} {what}");
    let uri: Uri = text.trim().parse().map_err(|_secret| wrong("holds no URL: write one as https://host/path"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(Address(uri)),
        Some("http") if is_loopback => Ok(Address(uri)),
        Some("http") => Err(wrong("holds a URL of http, which anybody on the way can read: use https")),
        Some(_) | None => Err(wrong("holds no URL of https: write one as https://host/path")),
    }
}

impl Endpoint {
    pub(super) fn new() -> anyhow::Result<Self> {
        let connector = HttpsConnectorBuilder::new().with_native_roots()?.https_or_http().enable_http1().build();
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }

    /// Sends it once. Redirections are answers like others: whoever sends them is not followed.
    pub(super) async fn post(&self, Address(uri): &Address, body: String) -> Answer {
        let request = Request::post(uri.clone()).header(CONTENT_TYPE, "application/json");
        let Ok(request) = request.body(Full::from(body)) else {
            return Answer::Refused("the request can't be made".to_owned());
        };
        let response = match timeout(TRY, self.0.request(request)).await {
            Ok(Ok(response)) => response,
            // What is behind it may name the host.
            Ok(Err(error)) if error.is_connect() => return Answer::MayPass("no connection".to_owned(), None),
            Ok(Err(_unsaid)) => return Answer::MayPass("the connection broke".to_owned(), None),
            Err(_elapsed) => return Answer::MayPass(format!("no answer within {} s", TRY.as_secs()), None),
        };
        let status = response.status();
        let why = format!("it answered {}", status.as_u16());
        let later = response.headers().get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        if status.is_success() {
            Answer::Taken
        } else if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            Answer::MayPass(why, later.map(Duration::from_secs))
        } else {
            Answer::Refused(why)
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://hooks.example.org/services/T0/B0/s3cret\n", None)]
    #[case("http://127.0.0.1:9/s3cret", None)]
    #[case("http://[::1]:9/s3cret", None)]
    #[case("http://hooks.example.org/s3cret", Some("use https"))]
    #[case("ftp://hooks.example.org/s3cret", Some("no URL of https"))]
    #[case("hooks s3cret", Some("no URL"))]
    #[case("", Some("no URL"))]
    fn an_address_is_one_of_https_and_is_never_said(#[case] text: &str, #[case] said: Option<&str>) {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("url");
        std::fs::write(&file, text).expect("it is writable");
        match (read(&file), said) {
            (Ok(address), None) => assert!(!format!("{address:?}").contains("s3cret"), "{address:?}"),
            (Err(error), Some(said)) => {
                let error = format!("{error:#} {error:?}");
                assert!(error.contains(said) && error.contains("url") && !error.contains("s3cret"), "{error}");
            }
            (address, said) => panic!("{address:?}, {said:?}"),
        }
    }
}
