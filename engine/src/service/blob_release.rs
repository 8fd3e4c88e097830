//! Tells the parameter shards which values nobody needs any more.

use std::{mem, time::Duration};

use syncline_rpc::{ShardClient, ShardFault, threads::lock, within};
use syncline_scheduler::ids::{ContentDigest, ShardIndex};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::shard_control::{CALL_TIMEOUT, ShardControl};

/// How long released values wait at least, and others with them: longer than what Redis may still lose of the
/// newest commits, after which another engine gives out again what needed them.
const GATHER_TIME: Duration = Duration::from_secs(5);
/// Longest wait for a process that only follows.
const STANDBY_TIMEOUT: Duration = Duration::from_secs(1);
/// Most digests in one call: well below the limit of a frame.
const DIGESTS_PER_CALL: usize = 10_000;

/// Values that nobody needs any more, until the shards are told.
#[derive(Default)]
pub(super) struct Released {
    /// Since the last round.
    fresh: Vec<ContentDigest>,
    /// Since the one before: they have waited long enough at the next.
    waiting: Vec<ContentDigest>,
    /// Rounds go on: there is one sequence of them at a time.
    in_rounds: bool,
}

impl Released {
    /// Whether rounds are to begin: there was nothing.
    fn add(&mut self, digests: Vec<ContentDigest>) -> bool {
        let first = !self.in_rounds && !digests.is_empty();
        self.in_rounds |= first;
        self.fresh.extend(digests);
        first
    }

    /// A round: returns what has waited for a whole one.
    fn due(&mut self) -> Vec<ContentDigest> {
        mem::replace(&mut self.waiting, mem::take(&mut self.fresh))
    }

    /// Whether rounds are to end: nothing waits for another one.
    fn is_over(&mut self) -> bool {
        self.in_rounds = !(self.fresh.is_empty() && self.waiting.is_empty());
        !self.in_rounds
    }
}

impl ShardControl {
    /// Lets the shards remove blobs, soon. What a shard does not hear of stays until blobs are collected.
    pub(super) fn release_blobs(&self, digests: Vec<ContentDigest>) {
        if lock(&self.released).add(digests) {
            let control = self.clone();
            tokio::spawn(async move { control.release_in_rounds().await });
        }
    }

    async fn release_in_rounds(&self) {
        loop {
            sleep(GATHER_TIME).await;
            let due = lock(&self.released).due();
            for digests in due.chunks(DIGESTS_PER_CALL) {
                self.release_everywhere(digests).await;
            }
            if lock(&self.released).is_over() {
                return;
            }
        }
    }

    /// Nobody notes which shard keeps a blob: each is told.
    pub(super) async fn release_everywhere(&self, digests: &[ContentDigest]) {
        for shard in self.shards.indices() {
            let (epoch, digests, of_standby) = (self.epoch, digests.to_vec(), digests.to_vec());
            let call = self.shards.call_if_present(shard, |c| async move {
                c.release(within(CALL_TIMEOUT), epoch, digests).await
            });
            match call.await {
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(ShardFault::Fenced { highest, .. }))) => return self.deposed_by(highest),
                Some(Ok(Err(fault))) => warn!(%shard, %fault, "the shard keeps values that nobody needs"),
                Some(Err(error)) => warn!(%shard, %error, "the shard keeps values that nobody needs"),
                None => warn!(%shard, "the shard is not there and keeps values that nobody needs"),
            }
            self.release_on_standby(shard, of_standby).await;
        }
    }

    /// The process that follows a shard has its blobs, too. What it does not hear of stays until blobs are
    /// collected.
    async fn release_on_standby(&self, shard: ShardIndex, digests: Vec<ContentDigest>) {
        let epoch = self.epoch;
        let release = |c: ShardClient| async move { c.release(within(CALL_TIMEOUT), epoch, digests).await };
        // One that hangs holds up nobody.
        match timeout(STANDBY_TIMEOUT, self.shards.call_standby(shard, release)).await {
            Ok(None | Some(Ok(Ok(())))) => {}
            failed => debug!(%shard, ?failed, "the standby of the shard keeps values that nobody needs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::Released;
    use crate::service::fake_shard::control_with;
    use syncline_rpc::{ShardRequest, ShardResponse};
    use syncline_scheduler::ids::ContentDigest;

    const A: ContentDigest = ContentDigest::from_bytes([0xa; 32]);
    const B: ContentDigest = ContentDigest::from_bytes([0xb; 32]);
    const C: ContentDigest = ContentDigest::from_bytes([0xc; 32]);
    const D: ContentDigest = ContentDigest::from_bytes([0xd; 32]);

    #[test]
    fn what_is_released_between_two_rounds_waits_for_a_whole_one() {
        let mut released = Released::default();
        assert!(!released.add(vec![]), "there is nothing to do");
        assert!(released.add(vec![A]));
        assert_eq!(released.due(), []);
        assert!(!released.add(vec![B]), "rounds go on already");
        assert_eq!(released.due(), [A]);
        assert!(!released.is_over());
        assert_eq!(released.due(), [B]);
        assert!(!released.add(vec![C]), "the round is not over while shards are told");
        assert!(!released.is_over());
        for due in [vec![], vec![C], vec![]] {
            assert_eq!(released.due(), due);
        }
        assert!(released.is_over());
        assert!(released.add(vec![D]), "the next rounds begin");
    }

    #[tokio::test]
    async fn values_that_are_released_one_after_the_other_go_together() {
        let (requests, mut asked) = mpsc::unbounded_channel();
        let answer = move |request| match request {
            ShardRequest::Release { digests, .. } => {
                let _ = requests.send(digests);
                ShardResponse::Release(Ok(()))
            }
            other => panic!("{other:?}"),
        };
        let (control, _inbox) = control_with(0, answer).await;
        for digest in [A, B] {
            control.release_blobs(vec![digest]);
        }
        assert_eq!(asked.recv().await.unwrap(), [A, B]);
    }
}
