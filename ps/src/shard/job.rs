//! One job on one shard.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use syncline_rpc::{OpenJob, ShardFault, ShardState, threads::lock};
use syncline_scheduler::{
    ids::{EngineEpoch, Generation, Incarnation, JobId, RunId},
    spec::{ElementRange, Layout, Optimizer},
};
use tokio::sync::watch;

use super::{
    chunk::{CHUNK_ELEMENTS, Chunk},
    chunk_rules::ChunkRules,
    event_count::EventCount,
    framed::read_numbers,
    job_end::{EndCell, JobEnd},
    job_state::JobState,
    lent::LentSlots,
    push_filter::PushFilter,
    rows::RowCounts,
    settings::{JobSettings, chunk_sizes, part_bytes, trained_in},
    standby_copy::CatchUp,
    standby_log::StandbyLog,
    standby_op::StandbyOp,
};
use crate::{codec::ChunkedRange, rows::RowTables};

/// Workers of one job that may push at a time, sealed ones left out: far more than there are, and few enough
/// to keep a filter of each.
pub(super) const MAX_PUSHING_WORKERS: usize = 1 << 16;

/// The parameters of one job in one generation, as far as this shard holds them.
pub struct JobShard {
    pub(super) run: RunId,
    pub(super) optimizer: Optimizer,
    /// The same for each chunk.
    pub(super) rules: ChunkRules,
    /// Norm to which the mean of a round is shortened.
    pub(super) clip_norm: Option<f32>,
    pub(super) index: u32,
    pub(super) chunks: Vec<Mutex<Chunk>>,
    pub(super) filters: Mutex<BTreeMap<Incarnation, Arc<Mutex<PushFilter>>>>,
    pub(super) state: Mutex<JobState>,
    end: EndCell,
    /// Something has joined the round since the last barrier closed. Set behind the chunk, so that no close
    /// misses it.
    pub(super) accumulated: AtomicBool,
    /// Wakes blocked pulls: a barrier closed, a clock was reached, the job is over, an incarnation was
    /// sealed.
    pub(super) events: EventCount,
    /// The same, clocks left out, for tasks on the tokio runtime; carries nothing.
    pub(super) changed_async: watch::Sender<()>,
    /// What a standby is told.
    pub(super) standby_log: StandbyLog,
    /// Where this is a standby: how far it is.
    pub(super) catch_up: CatchUp,
    /// Where only rows of some parameters are pushed.
    pub(super) tables: Option<RowTables>,
    /// What a job with tables counts beside its chunks.
    pub(super) rows: RowCounts,
    /// Copies of the values that workers on this machine map, once one has asked.
    pub(super) lent: OnceLock<LentSlots>,
    /// Whether this process asks the other shards for their norms.
    follows_peers: AtomicBool,
    range: ElementRange,
    /// Elements of the range that the optimizer moves; buffers lie behind them.
    trained: u64,
    layout: Layout,
    /// May change when shards start again.
    shards: Mutex<Vec<String>>,
}

/// Whether there is memory for the values of a job and for what the optimizer keeps of each. A limit of this
/// process would end it half way, with all other jobs on it.
fn check_room(order: &OpenJob, range: ElementRange) -> io::Result<()> {
    let bytes = part_bytes(&order.layout, range, &order.optimizer);
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(usize::try_from(bytes).unwrap_or(usize::MAX)).map_err(|_| {
        let megabytes = bytes >> 20;
        let reason = format!("this shard gets no memory for {megabytes} MB, which the job needs here");
        io::Error::new(io::ErrorKind::OutOfMemory, reason)
    })
}

impl JobShard {
    /// Holds this shard's part of the initial parameters, which `source` gives as little-endian f32. They are
    /// read straight into the chunks: a large model is never in memory twice.
    pub fn read(
        order: &OpenJob,
        range: ElementRange,
        epoch: EngineEpoch,
        source: &mut impl Read,
    ) -> io::Result<Self> {
        check_room(order, range)?;
        let chunks = chunk_sizes(&order.layout, range).map(|(elements, trained)| {
            let values = read_numbers(elements, source)?;
            Ok(Mutex::new(Chunk::new(values, trained, &order.optimizer)))
        });
        let chunks = chunks.collect::<io::Result<_>>()?;
        Ok(Self::opened(order, range, chunks, JobState::new(epoch)))
    }

