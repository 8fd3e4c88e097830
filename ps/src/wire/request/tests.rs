//! Every question reads as written, and nothing else is read.

use syncline_scheduler::{
    ids::{ContentDigest, Generation, Incarnation, RunId},
    sync::PushMode,
};

use super::*;
use crate::{
    codec::Codec,
    shard::{CHUNK_ELEMENTS, PushHeader, ReadCondition},
    wire::seal_frame,
};

const DIGEST: ContentDigest = ContentDigest::from_bytes([7; 32]);

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
    let push =
        |header, codec| (Request::Push { session: session(), seq: 9, first_chunk: 3, header, codec }, 4096);
    vec![
        push(header, Codec::Plain),
        push(step, Codec::Bf16),
        push(step, Codec::Fp16),
        push(step, Codec::Int8),
        push(step, Codec::TopK { of_full_chunk: 656 }),
        (Request::Pull { session: session(), condition: ReadCondition::version(4), codec: Codec::Fp16 }, 0),
        (
            Request::Pull {
                session: session(),
                condition: ReadCondition::Version { closed: 4, min_clock: 9 },
                codec: Codec::Bf16,
            },
            0,
        ),
        (Request::Pull { session: session(), condition: ReadCondition::Pinned(4), codec: Codec::Plain }, 0),
        (Request::PushRows { session: session(), seq: 9, first_chunk: 3, header: step }, 4096),
        (Request::PullRows { session: session(), condition: ReadCondition::version(4) }, 24),
        (Request::PushInPlace { session: session(), seq: 9, first_chunk: 3, header: step }, 0),
        (Request::LendParameters { session: session() }, 0),
        (Request::TakeGradients { session: session() }, 0),
        (Request::Norm { session: session(), round: 7 }, 0),
        (Request::Replicate { session: session(), term: 8 }, 0),
        (Request::Echo, 64),
        (Request::ListBlobs { first: DIGEST }, 0),
        (Request::ListCheckpoints, 0),
        (Request::GetCheckpoint { session: session(), number: 7 }, 0),
        (Request::PushCursor { session: session() }, 0),
        (Request::PutBlob { digest: DIGEST }, 12),
        (Request::MirrorBlob { digest: DIGEST }, 12),
        (Request::PutValue { digest: DIGEST }, 12),
        (Request::GetBlob { digest: DIGEST, offset: 8, length: u64::MAX }, 0),
        (Request::StatBlob { digest: DIGEST }, 0),
        (Request::CheckBlob { digest: DIGEST }, 0),
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
        b"SL\x01\0\x1e\0\xe9\xbd\0\0\0\0\0\0\0\0\0\x06digits\x02\x11\x09\x03\0\0\x80\x3f\0\0\0\x40\0\0\0\x3f\
        \x01\x01\x05\x04\x81\x04";
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
    out[18..21].copy_from_slice(b"../");
    seal_frame(&mut out);
    assert!(matches!(Request::read(&mut &out[..], &mut scratch), Err(WireError::Head { .. })));
}
