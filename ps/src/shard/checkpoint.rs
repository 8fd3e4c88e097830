//! A copy of a job's parameters with the optimizer's state, taken at a moment of rest, and a job that begins
//! with one.
//!
//! Unlike a job that is saved at a stop, it holds nothing of workers and barriers: those of the new
//! generation begin anew.

use std::{
    collections::TryReserveError,
    io::{self, Read, Write},
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
};

use serde::{Deserialize, Serialize};
use syncline_rpc::{OpenJob, Retention, ShardFault, threads::lock};
use syncline_scheduler::{
    ids::{EngineEpoch, JobId},
    spec::{ElementRange, Layout, Optimizer},
};

use super::{
    JobShard,
    chunk::{Chunk, ChunkHeader},
    framed::{Magic, damaged, read_head, write_head},
    job_state::JobState,
    saved::SavedJob,
    settings::chunk_sizes,
    standby_op::StandbyOp,
};

const MAGIC: Magic = *b"SLCKP\0\0\x02";

#[derive(Serialize, Deserialize)]
struct CheckpointHead {
    job: JobId,
    nonce: u32,
    number: u64,
    optimizer: Optimizer,
    layout: Layout,
    start: u64,
    end: u64,
    chunks: Vec<ChunkHeader>,
}

/// Everything that a checkpoint holds, in memory.
pub struct CheckpointCopy {
    job: JobId,
    nonce: u32,
    number: u64,
    optimizer: Optimizer,
    layout: Layout,
    range: ElementRange,
    chunks: Vec<Chunk>,
}

/// The copies of one job.
#[derive(Default)]
pub(super) struct Checkpoints {
    /// The newest number that was ever pinned, or given up: a late order for it, or an older one, changes
    /// nothing.
    pub newest: Option<u64>,
    /// Pushes that were in the newest one, if this process pinned it.
    pub newest_pushes: Option<u64>,
    pub pinned: Option<(u64, Arc<CheckpointCopy>)>,
    /// The job makes no further ones: an order to pin one is late.
    pub ended: bool,
}

impl JobShard {
    /// Copies everything as checkpoint `number`. The job must be at rest: an open round, or a push of which
    /// some is in, is a fault, and so is too little memory; nothing is kept. So is a number under which
    /// there is a copy of another moment: Redis has lost that it was given. Cost: the bytes of the
    /// parameters and the optimizer's state, in memory until they are written.
    pub fn pin_checkpoint(&self, epoch: EngineEpoch, number: u64) -> Result<(), ShardFault> {
        // What was pinned until a copy was whole came with it.
        if self.catch_up.is_on() {
            return Ok(());
        }
        let _changing = self.standby_log.enter();
        let Some(state) = self.lock_to_pin(epoch, number)? else { return Ok(()) };
        let pushes = state.pushes;
        drop(state);
        self.check_rest()?;
        let no_room = |cause: String| {
            let what = format!("cannot hold a copy of job {} for checkpoint {number}", self.job());
            ShardFault::Io { what, cause }
        };
        self.check_room(self.copied_bytes()).map_err(|e| no_room(e.to_string()))?;
        let state = self.lock_running()?;
        let busy = self.events.mark_busy();
        self.settle_steps();
        let chunks = self.map_chunks(|_, chunk| lock(chunk).copy());
        // In this order: the sign of who locks the state next for long would be taken away with this one.
        drop(busy);
        drop(state);
        let chunks = chunks.into_iter().collect::<Result<_, _>>();
        let chunks = chunks.map_err(|e: TryReserveError| no_room(e.to_string()))?;
        // What began to come in meanwhile may be in some chunks of the copy.
        self.check_rest()?;
        let Some(mut state) = self.lock_to_pin(epoch, number)? else { return Ok(()) };
        if state.pushes != pushes {
            return Err(self.is_not_at_rest());
        }
        let copy = CheckpointCopy {
            job: self.job().clone(),
            nonce: self.run.generation.nonce(),
            number,
            optimizer: self.optimizer,
            layout: self.layout().clone(),
            range: self.range(),
            chunks,
        };
        self.standby_log.record(|| StandbyOp::PinCheckpoint { epoch, number }.entry());
        let pinned = Some((number, Arc::new(copy)));
        state.checkpoints =
            Checkpoints { newest: Some(number), newest_pushes: Some(pushes), pinned, ended: false };
        Ok(())
    }

