//! Jobs, what happens to them, and a standby that follows.

use std::{cell::Cell, io, ops::Deref, time::Duration};

use proptest::prelude::*;
use syncline_rpc::{BarrierOrder, ClockRoster, OpenJob};
use syncline_scheduler::{
    ids::{ContentDigest, EngineEpoch, Generation, Incarnation, RunId, ShardIndex, Superstep},
    spec::{ElementRange, Layout, Optimizer, Parameter, StepSettings},
    sync::{PushMode, RoundRule},
};

use crate::{
    rows::{Piece, RowSelection},
    shard::{
        Batch, CHUNK_ELEMENTS, JobShard, PushHeader, PushedChunk, ReadCondition, StandbyOp, Term,
        chunk::CHUNK_BYTES, read_op,
    },
};

pub const EPOCH: EngineEpoch = EngineEpoch(1);
pub const TERM: Term = 7;
/// Two chunks, the second one short and with a buffer at its end.
pub const ELEMENTS: u64 = CHUNK_ELEMENTS as u64 + 5;
pub const WORKERS: u64 = 3;
pub const SOON: Duration = Duration::from_millis(1);

/// The last of what it trains learns more slowly, in both chunks.
pub fn job() -> JobShard {
    let slow = StepSettings { learning_rate_factor: 0.1, ..StepSettings::default() };
    let last = Parameter { settings: slow, ..Parameter::trained("b", vec![7]) };
    job_of(vec![Parameter::trained("w", vec![ELEMENTS - 9]), last])
}

/// One of which single rows are pushed.
pub fn job_with_table() -> JobShard {
    job_of(vec![Parameter::rows("w", vec![ELEMENTS - 2, 1], 0)])
}

pub fn job_of(trained: Vec<Parameter>) -> JobShard {
    let order = OpenJob {
        run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
        shard: ShardIndex(0),
        shards: vec!["a".into(), "b".into()],
        layout: Layout([trained, vec![Parameter::buffer("m", vec![2])]].concat()),
        optimizer: Optimizer::adam(),
        clip_norm: Some(0.5),
        initial: ContentDigest::LOWEST,
        resumed: None,
        checkpoint: None,
        known_through: None,
    };
    let values: Vec<f32> = (0..ELEMENTS).map(|n| (n % 7) as f32).collect();
    let range = ElementRange { start: 0, end: ELEMENTS };
    JobShard::read(&order, range, EPOCH, &mut bytemuck::cast_slice(&values)).unwrap()
}

pub fn header(mode: PushMode) -> PushHeader {
    PushHeader { learning_rate: 0.1, weight: 1.0, scale: 1.0, skip: false, mode, covers: 1 }
}

/// Something that happens to a job. What makes no sense just then is refused, as it would be.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// The next chunk of a worker's next push.
    Chunk {
        worker: u64,
        round: bool,
    },
    Complete {
        worker: u64,
        round: bool,
    },
    Skip {
        worker: u64,
    },
    Seal {
        worker: u64,
    },
    /// The next barrier, for all that are not sealed.
    Barrier {
        pin: bool,
    },
    Clocks {
        revision: u64,
    },
    Norm {
        round: u64,
    },
    Pin {
        number: u64,
    },
}

pub fn step() -> impl Strategy<Value = Step> {
    let worker = 1..=WORKERS;
    prop_oneof![
        8 => (worker.clone(), any::<bool>()).prop_map(|(worker, round)| Step::Chunk { worker, round }),
        4 => (worker.clone(), any::<bool>()).prop_map(|(worker, round)| Step::Complete { worker, round }),
        1 => worker.clone().prop_map(|worker| Step::Skip { worker }),
        1 => worker.prop_map(|worker| Step::Seal { worker }),
        3 => any::<bool>().prop_map(|pin| Step::Barrier { pin }),
        1 => (0..4u64).prop_map(|revision| Step::Clocks { revision }),
        2 => (0..4u64).prop_map(|round| Step::Norm { round }),
        1 => (1..4u64).prop_map(|number| Step::Pin { number }),
    ]
}

