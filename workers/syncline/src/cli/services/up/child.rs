//! One supervised child process.

use std::{
    ffi::OsString,
    fs, io,
    net::SocketAddr,
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use syncline_kit::tail;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{interval, sleep, timeout},
};

use super::{
    child_log::{TAIL_LINES, open_log},
    oom_kills::OomKills,
    process::Process,
    say,
};
use crate::cli::Exit;

/// Pause before a child that ended is started again; doubled each time, up to the longest of its program.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// After running for this long a child counts as stable, and its pause starts again.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Time from the request to stop until SIGKILL, unless the program has another.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(6);
/// Time that a child has left once nobody waits any more: enough to write down that it gives something up.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two looks at the length of a log.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How to start a child.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub process: Process,
    pub bin: PathBuf,
    /// Whether that is this program, which may be replaced while it runs.
    pub is_own: bool,
    pub args: Vec<OsString>,
    pub env: Vec<(&'static str, OsString)>,
    /// Where its stderr goes.
    pub log: PathBuf,
    /// Its `--listen` address; once it has printed one, the address that it really took.
    pub listen: Option<SocketAddr>,
    /// Starts since it has last said where it listens.
    pub failed_starts: u32,
    /// Time from the request to stop until SIGKILL.
    pub stop_timeout: Duration,
    /// Before it is started again.
    pub longest_pause: Duration,
    /// It saves state before it ends: a line on stdin asks it to stop, and closing stdin makes it give up
    /// what it cannot save.
    pub saves_state: bool,
    /// Its stdout is for us. A worker has functions of users in it, which print what they like: that goes
    /// into its log.
    pub reports: bool,
}

/// What happened to a child.
#[derive(Debug)]
pub(crate) enum Event {
    Started {
        process: Process,
        pid: u32,
    },
    Listening {
        process: Process,
        address: SocketAddr,
    },
    /// An engine has taken the lead.
    Leading {
        process: Process,
    },
    Ended {
        process: Process,
        how: HowEnded,
        again_in: Duration,
    },
}

/// How a child ended.
#[derive(Debug)]
pub(crate) struct HowEnded {
    /// In words.
    pub status: String,
    pub exit: Exit,
    pub log: PathBuf,
    /// The last lines of the log.
    pub tail: String,
}

/// A child that is started again whenever it ends, until [`stop`](Self::stop).
pub(crate) struct SupervisedChild {
    stop: watch::Sender<Stop>,
    task: JoinHandle<()>,
}

/// What was asked of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    /// To end cleanly.
    Asked,
    /// To end now: nobody waits any more.
    AtOnce,
}

impl SupervisedChild {
    /// Must be called inside a runtime.
    pub(crate) fn start(program: Program, events: mpsc::UnboundedSender<Event>) -> Self {
        let (stop, stopped) = watch::channel(Stop::No);
        Self { stop, task: tokio::spawn(supervise(program, events, stopped)) }
    }

    /// Asks it to stop.
    pub(crate) fn request_stop(&self) {
        self.stop.send_if_modified(|stop| std::mem::replace(stop, (*stop).max(Stop::Asked)) < Stop::Asked);
    }

    /// Makes it end at once, however hard it is.
    pub(crate) fn give_up(&self) {
        self.stop.send_replace(Stop::AtOnce);
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.task).await;
    }
}

async fn stop_requested(stop: &mut watch::Receiver<Stop>) {
    let _ = stop.wait_for(|stop| *stop >= Stop::Asked).await;
}

/// Returns once the child was given up.
async fn given_up(stop: &mut watch::Receiver<Stop>) {
    let _ = stop.wait_for(|stop| *stop >= Stop::AtOnce).await;
}

async fn supervise(
    mut program: Program,
    events: mpsc::UnboundedSender<Event>,
    mut stop: watch::Receiver<Stop>,
) {
    let first_pause = FIRST_PAUSE.min(program.longest_pause);
    let mut pause = first_pause;
    loop {
        program.leave_taken_port();
        program.failed_starts += 1;
        let since = Instant::now();
        let mut from = 0;
        let (status, exit) = match program.spawn(&mut from) {
            Ok(child) => {
                let oom_kills = child.id().and_then(OomKills::of);
                match program.run_until_end(child, &events, &mut stop).await {
                    Some(status) => (in_words(status, oom_kills), Exit::of_child(status.code())),
                    None => return,
                }
            }
            Err(error) => (format!("a failed start of `{}`: {error}", program.bin.display()), Exit::Usage),
        };
        if since.elapsed() > STABLE_AFTER {
            pause = first_pause;
        }
        let how =
            HowEnded { status, exit, log: program.log.clone(), tail: tail(&program.log, from, TAIL_LINES) };
        // The receiver is gone while `up` is being stopped.
        let _ = events.send(Event::Ended { process: program.process, how, again_in: pause });
        tokio::select! {
            () = sleep(pause) => pause = (pause * 2).min(program.longest_pause),
            () = stop_requested(&mut stop) => return,
        }
    }
}

