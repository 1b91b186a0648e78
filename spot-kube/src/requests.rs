//! Requests with deadlines, bounded retries and classified errors.

use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, select};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request};
use kube::client::Body;
use serde::de::DeserializeOwned;
use spot_core::error::{ErrorClass, PortError};
use spot_core::ports::{Clock, Instant, Lane, Write};
use tokio::sync::Semaphore;

use crate::status::Status;

/// How long one attempt may take: far above what a healthy API server needs, and above its own time-out for webhooks
/// of default length.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(10);

/// How long a page of a list may take.
pub(crate) const PAGE: Duration = Duration::from_secs(30);

/// Requests in flight, by lane. The client speaks HTTP/1.1, so each is a connection of its own.
const IN_FLIGHT: usize = 64;

/// The same of forced writes of nodes. They come all at once, when there may be no connection yet, and then it is
/// handshakes that take the time: two hundred were through soonest with 16 connections, and took half as long again with
/// 64.
const CORDONS_IN_FLIGHT: usize = 16;

/// The same of forced evictions. Of 2,000 that came at once the last began after 11 s with 256, and after 18 s with 64;
/// no more than an API server takes by its defaults (`--max-mutating-requests-inflight`).
const EVICTIONS_IN_FLIGHT: usize = 200;

/// How long the first attempt of a forced write may take, doubling up to [`ATTEMPT`]: it may have gone over a
/// connection that died in silence, and a machine that is about to go leaves no time to wait for that.
const FORCED_ATTEMPT: Duration = Duration::from_secs(2);

/// The first wait between attempts; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest wait between attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The right that a request needs, in RBAC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static str,
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

/// A request that can be sent again.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) needs: Needs,
    /// The object it is about, for errors; empty for all.
    pub(crate) object: String,
    pub(crate) method: Method,
    pub(crate) uri: String,
    pub(crate) content_type: &'static str,
    pub(crate) accept: Option<&'static str>,
    pub(crate) body: Vec<u8>,
    /// How long one attempt may take.
    pub(crate) attempt: Duration,
}

impl Call {
    pub(crate) fn get(needs: Needs, object: impl Into<String>, uri: impl Into<String>) -> Self {
        Self::new(Method::GET, needs, object, uri, Vec::new())
    }

    pub(crate) fn new(
        method: Method,
        needs: Needs,
        object: impl Into<String>,
        uri: impl Into<String>,
        body: Vec<u8>,
    ) -> Self {
        Self {
            needs,
            object: object.into(),
            method,
            uri: uri.into(),
            content_type: "application/json",
            accept: None,
            body,
            attempt: ATTEMPT,
        }
    }

    pub(crate) fn request(&self) -> Result<Request<Vec<u8>>, PortError> {
        let mut request = Request::builder().method(self.method.clone()).uri(&self.uri);
        if !self.body.is_empty() {
            request = request.header(CONTENT_TYPE, self.content_type);
        }
        if let Some(accept) = self.accept {
            request = request.header(ACCEPT, accept);
        }
        request.body(self.body.clone()).map_err(|error| self.error(ErrorClass::Permanent).caused_by(error))
    }

    /// An error of this call.
    pub(crate) fn error(&self, class: ErrorClass) -> PortError {
        PortError::new(class, format!("could not {self}"))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.needs)?;
        if self.object.is_empty() { Ok(()) } else { write!(f, " {}", self.object) }
    }
}

