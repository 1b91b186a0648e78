//! SQS, as strict as the real one, for queues whose messages a test sends.
//!
//! ```text
//! the product ─► Sqs ─┬─ AmazonSQS.…    queues of the test
//!                     └─ all the rest   the double of AWS, where there is one
//! ```
//!
//! It is not moto's, which the AWS double has for everything else: that answers one request at a time, so a receiver that
//! waits twenty seconds for a message would hold up EC2 as well, and it takes expired receipts. This one keeps what SQS
//! promises and no more: a message may come twice, a receipt is good until the message is received again, an old one
//! deletes nothing and says so to nobody, and each answer takes a while.
//!
//! What it leaves out: dead-letter queues, delays, attributes of the sender's, and the MD5 sums of bodies.

mod protocol;
mod queue;

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::{Either, select};
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout_at},
};

pub use queue::{Happened, Moment, Queue};

use crate::aws::{Aws, REGION};
use protocol::{Action, Refusal};
use queue::Messages;

/// About what SQS takes in its own region.
const ANSWERS_AFTER: Duration = Duration::from_millis(10);

/// What is asked of SQS by the name that opens its API calls.
const TARGET: &str = "AmazonSQS.";

/// The account of all queues.
const ACCOUNT: &str = "123456789012";

/// The service. It ends when it is dropped.
#[derive(Debug)]
pub struct Sqs {
    address: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// Where the process is to be killed: at a request that is then never answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Before it takes effect.
    Before,
    /// After it took effect.
    After,
}

/// A request that is to be held back. Dropping it before that fails the test: it would have shown nothing.
#[derive(Debug)]
#[must_use]
pub struct Held {
    action: Action,
    shared: Arc<Shared>,
    fired: watch::Receiver<bool>,
}

impl Sqs {
    /// Starts it without queues, and without any other service.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start() -> Self {
        Self::serve(None).await
    }

    /// Starts it in front of `aws`, which answers what is not for SQS.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn before(aws: &Aws) -> Self {
        let mut config = Config::new(aws.endpoint().parse().expect("it is a URI"));
        config.default_retry = false;
        Self::serve(Some(Client::try_from(config).expect("the configuration is complete"))).await
    }

    /// Where it listens: what a client takes for the endpoint of AWS.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.address
    }

    /// The environment of a client that finds AWS here, and nothing of the tester's.
    #[must_use]
    pub fn environment(&self, client: &str) -> [(&'static str, String); 7] {
        crate::aws::environment(&self.address, client)
    }

    /// Makes a queue.
    #[must_use]
    pub fn queue(&self, name: &str) -> Queue {
        let queue = Queue::new(name, Arc::clone(&self.shared));
        self.shared.lock().queues.insert(name.to_owned(), Messages::default());
        queue
    }

    /// Denies everybody this API call, as in `sqs:ReceiveMessage`, until it is allowed again.
    ///
    /// # Panics
    /// If there is no such call.
    pub fn deny(&self, right: &str, denied: bool) {
        let action = right.strip_prefix("sqs:").and_then(Action::parse).expect("it is a right of SQS");
        self.shared.lock().denied.retain(|one| *one != action);
        if denied {
            self.shared.lock().denied.push(action);
        }
    }

    /// From now on it takes connections and requests, and answers none, the waiting ones included; or it answers those
    /// again that come from now on.
    pub fn silent(&self, silent: bool) {
        self.shared.silent.send_replace(silent);
    }

    /// How many requests came so far for this API call, as in `ReceiveMessage`.
    ///
    /// # Panics
    /// If there is no such call.
    #[must_use]
    pub fn asked(&self, action: &str) -> usize {
        let action = Action::parse(action).expect("it is a call of SQS");
        self.shared.lock().asked.iter().filter(|asked| **asked == action).count()
    }

    /// How many receivers wait for a message at this moment.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// Holds the next such API call back, as in `DeleteMessage`, alone or in a batch, for ever.
    ///
    /// # Panics
    /// If there is no such call, or another one is to be held back.
    pub fn hold(&self, action: &str, when: Hold) -> Held {
        let action = Action::parse(action).expect("it is a call of SQS");
        let (tell, fired) = watch::channel(false);
        let before = self.shared.lock().hold.replace((action, when, tell));
        assert!(before.is_none(), "one at a time");
        Held { action, shared: Arc::clone(&self.shared), fired }
    }

    async fn serve(upstream: Option<Client>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let shared = Arc::new(Shared {
            upstream,
            state: Mutex::default(),
            news: watch::Sender::new(0),
            silent: watch::Sender::new(false),
            waiting: AtomicUsize::new(0),
        });
        let server = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, server }
    }
}

impl Drop for Sqs {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Held {
    /// Returns once it has happened.
    ///
    /// # Panics
    /// If the service is gone.
    pub async fn fired(&self) {
        let mut fired = self.fired.clone();
        let _told = fired.wait_for(|fired| *fired).await.expect("the service tells, and then forgets");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.lock().hold = None;
        assert!(*self.fired.borrow() || std::thread::panicking(), "{:?} was never held back", self.action);
    }
}

struct Shared {
    upstream: Option<Client>,
    state: Mutex<State>,
    /// Counts what may make a message readable.
    news: watch::Sender<u64>,
    silent: watch::Sender<bool>,
    waiting: AtomicUsize,
}

/// A receiver that waits, as long as it does.
struct Waiting<'s>(&'s AtomicUsize);

