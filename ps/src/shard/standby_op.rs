//! The changes of a job as its standby makes them again.
//!
//! ```text
//! length u32 le | change (postcard) | the numbers of a chunk, little-endian f32
//! ```

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use syncline_rpc::{BarrierOrder, ClockRoster, Retention, ShardFault};
use syncline_scheduler::ids::{EngineEpoch, Incarnation};

use super::{
    CHUNK_ELEMENTS, JobShard, PushHeader, PushedChunk, framed::damaged, rows::Followed, standby_record::Entry,
};
use crate::rows::Piece;

/// Longest change without its numbers: a barrier with a roster of a million workers stays below.
const MAX_OP_BYTES: u32 = 64 << 20;

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum StandbyOp {
    /// Chunk `index` of push `seq` was applied. Its numbers follow.
    Chunk {
        /// Incarnation that pushed.
        worker: Incarnation,
        /// Number of the push among the worker's.
        seq: u64,
        /// Index of the chunk in the shard's range, from 0.
        index: u32,
        /// What traveled in front of the gradient.
        header: PushHeader,
        /// How many numbers follow: as many as the chunk has, or none where the copy has them.
        elements: u32,
        /// The weight that the push had in a buffer: pushes of others may have been counted between its
        /// reckoning and its use.
        share: f32,
    },
    /// All chunks of push `seq` are in.
    Complete {
        /// Incarnation that pushed.
        worker: Incarnation,
        /// Number of the push, the worker's watermark from here on.
        seq: u64,
        /// What traveled in front of the gradient.
        header: PushHeader,
    },
    /// An incarnation was sealed: nothing of it is taken any more.
    Seal {
        /// Epoch of the engine that ordered it.
        epoch: EngineEpoch,
        /// Incarnation that is sealed.
        worker: Incarnation,
    },
    /// A barrier was ordered, or its roster amended; what that closes the standby closes by itself.
    Barrier {
        /// Epoch of the engine that ordered it.
        epoch: EngineEpoch,
        /// The order as it came.
        order: BarrierOrder,
    },
    /// A roster of clocks came.
    Clocks {
        /// Epoch of the engine that ordered it.
        epoch: EngineEpoch,
        /// The roster as it came.
        roster: ClockRoster,
    },
    /// What another shard said of a round that is to be clipped.
    Norm {
        /// Position of that shard.
        from: u32,
        /// Superstep whose barrier ends the round.
        round: u64,
        /// Sum of squares of that shard's part of the round's mean.
        squares: f64,
    },
    /// What the shard holds of the job was copied in memory, at rest, for a checkpoint.
    PinCheckpoint {
        /// Epoch of the engine that ordered it.
        epoch: EngineEpoch,
        /// Number of the checkpoint.
        number: u64,
    },
    /// The pinned copy was written to disk.
    WriteCheckpoint {
        /// Number of the checkpoint.
        number: u64,
    },
    /// Those that are given up were removed.
    RetainCheckpoints(Retention),
    /// From here on nobody is told of a change that the standby lacks: it may take over.
    InStep,
    /// Nothing has changed; an answer is wanted.
    Ping,
    /// The job was closed.
    Close,
    /// Pieces of one chunk of push `seq` were applied, in a job with tables, behind so many steps. Their
    /// numbers follow.
    Rows {
        /// Incarnation that pushed.
        worker: Incarnation,
        /// Number of the push among the worker's.
        seq: u64,
        /// What traveled in front of the gradient.
        header: PushHeader,
        /// Steps that the optimizer had taken for the job before.
        steps: u64,
        /// Where the numbers belong, in order, all in one chunk.
        pieces: Vec<Piece>,
        /// How many numbers follow: as many as the pieces have together, or none where the copy has them.
        elements: u32,
        /// As for a chunk.
        share: f32,
    },
    /// The sum of squares of this shard's part of a round's mean, where the round is to be clipped.
    OwnNorm {
        /// Superstep whose barrier ends the round.
        round: u64,
        /// The sum.
        squares: f64,
    },
    /// No engine knows the job: the primary has it on its disk and holds it no more.
    SetAside,
}

