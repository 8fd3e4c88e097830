//! Bytes that no primary sends.

use syncline_scheduler::{ids::Incarnation, sync::PushMode};

use super::rig::{header, job, job_with_table};
use crate::{
    rows::Piece,
    shard::{CHUNK_ELEMENTS, StandbyOp, read_op},
};

#[test]
fn bytes_that_are_no_change_are_refused() {
    let mut chunk = vec![0.0; CHUNK_ELEMENTS];
    let mut entry = Vec::new();
    let op = StandbyOp::Chunk {
        worker: Incarnation(1),
        seq: 1,
        index: 0,
        header: header(PushMode::Apply),
        elements: CHUNK_ELEMENTS as u32 + 1,
        share: 1.0,
    };
    op.entry().write(&mut entry).unwrap();
    for bytes in [&entry[..], &[255; 64], &[3, 0, 0, 0, 1], &[1, 0, 0, 0, 99]] {
        assert!(read_op(&mut &*bytes, &mut Vec::new(), &mut chunk).is_err(), "{bytes:?}");
    }
    let outside = StandbyOp::Chunk {
        worker: Incarnation(1),
        seq: 1,
        index: 9,
        header: header(PushMode::Apply),
        elements: 0,
        share: 1.0,
    };
    assert!(job().replay(1, outside, &[]).is_err());
    let piece = |chunk, start, len| Piece { chunk, start, len };
    #[rustfmt::skip]
    let impossible = [
        (vec![],                                    0),
        (vec![piece(9, 0, 1)],                      1),
        (vec![piece(0, 5, 2)],                      3),
        (vec![piece(0, 5, 2), piece(0, 6, 1)],      3),
        (vec![piece(0, 5, 2), piece(1, 0, 1)],      3),
        (vec![piece(1, 3, 3)],                      3),
        (vec![piece(0, u32::MAX, 2)],               2),
        (vec![piece(0, 1, 0)],                      0),
    ];
    for (pieces, elements) in impossible {
        let rows = StandbyOp::Rows {
            worker: Incarnation(1),
            seq: 1,
            header: header(PushMode::Apply),
            steps: 0,
            pieces,
            elements,
            share: 1.0,
        };
        assert!(job_with_table().replay(1, rows.clone(), &vec![0.0; elements as usize]).is_err(), "{rows:?}");
        assert!(job().replay(1, rows, &vec![0.0; elements as usize]).is_err());
    }
}
