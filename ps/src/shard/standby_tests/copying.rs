//! What goes on while a copy is on its way.

use std::{io, sync::mpsc, thread, time::Duration};

use syncline_rpc::Retention;
use syncline_scheduler::{ids::Incarnation, sync::PushMode};

use super::rig::{
    EPOCH, SOON, Step, TERM, assert_same, copied, fill_queue, follow, follow_once, header, job, push,
    push_on, take,
};
use crate::{
    shard::{Batch, JobShard, PushHeader},
    waiting::until,
};

#[test]
fn training_goes_on_while_a_copy_is_on_its_way_as_long_as_it_moves() {
    let job = job();
    let standby = copied(&job, || ());
    let mut bytes = 0;
    // Much more than may wait for a standby that is in step.
    while bytes < 40 << 20 {
        assert!(job.standby_log.copied(TERM, 1 << 20), "the copy was given up");
        bytes += push(&job, 1);
    }
    assert!(!job.set_standby_in_step(TERM), "much is still to be sent");
    // More comes all the time, as fast as there is room for it.
    while !job.set_standby_in_step(TERM) {
        follow_once(&job, &standby);
        fill_queue(&job);
    }
    assert!(follow(&job, &standby));
    assert_same(&job, &standby);
}

#[test]
fn a_copy_that_does_not_move_is_given_up_and_a_later_one_succeeds() {
    let job = job();
    copied(&job, || ());
    fill_queue(&job);
    // Waits for room, in vain.
    push_on(&job, 1);
    assert!(!job.standby_log.copied(TERM, 1) && !job.set_standby_in_step(TERM));
    assert!(matches!(job.next_for_standby(TERM, Duration::ZERO), Batch::Over));
    assert!(job.confirm(|| panic!("there is no standby")));
    let standby = copied(&job, || ());
    assert!(job.set_standby_in_step(TERM) && follow(&job, &standby));
    assert_same(&job, &standby);
}

/// A worker that pushes while its chunks are still to be copied needs no memory of the primary.
#[test]
fn what_is_pushed_for_chunks_that_are_still_to_be_copied_is_recorded_without_numbers() {
    let (job, mut pieces) = (job(), 0);
    let standby = copied(&job, || {
        pieces += 1;
        // The head is on its way.
        if pieces == 1 {
            (0..40).for_each(|_| assert!(push(&job, 1) > 0));
        }
    });
    let Batch::Entries(entries) = job.next_for_standby(TERM, SOON) else { panic!("nothing is recorded") };
    assert_eq!(entries.len(), 40 * 3);
    assert!(entries.iter().all(|entry| entry.numbers.is_empty()));
    for (entry, number) in entries.into_iter().zip(1..) {
        standby.replay(number, entry.op, &entry.numbers).unwrap();
    }
    assert_same(&job, &standby);
}

#[test]
fn a_copy_holds_up_nobody_while_a_piece_is_on_its_way() {
    let job = job();
    let standby = copied(&job, || {
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
    assert!(job.set_standby_in_step(TERM) && follow(&job, &standby));
    assert_same(&job, &standby);
    assert!(job.version() > 3 && job.pinned_checkpoint(job.version()).is_some());
    assert!(standby.pinned_checkpoint(job.version()).is_some());
}

#[test]
fn a_checkpoint_is_not_at_rest_where_a_push_ends_while_it_is_copied() {
    let job = job();
    take(&job, Step::Skip { worker: 1 });
    let (filter, pushed) = (job.filter(Incarnation(1)), &job);
    thread::scope(|scope| {
        let (pinning, pushing) = job.read_chunks(1, 1, |_| {
            let pinning = scope.spawn(|| job.pin_checkpoint(EPOCH, 1));
            until("the checkpoint is being pinned", || job.is_busy());
            let skip = PushHeader { skip: true, ..header(PushMode::Accumulate) };
            let pushing = scope.spawn(move || pushed.complete(Incarnation(1), 2, &skip));
            until("the push is being completed", || filter.try_lock().is_err());
            (pinning, pushing)
        });
        pushing.join().unwrap().unwrap();
        assert!(pinning.join().unwrap().is_err());
    });
    job.pin_checkpoint(EPOCH, 1).unwrap();
}

#[test]
fn a_standby_knows_from_its_copy_that_the_job_makes_no_further_checkpoints() {
    for keep in [vec![], vec![1]] {
        let job = job();
        take(&job, Step::Pin { number: 1 });
        job.give_checkpoints_up(&Retention::Last { keep: keep.clone() });
        let standby = copied(&job, || ());
        for shard in [&job, &standby.shard] {
            assert!(shard.has_ended_checkpoints());
            // An order that comes late, such as of the engine that led before.
            [1, 2].into_iter().for_each(|number| shard.pin_checkpoint(EPOCH, number).unwrap());
            let pinned: Vec<u64> = (1..3).filter(|n| shard.pinned_checkpoint(*n).is_some()).collect();
            assert_eq!(pinned, keep);
        }
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

/// The end of a push is told before the chunks that it closes the barrier of: the copy has either none of
/// both or all.
#[test]
fn a_barrier_that_closes_between_two_pieces_of_a_copy_closes_once_in_each_chunk() {
    let (job, mut pieces) = (job(), 0);
    let round = Step::Chunk { worker: 1, round: true };
    take(&job, round);
    take(&job, Step::Barrier { pin: false });
    take(&job, round);
    let closed = job.version();
    let standby = copied(&job, || {
        pieces += 1;
        // The head and the first of two chunks are on their way.
        if pieces == 2 {
            take(&job, Step::Complete { worker: 1, round: true });
            take(&job, Step::Norm { round: closed });
        }
    });
    assert_eq!(job.version(), closed + 1);
    assert!(job.set_standby_in_step(TERM) && follow(&job, &standby));
    assert_same(&job, &standby);
}