/// How a child ended, with the signal if one ended it.
fn in_words(status: ExitStatus, oom_kills: Option<OomKills>) -> String {
    match status.signal() == Some(libc::SIGKILL) && oom_kills.is_some_and(|kills| kills.rose()) {
        true => format!(
            "{status}, as it seems by the kernel's OOM killer, which has killed in its cgroup since it began"
        ),
        false => status.to_string(),
    }
}

impl Program {
    /// Starts it; `from` becomes the place in its log where this run begins.
    fn spawn(&self, from: &mut u64) -> io::Result<Child> {
        let log = open_log(&self.log)?;
        *from = log.metadata()?.len();
        let stdout = if self.reports { Stdio::piped() } else { log.try_clone()?.into() };
        self.command()
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(log)
            // Ctrl-C goes to the whole group: we stop the children ourselves, cleanly.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(match self.is_own && is_replaced(&self.bin) {
            // Another release would be turned away by the processes of this one.
            true => Path::new(RUNNING_PROGRAM),
            false => &self.bin,
        });
        command.args(&self.args);
        if let Some(listen) = self.listen {
            command.arg("--listen").arg(listen.to_string());
        }
        command.arg("--exit-with-parent");
        // Functions of users run in a worker: the password of Redis is for those alone that are given it.
        command.env_remove("SYNCLINE_REDIS").env_remove("SYNCLINE_REDIS_PASSWORD_FILE");
        command.envs(self.env.iter().cloned());
        command
    }

    /// Waits until a child ends; `None` if it was asked to stop.
    async fn run_until_end(
        &mut self,
        mut child: Child,
        events: &mpsc::UnboundedSender<Event>,
        stop: &mut watch::Receiver<Stop>,
    ) -> Option<ExitStatus> {
        // Out of `child`, because its `wait` closes what it finds there.
        let mut pipe = child.stdin.take();
        let mut lines = child.stdout.take().map(|out| BufReader::new(out).lines());
        let _ = events.send(Event::Started { process: self.process, pid: child.id().unwrap_or(0) });
        tokio::select! {
            status = self.listen_until_end(&mut child, &mut lines, events) => return Some(status),
            () = stop_requested(stop) => {}
        }
        match &mut pipe {
            Some(pipe) if self.saves_state => drop(pipe.write_all(b"stop\n").await),
            _ => drop(pipe.take()),
        }
        let limit = self.stop_timeout;
        let (ended, limit) = {
            let ended = self.listen_until_end(&mut child, &mut lines, events);
            tokio::pin!(ended);
            let ended_in_time = tokio::select! {
                outcome = timeout(limit, &mut ended) => Some(outcome),
                () = given_up(stop) => None,
            };
            // What saves state gives up at the end of its stdin what it cannot save.
            drop(pipe);
            match ended_in_time {
                Some(outcome) => (outcome, limit),
                None => (timeout(GIVE_UP_TIMEOUT, ended).await, GIVE_UP_TIMEOUT),
            }
        };
        match ended {
            Ok(status) if self.saves_state && !status.success() => {
                say(&format!("{} ended with {status}; see {}", self.process, self.log.display()));
            }
            Ok(_) => {}
            Err(_) => {
                say(&format!("{} did not end within {} s and is killed", self.process, limit.as_secs()));
                let _ = child.kill().await;
            }
        }
        None
    }

    /// Hears what a child says until it ends. May be dropped in between and begun again: no line is lost.
    async fn listen_until_end(
        &mut self,
        child: &mut Child,
        lines: &mut Option<Lines<BufReader<ChildStdout>>>,
        events: &mpsc::UnboundedSender<Event>,
    ) -> ExitStatus {
        let mut log_check = interval(LOG_INTERVAL);
        loop {
            tokio::select! {
                // A log that cannot be cut is no reason to end what writes it.
                _ = log_check.tick() => drop(syncline_kit::cut_log(&self.log)),
                line = next(lines) => match line {
                    Some(line) => self.handle_line(&line, events),
                    None => *lines = None,
                },
                status = child.wait() => return status.unwrap_or_default(),
            }
        }
    }

    fn handle_line(&mut self, line: &str, events: &mpsc::UnboundedSender<Event>) {
        if let Some(problem) = line.strip_prefix("problem ") {
            say(&format!("{}: {problem}", self.process));
        }
        if line == "leading" {
            let _ = events.send(Event::Leading { process: self.process });
        }
        let Some(address) = line.strip_prefix("listening ").and_then(|a| a.parse().ok()) else { return };
        (self.listen, self.failed_starts) = (Some(address), 0);
        let _ = events.send(Event::Listening { process: self.process, address });
    }
}

