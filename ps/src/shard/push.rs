//! Taking pushes in, chunk by chunk.

use std::sync::atomic::Ordering;

use syncline_engine::rpc::{SealAnswer, ShardFault};
use syncline_scheduler::{
    ids::{EngineEpoch, Incarnation},
    sync::UpdateMode,
};

use super::{JobShard, lock};

/// What travels in front of a gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
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
    pub mode: UpdateMode,
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

/// Where an incarnation's pushes stand on this shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Last push that is in completely.
    pub watermark: u64,
    /// First chunk of the push behind it that is not in; 0 if it has not begun.
    pub next_chunk: u32,
    /// Pushes of all incarnations that are in completely.
    pub pushes: u64,
}

/// A shard's answer to a push that is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Last push of this incarnation that is in completely.
    pub watermark: u64,
    /// Pushes of all incarnations that are in completely.
    pub pushes: u64,
    /// How far the worker's clock is ahead of the lowest; 0 as long as no roster of clocks has come.
    pub lead: u64,
}

impl JobShard {
    /// Where `worker` stands: the first question after a broken connection.
    pub fn place(&self, worker: Incarnation) -> Result<Place, ShardFault> {
        let lane = self.known_lane(worker);
        let lane = lock(&lane);
        let pushes = self.open_ledger()?.pushes;
        lane.check_seal(&self.job, worker)?;
        Ok(Place { watermark: lane.watermark(), next_chunk: lane.next_chunk(), pushes })
    }

    /// Judges a push before its bytes come.
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
        drop(self.open_ledger()?);
        let lane = self.lane(worker);
        let lane = lock(&lane);
        lane.check_seal(&self.job, worker)?;
        lane.admit(seq, header.covers, first_chunk)
    }

    /// Applies chunk `index` of push `seq`, unless it is in already. `pushed` has the chunk's length: gradients, and
    /// what the worker computed for buffers.
    pub fn apply(
        &self,
        worker: Incarnation,
        seq: u64,
        index: u32,
        header: &PushHeader,
        pushed: &[f32],
    ) -> Result<(), ShardFault> {
        let lane = self.lane(worker);
        let mut lane = lock(&lane);
        lane.check_seal(&self.job, worker)?;
        lane.take(seq, header.covers, index, || {
            let share = if self.holds_buffers(index) { self.share_of(worker)? } else { 1.0 };
            let mut chunk = lock(&self.chunks[index as usize]);
            chunk.take(&self.optimizer, header, share, pushed).map_err(|e| ShardFault::Io {
                what: format!("cannot hold the round of job {}", self.job),
                cause: e.to_string(),
            })?;
            if header.mode == UpdateMode::PerBarrier && !header.is_empty() {
                self.accumulated.store(true, Ordering::Release);
            }
            Ok(())
        })
    }

    /// What a push of `worker` counts in a buffer: one part of as many as there are workers pushing.
    fn share_of(&self, worker: Incarnation) -> Result<f32, ShardFault> {
        let ledger = self.open_ledger()?;
        let others = ledger.watermarks.keys().filter(|other| **other != worker);
        Ok(1.0 / (1 + others.filter(|other| !ledger.sealed.contains(**other)).count()) as f32)
    }

    /// Counts push `seq`, all of whose chunks are in (or which is empty), and closes the barrier that waited for it.
    pub fn complete(&self, worker: Incarnation, seq: u64, header: &PushHeader) -> Result<Tally, ShardFault> {
        let lane = self.lane(worker);
        let mut lane = lock(&lane);
        lane.check_seal(&self.job, worker)?;
        let mut ledger = self.open_ledger()?;
        let (from, next_chunk) = (lane.watermark(), lane.next_chunk());
        if lane.admit(seq, header.covers, next_chunk)? == Admission::Fresh {
            if !header.is_empty() && next_chunk != self.chunk_count() {
                let what = format!("push {seq} ended before chunk {next_chunk} of {}", self.chunk_count());
                return Err(ShardFault::Invalid { what });
            }
            lane.complete(seq);
            ledger.watermarks.insert(worker, seq);
            ledger.clocks.pushed(worker, from, seq);
            ledger.pushes += 1;
            self.close_barriers(&mut ledger);
            self.wake_at_clock(&mut ledger);
        }
        let lead = ledger.clocks.lead(worker, lane.watermark());
        Ok(Tally { watermark: lane.watermark(), pushes: ledger.pushes, lead })
    }

    /// How far a push that turned out to be a duplicate has been counted.
    pub fn tally(&self, worker: Incarnation) -> Result<Tally, ShardFault> {
        let ledger = self.open_ledger()?;
        let watermark = ledger.watermarks.get(&worker).copied().unwrap_or(0);
        let lead = ledger.clocks.lead(worker, watermark);
        Ok(Tally { watermark, pushes: ledger.pushes, lead })
    }

    /// Refuses everything of `worker` from now on. When this returns, no chunk of it is being applied.
    pub fn seal(&self, epoch: EngineEpoch, worker: Incarnation) -> Result<SealAnswer, ShardFault> {
        let lane = self.lane(worker);
        let mut lane = lock(&lane);
        let mut ledger = self.open_ledger()?;
        ledger.fence(epoch)?;
        let answer = lane.seal();
        let gone = ledger.seal(worker);
        ledger.clocks.strike(worker, answer.watermark);
        drop(ledger);
        for worker in gone {
            self.lanes.remove(&worker);
        }
        self.wake();
        Ok(answer)
    }
}
