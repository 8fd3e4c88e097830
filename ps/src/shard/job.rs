//! One job on one shard.

use std::{
    io::{self, Read},
    sync::{Arc, Condvar, Mutex, MutexGuard, atomic::AtomicBool},
};

use dashmap::DashMap;
use syncline_engine::rpc::{OpenJob, ShardFault, ShardState};
use syncline_scheduler::{
    ids::{EngineEpoch, Generation, Incarnation, JobId},
    spec::{ElementRange, Layout, Optimizer},
};
use tokio::sync::watch;

use super::{
    chunk::{CHUNK_ELEMENTS, Chunk},
    lane::Lane,
    ledger::{Ledger, Over},
    lock,
    saved::read_numbers,
};

/// The parameters of one job in one generation, as far as this shard holds them.
pub struct JobShard {
    pub(super) job: JobId,
    pub(super) generation: Generation,
    pub(super) optimizer: Optimizer,
    /// Norm to which the mean of a round is shortened.
    pub(super) clip_norm: Option<f32>,
    pub(super) index: u32,
    pub(super) chunks: Vec<Mutex<Chunk>>,
    pub(super) lanes: DashMap<Incarnation, Arc<Mutex<Lane>>>,
    pub(super) ledger: Mutex<Ledger>,
    /// Something has joined the round since the last barrier closed. Set behind the chunk, so that no close misses it.
    pub(super) accumulated: AtomicBool,
    /// Wakes blocked pulls: a barrier closed, a clock was reached, the job is over, an incarnation was sealed.
    pub(super) moved: Condvar,
    /// The same, clocks left out, for tasks on the tokio runtime; carries nothing.
    pub(super) moved_async: watch::Sender<()>,
    range: ElementRange,
    /// Elements of the range that the optimizer moves; buffers lie behind them.
    trained: u64,
    layout: Layout,
    /// May change when shards start again.
    shards: Mutex<Vec<String>>,
}

/// What is fixed for the life of a job's parameters.
pub(super) struct Order {
    pub job: JobId,
    pub generation: Generation,
    pub optimizer: Optimizer,
    pub clip_norm: Option<f32>,
    pub layout: Layout,
    pub index: u32,
    pub shards: Vec<String>,
    pub range: ElementRange,
}

impl JobShard {
    /// Holds this shard's part of the initial parameters, which `source` gives as little-endian f32. They are read
    /// straight into the chunks: a large model is never in memory twice.
    pub fn read(
        order: &OpenJob,
        range: ElementRange,
        epoch: EngineEpoch,
        source: &mut impl Read,
    ) -> io::Result<Self> {
        let mut left = range.len() as usize;
        let mut trained_left = trained_in(&order.layout, range) as usize;
        let mut chunks = Vec::with_capacity(left.div_ceil(CHUNK_ELEMENTS));
        while left > 0 {
            let elements = left.min(CHUNK_ELEMENTS);
            let values = read_numbers(elements, source)?;
            let trained_here = trained_left.min(elements);
            chunks.push(Mutex::new(Chunk::new(values, trained_here, &order.optimizer)));
            left -= elements;
            trained_left -= trained_here;
        }
        let order = Order {
            job: order.job.clone(),
            generation: order.generation,
            optimizer: order.optimizer,
            clip_norm: order.clip_norm,
            layout: order.layout.clone(),
            index: order.shard.0,
            shards: order.shards.clone(),
            range,
        };
        Ok(Self::new(order, chunks, Ledger::new(epoch)))
    }

    /// A job with these books and parameters.
    pub(super) fn new(order: Order, chunks: Vec<Mutex<Chunk>>, ledger: Ledger) -> Self {
        let Order { job, generation, optimizer, clip_norm, layout, index, shards, range } = order;
        Self {
            job,
            generation,
            optimizer,
            clip_norm,
            index,
            chunks,
            lanes: DashMap::new(),
            ledger: Mutex::new(ledger),
            accumulated: AtomicBool::new(false),
            moved: Condvar::new(),
            moved_async: watch::Sender::new(()),
            range,
            trained: trained_in(&layout, range),
            layout,
            shards: Mutex::new(shards),
        }
    }