impl<'s> Waiting<'s> {
    fn among(all: &'s AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct State {
    queues: std::collections::BTreeMap<String, Messages>,
    denied: Vec<Action>,
    asked: Vec<Action>,
    hold: Option<(Action, Hold, watch::Sender<bool>)>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.news.send_modify(|news| *news += 1);
    }

    async fn serve(&self, request: http::Request<Incoming>) -> Result<Response<Full<Bytes>>, Broken> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let target = head.headers.get("x-amz-target").and_then(|target| target.to_str().ok());
        if let Some(name) = target.and_then(|target| target.strip_prefix(TARGET)) {
            let action = Action::parse(name);
            self.lock().asked.extend(action);
            let answer = self.audible(self.ask(name, action, &head.headers, &body)).await;
            return Ok(protocol::written(answer));
        }
        let Some(upstream) = &self.upstream else {
            let text = format!("{} {} is no request for SQS", head.method, head.uri);
            return Ok(status(StatusCode::NOT_FOUND, Full::from(text)));
        };
        let request = http::Request::from_parts(head, kube::client::Body::from(body));
        let (head, body) = upstream.send(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let mut answer = Response::from_parts(head, Full::from(body));
        answer.headers_mut().remove(header::TRANSFER_ENCODING);
        Ok(answer)
    }

    /// The answer, unless the service falls silent before it comes, or is silent.
    async fn audible<T>(&self, answer: impl Future<Output = T>) -> T {
        let mut silent = self.silent.subscribe();
        if *silent.borrow_and_update() {
            return std::future::pending().await;
        }
        let fell = async { silent.wait_for(|silent| *silent).await.map(drop) };
        match select(pin!(answer), pin!(fell)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => std::future::pending().await,
        }
    }

    async fn ask(
        &self,
        name: &str,
        action: Option<Action>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Value, Refusal> {
        sleep(ANSWERS_AFTER).await;
        let action = action.ok_or_else(|| Refusal::unknown_operation(name))?;
        if self.holds(action, Hold::Before) {
            return std::future::pending().await;
        }
        let denied = self.lock().denied.iter().any(|denied| denied.is_also(action));
        let call = protocol::Call::read(action, headers, body)?;
        let queue = self.find(&call)?;
        if denied {
            return Err(Refusal::denied(action, &queue));
        }
        let answer = match action {
            Action::ReceiveMessage => self.receive(&queue, &call).await,
            Action::DeleteMessage
            | Action::DeleteMessageBatch
            | Action::ChangeMessageVisibility
            | Action::ChangeMessageVisibilityBatch => {
                let answer = self.of(&queue, |messages| messages.change(&call));
                self.changed();
                answer
            }
            Action::GetQueueAttributes => self.of(&queue, |messages| Ok(messages.attributes(&call, &queue))),
            Action::GetQueueUrl => Ok(serde_json::json!({"QueueUrl": queue::url(&queue)})),
        };
        // A poll that brought nothing had no effect.
        let had_effect =
            answer.as_ref().is_ok_and(|answer| action != Action::ReceiveMessage || answer["Messages"].is_array());
        if had_effect && self.holds(action, Hold::After) {
            return std::future::pending().await;
        }
        answer
    }

    /// Whether this is the request that is to be held back; tells so.
    fn holds(&self, action: Action, now: Hold) -> bool {
        let held = self.lock().hold.take_if(|(meant, when, _)| meant.is_also(action) && *when == now);
        held.map(|(_, _, tell)| tell.send_replace(true)).is_some()
    }

    /// The queue's name, if there is one in the region that was asked.
    fn find(&self, call: &protocol::Call) -> Result<String, Refusal> {
        let name = call.queue().filter(|name| call.region == REGION && self.lock().queues.contains_key(name));
        name.ok_or_else(Refusal::no_queue)
    }

    fn of<T>(&self, queue: &str, ask: impl FnOnce(&mut Messages) -> T) -> T {
        ask(self.lock().queues.get_mut(queue).expect("a queue stays"))
    }

    /// Waits for messages as long as the caller wants to.
    async fn receive(&self, queue: &str, call: &protocol::Call) -> Result<Value, Refusal> {
        let wanted = call.wanted()?;
        let deadline = Instant::now() + wanted.wait;
        let mut news = self.news.subscribe();
        loop {
            let (answer, next) = self.of(queue, |messages| (messages.take(&wanted), messages.next_readable()));
            let now = Instant::now();
            if answer.is_some() || now >= deadline {
                return Ok(answer.unwrap_or_else(|| serde_json::json!({})));
            }
            let wake = next.map_or(deadline, |next| next.min(deadline));
            let _waiting = Waiting::among(&self.waiting);
            // Either is fine: then it is looked at again.
            let _woken = timeout_at(wake, news.changed()).await;
        }
    }
}

type Broken = Box<dyn std::error::Error + Send + Sync>;

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Aborted on drop.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _from) = listener.accept().await.expect("the listener works");
        connections.spawn(connection(stream, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    stream.set_nodelay(true).expect("a TCP socket may send at once");
    let shared = &*shared;
    let serve = service_fn(move |request| shared.serve(request));
    // The product ends connections as it likes.
    let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), serve).await;
}

fn status(code: StatusCode, body: Full<Bytes>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer
}
