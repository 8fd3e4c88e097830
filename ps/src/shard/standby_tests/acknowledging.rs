//! Who is told of a change, and when.

use std::{io, sync::mpsc, thread, time::Duration};

use syncline_rpc::{Retention, ShardFault};
use syncline_scheduler::{ids::Incarnation, sync::PushMode};

use super::rig::{Step, TERM, copied, fill_queue, followed, header, job, job_with_table, push_on, take};
use crate::{
    rows::Piece,
    shard::{Batch, JobShard, PushedChunk, StandbyOp},
};

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
fn nobody_is_told_of_a_change_before_the_standby_has_it() {
    let job = followed();
    assert!(job.confirm(|| panic!("nothing has changed")));
    take(&job, Step::Skip { worker: 1 });
    assert!(confirms_after(&job, || job.acknowledge_standby(TERM, 2)));
    take(&job, Step::Skip { worker: 1 });
    assert!(!job.confirm(|| false), "the caller has gone");
    assert!(job.confirm_close(|| panic!("no barrier has closed")));
}

#[test]
fn after_the_loss_of_the_standby_nobody_is_told_before_the_engine_knows() {
    let job = followed();
    take(&job, Step::Skip { worker: 1 });
    assert!(job.lose_standby(TERM) && !job.lose_standby(TERM));
    take(&job, Step::Skip { worker: 2 });
    job.go_on_without_standby(TERM + 1);
    assert!(confirms_after(&job, || job.go_on_without_standby(TERM)));
    take(&job, Step::Skip { worker: 1 });
    assert!(job.confirm(|| panic!("there is no standby")));
}

#[test]
fn who_waits_for_a_lost_standby_in_turns_is_told_in_a_later_one_and_that_the_job_is_over_if_it_is() {
    let turn = |job: &JobShard| job.confirmed_within(job.standby_mark(), Duration::ZERO);
    let job = followed();
    take(&job, Step::Skip { worker: 1 });
    job.lose_standby(TERM);
    assert_eq!((turn(&job), turn(&job)), (Ok(false), Ok(false)));
    job.go_on_without_standby(TERM);
    assert_eq!(turn(&job), Ok(true));
    let over = followed();
    take(&over, Step::Skip { worker: 1 });
    over.stop_standby();
    assert!(matches!(turn(&over), Err(ShardFault::Closed { .. })));
}

#[test]
fn who_waits_for_the_standby_of_a_job_that_is_over_is_told_nothing() {
    let job = followed();
    take(&job, Step::Skip { worker: 1 });
    assert!(!confirms_after(&job, || job.stop_standby()));
    assert!(!job.confirm(|| true));
}

#[test]
fn a_standby_that_was_never_in_step_holds_up_nobody() {
    let job = job();
    copied(&job, || ());
    take(&job, Step::Skip { worker: 1 });
    assert!(job.confirm(|| panic!("nobody was promised that it has this")));
    assert!(!job.lose_standby(TERM), "the engine need not hear of it first");
    assert!(job.confirm(|| panic!("there is no standby")));
}

#[test]
fn a_thread_of_an_earlier_term_begins_no_record_over_that_of_the_present_one() {
    let job = job();
    assert!(job.claim_standby(TERM - 1) && job.claim_standby(TERM));
    copied(&job, || ());
    assert!(job.set_standby_in_step(TERM));
    assert!(!job.copy_for_standby(TERM - 1, |_| -> io::Result<()> { panic!("it sends") }).unwrap());
    assert!(job.has_standby_in_step(TERM));
}

#[test]
fn who_waits_for_a_standby_is_told_once_a_later_copy_has_the_change() {
    let job = followed();
    for _ in 0..50 {
        take(&job, Step::Skip { worker: 1 });
    }
    let mut switched = false;
    assert!(job.confirm(|| {
        if !switched {
            job.lose_standby(TERM);
            job.go_on_without_standby(TERM);
            copied(&job, || ());
            assert!(job.set_standby_in_step(TERM));
        }
        // Asked again it waits still.
        !std::mem::replace(&mut switched, true)
    }));
}

#[test]
fn one_thread_tells_a_standby_of_a_job() {
    let job = job();
    assert!(job.claim_standby(TERM) && !job.claim_standby(TERM));
    job.release_standby(TERM + 1);
    assert!(!job.claim_standby(TERM));
    job.release_standby(TERM);
    assert!(job.claim_standby(TERM) && job.claim_standby(TERM + 1));
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
    while let Batch::Entries(some) = job.next_for_standby(TERM, Duration::ZERO) {
        entries.extend(some);
    }
    assert_eq!(entries.last().map(|entry| &entry.op), Some(&StandbyOp::Close));
}

#[test]
fn nothing_follows_the_end_of_a_job_to_its_standby() {
    let entries = |job: &JobShard| match job.next_for_standby(TERM, Duration::ZERO) {
        Batch::Entries(entries) => entries.into_iter().map(|entry| entry.op).collect(),
        Batch::Idle | Batch::Over => Vec::new(),
    };
    // It ends before its standby has all of it.
    let young = job();
    copied(&young, || ());
    young.close();
    assert!(!young.set_standby_in_step(TERM), "it was told that the job is over, and hangs up");
    assert_eq!(entries(&young), [StandbyOp::Close]);
    let job = followed();
    push_on(&job, 1);
    job.close();
    job.record(StandbyOp::RetainCheckpoints(Retention::Thin { keep: Vec::new(), through: 1 }));
    let told = entries(&job);
    assert!(matches!(told[..], [StandbyOp::Chunk { .. }, StandbyOp::Close]), "{told:?}");
    assert!(matches!(job.next_for_standby(TERM, Duration::ZERO), Batch::Over));
}

#[test]
fn a_push_that_is_under_way_when_its_job_ends_is_refused_at_its_next_chunk() {
    let (worker, header) = (Incarnation(1), header(PushMode::Apply));
    let dense = job();
    let push = |index| {
        let chunk = PushedChunk { worker, seq: 1, index, header: &header, share: None };
        dense.apply(chunk, &vec![1.0; dense.elements_of_chunk(index).unwrap()])
    };
    push(0).unwrap();
    dense.close();
    assert!(matches!(push(1), Err(ShardFault::Closed { .. })));
    let sparse = job_with_table();
    let push_row = |chunk| {
        let piece = Piece { chunk, start: 0, len: 1 };
        sparse.apply_rows(worker, 1, &header, &[piece], &[1.0])
    };
    push_row(0).unwrap();
    sparse.close();
    assert!(matches!(push_row(1), Err(ShardFault::Closed { .. })));
}
