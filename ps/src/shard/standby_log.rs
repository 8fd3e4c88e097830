//! What a standby must be told of a job, in the order in which it happened, and who waits until it has been
//! told.
//!
//! | moment | rule |
//! |---|---|
//! | change | made and recorded under the same lock: the record is in the order of the changes |
//! | copy | begins while nothing changes, and is made piece by piece; what is recorded after its beginning follows it |
//! | changes while the copy is on its way | go on, as long as it moves; past a bound at most as fast as it does |
//! | changes of a chunk that is still to be copied | are recorded without numbers: the copy has them |
//! | end of the copy | what was recorded meanwhile is sent, and of two bytes that are sent at most one may be replaced |
//! | acknowledgement | nobody is told of a change before the standby has it, from the moment at which it is in step |
//! | loss of the standby | nobody is told of anything until the engine knows that this process goes on alone |
//!
//! The engine must know first, or it could give the job to a standby that lacks what a worker was told.

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use syncline_rpc::threads::lock;

use super::{
    pull::PRESENCE_INTERVAL,
    standby_op::StandbyOp,
    standby_record::{Batch, COPY_QUEUED_BYTES, Entry, MAX_QUEUED_BYTES, Record, Standby, StandbyMark, Term},
};

/// Whoever waits for room gives up a copy of which nothing was sent for this long.
const COPY_PATIENCE: Duration = Duration::from_secs(2);

/// The record of one job.
#[derive(Default)]
pub(super) struct StandbyLog {
    /// Held for reading while something changes the job, for writing while a copy of it begins.
    changing: RwLock<()>,
    record: Mutex<Record>,
    /// Entries came, were sent, or were acknowledged.
    moved: Condvar,
    /// Whether anybody must be told: spares the lock where there is no standby.
    active: AtomicBool,
    /// Term of the standby that somebody tells of changes, or is about to.
    claimed: Mutex<Option<Term>>,
}

impl StandbyLog {
    fn lock(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }

