//! The server of metrics and health, over real sockets.

#![expect(clippy::expect_used, reason = "clippy's allowance for tests does not reach their helper functions")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use jiff::Timestamp;
use spot_bin::http::{Readiness, Server};
use spot_bin::metrics::Metrics;
use spot_core::interruption::{Source, Told};
use spot_core::ports::Observer as _;
use spot_core::progress::Progress;
use spot_core::stop::Stop;
use tokio::task::{JoinHandle, spawn_blocking};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

struct Running {
    address: SocketAddr,
    readiness: Readiness,
    stop: Stop,
    task: JoinHandle<()>,
}

async fn start() -> Running {
    let stop = Stop::default();
    let readiness = Readiness::new(stop.clone());
    let metrics = Metrics::new().expect("names are distinct");
    let local = "127.0.0.1:0".parse().expect("it is an address");
    let server = Server::bind(("server.address", local), metrics, readiness.clone()).await.expect("a port is free");
    let address = server.address().expect("it listens");
    Running { address, readiness, stop: stop.clone(), task: tokio::spawn(server.run(stop)) }
}

async fn get(address: SocketAddr, path: &'static str) -> (String, String) {
    let request = move || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_bytes| answer)
    };
    let answer = spawn_blocking(request).await.expect("it does not panic").expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_ready_after_the_first_view_and_never_again_after_a_stop() {
    let running = start().await;
    let (status, why) = get(running.address, "/readyz").await;
    assert_eq!(
        (status.as_str(), why.as_str()),
        ("HTTP/1.1 503 Service Unavailable", "the cluster has not been seen yet\n")
    );
    assert_eq!(get(running.address, "/livez").await.0, "HTTP/1.1 200 OK");

    running.readiness.observe(Timestamp::UNIX_EPOCH, &Progress::RunStarted { nodes: [].into() });
    assert_eq!(get(running.address, "/readyz").await.0, "HTTP/1.1 200 OK");

    running.stop.set();
    assert_eq!(running.readiness.objection(), Some("the process is ending"));
}

#[test]
fn a_process_that_only_answers_notices_is_ready_once_it_asks_for_them() {
    let readiness = Readiness::default();
    assert_eq!(readiness.objection(), Some("the cluster has not been seen yet"));
    let polled = Told::Polled { source: Source::Metadata, oldest: None };
    readiness.observe(Timestamp::UNIX_EPOCH, &Progress::Interruption(polled));
    assert_eq!(readiness.objection(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_text_for_prometheus() {
    let running = start().await;
    let (status, body) = get(running.address, "/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    for series in ["spot_migrator_operation_success_total 0", "cost_manager_spot_migrator_operation_failure_total 0"] {
        assert!(body.lines().any(|line| line == series), "{series} is missing in\n{body}");
    }
    assert!(body.contains("process_resident_memory_bytes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_ends_its_request_does_not_hold_up_the_end() {
    let running = start().await;
    let mut slow = TcpStream::connect(running.address).expect("it listens");
    slow.write_all(b"GET /livez HTTP/1.1\r\n").expect("it reads");
    // Another answer shows that the slow request was accepted before.
    assert_eq!(get(running.address, "/livez").await.0, "HTTP/1.1 200 OK");
    running.stop.set();
    let ended = tokio::time::timeout(PATIENCE, running.task).await.expect("it ends");
    ended.expect("it does not panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_too_many_clients_that_say_nothing_the_oldest_make_way_and_the_others_are_answered() {
    let running = start().await;
    let clients = (0..200).map(|_number| {
        let mut client = TcpStream::connect(running.address).expect("it listens");
        client.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow: ").expect("it reads");
        client
    });
    let mut clients: Vec<_> = clients.collect();
    for path in ["/livez", "/readyz", "/metrics"] {
        assert!(get(running.address, path).await.0.starts_with("HTTP/1.1 "), "{path}");
    }
    // The first has lost its connection; it would wait for the end of its request.
    let oldest = clients.swap_remove(0);
    assert!(is_closed(oldest).await, "the oldest has made way");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_has_one_answer_and_a_head_that_does_not_end_is_refused() {
    let running = start().await;
    let mut kept = TcpStream::connect(running.address).expect("it listens");
    kept.write_all(b"GET /livez HTTP/1.1\r\nHost: test\r\n\r\n").expect("it reads");
    assert!(is_closed(kept).await, "it asked to keep the connection");

    let mut endless = TcpStream::connect(running.address).expect("it listens");
    let written = spawn_blocking(move || {
        let part = [b'x'; 4096];
        endless.write_all(b"GET /livez HTTP/1.1\r\nX-Endless: ")?;
        // Ten megabytes.
        (0..2560).try_for_each(|_part| endless.write_all(&part))
    });
    assert!(written.await.expect("it does not panic").is_err(), "nobody reads all of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_slow_loses_its_connection_in_time() {
    let running = start().await;
    let mut slow = TcpStream::connect(running.address).expect("it listens");
    slow.write_all(b"GET /livez HTTP/1.1\r\n").expect("it reads");
    assert!(is_closed(slow).await, "the connection is still there");
}

/// Whether nothing more comes over a connection, whatever came before.
async fn is_closed(mut client: TcpStream) -> bool {
    let read = spawn_blocking(move || {
        client.set_read_timeout(Some(PATIENCE))?;
        client.read_to_end(&mut Vec::new())
    });
    let waited = |error: &std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    read.await.expect("it does not panic").map_or_else(|error| !waited(&error), |_bytes| true)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_named_with_the_remedy() {
    let running = start().await;
    let metrics = Metrics::new().expect("names are distinct");
    let taken = ("--an-address", running.address);
    let error = Server::bind(taken, metrics, Readiness::default()).await.expect_err("it is taken");
    let said = error.to_string();
    assert!(said.contains(&running.address.to_string()) && said.contains("`--an-address`"), "{said}");
}
