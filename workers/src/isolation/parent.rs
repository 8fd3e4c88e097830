//! The parent: starts a child, listens to it, and says what became of it.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use syncline_rpc::threads::{self, NoThread};

use super::error::ModelError;
use super::host::NamedModel;
use super::locate::smallest_crashing;
use super::message::{
    Answer, CHILD_ARGUMENT, Event, PARENT_PID_VARIABLE, Request, Work, receive, send, send_bytes,
};

/// Longest time that a child may spend at one stage.
const STAGE_TIMEOUT: Duration = Duration::from_secs(600);
/// How often a parent that waits checks whether it is to stop.
const SLICE: Duration = Duration::from_secs(1);
/// Most that one wait of a slice counts: if it took longer, this process was stopped (Ctrl-Z, SIGSTOP) or
/// slept with the machine, and the child perhaps as well.
const MOST_A_SLICE_COUNTS: Duration = Duration::from_secs(2);
/// Longest time that is spent on finding the node.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Most of what a child wrote to stderr that is kept.
const STDERR_TAIL_BYTES: usize = 4096;
/// What ended a child that is ended for it: the signal would say that memory ran out.
const GARBLED: &str = "an answer that cannot be read";

pub(super) fn not_started(reason: String) -> ModelError {
    ModelError::Process { reason }
}

/// Has a child do the work. A crash is an error that names the node, if that is quickly found.
pub(super) fn run_in_child(
    library: &Path,
    work: Work,
    model: NamedModel<'_>,
    stage: &dyn Fn(&str),
) -> Result<Answer, ModelError> {
    run_in_child_until(library, work, model, stage, &|| false)
}

/// The same, which ends the child once `is_stopped` says so.
pub(super) fn run_in_child_until(
    library: &Path,
    work: Work,
    model: NamedModel<'_>,
    stage: &dyn Fn(&str),
    is_stopped: &dyn Fn() -> bool,
) -> Result<Answer, ModelError> {
    let mut request = Request { library: library.to_owned(), work };
    match run_child(this_program()?, &request, model.onnx, STAGE_TIMEOUT, stage, is_stopped) {
        Err(ChildFailure::Crashed { how, stage, words }) => {
            request.work = Work::Load { nodes: 0 };
            let node = locate(&mut request, model.onnx, is_stopped)
                .map(|node| format!(", at {node}"))
                .unwrap_or_default();
            Err(ModelError::Crashed { model: model.name.to_owned(), how, stage, node, words })
        }
        Err(ChildFailure::Ended { by, stage }) => {
            Err(ModelError::Ended { model: model.name.to_owned(), by, stage })
        }
        Err(ChildFailure::TimedOut { stage, seconds }) => {
            Err(ModelError::Silent { model: model.name.to_owned(), stage, seconds })
        }
        Err(failure @ ChildFailure::Stopped) => Err(not_started(failure.to_string())),
        Err(ChildFailure::NotStarted(reason)) => Err(not_started(reason)),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(ModelError::Child(error)),
    }
}

/// The node at which the model as it came ends the process, as `node` (operator).
fn locate(request: &mut Request, model: &[u8], is_stopped: &dyn Fn() -> bool) -> Option<String> {
    let nodes = syncline_onnx::parse(model).ok()?.graph?.node;
    let until = Instant::now() + SEARCH_TIMEOUT;
    let count = smallest_crashing(nodes.len(), |count| {
        let left = until.checked_duration_since(Instant::now())?;
        request.work = Work::Load { nodes: count };
        match run_child(this_program().ok()?, request, model, left, &|_| {}, is_stopped) {
            Err(ChildFailure::Crashed { .. }) => Some(true),
            Ok(_) => Some(false),
            Err(_) => None,
        }
    })?;
    let node = nodes.get(count - 1)?;
    Some(format!("node `{}` ({})", node.label(), node.op_type))
}

/// How a child ended without an answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ChildFailure {
    #[error("it {how} at {stage}: {words}")]
    Crashed { how: String, stage: String, words: String },
    #[error("{by} ended it at {stage}")]
    Ended { by: String, stage: String },
    #[error("it said nothing for {seconds} s at {stage}")]
    TimedOut { stage: String, seconds: u64 },
    #[error("nobody wants it any more")]
    Stopped,
    #[error("{0}")]
    NotStarted(String),
}

/// This program, to be started again, even if its file has been replaced.
fn this_program() -> Result<Command, ModelError> {
    let program = match cfg!(target_os = "linux") {
        true => PathBuf::from("/proc/self/exe"),
        false => std::env::current_exe().map_err(|error| not_started(error.to_string()))?,
    };
    Ok(Command::new(program))
}

/// How long a child may still say nothing.
struct Patience {
    whole: Duration,
    left: Duration,
}

impl Patience {
    fn of(whole: Duration) -> Self {
        Self { whole, left: whole }
    }

    /// How long to wait for its next word before looking around.
    fn slice(&self) -> Duration {
        self.left.min(SLICE)
    }

