//! The `main` of a user's worker.

use std::{
    env,
    error::Error,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use syncline_rpc::threads;
use tokio::runtime::Builder;

use super::{
    WorkerBuilder,
    flags::{Flags, HELP, parse},
};
use crate::{
    blocking,
    client::FindError,
    error_chain, printable,
    process::{
        StopSignal, end_at_once, log_as_service, open_as_many_files_as_allowed, outlive_file_size_limit,
    },
    worker::{WorkerError, load_runtime, run},
};

/// Why the program ends with an error: an exit code as those of the command `syncline`, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
struct Failure {
    exit: u8,
    #[source]
    error: Box<dyn Error>,
    hint: String,
}

impl Failure {
    /// Says what went wrong; returns the exit code.
    fn tell(self) -> u8 {
        let chain: Vec<String> = error_chain(&*self.error).map(ToString::to_string).collect();
        say(&format!("error: {}\nhint: {}", chain.join("\n  caused by: "), self.hint));
        self.exit
    }
}

const USAGE: u8 = 2;
const UNREACHABLE: u8 = 3;
const INTERNAL: u8 = 5;

pub(super) fn main(builder: WorkerBuilder) -> ExitCode {
    let flags = parse(env::args_os().skip(1));
    let computes = matches!(&flags, Ok(Flags { help: false, device: Some(_), .. }));
    let ended = match flags {
        Ok(Flags { help: true, .. }) => print(&mut io::stdout().lock(), HELP),
        Ok(flags) => work(builder, flags),
        Err(wrong) => Err(usage(format!("[E500] {wrong}"), "--help lists the options")),
    };
    let exit = ended.map_or_else(Failure::tell, |()| 0);
    if computes {
        // Whatever it was told to end in, a thread may still be in ONNX Runtime.
        let _ = io::stdout().flush();
        end_at_once(exit.into());
    }
    exit.into()
}

/// Prints what was asked for. A reader that has gone away has read enough.
fn print(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure {
            exit: INTERNAL,
            error: format!("[E510] cannot write to stdout: {error}").into(),
            hint: "see where the output goes: the disk may be full".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Talks to whoever started the program, if anybody listens.
fn say(line: &str) {
    say_to(&mut io::stderr().lock(), line);
}

/// An engine may have written a part of it.
fn say_to(out: &mut impl Write, line: &str) {
    let _ = writeln!(out, "{}", printable(line));
}

fn usage(error: impl Into<Box<dyn Error>>, hint: &'static str) -> Failure {
    Failure { exit: USAGE, error: error.into(), hint: hint.to_owned() }
}

fn work(builder: WorkerBuilder, flags: Flags) -> Result<(), Failure> {
    outlive_file_size_limit();
    open_as_many_files_as_allowed();
    log_as_service();
    let mut options = builder
        .options(flags.cluster()?)
        .map_err(|twice| usage(twice, "give one of the functions another name"))?;
    options.transport = flags.transport().map_err(|wrong| usage(wrong, "--help lists the options"))?;
    options.name = flags.name.unwrap_or(options.name);
    options.slots = flags.slots.unwrap_or(options.slots);
    options.trainings = flags.trainings.unwrap_or(options.trainings);
    options.memory_bytes = flags.memory.map_or(options.memory_bytes, |memory| memory.0);
    options.exec.intra_threads = flags.threads.map_or(options.exec.intra_threads, |threads| threads as usize);
    options.exec.device_memory = flags.gpu_memory.map_or(options.exec.device_memory, |memory| Some(memory.0));
    options.exec.spin |= flags.spin;
    options.split_batch |= flags.split_batch;
    options.max_batch = flags.max_batch.or(options.max_batch);
    options.labels.extend(flags.labels);
    options.throttle.slowdown = flags.slowdown.unwrap_or(options.throttle.slowdown);
    options.throttle.step = flags.step_ms.map_or(options.throttle.step, Duration::from_millis);
    // One thread talks; the functions have theirs.
    let runtime = threads::runtime_with_blocking_thread(&mut Builder::new_current_thread(), 0)?;
    let ended = runtime.block_on(async {
        let mut stop = StopSignal::listen(flags.exit_with_parent)?;
        if let Some(device) = flags.device {
            let load = blocking(move || load_runtime(device, &say));
            let loaded = tokio::select! {
                loaded = load => loaded?,
                () = stop.requested() => return Ok(()),
            };
            options = options.with_runtime(loaded);
        }
        Ok(run(options, stop.flag()).await?)
    });
    // What hangs in a function is not waited for.
    runtime.shutdown_background();
    ended
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        let exit = match error {
            FindError::NoCluster { .. } => UNREACHABLE,
            FindError::Path { .. } => INTERNAL,
            _ => USAGE,
        };
        Self { exit, hint: error.hint().unwrap_or_default(), error: error.into() }
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        let exit = if matches!(error, WorkerError::Unreachable { .. }) { UNREACHABLE } else { INTERNAL };
        let hint = error.hint().unwrap_or_else(|| "see the log above".to_owned());
        Self { exit, error: error.into(), hint }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let error = format!("[E513] cannot start the runtime: {error}").into();
        Self { exit: INTERNAL, error, hint: "the machine may be out of threads or open files".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody who takes nothing.
    struct Gone(io::ErrorKind);

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_an_engine_answers_moves_no_cursor() {
        let mut out = Vec::new();
        say_to(&mut out, "error: \x1b]52;c;eA==\x07no\nhint: ask");
        assert_eq!(String::from_utf8(out).unwrap(), "error:  ]52;c;eA== no\nhint: ask\n");
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is_one() {
        assert!(print(&mut Vec::new(), HELP).is_ok());
        assert!(print(&mut Gone(io::ErrorKind::BrokenPipe), HELP).is_ok());
        let full = print(&mut Gone(io::ErrorKind::StorageFull), HELP).unwrap_err();
        assert_eq!(full.exit, INTERNAL);
        assert!(full.to_string().starts_with("[E510] "), "{full}");
    }
}
