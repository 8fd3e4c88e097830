//! A Redis-compatible server of our own on a loopback port: started, watched until it answers, stopped.
//!
//! Everybody on this machine can reach the port, so the server wants a password. It lies in a file in the
//! server's folder, which only its owner may enter, and reaches the server in a configuration file beside it:
//! never in an argument, which everybody can read.
//!
//! Everybody on this machine can also take the port before the server does, or once it has ended, and hear
//! what we and its callers send there. So each start has a password of its own, which nobody is told and
//! which is sent nowhere before the server's own log says that it has the port.

use crate::aof_manifest::check_manifest;
use crate::aof_tail::cut_zeros_of_changes;
use crate::password::Password;
use crate::redis_dir::{config_path, configure, has_port, lock, log_path, make_private, password_path};
use crate::{
    KitError,
    log_file::{open_log, tail},
    program,
};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
#[cfg(target_os = "linux")]
use rustix::process::set_parent_process_death_signal;
use rustix::process::{Pid, Signal, getppid, kill_process};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A server that loads a large file answers "-LOADING", which starts this anew.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// From SIGTERM to SIGKILL; a server syncs its file meanwhile.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// So much of its log is shown where it does not start.
const TAIL_LINES: usize = 15;
/// Free ports that are tried when others grab them in between.
const PORTS: usize = 8;

/// How to run a [`RedisServer`].
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Where it keeps its data, `redis.log` and its password; created if absent, for nobody but us. One
    /// server at a time.
    pub dir: PathBuf,
    /// The port on 127.0.0.1; `None`: a free one.
    pub port: Option<u16>,
    /// Write each change to an append-only file, synced every second. Without it nothing survives a restart.
    pub appendonly: bool,
}

impl RedisOptions {
    /// Durable, on a free port.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), port: None, appendonly: true }
    }
}

/// A running server. Dropping it stops the server; if this process is killed, the kernel stops it (Linux).
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    port: u16,
    dir: PathBuf,
    password: Password,
    /// Disconnected by the drop, after the child has ended: lets the thread go that started the child.
    _parent: mpsc::Sender<()>,
}

impl RedisServer {
    /// Starts `program` (see [`redis_server`](super::redis_server)) and waits until it answers.
    ///
    /// Blocks for some 50 ms, for longer if there is much to load.
    pub fn start(program: &Path, options: RedisOptions) -> Result<Self, KitError> {
        make_private(&options.dir).map_err(KitError::io("create", &options.dir))?;
        let dir = options.dir.canonicalize().map_err(KitError::io("resolve", &options.dir))?;
        let lock = lock(&dir)?;
        let options = RedisOptions { dir, ..options };
        if let Some(changes) = check_manifest(&options.dir)? {
            cut_zeros_of_changes(&changes, &log_path(&options.dir))?;
        }
        let mut ports_left = if options.port.is_some() { 1 } else { PORTS };
        loop {
            ports_left -= 1;
            let port =
                options.port.map_or_else(free_port, Ok).map_err(KitError::io("listen in", &options.dir))?;
            match Self::start_on(port, program, &options, &lock) {
                Err(KitError::PortTaken { .. }) if ports_left > 0 => {}
                done => return done,
            }
        }
    }

