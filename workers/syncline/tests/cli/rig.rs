//! Starts `syncline`, in a folder of its own and without the environment of whoever runs the tests.

#[path = "environment.rs"]
mod environment;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    ops::{Deref, DerefMut},
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// Slow machines under load need most of it.
const PATIENCE: Duration = Duration::from_secs(90);

/// `syncline ARGS` without any `SYNCLINE_*` of ours; the cache of native parts stays where it is.
pub fn command(args: &[&str]) -> Command {
    command_by(&[], args)
}

/// The same, started by another program.
pub fn command_by(starter: &[&str], args: &[&str]) -> Command {
    let mut words = starter.iter().copied().chain([crate::BINARY]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    environment::forget_ours(&mut command).env_remove("RUST_LOG").args(args).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn syncline(args: &[&str]) -> Ended {
    Ended::from(command(args).output().unwrap())
}

/// Runs a command whose stdout is on a full disk.
pub fn on_full_disk(args: &[&str]) -> Ended {
    let full = File::options().write(true).open("/dev/full").unwrap();
    Ended::from(
        command(args).stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap(),
    )
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ended {
    /// It must have ended well.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// It must have ended with this exit code, a line with this error code, and a hint. What takes seconds on
    /// a busy machine is told before.
    #[track_caller]
    pub fn refused(self, exit: i32, code: &str) -> Self {
        assert_eq!(self.code, exit, "{self:#?}");
        let error = self.err.find("error: [E").map(|at| &self.err[at..]);
        assert!(error.is_some_and(|error| error.contains(&format!("[{code}]"))), "{self:#?}");
        assert!(self.err.lines().last().unwrap().starts_with("hint: "), "{self:#?}");
        self
    }

    /// Its stdout must be one JSON value.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

/// Polls until `holds`.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "never happened: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal, by name.
pub fn kill(signal: &str, pid: u32) {
    // The process may have gone by itself.
    let _ = Command::new("sh").arg("-c").arg(format!("kill -{signal} {pid}")).stderr(Stdio::null()).status();
}

/// Whether a process runs; one that only waits to be collected does not.
pub fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X') | None))
}

/// A command that goes on, killed if its test ends before it.
pub struct Killed(Option<Child>);

impl Killed {
    pub fn start(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    /// Waits for its end.
    pub fn ended(mut self) -> Ended {
        Ended::from(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Deref for Killed {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Killed {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A running `syncline up`, stopped when dropped.
pub struct Up {
    child: Child,
    said: Arc<Mutex<String>>,
    /// What it printed when everything was ready.
    pub about: Value,
}

impl Up {
    pub fn redis_password(&self) -> String {
        fs::read_to_string(self.about["redis_password_file"].as_str().unwrap()).unwrap().trim().to_owned()
    }

    /// Sends a command to Redis and returns what it said.
    pub fn redis(&self, words: &str) -> String {
        self.redis_as(&self.redis_password(), words)
    }

    pub fn redis_as(&self, password: &str, words: &str) -> String {
        let address = self.about["redis"].as_str().unwrap().trim_start_matches("redis://");
        let mut stream = TcpStream::connect(address.trim_end_matches('/')).unwrap();
        stream.write_all(format!("AUTH {password}\r\n{words}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    /// On a free port, in `dir`.
    pub fn start(dir: &TempDir, args: &[&str]) -> Self {
        Self::start_in(dir.path(), args)
    }

    /// The same in any folder.
    pub fn start_in(dir: &Path, args: &[&str]) -> Self {
        Self::start_by(&[], dir, args)
    }

    /// The same, started by a command that ends in executing what follows.
    pub fn start_by(starter: &[&str], dir: &Path, args: &[&str]) -> Self {
        let dir = dir.to_str().unwrap();
        let mut all = vec!["up", "--json", "--state-dir", dir, "--listen", "127.0.0.1:0"];
        all.extend(args);
        let mut child =
            command_by(starter, &all).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (stderr, heard) = (child.stderr.take().unwrap(), said.clone());
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut heard = heard.lock().unwrap();
                heard.push_str(&line);
                heard.push('\n');
            }
        });
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        while !text.ends_with("}\n}\n") && !text.ends_with("\n}\n") {
            if out.read_line(&mut text).unwrap() == 0 {
                break;
            }
        }
        // Kept open, so that nothing it prints later can fail.
        thread::spawn(move || out.read_to_end(&mut Vec::new()));
        let about = serde_json::from_str(&text);
        let about = about.unwrap_or_else(|e| panic!("{e} in {text:?}; it said {}", said.lock().unwrap()));
        Self { child, said, about }
    }

    /// Its own process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has said on stderr.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("up ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        kill("TERM", self.pid());
        let since = Instant::now();
        while self.child.try_wait().is_ok_and(|s| s.is_none()) {
            if since.elapsed() > PATIENCE {
                let _ = self.child.kill();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Process ids of the cluster that runs in `dir`, by name.
pub fn processes(dir: &Path) -> Vec<(String, u32)> {
    let text = fs::read_to_string(dir.join("up.json")).unwrap();
    let about: Value = serde_json::from_str(&text).unwrap();
    let processes = about["processes"].as_object().unwrap();
    processes.iter().map(|(name, pid)| (name.clone(), pid.as_u64().unwrap() as u32)).collect()
}

/// A folder that goes with the test.
pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}
