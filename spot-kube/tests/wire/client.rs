//! The client that `connect` makes, over a socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use spot_core::error::chain;
use spot_core::node::Uid;
use spot_core::pod::PodRef;
use spot_core::ports::{Alone, Clock, Cluster, EvictAnswer, Write};
use spot_kube::{Access, AccessError, KubeCluster, Settings, TokioClock, connect};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

fn kubeconfig(folder: &Path, server: &str) -> PathBuf {
    let file = folder.join("config");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
         clusters: [{{name: here, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: me, user: {{token: secret}}}}]\n\
         contexts: [{{name: here, context: {{cluster: here, user: me}}}}]\n"
    );
    std::fs::write(&file, text).unwrap();
    file
}

/// Answers each request with 429, as to a pod that a budget protects, and returns the heads of those that came until
/// the client has hung up.
async fn refuses(listener: TcpListener, hang_up: Arc<tokio::sync::Notify>) -> Vec<Vec<String>> {
    let mut heads = Vec::new();
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            let read = tokio::select! {
                read = stream.read_line(&mut line) => read.unwrap(),
                () = hang_up.notified() => 0,
            };
            if read == 0 {
                return heads;
            }
            let line = line.trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            head.push(line);
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).await.unwrap();
        heads.push(head);
        let answer = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 0\r\ncontent-length: 2\r\n\r\n{}";
        stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
    }
}

/// kube's own client would ask again up to 15 times, and a pod that a budget protects is a 429.
#[tokio::test]
async fn retries_are_off_and_the_sender_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let hang_up = Arc::new(tokio::sync::Notify::new());
    let server = tokio::spawn(refuses(listener, Arc::clone(&hang_up)));
    let folder = tempfile::tempdir().unwrap();
    let path = Some(kubeconfig(folder.path(), &address));
    let client = connect(&Access::Kubeconfig { path, context: None }).await.unwrap();

    let clock = Arc::new(TokioClock::new());
    let settings =
        Settings { namespace: "ours".to_owned(), config_map: "memory".to_owned(), clock: Arc::clone(&clock) as _ };
    let pod = PodRef { namespace: "shop".into(), name: "db-0".into(), uid: Uid::new("u1") };
    let write = Write::assume(clock.instant() + Duration::from_mins(1), Arc::new(Alone));
    let answer = KubeCluster::new(client, settings).evict(&pod, None, &write).await.unwrap();
    assert!(matches!(answer, EvictAnswer::Overloaded { .. }), "{answer:?}");

    hang_up.notify_one();
    let heads = server.await.unwrap();
    assert_eq!(heads.len(), 1, "{heads:?}");
    assert!(heads[0].contains(&format!("user-agent: spot-migrator/{}", env!("CARGO_PKG_VERSION"))), "{heads:?}");
}

#[tokio::test]
async fn a_kubeconfig_that_is_missing_or_lacks_the_context_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let error = connect(&Access::Kubeconfig { path: Some(missing), context: None }).await.err().unwrap();
    assert!(matches!(error, AccessError::Kubeconfig { .. }));
    assert!(chain(&error).contains("missing can't be used: failed to read kubeconfig"), "{}", chain(&error));

    let path = Some(kubeconfig(folder.path(), "http://127.0.0.1:1"));
    let error = connect(&Access::Kubeconfig { path, context: Some("other".to_owned()) }).await.err().unwrap();
    assert!(chain(&error).contains("other"), "{}", chain(&error));
}