/// What came back, whatever it says.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The answer as a Kubernetes `Status`; one made up from the text where it is none.
    pub(crate) fn status(&self) -> Status {
        Status::of(self.code, &self.body)
    }

    /// The object in the answer.
    pub(crate) fn object<T: DeserializeOwned>(&self, call: &Call) -> Result<T, PortError> {
        // The effect, if any, took place: so it is not permanent.
        serde_json::from_slice(&self.body).map_err(|error| call.error(ErrorClass::Transient).caused_by(error))
    }

    /// This answer as an error of `call`.
    pub(crate) fn error(&self, call: &Call) -> PortError {
        let said = self.status();
        let class = match self.code {
            401 | 403 => ErrorClass::Denied,
            408 | 409 | 410 | 429 | 500..=599 => ErrorClass::Transient,
            _ => ErrorClass::Permanent,
        };
        let error = match self.code {
            401 => PortError::new(class, format!("not authenticated: could not {call}")),
            403 => PortError::new(class, format!("not allowed to {call}: the right `{}` is missing", call.needs)),
            _ => call.error(class),
        };
        error.caused_by(said)
    }
}

/// Sends requests.
pub(crate) struct Requests {
    client: kube::Client,
    clock: Arc<dyn Clock>,
    /// Of reads: lists that take their time must not hold up a release.
    reads: Semaphore,
    planned: Semaphore,
    /// Of forced writes of nodes: the last of many is cordoned before the pods of the first are all gone.
    cordons: Semaphore,
    forced: Semaphore,
    jitter: RandomState,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Requests {
    pub(crate) fn new(client: kube::Client, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            clock,
            reads: Semaphore::new(IN_FLIGHT),
            planned: Semaphore::new(IN_FLIGHT),
            cordons: Semaphore::new(CORDONS_IN_FLIGHT),
            forced: Semaphore::new(EVICTIONS_IN_FLIGHT),
            jitter: RandomState::new(),
        }
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Sends a read, again and again on passing errors, until the deadline.
    pub(crate) async fn read(&self, call: &Call, by: Instant) -> Result<Reply, PortError> {
        self.again(call, by, None).await
    }

    /// Sends a write that may be repeated, or a read that belongs to a write and waits for no others, again and again on
    /// passing errors, until its deadline.
    pub(crate) async fn write(&self, call: &Call, write: &Write) -> Result<Reply, PortError> {
        self.again(call, write.by, Some(write)).await
    }

    /// Sends once. A forced write is given up after the time of one attempt, so that another can be made.
    pub(crate) async fn once(&self, call: &Call, by: Instant, write: Option<&Write>) -> Result<Reply, PortError> {
        let longest = if is_forced(write) { call.attempt } else { Duration::MAX };
        self.attempt(call, by, write, longest).await
    }

    /// Sends once; the answer may take so long from then on. A write is not sent, and not waited for, past the moment
    /// when the lease may change hands.
    async fn attempt(
        &self,
        call: &Call,
        by: Instant,
        write: Option<&Write>,
        longest: Duration,
    ) -> Result<Reply, PortError> {
        let on_the_wire = AtomicBool::new(false);
        let lane = match write.map(|write| write.lane) {
            None => &self.reads,
            Some(Lane::Planned) => &self.planned,
            Some(Lane::Forced) if call.needs.resource == "nodes" => &self.cordons,
            Some(Lane::Forced) => &self.forced,
        };
        let sent = async {
            let Ok(_slot) = lane.acquire().await else { return Err(call.error(ErrorClass::Permanent)) };
            // The slot may come at the last moment, when nobody awaits the answer any more.
            if self.clock.instant() >= by {
                return Err(timed_out(call));
            }
            if let Some(write) = write {
                write.permit()?;
            }
            let request = call.request()?.map(Body::from);
            on_the_wire.store(true, Ordering::Relaxed);
            let end = self.clock.instant() + longest;
            self.before(end, self.exchange(call, request)).await.unwrap_or_else(|| Err(timed_out(call)))
        };
        let answered = self.before(by, self.while_valid(write, sent)).await;
        match answered {
            Some(Some(answer)) => answer,
            Some(None) if on_the_wire.load(Ordering::Relaxed) => {
                let what = format!("no answer before the lease may change hands: could not {call}");
                Err(PortError::new(ErrorClass::Timeout, what))
            }
            Some(None) => {
                let what = format!("the lease may change hands: did not {call}");
                Err(PortError::new(ErrorClass::NotLeader, what))
            }
            None => Err(timed_out(call)),
        }
    }

    async fn exchange(&self, call: &Call, request: Request<Body>) -> Result<Reply, PortError> {
        let failed = |error: kube::Error| call.error(ErrorClass::Transient).caused_by(error);
        let response = self.client.send(request).await.map_err(failed)?;
        let (head, body) = response.into_parts();
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = body.collect_bytes().await.map_err(failed)?;
        Ok(Reply {
            code: head.status.as_u16(),
            retry_after: retry_after.map(Duration::from_secs),
            body: Vec::from(body),
        })
    }

    /// What `work` returns, or nothing once the lease behind `write` may have changed hands.
    ///
    /// The clock is looked at before each step of the work: the timers of a process that was frozen fire late.
    async fn while_valid<T>(&self, write: Option<&Write>, work: impl Future<Output = T>) -> Option<T> {
        let valid_until = || write.and_then(Write::valid_until);
        let mut work = pin!(work);
        loop {
            let Some(until) = valid_until() else { return Some(work.await) };
            let step = poll_fn(|context| {
                if valid_until().is_some_and(|until| self.clock.instant() >= until) {
                    return Poll::Ready(None);
                }
                work.as_mut().poll(context).map(Some)
            });
            match select(step, self.clock.sleep_until(until)).await {
                Either::Left((done, _)) => return done,
                // It may have been renewed meanwhile.
                Either::Right(((), _)) => {}
            }
        }
    }

    /// What `work` returns, or nothing if it takes until `by`.
    pub(crate) async fn before<T>(&self, by: Instant, work: impl Future<Output = T>) -> Option<T> {
        match select(pin!(work), self.clock.sleep_until(by)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(((), _)) => None,
        }
    }

    /// How long to wait after this many failures: doubling from `first` up to `longest`, the upper half at random.
    pub(crate) fn pause(&self, failures: u32, first: Duration, longest: Duration) -> Duration {
        let whole = first.saturating_mul(2_u32.saturating_pow(failures.min(16))).min(longest);
        let salt = self.jitter.hash_one((failures, self.clock.instant().0));
        let share = u32::try_from(salt % 1024).unwrap_or(0);
        whole / 2 + whole / 2 * share / 1024
    }

    /// Sends again and again on passing errors, until the deadline.
    pub(crate) async fn again(&self, call: &Call, by: Instant, write: Option<&Write>) -> Result<Reply, PortError> {
        let mut failures = 0;
        loop {
            let patience = FORCED_ATTEMPT.saturating_mul(2_u32.saturating_pow(failures));
            let attempt = if is_forced(write) { call.attempt.min(patience) } else { call.attempt };
            let (error, asked) = match self.attempt(call, by, write, attempt).await {
                // 401: a token that was replaced. The client reads its file again within a minute.
                Ok(reply) if matches!(reply.code, 401 | 429 | 500..) => (reply.error(call), reply.retry_after),
                Ok(reply) => return Ok(reply),
                Err(error) => match error.class {
                    ErrorClass::Transient | ErrorClass::Timeout => (error, None),
                    ErrorClass::Denied | ErrorClass::Permanent | ErrorClass::NotLeader => return Err(error),
                },
            };
            let pause = self.pause(failures, FIRST_WAIT, LONGEST_WAIT).max(asked.unwrap_or_default());
            let next = self.clock.instant() + pause;
            if next >= by {
                return Err(error);
            }
            tracing::debug!(%call, failures, error = %spot_core::error::chain(&error), "tries again");
            self.clock.sleep_until(next).await;
            failures += 1;
        }
    }
}

fn is_forced(write: Option<&Write>) -> bool {
    write.is_some_and(|write| write.lane == Lane::Forced)
}

fn timed_out(call: &Call) -> PortError {
    PortError::new(ErrorClass::Timeout, format!("no answer in time: could not {call}"))
}

/// A text as one segment of a path, or one value of a query.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            for half in [byte >> 4, byte & 15] {
                escaped.push(char::from_digit(u32::from(half), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt as _;
    use http::Response;
    use spot_core::ports::Alone;

    use super::*;
    use crate::clock::TokioClock;

    /// Requests to a server that answers those for node `a` at once and no other; and how many it got.
    fn requests() -> (Requests, Arc<AtomicUsize>) {
        let served = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&served);
        let service = tower::service_fn(move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                if !request.uri().path().ends_with("/a") {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }
        });
        (Requests::new(kube::Client::new(service, "default"), Arc::new(TokioClock::new())), served)
    }

