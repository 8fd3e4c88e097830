//! What callers ask on a tensor connection.

use std::io::Read;

use syncline_scheduler::{
    ids::{Generation, Incarnation, JobId},
    spec::MAX_ELEMENTS,
    sync::PushMode,
};

use super::{
    WireError,
    fields::{FieldReader, FieldWriter},
    frame::{self, Frame},
};
use crate::{
    codec::Codec,
    shard::{CHUNK_ELEMENTS, PushHeader, ReadCondition},
};

/// Most bytes that one push or pull may carry.
pub const MAX_TENSOR_BYTES: u64 = MAX_ELEMENTS * 4;
/// Largest blob: the initial parameters of the largest model.
pub const MAX_BLOB_BYTES: u64 = MAX_TENSOR_BYTES;

/// BLAKE3 of a blob.
pub type Digest = [u8; blake3::OUT_LEN];

/// One incarnation of a worker in one generation of a job: whose parameters are meant, and who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKey {
    pub job: JobId,
    pub generation: Generation,
    pub incarnation: Incarnation,
}

/// One question. The length of the body that follows travels in the frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Body: the gradient of the shard's range from chunk `first_chunk` on, as `codec` writes it; none if `header.skip`.
    Push { session: SessionKey, seq: u64, first_chunk: u32, header: PushHeader, codec: Codec },
    /// Values of the shard's range, as soon as `condition` can be served.
    Pull { session: SessionKey, condition: ReadCondition },
    /// Between shards: the sum of squares of the round that barrier `round` ends, as soon as it is known.
    Norm { session: SessionKey, round: u64 },
    /// From the process that serves a shard to the one that follows it: a copy of the job comes behind this, and then every
    /// change of it, each answered with how far the follower is.
    Replicate { session: SessionKey, term: u64 },
    /// How far pushes of this incarnation have come.
    PushCursor { session: SessionKey },
    /// Body: the blob.
    PutBlob { digest: Digest },
    /// Body: a blob that holds the value of a task. It is answered as soon as the system has it, and on disk a little later.
    PutValue { digest: Digest },
    /// `length` bytes from `offset` on; fewer at the blob's end.
    GetBlob { digest: Digest, offset: u64, length: u64 },
    /// Whether the blob is kept here, and its size.
    StatBlob { digest: Digest },
    /// Digests of all blobs that are kept here.
    ListBlobs,
    /// Where callers on the same machine are served.
    LocalSocket,
    /// Over a unix socket: go on in shared memory, for messages of about so many bytes.
    ShareMemory { bytes: u64 },
}

const PUSH: u8 = 1;
const PULL: u8 = 2;
const PUSH_CURSOR: u8 = 3;
const PUT_BLOB: u8 = 4;
const GET_BLOB: u8 = 5;
const STAT_BLOB: u8 = 6;
const NORM: u8 = 7;
const PUT_VALUE: u8 = 8;
const LOCAL_SOCKET: u8 = 9;
const SHARE_MEMORY: u8 = 10;
const REPLICATE: u8 = 11;
const LIST_BLOBS: u8 = 12;

impl Request {
    /// Writes the frame into `out`, whose old content is dropped. `body`: bytes that will follow.
    pub fn encode(&self, body: u64, out: &mut Vec<u8>) {
        frame::encode(out, self.kind(), body, |head| {
            let head = FieldWriter(head);
            match self {
                Self::Push { session, seq, first_chunk, header, codec } => {
                    let head = session.put(head).u64(*seq).u32(*first_chunk).f32(header.learning_rate);
                    let head = head.f32(header.weight).f32(header.scale).u8(header.skip.into());
                    let joins_round = header.mode == PushMode::Accumulate;
                    put_codec(*codec, head.u8(joins_round.into()).u32(header.covers))
                }
                Self::Pull { session, condition } => {
                    let head = session.put(head);
                    match *condition {
                        ReadCondition::Version { closed, min_clock } => head.u8(0).u64(closed).u64(min_clock),
                        ReadCondition::Pinned(version) => head.u8(1).u64(version),
                    }
                }
                Self::Norm { session, round } => session.put(head).u64(*round),
                Self::Replicate { session, term } => session.put(head).u64(*term),
                Self::PushCursor { session } => session.put(head),
                Self::PutBlob { digest } | Self::PutValue { digest } | Self::StatBlob { digest } => {
                    head.bytes(digest)
                }
                Self::GetBlob { digest, offset, length } => head.bytes(digest).u64(*offset).u64(*length),
                Self::LocalSocket | Self::ListBlobs => head,
                Self::ShareMemory { bytes } => head.u64(*bytes),
            };
        });
    }