    /// Locks the state to pin `number`; `None` if that was done before, or it was given up, or there are to
    /// be no further ones.
    fn lock_to_pin(
        &self,
        epoch: EngineEpoch,
        number: u64,
    ) -> Result<Option<MutexGuard<'_, JobState>>, ShardFault> {
        let mut state = self.lock_running()?;
        state.fence(epoch)?;
        let Checkpoints { newest, newest_pushes, ended, .. } = state.checkpoints;
        if ended {
            return Ok(None);
        }
        let Some(newest) = newest.filter(|newest| number <= *newest) else { return Ok(Some(state)) };
        match newest_pushes {
            Some(pushes) if number < newest || pushes != state.pushes => {
                let cause = format!(
                    "this shard made number {newest} at another moment, which Redis has lost: the next number is free"
                );
                Err(ShardFault::NoCheckpoint { job: self.job().clone(), number, cause })
            }
            _ => Ok(None),
        }
    }

    /// Takes the locks of filters: the caller must not hold that of the state.
    fn check_rest(&self) -> Result<(), ShardFault> {
        let pushing = self.all_filters().iter().any(|(_, filter)| lock(filter).is_receiving());
        if pushing || self.accumulated.load(Ordering::Acquire) {
            return Err(self.is_not_at_rest());
        }
        Ok(())
    }

    fn is_not_at_rest(&self) -> ShardFault {
        ShardFault::Invalid { what: format!("job {} is not at rest, which a checkpoint needs", self.job()) }
    }

    /// The copy that was pinned as checkpoint `number`, if it is still to be written.
    pub fn pinned_checkpoint(&self, number: u64) -> Option<Arc<CheckpointCopy>> {
        let state = lock(&self.state);
        let pinned = state.checkpoints.pinned.as_ref().filter(|(pinned, _)| *pinned == number);
        pinned.map(|(_, copy)| copy.clone())
    }

    /// Nothing that is pinned, or ordered late, is to be written any more.
    pub fn end_checkpoints(&self) {
        lock(&self.state).checkpoints = Checkpoints { ended: true, ..Checkpoints::default() };
    }

    /// Whether the job makes no further ones: an order to pin one changes nothing.
    pub fn has_ended_checkpoints(&self) -> bool {
        lock(&self.state).checkpoints.ended
    }

    /// Checkpoint `number` is on disk, or will not be: its copy may go.
    pub fn drop_checkpoint(&self, number: u64) {
        lock(&self.state).checkpoints.pinned.take_if(|(pinned, _)| *pinned == number);
    }

    /// The copy of a checkpoint that is given up may go, and an order to pin one that comes late changes
    /// nothing. A standby may yet have to pin those that a job keeps which makes further ones: it hears of
    /// them by another way.
    pub fn give_checkpoints_up(&self, retention: &Retention) {
        let checkpoints = &mut lock(&self.state).checkpoints;
        checkpoints.pinned.take_if(|(pinned, _)| retention.gives_up(*pinned));
        match retention {
            Retention::Last { .. } => checkpoints.ended = true,
            Retention::Thin { through, .. } => {
                let given_up = (0..=*through).rev().find(|number| retention.gives_up(*number));
                if given_up > checkpoints.newest {
                    (checkpoints.newest, checkpoints.newest_pushes) = (given_up, None);
                }
            }
        }
    }

    /// Holds this shard's part of what [`CheckpointCopy::write`] wrote. Bytes that do not belong to the order
    /// are an error.
    pub fn read_checkpoint(
        order: &OpenJob,
        range: ElementRange,
        epoch: EngineEpoch,
        number: u64,
        from: &mut impl Read,
    ) -> io::Result<Self> {
        let head: CheckpointHead = read_head(from, MAGIC, "checkpoint")?;
        if (&head.job, head.nonce, head.number) != (&order.run.job, order.run.generation.nonce(), number) {
            let what =
                format!("it is checkpoint {} of job {}, or of another of that name", head.number, head.job);
            return Err(damaged(&what));
        }
        if (head.optimizer, &head.layout) != (order.optimizer, &order.layout) {
            return Err(damaged("its model or its optimizer is another"));
        }
        if (head.start, head.end) != (range.start, range.end) {
            return Err(damaged(&head.writer_of_other_part(order)));
        }
        check_chunks(&head.chunks, &head.layout, range, &head.optimizer)?;
        let chunks = head.chunks.iter().map(|chunk| Ok(Mutex::new(Chunk::read(chunk, from)?)));
        let chunks = chunks.collect::<io::Result<Vec<_>>>()?;
        Ok(Self::opened(order, range, chunks, JobState::new(epoch)))
    }
}

