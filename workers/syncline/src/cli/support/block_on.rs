//! Async commands, from their beginning to their end.

use std::{env, num::NonZero, thread};

use syncline_rpc::threads;
use syncline_workers::process::{INTERRUPTED, StopSignal, end_at_once};

use crate::cli::{CliError, Failure, hold_end};

/// Begins to listen for the end of a long-running command, see [`StopSignal::listen`].
pub fn listen_for_stop(with_parent: bool) -> Result<StopSignal, Failure> {
    Ok(StopSignal::listen(with_parent).map_err(|source| CliError::Runtime { source })?)
}

/// Runs an async command to its end. Work on blocking threads is not waited for.
pub fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    // As Tokio chooses by itself, which tells nobody how many it takes.
    let said: Option<NonZero<usize>> =
        env::var("TOKIO_WORKER_THREADS").ok().and_then(|number| number.parse().ok());
    let cores = said.map_or_else(|| thread::available_parallelism().map_or(1, NonZero::get), NonZero::get);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(cores);
    block_with(runtime, cores, command)
}

/// As [`block_on`], for a command that makes files: where Ctrl-C, SIGTERM or SIGHUP ends it, what is
/// unfinished is removed.
pub fn block_on_until_stopped<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_on_until_told_to_stop(command, || {})
}

/// The same, with something to say for the one who ends it; `last_word` is called when the command has been
/// given up.
pub fn block_on_until_told_to_stop<T>(
    command: impl Future<Output = Result<T, Failure>>,
    last_word: impl FnOnce(),
) -> Result<T, Failure> {
    block_on(async {
        let mut stop = listen_for_stop(false)?;
        // With the command goes all that it holds.
        let done = tokio::select! {
            done = command => Some(done),
            () = stop.requested() => None,
        };
        done.unwrap_or_else(|| {
            let _ending = hold_end();
            last_word();
            end_at_once(INTERRUPTED)
        })
    })
}

/// As [`block_on`], on the calling thread alone: for a process whose work is done elsewhere, and which should
/// not wake up one thread after another for each message.
pub fn block_on_one_thread<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_with(tokio::runtime::Builder::new_current_thread(), 0, command)
}

fn block_with<T>(
    mut runtime: tokio::runtime::Builder,
    own: usize,
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = threads::runtime_with_blocking_thread(&mut runtime, own);
    let runtime = runtime.map_err(|source| CliError::Runtime { source })?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}
