//! The notifier before a webhook that has bad days.

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use spot_core::interruption::{NoticeKind, Told as Notice};
use spot_core::progress::{Outcome, Report, Step};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::*;
use crate::sample::{node, report};

/// A status, and headers beside it.
type Reply = (u16, Vec<(&'static str, String)>);

/// What it was sent, and what it answers next; nothing more: it takes everything.
#[derive(Clone, Debug, Default)]
struct Webhook(Arc<Mutex<(Vec<Value>, Vec<Reply>)>>);

impl Webhook {
    /// Listens, and returns the address to which messages go.
    async fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let webhook = self.clone();
        let take = async move |headers: HeaderMap, body: String| {
            assert_eq!(headers["content-type"], "application/json");
            let mut state = webhook.0.lock().await;
            state.0.push(serde_json::from_str(&body).expect("it is JSON"));
            let next = if state.1.is_empty() { (200, Vec::new()) } else { state.1.remove(0) };
            let mut headers = HeaderMap::new();
            for (name, value) in next.1 {
                drop(headers.insert(name, value.parse().expect("it is a header")));
            }
            (StatusCode::from_u16(next.0).expect("it is a status"), headers)
        };
        let router = Router::new().route("/s3cret", post(take));
        drop(tokio::spawn(async move { axum::serve(listener, router).await }));
        format!("http://{address}/s3cret")
    }

    async fn answers(&self, answers: Vec<Reply>) {
        self.0.lock().await.1 = answers;
    }

    async fn sent(&self) -> Vec<Value> {
        self.0.lock().await.0.clone()
    }
}

/// What there is to tell with, and the folder of the secret.
struct Scene {
    notifier: Notifier,
    worker: Worker,
    audience: Audience,
    metrics: Metrics,
    folder: tempfile::TempDir,
}

fn scene(url: &str) -> Scene {
    // Another test may have been first.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a folder can be made");
    std::fs::write(folder.path().join("url"), format!("{url}\n")).expect("it is writable");
    let config = Notifications { webhook_url_file: Some(folder.path().join("url")), template_file: None };
    let metrics = Metrics::new().expect("names are distinct");
    let (notifier, worker, audience) =
        notifier(Listener::of(&config).unwrap_or_else(|error| panic!("{error:#}")), &metrics, Box::new(|| 1.0));
    Scene { notifier, worker, audience, metrics, folder }
}

fn count(metrics: &Metrics, result: &str) -> String {
    let text = metrics.text().expect("it is text");
    let series = format!("spot_migrator_notifications_total{{result=\"{result}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)).expect("it is there").to_owned()
}

fn failed_run() -> Progress {
    Progress::RunFailed { class: spot_core::error::ErrorClass::Timeout, why: "no answer".to_owned() }
}

#[tokio::test]
async fn begin_failure_and_end_of_a_retirement_are_told_in_order_and_idle_runs_are_not() {
    let webhook = Webhook::default();
    let Scene { notifier, worker, metrics, folder: _kept, audience: _ } = scene(&webhook.listen().await);
    let idle = Progress::RunEnded { report: report(Outcome::AllSpot) };
    let events = [
        idle,
        Progress::StepDone { node: node(), step: Step::Claim, took: Duration::ZERO },
        Progress::StepDone { node: node(), step: Step::Taint, took: Duration::ZERO },
        Progress::Released { node: node(), step: Step::Drain, why: "a budget \"web\"".to_owned() },
        Progress::RunEnded { report: Report { retired: vec![node()], ..report(Outcome::AllSpot) } },
        Progress::RunEnded { report: report(Outcome::SpotExhausted(node())) },
        failed_run(),
        Progress::Interruption(Notice::Cordoned {
            node: node(),
            kind: NoticeKind::Interruption,
            after: Duration::ZERO,
        }),
    ];
    for event in &events {
        notifier.observe(Timestamp::UNIX_EPOCH, event);
    }
    notifier.without(Timestamp::UNIX_EPOCH, Feature::Interruption, "no right".to_owned());
    drop(notifier);
    worker.run().await;
    let said: Vec<_> =
        webhook.sent().await.iter().map(|body| body["text"].as_str().unwrap_or_default().to_owned()).collect();
    let expected = [
        "node node-1 is being retired",
        "because its drain failed: a budget \"web\"",
        "a run ended (all_spot): 1 node retired, 0 failed; saves $730 a month",
        "a run ended (spot_exhausted)",
        "a run failed: no answer",
        "a spot machine is taken back: node node-1",
        "disabled: interruption, which is refused what it needs: no right",
    ];
    assert_eq!(said.len(), expected.len(), "{said:?}");
    assert!(said.iter().zip(expected).all(|(said, part)| said.contains(part)), "{said:?}");
    assert_eq!((count(&metrics, "sent"), count(&metrics, "failed")), ("7".to_owned(), "0".to_owned()));
}

#[tokio::test]
async fn a_webhook_that_fails_is_tried_again_when_it_says_and_one_that_refuses_is_not() {
    let webhook = Webhook::default();
    let Scene { notifier, worker, metrics, folder: _kept, audience: _ } = scene(&webhook.listen().await);
    let later = |status| (status, vec![("retry-after", "0".to_owned())]);
    webhook.answers(vec![later(500), later(429), (200, vec![]), (404, vec![]), (200, vec![])]).await;
    for _message in 0..3 {
        notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
    }
    drop(notifier);
    worker.run().await;
    assert_eq!(webhook.sent().await, vec![json!({"text": "a run failed: no answer"}); 5]);
    assert_eq!((count(&metrics, "sent"), count(&metrics, "failed")), ("2".to_owned(), "1".to_owned()));
}

#[tokio::test]
async fn a_redirection_is_not_followed() {
    let (webhook, other) = (Webhook::default(), Webhook::default());
    let Scene { notifier, worker, metrics, folder: _kept, audience: _ } = scene(&webhook.listen().await);
    webhook.answers(vec![(307, vec![("location", other.listen().await)])]).await;
    notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
    drop(notifier);
    worker.run().await;
    assert!(other.sent().await.is_empty());
    assert_eq!(count(&metrics, "failed"), "1");
}

#[tokio::test]
async fn a_secret_that_is_replaced_counts_from_the_next_message_on() {
    let (old, new) = (Webhook::default(), Webhook::default());
    let Scene { notifier, worker, folder, .. } = scene(&old.listen().await);
    std::fs::write(folder.path().join("url"), new.listen().await).expect("it is writable");
    notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
    drop(notifier);
    worker.run().await;
    assert_eq!((old.sent().await.len(), new.sent().await.len()), (0, 1));
}

#[tokio::test]
async fn a_secret_that_is_gone_fails_the_message_and_not_the_process() {
    let Scene { notifier, worker, metrics, folder, .. } = scene("http://127.0.0.1:1/s3cret");
    std::fs::remove_file(folder.path().join("url")).expect("it is there");
    notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
    drop(notifier);
    worker.run().await;
    assert_eq!(count(&metrics, "failed"), "1");
}

#[tokio::test]
async fn a_webhook_that_hangs_delays_nobody_and_what_is_too_much_is_dropped_and_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let Scene { notifier, worker, metrics, folder: _kept, audience: _ } = scene(&format!("http://{address}/s3cret"));
    let worker = tokio::spawn(worker.run());
    let before = Instant::now();
    let _connection = timeout(Duration::from_secs(5), async {
        notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
        listener.accept().await
    })
    .await
    .expect("it is called");
    for _message in 0..1_000 {
        notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
    }
    assert!(before.elapsed() < TIME_OF_A_TRY, "nobody waited for an answer");
    assert_eq!(count(&metrics, "dropped"), (1_000 - WAITING).to_string());
    worker.abort();
}

/// What is poured out at a time.
static PART: [u8; 65_536] = [b'x'; 65_536];

/// The next to call, once the message has come.
async fn called(listener: &TcpListener) -> TcpStream {
    let (mut client, _address) = listener.accept().await.expect("it is called");
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert_ne!(client.read_buf(&mut request).await.expect("it asks"), 0, "it asks");
    }
    client
}

