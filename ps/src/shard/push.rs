//! Accepting pushes, chunk by chunk.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use syncline_rpc::{PushProgress, ShardFault, threads::lock};
use syncline_scheduler::{
    ids::{EngineEpoch, Incarnation},
    sync::PushMode,
};

use super::{JobShard, chunk::Chunk, standby_op::StandbyOp};

/// What travels in front of a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PushHeader {
    /// Rate of the step, where the push is one.
    pub learning_rate: f32,
    /// `loss_weight` of the batch: its share in a round's mean.
    pub weight: f32,
    /// Factor on the gradient: from clipping by the global norm, and the share of an uneven batch in a step.
    pub scale: f32,
    /// The gradient is not sent and counts with weight zero (`--on-nan skip`).
    pub skip: bool,
    /// Whether this is a step of its own or a part of the round that the next barrier applies.
    pub mode: PushMode,
    /// Iterations that this push stands for, its own number being the last of them.
    pub covers: u32,
}

impl PushHeader {
    /// Whether the push counts without changing a parameter.
    pub fn is_empty(&self) -> bool {
        self.skip || self.weight == 0.0
    }

    /// The first field that cannot be meant, if any.
    pub fn fault(&self) -> Option<String> {
        let fields = [("learning_rate", self.learning_rate), ("weight", self.weight), ("scale", self.scale)];
        if self.covers == 0 {
            return Some("a push that stands for no iteration".into());
        }
        let bad = fields.into_iter().find(|(_, x)| !x.is_finite() || *x < 0.0);
        bad.map(|(name, x)| format!("{name} = {x} in a push, expected a finite number from 0"))
    }
}

/// Whether a push needs to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Some of it is new.
    Fresh,
    /// All of it is in already; acknowledge and drop the bytes.
    Duplicate,
}

/// How far one incarnation's pushes have come on this shard: where it resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushCursor {
    /// Last push that is in completely.
    pub watermark: u64,
    /// First chunk of the push behind it that is not in; 0 if it has not begun.
    pub next_chunk: u32,
    /// Pushes of all incarnations that are in completely.
    pub pushes: u64,
}

/// A shard's answer to a push that is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushAck {
    /// Last push of this incarnation that is in completely.
    pub watermark: u64,
    /// Pushes of all incarnations that are in completely.
    pub pushes: u64,
    /// How far the worker's clock is ahead of the lowest; 0 as long as no roster of clocks has come.
    pub lead: u64,
}

/// Which part of which push comes in.
#[derive(Debug, Clone, Copy)]
pub struct PushedChunk<'a> {
    /// Who pushes.
    pub worker: Incarnation,
    /// The number of the push.
    pub seq: u64,
    /// The number of the chunk.
    pub index: u32,
    /// What came in front of the push.
    pub header: &'a PushHeader,
    /// Its weight in a buffer, where the primary has told it to a standby.
    pub share: Option<f32>,
}

impl JobShard {
    /// How far the pushes of `worker` have come: the first question after a broken connection.
    pub fn push_cursor(&self, worker: Incarnation) -> Result<PushCursor, ShardFault> {
        let filter = self.filter_or_new(worker);
        let filter = lock(&filter);
        let pushes = self.lock_running()?.pushes;
        filter.check_seal(self.job(), worker)?;
        Ok(PushCursor { watermark: filter.watermark(), next_chunk: filter.next_chunk(), pushes })
    }

    /// Decides about a push before its bytes are read.
    pub fn admit(
        &self,
        worker: Incarnation,
        seq: u64,
        first_chunk: u32,
        header: &PushHeader,
    ) -> Result<Admission, ShardFault> {
        if let Some(what) = header.fault() {
            return Err(ShardFault::Invalid { what });
        }
        drop(self.lock_running()?);
        // Nothing is in yet: it is kept with the first chunk that is.
        let filter = self.filter_or_new(worker);
        let filter = lock(&filter);
        filter.check_seal(self.job(), worker)?;
        filter.admit(seq, header.covers, first_chunk)
    }

    /// Applies a chunk, unless it is in already. `pushed` has its length: gradients, and what the worker
    /// computed for buffers.
    pub fn apply(&self, chunk: PushedChunk<'_>, pushed: &[f32]) -> Result<(), ShardFault> {
        self.apply_chunk(chunk, pushed, None)
    }

    /// As [`apply`](Self::apply), with numbers in memory that the worker could change meanwhile. Where a
    /// standby is told of them they are copied to `scratch` first: both apply what was read once.
    pub fn apply_shared(
        &self,
        chunk: PushedChunk<'_>,
        pushed: &[f32],
        scratch: &mut Vec<f32>,
    ) -> Result<(), ShardFault> {
        self.apply_chunk(chunk, pushed, Some(scratch))
    }

