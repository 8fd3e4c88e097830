//! Waiting until the standby of a job has what an order changed.
//!
//! Orders that wait for a standby hold a thread for a moment at a time, however many they are: a standby that
//! is lost is waited for until the engine knows of it, and what it says of that, and all other orders, must
//! find a thread meanwhile. Who asked may have given up by then, and repeats the order, which is the same
//! then. What was given up is not waited for any longer.

use std::{sync::Arc, time::Duration};

use syncline_rpc::ShardFault;

use crate::shard::{JobShard, StandbyMark};

/// How long a thread waits for a standby before others have a turn, about: it looks twice a second.
const TURN: Duration = Duration::from_secs(1);
/// Pause between two turns.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// A job, and up to where its standby has to have it: what changes later is waited for by others.
pub(super) struct Unconfirmed {
    job: Arc<JobShard>,
    mark: StandbyMark,
}

impl Unconfirmed {
    pub(super) fn new(job: Arc<JobShard>) -> Self {
        Self { mark: job.standby_mark(), job }
    }
}

/// The same again if the standby does not have it yet.
pub(super) fn not_yet_confirmed(waiting: Option<Unconfirmed>) -> Result<Option<Unconfirmed>, ShardFault> {
    let Some(waiting) = waiting else { return Ok(None) };
    let is_confirmed = waiting.job.confirmed_within(waiting.mark, TURN)?;
    Ok(Some(waiting).filter(|_| !is_confirmed))
}
