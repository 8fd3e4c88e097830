//! What a shard answers on a tensor connection.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use syncline_rpc::ShardFault;

use super::{
    ECHO_BYTES, MAX_HEAD_BYTES, MAX_TENSOR_BYTES, WireError,
    frame::FRAME_BYTES,
    message::{self, Message},
};
use crate::shard::{PushAck, PushCursor, SlotShape};

/// Longest text of a fault that travels; the rest is cut off.
const MAX_FAULT_TEXT_BYTES: usize = 4096;

/// One answer. The length of the body that follows travels in the frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
        /// Newest version that the mean of a round went into, 0 for a pinned one. If it is newer than what
        /// was pulled, the values are a mixture and must be pulled again.
        round_version: u64,
    },
    /// The pull that was asked for still waits. Sent every second, so that both sides notice when the other
    /// is gone.
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

impl Message for Reply {
    const KIND: u8 = 2;

    fn body_limit(&self) -> u64 {
        match self {
            Self::Pulled { .. } | Self::Blob { .. } | Self::BlobList | Self::CheckpointList => {
                MAX_TENSOR_BYTES
            }
            Self::Echo => ECHO_BYTES,
            Self::Pushed(_)
            | Self::Lent { .. }
            | Self::PullEnd { .. }
            | Self::Waiting
            | Self::Norm { .. }
            | Self::PushCursor(_)
            | Self::Replicated { .. }
            | Self::BlobStored
            | Self::BlobStat { .. }
            | Self::LocalSocket { .. }
            | Self::ParametersLent(_)
            | Self::GradientsTaken
            | Self::SharedMemory
            | Self::Fault(_) => 0,
        }
    }
}

impl Reply {
    /// Writes the frame into `out`, whose old content is dropped. `body`: bytes that will follow. The text of
    /// a fault that does not fit into a head is shortened.
    pub fn encode(&self, body: u64, out: &mut Vec<u8>) {
        message::encode(self, body, out);
        if let (Self::Fault(fault), true) = (self, out.len() > FRAME_BYTES + MAX_HEAD_BYTES) {
            let what: String = fault.to_string().chars().take(MAX_FAULT_TEXT_BYTES / 4).collect();
            message::encode(&Self::Fault(ShardFault::Invalid { what }), body, out);
        }
    }

    /// Reads the next answer and the length of its body. A peer that hangs up here broke off.
    pub fn read(from: &mut impl Read, scratch: &mut Vec<u8>) -> Result<(Self, u64), WireError> {
        message::read(from, scratch)?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof).into())
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
