//! What a shard answers on a tensor connection.

use std::io::{self, Read};

use syncline_rpc::ShardFault;

use super::{
    ECHO_BYTES, MAX_HEAD_BYTES, MAX_TENSOR_BYTES, WireError,
    fields::{FieldReader, FieldWriter},
    frame::{self, Frame},
};
use crate::shard::{PushAck, PushCursor, SlotShape};

/// Longest text of a fault that travels; the rest is cut off.
const MAX_FAULT_TEXT_BYTES: usize = 4096;

/// One answer. The length of the body that follows travels in the frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The push is in, now or from an earlier try.
    Pushed(PushAck),
    /// Body: the values of the shard's range. Then a `PullEnd` follows.
    Pulled {
        /// Barriers closed when the pull was granted; of a pinned version, its number.
        version: u64,
        /// Pushes of all workers that were in completely by then.
        pushes: u64,
        /// How long the pull waited at the shard; 0 if it was granted at once.
        waited_us: u64,
    },
    /// The values lie in this slot of the memory that was lent, until the next push or pull.
    Lent {
        /// Barriers closed when the pull was granted; of a pinned version, its number.
        version: u64,
        /// Pushes of all workers that were in completely by then.
        pushes: u64,
        /// How long the pull waited at the shard; 0 if it was granted at once.
        waited_us: u64,
        /// As in [`Reply::PullEnd`].
        round_version: u64,
        /// Number of the slot, from 0.
        slot: u32,
    },
    /// All values of a pull were sent.
    PullEnd {
        /// Newest version that the mean of a round went into, 0 for a pinned one. If it is newer than what was pulled,
        /// the values are a mixture and must be pulled again.
        round_version: u64,
    },
    /// The pull that was asked for still waits. Sent every second, so that both sides notice when the other is gone.
    Waiting,
    /// The sum of squares of this shard's part of a round.
    Norm {
        /// Sum of squares of its part of the round's mean; 0 if nothing was in the round.
        squares: f64,
    },
    /// Where the pushes of the incarnation go on.
    PushCursor(PushCursor),
    /// The follower of a job has every change up to this number.
    Replicated {
        /// Number of that change, from 1; 0 before the first: the copy may come, or is in.
        number: u64,
    },
    /// Body: digests of all blobs, one behind the other.
    BlobList,
    /// Body: what parts of checkpoints are here, each a run of its job and its number, in postcard.
    CheckpointList,
    /// The blob is kept and on disk.
    BlobStored,
    /// Body: the piece that was asked for, of `total` bytes; of a checkpoint all of it.
    Blob {
        /// Bytes of the whole blob, or checkpoint.
        total: u64,
    },
    /// Whether a blob is kept here, and its size.
    BlobStat {
        /// Size, if it is kept here.
        bytes: Option<u64>,
    },
    /// Body: that of the question.
    Echo,
    /// The file of the socket for callers on the same machine, if there is one.
    LocalSocket {
        /// Path of the file, on the shard's machine.
        path: Option<String>,
    },
    /// The descriptor of the memory in which values will be lent follows.
    ParametersLent(SlotShape),
    /// Gradients that lie in the memory that was handed over can be pushed from there.
    GradientsTaken,
    /// The memory's descriptor follows, and then everything goes through it.
    SharedMemory,
    /// What was asked for is refused.
    Fault(ShardFault),
}

const PUSHED: u8 = 65;
const PULLED: u8 = 66;
const PULL_END: u8 = 67;
const PUSH_CURSOR: u8 = 68;
const BLOB_STORED: u8 = 69;
const BLOB: u8 = 70;
const BLOB_STAT: u8 = 71;
const FAULT: u8 = 72;
const WAITING: u8 = 73;
const NORM: u8 = 74;
const LOCAL_SOCKET: u8 = 75;
const SHARED_MEMORY: u8 = 76;
const REPLICATED: u8 = 77;
const BLOB_LIST: u8 = 78;
const LENT: u8 = 79;
const PARAMETERS_LENT: u8 = 80;
const GRADIENTS_TAKEN: u8 = 81;
const CHECKPOINT_LIST: u8 = 82;
const ECHO: u8 = 83;

