//! How far one incarnation's pushes have come: the duplicate filter, the resumption point and the seal in one.

use syncline_engine::rpc::{SealAnswer, ShardFault};
use syncline_scheduler::ids::{Incarnation, JobId};

use super::push::Admission;

/// State of one incarnation in one job. Its mutex is held while a chunk is applied, so a seal never cuts into one.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Last push that is in completely.
    watermark: u64,
    /// First chunk of push `watermark + 1` that is not in.
    next_chunk: u32,
    sealed: bool,
}

impl Lane {
    pub(super) fn watermark(&self) -> u64 {
        self.watermark
    }

    pub(super) fn next_chunk(&self) -> u32 {
        self.next_chunk
    }

    pub(super) fn check_seal(&self, job: &JobId, worker: Incarnation) -> Result<(), ShardFault> {
        if self.sealed { Err(ShardFault::Sealed { job: job.clone(), worker }) } else { Ok(()) }
    }

    /// Whether push `seq`, sent from `first_chunk` on, may come in.
    pub(super) fn admit(&self, seq: u64, first_chunk: u32) -> Result<Admission, ShardFault> {
        if seq <= self.watermark {
            return Ok(Admission::Duplicate);
        }
        if seq != self.watermark + 1 {
            let what = format!("push {seq} after push {}: a push is missing between them", self.watermark);
            return Err(ShardFault::Invalid { what });
        }
        if first_chunk > self.next_chunk {
            let what = format!("push {seq} resumed at chunk {first_chunk}, expected {}", self.next_chunk);
            return Err(ShardFault::Invalid { what });
        }
        Ok(Admission::Fresh)
    }

    /// Runs `apply` if chunk `index` of push `seq` is the next one; a chunk that is in already is passed over.
    pub(super) fn take(&mut self, seq: u64, index: u32, apply: impl FnOnce()) -> Result<(), ShardFault> {
        if self.admit(seq, index)? == Admission::Fresh && index == self.next_chunk {
            apply();
            self.next_chunk += 1;
        }
        Ok(())
    }

    /// Moves the watermark to `seq`.
    pub(super) fn complete(&mut self, seq: u64) {
        self.watermark = seq;
        self.next_chunk = 0;
    }

    pub(super) fn seal(&mut self) -> SealAnswer {
        self.sealed = true;
        SealAnswer { watermark: self.watermark, partial: self.next_chunk > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_comes_in_once_and_in_order() {
        let mut lane = Lane::default();
        let mut applied = Vec::new();
        for index in [0, 0, 1, 0, 1, 2] {
            lane.take(1, index, || applied.push(index)).unwrap();
        }
        assert_eq!(applied, [0, 1, 2]);
        assert!(lane.take(1, 4, || unreachable!()).is_err(), "chunk 3 is missing");
        assert!(lane.take(2, 0, || unreachable!()).is_err(), "push 1 is not complete");
        lane.complete(1);
        lane.take(1, 3, || unreachable!()).unwrap();
        assert_eq!(lane.admit(2, 0), Ok(Admission::Fresh));
    }

    #[test]
    fn a_seal_answers_how_far_it_came() {
        let mut lane = Lane::default();
        assert_eq!(lane.seal(), SealAnswer { watermark: 0, partial: false });
        lane.complete(4);
        lane.take(5, 0, || ()).unwrap();
        assert_eq!(lane.seal(), SealAnswer { watermark: 4, partial: true });
    }
}
