//! A store that a result is given to until it is taken: what a function may have worked for is not thrown away because a shard
//! is away for a while.

use std::{thread::sleep, time::Duration};

use syncline_ps::PsError;
use syncline_rpc::{OutageLogger, ShardFault};
use syncline_scheduler::tasks::{BlobValue, Bytes, Progress};

use crate::functions::{ProgressCell, Salt, StopFlag, ValueStore};

/// From one try to the next. Where a disk is full each may send much.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Puts values until they are stored or the attempt is told to stop, as far as what prevents it may pass.
pub(super) struct PatientStore<'a> {
    pub store: &'a dyn ValueStore,
    pub stop: &'a StopFlag,
    /// Of the call, at which people look to learn why it has not ended.
    pub progress: &'a ProgressCell,
}

impl ValueStore for PatientStore<'_> {
    fn put(&self, salt: Salt, value: &[u8]) -> Result<BlobValue, PsError> {
        let mut outage = OutageLogger::default();
        loop {
            let error = match self.store.put(salt, value) {
                Err(error) if may_pass(&error) && !self.stop.is_asked() => error,
                done => {
                    outage.resolve("shards take values");
                    return done;
                }
            };
            outage.report(
                &error,
                "see the shard that it names: the value of a call waits here until it is taken",
            );
            self.progress.set_text(&Progress::unstored(error));
            sleep(RETRY_DELAY);
        }
    }

    fn get(&self, blob: &BlobValue) -> Result<Bytes, PsError> {
        self.store.get(blob)
    }
}

fn may_pass(error: &PsError) -> bool {
    matches!(error, PsError::Unreachable { .. } | PsError::Refused { fault: ShardFault::Io { .. } })
}
