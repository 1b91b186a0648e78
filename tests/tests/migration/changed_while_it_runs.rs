//! The configuration changes while the process runs, and a webhook is told of what it does.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use spot_tests::{
    Machine, Migrator, Workload, World,
    wait::{PATIENCE, until},
};

use crate::RUN;

/// A part of a webhook's URL that must be nowhere else.
const SECRET: &str = "T0kenOfTheWebhook";

/// The configuration's, with what may still be sent.
const GRACE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_configuration_counts_without_a_restart_and_a_webhook_is_told_or_not_waited_for() {
    let world = World::start().await;
    world.join(&[Machine::on_demand("on-demand-1"), Machine::spot("spot-1")]).await;
    let web = Workload::deployment("web", 2);
    world.run(std::slice::from_ref(&web)).await;
    let url_file = world.control_plane().folder().join("webhook-url");
    let (alive, told) = webhook(Answers::Yes);
    let write = |address: &str| std::fs::write(&url_file, format!("http://{address}/{SECRET}\n")).expect("writable");
    write(&alive);
    let changes = json!({
        "schedule": "0 0 1 1 *",
        "exhaustion": {"backOff": {"initial": "1s", "max": "1s"}},
        "shutdown": {"gracePeriod": "20s"},
        "notifications": {"webhookUrlFile": url_file},
    });
    let migrator = Migrator::install(&world, changes).await;
    let running = migrator.run(&[]);
    running.serves().await;
    let gone = async |name: &str| {
        until("the node to be gone", RUN, || async {
            if !world.nodes().await.contains_key(name) {
                return Ok(());
            }
            Err(format!("{name} is there; it printed {}", running.process().output()))
        })
        .await;
    };

    // Nobody would begin before New Year; now somebody does at once.
    migrator.rewrite(json!({"schedule": "@every 2s"}));
    gone("on-demand-1").await;
    until("the webhook to be told", PATIENCE, || async {
        let told = told.lock().expect("nobody panicked").clone();
        let says = |part: &str| told.iter().any(|body| body["text"].as_str().is_some_and(|text| text.contains(part)));
        if says("node on-demand-1 is being retired") && says("a run ended (all_spot)") {
            Ok(())
        } else {
            Err(format!("{told:?}; it printed {}", running.process().output()))
        }
    })
    .await;
    let applied = || running.metric("spot_migrator_config_reloads_total", &[("result", "applied")]);
    assert_eq!(applied(), 1);

    // A webhook that never answers holds up nothing.
    let (dead, called) = webhook(Answers::No);
    write(&dead);
    world.join(&[Machine::on_demand("on-demand-2")]).await;
    gone("on-demand-2").await;
    until("the webhook to be called", PATIENCE, || async {
        if called.lock().expect("nobody panicked").is_empty() { Err("nobody called".to_owned()) } else { Ok(()) }
    })
    .await;

    // What needs another process is refused with all that came with it.
    migrator.rewrite(json!({"schedule": "@yearly", "server": {"address": "127.0.0.1:1"}}));
    until("the change to be refused", PATIENCE, || async {
        let in_force = running.metric("spot_migrator_config_last_reload_successful", &[]);
        if in_force == 0 { Ok(()) } else { Err(format!("it printed {}", running.process().output())) }
    })
    .await;
    assert_eq!((applied(), running.metric("spot_migrator_config_reloads_total", &[("result", "refused")])), (1, 1));
    let output = running.process().output();
    assert!(output.contains("server.address: restart it"), "{output}");
    assert_eq!(running.metric("spot_migrator_leader", &[]), 1);

    let ended = running.terminate(GRACE).await;
    ended.assert_code(0);
    assert!(!ended.output.contains(SECRET) && !ended.output.contains(&dead), "{}", ended.output);
}

/// Whether a webhook ever answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    Yes,
    No,
}

/// Listens for as long as the test lives. Returns its address, and what it is sent.
fn webhook(answers: Answers) -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("it listens");
            seen.lock().expect("nobody panicked").push(body(&mut stream));
            if answers == Answers::Yes {
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                stream.write_all(answer.as_bytes()).expect("it is waited for");
            } else {
                open.push(stream);
            }
        }
    });
    (address, sent)
}

/// The body of a request.
fn body(stream: &mut TcpStream) -> Value {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a request has a head");
        request.push(byte[0]);
    }
    let head = String::from_utf8(request).expect("a head is text").to_lowercase();
    assert!(head.starts_with("post /") && head.contains("content-type: application/json"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("it says how long it is");
    let mut body = vec![0; length.parse().expect("a length is a number")];
    stream.read_exact(&mut body).expect("a request has its body");
    serde_json::from_slice(&body).expect("it is JSON")
}