    /// The job's name.
    pub fn job(&self) -> &JobId {
        &self.job
    }

    /// The life of the parameters that this value holds.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The part of the flat array that is held here.
    pub fn range(&self) -> ElementRange {
        self.range
    }

    /// The named parameters of the whole job.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Addresses of all shards of the job, in order.
    pub fn shards(&self) -> Vec<String> {
        lock(&self.shards).clone()
    }

    /// Takes note of where the shards are now.
    pub fn moved_to(&self, shards: &[String]) {
        *lock(&self.shards) = shards.to_vec();
    }

    /// Number of chunks held here.
    pub fn chunk_count(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// Whether chunk `index` has buffers in it.
    pub(super) fn holds_buffers(&self, index: u32) -> bool {
        let end = (u64::from(index) + 1) * CHUNK_ELEMENTS as u64;
        end.min(self.range.len()) > self.trained
    }

    /// Highest engine epoch that gave an order about this job.
    pub fn epoch(&self) -> EngineEpoch {
        lock(&self.ledger).epoch
    }

    /// Where the job stands, under the engine's `epoch`.
    pub fn state(&self, epoch: EngineEpoch) -> Result<ShardState, ShardFault> {
        let mut ledger = lock(&self.ledger);
        ledger.fence(epoch)?;
        Ok(ShardState {
            generation: self.generation,
            watermarks: ledger.watermarks.clone(),
            closed: ledger.closed,
            pushes: ledger.pushes,
        })
    }

    /// Ends this value: a cancel. Wakes everybody who waits.
    pub(super) fn close(&self) {
        self.end(Over::Closed);
    }

    /// Ends this value: generation `by` has taken its place. Wakes everybody who waits.
    pub(super) fn replace(&self, by: Generation) {
        self.end(Over::Replaced(by));
    }

    /// Whether nothing is taken in any more.
    pub fn is_over(&self) -> bool {
        lock(&self.ledger).over.is_some()
    }

    fn end(&self, over: Over) {
        lock(&self.ledger).over = Some(over);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        self.moved.notify_all();
        self.moved_async.send_replace(());
    }

    /// Wakes blocked pulls if the clock that one of them waits for is reached.
    pub(super) fn wake_at_clock(&self, ledger: &mut Ledger) {
        if ledger.take_reached() {
            self.moved.notify_all();
        }
    }

    /// The ledger of a job that still takes things in.
    pub(super) fn open_ledger(&self) -> Result<MutexGuard<'_, Ledger>, ShardFault> {
        let ledger = lock(&self.ledger);
        match ledger.over {
            Some(over) => Err(over.fault(&self.job, self.generation)),
            None => Ok(ledger),
        }
    }

    /// The worker's lane, made if it is its first.
    pub(super) fn lane(&self, worker: Incarnation) -> Arc<Mutex<Lane>> {
        if let Some(lane) = self.lanes.get(&worker) {
            return lane.clone();
        }
        let lane = self.known_lane(worker);
        if lock(&lane).is_sealed() {
            return lane;
        }
        self.lanes.entry(worker).or_insert(lane).clone()
    }

    /// The worker's lane; one of which nothing is known is not kept.
    pub(super) fn known_lane(&self, worker: Incarnation) -> Arc<Mutex<Lane>> {
        if let Some(lane) = self.lanes.get(&worker) {
            return lane.clone();
        }
        // It may have gone since it was sealed.
        Arc::new(Mutex::new(Lane::new(lock(&self.ledger).sealed.contains(worker))))
    }
}

/// Elements of `range` that the optimizer moves.
fn trained_in(layout: &Layout, range: ElementRange) -> u64 {
    layout.trained_elements().clamp(range.start, range.end) - range.start
}
