//! Saving a job when its shard stops, and restoring it exactly when the shard starts again.
//!
//! ```text
//! "SLJOB" 0 0 version | head length u64 le | head (postcard) | values, first, second, round of each chunk | pinned
//! ```
//!
//! The head holds everything but numbers: order, state, filters, and how many numbers each chunk has. The
//! numbers are little-endian f32 as they lie in memory, so that a large job is streamed and never held twice.
//! The file protects the bytes by a digest, see `server::saves`.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use syncline_rpc::{BarrierOrder, ClockRoster, ShardPosition, threads::lock};
use syncline_scheduler::{
    ids::{EngineEpoch, Incarnation, JobId, RunId},
    spec::{ElementRange, Layout, Optimizer},
};

use super::{
    JobShard,
    checkpoint::check_chunks,
    chunk::{Chunk, ChunkHeader},
    clip::RoundNorms,
    framed::{Magic, damaged, read_head, read_numbers, write_head},
    job_state::{ClosedRecord, JobState, PinnedValues},
    push_filter::PushFilter,
    sealed::SealedSet,
    settings::{JobSettings, check_settings, chunk_sizes, part_bytes},
};

const MAGIC: Magic = *b"SLJOB\0\0\x02";

#[derive(Serialize, Deserialize)]
pub(super) struct SavedJob {
    run: RunId,
    optimizer: Optimizer,
    clip_norm: Option<f32>,
    layout: Layout,
    index: u32,
    shards: Vec<String>,
    start: u64,
    end: u64,
    filters: BTreeMap<Incarnation, PushFilter>,
    accumulated: bool,
    chunks: Vec<ChunkHeader>,
    /// In a job with tables: what of the open round was pushed, as lengths by first element, by chunk.
    touched: BTreeMap<u32, BTreeMap<u32, u32>>,
    /// The same: steps of the optimizer, whichever rows took part.
    row_steps: u64,
    state: SavedState,
}

/// The state, without those who wait and without the pinned values.
#[derive(Serialize, Deserialize)]
struct SavedState {
    epoch: EngineEpoch,
    watermarks: BTreeMap<Incarnation, u64>,
    sealed: SealedSet,
    clocks: Option<ClockRoster>,
    closed: u64,
    round_version: u64,
    pushes: u64,
    round_weight: f64,
    orders: BTreeMap<u64, BarrierOrder>,
    norms: RoundNorms,
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
    /// Writes the whole job. Nobody may push to it meanwhile.
    pub fn save(&self, out: &mut impl Write) -> io::Result<()> {
        let filters = self.all_filters();
        let filters: Vec<_> = filters.iter().map(|(worker, filter)| (*worker, lock(filter))).collect();
        let state = lock(&self.state);
        self.settle_steps();
        let copied = filters.iter().map(|(worker, filter)| (*worker, PushFilter::clone(filter)));
        let head = SavedJob {
            chunks: self.chunks.iter().map(|chunk| lock(chunk).head()).collect(),
            touched: self.touched(),
            ..self.saved_head(copied.collect(), &state)
        };
        write_head(out, MAGIC, &head)?;
        for chunk in &self.chunks {
            lock(chunk).write(out)?;
        }
        match &state.pinned {
            Some((_, values)) => out.write_all(bytemuck::cast_slice(values)),
            None => Ok(()),
        }
    }

    /// Everything of a saved job but its chunks.
    pub(super) fn saved_head(
        &self,
        filters: BTreeMap<Incarnation, PushFilter>,
        state: &JobState,
    ) -> SavedJob {
        SavedJob {
            run: self.run.clone(),
            optimizer: self.optimizer,
            clip_norm: self.clip_norm,
            layout: self.layout().clone(),
            index: self.index,
            shards: self.shards(),
            start: self.range().start,
            end: self.range().end,
            filters,
            accumulated: self.accumulated.load(Ordering::Acquire),
            chunks: Vec::new(),
            touched: BTreeMap::new(),
            row_steps: self.rows.steps(),
            state: SavedState::of(state),
        }
    }

