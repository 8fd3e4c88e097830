//! Questions as bytes: a head of fields for each kind, and how many bytes may follow it.

use std::io::Read;

use super::{
    WireError,
    fields::{FieldReader, FieldWriter},
    frame::{self, Frame},
    request::{ECHO_BYTES, MAX_BLOB_BYTES, MAX_TENSOR_BYTES, Request},
    request_fields::{SessionKey, put_codec, put_condition, put_push, take_codec, take_condition, take_push},
};

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
const PULL_ROWS: u8 = 13;
const PUSH_ROWS: u8 = 14;
const PUSH_IN_PLACE: u8 = 15;
const LEND_PARAMETERS: u8 = 16;
const TAKE_GRADIENTS: u8 = 17;
const LIST_CHECKPOINTS: u8 = 18;
const GET_CHECKPOINT: u8 = 19;
const ECHO: u8 = 20;

impl Request {
    /// Writes the frame into `out`, whose old content is dropped. `body`: bytes that will follow.
    pub fn encode(&self, body: u64, out: &mut Vec<u8>) {
        frame::encode(out, self.kind(), body, |head| {
            let head = FieldWriter(head);
            match self {
                Self::Push { session, seq, first_chunk, header, codec } => {
                    put_codec(*codec, put_push(session.put(head), *seq, *first_chunk, header))
                }
                Self::PushRows { session, seq, first_chunk, header }
                | Self::PushInPlace { session, seq, first_chunk, header } => {
                    put_push(session.put(head), *seq, *first_chunk, header)
                }
                Self::Pull { session, condition, codec } => {
                    put_codec(*codec, put_condition(session.put(head), *condition))
                }
                Self::PullRows { session, condition } => put_condition(session.put(head), *condition),
                Self::Norm { session, round } => session.put(head).u64(*round),
                Self::Replicate { session, term } => session.put(head).u64(*term),
                Self::PushCursor { session }
                | Self::LendParameters { session }
                | Self::TakeGradients { session } => session.put(head),
                Self::PutBlob { digest }
                | Self::PutValue { digest }
                | Self::StatBlob { digest }
                | Self::ListBlobs { first: digest } => head.bytes(digest),
                Self::GetBlob { digest, offset, length } => head.bytes(digest).u64(*offset).u64(*length),
                Self::LocalSocket | Self::ListCheckpoints | Self::Echo => head,
                Self::GetCheckpoint { session, number } => session.put(head).u64(*number),
                Self::ShareMemory { bytes } => head.u64(*bytes),
            };
        });
    }

    /// Reads the next question and the length of its body; `None` if the caller hung up.
    pub fn read(from: &mut impl Read, scratch: &mut Vec<u8>) -> Result<Option<(Self, u64)>, WireError> {
        let Some(Frame { kind, body, .. }) = Frame::read(from, scratch)? else { return Ok(None) };
        let bound = match kind {
            PUSH | PUSH_ROWS | PULL_ROWS => MAX_TENSOR_BYTES,
            PUT_BLOB | PUT_VALUE => MAX_BLOB_BYTES,
            ECHO => ECHO_BYTES,
            PULL | NORM | PUSH_CURSOR | GET_BLOB | STAT_BLOB | LOCAL_SOCKET | SHARE_MEMORY | REPLICATE
            | LIST_BLOBS | LIST_CHECKPOINTS | GET_CHECKPOINT | PUSH_IN_PLACE | LEND_PARAMETERS
            | TAKE_GRADIENTS => 0,
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
                let session = SessionKey::take(&mut head)?;
                let (seq, first_chunk, header) = take_push(&mut head)?;
                Self::Push { session, seq, first_chunk, header, codec: take_codec(&mut head)? }
            }
            PUSH_ROWS => {
                let session = SessionKey::take(&mut head)?;
                let (seq, first_chunk, header) = take_push(&mut head)?;
                Self::PushRows { session, seq, first_chunk, header }
            }
            PUSH_IN_PLACE => {
                let session = SessionKey::take(&mut head)?;
                let (seq, first_chunk, header) = take_push(&mut head)?;
                Self::PushInPlace { session, seq, first_chunk, header }
            }
            LEND_PARAMETERS => Self::LendParameters { session: SessionKey::take(&mut head)? },
            TAKE_GRADIENTS => Self::TakeGradients { session: SessionKey::take(&mut head)? },
            PULL => Self::Pull {
                session: SessionKey::take(&mut head)?,
                condition: take_condition(&mut head)?,
                codec: take_codec(&mut head)?,
            },
            PULL_ROWS => Self::PullRows {
                session: SessionKey::take(&mut head)?,
                condition: take_condition(&mut head)?,
            },
            NORM => Self::Norm { session: SessionKey::take(&mut head)?, round: head.u64()? },
            REPLICATE => Self::Replicate { session: SessionKey::take(&mut head)?, term: head.u64()? },
            LIST_BLOBS => Self::ListBlobs { first: head.array()? },
            LIST_CHECKPOINTS => Self::ListCheckpoints,
            GET_CHECKPOINT => {
                Self::GetCheckpoint { session: SessionKey::take(&mut head)?, number: head.u64()? }
            }
            PUSH_CURSOR => Self::PushCursor { session: SessionKey::take(&mut head)? },
            PUT_BLOB => Self::PutBlob { digest: head.array()? },
            PUT_VALUE => Self::PutValue { digest: head.array()? },
            GET_BLOB => Self::GetBlob { digest: head.array()?, offset: head.u64()?, length: head.u64()? },
            STAT_BLOB => Self::StatBlob { digest: head.array()? },
            ECHO => Self::Echo,
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
            Self::PushRows { .. } => PUSH_ROWS,
            Self::PullRows { .. } => PULL_ROWS,
            Self::PushInPlace { .. } => PUSH_IN_PLACE,
            Self::LendParameters { .. } => LEND_PARAMETERS,
            Self::TakeGradients { .. } => TAKE_GRADIENTS,
            Self::Norm { .. } => NORM,
            Self::PushCursor { .. } => PUSH_CURSOR,
            Self::Replicate { .. } => REPLICATE,
            Self::ListBlobs { .. } => LIST_BLOBS,
            Self::ListCheckpoints => LIST_CHECKPOINTS,
            Self::GetCheckpoint { .. } => GET_CHECKPOINT,
            Self::PutBlob { .. } => PUT_BLOB,
            Self::PutValue { .. } => PUT_VALUE,
            Self::GetBlob { .. } => GET_BLOB,
            Self::StatBlob { .. } => STAT_BLOB,
            Self::Echo => ECHO,
            Self::LocalSocket => LOCAL_SOCKET,
            Self::ShareMemory { .. } => SHARE_MEMORY,
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        ids::{Generation, Incarnation, RunId},
        sync::PushMode,
    };

