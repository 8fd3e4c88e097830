//! The copy of a job with which a standby begins. It is made and sent piece by piece, while training goes on.
//!
//! ```text
//! head | chunk, its numbers | chunk, its numbers | … | rest | pinned values | pinned checkpoint
//! ```
//!
//! The head, which has everything but numbers, is taken while nothing changes, and the record of changes
//! begins there. Each chunk says which of the recorded changes it has already: the standby makes all of them
//! again in their order, but leaves those chunks alone that have the change. So it is the job as soon as it
//! has made every change that was recorded until the last piece. What is pinned is whole and never changes:
//! it comes as it is with the last piece, and is not made again.
//!
//! Neither side holds more than a piece, a chunk with its moments and its round.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use syncline_rpc::threads::lock;

use super::{
    CHUNK_ELEMENTS, JobShard,
    checkpoint::{CheckpointCopy, Checkpoints},
    chunk::{Chunk, ChunkHeader},
    framed::{Magic, damaged, read_head, read_numbers, write_head},
    saved::SavedJob,
    standby_record::Term,
};
use crate::free_memory;

const HEAD: Magic = *b"SLCPH\0\0\x01";
const CHUNK: Magic = *b"SLCPC\0\0\x01";
const REST: Magic = *b"SLCPR\0\0\x01";
const WHAT: &str = "copy of a job";

#[derive(Serialize, Deserialize)]
struct CopyHead {
    job: SavedJob,
    /// In a job with tables: chunks that are in the open round.
    touched: BTreeSet<u32>,
}

#[derive(Serialize, Deserialize)]
struct CopiedChunk {
    numbers: ChunkHeader,
    touched: BTreeMap<u32, u32>,
    /// The newest change that it has.
    through: u64,
}

#[derive(Serialize, Deserialize)]
struct CopyRest {
    /// The newest change that what follows has.
    through: u64,
    pinned: Option<u64>,
    newest_checkpoint: Option<u64>,
    pinned_checkpoint: Option<u64>,
    /// No further ones are pinned.
    ended_checkpoints: bool,
}

/// How far a standby is.
pub(super) struct CatchUp {
    /// Number of the change that is made again; [`SERVES`] where this is no standby.
    number: AtomicU64,
    /// The newest change that each chunk of the copy has.
    chunks: Vec<u64>,
    /// The newest change that what is pinned has.
    through: u64,
}

const SERVES: u64 = u64::MAX;

impl Default for CatchUp {
    fn default() -> Self {
        Self { number: AtomicU64::new(SERVES), chunks: Vec::new(), through: 0 }
    }
}

impl CatchUp {
    /// Whether this is a standby.
    pub(super) fn follows(&self) -> bool {
        self.number.load(Ordering::Relaxed) != SERVES
    }

    pub(super) fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Whether chunk `index` had the change in the copy already.
    pub(super) fn has_in_copy(&self, index: u32) -> bool {
        let through = self.chunks.get(index as usize);
        through.is_some_and(|through| self.number.load(Ordering::Relaxed) <= *through)
    }

    /// Whether the change was recorded while the copy was made.
    pub(super) fn is_on(&self) -> bool {
        self.is_on_at(self.number.load(Ordering::Relaxed))
    }

    fn is_on_at(&self, number: u64) -> bool {
        number <= self.through
    }
}

impl JobShard {
    /// Copies the job for the standby of this term, piece by piece; what changes from the first one on is
    /// recorded for it. No lock is held while a piece is sent. False: the copy is wanted no more, because
    /// the job would have had to wait for it, or because another standby follows.
    pub fn copy_for_standby<E: From<io::Error>>(
        &self,
        term: Term,
        mut send: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut pass = |piece: &mut Vec<u8>| {
            send(piece)?;
            let goes_on = self.standby_log.copied(term, piece.len());
            piece.clear();
            Ok::<_, E>(goes_on)
        };
        let Some(head) = self.standby_log.begin(term, || self.copy_head()) else { return Ok(false) };
        let mut piece = Vec::new();
        write_head(&mut piece, HEAD, &head)?;
        if !pass(&mut piece)? {
            return Ok(false);
        }
        for index in 0..self.chunk_count() {
            if !self.copy_chunk(term, index, &mut piece)? || !pass(&mut piece)? {
                return Ok(false);
            }
        }
        self.standby_log.begin_piece(term);
        let state = lock(&self.state);
        let Some(through) = self.standby_log.chunks_copied(term, self.chunk_count()) else {
            return Ok(false);
        };
        let Checkpoints { newest: newest_checkpoint, pinned: checkpoint, ended: ended_checkpoints, .. } =
            &state.checkpoints;
        let rest = CopyRest {
            through,
            pinned: state.pinned.as_ref().map(|(version, _)| *version),
            newest_checkpoint: *newest_checkpoint,
            pinned_checkpoint: checkpoint.as_ref().map(|(number, _)| *number),
            ended_checkpoints: *ended_checkpoints,
        };
        let (pinned, checkpoint) = (state.pinned.clone(), checkpoint.clone());
        drop(state);
        write_head(&mut piece, REST, &rest)?;
        for values in pinned.iter().flat_map(|(_, values)| values.chunks(CHUNK_ELEMENTS)) {
            piece.extend_from_slice(bytemuck::cast_slice(values));
            if !pass(&mut piece)? {
                return Ok(false);
            }
        }
        if let Some((_, copy)) = checkpoint {
            copy.write_head(&mut piece)?;
            for chunk in copy.chunks() {
                chunk.write(&mut piece)?;
                if !pass(&mut piece)? {
                    return Ok(false);
                }
            }
        }
        pass(&mut piece)
    }