    fn call(node: &str) -> Call {
        Call::get(Needs { verb: "get", resource: "nodes" }, node, format!("/api/v1/nodes/{node}"))
    }

    /// More requests for node `b` than may be in flight; held, they keep all slots.
    fn crowd<'r>(
        requests: &'r Requests,
        call: &'r Call,
        by: Instant,
        write: Option<&'r Write>,
    ) -> impl Sized + use<'r> {
        let mut crowd: Vec<_> = (0..=EVICTIONS_IN_FLIGHT).map(|_| Box::pin(requests.once(call, by, write))).collect();
        assert!(crowd.iter_mut().all(|sent| sent.now_or_never().is_none()));
        crowd
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_at_its_deadline_though_a_slot_comes_free_right_then() {
        let (requests, served) = requests();
        let by = requests.clock().instant() + Duration::from_secs(1);
        let (a, b) = (call("a"), call("b"));
        let busy = crowd(&requests, &b, by + Duration::from_secs(1), None);
        let mut sent = pin!(requests.once(&a, by, None));
        assert!(sent.as_mut().now_or_never().is_none(), "it waits for a slot");
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(busy);
        let before = served.load(Ordering::Relaxed);
        assert_eq!(sent.await.unwrap_err().class, ErrorClass::Timeout);
        assert_eq!(served.load(Ordering::Relaxed), before);
    }

    #[tokio::test(start_paused = true)]
    async fn neither_reads_nor_planned_work_hold_up_what_is_more_urgent_nor_evictions_a_cordon() {
        let (requests, _served) = requests();
        let by = requests.clock().instant() + Duration::from_secs(1);
        let (a, b) = (call("a"), call("b"));
        let pods = |call: Call| Call { needs: Needs { verb: "create", resource: "pods/eviction" }, ..call };
        let planned = Write::assume(by, Arc::new(Alone));
        let mut forced = planned.clone();
        forced.lane = Lane::Forced;
        let _reads = crowd(&requests, &b, by, None);
        assert!(requests.once(&a, by, Some(&planned)).await.unwrap().is_success());
        let _writes = crowd(&requests, &b, by, Some(&planned));
        assert!(requests.once(&pods(a.clone()), by, Some(&forced)).await.unwrap().is_success());
        let evictions = pods(b.clone());
        let _evictions = crowd(&requests, &evictions, by, Some(&forced));
        assert!(requests.once(&a, by, Some(&forced)).await.unwrap().is_success());
        assert_eq!(requests.once(&pods(a), by, Some(&forced)).await.unwrap_err().class, ErrorClass::Timeout);
    }

    #[tokio::test(start_paused = true)]
    async fn cordons_that_come_all_at_once_take_few_connections() {
        let (requests, served) = requests();
        let by = requests.clock().instant() + Duration::from_secs(1);
        let mut forced = Write::assume(by, Arc::new(Alone));
        forced.lane = Lane::Forced;
        let cordon = call("b");
        let _cordons = crowd(&requests, &cordon, by, Some(&forced));
        // The client passes requests on in a task of its own.
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(served.load(Ordering::Relaxed), 16);
    }
}
