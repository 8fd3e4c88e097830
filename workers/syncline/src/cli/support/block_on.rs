//! Async commands, from their beginning to their end.

use syncline_workers::process::StopSignal;

use crate::cli::{CliError, Failure};

/// Begins to listen for the end of a long-running command, see [`StopSignal::listen`].
pub fn listen_for_stop(with_parent: bool) -> Result<StopSignal, Failure> {
    Ok(StopSignal::listen(with_parent).map_err(|source| CliError::Runtime { source })?)
}

/// Runs an async command to its end. Work on blocking threads is not waited for.
pub fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_with(tokio::runtime::Builder::new_multi_thread(), command)
}

/// As [`block_on`], on the calling thread alone: for a process whose work is done elsewhere, and which should not wake
/// up one thread after another for each message.
pub fn block_on_one_thread<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    block_with(tokio::runtime::Builder::new_current_thread(), command)
}

fn block_with<T>(
    mut runtime: tokio::runtime::Builder,
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = runtime.enable_all().build().map_err(|source| CliError::Runtime { source })?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}