/// Writes what it is given to whoever calls, over and over, until it is not read any more. It returns how much.
async fn pour(listener: &TcpListener, head: &'static [u8], part: &'static [u8]) -> usize {
    let mut client = called(listener).await;
    let mut poured = 0;
    let mut next = head;
    while client.write_all(next).await.is_ok() {
        poured += next.len();
        next = part;
    }
    poured
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_taken_by_its_status_and_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/s3cret", listener.local_addr().expect("it is bound"));
    let Scene { notifier, worker, metrics, folder: _kept, audience: _ } = scene(&url);
    notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
    drop(notifier);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";
    let (poured, ()) = tokio::join!(pour(&listener, head, &PART), worker.run());
    assert_eq!(count(&metrics, "sent"), "1");
    // What the system holds of a connection, and no more.
    assert!(poured < 64 << 20, "{poured} bytes were taken");
}

#[tokio::test]
async fn headers_that_do_not_end_are_not_taken_and_the_address_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/s3cret", listener.local_addr().expect("it is bound"));
    let Scene { notifier, worker, metrics, folder: _kept, audience: _ } = scene(&url);
    notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
    drop(notifier);
    let poured = async {
        let poured = pour(&listener, b"HTTP/1.1 200 OK\r\nX-Long: ", &PART).await;
        // The next try gets a plain answer.
        let mut client = called(&listener).await;
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("it is read");
        poured
    };
    let (poured, ()) = tokio::join!(poured, worker.run());
    assert_eq!(count(&metrics, "sent"), "1");
    assert!(poured < 64 << 20, "{poured} bytes were taken");
}