    fn start_on(port: u16, program: &Path, options: &RedisOptions, lock: &File) -> Result<Self, KitError> {
        let password = Password::generate();
        configure(&options.dir, &password)?;
        let log = log_path(&options.dir);
        let log_file = open_log(&log).map_err(KitError::io("write", &log))?;
        let log_start = log_file.metadata().map_err(KitError::io("read", &log))?.len();
        let stderr = log_file.try_clone().map_err(KitError::io("write", &log))?;
        let mut command = Command::new(program);
        command.args(arguments(port, options)).stdin(Stdio::null()).stdout(log_file).stderr(stderr);
        // Ctrl-C goes to the whole process group; the server must outlive those who still write to it.
        command.process_group(0);
        tie_to_us(&mut command, lock.try_clone().map_err(KitError::io("hand on the lock of", &options.dir))?);
        let (child, parent) = spawn_from_own_thread(command).map_err(KitError::io("run", program))?;
        let mut server = Self { child, port, dir: options.dir.clone(), password, _parent: parent };
        let password_file = server.password_file();
        let mut is_published = false;

        let mut silent_since = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            if let Some(status) = server.ended() {
                let tail = tail(&log, log_start, TAIL_LINES);
                return Err(if tail.contains("ddress already in use") {
                    KitError::PortTaken { port, log, tail }
                } else {
                    KitError::ServerEnded { program: program.into(), status: status.to_string(), log, tail }
                });
            }
            if !is_published && has_port(&log, log_start) {
                let keep = server.password.keep(&password_file);
                keep.map_err(KitError::io("keep the password in", &password_file))?;
                is_published = true;
            }
            let answer =
                if is_published { ping(port, &server.password) } else { Err(ErrorKind::NotConnected.into()) };
            match answer {
                // Its own pid: a server that is another all the same must not be taken for ours.
                Ok(Answer::Ready { pid }) if pid == server.child.id() => return Ok(server),
                Ok(Answer::Loading { pid }) if pid == server.child.id() => silent_since = Instant::now(),
                _ => {}
            }
            if silent_since.elapsed() > ANSWER_LIMIT {
                let after_ms = ANSWER_LIMIT.as_millis() as u64;
                let tail = tail(&log, log_start, TAIL_LINES);
                return Err(KitError::NoAnswer { port, after_ms, log, tail });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// With the password, which is good until the server ends: for programs, not to be shown.
    pub fn url(&self) -> String {
        format!("redis://:{}@127.0.0.1:{}/", self.password.reveal(), self.port)
    }

    /// `redis://127.0.0.1:PORT/`, without the password.
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The file with the password, mode 0600. The next start writes another one, once nobody else can have
    /// its port.
    pub fn password_file(&self) -> PathBuf {
        password_path(&self.dir)
    }

    /// How a person calls `redis-cli` for this server: a command for a shell, to be followed by what is
    /// asked.
    pub fn redis_cli(&self) -> String {
        redis_cli(&self.password_file(), self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where the data lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the server logged, in all runs on this directory.
    pub fn log(&self) -> PathBuf {
        log_path(&self.dir)
    }

    /// How the server ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        // SIGKILL, which is all that the standard library sends, would leave things unsynced.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let since = Instant::now();
        while self.ended().is_none() {
            if since.elapsed() > STOP_LIMIT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How a person calls `redis-cli` for a server on a port of this machine whose password lies in a file: a
/// command for a shell, which hands it over in the environment because everybody can read arguments.
pub fn redis_cli(password_file: &Path, port: u16) -> String {
    let file = password_file.display().to_string().replace('\'', r"'\''");
    format!("REDISCLI_AUTH=$(cat '{file}') redis-cli -p {port}")
}

fn arguments(port: u16, options: &RedisOptions) -> Vec<std::ffi::OsString> {
    let pairs = [
        ("--port", port.to_string()),
        ("--bind", "127.0.0.1".into()),
        ("--protected-mode", "yes".into()),
        ("--appendonly", if options.appendonly { "yes" } else { "no" }.into()),
        ("--appendfsync", "everysec".into()),
        ("--save", String::new()),
        // By which it says that it has the port.
        ("--loglevel", "notice".into()),
        ("--daemonize", "no".into()),
    ];
    let mut all: Vec<std::ffi::OsString> = vec![config_path(&options.dir).into()];
    all.extend(pairs.into_iter().flat_map(|(k, v)| [k.into(), v.into()]));
    all.extend(["--dir".into(), options.dir.clone().into()]);
    all
}

/// A port that was free a moment ago.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

enum Answer {
    Ready { pid: u32 },
    Loading { pid: u32 },
}

/// Asks whoever listens on `port`: ready to serve, and with which process id?
fn ping(port: u16, password: &Password) -> io::Result<Answer> {
    let limit = Duration::from_millis(500);
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), limit)?;
    stream.set_read_timeout(Some(limit))?;
    let words = format!("AUTH {}\r\nPING\r\nINFO server\r\n", password.reveal());
    stream.write_all(words.as_bytes())?;
    let mut lines = BufReader::new(stream.take(64 * 1024)).lines();
    let let_in = lines.next().transpose()?.unwrap_or_default();
    if let_in != "+OK" {
        return Err(io::Error::other(let_in));
    }
    let pong = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if let Some(pid) = line?.strip_prefix("process_id:").and_then(|pid| pid.trim().parse().ok()) {
            match pong.as_str() {
                "+PONG" => return Ok(Answer::Ready { pid }),
                pong if pong.starts_with("-LOADING") => return Ok(Answer::Loading { pid }),
                _ => break,
            }
        }
    }
    Err(io::Error::other(pong))
}

/// Runs `command` from a thread that lives until the returned sender is dropped.
///
/// Linux ties the child to the *thread* that started it: from a thread of a pool, which ends when idle, the
/// server would be stopped in the middle of its work.
fn spawn_from_own_thread(mut command: Command) -> io::Result<(Child, mpsc::Sender<()>)> {
    let (child_out, child_in) = mpsc::channel();
    let (alive, until_dropped) = mpsc::channel();
    thread::Builder::new().name("redis-server".into()).spawn(move || {
        let _ = child_out.send(program::spawn(&mut command));
        drop(command);
        let _ = until_dropped.recv();
    })?;
    let child = child_in.recv().map_err(io::Error::other)??;
    Ok((child, alive))
}

/// Has the kernel stop the child with this process, and hands it the lock.
#[expect(
    unsafe_code,
    reason = "pre_exec runs between fork and exec; it makes nothing but async-signal-safe calls"
)]
fn tie_to_us(command: &mut Command, lock: File) {
    let us = Pid::from_raw(std::process::id() as i32);
    let prepare = move || {
        fcntl_setfd(&lock, FdFlags::empty())?;
        #[cfg(target_os = "linux")]
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // We may have died before the line above; then nobody sends the signal.
        if getppid() != us {
            return Err(Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: `prepare` neither allocates nor locks.
    unsafe { command.pre_exec(prepare) };
}
