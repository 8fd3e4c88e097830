//! What is recorded for a standby and waits to be sent: in which order, and how much of it.

use std::collections::VecDeque;

use super::standby_op::StandbyOp;

/// Bytes of recorded gradients that may wait for the connection to the standby.
pub(super) const MAX_QUEUED_BYTES: usize = 16 << 20;
/// The same while the standby gets its copy, and as many more as were sent of that.
pub(super) const COPY_QUEUED_BYTES: usize = 64 << 20;
/// What is sent at once then, so that room comes in small steps.
const COPY_BATCH_BYTES: usize = 1 << 20;
/// Number of the standby process that follows: each that comes gets another.
pub type Term = u64;

/// A change, and the numbers that came with it.
pub struct Entry {
    /// What was done, as the standby is to do it again.
    pub op: StandbyOp,
    /// What was pushed for the chunk or its pieces; empty for all other changes.
    pub numbers: Box<[f32]>,
}

impl Entry {
    fn bytes(&self) -> usize {
        let pieces = match &self.op {
            StandbyOp::Rows { pieces, .. } => size_of_val(&**pieces),
            _ => 0,
        };
        size_of::<Self>() + pieces + size_of_val(&*self.numbers)
    }
}

/// What is to be sent next.
pub enum Batch {
    /// These, in this order.
    Entries(Vec<Entry>),
    /// Nothing came for a while.
    Idle,
    /// The job is over here, or another standby follows.
    Over,
}

/// Everything that was recorded of a job up to a moment.
#[derive(Debug, Clone, Copy)]
pub struct StandbyMark {
    /// Number of the entry that the standby has to have.
    pub(super) number: u64,
    /// The standby whose entries are counted so.
    pub(super) begun: u64,
}

/// What is recorded of one job, and how far its standby has it.
#[derive(Default)]
pub(super) struct Record {
    pub standby: Standby,
    pub queue: VecDeque<Entry>,
    pub queued_bytes: usize,
    /// How many bytes may wait.
    pub room: usize,
    /// Bytes of the copy and of the record that were sent, or are about to be.
    pub sent: u64,
    /// How many chunks are in the copy already.
    pub copied_chunks: u32,
    /// The next one is being copied, or waits for a barrier that closes: it is not the standby that is slow.
    pub makes_piece: bool,
    /// Standbys that a record was begun for: numbers of entries begin anew with each.
    pub begun: u64,
    /// Number of the newest entry; the first is 1.
    pub newest: u64,
    /// Number of the newest entry that somebody may wait for.
    pub newest_awaited: u64,
    /// The same when the last barrier closed.
    pub newest_close: u64,
    pub acknowledged: u64,
    /// Nobody is told of anything any more.
    pub over: bool,
}

/// Who is told.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standby {
    #[default]
    None,
    /// It gets the copy first: what it lacks was never promised to anybody.
    Copying(Term),
    InStep(Term),
    /// It was in step, and the engine is still to know that it is lost; or it has what the job was before it
    /// was set aside, and is still to hear that it goes on.
    Lost(Term),
}

impl Record {
    pub(super) fn follows(&self) -> bool {
        matches!(self.standby, Standby::Copying(_) | Standby::InStep(_))
    }

    /// Whether a standby is to be told of what changes now: behind the end it follows nothing, and has hung
    /// up.
    pub(super) fn takes_changes(&self) -> bool {
        self.follows() && !self.over
    }

    /// Whether the next change must wait.
    pub(super) fn is_full(&self) -> bool {
        self.follows() && self.queued_bytes >= self.room
    }

    pub(super) fn is_copying(&self) -> bool {
        matches!(self.standby, Standby::Copying(_))
    }

    /// Takes what is to be sent next: all that waits, where that is not much.
    pub(super) fn take(&mut self) -> Vec<Entry> {
        let most = if self.is_copying() { COPY_BATCH_BYTES } else { MAX_QUEUED_BYTES };
        let (mut bytes, mut count) = (0, 0);
        while bytes < most
            && let Some(entry) = self.queue.get(count)
        {
            bytes += entry.bytes();
            count += 1;
        }
        self.queued_bytes -= bytes;
        self.sent += bytes as u64;
        // Less than was sent may come for it, so that the standby comes into step however much is pushed.
        self.room = self.room.saturating_sub(bytes / 2).max(MAX_QUEUED_BYTES);
        self.queue.drain(..count).collect()
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.newest += 1;
        if entry.op.is_awaited() {
            self.newest_awaited = self.newest;
        }
        self.queued_bytes += entry.bytes();
        self.queue.push_back(entry);
    }

    pub(super) fn forget_queue(&mut self) {
        self.queue.clear();
        self.queued_bytes = 0;
    }
}
