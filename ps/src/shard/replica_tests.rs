//! A backup that gets the record of a job is the job: whatever happens, in whatever order, and whenever the copy is taken.

use std::{
    cell::Cell,
    io,
    ops::Deref,
    sync::{Barrier, mpsc},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use syncline_rpc::{BarrierOrder, ClockRoster, OpenJob};
use syncline_scheduler::{
    ids::{EngineEpoch, Generation, Incarnation, RunId, ShardIndex, Superstep},
    spec::{ElementRange, Layout, Optimizer, Parameter},
    sync::{PushMode, RoundRule},
};

use super::{
    Batch, CHUNK_BYTES, CHUNK_ELEMENTS, JobShard, PushHeader, ReadCondition, ReplicaOp, Term, read_op,
};
use crate::rows::{Piece, RowSelection};

const EPOCH: EngineEpoch = EngineEpoch(1);
const TERM: Term = 7;
/// Two chunks, the second one short and with a buffer at its end.
const ELEMENTS: u64 = CHUNK_ELEMENTS as u64 + 5;
const WORKERS: u64 = 3;
const SOON: Duration = Duration::from_millis(1);

fn job() -> JobShard {
    job_of(Parameter::trained("w", vec![ELEMENTS - 2]))
}

/// One of which single rows are pushed.
fn job_with_table() -> JobShard {
    job_of(Parameter::rows("w", vec![ELEMENTS - 2, 1], 0))
}

fn job_of(trained: Parameter) -> JobShard {
    let order = OpenJob {
        run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
        shard: ShardIndex(0),
        shards: vec!["a".into(), "b".into()],
        layout: Layout(vec![trained, Parameter::buffer("m", vec![2])]),
        optimizer: Optimizer::adam(),
        clip_norm: Some(0.5),
        initial: String::new(),
        resumed: None,
        checkpoint: None,
    };
    let values: Vec<f32> = (0..ELEMENTS).map(|n| (n % 7) as f32).collect();
    let range = ElementRange { start: 0, end: ELEMENTS };
    JobShard::read(&order, range, EPOCH, &mut bytemuck::cast_slice(&values)).unwrap()
}

fn header(mode: PushMode) -> PushHeader {
    PushHeader { learning_rate: 0.1, weight: 1.0, scale: 1.0, skip: false, mode, covers: 1 }
}

/// Something that happens to a job. What makes no sense just then is refused, as it would be.
#[derive(Debug, Clone, Copy)]
enum Step {
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

fn step() -> impl Strategy<Value = Step> {
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
fn take(job: &JobShard, step: Step) {
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
                let seq = at.watermark + 1;
                let _ = job.apply(Incarnation(worker), seq, at.next_chunk, &header(mode(round)), &gradient);
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
            let roster = state.watermarks.iter().map(|(worker, last)| (*worker, last + 1));
            let order = BarrierOrder {
                superstep: Superstep(state.closed),
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
fn take_rows(job: &JobShard, worker: u64, header: PushHeader) {
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

/// A backup that has its copy. `meanwhile` happens each time that a piece of it is on its way.
fn copied(job: &JobShard, mut meanwhile: impl FnMut()) -> Backup {
    let mut copy = Vec::new();
    let send = |piece: &[u8]| {
        assert!(piece.len() < 2 * CHUNK_BYTES * 4, "a piece is about a chunk with moments and round");
        copy.extend_from_slice(piece);
        meanwhile();
        io::Result::Ok(())
    };
    assert!(job.copy_for_replica(TERM, send).unwrap(), "the copy was given up");
    Backup { shard: JobShard::receive_copy(&mut &copy[..]).unwrap(), number: Cell::new(0) }
}

/// A backup, and how many changes it was told.
struct Backup {
    shard: JobShard,
    number: Cell<u64>,
}

impl Deref for Backup {
    type Target = JobShard;

    fn deref(&self) -> &JobShard {
        &self.shard
    }
}

/// Sends the backup what is recorded, through bytes. Whether it is told that it is in step.
fn follow(job: &JobShard, backup: &Backup) -> bool {
    let mut in_step = false;
    while let Some(told) = follow_once(job, backup) {
        in_step |= told;
    }
    in_step
}

/// The same for what is sent at once; `None` if there is nothing.
fn follow_once(job: &JobShard, backup: &Backup) -> Option<bool> {
    let Batch::Entries(entries) = job.next_for_replica(TERM, Duration::ZERO) else { return None };
    let (mut in_step, mut bytes) = (false, Vec::new());
    entries.iter().for_each(|entry| entry.write(&mut bytes).unwrap());
    let (mut from, mut scratch, mut chunk) = (&bytes[..], Vec::new(), vec![0.0; CHUNK_ELEMENTS]);
    while !from.is_empty() {
        let (op, elements) = read_op(&mut from, &mut scratch, &mut chunk).unwrap();
        in_step |= op == ReplicaOp::InStep;
        backup.number.update(|number| number + 1);
        backup.replay(backup.number.get(), op, &chunk[..elements]).unwrap();
    }
    Some(in_step)
}

fn assert_same(job: &JobShard, backup: &JobShard) {
    assert_eq!(job.state(EPOCH), backup.state(EPOCH));
    assert!(job.copy_values() == backup.copy_values(), "the values differ");
    for worker in (1..=WORKERS).map(Incarnation) {
        assert_eq!(job.push_cursor(worker), backup.push_cursor(worker));
    }
    let pinned = |job: &JobShard, number| job.pinned_checkpoint(EPOCH, number).unwrap().is_some();
    assert!((1..4).all(|number| pinned(job, number) == pinned(backup, number)));
    let values = |job: &JobShard, version| {
        let granted = job.wait_readable(Incarnation(90), ReadCondition::Pinned(version), || true);
        granted.ok().and_then(|grant| grant.pinned)
    };
    assert!((0..=job.version()).all(|version| values(job, version) == values(backup, version)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn whatever_happens_before_and_after_the_copy_the_backup_is_the_job(
        before in prop::collection::vec(step(), 0..30),
        during in prop::collection::vec(prop::collection::vec(step(), 0..12), 5),
        after in prop::collection::vec(step(), 0..40),
        alone in prop::collection::vec(step(), 0..20),
        rows in any::<bool>(),
    ) {
        let job = if rows { job_with_table() } else { job() };
        before.into_iter().for_each(|step| take(&job, step));
        // Between two pieces of the copy goes on what happens.
        let mut during = during.into_iter();
        let backup = copied(&job, || during.next().into_iter().flatten().for_each(|step| take(&job, step)));
        let (first, second) = after.split_at(after.len() / 2);
        first.iter().for_each(|step| take(&job, *step));
        job.set_replica_in_step(TERM);
        second.iter().for_each(|step| take(&job, *step));
        prop_assert!(follow(&job, &backup), "it is told that it may take over");
        assert_same(&job, &backup);
        // The backup takes over: what comes next has the same effect there.
        backup.stop_following();
        for step in alone {
            take(&job, step);
            take(&backup, step);
        }
        assert_same(&job, &backup);
    }
}

#[test]
fn pushes_from_many_threads_reach_the_backup_as_they_were_made() {
    let job = job();
    let start = Barrier::new(WORKERS as usize + 1);
    let backup = copied(&job, || ());
    job.set_replica_in_step(TERM);
    thread::scope(|scope| {
        for worker in 1..=WORKERS {
            let (job, start) = (&job, &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..40 {
                    for _ in 0..2 {
                        take(job, Step::Chunk { worker, round: false });
                    }
                    take(job, Step::Complete { worker, round: false });
                }
            });
        }
        start.wait();
        while job.state(EPOCH).unwrap().pushes < 40 * WORKERS {
            follow(&job, &backup);
        }
    });
    follow(&job, &backup);
    assert_same(&job, &backup);
}

/// A job with a backup in step that has been told everything.
fn followed() -> JobShard {
    let job = job();
    copied(&job, || ());
    job.set_replica_in_step(TERM);
    assert!(matches!(job.next_for_replica(TERM, SOON), Batch::Entries(_)));
    job.acknowledge_replica(TERM, 1);
    job
}

/// One whole push; returns its bytes.
fn push(job: &JobShard, worker: u64) -> usize {
    for _ in 0..2 {
        take(job, Step::Chunk { worker, round: false });
    }
    take(job, Step::Complete { worker, round: false });
    ELEMENTS as usize * 4
}

/// The next chunk of a push, or its end.
fn push_on(job: &JobShard, worker: u64) {
    let at = job.push_cursor(Incarnation(worker)).unwrap();
    let is_in = at.next_chunk == job.chunk_count();
    take(
        job,
        if is_in { Step::Complete { worker, round: false } } else { Step::Chunk { worker, round: false } },
    );
}

/// Pushes until the next change would have to wait for room.
fn fill_queue(job: &JobShard) {
    while job.replicas.has_room() {
        push_on(job, 1);
    }
}

/// Whether `confirm` waits until `release` is called, and what it says then.
fn confirms_after(job: &JobShard, release: impl FnOnce()) -> bool {
    thread::scope(|scope| {
        let (asked, times) = mpsc::channel();
        let waiting = scope.spawn(move || {
            job.confirm(|| {
                let _ = asked.send(());
                true
            })
        });
        // It is asked whether it still waits: so it waits.
        times.recv().unwrap();
        release();
        waiting.join().unwrap()
    })
}

#[test]
fn nobody_is_told_of_a_change_before_the_backup_has_it() {
    let job = followed();
    assert!(job.confirm(|| panic!("nothing has changed")));
    take(&job, Step::Skip { worker: 1 });
    assert!(confirms_after(&job, || job.acknowledge_replica(TERM, 2)));
    take(&job, Step::Skip { worker: 1 });
    assert!(!job.confirm(|| false), "the caller has gone");
    assert!(job.confirm_close(|| panic!("no barrier has closed")));
}

#[test]
fn after_the_loss_of_the_backup_nobody_is_told_before_the_engine_knows() {
    let job = followed();
    take(&job, Step::Skip { worker: 1 });
    assert!(job.lose_replica(TERM) && !job.lose_replica(TERM));
    take(&job, Step::Skip { worker: 2 });
    job.go_on_without_replica(TERM + 1);
    assert!(confirms_after(&job, || job.go_on_without_replica(TERM)));
    take(&job, Step::Skip { worker: 1 });
    assert!(job.confirm(|| panic!("there is no backup")));
}

#[test]
fn who_waits_for_the_backup_of_a_job_that_is_over_is_told_nothing() {
    let job = followed();
    take(&job, Step::Skip { worker: 1 });
    assert!(!confirms_after(&job, || job.stop_replica()));
    assert!(!job.confirm(|| true));
}

#[test]
fn a_backup_that_was_never_in_step_holds_up_nobody() {
    let job = job();
    copied(&job, || ());
    take(&job, Step::Skip { worker: 1 });
    assert!(job.confirm(|| panic!("nobody was promised that it has this")));
    assert!(!job.lose_replica(TERM), "the engine need not hear of it first");
    assert!(job.confirm(|| panic!("there is no backup")));
}

#[test]
fn training_goes_on_while_a_copy_is_on_its_way_as_long_as_it_moves() {
    let job = job();
    let backup = copied(&job, || ());
    let mut bytes = 0;
    // Much more than may wait for a backup that is in step.
    while bytes < 40 << 20 {
        assert!(job.replicas.copied(TERM, 1 << 20), "the copy was given up");
        bytes += push(&job, 1);
    }
    assert!(!job.set_replica_in_step(TERM), "much is still to be sent");
    // More comes all the time, as fast as there is room for it.
    while !job.set_replica_in_step(TERM) {
        follow_once(&job, &backup);
        fill_queue(&job);
    }
    assert!(follow(&job, &backup));
    assert_same(&job, &backup);
}

#[test]
fn a_copy_that_does_not_move_is_given_up_and_a_later_one_succeeds() {
    let job = job();
    copied(&job, || ());
    fill_queue(&job);
    // Waits for room, in vain.
    push_on(&job, 1);
    assert!(!job.replicas.copied(TERM, 1) && !job.set_replica_in_step(TERM));
    assert!(matches!(job.next_for_replica(TERM, Duration::ZERO), Batch::Over));
    assert!(job.confirm(|| panic!("there is no backup")));
    let backup = copied(&job, || ());
    assert!(job.set_replica_in_step(TERM) && follow(&job, &backup));
    assert_same(&job, &backup);
}

/// A worker that pushes while its chunks are still to be copied needs no memory of the primary.
#[test]
fn what_is_pushed_for_chunks_that_are_still_to_be_copied_is_recorded_without_numbers() {
    let (job, mut pieces) = (job(), 0);
    let backup = copied(&job, || {
        pieces += 1;
        // The head is on its way.
        if pieces == 1 {
            (0..40).for_each(|_| assert!(push(&job, 1) > 0));
        }
    });
    let Batch::Entries(entries) = job.next_for_replica(TERM, SOON) else { panic!("nothing is recorded") };
    assert_eq!(entries.len(), 40 * 3);
    assert!(entries.iter().all(|entry| entry.numbers.is_empty()));
    for (entry, number) in entries.into_iter().zip(1..) {
        backup.replay(number, entry.op, &entry.numbers).unwrap();
    }
    assert_same(&job, &backup);
}

#[test]
fn a_copy_holds_up_nobody_while_a_piece_is_on_its_way() {
    let job = job();
    let backup = copied(&job, || {
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                push(&job, 1);
                take(&job, Step::Barrier { pin: true });
                job.pin_checkpoint(EPOCH, job.version()).unwrap();
                job.confirm(|| panic!("nobody was promised anything"))
            });
            assert!(elsewhere.join().unwrap());
        });
    });
    assert!(job.set_replica_in_step(TERM) && follow(&job, &backup));
    assert_same(&job, &backup);
    assert!(job.version() > 3 && job.pinned_checkpoint(EPOCH, job.version()).unwrap().is_some());
    assert!(backup.pinned_checkpoint(EPOCH, job.version()).unwrap().is_some());
}

#[test]
fn a_thread_of_an_earlier_term_begins_no_record_over_that_of_the_present_one() {
    let job = job();
    assert!(job.claim_replica(TERM - 1) && job.claim_replica(TERM));
    copied(&job, || ());
    assert!(job.set_replica_in_step(TERM));
    assert!(!job.copy_for_replica(TERM - 1, |_| -> io::Result<()> { panic!("it sends") }).unwrap());
    assert!(job.has_replica_in_step(TERM));
}

#[test]
fn who_waits_for_a_backup_is_told_once_a_later_copy_has_the_change() {
    let job = followed();
    for _ in 0..50 {
        take(&job, Step::Skip { worker: 1 });
    }
    let mut switched = false;
    assert!(job.confirm(|| {
        if !switched {
            job.lose_replica(TERM);
            job.go_on_without_replica(TERM);
            copied(&job, || ());
            assert!(job.set_replica_in_step(TERM));
        }
        // Asked again it waits still.
        !std::mem::replace(&mut switched, true)
    }));
}

#[test]
fn a_checkpoint_is_not_at_rest_where_a_push_ends_while_it_is_copied() {
    let job = job();
    take(&job, Step::Skip { worker: 1 });
    let (filter, pushed) = (job.filter(Incarnation(1)), &job);
    thread::scope(|scope| {
        let (pinning, pushing) = job.read_chunks(1, 1, |_| {
            let pinning = scope.spawn(|| job.pin_checkpoint(EPOCH, 1));
            while !job.is_busy() {
                thread::yield_now();
            }
            let skip = PushHeader { skip: true, ..header(PushMode::Accumulate) };
            let pushing = scope.spawn(move || pushed.complete(Incarnation(1), 2, &skip));
            while filter.try_lock().is_ok() {
                thread::yield_now();
            }
            (pinning, pushing)
        });
        pushing.join().unwrap().unwrap();
        assert!(pinning.join().unwrap().is_err());
    });
    job.pin_checkpoint(EPOCH, 1).unwrap();
}

#[test]
fn one_thread_tells_a_backup_of_a_job() {
    let job = job();
    assert!(job.claim_replica(TERM) && !job.claim_replica(TERM));
    job.release_replica(TERM + 1);
    assert!(!job.claim_replica(TERM));
    job.release_replica(TERM);
    assert!(job.claim_replica(TERM) && job.claim_replica(TERM + 1));
}

/// The thread that makes room needs the table of jobs, which is locked while a job ends.
#[test]
fn a_job_ends_although_there_is_no_room_for_more_changes() {
    let job: &'static JobShard = Box::leak(Box::new(followed()));
    fill_queue(job);
    let (ended, ends) = mpsc::channel();
    thread::spawn(move || {
        job.close();
        ended.send(()).unwrap();
    });
    ends.recv_timeout(Duration::from_secs(60)).expect("the end waits for room");
    let mut entries = Vec::new();
    while let Batch::Entries(some) = job.next_for_replica(TERM, Duration::ZERO) {
        entries.extend(some);
    }
    assert_eq!(entries.last().map(|entry| &entry.op), Some(&ReplicaOp::Close));
}

#[test]
fn bytes_that_are_no_change_are_refused() {
    let mut chunk = vec![0.0; CHUNK_ELEMENTS];
    let mut entry = Vec::new();
    let op = ReplicaOp::Chunk {
        worker: Incarnation(1),
        seq: 1,
        index: 0,
        header: header(PushMode::Apply),
        elements: CHUNK_ELEMENTS as u32 + 1,
    };
    op.entry().write(&mut entry).unwrap();
    for bytes in [&entry[..], &[255; 64], &[3, 0, 0, 0, 1], &[1, 0, 0, 0, 99]] {
        assert!(read_op(&mut &*bytes, &mut Vec::new(), &mut chunk).is_err(), "{bytes:?}");
    }
    let outside = ReplicaOp::Chunk {
        worker: Incarnation(1),
        seq: 1,
        index: 9,
        header: header(PushMode::Apply),
        elements: 0,
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
        let rows = ReplicaOp::Rows {
            worker: Incarnation(1),
            seq: 1,
            header: header(PushMode::Apply),
            steps: 0,
            pieces,
            elements,
        };
        assert!(job_with_table().replay(1, rows.clone(), &vec![0.0; elements as usize]).is_err(), "{rows:?}");
        assert!(job().replay(1, rows, &vec![0.0; elements as usize]).is_err());
    }
}

#[test]
fn workers_are_sealed_while_checkpoints_are_copied_and_the_job_is_saved() {
    let shard: &'static JobShard = Box::leak(Box::new(job()));
    let (ended, ends) = mpsc::channel();
    let act = |act: fn(&JobShard, u64)| {
        let ended = ended.clone();
        thread::spawn(move || {
            (1..=2_000).for_each(|n| act(shard, n));
            ended.send(()).unwrap();
        });
    };
    act(|shard, n| {
        shard.seal(EPOCH, Incarnation(n)).unwrap();
    });
    act(|shard, n| shard.pin_checkpoint(EPOCH, n).unwrap());
    act(|shard, _| shard.save(&mut io::sink()).unwrap());
    for _ in 0..3 {
        ends.recv_timeout(Duration::from_secs(300)).expect("each waits for a lock that another one holds");
    }
}
