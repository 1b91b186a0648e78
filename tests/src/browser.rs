//! A real browser that looks at one page of ours: Chromium, driven over a pipe.

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long the browser may take for one answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// What Chromium and its like are called.
const NAMES: [&str; 5] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// Its standard streams become the two that it is driven over. It looks for networks by itself, whatever the page is: so
/// it has one of its own, with nothing in it, where that can be made.
const DRIVEN: &str = r#"
exec 3<&0 4>&1 </dev/null >/dev/null 2>"$SPOT_BROWSER_LOG"
unshare -rn true && exec unshare -rn "$0" "$@"
exec "$0" "$@"
"#;

/// A browser with one page open. Dropping it kills it.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    asked: u64,
    session: Option<String>,
    told: VecDeque<Value>,
    folder: TempDir,
}

impl Browser {
    /// Opens the page in a window of that width.
    ///
    /// # Panics
    /// If there is no browser, or it does not show the page.
    #[must_use]
    pub fn open(page: &Path, width: u32) -> Self {
        let mut browser = Self::start();
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.resize(width);
        browser.call("Page.navigate", json!({"url": format!("file://{}", page.display())}));
        browser.event("Page.loadEventFired");
        browser
    }

    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let log = folder.path().join("browser.log");
        let mut command = Command::new("sh");
        command.args(["-c", DRIVEN]).arg(program()).env("SPOT_BROWSER_LOG", &log).env("HOME", folder.path());
        command.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
        command.args([
            "--headless",
            "--remote-debugging-pipe",
            "--no-first-run",
            // It may run as root, or in a container: what it shows is ours.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--hide-scrollbars",
        ]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is a shell to start it");
        let to = child.stdin.take().expect("it is a pipe");
        let from = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for message in from.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("it speaks JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { child, to, from: receiver, asked: 0, session: None, told: VecDeque::new(), folder }
    }

    /// Makes its window that wide.
    pub fn resize(&mut self, width: u32) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Shows the page to somebody who likes it dark, or does not.
    pub fn darken(&mut self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let feature = json!({"name": "prefers-color-scheme", "value": value});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    /// What this expression of the page's own language comes to.
    ///
    /// # Panics
    /// If it comes to nothing but an error.
    pub fn ask(&mut self, expression: &str) -> Value {
        let answer = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// What the browser complained of so far: errors of scripts, and what the page's own policy kept it from.
    pub fn complaints(&mut self) -> Vec<String> {
        // Whatever it has to tell comes before its next answer.
        self.ask("1");
        let of = ["Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"];
        self.told.iter().filter(|told| of.iter().any(|of| told["method"] == *of)).map(Value::to_string).collect()
    }

    /// What it asked for, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<&str> {
        let requests = self.told.iter().filter(|told| told["method"] == "Network.requestWillBeSent");
        requests.filter_map(|told| told["params"]["request"]["url"].as_str()).collect()
    }

    /// Calls a method of its protocol.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method});
        message["params"] = parameters;
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let sent = write!(self.to, "{message}\0").and_then(|()| self.to.flush());
        sent.unwrap_or_else(|error| panic!("{method}: {error}: {}", self.log()));
        loop {
            let told = self.next(method);
            if told["id"] == self.asked {
                assert!(told.get("error").is_none(), "{method}: {told}");
                return told["result"].clone();
            }
            self.told.push_back(told);
        }
    }

    /// Waits until it tells of this event.
    fn event(&mut self, method: &str) {
        while !self.told.iter().any(|told| told["method"] == method) {
            let told = self.next(method);
            self.told.push_back(told);
        }
    }

    fn next(&self, what: &str) -> Value {
        self.from.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what}: {error}: {}", self.log()))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("browser.log")).unwrap_or_else(|error| error.to_string())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The browser that `SPOT_BROWSER` names, or else the first that there is.
fn program() -> PathBuf {
    #[expect(
        clippy::disallowed_methods,
        reason = "how a user says which browser to take, and the shell finds programs"
    )]
    let [named, path] = ["SPOT_BROWSER", "PATH"].map(std::env::var_os);
    let mut there = path.iter().flat_map(std::env::split_paths).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let mac = PathBuf::from("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome");
    named.map(PathBuf::from).or_else(|| there.find(|program| program.is_file())).unwrap_or_else(|| {
        assert!(mac.is_file(), "install Chromium (Debian: apt-get install chromium), or name one in SPOT_BROWSER");
        mac
    })
}
