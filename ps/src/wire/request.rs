//! What callers ask on a tensor connection.

#[cfg(test)]
mod tests;

use std::io::Read;

use serde::{Deserialize, Serialize};
use syncline_scheduler::{
    ids::{ContentDigest, Incarnation, RunId},
    spec::MAX_ELEMENTS,
};

use super::{
    WireError,
    message::{self, Message},
    raw_digest,
};
use crate::{
    codec::Codec,
    shard::{PushHeader, ReadCondition},
};

/// Most bytes that one push or pull may carry.
pub const MAX_TENSOR_BYTES: u64 = MAX_ELEMENTS * 4;
/// Largest blob: the initial parameters of the largest model.
pub const MAX_BLOB_BYTES: u64 = MAX_TENSOR_BYTES;
/// Most blobs of one list, 32 MiB of digests.
pub const BLOBS_PER_LIST: usize = 1 << 20;

/// Most bytes that are sent and come back to try a path.
pub const ECHO_BYTES: u64 = 64 << 10;

/// One incarnation of a worker in one run of a job: whose parameters are meant, and who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionKey {
    /// Whose parameters are meant, as the caller knows them: those of another run are a fault.
    pub run: RunId,
    /// The worker that asks; where shards ask each other, one that no worker has.
    pub incarnation: Incarnation,
}

/// One question. The length of the body that follows travels in the frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Body: the gradient of the shard's range from chunk `first_chunk` on, as `codec` writes it; none if
    /// `header.skip`.
    Push {
        /// Whose push it is, and to which parameters.
        session: SessionKey,
        /// Number of the push among the worker's: of the last iteration that it stands for.
        seq: u64,
        /// First chunk of the shard's range that comes; not 0 where a push that was cut off goes on.
        first_chunk: u32,
        /// Rate, weight, scale and mode of the push.
        header: PushHeader,
        /// How each chunk of the body is encoded.
        codec: Codec,
    },
    /// The same of a job with tables. Body: the rows of the batch, as
    /// [`RowSelection`](crate::rows::RowSelection) writes them, then the selected part of the gradient
    /// from chunk `first_chunk` on, as f32.
    PushRows {
        /// Whose push it is, and to which parameters.
        session: SessionKey,
        /// Number of the push among the worker's: of the last iteration that it stands for.
        seq: u64,
        /// First chunk of the shard's range that comes; not 0 where a push that was cut off goes on.
        first_chunk: u32,
        /// Rate, weight, scale and mode of the push.
        header: PushHeader,
    },
    /// What is selected of the shard's range, as soon as `condition` can be served. Body: the rows.
    PullRows {
        /// Who pulls, and which parameters.
        session: SessionKey,
        /// What must have happened before the answer.
        condition: ReadCondition,
    },
    /// Values of the shard's range, as soon as `condition` can be served.
    Pull {
        /// Who pulls, and which parameters.
        session: SessionKey,
        /// What must have happened before the answer.
        condition: ReadCondition,
        /// How they are to travel, where the shard does not lend them.
        codec: Codec,
    },
    /// A push without a body: the gradient lies where the caller has given it, see
    /// [`Request::TakeGradients`].
    PushInPlace {
        /// Whose push it is, and to which parameters.
        session: SessionKey,
        /// Number of the push among the worker's: of the last iteration that it stands for.
        seq: u64,
        /// First chunk of the shard's range that it is to apply.
        first_chunk: u32,
        /// Rate, weight, scale and mode of the push.
        header: PushHeader,
    },
    /// Between shards: the sum of squares of the round that barrier `round` ends, as soon as it is known.
    Norm {
        /// The job and its generation; the incarnation says nothing.
        session: SessionKey,
        /// Superstep whose barrier ends the round.
        round: u64,
    },
    /// From the process that serves a shard to the one that follows it: a copy of the job comes behind this,
    /// and then every change of it, each answered with how far the follower is.
    Replicate {
        /// The job and its generation; the incarnation says nothing.
        session: SessionKey,
        /// Term under which the caller takes the other to follow it.
        term: u64,
    },
    /// How far pushes of this incarnation have come.
    PushCursor {
        /// Whose pushes, and to which parameters.
        session: SessionKey,
    },
    /// Body: the blob.
    PutBlob {
        /// BLAKE3 that the body must have.
        #[serde(with = "raw_digest")]
        digest: ContentDigest,
    },
    /// The same, from the process that serves a shard to the one that follows it.
    MirrorBlob {
        /// BLAKE3 that the body must have.
        #[serde(with = "raw_digest")]
        digest: ContentDigest,
    },
    /// Body: a blob that holds the value of a task. It is answered as soon as the system has it, and on disk
    /// a little later.
    PutValue {
        /// BLAKE3 that the body must have.
        #[serde(with = "raw_digest")]
        digest: ContentDigest,
    },
    /// `length` bytes from `offset` on; fewer at the blob's end.
    GetBlob {
        /// BLAKE3 of the whole blob.
        #[serde(with = "raw_digest")]
        digest: ContentDigest,
        /// First byte that is wanted, from 0.
        offset: u64,
        /// How many bytes are wanted.
        length: u64,
    },
    /// Whether the blob is kept here, and its size.
    StatBlob {
        /// BLAKE3 of the blob.
        #[serde(with = "raw_digest")]
        digest: ContentDigest,
    },
    /// The same, of a blob that is read as a whole first: one that is damaged is removed, and is not here.
    CheckBlob {
        /// BLAKE3 of the blob.
        #[serde(with = "raw_digest")]
        digest: ContentDigest,
    },
    /// Digests of blobs that are kept here, in no order: the lowest from `first` on, at most
    /// [`BLOBS_PER_LIST`](super::BLOBS_PER_LIST). Where the answer is as long as that there may be more.
    ListBlobs {
        /// Lowest digest that is wanted.
        #[serde(with = "raw_digest")]
        first: ContentDigest,
    },
    /// All parts of checkpoints that are on disk here.
    ListCheckpoints,
    /// The whole of one.
    GetCheckpoint {
        /// Whose it is; the incarnation says nothing.
        session: SessionKey,
        /// Number of the checkpoint.
        number: u64,
    },
    /// Body: what comes back, at most [`ECHO_BYTES`].
    Echo,
    /// Where callers on the same machine are served.
    LocalSocket,
    /// Over a unix socket: lend the parameters of a job. From here on pulls may be answered with
    /// [`Reply::Lent`].
    ///
    /// [`Reply::Lent`]: super::Reply::Lent
    LendParameters {
        /// Who is to read them, and which parameters.
        session: SessionKey,
    },
    /// Over a unix socket: the descriptor of memory follows, in which the caller has its gradients for the
    /// whole job.
    TakeGradients {
        /// Whose gradients, and of which parameters.
        session: SessionKey,
    },
    /// Over a unix socket: go on in shared memory, for messages of about so many bytes.
    ShareMemory {
        /// Usual length of a message, by which the rings are sized.
        bytes: u64,
    },
}