/// The next line; never, once there are no more.
async fn next(lines: &mut Option<Lines<BufReader<ChildStdout>>>) -> Option<String> {
    match lines {
        Some(lines) => lines.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

/// The file of the program that runs, wherever its name points by now.
const RUNNING_PROGRAM: &str = "/proc/self/exe";

/// Whether another file than that of this program is at its place, or none.
fn is_replaced(bin: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|about| (about.dev(), about.ino()));
    // Where the system does not say what runs, its place is all that is known.
    id(Path::new(RUNNING_PROGRAM)).is_ok_and(|running| id(bin).ok() != Some(running))
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, ffi::OsStr};

    use super::{super::process::FIRST_ENGINE, *};

    /// A program of a shell line, whose log is in a folder.
    fn program(dir: &Path, line: &str) -> Program {
        Program {
            process: Process::Worker(0),
            bin: "sh".into(),
            is_own: false,
            args: vec!["-c".into(), line.into()],
            env: Vec::new(),
            log: dir.join("worker-0.log"),
            listen: None,
            failed_starts: 0,
            stop_timeout: STOP_TIMEOUT,
            longest_pause: Duration::ZERO,
            saves_state: false,
            reports: false,
        }
    }

    #[test]
    fn a_program_that_was_replaced_is_started_again_as_it_was() {
        let own = std::env::current_exe().unwrap();
        assert!(!is_replaced(&own));
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("syncline");
        assert!(is_replaced(&other), "removed");
        fs::copy("/bin/true", &other).unwrap();
        assert!(is_replaced(&other));
    }

    #[test]
    fn only_who_is_given_the_address_of_redis_has_it() {
        let worker = program(Path::new("/"), "");
        let engine = Program { env: vec![("SYNCLINE_REDIS", "redis://:secret@h/".into())], ..worker.clone() };
        for (program, address) in [(worker, None), (engine, Some("redis://:secret@h/"))] {
            let command = program.command();
            let env: HashMap<_, _> = command.as_std().get_envs().collect();
            assert_eq!(env[OsStr::new("SYNCLINE_REDIS")], address.map(OsStr::new));
            assert_eq!(env[OsStr::new("SYNCLINE_REDIS_PASSWORD_FILE")], None);
        }
    }

    /// What is heard of it until it has ended once, and how it ended.
    async fn first_run(program: Program) -> (Vec<Event>, HowEnded) {
        let (sender, mut events) = mpsc::unbounded_channel();
        let mut child = SupervisedChild::start(program, sender);
        let mut heard = Vec::new();
        let how = loop {
            match events.recv().await.unwrap() {
                Event::Ended { how, .. } => break how,
                event => heard.push(event),
            }
        };
        child.request_stop();
        child.ended().await;
        (heard, how)
    }

    #[tokio::test]
    async fn what_the_functions_of_a_worker_print_is_logged_and_says_nothing_to_us() {
        let dir = tempfile::tempdir().unwrap();
        let line = r"printf '\377\nlistening 127.0.0.1:80\nleading\n'";
        let (heard, how) = first_run(program(dir.path(), line)).await;
        assert!(matches!(heard[..], [Event::Started { .. }]), "{heard:?}");
        assert!(how.tail.ends_with("listening 127.0.0.1:80\nleading"), "{how:?}");
    }

    /// Where a process listens at last that fails as long as it is told this address.
    async fn listens_at(process: Process, taken: SocketAddr, longest: usize) -> (usize, Option<SocketAddr>) {
        let dir = tempfile::tempdir().unwrap();
        let line = format!("[ $1 = {taken} ] && exit 1; echo listening $1; read line");
        let program = Program { process, listen: Some(taken), reports: true, ..program(dir.path(), &line) };
        let (sender, mut events) = mpsc::unbounded_channel();
        let mut child = SupervisedChild::start(program, sender);
        let (mut ends, mut listens) = (0, None);
        while ends < longest && listens.is_none() {
            match events.recv().await.unwrap() {
                Event::Ended { .. } => ends += 1,
                Event::Listening { address, .. } => listens = Some(address),
                _ => {}
            }
        }
        child.request_stop();
        child.ended().await;
        (ends, listens)
    }

    #[tokio::test]
    async fn a_shard_whose_port_somebody_else_has_taken_takes_another_one() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let shard = Process::Shard("1".parse().unwrap());
        assert_eq!(listens_at(shard, address, 10).await, (3, Some(any)));
        assert_eq!(listens_at(FIRST_ENGINE, address, 6).await, (6, None), "others know its address");
        drop(taken);
        assert_eq!(
            listens_at(shard, address, 6).await,
            (6, None),
            "its port is not what keeps it from starting"
        );
    }

    #[tokio::test]
    async fn the_end_of_a_log_that_was_cut_is_shown_and_what_was_said_before_stays() {
        let dir = tempfile::tempdir().unwrap();
        let program = program(dir.path(), "echo that is why >&2");
        let log = program.log.clone();
        fs::write(&log, "the run before\n".repeat(1 << 20)).unwrap();
        let (_, how) = first_run(program).await;
        assert_eq!(how.tail, "that is why");
        assert!(fs::read_to_string(log).unwrap().starts_with("the run before\n"));
    }
}
