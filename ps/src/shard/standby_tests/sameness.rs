//! The standby is the job.

use std::{sync::Barrier, thread};

use proptest::prelude::*;

use syncline_scheduler::sync::PushMode;

use super::rig::{
    EPOCH, SOON, Step, TERM, WORKERS, assert_same, copied, follow, header, job, job_with_table, step, take,
    take_rows,
};
use crate::shard::Batch;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn whatever_happens_before_and_after_the_copy_the_standby_is_the_job(
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
        let standby = copied(&job, || during.next().into_iter().flatten().for_each(|step| take(&job, step)));
        let (first, second) = after.split_at(after.len() / 2);
        first.iter().for_each(|step| take(&job, *step));
        job.set_standby_in_step(TERM);
        second.iter().for_each(|step| take(&job, *step));
        prop_assert!(follow(&job, &standby), "it is told that it may take over");
        assert_same(&job, &standby);
        // The standby takes over: what comes next has the same effect there.
        standby.stop_following();
        for step in alone {
            take(&job, step);
            take(&standby, step);
        }
        assert_same(&job, &standby);
    }
}

/// A push of another worker may be counted, and recorded, between the reckoning of the weight and the lock of
/// the chunk.
#[test]
fn a_push_weighs_in_a_buffer_of_the_standby_what_it_weighed_on_the_primary() {
    let (pushes, apply) = ([job(), job_with_table()], header(PushMode::Apply));
    for job in pushes {
        let standby = copied(&job, || ());
        job.set_standby_in_step(TERM);
        let has_rows = job.tables().is_some();
        for _ in 0..2 {
            match has_rows {
                true => take_rows(&job, 1, apply),
                false => take(&job, Step::Chunk { worker: 1, round: false }),
            }
        }
        take(&job, Step::Skip { worker: 2 });
        let Batch::Entries(mut entries) = job.next_for_standby(TERM, SOON) else {
            panic!("nothing is recorded")
        };
        let counted = entries.pop().unwrap();
        entries.insert(0, counted);
        for (entry, number) in entries.into_iter().zip(1..) {
            standby.replay(number, entry.op, &entry.numbers).unwrap();
        }
        assert!(job.copy_values().unwrap() == standby.copy_values().unwrap());
    }
}

#[test]
fn pushes_from_many_threads_reach_the_standby_as_they_were_made() {
    let job = job();
    let start = Barrier::new(WORKERS as usize + 1);
    let standby = copied(&job, || ());
    job.set_standby_in_step(TERM);
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
            follow(&job, &standby);
        }
    });
    follow(&job, &standby);
    assert_same(&job, &standby);
}