    /// Nothing changes meanwhile.
    fn copy_head(&self) -> CopyHead {
        let filters = self.all_filters().into_iter().map(|(worker, filter)| (worker, lock(&filter).clone()));
        let filters = filters.collect();
        let job = self.saved_head(filters, &lock(&self.state));
        CopyHead { job, touched: self.rows.touched() }
    }

    /// Appends a chunk to `piece`. Who closes a barrier holds the state: all chunks are changed by it, or
    /// none.
    fn copy_chunk(&self, term: Term, index: u32, piece: &mut Vec<u8>) -> io::Result<bool> {
        self.standby_log.begin_piece(term);
        let _state = lock(&self.state);
        let chunk = lock(&self.chunks[index as usize]);
        let Some(through) = self.standby_log.chunks_copied(term, index + 1) else { return Ok(false) };
        let head = CopiedChunk { numbers: chunk.head(), touched: chunk.touched().clone(), through };
        write_head(piece, CHUNK, &head)?;
        chunk.write(piece)?;
        Ok(true)
    }

    /// Reads what [`JobShard::copy_for_standby`] sends. Bytes that make no sense are an error, and so is too
    /// little memory.
    pub fn receive_copy(from: &mut impl Read) -> io::Result<Self> {
        let CopyHead { job, touched } = read_head(from, HEAD, WHAT)?;
        job.check()?;
        free_memory::check_room(job.copied_bytes())?;
        let (mut chunks, mut copied) = (Vec::new(), Vec::new());
        for size in job.chunk_sizes() {
            let head: CopiedChunk = read_head(from, CHUNK, WHAT)?;
            if !head.numbers.is_of(size, job.optimizer()) {
                return Err(damaged("its chunks do not make up its range"));
            }
            let mut chunk = Chunk::read(&head.numbers, from)?;
            if !chunk.restore_touched(head.touched) {
                return Err(damaged("rows of a round that lie outside of it"));
            }
            chunks.push(Mutex::new(chunk));
            copied.push(head.through);
        }
        if touched.iter().any(|index| *index as usize >= chunks.len()) {
            return Err(damaged("a round of a chunk that is not there"));
        }
        let rest: CopyRest = read_head(from, REST, WHAT)?;
        let elements = job.range().len() as usize;
        let pinned = match rest.pinned {
            Some(version) => Some((version, Arc::new(read_numbers(elements, from)?))),
            None => None,
        };
        let checkpoint = match rest.pinned_checkpoint {
            Some(number) => Some((number, Arc::new(CheckpointCopy::read(&job, from)?))),
            None => None,
        };
        let mut shard = job.into_shard(chunks, pinned)?;
        lock(&shard.state).checkpoints = Checkpoints {
            newest: rest.newest_checkpoint,
            newest_pushes: None,
            pinned: checkpoint,
            ended: rest.ended_checkpoints,
        };
        touched.into_iter().for_each(|index| shard.rows.touch(index));
        shard.catch_up = CatchUp { number: AtomicU64::new(0), chunks: copied, through: rest.through };
        Ok(shard)
    }

    /// Whether the change of this number was recorded while the copy was made that this standby began with.
    pub fn is_catching_up(&self, number: u64) -> bool {
        self.catch_up.is_on_at(number)
    }

    /// This was a standby, and serves from now on. Closes the barrier of which the primary had not told all.
    pub fn stop_following(&self) {
        self.catch_up.set_number(SERVES);
        if let Ok(mut state) = self.lock_running() {
            self.close_barriers(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::ids::Generation;

    use super::*;
    use crate::{free_memory::testing::while_free, shard::saved::tests::FAULTS};

    #[test]
    fn a_job_that_there_is_no_memory_for_is_refused_before_its_numbers_are_read() {
        let (job, mut copy) = (JobShard::of_values(Generation(1), &[1.0, 2.0]), Vec::new());
        let send = |piece: &[u8]| {
            copy.extend_from_slice(piece);
            io::Result::Ok(())
        };
        assert!(job.copy_for_standby(7, send).unwrap());
        let receive = |free_bytes| while_free(free_bytes, || JobShard::receive_copy(&mut &copy[..]));
        let refused = receive(job.copied_bytes() - 1).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
        assert!(receive(job.copied_bytes()).is_ok());
    }

    #[test]
    fn a_copy_whose_parts_do_not_fit_each_other_is_refused() {
        let mut copy = Vec::new();
        let send = |piece: &[u8]| {
            copy.extend_from_slice(piece);
            io::Result::Ok(())
        };
        assert!(JobShard::of_values(Generation(1), &[1.0, 2.0]).copy_for_standby(7, send).unwrap());
        let is_refused = |spoil: &dyn Fn(&mut CopyHead)| {
            let mut rest = &copy[..];
            let mut head: CopyHead = read_head(&mut rest, HEAD, WHAT).unwrap();
            spoil(&mut head);
            let mut spoiled = Vec::new();
            write_head(&mut spoiled, HEAD, &head).unwrap();
            spoiled.extend_from_slice(rest);
            JobShard::receive_copy(&mut &spoiled[..]).is_err()
        };
        for (what, spoil) in FAULTS {
            assert!(is_refused(&|head| spoil(&mut head.job)), "{what}");
        }
        assert!(is_refused(&|head| _ = head.touched.insert(1)), "a round of a chunk that is not there");
        assert!(!is_refused(&|_| ()));
    }
}