impl Reply {
    /// Writes the frame into `out`, whose old content is dropped. `body`: bytes that will follow.
    pub fn encode(&self, body: u64, out: &mut Vec<u8>) {
        frame::encode(out, self.kind(), body, |head| {
            let head = FieldWriter(head);
            match self {
                Self::Pushed(ack) => head.u64(ack.watermark).u64(ack.pushes).u64(ack.lead),
                Self::Pulled { version, pushes, waited_us } => {
                    head.u64(*version).u64(*pushes).u64(*waited_us)
                }
                Self::Lent { version, pushes, waited_us, round_version, slot } => {
                    head.u64(*version).u64(*pushes).u64(*waited_us).u64(*round_version).u32(*slot)
                }
                Self::ParametersLent(shape) => head.u64(shape.slot_bytes).u32(shape.slots),
                Self::GradientsTaken => head,
                Self::PullEnd { round_version } => head.u64(*round_version),
                Self::Waiting => head,
                Self::Norm { squares } => head.u64(squares.to_bits()),
                Self::PushCursor(cursor) => {
                    head.u64(cursor.watermark).u32(cursor.next_chunk).u64(cursor.pushes)
                }
                Self::Replicated { number } => head.u64(*number),
                Self::BlobStored | Self::BlobList | Self::CheckpointList => head,
                Self::Blob { total } => head.u64(*total),
                Self::BlobStat { bytes } => head.u8(bytes.is_some().into()).u64(bytes.unwrap_or(0)),
                // Longer than the name of any socket would be no name either.
                Self::LocalSocket { path } => {
                    head.u8(path.is_some().into()).short_text(path.as_deref().unwrap_or_default())
                }
                Self::SharedMemory | Self::Echo => head,
                Self::Fault(fault) => head.bytes(&encode_fault(fault)),
            };
        });
    }

    /// Reads the next answer and the length of its body. A peer that hangs up here broke off.
    pub fn read(from: &mut impl Read, scratch: &mut Vec<u8>) -> Result<(Self, u64), WireError> {
        let Some(Frame { kind, body, .. }) = Frame::read(from, scratch)? else {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        };
        let bound = match kind {
            PULLED | BLOB | BLOB_LIST | CHECKPOINT_LIST => MAX_TENSOR_BYTES,
            ECHO => ECHO_BYTES,
            PUSHED | PULL_END | WAITING | NORM | PUSH_CURSOR | BLOB_STORED | BLOB_STAT | LOCAL_SOCKET
            | SHARED_MEMORY | REPLICATED | FAULT | LENT | PARAMETERS_LENT | GRADIENTS_TAKEN => 0,
            _ => return Err(WireError::Kind(kind)),
        };
        if body > bound {
            return Err(WireError::TooLong { kind, bytes: body });
        }
        Ok((Self::decode(kind, scratch).ok_or(WireError::Head { kind })?, body))
    }

    fn decode(kind: u8, head: &[u8]) -> Option<Self> {
        let mut head = FieldReader(head);
        let reply = match kind {
            PUSHED => {
                Self::Pushed(PushAck { watermark: head.u64()?, pushes: head.u64()?, lead: head.u64()? })
            }
            PULLED => Self::Pulled { version: head.u64()?, pushes: head.u64()?, waited_us: head.u64()? },
            LENT => Self::Lent {
                version: head.u64()?,
                pushes: head.u64()?,
                waited_us: head.u64()?,
                round_version: head.u64()?,
                slot: head.u32()?,
            },
            PARAMETERS_LENT => {
                Self::ParametersLent(SlotShape { slot_bytes: head.u64()?, slots: head.u32()? })
            }
            GRADIENTS_TAKEN => Self::GradientsTaken,
            PULL_END => Self::PullEnd { round_version: head.u64()? },
            WAITING => Self::Waiting,
            NORM => Self::Norm { squares: f64::from_bits(head.u64()?) },
            PUSH_CURSOR => Self::PushCursor(PushCursor {
                watermark: head.u64()?,
                next_chunk: head.u32()?,
                pushes: head.u64()?,
            }),
            REPLICATED => Self::Replicated { number: head.u64()? },
            BLOB_LIST => Self::BlobList,
            CHECKPOINT_LIST => Self::CheckpointList,
            BLOB_STORED => Self::BlobStored,
            BLOB => Self::Blob { total: head.u64()? },
            BLOB_STAT => {
                let (known, bytes) = (head.bool()?, head.u64()?);
                Self::BlobStat { bytes: known.then_some(bytes) }
            }
            LOCAL_SOCKET => {
                let (known, path) = (head.bool()?, head.short_text()?);
                Self::LocalSocket { path: known.then(|| path.to_owned()) }
            }
            ECHO => Self::Echo,
            SHARED_MEMORY => Self::SharedMemory,
            FAULT => {
                let (fault, rest) = postcard::take_from_bytes(head.0).ok()?;
                head.0 = rest;
                Self::Fault(fault)
            }
            _ => return None,
        };
        head.finish(reply)
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Pushed(_) => PUSHED,
            Self::Pulled { .. } => PULLED,
            Self::Lent { .. } => LENT,
            Self::ParametersLent(_) => PARAMETERS_LENT,
            Self::GradientsTaken => GRADIENTS_TAKEN,
            Self::PullEnd { .. } => PULL_END,
            Self::Waiting => WAITING,
            Self::Norm { .. } => NORM,
            Self::PushCursor(_) => PUSH_CURSOR,
            Self::Replicated { .. } => REPLICATED,
            Self::BlobList => BLOB_LIST,
            Self::CheckpointList => CHECKPOINT_LIST,
            Self::BlobStored => BLOB_STORED,
            Self::Blob { .. } => BLOB,
            Self::BlobStat { .. } => BLOB_STAT,
            Self::LocalSocket { .. } => LOCAL_SOCKET,
            Self::Echo => ECHO,
            Self::SharedMemory => SHARED_MEMORY,
            Self::Fault(_) => FAULT,
        }
    }
}