    /// Taken before every change, ahead of all other locks. Waits while too much is on its way to the
    /// standby.
    pub(super) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        if self.active.load(Ordering::Acquire) {
            self.wait_for_room();
        }
        self.enter_at_once()
    }

    fn wait_for_room(&self) {
        let mut record = self.lock();
        let (mut sent, mut since) = (record.sent, Instant::now());
        while record.is_full() && !record.over {
            record = self.moved.wait_timeout(record, COPY_PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
            if record.sent != sent || record.makes_piece {
                (sent, since) = (record.sent, Instant::now());
            } else if record.is_full() && record.is_copying() && since.elapsed() >= COPY_PATIENCE {
                record.forget_queue();
                record.standby = Standby::None;
                self.moved.notify_all();
            }
        }
    }

    /// The same for a change without numbers whose caller holds locks that others need: it waits for no room.
    pub(super) fn enter_at_once(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what changes may have to be recorded. While the caller is in, as of [`StandbyLog::enter`],
    /// nobody begins to follow.
    pub(super) fn may_record(&self) -> bool {
        self.active.load(Ordering::Acquire) && self.lock().takes_changes()
    }

    /// Records a change that has just been made, under the lock that it was made under.
    pub(super) fn record(&self, entry: impl FnOnce() -> Entry) {
        if !self.active.load(Ordering::Acquire) {
            return;
        }
        let mut record = self.lock();
        if !record.takes_changes() {
            return;
        }
        record.push(entry());
        drop(record);
        self.moved.notify_all();
    }

    /// Records what was pushed for chunk `index`, under the lock of the chunk. `op` is told how many numbers
    /// follow: none where the copy will have them.
    pub(super) fn record_pushed(&self, index: u32, pushed: &[f32], op: impl FnOnce(u32) -> StandbyOp) {
        if !self.active.load(Ordering::Acquire) {
            return;
        }
        let mut record = self.lock();
        if !record.takes_changes() {
            return;
        }
        let will_be_copied = record.is_copying() && index >= record.copied_chunks;
        let numbers = if will_be_copied { &[] } else { pushed };
        record.push(Entry { op: op(numbers.len() as u32), numbers: numbers.into() });
        drop(record);
        self.moved.notify_all();
    }

    /// A barrier has closed, by the change that was recorded last.
    pub(super) fn mark_close(&self) {
        if self.active.load(Ordering::Acquire) {
            let mut record = self.lock();
            record.newest_close = record.newest_awaited;
        }
    }

    /// Waits until the standby has everything that was recorded so far, as long as the caller is `present`,
    /// who is asked twice a second. False: nobody may be told.
    pub(super) fn confirm(&self, present: impl FnMut() -> bool) -> bool {
        self.confirm_through(|record| record.newest_awaited, present)
    }

    /// The same for the barriers that are closed.
    pub(super) fn confirm_close(&self, present: impl FnMut() -> bool) -> bool {
        self.confirm_through(|record| record.newest_close, present)
    }

    fn confirm_through(&self, number: impl Fn(&Record) -> u64, present: impl FnMut() -> bool) -> bool {
        if !self.active.load(Ordering::Acquire) {
            return true;
        }
        let mark = {
            let record = self.lock();
            StandbyMark { number: number(&record), begun: record.begun }
        };
        self.confirm_mark(mark, present)
    }

    /// Everything that was recorded so far.
    pub(super) fn mark(&self) -> StandbyMark {
        let record = self.lock();
        StandbyMark { number: record.newest_awaited, begun: record.begun }
    }

    /// As [`Self::confirm`], for what was recorded then.
    pub(super) fn confirm_mark(&self, mark: StandbyMark, mut present: impl FnMut() -> bool) -> bool {
        if !self.active.load(Ordering::Acquire) {
            return true;
        }
        let StandbyMark { number, begun } = mark;
        let (mut record, mut asked) = (self.lock(), Instant::now());
        loop {
            let told = match record.standby {
                Standby::None | Standby::Copying(_) => true,
                Standby::InStep(_) => record.acknowledged >= number,
                Standby::Lost(_) => false,
            };
            if record.over {
                return false;
            }
            // A copy that began since has the change.
            if told || record.begun != begun {
                return true;
            }
            record =
                self.moved.wait_timeout(record, PRESENCE_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            if asked.elapsed() >= PRESENCE_INTERVAL {
                drop(record);
                if !present() {
                    return false;
                }
                (record, asked) = (self.lock(), Instant::now());
            }
        }
    }

    /// Whether the caller may tell the standby of this term: two would share one record.
    pub(super) fn claim(&self, term: Term) -> bool {
        lock(&self.claimed).replace(term) != Some(term)
    }

    /// Who claimed the standby of this term tells it no more.
    pub(super) fn release(&self, term: Term) {
        lock(&self.claimed).take_if(|claimed| *claimed == term);
    }

    /// Begins to record for a standby, with what `copy` makes while nothing changes. `None`: somebody tells
    /// another one by now.
    pub(super) fn begin<T>(&self, term: Term, copy: impl FnOnce() -> T) -> Option<T> {
        let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        if lock(&self.claimed).is_some_and(|claimed| claimed != term) {
            return None;
        }
        let mut record = self.lock();
        let (standby, room) = (Standby::Copying(term), COPY_QUEUED_BYTES);
        let (over, begun) = (record.over, record.begun + 1);
        *record = Record { standby, room, over, begun, ..Record::default() };
        self.active.store(true, Ordering::Release);
        drop(record);
        self.moved.notify_all();
        Some(copy())
    }

    /// The next chunk is about to be copied.
    pub(super) fn begin_piece(&self, term: Term) {
        let mut record = self.lock();
        record.makes_piece = record.standby == Standby::Copying(term);
    }

    /// The first `chunks` are in the copy now; the number of the newest change, which the last of them has.
    /// `None`: the copy was given up. The last chunk is locked, and so is the state: no barrier is being
    /// closed.
    pub(super) fn chunks_copied(&self, term: Term, chunks: u32) -> Option<u64> {
        let mut record = self.lock();
        if record.standby != Standby::Copying(term) {
            return None;
        }
        (record.copied_chunks, record.makes_piece) = (chunks, false);
        Some(record.newest)
    }

    /// So many bytes of the copy are sent. False: the copy was given up.
    pub(super) fn copied(&self, term: Term, bytes: usize) -> bool {
        let mut record = self.lock();
        if record.standby != Standby::Copying(term) {
            return false;
        }
        record.room += bytes;
        record.sent += bytes as u64;
        drop(record);
        self.moved.notify_all();
        true
    }

    /// The standby has its copy. Unless it lacks much of what was recorded meanwhile, what anybody is told
    /// from here on it has: it is told so behind everything that was recorded before, and may take over
    /// from there. Whether it came to that.
    pub(super) fn set_in_step(&self, term: Term) -> bool {
        let mut record = self.lock();
        if record.standby != Standby::Copying(term) || record.over {
            return false;
        }
        record.room = record.room.min(record.queued_bytes).max(MAX_QUEUED_BYTES);
        if record.room > MAX_QUEUED_BYTES {
            return false;
        }
        record.standby = Standby::InStep(term);
        record.push(StandbyOp::InStep.entry());
        true
    }

    pub(super) fn is_in_step(&self, term: Term) -> bool {
        self.lock().standby == Standby::InStep(term)
    }

    pub(super) fn is_awaited(&self, term: Term) -> bool {
        self.lock().standby == Standby::Lost(term)
    }

    /// What is to be sent to the standby of this term; waits for it.
    pub(super) fn next_batch(&self, term: Term, wait: Duration) -> Batch {
        let follows =
            |record: &Record| [Standby::Copying(term), Standby::InStep(term)].contains(&record.standby);
        let mut record = self.lock();
        if record.queue.is_empty() && follows(&record) && !record.over {
            record = self.moved.wait_timeout(record, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        if !follows(&record) || record.over && record.queue.is_empty() {
            return Batch::Over;
        }
        if record.queue.is_empty() {
            return Batch::Idle;
        }
        let entries = record.take();
        drop(record);
        self.moved.notify_all();
        Batch::Entries(entries)
    }

    /// The standby has everything up to this number.
    pub(super) fn acknowledge(&self, term: Term, number: u64) {
        let mut record = self.lock();
        if record.standby == Standby::InStep(term) {
            record.acknowledged = record.acknowledged.max(number);
            drop(record);
            self.moved.notify_all();
        }
    }

    /// The standby of this term cannot be reached any more. Whether somebody waits for the engine because of
    /// that.
    pub(super) fn lose(&self, term: Term) -> bool {
        let mut record = self.lock();
        let (after, waits) = match record.standby {
            Standby::Copying(lost) if lost == term => (Standby::None, false),
            Standby::InStep(lost) if lost == term => (Standby::Lost(term), true),
            _ => return false,
        };
        record.forget_queue();
        record.standby = after;
        drop(record);
        self.moved.notify_all();
        waits
    }

    /// Nobody is told of any change before the standby of this term has begun to follow, or the engine knows
    /// that it is lost.
    pub(super) fn await_standby(&self, term: Term) {
        let mut record = self.lock();
        if record.standby == Standby::None {
            record.standby = Standby::Lost(term);
            self.active.store(true, Ordering::Release);
        }
    }

    /// The engine knows that the standby of this term is lost: this process goes on alone.
    pub(super) fn go_on_alone(&self, term: Term) {
        let mut record = self.lock();
        if [Standby::Copying(term), Standby::InStep(term), Standby::Lost(term)].contains(&record.standby) {
            record.forget_queue();
            record.standby = Standby::None;
            self.active.store(record.over, Ordering::Release);
            drop(record);
            self.moved.notify_all();
        }
    }

    /// Whether the next change would not have to wait.
    #[cfg(test)]
    pub(super) fn has_room(&self) -> bool {
        !self.lock().is_full()
    }

    /// The job is over here, or may have moved: whoever waits must not tell anybody.
    pub(super) fn end(&self) {
        self.end_behind(|_| ());
    }

    /// The job is over here and at the standby, which is told this last of all: a push may still be under way.
    pub(super) fn close(&self, last: StandbyOp) {
        // Waits for no room in the record: nobody may be left who makes some.
        let _changing = self.enter_at_once();
        self.end_behind(|record| {
            if record.follows() {
                record.push(last.entry());
            }
        });
    }

    fn end_behind(&self, last: impl FnOnce(&mut Record)) {
        let mut record = self.lock();
        last(&mut record);
        record.over = true;
        self.active.store(true, Ordering::Release);
        drop(record);
        self.moved.notify_all();
    }
}