/// Does one step to a job; who is not there, or comes out of turn, is refused.
pub fn take(job: &JobShard, step: Step) {
    let mode = |round| if round { PushMode::Accumulate } else { PushMode::Apply };
    match step {
        Step::Chunk { worker, round } => {
            let Ok(at) = job.push_cursor(Incarnation(worker)) else { return };
            let elements = job.elements_of_chunk(at.next_chunk).unwrap_or(0);
            if job.tables().is_some() {
                take_rows(job, worker, header(mode(round)));
            } else if elements > 0 {
                let gradient: Vec<f32> =
                    (0..elements).map(|n| ((n as u64 + worker) % 5) as f32 - 2.0).collect();
                let chunk = PushedChunk {
                    worker: Incarnation(worker),
                    seq: at.watermark + 1,
                    index: at.next_chunk,
                    header: &header(mode(round)),
                    share: None,
                };
                let _ = job.apply(chunk, &gradient);
            }
        }
        Step::Complete { worker, round } => {
            let Ok(at) = job.push_cursor(Incarnation(worker)) else { return };
            let _ = job.complete(Incarnation(worker), at.watermark + 1, &header(mode(round)));
        }
        Step::Skip { worker } => {
            let Ok(at) = job.push_cursor(Incarnation(worker)) else { return };
            let skip = PushHeader { skip: true, ..header(PushMode::Accumulate) };
            let _ = job.complete(Incarnation(worker), at.watermark + 1, &skip);
        }
        Step::Seal { worker } => drop(job.seal(EPOCH, Incarnation(worker))),
        Step::Barrier { pin } => {
            let state = job.state(EPOCH).unwrap();
            let roster = state.progress.watermarks.iter().map(|(worker, last)| (*worker, last + 1));
            let order = BarrierOrder {
                superstep: Superstep(state.progress.closed),
                revision: state.pushes as u32,
                roster: roster.filter(|(worker, _)| job.push_cursor(*worker).is_ok()).collect(),
                rule: RoundRule::Optimizer,
                learning_rate: 0.1,
                pin,
            };
            job.add_barrier(EPOCH, order).unwrap();
        }
        Step::Clocks { revision } => {
            let base = (1..=WORKERS).map(|worker| (Incarnation(worker), worker)).collect();
            job.set_clock_roster(EPOCH, ClockRoster { revision, base }).unwrap();
        }
        Step::Norm { round } => job.receive_norm(1, round, 100.0).unwrap(),
        Step::Pin { number } => drop(job.pin_checkpoint(EPOCH, number)),
    }
}

/// Pushes the next rows of a worker's next push, of the chunk where it is.
pub fn take_rows(job: &JobShard, worker: u64, header: PushHeader) {
    let Ok(at) = job.push_cursor(Incarnation(worker)) else { return };
    let buffer = ELEMENTS as u32 - 2;
    let ids = [worker, 40 + at.watermark % 3, 70, u64::from(CHUNK_ELEMENTS as u32) + at.watermark % 2];
    let selection = RowSelection::new(vec![ids.map(|id| (id as u32).min(buffer - 1)).to_vec()]).unwrap();
    let pieces = job.tables().unwrap().pieces(&selection, job.range(), at.next_chunk);
    let pieces: Vec<Piece> = pieces.collect();
    let Some(first) = pieces.first().copied() else { return };
    let of_chunk: Vec<Piece> = pieces.into_iter().filter(|piece| piece.chunk == first.chunk).collect();
    let elements: u32 = of_chunk.iter().map(|piece| piece.len).sum();
    let gradient: Vec<f32> = (0..elements).map(|n| f32::from((n as u8 + worker as u8) % 5) - 2.0).collect();
    let _ = job.apply_rows(Incarnation(worker), at.watermark + 1, &header, &of_chunk, &gradient);
}