    use super::*;
    use crate::{
        codec::Codec,
        shard::{CHUNK_ELEMENTS, PushHeader, ReadCondition},
        wire::seal_frame,
    };

    fn session() -> SessionKey {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(2) };
        SessionKey { run, incarnation: Incarnation(17) }
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
            (
                Request::Pull {
                    session: session(),
                    condition: ReadCondition::version(4),
                    codec: Codec::Fp16,
                },
                0,
            ),
            (
                Request::Pull {
                    session: session(),
                    condition: ReadCondition::Version { closed: 4, min_clock: 9 },
                    codec: Codec::Bf16,
                },
                0,
            ),
            (
                Request::Pull {
                    session: session(),
                    condition: ReadCondition::Pinned(4),
                    codec: Codec::Plain,
                },
                0,
            ),
            (Request::PushRows { session: session(), seq: 9, first_chunk: 3, header: step }, 4096),
            (Request::PullRows { session: session(), condition: ReadCondition::version(4) }, 24),
            (Request::PushInPlace { session: session(), seq: 9, first_chunk: 3, header: step }, 0),
            (Request::LendParameters { session: session() }, 0),
            (Request::TakeGradients { session: session() }, 0),
            (Request::Norm { session: session(), round: 7 }, 0),
            (Request::Replicate { session: session(), term: 8 }, 0),
            (Request::Echo, 64),
            (Request::ListBlobs { first: [7; 32] }, 0),
            (Request::ListCheckpoints, 0),
            (Request::GetCheckpoint { session: session(), number: 7 }, 0),
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
            b"SL\x01\0\x3a\0\x67\x31\0\0\0\0\0\0\0\0\x06digits\x02\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\
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
        seal_frame(&mut out);
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
            seal_frame(&mut long);
            assert!(matches!(Request::read(&mut &long[..], &mut scratch), Err(WireError::Head { .. })));
            let mut huge = out.clone();
            huge[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
            seal_frame(&mut huge);
            assert!(matches!(Request::read(&mut &huge[..], &mut scratch), Err(WireError::TooLong { .. })));
            let mut strange = out.clone();
            strange[2] = 200;
            seal_frame(&mut strange);
            assert!(matches!(Request::read(&mut &strange[..], &mut scratch), Err(WireError::Kind(200))));
        }
    }

    #[test]
    fn a_job_name_that_could_be_a_path_is_refused() {
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        Request::PushCursor { session: session() }.encode(0, &mut out);
        out[17..20].copy_from_slice(b"../");
        seal_frame(&mut out);
        assert!(matches!(Request::read(&mut &out[..], &mut scratch), Err(WireError::Head { .. })));
    }
}
