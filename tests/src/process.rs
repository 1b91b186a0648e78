//! A program that a test started, which ends with it.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::until;

/// As many bytes of a log as are printed when a test fails.
const TAIL: u64 = 2_000;

/// A running program. Dropping it kills it; if the test is failing, the end of its log is printed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    shown: u64,
}

impl Process {
    /// Starts `command` with its output in `<folder>/<name>.log`.
    ///
    /// Its standard input is a pipe that closes with the test process, and `EXIT_WITH_STDIN` tells the programs of the
    /// world to end when it does: so a killed test leaves none of them behind.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(name: &str, command: &mut Command, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log).expect("the folder is writable");
        let errors = output.try_clone().expect("a file handle can be copied");
        let child = command
            .env("EXIT_WITH_STDIN", "1")
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} did not start: {error}"));
        Self { name: name.to_owned(), child, log, shown: TAIL }
    }

    /// The same, but all that it printed is shown when the test fails, and not only the end.
    #[must_use]
    pub fn shown_whole(mut self) -> Self {
        self.shown = u64::MAX;
        self
    }

    /// Everything that it has written to its output so far.
    ///
    /// # Panics
    /// If the log can't be read.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).expect("the log is readable")).into_owned()
    }

    /// How it ended, or nothing while it runs.
    ///
    /// # Panics
    /// If the system can't tell.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child is ours to wait for")
    }

    /// Waits until it ends.
    ///
    /// # Panics
    /// If it still runs after `patience`.
    pub async fn wait(&mut self, patience: Duration) -> ExitStatus {
        let what = format!("{} to end", self.name);
        until(&what, patience, || {
            let ended = self.ended().ok_or_else(|| "it is running".to_owned());
            async move { ended }
        })
        .await
    }

    /// Asks it to end (SIGTERM).
    ///
    /// # Panics
    /// If it is no longer there.
    pub fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).expect("the process is there");
    }

    /// Stops it where it is (SIGSTOP): time goes on without it.
    ///
    /// # Panics
    /// If it is no longer there.
    pub fn freeze(&self) {
        kill_process(self.pid(), Signal::STOP).expect("the process is there");
    }

    /// Lets it go on after [`freeze`](Self::freeze).
    ///
    /// # Panics
    /// If it is no longer there.
    pub fn thaw(&self) {
        kill_process(self.pid(), Signal::CONT).expect("the process is there");
    }

    /// Ends it on the spot (SIGKILL), as a crash would.
    ///
    /// # Panics
    /// If it can't be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("the process is ours to kill");
        self.child.wait().expect("the child is ours to wait for");
    }

    /// Its resident memory, in bytes.
    ///
    /// # Panics
    /// If it is no longer there.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.size("VmRSS:")
    }

    /// The most resident memory that it had, in bytes.
    ///
    /// # Panics
    /// If it is no longer there.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.size("VmHWM:")
    }

    fn size(&self, name: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux tells the resident size");
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("it is a number of kB");
        kibibytes * 1024
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn tail(&self) -> std::io::Result<String> {
        let mut file = File::open(&self.log)?;
        let start = file.metadata()?.len().saturating_sub(self.shown);
        file.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        Ok(String::from_utf8_lossy(&end).into_owned())
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "the test runner shows it below the failed test")]
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            let tail = self.tail().unwrap_or_else(|error| error.to_string());
            eprintln!("---- the end of what {} printed\n{tail}\n----", self.name);
        }
    }
}
