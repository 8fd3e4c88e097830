//! One child process, kept running.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::say;
use crate::cli::Exit;

/// Pause before a child that ended is started again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A child that ran for this long has recovered.
const STEADY: Duration = Duration::from_secs(10);
/// From the wish that a child end to SIGKILL, unless its program says otherwise.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(6);
/// A log longer than this is begun anew.
const LOG_BYTES: u64 = 8 << 20;

/// How to start a child.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub name: String,
    pub bin: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(&'static str, OsString)>,
    /// Where its stderr goes.
    pub log: PathBuf,
    /// What it is told with `--listen`; from its first word on the address that it really took.
    pub listen: Option<SocketAddr>,
    /// From the wish that it end to SIGKILL.
    pub stop_limit: Duration,
    /// It has something to keep first. A line asks it to end; once the pipe closes as well nobody waits any more.
    pub keeps: bool,
}

/// What happened to a child.
#[derive(Debug)]
pub(super) enum Event {
    Started { name: String, pid: u32 },
    Listening { name: String, address: SocketAddr },
    Ended { name: String, how: HowEnded, again_in: Duration },
}

/// How a child ended.
#[derive(Debug)]
pub(super) struct HowEnded {
    /// In words.
    pub status: String,
    pub exit: Exit,
    pub log: PathBuf,
    /// The last lines of the log.
    pub tail: String,
}

/// A child that is started again whenever it ends, until [`stop`](Self::stop).
pub(super) struct Kept {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Kept {
    /// Must be called inside a runtime.
    pub(super) fn start(program: Program, events: mpsc::UnboundedSender<Event>) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(keep(program, events, stopped)) }
    }

    /// Asks it to end.
    pub(super) fn tell(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until it has.
    pub(super) async fn ended(self) {
        let _ = self.task.await;
    }
}

async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|s| *s).await;
}

async fn keep(mut program: Program, events: mpsc::UnboundedSender<Event>, mut stop: watch::Receiver<bool>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let since = Instant::now();
        let from = program.log.metadata().map_or(0, |m| m.len());
        let (status, exit) = match program.spawn() {
            Ok(child) => match program.attend(child, &events, &mut stop).await {
                Some(status) => (status.to_string(), Exit::of_child(status.code())),
                None => return,
            },
            Err(error) => (format!("a failed start of `{}`: {error}", program.bin.display()), Exit::Usage),
        };
        if since.elapsed() > STEADY {
            pause = FIRST_PAUSE;
        }
        let how = HowEnded { status, exit, log: program.log.clone(), tail: tail(&program.log, from) };
        // Nobody listens any more while we are being stopped.
        let _ = events.send(Event::Ended { name: program.name.clone(), how, again_in: pause });
        tokio::select! {
            () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = told(&mut stop) => return,
        }
    }
}

impl Program {
    fn spawn(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.bin);
        command.args(&self.args);
        if let Some(listen) = self.listen {
            command.arg("--listen").arg(listen.to_string());
        }
        command
            .arg("--exit-with-parent")
            .envs(self.env.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(open_log(&self.log)?)
            // Ctrl-C goes to the whole group: we stop the children ourselves, in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    /// Stays with a child until it ends, `None` if that was our wish.
    async fn attend(
        &mut self,
        mut child: Child,
        events: &mpsc::UnboundedSender<Event>,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<ExitStatus> {
        // Out of `child`, because its `wait` closes what it finds there.
        let mut pipe = child.stdin.take();
        let mut words = child.stdout.take().map(|out| BufReader::new(out).lines());
        let _ = events.send(Event::Started { name: self.name.clone(), pid: child.id().unwrap_or(0) });
        loop {
            tokio::select! {
                word = next(&mut words) => match word {
                    Some(line) => self.hear(&line, events),
                    None => words = None,
                },
                status = child.wait() => return Some(status.unwrap_or_default()),
                () = told(stop) => break,
            }
        }
        match &mut pipe {
            Some(pipe) if self.keeps => drop(pipe.write_all(b"stop\n").await),
            _ => drop(pipe.take()),
        }
        let limit = self.stop_limit;
        let ended = async {
            loop {
                tokio::select! {
                    word = next(&mut words) => match word {
                        Some(line) => self.hear(&line, events),
                        None => words = None,
                    },
                    status = child.wait() => return status.unwrap_or_default(),
                }
            }
        };
        let ended = timeout(limit, ended).await;
        match ended {
            Ok(status) if self.keeps && !status.success() => {
                say(&format!("{} ended with {status}; see {}", self.name, self.log.display()));
            }
            Ok(_) => {}
            Err(_) => {
                say(&format!("{} did not end within {} s and is killed", self.name, limit.as_secs()));
                let _ = child.kill().await;
            }
        }
        None
    }

    fn hear(&mut self, line: &str, events: &mpsc::UnboundedSender<Event>) {
        if let Some(trouble) = line.strip_prefix("trouble ") {
            say(&format!("{}: {trouble}", self.name));
        }
        let Some(address) = line.strip_prefix("listening ").and_then(|a| a.parse().ok()) else { return };
        self.listen = Some(address);
        let _ = events.send(Event::Listening { name: self.name.clone(), address });
    }
}

/// The next line; never, once there are no more.
async fn next(words: &mut Option<Lines<BufReader<ChildStdout>>>) -> Option<String> {
    match words {
        Some(lines) => lines.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    if file.metadata()?.len() > LOG_BYTES {
        file.set_len(0)?;
    }
    Ok(file)
}

/// The last lines that were logged since `start`.
fn tail(log: &Path, start: u64) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.min(end).max(end.saturating_sub(4096))))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().collect();
        Ok(lines[lines.len().saturating_sub(8)..].join("\n"))
    };
    read().unwrap_or_else(|e| format!("({e})"))
}
