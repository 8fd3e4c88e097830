//! A job that is written down when its shard stops, and goes on exactly where it stood when the shard starts again.
//!
//! ```text
//! "SLJOB" 0 0 version | head length u64 le | head (postcard) | values, first, second, round of each chunk | pinned
//! ```
//!
//! The head holds everything but numbers: order, books, lanes, and how many numbers each chunk has. The numbers are
//! little-endian f32 as they lie in memory, so that a large job is streamed and never held twice. Whoever keeps the
//! bytes sees to it that they are whole, see `server::saves`.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use syncline_engine::rpc::{BarrierOrder, ClockOrder};
use syncline_scheduler::{
    ids::{EngineEpoch, Generation, Incarnation, JobId},
    spec::{Layout, Optimizer},
};

use super::{
    JobShard,
    chunk::{Chunk, ChunkHead},
    clip::Norms,
    lane::Lane,
    ledger::{Ledger, Record},
    lock,
    place::ShardPlace,
    sealed::Sealed,
};

const MAGIC: [u8; 8] = *b"SLJOB\0\0\x01";
/// Longest head that is read; one of a million workers and parameters stays far below.
const MAX_HEAD_BYTES: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Head {
    job: JobId,
    generation: Generation,
    optimizer: Optimizer,
    clip_norm: Option<f32>,
    layout: Layout,
    index: u32,
    shards: Vec<String>,
    start: u64,
    end: u64,
    lanes: BTreeMap<Incarnation, Lane>,
    accumulated: bool,
    chunks: Vec<ChunkHead>,
    books: Books,
}

/// The ledger, without those who wait and without the pinned values.
#[derive(Serialize, Deserialize)]
struct Books {
    epoch: EngineEpoch,
    watermarks: BTreeMap<Incarnation, u64>,
    sealed: Sealed,
    clocks: Option<ClockOrder>,
    closed: u64,
    round_version: u64,
    pushes: u64,
    orders: BTreeMap<u64, BarrierOrder>,
    norms: Norms,
    pinned: Option<u64>,
    records: Vec<SavedRecord>,
}

#[derive(Serialize, Deserialize)]
struct SavedRecord {
    superstep: u64,
    ago_us: u64,
    pushes: u64,
}

impl JobShard {
    /// Writes everything down. Nobody may push to the job meanwhile.
    pub fn save(&self, out: &mut impl Write) -> io::Result<()> {
        let ledger = lock(&self.ledger);
        let head = Head {
            job: self.job.clone(),
            generation: self.generation,
            optimizer: self.optimizer,
            clip_norm: self.clip_norm,
            layout: self.layout().clone(),
            index: self.index,
            shards: self.shards(),
            start: self.range().start,
            end: self.range().end,
            lanes: self.lanes.iter().map(|lane| (*lane.key(), lock(&lane).clone())).collect(),
            accumulated: self.accumulated.load(Ordering::Acquire),
            chunks: self.chunks.iter().map(|chunk| lock(chunk).head()).collect(),
            books: Books::of(&ledger),
        };
        let head = postcard::to_stdvec(&head).map_err(io::Error::other)?;
        out.write_all(&MAGIC)?;
        out.write_all(&(head.len() as u64).to_le_bytes())?;
        out.write_all(&head)?;
        for chunk in &self.chunks {
            lock(chunk).write(out)?;
        }
        match &ledger.pinned {
            Some((_, values)) => out.write_all(bytemuck::cast_slice(values)),
            None => Ok(()),
        }
    }

    /// Which shard of how many this is.
    pub(crate) fn position(&self) -> ShardPlace {
        ShardPlace { index: self.index, count: self.shards().len() as u32 }
    }

    /// Reads what [`JobShard::save`] wrote. Bytes of another version, or that make no sense, are an error.
    pub fn restore(from: &mut impl Read) -> io::Result<Self> {
        let mut start = [0; 16];
        from.read_exact(&mut start)?;
        let (magic, length) = start.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(damaged("it is no saved job, or was saved by another release"));
        }
        let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
        if length > MAX_HEAD_BYTES {
            return Err(damaged("its head is too long"));
        }
        let mut head = Vec::new();
        if from.take(length).read_to_end(&mut head)? as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let head: Head = postcard::from_bytes(&head).map_err(|e| damaged(&e.to_string()))?;
        let elements: u64 = head.chunks.iter().map(ChunkHead::elements).sum();
        if head.end.checked_sub(head.start) != Some(elements) {
            return Err(damaged("its chunks do not make up its range"));
        }
        let chunks = head.chunks.iter().map(|chunk| Ok(Mutex::new(Chunk::read(chunk, from)?)));
        let chunks = chunks.collect::<io::Result<Vec<_>>>()?;
        let pinned = match head.books.pinned {
            Some(version) => Some((version, Arc::new(read_numbers(elements as usize, from)?))),
            None => None,
        };
        let mut ledger = head.books.ledger();
        ledger.pinned = pinned;
        let order = super::job::Order {
            job: head.job,
            generation: head.generation,
            optimizer: head.optimizer,
            clip_norm: head.clip_norm,
            layout: head.layout,
            index: head.index,
            shards: head.shards,
            range: syncline_scheduler::spec::ElementRange { start: head.start, end: head.end },
        };
        let shard = Self::new(order, chunks, ledger);
        shard.accumulated.store(head.accumulated, Ordering::Release);
        for (worker, lane) in head.lanes {
            shard.lanes.insert(worker, Arc::new(Mutex::new(lane)));
        }
        Ok(shard)
    }
}

impl Books {
    fn of(ledger: &Ledger) -> Self {
        let record = |r: &Record| SavedRecord {
            superstep: r.superstep,
            ago_us: r.at.elapsed().as_micros() as u64,
            pushes: r.pushes,
        };
        Self {
            epoch: ledger.epoch,
            watermarks: ledger.watermarks.clone(),
            sealed: ledger.sealed.clone(),
            clocks: ledger.clocks.order(),
            closed: ledger.closed,
            round_version: ledger.round_version,
            pushes: ledger.pushes,
            orders: ledger.orders.clone(),
            norms: ledger.norms.clone(),
            pinned: ledger.pinned.as_ref().map(|(version, _)| *version),
            records: ledger.records.iter().map(record).collect(),
        }
    }

    fn ledger(self) -> Ledger {
        let now = Instant::now();
        // The time between is not known: barriers look as old as they were at the stop.
        let record = |r: SavedRecord| Record {
            superstep: r.superstep,
            at: now.checked_sub(Duration::from_micros(r.ago_us)).unwrap_or(now),
            pushes: r.pushes,
        };
        let mut ledger = Ledger::new(self.epoch);
        ledger.watermarks = self.watermarks;
        ledger.sealed = self.sealed;
        ledger.closed = self.closed;
        ledger.round_version = self.round_version;
        ledger.pushes = self.pushes;
        ledger.orders = self.orders;
        ledger.norms = self.norms;
        ledger.records = self.records.into_iter().map(record).collect();
        if let Some(order) = self.clocks {
            ledger.take_clocks(order);
        }
        ledger
    }
}

/// Numbers as they lie in memory.
pub(super) fn read_numbers(count: usize, from: &mut impl Read) -> io::Result<Vec<f32>> {
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(count).map_err(io::Error::other)?;
    numbers.resize(count, 0.0f32);
    from.read_exact(bytemuck::cast_slice_mut(&mut numbers))?;
    Ok(numbers)
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
