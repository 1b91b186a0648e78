//! A metadata service on the loopback, as strict as the real one: a token for every document, a lifetime for every
//! token. It answers oddly when told to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The instance that it is of, unless a test says otherwise.
pub(crate) const INSTANCE: &str = "i-0123456789abcdef0";

pub(crate) const INSTANCE_ID: &str = "instance-id";
pub(crate) const INTERRUPTION: &str = "spot/instance-action";
pub(crate) const REBALANCE: &str = "events/recommendations/rebalance";
pub(crate) const SCHEDULED: &str = "events/maintenance/scheduled";
/// The one path that is no document.
pub(crate) const TOKEN: &str = "/latest/api/token";

const DOCUMENTS: &str = "/latest/meta-data/";
const LIFETIME: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const LONGEST: u32 = 21_600;

/// An answer that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Odd {
    Status(u16),
    /// The answer to another request: 200, with this body.
    Garbage(&'static str),
    /// 200, with bytes that are no text.
    NoText,
    /// Bytes that are no answer in HTTP.
    NoHttp,
    /// Nothing, while the connection stays open.
    Silence,
    /// Half of the body, and silence.
    HalfThenSilence,
    /// Half of the body, and the end of the connection.
    HalfThenEnd,
    /// Fewer bytes announced than are sent.
    TooShort,
    /// The connection is reset.
    Reset,
    /// Somewhere else is said to have it.
    Elsewhere(SocketAddr),
}

#[derive(Debug, Default)]
struct State {
    documents: BTreeMap<String, String>,
    odd: BTreeMap<String, VecDeque<Odd>>,
    tokens: BTreeSet<String>,
    issued: u32,
    requests: Vec<String>,
}

/// The service; it ends with the test.
#[derive(Debug)]
pub(crate) struct Stub {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

impl Stub {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        let stub = Self { address, state, serving };
        stub.announce(INSTANCE_ID, INSTANCE);
        stub
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn announce(&self, document: &str, text: &str) {
        self.state().documents.insert(document.to_owned(), text.to_owned());
    }

    pub(crate) fn withdraw(&self, document: &str) {
        self.state().documents.remove(document);
    }

    /// Answers the next so many requests for a document, or for a token, oddly.
    pub(crate) fn answer_oddly(&self, path: &str, odd: &Odd, times: usize) {
        let path = if path == TOKEN { path.to_owned() } else { format!("{DOCUMENTS}{path}") };
        self.state().odd.entry(path).or_default().extend(std::iter::repeat_n(odd.clone(), times));
    }

    /// Knows no token any more, as after a start.
    pub(crate) fn forget_tokens(&self) {
        self.state().tokens.clear();
    }

    /// How often a document, or a token, was asked for.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.state().requests.iter().filter(|request| request.ends_with(path)).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One connection, with one request after another.
async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    while let Some(request) = head(&mut stream).await {
        let (answer, odd) = {
            let mut state = state.lock().unwrap();
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            state.requests.push(path.clone());
            let answer = answer(&mut state, &request, &path);
            (answer, state.odd.get_mut(&path).and_then(VecDeque::pop_front))
        };
        let Some(odd) = odd else {
            stream.write_all(answer.as_bytes()).await.unwrap();
            continue;
        };
        oddly(stream, &answer, odd).await;
        return;
    }
}

/// The next request up to its body, which none has, in lower case but for its first line; none: the client is gone.
async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(bytes).unwrap();
    let (first, headers) = text.split_once("\r\n").unwrap();
    Some(format!("{first}\n{}", headers.to_lowercase()))
}

/// What the real one would answer.
fn answer(state: &mut State, request: &str, path: &str) -> String {
    let method = request.split(' ').next().unwrap_or_default();
    let header = |name: &str| {
        request.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
    };
    // A request that passed through a proxy is nobody's on this machine.
    if header("x-forwarded-for").is_some() {
        return written(403, "", "");
    }
    match (method, path) {
        ("PUT", TOKEN) => match header(LIFETIME).and_then(|lifetime| lifetime.parse().ok()) {
            Some(lifetime @ 1..=LONGEST) => {
                state.issued += 1;
                let token = format!("token-{}", state.issued);
                state.tokens.insert(token.clone());
                written(200, &token, &format!("{LIFETIME}: {lifetime}\r\n"))
            }
            Some(_) | None => written(400, "", ""),
        },
        ("GET", path) => {
            let known = header("x-aws-ec2-metadata-token").is_some_and(|token| state.tokens.contains(&token));
            let document = path.strip_prefix(DOCUMENTS).and_then(|document| state.documents.get(document));
            match document {
                _ if !known => written(401, "", ""),
                Some(text) => written(200, text, ""),
                None => written(404, "not found", ""),
            }
        }
        _ => written(405, "", ""),
    }
}

fn written(status: u16, body: &str, headers: &str) -> String {
    format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: text/plain\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Makes of a right answer a wrong one.
async fn oddly(mut stream: TcpStream, answer: &str, odd: Odd) {
    let half = |text: &str| text[..text.len() - text.len().min(20) / 2].to_owned();
    let bytes = match &odd {
        Odd::Status(status) => written(*status, "an answer", "").into_bytes(),
        Odd::Garbage(body) => written(200, body, &format!("{LIFETIME}: 60\r\n")).into_bytes(),
        Odd::NoText => [
            written(200, "....", &format!("{LIFETIME}: 60\r\n")).trim_end_matches('.').as_bytes(),
            &[0xff, 0xfe, 0, 0xff],
        ]
        .concat(),
        Odd::NoHttp => b"220 mail.example ESMTP\r\n".to_vec(),
        Odd::HalfThenSilence | Odd::HalfThenEnd => half(answer).into_bytes(),
        Odd::TooShort => {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let (head, _) = head.rsplit_once("content-length").unwrap();
            format!("{head}content-length: {}\r\n\r\n{body}", body.len() / 2).into_bytes()
        }
        Odd::Elsewhere(there) => written(302, "", &format!("location: http://{there}/\r\n")).into_bytes(),
        Odd::Silence | Odd::Reset => Vec::new(),
    };
    stream.write_all(&bytes).await.unwrap();
    match odd {
        Odd::Silence | Odd::HalfThenSilence => {
            // Until the client gives up.
            let mut nothing = [0];
            let _closed = stream.read(&mut nothing).await;
        }
        Odd::Reset => stream.set_zero_linger().unwrap(),
        _ => {}
    }
}