/// A standby that has its copy. `meanwhile` happens each time that a piece of it is on its way.
pub fn copied(job: &JobShard, mut meanwhile: impl FnMut()) -> Standby {
    let mut copy = Vec::new();
    let send = |piece: &[u8]| {
        assert!(piece.len() < 2 * CHUNK_BYTES * 4, "a piece is about a chunk with moments and round");
        copy.extend_from_slice(piece);
        meanwhile();
        io::Result::Ok(())
    };
    assert!(job.copy_for_standby(TERM, send).unwrap(), "the copy was given up");
    Standby { shard: JobShard::receive_copy(&mut &copy[..]).unwrap(), number: Cell::new(0) }
}

/// A standby, and how many changes it was told.
pub struct Standby {
    pub shard: JobShard,
    pub number: Cell<u64>,
}

impl Deref for Standby {
    type Target = JobShard;

    fn deref(&self) -> &JobShard {
        &self.shard
    }
}

/// Sends the standby what is recorded, through bytes. Whether it is told that it is in step.
pub fn follow(job: &JobShard, standby: &Standby) -> bool {
    let mut in_step = false;
    while let Some(told) = follow_once(job, standby) {
        in_step |= told;
    }
    in_step
}

/// The same for what is sent at once; `None` if there is nothing.
pub fn follow_once(job: &JobShard, standby: &Standby) -> Option<bool> {
    let Batch::Entries(entries) = job.next_for_standby(TERM, Duration::ZERO) else { return None };
    let (mut in_step, mut bytes) = (false, Vec::new());
    entries.iter().for_each(|entry| entry.write(&mut bytes).unwrap());
    let (mut from, mut scratch, mut chunk) = (&bytes[..], Vec::new(), vec![0.0; CHUNK_ELEMENTS]);
    while !from.is_empty() {
        let (op, elements) = read_op(&mut from, &mut scratch, &mut chunk).unwrap();
        in_step |= op == StandbyOp::InStep;
        standby.number.update(|number| number + 1);
        standby.replay(standby.number.get(), op, &chunk[..elements]).unwrap();
    }
    Some(in_step)
}

pub fn assert_same(job: &JobShard, standby: &JobShard) {
    assert_eq!(job.state(EPOCH), standby.state(EPOCH));
    assert!(job.copy_values().unwrap() == standby.copy_values().unwrap(), "the values differ");
    for worker in (1..=WORKERS).map(Incarnation) {
        assert_eq!(job.push_cursor(worker), standby.push_cursor(worker));
    }
    let pinned = |job: &JobShard, number| job.pinned_checkpoint(number).is_some();
    assert!((1..4).all(|number| pinned(job, number) == pinned(standby, number)));
    let values = |job: &JobShard, version| {
        let granted = job.wait_readable(Incarnation(90), ReadCondition::Pinned(version), || true);
        granted.ok().and_then(|grant| grant.pinned)
    };
    assert!((0..=job.version()).all(|version| values(job, version) == values(standby, version)));
}

/// A job with a standby in step that has been told everything.
pub fn followed() -> JobShard {
    let job = job();
    copied(&job, || ());
    job.set_standby_in_step(TERM);
    assert!(matches!(job.next_for_standby(TERM, SOON), Batch::Entries(_)));
    job.acknowledge_standby(TERM, 1);
    job
}

/// One whole push; returns its bytes.
pub fn push(job: &JobShard, worker: u64) -> usize {
    for _ in 0..2 {
        take(job, Step::Chunk { worker, round: false });
    }
    take(job, Step::Complete { worker, round: false });
    ELEMENTS as usize * 4
}

/// The next chunk of a push, or its end.
pub fn push_on(job: &JobShard, worker: u64) {
    let at = job.push_cursor(Incarnation(worker)).unwrap();
    let is_in = at.next_chunk == job.chunk_count();
    take(
        job,
        if is_in { Step::Complete { worker, round: false } } else { Step::Chunk { worker, round: false } },
    );
}

/// Pushes until the next change would have to wait for room.
pub fn fill_queue(job: &JobShard) {
    while job.standby_log.has_room() {
        push_on(job, 1);
    }
}