    /// Reads the next question and the length of its body; `None` if the caller hung up.
    pub fn read(from: &mut impl Read, scratch: &mut Vec<u8>) -> Result<Option<(Self, u64)>, WireError> {
        let Some(Frame { kind, body, .. }) = Frame::read(from, scratch)? else { return Ok(None) };
        let bound = match kind {
            PUSH => MAX_TENSOR_BYTES,
            PUT_BLOB | PUT_VALUE => MAX_BLOB_BYTES,
            PULL | NORM | PUSH_CURSOR | GET_BLOB | STAT_BLOB | LOCAL_SOCKET | SHARE_MEMORY | REPLICATE
            | LIST_BLOBS => 0,
            _ => return Err(WireError::Kind(kind)),
        };
        if body > bound {
            return Err(WireError::TooLong { kind, bytes: body });
        }
        let request = Self::decode(kind, scratch).ok_or(WireError::Head { kind })?;
        Ok(Some((request, body)))
    }

    fn decode(kind: u8, head: &[u8]) -> Option<Self> {
        let mut head = FieldReader(head);
        let request = match kind {
            PUSH => {
                let (session, seq, first_chunk) = (SessionKey::take(&mut head)?, head.u64()?, head.u32()?);
                let (learning_rate, weight, scale) = (head.f32()?, head.f32()?, head.f32()?);
                let skip = head.bool()?;
                let mode = if head.bool()? { PushMode::Accumulate } else { PushMode::Apply };
                let header = PushHeader { learning_rate, weight, scale, skip, mode, covers: head.u32()? };
                Self::Push { session, seq, first_chunk, header, codec: take_codec(&mut head)? }
            }
            PULL => {
                let (session, pinned, version) = (SessionKey::take(&mut head)?, head.bool()?, head.u64()?);
                let condition = if pinned {
                    ReadCondition::Pinned(version)
                } else {
                    ReadCondition::Version { closed: version, min_clock: head.u64()? }
                };
                Self::Pull { session, condition }
            }
            NORM => Self::Norm { session: SessionKey::take(&mut head)?, round: head.u64()? },
            REPLICATE => Self::Replicate { session: SessionKey::take(&mut head)?, term: head.u64()? },
            LIST_BLOBS => Self::ListBlobs,
            PUSH_CURSOR => Self::PushCursor { session: SessionKey::take(&mut head)? },
            PUT_BLOB => Self::PutBlob { digest: head.array()? },
            PUT_VALUE => Self::PutValue { digest: head.array()? },
            GET_BLOB => Self::GetBlob { digest: head.array()?, offset: head.u64()?, length: head.u64()? },
            STAT_BLOB => Self::StatBlob { digest: head.array()? },
            LOCAL_SOCKET => Self::LocalSocket,
            SHARE_MEMORY => Self::ShareMemory { bytes: head.u64()? },
            _ => return None,
        };
        head.finish(request)
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Push { .. } => PUSH,
            Self::Pull { .. } => PULL,
            Self::Norm { .. } => NORM,
            Self::PushCursor { .. } => PUSH_CURSOR,
            Self::Replicate { .. } => REPLICATE,
            Self::ListBlobs => LIST_BLOBS,
            Self::PutBlob { .. } => PUT_BLOB,
            Self::PutValue { .. } => PUT_VALUE,
            Self::GetBlob { .. } => GET_BLOB,
            Self::StatBlob { .. } => STAT_BLOB,
            Self::LocalSocket => LOCAL_SOCKET,
            Self::ShareMemory { .. } => SHARE_MEMORY,
        }
    }
}

const PLAIN: u8 = 0;
const BF16: u8 = 1;
const FP16: u8 = 2;
const INT8: u8 = 3;
const TOP_K: u8 = 4;

