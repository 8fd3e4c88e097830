//! Whatever somebody sends or leaves in a file is read or refused, and never more than that.

#[path = "support/hostile_bytes.rs"]
mod support;

use proptest::{collection::vec, prelude::*};
use syncline_ps::{
    codec::Codec,
    rows::Piece,
    shard::{PushAck, PushHeader, ReadCondition, StandbyOp},
    wire::{Reply, Request, SessionKey},
};
use syncline_scheduler::{
    ids::{ContentDigest, Generation, Incarnation, RunId},
    sync::PushMode,
};

const HEADER: PushHeader = PushHeader {
    learning_rate: 0.1,
    weight: 32.0,
    scale: 1.0,
    skip: false,
    mode: PushMode::Accumulate,
    covers: 1,
};

/// Frames as they should be, each behind the byte that says what it is.
fn well_formed() -> Vec<Vec<u8>> {
    let session = SessionKey {
        run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
        incarnation: Incarnation(7),
    };
    let codec = Codec::TopK { of_full_chunk: 3 };
    let requests = [
        Request::Push { session: session.clone(), seq: 3, first_chunk: 0, header: HEADER, codec },
        Request::Pull {
            session: session.clone(),
            condition: ReadCondition::Version { closed: 3, min_clock: 1 },
            codec,
        },
        Request::PushRows { session: session.clone(), seq: 3, first_chunk: 0, header: HEADER },
        Request::PullRows { session: session.clone(), condition: ReadCondition::version(1) },
        Request::Replicate { session, term: 1 },
        Request::GetBlob { digest: ContentDigest::from_bytes([7; 32]), offset: 1, length: 9 },
    ];
    let replies = [
        Reply::Pushed(PushAck { watermark: 1, pushes: 2, lead: 3 }),
        Reply::LocalSocket { path: Some("socket".to_owned()) },
        Reply::Blob { total: 8 },
    ];
    let mut frame = Vec::new();
    let mut frames = Vec::new();
    for request in requests {
        request.encode(24, &mut frame);
        frames.push([&[0], &frame[..]].concat());
    }
    for reply in replies {
        reply.encode(8, &mut frame);
        frames.push([&[1], &frame[..]].concat());
    }
    let (worker, piece) = (Incarnation(1), Piece { chunk: 1, start: 2, len: 1 });
    let (pieces, elements) = (vec![piece; 2], 2);
    let rows = StandbyOp::Rows { worker, seq: 2, header: HEADER, steps: 3, pieces, elements, share: 1.0 };
    for op in [StandbyOp::InStep, StandbyOp::Complete { worker, seq: 2, header: HEADER }, rows] {
        let mut frame = vec![2];
        op.entry().write(&mut frame).unwrap();
        frame.extend([0; 8]);
        frames.push(frame);
    }
    frames.push([[6, 0, 0, 0].as_slice(), &[2, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]].concat());
    frames.push([&[3, 16, 0, 0, 0, 0, 0, 0, 0], &b"{\"__metadata__\":{}}"[..]].concat());
    frames.push([&[4], &b"SLCKP\0\0\x02\x20\0\0\0\0\0\0\0"[..], &[1; 64]].concat());
    frames.push([&[5, 4, 0, 0], &[0x3f; 16][..]].concat());
    frames
}

proptest! {
    #[test]
    fn frames_that_were_changed_anywhere_are_read_or_refused(
        which in any::<prop::sample::Index>(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(), keep in any::<bool>()
    ) {
        let frames = well_formed();
        let mut bytes = frames[which.index(frames.len())].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(if keep { bytes.len() } else { cut.index(bytes.len()) });
        support::read(&bytes);
    }

    #[test]
    fn bytes_that_mean_nothing_are_refused(bytes in vec(any::<u8>(), 0..200)) {
        support::read(&bytes);
    }
}