impl CheckpointHead {
    /// Why a shard that holds another part of the parameters cannot use it, in words.
    fn writer_of_other_part(&self, order: &OpenJob) -> String {
        let (count, here) = (order.shards.len() as u32, order.shard.0);
        let elements = self.layout.elements().unwrap_or(0);
        let wrote = |index: &u32| {
            let part = ElementRange::of_shard(elements, *index, count);
            (part.start, part.end) == (self.start, self.end)
        };
        match (0..count).find(wrote) {
            Some(index) => format!(
                "shard {index}/{count} wrote it, and this is shard {here}/{count}: give each shard the state directory back that it had"
            ),
            None => {
                "its part of the parameters is another: it was written by another number of shards".to_owned()
            }
        }
    }
}

/// Checks that these chunks are those of such a job: what is done with their numbers relies on their sizes.
pub(super) fn check_chunks(
    chunks: &[ChunkHeader],
    layout: &Layout,
    range: ElementRange,
    optimizer: &Optimizer,
) -> io::Result<()> {
    let mut sizes = chunk_sizes(layout, range);
    let fit = chunks.iter().all(|chunk| sizes.next().is_some_and(|size| chunk.is_of(size, optimizer)));
    match fit && sizes.next().is_none() {
        true => Ok(()),
        false => Err(damaged("its chunks do not make up its range")),
    }
}

/// What one shard has written of a checkpoint, read by somebody who is no shard.
pub(crate) struct CheckpointPart<R> {
    head: CheckpointHead,
    chunks: std::vec::IntoIter<ChunkHeader>,
    numbers: R,
}

impl<R: Read> CheckpointPart<R> {
    /// Reads the head of what [`CheckpointCopy::write`] wrote, which has to make sense.
    pub(crate) fn read(mut from: R) -> io::Result<Self> {
        let mut head: CheckpointHead = read_head(&mut from, MAGIC, "checkpoint")?;
        let CheckpointHead { start, end, .. } = head;
        if start > end || head.layout.elements().is_none_or(|elements| elements < end) {
            return Err(damaged("it is no part of its model"));
        }
        check_chunks(&head.chunks, &head.layout, ElementRange { start, end }, &head.optimizer)?;
        let chunks = std::mem::take(&mut head.chunks).into_iter();
        Ok(Self { head, chunks, numbers: from })
    }

    pub(crate) fn job(&self) -> &JobId {
        &self.head.job
    }

    pub(crate) fn nonce(&self) -> u32 {
        self.head.nonce
    }

    pub(crate) fn number(&self) -> u64 {
        self.head.number
    }

    pub(crate) fn optimizer(&self) -> Optimizer {
        self.head.optimizer
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.head.layout
    }

    /// Where its parameters lie in the layout.
    pub(crate) fn range(&self) -> ElementRange {
        ElementRange { start: self.head.start, end: self.head.end }
    }

    /// The next slice of the parameters.
    pub(crate) fn next_chunk(&mut self) -> io::Result<Option<Chunk>> {
        self.chunks.next().map(|head| Chunk::read(&head, &mut self.numbers)).transpose()
    }
}

impl CheckpointCopy {
    /// Writes it: a head, then values, first and second moments of each chunk.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.write_head(out)?;
        self.chunks.iter().try_for_each(|chunk| chunk.write(out))
    }

    /// What stands in front of its numbers.
    pub(super) fn write_head(&self, out: &mut impl Write) -> io::Result<()> {
        let head = CheckpointHead {
            job: self.job.clone(),
            nonce: self.nonce,
            number: self.number,
            optimizer: self.optimizer,
            layout: self.layout.clone(),
            start: self.range.start,
            end: self.range.end,
            chunks: self.chunks.iter().map(Chunk::head).collect(),
        };
        write_head(out, MAGIC, &head)
    }

    pub(super) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Reads what [`CheckpointCopy::write`] wrote of this job.
    pub(super) fn read(of: &SavedJob, from: &mut impl Read) -> io::Result<Self> {
        let head: CheckpointHead = read_head(from, MAGIC, "checkpoint")?;
        let range = ElementRange { start: head.start, end: head.end };
        if !of.is_of(&head.job, &head.layout, &head.optimizer, range) {
            return Err(damaged("its checkpoint is one of another job"));
        }
        check_chunks(&head.chunks, &head.layout, range, &head.optimizer)?;
        let chunks = head.chunks.iter().map(|chunk| Chunk::read(chunk, from));
        let chunks = chunks.collect::<io::Result<_>>()?;
        let CheckpointHead { job, nonce, number, optimizer, layout, .. } = head;
        Ok(Self { job, nonce, number, optimizer, layout, range, chunks })
    }
}