    fn apply_chunk(
        &self,
        PushedChunk { worker, seq, index, header, share }: PushedChunk<'_>,
        pushed: &[f32],
        scratch: Option<&mut Vec<f32>>,
    ) -> Result<(), ShardFault> {
        if self.tables.is_some() {
            let what = format!("a push of all rows to job {}, which takes those of a batch", self.job());
            return Err(ShardFault::Invalid { what });
        }
        let _changing = self.standby_log.enter();
        // A push may go on for long, and its caller may be gone.
        self.check_running()?;
        let filter = self.filter_to_push(worker, seq, header.covers, index)?;
        let mut filter = lock(&filter);
        filter.check_seal(self.job(), worker)?;
        filter.apply_chunk(seq, header.covers, index, || {
            let pushed = match scratch {
                Some(scratch) if self.standby_log.may_record() => {
                    scratch.clear();
                    scratch.extend_from_slice(pushed);
                    &scratch[..]
                }
                _ => pushed,
            };
            let changes = header.mode == PushMode::Apply && !header.is_empty();
            if changes {
                self.prepare_change();
            }
            let share = share.map_or_else(|| self.share_in_chunk(worker, index), Ok)?;
            let mut chunk = lock(&self.chunks[index as usize]);
            let is_in = self.catch_up.has_in_copy(index);
            let rule = self.rules.of_chunk(index as usize);
            let apply = |chunk: &mut Chunk, to| chunk.apply_push(rule, header, share, to, pushed);
            let applied = match changes {
                _ if is_in => Ok(()),
                true => self.change(index as usize, &mut chunk, apply),
                false => apply(&mut chunk, None),
            };
            applied.map_err(|e| ShardFault::Io {
                what: format!("cannot hold the round of job {}", self.job()),
                cause: e.to_string(),
            })?;
            if header.mode == PushMode::Accumulate && !header.is_empty() {
                self.accumulated.store(true, Ordering::Release);
            }
            let op = |elements| StandbyOp::Chunk { worker, seq, index, header: *header, elements, share };
            self.standby_log.record_pushed(index, pushed, op);
            Ok(())
        })
    }

    /// The weight of a push of `worker` in a buffer of chunk `index`: one over the number of workers that
    /// push.
    pub(super) fn share_in_chunk(&self, worker: Incarnation, index: u32) -> Result<f32, ShardFault> {
        if !self.holds_buffers(index) {
            return Ok(1.0);
        }
        let state = self.lock_running()?;
        let others = state.watermarks.keys().filter(|other| **other != worker);
        Ok(1.0 / (1 + others.filter(|other| !state.sealed.contains(**other)).count()) as f32)
    }

    /// Counts push `seq`, all of whose chunks are in (or which is empty), and closes the barrier that waited
    /// for it.
    pub fn complete(
        &self,
        worker: Incarnation,
        seq: u64,
        header: &PushHeader,
    ) -> Result<PushAck, ShardFault> {
        let _changing = self.standby_log.enter();
        let filter = self.filter_to_push(worker, seq, header.covers, 0)?;
        let mut filter = lock(&filter);
        filter.check_seal(self.job(), worker)?;
        let mut state = self.lock_running()?;
        let (from, next_chunk) = (filter.watermark(), filter.next_chunk());
        if filter.admit(seq, header.covers, next_chunk)? == Admission::Fresh {
            // Where single rows are pushed, some chunks get nothing.
            if !header.is_empty() && self.tables.is_none() && next_chunk != self.chunk_count() {
                let what = format!("push {seq} ended before chunk {next_chunk} of {}", self.chunk_count());
                return Err(ShardFault::Invalid { what });
            }
            filter.complete(seq);
            state.watermarks.insert(worker, seq);
            state.clocks.advance(worker, from, seq);
            state.pushes += 1;
            self.count_rows(&mut state, header, next_chunk > 0);
            self.standby_log.record(|| StandbyOp::Complete { worker, seq, header: *header }.entry());
            self.close_barriers(&mut state);
            self.notify_if_clock_reached(&mut state);
        }
        let lead = state.clocks.lead(worker, filter.watermark());
        Ok(PushAck { watermark: filter.watermark(), pushes: state.pushes, lead })
    }

    /// How far a push that turned out to be a duplicate has been counted.
    pub fn duplicate_ack(&self, worker: Incarnation) -> Result<PushAck, ShardFault> {
        let state = self.lock_running()?;
        let watermark = state.watermarks.get(&worker).copied().unwrap_or(0);
        let lead = state.clocks.lead(worker, watermark);
        Ok(PushAck { watermark, pushes: state.pushes, lead })
    }