    /// Which shard of how many this is.
    pub(crate) fn position(&self) -> ShardPosition {
        ShardPosition { index: self.index, count: self.shards().len() as u32 }
    }

    /// Reads of what [`JobShard::save`] wrote which run it is, as of which epoch, and of which shard.
    pub(crate) fn identify(from: &mut impl Read) -> io::Result<(RunId, EngineEpoch, ShardPosition)> {
        let head: SavedJob = read_head(from, MAGIC, "saved job")?;
        head.check()?;
        let position = ShardPosition { index: head.index, count: head.shards.len() as u32 };
        Ok((head.run, head.state.epoch, position))
    }

    /// Reads what [`JobShard::save`] wrote. Bytes of another version, or that make no sense, are an error.
    pub fn restore(from: &mut impl Read) -> io::Result<Self> {
        let head: SavedJob = read_head(from, MAGIC, "saved job")?;
        head.check()?;
        check_chunks(&head.chunks, &head.layout, head.range(), &head.optimizer)?;
        let chunks = head.chunks.iter().map(|chunk| Ok(Mutex::new(Chunk::read(chunk, from)?)));
        let chunks = chunks.collect::<io::Result<Vec<_>>>()?;
        let pinned = match head.state.pinned {
            Some(version) => Some((version, Arc::new(read_numbers(head.range().len() as usize, from)?))),
            None => None,
        };
        head.into_shard(chunks, pinned)
    }
}

impl SavedJob {
    /// The part of the flat array that it holds.
    pub(super) fn range(&self) -> ElementRange {
        ElementRange { start: self.start, end: self.end }
    }

    /// Checks what it says of its parameters, before anything is made of them.
    pub(super) fn check(&self) -> io::Result<()> {
        let position = (self.index, self.shards.len());
        let elements = check_settings(&self.layout, &self.optimizer, self.clip_norm, position);
        let elements = elements.map_err(|fault| damaged(&fault))?;
        match self.start <= self.end && self.end <= elements {
            true => Ok(()),
            false => Err(damaged("a range that is none of its parameters")),
        }
    }

    /// Its chunks: elements of each, and how many of them the optimizer moves.
    pub(super) fn chunk_sizes(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        chunk_sizes(&self.layout, self.range())
    }

    /// Bytes of its parameters with what the optimizer keeps.
    pub(super) fn copied_bytes(&self) -> u64 {
        part_bytes(&self.layout, self.range(), &self.optimizer)
    }

    pub(super) fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// Whether this is of the same job, and about the same parameters.
    pub(super) fn is_of(
        &self,
        job: &JobId,
        layout: &Layout,
        optimizer: &Optimizer,
        range: ElementRange,
    ) -> bool {
        (&self.run.job, &self.layout, &self.optimizer, self.range()) == (job, layout, optimizer, range)
    }

    /// The job with these chunks, which make up its range, and of which all was checked.
    pub(super) fn into_shard(
        self,
        chunks: Vec<Mutex<Chunk>>,
        pinned: Option<PinnedValues>,
    ) -> io::Result<JobShard> {
        let range = self.range();
        let head = self;
        let mut state = head.state.into_state();
        state.pinned = pinned;
        let settings = JobSettings {
            run: head.run,
            optimizer: head.optimizer,
            clip_norm: head.clip_norm,
            layout: head.layout,
            index: head.index,
            shards: head.shards,
            range,
        };
        let shard = JobShard::new(settings, chunks, state);
        shard.restore_touched(head.touched)?;
        shard.rows.set_steps(head.row_steps);
        shard.accumulated.store(head.accumulated, Ordering::Release);
        for (worker, filter) in head.filters {
            lock(&shard.filters).insert(worker, Arc::new(Mutex::new(filter)));
        }
        Ok(shard)
    }
}

impl JobShard {
    /// What of the open round was pushed, by chunk.
    fn touched(&self) -> BTreeMap<u32, BTreeMap<u32, u32>> {
        let touched = (0..).zip(&self.chunks).map(|(index, chunk)| (index, lock(chunk).touched().clone()));
        touched.filter(|(_, touched)| !touched.is_empty()).collect()
    }

