//! An admission webhook that refuses evictions for a while, as operators of databases have them.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Pod},
};
use kube::{
    Api,
    api::{EvictParams, PostParams},
};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};

use crate::{
    control_plane::User,
    wait::{PATIENCE, until},
    world::World,
};

/// What every refusal says.
pub const WORDS: &str = "the data is still on the move";

/// A validating webhook of `pods/eviction`, served over TLS. It ends when it is dropped.
#[derive(Debug)]
pub struct Webhook {
    address: std::net::SocketAddr,
    over: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Webhook {
    /// Lets a webhook refuse the product's next evictions with these HTTP statuses, one after the other, and allow
    /// those that follow. The evictions of anybody else are refused. It is in force once the call returns.
    ///
    /// # Panics
    /// If it does not get in force, or there is no pod named `pod` to try it on.
    pub async fn refuse(world: &World, pod: &str, statuses: &[u16]) -> Self {
        let certificates = world.control_plane().folder().join("certificates");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (over, tls) = (Arc::new(AtomicBool::new(false)), Arc::new(tls(&certificates)));
        let statuses = Mutex::new(VecDeque::from(statuses.to_vec()));
        let ended = Arc::clone(&over);
        let server = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                // A connection that breaks is the API server's to try again.
                let _answered = stream.and_then(|stream| serve(stream, &tls, &statuses));
            }
        });
        let webhook = Self { address, over, server: Some(server) };
        webhook.register(world, &certificates).await;
        let pods: Api<Pod> = Api::namespaced(world.client(), "default");
        let dry = EvictParams {
            post_options: PostParams { dry_run: true, ..PostParams::default() },
            ..EvictParams::default()
        };
        until("the webhook to be in force", PATIENCE, || async {
            match pods.evict(pod, &dry).await {
                Err(kube::Error::Api(status)) if status.message.contains(WORDS) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        webhook
    }

    async fn register(&self, world: &World, certificates: &Path) {
        let authority = std::fs::read(certificates.join("apiserver.crt")).expect("the API server made it");
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": "moves-data-first"},
            "webhooks": [{
                "name": "evictions.world.spot.test",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": {
                    "url": format!("https://{}/", self.address),
                    "caBundle": ByteString(authority),
                },
                "rules": [{
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods/eviction"],
                }],
            }],
        }))
        .expect("the fields are those of a ValidatingWebhookConfiguration");
        let created = Api::all(world.client()).create(&PostParams::default(), &configuration).await;
        created.expect("the configuration is accepted");
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // It waits for a connection: this is the last one.
        drop(TcpStream::connect(self.address));
        if let Some(server) = self.server.take() {
            drop(server.join());
        }
    }
}

/// The certificate that the API server made for itself is for the loopback, and comes with its authority.
fn tls(certificates: &Path) -> ServerConfig {
    let chain = CertificateDer::pem_file_iter(certificates.join("apiserver.crt"))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .expect("the API server made a certificate");
    let key = PrivateKeyDer::from_pem_file(certificates.join("apiserver.key")).expect("the API server made a key");
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("key and certificate belong together")
}

/// Answers one request and closes the connection.
fn serve(stream: TcpStream, tls: &Arc<ServerConfig>, statuses: &Mutex<VecDeque<u16>>) -> std::io::Result<()> {
    let connection = ServerConnection::new(Arc::clone(tls)).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let review: Value = serde_json::from_slice(&body(&mut stream)?)?;
    let request = &review["request"];
    let refusal = if request["userInfo"]["username"] == User::Migrator.name() {
        statuses.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    } else {
        Some(403)
    };
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": request["uid"],
            "allowed": refusal.is_none(),
            "status": {"code": refusal.unwrap_or(200), "message": WORDS},
        },
    })
    .to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// Reads an HTTP request and returns its body.
fn body(stream: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    Ok(body)
}