    /// The job of an order, with these parameters.
    pub(super) fn opened(
        order: &OpenJob,
        range: ElementRange,
        chunks: Vec<Mutex<Chunk>>,
        state: JobState,
    ) -> Self {
        let settings = JobSettings {
            run: order.run.clone(),
            optimizer: order.optimizer,
            clip_norm: order.clip_norm,
            layout: order.layout.clone(),
            index: order.shard.0,
            shards: order.shards.clone(),
            range,
        };
        Self::new(settings, chunks, state)
    }

    /// A job with this state and these parameters.
    pub(super) fn new(settings: JobSettings, chunks: Vec<Mutex<Chunk>>, state: JobState) -> Self {
        let JobSettings { run, optimizer, clip_norm, layout, index, shards, range } = settings;
        let tables = RowTables::of(&layout);
        let rows = RowCounts::new(&chunks);
        Self {
            run,
            optimizer,
            rules: ChunkRules::of(&layout, range, &optimizer),
            clip_norm,
            index,
            tables,
            rows,
            lent: OnceLock::new(),
            chunks,
            filters: Mutex::default(),
            state: Mutex::new(state),
            end: EndCell::default(),
            accumulated: AtomicBool::new(false),
            events: EventCount::default(),
            changed_async: watch::Sender::new(()),
            standby_log: StandbyLog::default(),
            catch_up: CatchUp::default(),
            follows_peers: AtomicBool::new(false),
            range,
            trained: trained_in(&layout, range),
            layout,
            shards: Mutex::new(shards),
        }
    }

    /// Whose parameters this value holds.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// The job's name.
    pub fn job(&self) -> &JobId {
        &self.run.job
    }

    /// The part of the flat array that is held here.
    pub fn range(&self) -> ElementRange {
        self.range
    }

    /// Bytes of the parameters that are held here.
    pub fn bytes(&self) -> u64 {
        self.range.len() * size_of::<f32>() as u64
    }

    /// Bytes of a copy of these with what the optimizer keeps.
    pub fn copied_bytes(&self) -> u64 {
        part_bytes(&self.layout, self.range, &self.optimizer)
    }

    /// The named parameters of the whole job.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Addresses of all shards of the job, in order.
    pub fn shards(&self) -> Vec<String> {
        lock(&self.shards).clone()
    }

    /// Whether that shard is served there, as far as the engine has said.
    pub fn has_shard_at(&self, shard: u32, address: &str) -> bool {
        lock(&self.shards).get(shard as usize).is_some_and(|now| now == address)
    }

    /// Replaces the addresses of the shards.
    pub fn set_addresses(&self, shards: &[String]) {
        *lock(&self.shards) = shards.to_vec();
    }

