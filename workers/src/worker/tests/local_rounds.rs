//! Rounds of local steps: workers meet at the mean of where they got.

use super::*;

/// Local iterations `from..=to` of the round `first..=last`, `len` samples each.
fn local(superstep: u64, round: (u64, u64), seqs: std::ops::RangeInclusive<u64>, len: u32) -> Vec<It> {
    let (first, last) = round;
    let it = |seq| It {
        superstep,
        seq,
        range: range((seq - 1) * u64::from(len), len),
        gradient: GradientUse::LocalStep { first, last },
    };
    seqs.map(it).collect()
}

#[test]
fn two_workers_that_step_locally_meet_at_the_mean_of_where_they_got() {
    Rig::both().iter().for_each(step_locally_and_meet);
}

#[test]
fn local_steps_on_batches_in_pieces_are_those_on_whole_ones_also_where_a_device_would_take_them() {
    for mut rig in Rig::both() {
        rig.train.micro_batch = Some(3);
        step_locally_and_meet(&rig);
    }
}

fn step_locally_and_meet(rig: &Rig) {
    const H: u64 = 4;
    let batches = [(1, 4u32), (2, 2)];
    let rounds = |len| [local(0, (1, H), 1..=H, len), local(1, (H + 1, 2 * H), H + 1..=2 * H, len)].concat();
    for round in 0..2 {
        rig.barrier(round, &batches.map(|(worker, _)| (worker, (round + 1) * H)));
    }
    // The second round can begin only when both have ended the first.
    let reports = thread::scope(|scope| {
        let run = |(worker, len): (u64, u32)| scope.spawn(move || rig.execute(worker, &rounds(len), &[]));
        batches.map(run).map(|worker| worker.join().unwrap())
    });

    let mut want = vec![0.5, 0.25, 0.0];
    let mut velocities = [vec![0.0f32; 3], vec![0.0f32; 3]];
    for round in 0..2 {
        let mut mean = vec![0.0f32; 3];
        let all: u32 = batches.iter().map(|(_, len)| len).sum();
        for ((_, len), velocity) in batches.iter().zip(&mut velocities) {
            let mut own = want.clone();
            for it in &rounds(*len)[round * H as usize..(round + 1) * H as usize] {
                let gradient = rig.gradient(&own, it.range);
                for ((x, v), g) in own.iter_mut().zip(velocity.iter_mut()).zip(gradient) {
                    *v = MOMENTUM * *v + g;
                    *x -= RATE * *v;
                }
            }
            for (mean, x) in mean.iter_mut().zip(own) {
                *mean += x * *len as f32 / all as f32;
            }
        }
        want = mean;
    }
    assert_close(&rig.parameters(2), &want);
    for reports in &reports {
        assert_eq!(seqs(reports), (1..=2 * H).collect::<Vec<_>>());
        assert!(reports.windows(2).all(|pair| pair[0].ended < pair[1].ended));
    }
    for shard in 0..2 {
        let state = rig.state(shard);
        assert_eq!((state.pushes, state.progress.watermarks[&Incarnation(1)]), (4, 2 * H));
    }
}

#[test]
fn a_round_that_is_not_pushed_is_not_reported() {
    for rig in Rig::both() {
        assert_eq!(seqs(&rig.execute(1, &local(0, (1, 4), 1..=3, 4), &[])), [] as [u64; 0]);
        assert_eq!(rig.state(0).pushes, 0);
    }
}

#[test]
fn a_revoked_iteration_takes_its_round_with_it() {
    for rig in Rig::both() {
        // What follows begins where the shards stand.
        let its = [local(0, (1, 4), 1..=3, 4), local(0, (1, 2), 1..=2, 4)].concat();
        assert_eq!(seqs(&rig.execute(1, &its, &[3])), [1, 2]);
        assert_eq!(rig.state(1).progress.watermarks[&Incarnation(1)], 2);
    }
}

#[test]
fn a_revocation_that_comes_when_its_task_is_about_to_end_leaves_the_next_one_alone() {
    let mut step = Duration::from_millis(500);
    // Too late on a busy machine: with more time for it.
    while !is_revoked_at_the_end_of(step) {
        step *= 2;
    }
}

/// Whether the revocation came before the end of a task whose last part lasts `step`.
fn is_revoked_at_the_end_of(step: Duration) -> bool {
    let rig = Rig::start();
    let (mut context, tracker) = (rig.context(1), Arc::new(TaskTracker::default()));
    // Behind a step in the middle of a round nothing checks whether it is still wanted.
    context.throttle.step = step;
    let (give, tasks) = mpsc::channel();
    let (finish, mut finished) = async_mpsc::unbounded_channel();
    let setup = |_: &JobId| {
        Ok(JobSetup { epoch: EPOCH, nonce: 0, train: rig.train.clone(), shards: rig.addresses() })
    };
    let in_time = thread::scope(|scope| {
        let (context, tracker) = (&context, &tracker);
        let executor = scope.spawn(move || execute(context, &tasks, &finish, tracker, setup));
        let give_steps = |round, seqs| {
            for it in local(0, round, seqs, 4) {
                let assignment = rig.iteration(1, it);
                tracker.queue(&assignment.key);
                give.send(assignment).unwrap();
            }
        };
        give_steps((1, 4), 1..=2);
        let second = |running: String| running.starts_with("it/w1/2 ");
        until("the second step is about to end, or has ended", || {
            let is_running = tracker.running().is_some_and(second);
            tracker.is_idle() || is_running && tracker.timer.running_and_longest_ms().0 >= 20
        });
        tracker.revoke(&[rig.key(1, 2)]);
        let in_time = tracker.running().is_some_and(second);
        give_steps((1, 2), 1..=2);
        drop(give);
        assert_eq!(executor.join().unwrap(), End::Stopped);
        in_time
    });
    let reports: Vec<_> = std::iter::from_fn(|| finished.blocking_recv()).collect();
    let told = seqs(&reports);
    assert!(!in_time || told == [1, 2], "those of the round that was whole, not {told:?}");
    in_time
}

#[test]
fn a_step_out_of_its_round_fails_and_says_what_came_next() {
    let rig = Rig::start();
    let its = [local(0, (1, 4), 2..=2, 4), local(0, (1, 4), 1..=1, 4), local(0, (1, 4), 3..=3, 4)].concat();
    let reports = rig.execute(1, &its, &[]);
    let reasons: Vec<&str> = reports
        .iter()
        .map(|report| match &report.outcome {
            Outcome::Failed { code, reason, .. } if *code == FaultCode::new("E460") => reason.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seqs(&reports), [2, 3]);
    assert!(reasons[0].contains("no round is open") && reasons[1].contains("iteration 2"), "{reasons:?}");
}
