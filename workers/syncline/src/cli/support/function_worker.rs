//! Workers that have functions of our own, and do not train.

use syncline_workers::worker::{WorkerBuilder, run};

use super::{CliError, ConnectionArgs, Failure, block_on_one_thread, listen_for_stop};
use crate::cli::log_as_service;

/// Works for a cluster until the process is told to stop.
pub(crate) fn run_functions(
    worker: WorkerBuilder,
    connection: &ConnectionArgs,
    exit_with_parent: bool,
) -> Result<(), Failure> {
    log_as_service();
    let options = worker.options(connection.find()?);
    let options = options.map_err(|twice| CliError::Bug { reason: twice.to_string() })?;
    block_on_one_thread(async move {
        let stop = listen_for_stop(exit_with_parent)?;
        Ok(run(options, stop.flag()).await?)
    })
}