    /// Number of chunks held here.
    pub fn chunk_count(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// Length of chunk `index`, if there is one.
    pub(super) fn elements_of_chunk(&self, index: u32) -> Option<usize> {
        let before = u64::from(index) * CHUNK_ELEMENTS as u64;
        let left = self.range.len().checked_sub(before).filter(|left| *left > 0)?;
        Some(left.min(CHUNK_ELEMENTS as u64) as usize)
    }

    /// The tables of which only rows travel, if there are any.
    pub fn tables(&self) -> Option<&RowTables> {
        self.tables.as_ref()
    }

    /// The range as it is cut into chunks.
    pub fn chunked_range(&self) -> ChunkedRange {
        ChunkedRange::new(self.range, self.range.start + self.trained)
    }

    /// Whether chunk `index` has buffers in it.
    pub(super) fn holds_buffers(&self, index: u32) -> bool {
        let end = (u64::from(index) + 1) * CHUNK_ELEMENTS as u64;
        end.min(self.range.len()) > self.trained
    }

    /// Highest engine epoch that gave an order about this job.
    pub fn epoch(&self) -> EngineEpoch {
        lock(&self.state).epoch
    }

    /// Where the job stands, under the engine's `epoch`.
    pub fn state(&self, epoch: EngineEpoch) -> Result<ShardState, ShardFault> {
        let mut state = lock(&self.state);
        state.fence(epoch)?;
        Ok(ShardState { generation: self.run.generation, progress: state.progress(), pushes: state.pushes })
    }

    /// Ends this value: a cancel. Wakes everybody who waits.
    pub(super) fn close(&self) {
        self.end_with_standby(JobEnd::Closed);
    }

    /// Nobody changes or reads it from here on; `true` if somebody could until now. Who waits is to be
    /// [woken](JobShard::notify). A standby holds its copy until that is over.
    ///
    /// # Errors
    /// [`ShardFault::Fenced`] if a later engine has asked for it.
    pub(crate) fn freeze(&self, epoch: EngineEpoch) -> Result<bool, ShardFault> {
        let mut state = lock(&self.state);
        state.fence(epoch)?;
        Ok(self.end.freeze())
    }

    /// Whether it is frozen. Waits for nobody.
    pub(crate) fn is_frozen(&self) -> bool {
        self.end.get().is_some_and(JobEnd::is_frozen)
    }

    /// It was written to disk since it is frozen. False: it is not frozen any more.
    pub(crate) fn mark_written(&self) -> bool {
        self.end.mark_written()
    }

    /// Why it accepts nothing; `None`: it goes on. Waits for nobody.
    pub(crate) fn end(&self) -> Option<JobEnd> {
        self.end.get()
    }

    /// An engine asks for it after all. Whether it goes on: what was [set aside](JobShard::end_aside) before
    /// is on disk only, and what is over stays so.
    pub(crate) fn thaw(&self) -> bool {
        self.end.thaw()
    }

    /// Ends this value, which is on disk for an engine that asks for it; false if one has asked already.
    /// Waits for nobody. A standby is [told](JobShard::tell_set_aside) behind that.
    pub(super) fn end_aside(&self) -> bool {
        self.end.set_aside()
    }

    /// A standby brings its copy of what was set aside to its disk, too. Wakes everybody who waits.
    pub(super) fn tell_set_aside(&self) {
        self.standby_log.close(StandbyOp::SetAside);
        self.notify();
    }

    /// Says whether this process asks the other shards for their norms; what it said before.
    pub(crate) fn set_follows_peers(&self, follows: bool) -> bool {
        self.follows_peers.swap(follows, Ordering::SeqCst)
    }

    /// Ends this value here. A standby keeps its copy. Waits for nobody who changes it or writes it down: the
    /// callers hold up other jobs.
    pub(crate) fn give_up(&self) {
        self.end.set(JobEnd::Closed);
        self.standby_log.end();
        self.notify();
    }

    /// Ends this value: generation `by` has taken its place. Wakes everybody who waits.
    pub(super) fn replace(&self, by: Generation) {
        self.end_with_standby(JobEnd::Replaced(by));
    }

    /// Ends this value here and at the standby. It is over before the standby is told: one that has made room
    /// for the next run refuses this one, and is lost to nobody by that.
    fn end_with_standby(&self, end: JobEnd) {
        let state = lock(&self.state);
        self.end.set(end);
        drop(state);
        self.standby_log.close(StandbyOp::Close);
        self.notify();
    }

    /// Whether nobody changes it any more here: it was closed or replaced, or is frozen or set aside.
    pub fn has_ended(&self) -> bool {
        self.end.get().is_some()
    }

    /// Whether the job was closed or replaced, or set aside. One that is frozen may go on.
    pub(crate) fn is_over(&self) -> bool {
        self.end.get().is_some_and(|end| !end.is_frozen())
    }

    /// Whether an engine that asks for the job goes on with it, here or from disk.
    pub(crate) fn may_go_on(&self) -> bool {
        !matches!(self.end.get(), Some(JobEnd::Closed | JobEnd::Replaced(_)))
    }

    pub(crate) fn notify(&self) {
        self.events.notify();
        self.changed_async.send_replace(());
    }

    /// Wakes blocked pulls if the clock that one of them waits for is reached.
    pub(super) fn notify_if_clock_reached(&self, state: &mut JobState) {
        if state.take_reached_clock() {
            self.events.notify();
        }
    }

    /// Locks the state; a fault if the job has ended.
    pub(super) fn lock_running(&self) -> Result<MutexGuard<'_, JobState>, ShardFault> {
        // Who has locked it may write the job down.
        self.check_running()?;
        let state = lock(&self.state);
        self.check_running()?;
        Ok(state)
    }