    /// Refuses everything of `worker` from now on. When this returns, no chunk of it is being applied.
    pub fn seal(&self, epoch: EngineEpoch, worker: Incarnation) -> Result<PushProgress, ShardFault> {
        let _changing = self.standby_log.enter();
        let filter_of_worker = self.filter(worker);
        let mut filter = lock(&filter_of_worker);
        let mut state = self.lock_running()?;
        state.fence(epoch)?;
        self.standby_log.record(|| StandbyOp::Seal { epoch, worker }.entry());
        let answer = filter.seal();
        let gone = state.seal(worker);
        state.clocks.remove(worker, answer.watermark);
        drop((state, filter));
        for worker in gone {
            lock(&self.filters).remove(&worker);
        }
        self.notify();
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use syncline_scheduler::ids::Generation;

    use super::*;
    use crate::shard::{job::MAX_PUSHING_WORKERS, push_filter::PushFilter};

    const HEADER: PushHeader = PushHeader {
        learning_rate: 1.0,
        weight: 1.0,
        scale: 1.0,
        skip: false,
        mode: PushMode::Apply,
        covers: 1,
    };

    fn chunk(worker: Incarnation, seq: u64, index: u32) -> PushedChunk<'static> {
        PushedChunk { worker, seq, index, header: &HEADER, share: None }
    }

    fn shard() -> JobShard {
        JobShard::of_values(Generation(1), &[1.0, 2.0])
    }

    #[test]
    fn what_is_asked_and_refused_leaves_nothing_behind() {
        let shard = shard();
        assert_eq!(shard.admit(Incarnation(1), 1, 0, &HEADER), Ok(Admission::Fresh));
        assert!(shard.admit(Incarnation(2), 7, 0, &HEADER).is_err());
        assert!(shard.apply(chunk(Incarnation(3), 7, 0), &[0.0; 2]).is_err(), "pushes are missing");
        assert!(shard.apply(chunk(Incarnation(4), 1, 1), &[0.0; 2]).is_err(), "a chunk is missing");
        assert!(shard.complete(Incarnation(5), 7, &HEADER).is_err());
        assert!(lock(&shard.filters).is_empty());
        shard.apply(chunk(Incarnation(1), 1, 0), &[0.0; 2]).unwrap();
        assert_eq!(lock(&shard.filters).len(), 1);
    }

    #[test]
    fn more_workers_than_there_can_be_are_refused_until_some_are_sealed() {
        let shard = shard();
        for n in 1..=MAX_PUSHING_WORKERS as u64 {
            lock(&shard.filters).insert(Incarnation(n), Arc::new(Mutex::new(PushFilter::default())));
        }
        let newcomer = Incarnation(1 << 40);
        let push = |worker| shard.apply(chunk(worker, 1, 0), &[0.0; 2]);
        assert!(matches!(push(newcomer), Err(ShardFault::Invalid { .. })));
        push(Incarnation(9)).unwrap();
        shard.seal(EngineEpoch(1), Incarnation(7)).unwrap();
        push(newcomer).unwrap();
    }

    /// A thousand workers are let go at once where a shard is away, and each seal is asked again where its
    /// answer was lost.
    #[test]
    fn who_was_sealed_before_hundreds_of_others_is_answered_for_as_at_first() {
        let (shard, epoch) = (shard(), EngineEpoch(1));
        let workers = || (1..=1_000).map(Incarnation);
        for worker in workers() {
            shard.apply(chunk(worker, 1, 0), &[0.0; 2]).unwrap();
            shard.complete(worker, 1, &HEADER).unwrap();
        }
        for _ in 0..2 {
            for worker in workers() {
                let answer = shard.seal(epoch, worker).unwrap();
                assert_eq!((answer.watermark, answer.partial), (1, false), "{worker}");
            }
        }
        assert_eq!(lock(&shard.state).watermarks.len(), 256, "each push looks through these");
    }

    #[test]
    fn shared_numbers_are_read_once_where_a_standby_is_told_of_them_and_where_they_lie_otherwise() {
        let (shard, mut scratch) = (shard(), Vec::new());
        let mut push = |seq| {
            shard.apply_shared(chunk(Incarnation(1), seq, 0), &[0.25, 0.5], &mut scratch).unwrap();
            shard.complete(Incarnation(1), seq, &HEADER).unwrap();
            std::mem::take(&mut scratch)
        };
        assert!(push(1).is_empty());
        assert!(shard.copy_for_standby(7, |_| std::io::Result::Ok(())).unwrap());
        assert_eq!(push(2), [0.25, 0.5]);
        shard.lose_standby(7);
        shard.go_on_without_standby(7);
        assert!(push(3).is_empty());
        assert_eq!(shard.copy_values().unwrap(), [0.25, 0.5]);
    }
}
