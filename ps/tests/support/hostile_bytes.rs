//! Bytes that somebody sends, or that lie in a file: whatever they are, reading them returns, and what was
//! read is what was written. Used by an ordinary test and by the fuzz target `frames`.

use std::io::Cursor;

use syncline_ps::{
    checkpoint_file::{CheckpointAbout, write_checkpoint_file},
    codec::Codec,
    rows::{RowSelection, RowTables},
    shard::{CHUNK_ELEMENTS, read_op},
    wire::{Reply, Request, seal_frame},
};
use syncline_scheduler::{
    samples::SamplePosition,
    spec::{ElementRange, Layout, Parameter, ResumeSpec},
};

/// Reads bytes as what their first one says.
pub fn read(bytes: &[u8]) {
    let Some((&what, bytes)) = bytes.split_first() else { return };
    match what % 7 {
        0 => {
            requests(bytes);
            requests(&sealed(bytes));
        }
        1 => {
            replies(bytes);
            replies(&sealed(bytes));
        }
        2 => changes(bytes),
        3 => drop(CheckpointAbout::read(bytes)),
        4 => drop(write_checkpoint_file(
            resume(),
            None,
            std::iter::once(Ok(bytes.to_vec())),
            &mut Cursor::new(Vec::new()),
        )),
        5 => chunk(bytes),
        _ => rows(bytes),
    }
}

/// With a first frame whose check is right, as an attacker would send it.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 16 {
        let head = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
        let end = bytes.len().min(16 + head);
        seal_frame(&mut bytes[..end]);
    }
    bytes
}

/// Questions, one behind the other; a body is not read.
fn requests(mut bytes: &[u8]) {
    let (mut scratch, mut again, mut third) = (Vec::new(), Vec::new(), Vec::new());
    while let Ok(Some((request, body))) = Request::read(&mut bytes, &mut scratch) {
        request.encode(body, &mut again);
        let Ok(Some((same, as_long))) = Request::read(&mut &again[..], &mut scratch) else {
            panic!("{request:?} is not read again")
        };
        same.encode(as_long, &mut third);
        assert_eq!((body, &again), (as_long, &third), "{request:?}");
    }
}

/// The same for answers.
fn replies(mut bytes: &[u8]) {
    let (mut scratch, mut again, mut third) = (Vec::new(), Vec::new(), Vec::new());
    while let Ok((reply, body)) = Reply::read(&mut bytes, &mut scratch) {
        reply.encode(body, &mut again);
        let Ok((same, as_long)) = Reply::read(&mut &again[..], &mut scratch) else {
            panic!("{reply:?} is not read again")
        };
        same.encode(as_long, &mut third);
        assert_eq!((body, &again), (as_long, &third), "{reply:?}");
    }
}

/// Changes that a standby of a shard is told.
fn changes(mut bytes: &[u8]) {
    let (mut scratch, mut numbers) = (Vec::new(), vec![0.0; CHUNK_ELEMENTS]);
    while let Ok((_, elements)) = read_op(&mut bytes, &mut scratch, &mut numbers) {
        assert!(elements <= CHUNK_ELEMENTS);
    }
}

/// One chunk of a gradient, in each encoding.
fn chunk(bytes: &[u8]) {
    let Some((&[low, high, buffers], bytes)) = bytes.split_first_chunk() else { return };
    let (trained, buffers) = (usize::from(u16::from_le_bytes([low, high])), usize::from(buffers));
    let mut values = vec![0.0; trained + buffers];
    for codec in [Codec::Plain, Codec::Bf16, Codec::Fp16, Codec::Int8, Codec::TopK { of_full_chunk: 655 }] {
        if codec.decode(bytes, trained, &mut values).is_ok() && codec != Codec::Plain {
            assert!(values[..trained].iter().all(|value| value.is_finite()), "{codec:?}");
        }
    }
}

/// The rows of a batch, in front of what they select.
fn rows(bytes: &[u8]) {
    let tables = [Parameter::rows("a", vec![1 << 20, 3], 0), Parameter::rows("b", vec![9], 1)];
    let tables = RowTables::of(&Layout(tables.to_vec())).expect("it has tables");
    let (mut from, mut left) = (bytes, bytes.len() as u64);
    if let Ok(Ok(selection)) = RowSelection::read(&tables, &mut from, &mut left) {
        let mut again = Vec::new();
        selection.encode(&mut again);
        assert_eq!((again.as_slice(), left), (&bytes[..again.len()], from.len() as u64));
        assert_eq!(selection.check(&tables), Ok(()));
        let range = ElementRange { start: 1, end: 3 << 20 };
        let selected: u64 = tables.pieces(&selection, range, 0).map(|piece| u64::from(piece.len)).sum();
        let before = |end| tables.elements_before(&selection, end);
        assert_eq!(selected, before(range.end) - before(range.start));
    }
}

fn resume() -> ResumeSpec {
    ResumeSpec {
        job: "digits".parse().unwrap(),
        checkpoint: 7,
        epoch_samples: 10,
        train_samples: 10,
        seed: 0,
        shuffle: true,
        position: SamplePosition::default(),
        iterations: 0,
        iterations_torn: 0,
        samples_torn: 0,
        steps_by_round: false,
        evaluated: true,
        evaluations: None,
        reduced_rate: None,
        steps: Vec::new(),
    }
}