    /// A fault if the job has ended. Waits for nobody.
    pub(super) fn check_running(&self) -> Result<(), ShardFault> {
        self.end.get().map_or(Ok(()), |end| Err(end.fault(&self.run)))
    }

    fn known_filter(&self, worker: Incarnation) -> Option<Arc<Mutex<PushFilter>>> {
        lock(&self.filters).get(&worker).cloned()
    }

    /// The worker's push filter, which is kept from the first push on that may come in: anybody can make up a
    /// number, and what is refused leaves nothing behind. `first_chunk`: as in [`PushFilter::admit`].
    pub(super) fn filter_to_push(
        &self,
        worker: Incarnation,
        seq: u64,
        covers: u32,
        first_chunk: u32,
    ) -> Result<Arc<Mutex<PushFilter>>, ShardFault> {
        if let Some(filter) = self.known_filter(worker) {
            return Ok(filter);
        }
        let fresh = self.filter_or_new(worker);
        let filter = lock(&fresh);
        filter.check_seal(self.job(), worker)?;
        filter.admit(seq, covers, first_chunk)?;
        drop(filter);
        let sealed = lock(&self.state).sealed.kept();
        let mut filters = lock(&self.filters);
        let unsealed = filters.len().saturating_sub(sealed);
        if unsealed >= MAX_PUSHING_WORKERS {
            let what =
                format!("{MAX_PUSHING_WORKERS} workers push to job {}, and {worker} is one more", self.job());
            return Err(ShardFault::Invalid { what });
        }
        Ok(filters.entry(worker).or_insert(fresh).clone())
    }

    /// The worker's push filter, to be sealed.
    pub(super) fn filter(&self, worker: Incarnation) -> Arc<Mutex<PushFilter>> {
        let filter = self.filter_or_new(worker);
        if lock(&filter).is_sealed() {
            return filter;
        }
        lock(&self.filters).entry(worker).or_insert(filter).clone()
    }

    /// All push filters, by worker. Where locks of several kinds are held, those of filters are taken first,
    /// in this order, and that of the state after them.
    pub(super) fn all_filters(&self) -> BTreeMap<Incarnation, Arc<Mutex<PushFilter>>> {
        lock(&self.filters).clone()
    }

    /// The worker's push filter; one that is created here is not stored.
    pub(super) fn filter_or_new(&self, worker: Incarnation) -> Arc<Mutex<PushFilter>> {
        self.known_filter(worker).unwrap_or_else(|| {
            // It may have gone since it was sealed.
            Arc::new(Mutex::new(PushFilter::new(lock(&self.state).sealed.contains(worker))))
        })
    }
}

#[cfg(test)]
impl JobShard {
    /// The only shard of a job that holds `values`.
    pub(super) fn of_values(generation: Generation, values: &[f32]) -> Self {
        let elements = values.len() as u64;
        let order = OpenJob {
            run: RunId { job: "digits".parse().unwrap(), generation },
            shard: syncline_scheduler::ids::ShardIndex(0),
            shards: vec![String::new()],
            layout: Layout(vec![syncline_scheduler::spec::Parameter::trained("w", vec![elements])]),
            optimizer: Optimizer::sgd(),
            clip_norm: None,
            initial: syncline_scheduler::ids::ContentDigest::LOWEST,
            resumed: None,
            checkpoint: None,
            known_through: None,
        };
        let range = ElementRange { start: 0, end: elements };
        Self::read(&order, range, EngineEpoch(1), &mut bytemuck::cast_slice(values)).unwrap()
    }

    /// Whether somebody holds the state.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.try_lock().is_err()
    }
}