fn put_codec(codec: Codec, head: FieldWriter<'_>) -> FieldWriter<'_> {
    match codec {
        Codec::Plain => head.u8(PLAIN),
        Codec::Bf16 => head.u8(BF16),
        Codec::Fp16 => head.u8(FP16),
        Codec::Int8 => head.u8(INT8),
        Codec::TopK { of_full_chunk } => head.u8(TOP_K).u32(of_full_chunk),
    }
}

fn take_codec(head: &mut FieldReader<'_>) -> Option<Codec> {
    Some(match head.u8()? {
        PLAIN => Codec::Plain,
        BF16 => Codec::Bf16,
        FP16 => Codec::Fp16,
        INT8 => Codec::Int8,
        TOP_K => Codec::TopK {
            of_full_chunk: head.u32().filter(|kept| (1..=CHUNK_ELEMENTS as u32).contains(kept))?,
        },
        _ => return None,
    })
}

impl SessionKey {
    fn put<'a>(&self, head: FieldWriter<'a>) -> FieldWriter<'a> {
        head.short_text(self.job.as_str()).u64(self.generation.0).u64(self.incarnation.0)
    }

    fn take(head: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self {
            job: head.short_text()?.parse().ok()?,
            generation: Generation(head.u64()?),
            incarnation: Incarnation(head.u64()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionKey {
        SessionKey { job: "digits".parse().unwrap(), generation: Generation(2), incarnation: Incarnation(17) }
    }

    fn all() -> Vec<(Request, u64)> {
        let header = PushHeader {
            learning_rate: 0.1,
            weight: 32.0,
            scale: 0.5,
            skip: false,
            mode: PushMode::Accumulate,
            covers: 4,
        };
        let step = PushHeader { mode: PushMode::Apply, ..header };
        let push = |header, codec| {
            (Request::Push { session: session(), seq: 9, first_chunk: 3, header, codec }, 4096)
        };
        vec![
            push(header, Codec::Plain),
            push(step, Codec::Bf16),
            push(step, Codec::Fp16),
            push(step, Codec::Int8),
            push(step, Codec::TopK { of_full_chunk: 656 }),
            (Request::Pull { session: session(), condition: ReadCondition::version(4) }, 0),
            (
                Request::Pull {
                    session: session(),
                    condition: ReadCondition::Version { closed: 4, min_clock: 9 },
                },
                0,
            ),
            (Request::Pull { session: session(), condition: ReadCondition::Pinned(4) }, 0),
            (Request::Norm { session: session(), round: 7 }, 0),
            (Request::Replicate { session: session(), term: 8 }, 0),
            (Request::ListBlobs, 0),
            (Request::PushCursor { session: session() }, 0),
            (Request::PutBlob { digest: [7; 32] }, 12),
            (Request::PutValue { digest: [7; 32] }, 12),
            (Request::GetBlob { digest: [7; 32], offset: 8, length: u64::MAX }, 0),
            (Request::StatBlob { digest: [7; 32] }, 0),
        ]
    }

    #[test]
    fn every_request_reads_as_written() {
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        for (request, body) in all() {
            request.encode(body, &mut out);
            let read = Request::read(&mut &out[..], &mut scratch).unwrap();
            assert_eq!(read, Some((request, body)));
        }
    }

    #[test]
    fn the_bytes_of_a_push_are_fixed() {
        let mode = PushMode::Accumulate;
        let header = PushHeader { learning_rate: 1.0, weight: 2.0, scale: 0.5, skip: true, mode, covers: 5 };
        let mut out = Vec::new();
        let codec = Codec::TopK { of_full_chunk: 0x0201 };
        Request::Push { session: session(), seq: 9, first_chunk: 3, header, codec }.encode(0, &mut out);
        let want =
            b"SL\x01\0\x3a\0\0\0\0\0\0\0\0\0\0\0\x06digits\x02\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\
            \x03\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\0\x3f\x01\x01\x05\0\0\0\x04\x01\x02\0\0";
        assert_eq!(out, want);
    }

    #[test]
    fn a_codec_that_does_not_exist_or_keeps_what_no_chunk_has_is_refused() {
        let header = PushHeader {
            learning_rate: 1.0,
            weight: 2.0,
            scale: 0.5,
            skip: true,
            mode: PushMode::Apply,
            covers: 5,
        };
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        for of_full_chunk in [0, CHUNK_ELEMENTS as u32 + 1, u32::MAX] {
            let codec = Codec::TopK { of_full_chunk };
            Request::Push { session: session(), seq: 9, first_chunk: 3, header, codec }.encode(0, &mut out);
            assert!(matches!(Request::read(&mut &out[..], &mut scratch), Err(WireError::Head { .. })));
        }
        let codec = Codec::Int8;
        Request::Push { session: session(), seq: 9, first_chunk: 3, header, codec }.encode(0, &mut out);
        *out.last_mut().unwrap() = 5;
        assert!(matches!(Request::read(&mut &out[..], &mut scratch), Err(WireError::Head { .. })));
    }

    #[test]
    fn damage_is_refused_wherever_it_sits() {
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        for (request, body) in all() {
            request.encode(body, &mut out);
            for cut in 1..out.len() {
                assert!(Request::read(&mut &out[..cut], &mut scratch).is_err(), "{request:?} cut at {cut}");
            }
            // One byte too many in the head, told or not.
            let mut long = out.clone();
            long.push(0);
            long[4] += 1;
            assert!(matches!(Request::read(&mut &long[..], &mut scratch), Err(WireError::Head { .. })));
            let mut huge = out.clone();
            huge[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
            assert!(matches!(Request::read(&mut &huge[..], &mut scratch), Err(WireError::TooLong { .. })));
            let mut strange = out.clone();
            strange[2] = 200;
            assert!(matches!(Request::read(&mut &strange[..], &mut scratch), Err(WireError::Kind(200))));
        }
    }

    #[test]
    fn a_job_name_that_could_be_a_path_is_refused() {
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        Request::PushCursor { session: session() }.encode(0, &mut out);
        out[17..20].copy_from_slice(b"../");
        assert!(matches!(Request::read(&mut &out[..], &mut scratch), Err(WireError::Head { .. })));
    }
}