impl StandbyOp {
    /// Whether somebody may wait until the standby has it: chunks are awaited with the push that they are
    /// part of.
    pub fn is_awaited(&self) -> bool {
        !matches!(self, Self::Chunk { .. } | Self::Rows { .. })
    }

    /// Whether the job is followed no more behind it.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Close | Self::SetAside)
    }

    /// Whether making it again may walk over all parameters.
    pub fn may_take_long(&self) -> bool {
        let may_close = matches!(
            self,
            Self::Complete { .. } | Self::Barrier { .. } | Self::Norm { .. } | Self::OwnNorm { .. }
        );
        may_close || matches!(self, Self::PinCheckpoint { .. })
    }

    /// Without numbers.
    pub fn entry(self) -> Entry {
        Entry { op: self, numbers: Box::default() }
    }
}

impl Entry {
    /// Writes the frame.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let op = postcard::to_stdvec(&self.op).map_err(io::Error::other)?;
        let length = u32::try_from(op.len()).map_err(io::Error::other)?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&op)?;
        out.write_all(bytemuck::cast_slice(&self.numbers))
    }
}

/// Reads the next change; its numbers come into `chunk`, which is as long as one. Returns how many there are.
pub fn read_op(
    from: &mut impl Read,
    scratch: &mut Vec<u8>,
    chunk: &mut [f32],
) -> io::Result<(StandbyOp, usize)> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_OP_BYTES {
        return Err(damaged("a change of impossible size"));
    }
    scratch.clear();
    if from.take(length.into()).read_to_end(scratch)? as u32 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let op: StandbyOp = postcard::from_bytes(scratch).map_err(|e| damaged(&e.to_string()))?;
    let elements = match &op {
        StandbyOp::Chunk { elements, .. } | StandbyOp::Rows { elements, .. } => *elements as usize,
        _ => 0,
    };
    if elements > CHUNK_ELEMENTS.min(chunk.len()) {
        return Err(damaged("more numbers than a chunk has"));
    }
    from.read_exact(bytemuck::cast_slice_mut(&mut chunk[..elements]))?;
    Ok((op, elements))
}

impl JobShard {
    /// Makes change `number` again, from 1, that the primary has made. Those that concern files and the job
    /// as a whole are the caller's.
    pub fn replay(&self, number: u64, op: StandbyOp, numbers: &[f32]) -> Result<(), ShardFault> {
        self.catch_up.set_number(number);
        match op {
            StandbyOp::Chunk { worker, seq, index, header, share, .. } => {
                let in_copy = numbers.is_empty() && self.catch_up.has_in_copy(index);
                if !in_copy && self.elements_of_chunk(index) != Some(numbers.len()) {
                    let what = format!("chunk {index} of a push with {} numbers", numbers.len());
                    return Err(ShardFault::Invalid { what });
                }
                let chunk = PushedChunk { worker, seq, index, header: &header, share: Some(share) };
                self.apply(chunk, numbers)
            }
            StandbyOp::Rows { worker, seq, header, steps, pieces, share, .. } => {
                self.apply_pieces(worker, seq, &header, &pieces, numbers, Some(Followed { steps, share }))
            }
            StandbyOp::Complete { worker, seq, header } => self.complete(worker, seq, &header).map(drop),
            StandbyOp::Seal { epoch, worker } => self.seal(epoch, worker).map(drop),
            StandbyOp::Barrier { epoch, order } => self.add_barrier(epoch, order),
            StandbyOp::Clocks { epoch, roster } => self.set_clock_roster(epoch, roster),
            StandbyOp::Norm { from, round, squares } => self.receive_norm(from, round, squares),
            StandbyOp::OwnNorm { round, squares } => self.follow_own_norm(round, squares),
            StandbyOp::PinCheckpoint { epoch, number } => self.pin_checkpoint(epoch, number),
            StandbyOp::WriteCheckpoint { .. }
            | StandbyOp::RetainCheckpoints(_)
            | StandbyOp::InStep
            | StandbyOp::Ping
            | StandbyOp::Close
            | StandbyOp::SetAside => Ok(()),
        }
    }
}
