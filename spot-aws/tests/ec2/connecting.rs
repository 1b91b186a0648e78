//! What is found before any API is called, by a process of its own: the SDK reads the environment.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use spot_aws::Aws;
use spot_core::error::{ErrorClass, chain};
use spot_core::ports::Clock;

use crate::support::{Time, secs, settings};

/// What the process of its own is told to do.
const TASK: &str = "SPOT_AWS_CONNECTING";

/// Where AWS is, for a task that wants it to be there.
const ENDPOINT: &str = "SPOT_AWS_CONNECTING_ENDPOINT";

/// How often a server, which is the metadata service and AWS at once, was asked while a process did its task, and what that printed.
fn run(task: &str, environment: &[(&str, &str)]) -> (usize, String) {
    let metadata = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = metadata.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    // Ends with the test's process.
    std::thread::spawn(move || {
        for connection in metadata.incoming() {
            let mut connection = connection.unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
            let _read = connection.read(&mut [0; 4096]);
            let _written =
                connection.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "connecting::task", "--nocapture"])
        .env_clear()
        .envs(BTreeMap::from([("HOME", "/nonexistent"), (TASK, task)]))
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", format!("http://{address}"))
        .env(ENDPOINT, format!("http://{address}"))
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    (asked.load(Ordering::SeqCst), String::from_utf8(output.stdout).unwrap())
}

/// Not a test but the task of the others' process; without one, nothing.
#[tokio::test]
async fn task() {
    #[expect(clippy::disallowed_methods, reason = "how the parent tells it apart from a test")]
    let Ok(task) = std::env::var(TASK) else { return };
    let clock = Arc::new(Time::starting());
    let mut settings = settings();
    #[expect(clippy::disallowed_methods, reason = "it is the parent's word")]
    let there = std::env::var(ENDPOINT).unwrap();
    settings.endpoint_url = Some(if task == "there" { there } else { "http://127.0.0.1:1".to_owned() });
    settings.region = (task != "region").then(|| "eu-west-1".to_owned());
    settings.instance_metadata = task == "metadata";
    match Aws::connect(settings, Arc::clone(&clock) as Arc<dyn Clock>, None).await {
        Err(error) => println!("not connected: {:?} {}", error.class, chain(&error)),
        Ok(aws) => {
            for checked in aws.check(clock.instant() + secs(2)).await {
                let answer = checked.outcome.map_err(|error| (error.class, chain(&error)));
                println!("{}: {answer:?}", checked.action);
            }
        }
    }
}

#[test]
fn nothing_asks_the_metadata_service_unless_told_to() {
    let (asked, said) = run("credentials", &[]);
    assert_eq!(asked, 0);
    assert!(said.contains("Denied") && said.contains("no valid credentials to call ec2:DescribeInstances"), "{said}");
    let (asked, _) = run("metadata", &[]);
    assert!(asked > 0, "told to, it is asked");
}

#[test]
fn without_a_region_nothing_is_connected_and_no_key_of_one_program_is_named() {
    let (asked, said) = run("region", &[]);
    assert_eq!(asked, 0);
    assert!(said.contains("not connected: Permanent") && said.contains("`AWS_REGION`"), "{said}");
    assert!(!said.contains("cloudProvider"), "whoever connects knows its own keys: {said}");
    let (_, said) = run("region", &[("AWS_REGION", "eu-west-1")]);
    assert!(!said.contains("not connected"), "{said}");
}

#[test]
fn an_endpoint_without_tls_is_reached() {
    let (asked, said) = run("there", &[("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")]);
    assert!(asked > 0 && said.contains("ec2:DescribeInstances: Err((Permanent"), "{asked}: {said}");
}

#[test]
fn an_endpoint_that_nobody_listens_at_may_pass() {
    let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let (_, said) = run("endpoint", &keys);
    let classes = [ErrorClass::Transient, ErrorClass::Timeout].map(|class| format!("Err(({class:?}, "));
    let answers = said.lines().filter(|line| line.contains("autoscaling:") || line.contains("ec2:"));
    let mut answers = answers.peekable();
    assert!(answers.peek().is_some(), "{said}");
    assert!(answers.all(|line| classes.iter().any(|class| line.contains(class))), "{said}");
}
