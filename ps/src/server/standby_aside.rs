//! Jobs that were followed until the primary set them aside: this process keeps its copy on its own disk, for
//! an engine that asks for the job once the primary's machine is gone.

use std::{sync::Arc, time::SystemTime};

use syncline_rpc::ShardFault;
use syncline_scheduler::ids::RunId;

use super::{Shared, saves, standby_files};
use crate::shard::JobShard;

/// Writes a job down that is followed no more, unless it [goes on](give_up) meanwhile.
pub(super) fn keep(shared: &Shared, job: &JobShard) -> Result<(), ShardFault> {
    if job.is_over() {
        return Ok(());
    }
    // A barrier whose last push came from the primary may have to be closed here: nobody does it later.
    job.stop_following();
    let epoch = job.epoch();
    let Some(path) = shared.unclaimed.set_aside(&shared.saves, epoch, job)? else { return Ok(()) };
    let aside = saves::aside_job(job.run().clone(), epoch, &path, SystemTime::now());
    shared.jobs.add_aside(aside);
    if job.is_over() {
        shared.jobs.drop_aside(job.run());
    }
    Ok(())
}

/// The job goes on, or is deleted: what is kept of it here, or about to be, must not be read any more.
pub(super) fn give_up(shared: &Arc<Shared>, run: &RunId) -> Result<(), ShardFault> {
    standby_files::end_aside(shared, run);
    shared.unclaimed.claim(&shared.saves, run)?;
    shared.jobs.drop_aside(run);
    Ok(())
}
