//! A store to which a result is offered until it is taken: what a function may have worked for is not thrown
//! away because a shard is away for a while.

use std::{thread::sleep, time::Duration};

use syncline_ps::{PsError, client::CancelToken};
use syncline_rpc::OutageLogger;
use syncline_scheduler::tasks::{BlobValue, Progress};
use tokio::runtime::Handle;

use crate::functions::{ProgressCell, Salt, StopFlag, Urgency, ValueStore};

/// From one try to the next. Where a disk is full each may send much.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// What is nearly stored is, also where its attempt is told to stop.
const MOMENT: Duration = Duration::from_secs(1);
/// An attempt that is told to stop has its value counted if it is stored in the grace period of its job. A
/// shard that is slower than this is not waited for: a second more for so many bytes. Of one that takes
/// longer than that it is said that it is sent.
const BYTES_PER_SECOND: usize = 16 << 20;

/// Puts values until they are stored or the attempt is told to stop, as far as what prevents it may pass.
pub(super) struct PatientStore<'a> {
    pub store: &'a dyn ValueStore,
    pub stop: &'a StopFlag,
    /// Of the call, at which people look to learn why it has not ended.
    pub progress: &'a ProgressCell,
    /// Where it is noticed that a shard is too slow.
    pub runtime: &'a Handle,
}

impl PatientStore<'_> {
    /// Keeps a value.
    pub(super) fn put(&self, salt: Salt, value: &[u8]) -> Result<BlobValue, PsError> {
        let (mut outage, mut waits) = (OutageLogger::default(), false);
        loop {
            let error = match self.try_to_put(salt, value, waits) {
                Err(error) if error.may_pass() && !self.stop.is_asked() => error,
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
            waits = true;
            sleep(RETRY_DELAY);
        }
    }

    /// `waits`: people are told why it was not stored before, and that stays until it is.
    fn try_to_put(&self, salt: Salt, value: &[u8], waits: bool) -> Result<BlobValue, PsError> {
        let (cancel_token, runtime) = (CancelToken::default(), self.runtime.clone());
        let longer = Duration::from_secs((value.len() / BYTES_PER_SECOND) as u64);
        let canceled = cancel_token.clone();
        let cancel_later = move |urgency| {
            let canceled = canceled.clone();
            let limit = if urgency == Urgency::Soon { MOMENT + longer } else { MOMENT };
            runtime.spawn(async move {
                tokio::time::sleep(limit).await;
                canceled.cancel();
            });
        };
        let told = |shard: &str| {
            if value.len() >= BYTES_PER_SECOND && !waits {
                self.progress.set_text(&Progress::sending(value.len() as u64, shard));
            }
        };
        self.stop.interruptible(cancel_later, || self.store.put(salt, value, &cancel_token, &told))
    }
}