    fn restore_touched(&self, touched: BTreeMap<u32, BTreeMap<u32, u32>>) -> io::Result<()> {
        for (index, touched) in touched {
            let chunk = self.chunks.get(index as usize);
            if !chunk.is_some_and(|chunk| lock(chunk).restore_touched(touched)) {
                return Err(damaged("rows of a round that lie outside of it"));
            }
            self.rows.touch(index);
        }
        Ok(())
    }
}

impl SavedState {
    fn of(state: &JobState) -> Self {
        let record = |r: &ClosedRecord| SavedRecord {
            superstep: r.superstep,
            ago_us: r.at.elapsed().as_micros() as u64,
            pushes: r.pushes,
        };
        Self {
            epoch: state.epoch,
            watermarks: state.watermarks.clone(),
            sealed: state.sealed.clone(),
            clocks: state.clocks.order(),
            closed: state.closed,
            round_version: state.round_version,
            pushes: state.pushes,
            round_weight: state.round_weight,
            orders: state.orders.clone(),
            norms: state.norms.clone(),
            pinned: state.pinned.as_ref().map(|(version, _)| *version),
            records: state.records.iter().map(record).collect(),
        }
    }

    fn into_state(self) -> JobState {
        let now = Instant::now();
        // The time between is not known: barriers look as old as they were at the stop.
        let record = |r: SavedRecord| ClosedRecord {
            superstep: r.superstep,
            at: now.checked_sub(Duration::from_micros(r.ago_us)).unwrap_or(now),
            pushes: r.pushes,
        };
        let mut state = JobState::new(self.epoch);
        state.watermarks = self.watermarks;
        state.sealed = self.sealed;
        state.closed = self.closed;
        state.round_version = self.round_version;
        state.pushes = self.pushes;
        state.round_weight = self.round_weight;
        state.orders = self.orders;
        state.norms = self.norms;
        state.records = self.records.into_iter().map(record).collect();
        if let Some(order) = self.clocks {
            state.set_clock_roster(order);
        }
        state
    }
}

#[cfg(test)]
pub(super) mod tests {
    use syncline_scheduler::{ids::Generation, spec::Parameter};

    use super::*;

    /// A fault in words, and how it gets into a head.
    type Fault = (&'static str, fn(&mut SavedJob));

    /// What may be wrong in the head of a job of two parameters.
    pub(in crate::shard) const FAULTS: [Fault; 8] = [
        ("a group of tables without those before it", |job| {
            job.layout = Layout(vec![Parameter::rows("w", vec![2, 1], u32::MAX - 1)]);
        }),
        ("more parameters than there can be", |job| {
            job.layout = Layout(vec![Parameter::trained("w", vec![u64::MAX, 2])]);
        }),
        ("a range behind the parameters", |job| job.end = 3),
        ("a range that ends before it begins", |job| job.start = 3),
        ("moments that its chunks do not have", |job| job.optimizer = Optimizer::adam()),
        ("buffers that its chunks do not have", |job| {
            job.layout = Layout(vec![Parameter::trained("w", vec![1]), Parameter::buffer("m", vec![1])]);
        }),
        ("a learning rate that is none", |job| job.layout.0[0].settings.learning_rate_factor = f32::NAN),
        ("a shard that is none of them", |job| job.index = 1),
    ];

    #[test]
    fn a_saved_job_whose_parts_do_not_fit_each_other_is_refused() {
        let mut saved = Vec::new();
        JobShard::of_values(Generation(1), &[1.0, 2.0]).save(&mut saved).unwrap();
        assert!(JobShard::restore(&mut &saved[..]).is_ok());
        for (what, spoil) in FAULTS {
            let mut rest = &saved[..];
            let mut head: SavedJob = read_head(&mut rest, MAGIC, "saved job").unwrap();
            spoil(&mut head);
            let mut spoiled = Vec::new();
            write_head(&mut spoiled, MAGIC, &head).unwrap();
            // More than enough numbers for whatever it says.
            spoiled.extend([rest, &[0; 64]].concat());
            assert!(JobShard::restore(&mut &spoiled[..]).is_err(), "{what}");
        }
    }
}