impl Message for Request {
    const KIND: u8 = 1;

    fn body_limit(&self) -> u64 {
        match self {
            Self::Push { .. } | Self::PushRows { .. } | Self::PullRows { .. } => MAX_TENSOR_BYTES,
            Self::PutBlob { .. } | Self::MirrorBlob { .. } | Self::PutValue { .. } => MAX_BLOB_BYTES,
            Self::Echo => ECHO_BYTES,
            Self::Pull { .. }
            | Self::PushInPlace { .. }
            | Self::Norm { .. }
            | Self::Replicate { .. }
            | Self::PushCursor { .. }
            | Self::GetBlob { .. }
            | Self::StatBlob { .. }
            | Self::CheckBlob { .. }
            | Self::ListBlobs { .. }
            | Self::ListCheckpoints
            | Self::GetCheckpoint { .. }
            | Self::LocalSocket
            | Self::LendParameters { .. }
            | Self::TakeGradients { .. }
            | Self::ShareMemory { .. } => 0,
        }
    }
}

impl Request {
    /// Writes the frame into `out`, whose old content is dropped. `body`: bytes that will follow.
    pub fn encode(&self, body: u64, out: &mut Vec<u8>) {
        message::encode(self, body, out);
    }

    /// Reads the next question and the length of its body; `None` if the caller hung up.
    pub fn read(from: &mut impl Read, scratch: &mut Vec<u8>) -> Result<Option<(Self, u64)>, WireError> {
        message::read(from, scratch)
    }

    /// Whether only the process that serves a shard may answer it, not the one that follows.
    pub fn needs_the_one_that_serves(&self) -> bool {
        matches!(
            self,
            Self::Push { .. }
                | Self::Pull { .. }
                | Self::PushRows { .. }
                | Self::PushInPlace { .. }
                | Self::LendParameters { .. }
                | Self::TakeGradients { .. }
                | Self::PullRows { .. }
                | Self::Norm { .. }
                | Self::PushCursor { .. }
                // What the one that follows took, the other one would not get.
                | Self::PutBlob { .. }
                | Self::PutValue { .. }
        )
    }

    /// Whose parameters, or what becomes of them, it is about.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Self::Push { session, .. }
            | Self::Pull { session, .. }
            | Self::PushRows { session, .. }
            | Self::PushInPlace { session, .. }
            | Self::LendParameters { session }
            | Self::TakeGradients { session }
            | Self::PullRows { session, .. }
            | Self::Norm { session, .. }
            | Self::PushCursor { session } => Some(&session.run),
            _ => None,
        }
    }

    /// Whether the caller reads no more what it was lent.
    pub fn gives_back_parameters(&self) -> bool {
        matches!(self, Self::Push { .. } | Self::PushInPlace { .. } | Self::Pull { .. })
    }
}