/// A fault in its tarpc form; a text that does not fit into a head is shortened.
fn encode_fault(fault: &ShardFault) -> Vec<u8> {
    match postcard::to_stdvec(fault) {
        Ok(bytes) if bytes.len() <= MAX_HEAD_BYTES => bytes,
        _ => {
            let what: String = fault.to_string().chars().take(MAX_FAULT_TEXT_BYTES / 4).collect();
            postcard::to_stdvec(&ShardFault::Invalid { what }).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::seal_frame;
    use syncline_scheduler::ids::Incarnation;

    #[test]
    fn every_reply_reads_as_written_and_damage_is_refused() {
        let sealed = ShardFault::Sealed { job: "digits".parse().unwrap(), worker: Incarnation(3) };
        let all = [
            (Reply::Pushed(PushAck { watermark: 1, pushes: 2, lead: 3 }), 0),
            (Reply::Pulled { version: 1, pushes: 2, waited_us: 3 }, 64),
            (Reply::PullEnd { round_version: 1 }, 0),
            (Reply::Lent { version: 1, pushes: 2, waited_us: 3, round_version: 4, slot: 5 }, 0),
            (Reply::ParametersLent(SlotShape { slot_bytes: 65536, slots: 3 }), 0),
            (Reply::GradientsTaken, 0),
            (Reply::PushCursor(PushCursor { watermark: 5, next_chunk: 6, pushes: 7 }), 0),
            (Reply::Waiting, 0),
            (Reply::Norm { squares: 0.1 }, 0),
            (Reply::Replicated { number: 9 }, 0),
            (Reply::BlobList, 64),
            (Reply::Echo, 64),
            (Reply::CheckpointList, 64),
            (Reply::BlobStored, 0),
            (Reply::Blob { total: 100 }, 10),
            (Reply::BlobStat { bytes: None }, 0),
            (Reply::BlobStat { bytes: Some(3) }, 0),
            (Reply::LocalSocket { path: None }, 0),
            (Reply::LocalSocket { path: Some("/tmp/x.sock".into()) }, 0),
            (Reply::SharedMemory, 0),
            (Reply::Fault(sealed), 0),
        ];
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        for (reply, body) in all {
            reply.encode(body, &mut out);
            assert_eq!(Reply::read(&mut &out[..], &mut scratch).unwrap(), (reply.clone(), body));
            for cut in 0..out.len() {
                assert!(Reply::read(&mut &out[..cut], &mut scratch).is_err(), "{reply:?} cut at {cut}");
            }
            let mut huge = out.clone();
            huge[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
            seal_frame(&mut huge);
            assert!(matches!(Reply::read(&mut &huge[..], &mut scratch), Err(WireError::TooLong { .. })));
        }
    }

    #[test]
    fn an_endless_fault_text_is_cut() {
        let fault = ShardFault::Invalid { what: "ä".repeat(100_000) };
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        Reply::Fault(fault).encode(0, &mut out);
        assert!(matches!(
            Reply::read(&mut &out[..], &mut scratch),
            Ok((Reply::Fault(ShardFault::Invalid { .. }), 0))
        ));
    }
}