    /// It said something.
    fn renew(&mut self) {
        self.left = self.whole;
    }

    /// It said nothing for a slice, which took so long. Whether none is left.
    fn is_over_after(&mut self, took: Duration) -> bool {
        self.left = self.left.saturating_sub(took.min(MOST_A_SLICE_COUNTS));
        self.left.is_zero()
    }
}

/// Starts a child and listens until its answer. It is ended if it says nothing for `silence`, and once
/// `is_stopped` says so.
fn run_child(
    mut program: Command,
    request: &Request,
    model: &[u8],
    silence: Duration,
    stage: &dyn Fn(&str),
    is_stopped: &dyn Fn() -> bool,
) -> Result<Result<Answer, super::ChildError>, ChildFailure> {
    let failed = |error: io::Error| ChildFailure::NotStarted(error.to_string());
    program.arg(CHILD_ARGUMENT).env(PARENT_PID_VARIABLE, std::process::id().to_string());
    // Ctrl-C goes to the whole group of a terminal: it is for this process, which ends its child.
    program.process_group(0);
    // What it leaves behind where it crashes goes with this. Where there is no room it says so itself.
    let folder = tempfile::tempdir();
    if let Ok(folder) = &folder {
        program.env("TMPDIR", folder.path());
    }
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = KillOnDrop(program.spawn().map_err(failed)?);
    let (stdin, stdout, stderr) = (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take());
    let (sender, events) = mpsc::channel();
    let (mut done, mut last, mut words) = (None, "start".to_owned(), String::new());
    let (mut heard, mut is_garbled) = (Ok(()), false);
    thread::scope(|scope| {
        // Where one is not given, stdin closes with what was to write it, and the child ends.
        let listening = threads::spawn_scoped(scope, "child-stderr", move || last_stderr_line(stderr))?;
        threads::spawn_scoped(scope, "child-stdout", move || {
            let Some(mut stdout) = stdout else { return };
            while let Some(event) = receive::<Event>(&mut stdout).transpose() {
                let is_last = event.is_err();
                if sender.send(event).is_err() || is_last {
                    return;
                }
            }
        })?;
        // A child that has ended reads no more; what became of it says more than a broken pipe.
        threads::spawn_scoped(scope, "child-stdin", move || {
            stdin.map(|mut stdin| send(&mut stdin, request).and_then(|()| send_bytes(&mut stdin, model)))
        })?;
        let mut patience = Patience::of(silence);
        loop {
            if is_stopped() {
                heard = Err(ChildFailure::Stopped);
                break;
            }
            let began = Instant::now();
            match events.recv_timeout(patience.slice()) {
                Ok(Ok(Event::Stage(next))) => {
                    patience.renew();
                    stage(&next);
                    last = next;
                }
                Ok(Ok(Event::Done(answer))) => {
                    done = Some(answer);
                    break;
                }
                Ok(Err(_)) => {
                    is_garbled = true;
                    break;
                }
                Err(RecvTimeoutError::Timeout) if !patience.is_over_after(began.elapsed()) => {}
                Err(RecvTimeoutError::Timeout) => {
                    heard = Err(ChildFailure::TimedOut { stage: last.clone(), seconds: silence.as_secs() });
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Its pipes close with it, and the threads that listen end. One that has ended by itself stays as it
        // ended; one that cannot be heard any more may live on.
        let _ = child.0.kill();
        words = listening.join().unwrap_or_default();
        Ok(())
    })
    .map_err(|none: NoThread| failed(none.into()))?;
    heard?;
    let status = child.0.wait().map_err(failed)?;
    done.ok_or_else(|| match status.signal() {
        _ if is_garbled => ChildFailure::Crashed { how: GARBLED.to_owned(), stage: last, words },
        Some(signal) if !OF_A_MODEL.contains(&signal) => {
            ChildFailure::Ended { by: describe_status(status), stage: last }
        }
        _ => ChildFailure::Crashed { how: describe_status(status), stage: last, words },
    })
}

/// The signals by which what a process computes ends it. Any other one somebody has sent: a person, a
/// supervisor, the kernel where memory runs out.
const OF_A_MODEL: [i32; 7] =
    [libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS];

/// A child that is ended and collected in any case.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The last line that says something.
fn last_stderr_line(stderr: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    let Some(mut stderr) = stderr else { return String::new() };
    let mut part = [0; 1024];
    while let Ok(count @ 1..) = stderr.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
        let surplus = bytes.len().saturating_sub(STDERR_TAIL_BYTES);
        bytes.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.map(|line| format!(": {line}")).unwrap_or_default()
}

fn describe_status(status: ExitStatus) -> String {
    const NAMES: [(i32, &str); 7] = [
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL, as when memory runs out"),
        (11, "SIGSEGV"),
        (15, "SIGTERM"),
    ];
    match status.signal() {
        Some(signal) => {
            let name =
                NAMES.iter().find(|(number, _)| *number == signal).map(|(_, name)| format!(" ({name})"));
            format!("signal {signal}{}", name.unwrap_or_default())
        }
        None => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(script: &str, silence: Duration) -> ChildFailure {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script);
        let request = Request { library: PathBuf::new(), work: Work::Load { nodes: 0 } };
        run_child(shell, &request, &[7; 1 << 20], silence, &|_| {}, &|| false).unwrap_err()
    }

    #[test]
    fn a_child_that_ends_without_an_answer_is_told_by_its_end_and_its_last_words() {
        let patience = Duration::from_secs(60);
        #[rustfmt::skip]
        let cases = [
            ("kill -SEGV $$",                       "signal 11 (SIGSEGV)", ""),
            ("echo 'what(): bad' >&2; kill -ABRT $$", "signal 6 (SIGABRT)",  ": what(): bad"),
            ("exit 101",                            "exit status: 101",    ""),
        ];
        for (script, how, words) in cases {
            let (how, words, stage) = (how.to_owned(), words.to_owned(), "start".to_owned());
            assert_eq!(ending(script, patience), ChildFailure::Crashed { how, stage, words }, "{script}");
        }
    }

    #[test]
    fn a_child_that_somebody_else_ended_says_nothing_of_its_model() {
        for (signal, by) in [
            ("TERM", "signal 15 (SIGTERM)"),
            // Those of a terminal may be ignored where tests run in the background.
            ("USR1", "signal 10"),
            ("KILL", "signal 9 (SIGKILL, as when memory runs out)"),
        ] {
            let (by, stage) = (by.to_owned(), "start".to_owned());
            let ended = ending(&format!("kill -{signal} $$"), Duration::from_secs(60));
            assert_eq!(ended, ChildFailure::Ended { by, stage }, "{signal}");
        }
    }

    #[test]
    fn a_child_is_in_a_process_group_of_its_own() {
        let leads = "read -r _ _ _ _ group _ < /proc/$$/stat; exit $((group == $$))";
        let ended = ending(leads, Duration::from_secs(60));
        assert!(matches!(&ended, ChildFailure::Crashed { how, .. } if how == "exit status: 1"), "{ended:?}");
    }

    #[test]
    fn what_a_child_that_crashes_leaves_among_temporary_files_is_removed() {
        let leaves = "mkdir \"$TMPDIR/left\"; echo \"$TMPDIR/left\" >&2; kill -ABRT $$";
        let ended = ending(leaves, Duration::from_secs(60));
        let ChildFailure::Crashed { words, .. } = &ended else { panic!("{ended:?}") };
        let left = words.trim_start_matches(": ");
        assert!(left.ends_with("/left") && !Path::new(left).exists(), "{left}");
    }

    #[test]
    fn a_child_that_says_nothing_is_ended() {
        let silent = ending("exec sleep 600", Duration::from_millis(50));
        assert_eq!(silent, ChildFailure::TimedOut { stage: "start".to_owned(), seconds: 0 });
        let missing = run_child(
            Command::new("/no/such/program"),
            &Request { library: PathBuf::new(), work: Work::Load { nodes: 0 } },
            &[],
            Duration::from_secs(1),
            &|_| {},
            &|| false,
        );
        assert!(matches!(missing, Err(ChildFailure::NotStarted(_))));
    }

    #[test]
    fn a_child_that_cannot_be_heard_any_more_is_ended() {
        let closed = ending("exec >&-; exec sleep 600", Duration::from_secs(600));
        assert!(matches!(closed, ChildFailure::Ended { .. }), "{closed:?}");
        let garbled = ending(r"printf '\1\0\0\0\0\0\0\0\377'; exec sleep 600", Duration::from_secs(600));
        let (stage, words) = ("start".to_owned(), String::new());
        assert_eq!(garbled, ChildFailure::Crashed { how: GARBLED.to_owned(), stage, words });
    }

    #[test]
    fn a_child_that_nobody_wants_any_more_is_ended() {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg("exec sleep 600");
        let request = Request { library: PathBuf::new(), work: Work::LoadWhole };
        let ended = run_child(shell, &request, &[], Duration::from_secs(600), &|_| {}, &|| true);
        assert_eq!(ended.unwrap_err(), ChildFailure::Stopped);
    }

    #[test]
    fn time_in_which_this_process_was_stopped_is_no_silence_of_the_child() {
        let [second, hour] = [1, 3600].map(Duration::from_secs);
        let mut patience = Patience::of(Duration::from_secs(4));
        assert_eq!(patience.slice(), second);
        assert_eq!([second, hour].map(|took| patience.is_over_after(took)), [false, false]);
        assert!(patience.is_over_after(second), "of the hour two seconds count");
        patience.renew();
        assert_eq!([hour, hour].map(|took| patience.is_over_after(took)), [false, true]);
        assert_eq!(Patience::of(Duration::from_millis(50)).slice(), Duration::from_millis(50));
    }
}