#[tokio::test]
async fn an_answer_that_drips_is_given_up_and_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/s3cret", listener.local_addr().expect("it is bound"));
    let Scene { notifier, worker, metrics, folder: _kept, audience: _ } = scene(&url);
    notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
    drop(notifier);
    let dripped = async {
        // It begins, and does not go on: as a drop a second, to whoever waits for the rest.
        let mut slow = called(&listener).await;
        slow.write_all(b"HTTP/1.1 200").await.expect("it is read");
        let mut client = called(&listener).await;
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("it is read");
        slow
    };
    let (_slow, ()) = tokio::join!(dripped, worker.run());
    assert_eq!(count(&metrics, "sent"), "1");
}

/// Less than a try may take.
const TIME_OF_A_TRY: Duration = Duration::from_secs(10);

#[test]
fn nothing_that_is_printed_holds_the_address() {
    let Scene { notifier, worker, metrics: _, folder: _kept, audience: _ } = scene("https://hooks.example.org/s3cret");
    let printed = format!("{notifier:?} {worker:?}");
    assert!(!printed.contains("s3cret") && !printed.contains("hooks"), "{printed}");
}

#[tokio::test]
async fn another_listener_is_told_from_then_on_and_nobody_once_there_is_none() {
    let (old, new) = (Webhook::default(), Webhook::default());
    let Scene { notifier, worker, audience, metrics, folder } = scene(&old.listen().await);
    let other = folder.path().join("other");
    std::fs::write(&other, new.listen().await).expect("it is writable");
    let worker = tokio::spawn(worker.run());
    let observe = || notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
    let config = Notifications { webhook_url_file: Some(other), template_file: None };
    audience.renew(Listener::of(&config).unwrap_or_else(|error| panic!("{error:#}")));
    observe();
    // It may have been sent by then or not.
    audience.renew(None);
    observe();
    drop(notifier);
    worker.await.expect("it ends");
    let (sent, dropped) = (new.sent().await.len(), count(&metrics, "dropped"));
    assert!(sent + dropped.parse::<usize>().expect("a number") == 1, "{sent} {dropped}");
    assert_eq!(old.sent().await.len(), 0);
}

/// What was logged.
#[derive(Clone, Default)]
struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_secret_part_of_the_address_is_in_no_line_of_any_level_and_in_no_metric() {
    let webhook = Webhook::default();
    let Scene { notifier, worker, metrics, folder, audience: _ } = scene(&webhook.listen().await);
    webhook.answers(vec![(200, vec![]), (404, vec![])]).await;
    let lines = Lines::default();
    let writer = lines.clone();
    let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let _guard = tracing::subscriber::set_default(everything.with_writer(move || writer.clone()).finish());
    let worker = tokio::spawn(worker.run());
    let file = folder.path().join("url");
    for messages in [1, 2] {
        notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
        while webhook.sent().await.len() < messages {
            tokio::task::yield_now().await;
        }
    }
    // What is no address is told of without its text, too.
    std::fs::write(&file, "ftp://hooks.example.org/s3cret").expect("it is writable");
    notifier.observe(Timestamp::UNIX_EPOCH, &failed_run());
    drop(notifier);
    worker.await.expect("it ends");
    let logged = String::from_utf8(lines.0.lock().expect("nobody panicked").clone()).expect("it is text");
    assert!(logged.contains("it answered 404") && logged.contains("no URL of https"), "{logged}");
    assert!(!logged.contains("s3cret") && !metrics.text().expect("it is text").contains("s3cret"), "{logged}");
}
